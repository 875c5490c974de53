"""[x; ELMo] ─▶ biLSTM PER SENTENCE ─▶ SPANS ─▶ MENTIONS ─▶ THE BEST ANTECEDENT OF EACH ─▶ CLUSTERS.

The end-to-end model of Lee et al. (2017); paper, section 4. All spans of up to W tokens are scored, the best are kept,
and each of these is scored with the spans before it. The network learns from the sum of the probabilities of all
correct antecedents. Between the layers of the biLSTM are highway connections, as in the authors' code. Their LSTM has
one gate for input and forgetting; this one has two, so that it runs on cuDNN.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from elmo.config import CheckedConfig, PositiveFloat, PositiveInt, Probability
from elmo.model.device import to_device
from elmo.tasks.coref import data, metric, spans
from elmo.tasks.coref.document import Clusters, Document, Span, in_order
from elmo.tasks.coref.layers import MentionScorer, PairScorer, linear
from elmo.tasks.examples import Example
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig, InputVectors, LayerCount, Size
from elmo.tasks.layers.encoder import BiLSTM, VariationalDropout
from elmo.tasks.task import PredictionFormat, Task, TaskModel
from elmo.tasks.train_config import TrainConfig
from elmo.text.tokens import Tokens

PADDED_TOKENS = 8192  # per group of sentences: bounds the memory of their layers
KEPT_ACTIVATIONS = 1024  # spans; with more of them, blocks of pairs are computed again for the gradient


@dataclass(frozen=True)
class CorefConfig(CheckedConfig):
    """Lee et al.'s sizes, with the three layers of their code: 3 × 200 units, networks of 2 × 150, features of 20."""

    hidden: Size = 200  # of the biLSTM, in each direction
    n_layers: LayerCount = 3
    feedforward: Size = 150  # H, of both hidden layers of every other network
    feature: Size = 20  # F, of the vectors of width, distance, speaker and genre
    max_width: Size = 10  # W, of a span, in tokens
    spans_per_token: PositiveFloat = 0.4  # λ: how many spans are kept
    max_antecedents: Size = 250  # K, of each span: the nearest ones
    max_sentences: PositiveInt = 50  # of a document in training: a random piece of this length
    dropout: Probability = 0.2  # on hidden layers and features; on the biLSTM, the same units for all tokens
    inputs: InputsConfig = field(
        default_factory=lambda: InputsConfig(
            elmo=ElmoConfig(mix_l2=0.0),
            vectors_trainable=False,
            own_words=None,
            characters=CharactersConfig(dim=8, filters=50, width=3, n_widths=3),
            dropout=0.5,
        )
    )
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(epochs=150, patience=20, batch_size=1, schedule="decay")
    )


class Kept(NamedTuple):
    """The M spans of a document that are left after pruning, in order."""

    spans: list[Span]
    vectors: Tensor  # (M, D)
    scores: Tensor  # (M,) as mentions
    speakers: Tensor  # (M,) numbers
    genre: int


class SpanRanker(TaskModel):
    """Find the mentions of a document, and link each to the best mention before it, or to none. Labels are genres."""

    def __init__(self, config: CorefConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.config, self.inputs = config, inputs
        self._genres = {genre: number for number, genre in enumerate(labels, start=1)}  # 0: any other
        dims = [inputs.dim, *(config.n_layers - 1) * [2 * config.hidden]]
        self.encoder = nn.ModuleList(BiLSTM(dim, config.hidden) for dim in dims)
        self.gates = nn.ModuleList(linear(2 * config.hidden, 2 * config.hidden) for _ in dims[1:])
        self.dropout = VariationalDropout(config.dropout)
        self.mentions = MentionScorer(
            2 * config.hidden + inputs.output_dim,
            inputs.dim,
            width=config.max_width,
            hidden=config.feedforward,
            feature=config.feature,
            dropout=config.dropout,
        )
        self.pairs = PairScorer(
            self.mentions.output_dim,
            len(labels) + 1,
            max_antecedents=config.max_antecedents,
            hidden=config.feedforward,
            feature=config.feature,
            dropout=config.dropout,
        )

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Compute −log p of the correct antecedents, summed over the spans of a document: the mean over documents."""
        return torch.stack([self._loss(_document(example)) for example in examples]).mean()

    def answers(self, examples: Sequence[Example]) -> list[Clusters]:
        """Return the clusters of each document; each has two mentions or more."""
        return [self._clusters(_document(example)) for example in examples]

    def _loss(self, document: Document) -> Tensor:
        too_many = len(document.texts) - self.config.max_sentences
        if self.training and too_many > 0:
            # The random numbers of a batch follow from the seed, the epoch and its number.
            document = document.cut(int(torch.randint(too_many + 1, ())), self.config.max_sentences)
        if not document.texts:
            return self.pairs.scores.last.bias.sum() * 0.0
        kept = self._kept(document)
        cluster_of = {span: number for number, cluster in enumerate(document.gold, start=1) for span in cluster}
        numbers = np.array([cluster_of.get(span, 0) for span in kept.spans])
        clusters = to_device(torch.from_numpy(numbers), kept.vectors.device)
        losses = [
            _negative_log_likelihood(scores, clusters, rows, columns) for rows, columns, scores in self._scores(kept)
        ]
        return torch.stack(losses).sum()

    def _clusters(self, document: Document) -> Clusters:
        if not document.texts:
            return ()
        kept = self._kept(document)
        best = []
        for _, columns, scores in self._scores(kept):
            column = scores.argmax(dim=1)  # 0: no antecedent
            best.append(torch.where(column > 0, column - 1 + columns.start, -1))
        clusters: list[list[Span]] = []
        cluster_of: dict[int, list[Span]] = {}
        for number, antecedent in enumerate(torch.cat(best).tolist()):
            if antecedent < 0:
                continue
            if antecedent not in cluster_of:
                cluster_of[antecedent] = [kept.spans[antecedent]]
                clusters.append(cluster_of[antecedent])
            cluster_of[number] = cluster_of[antecedent]
            cluster_of[number].append(kept.spans[number])
        return in_order(clusters)

    def _kept(self, document: Document) -> Kept:
        """Score all spans of a document, and keep the best.

        Only here does a GPU wait: the scores go to the CPU, which prunes them in 1 to 2 ms for 1,000 tokens.
        """
        tokens, x = self._encode(document.texts)
        scores, heads, widths = self.mentions(tokens, x)
        allowed = spans.within_sentences([len(text) for text in document.texts], self.config.max_width)
        found = np.where(allowed, scores.detach().cpu().numpy(), -np.inf)
        places = spans.prune(found, max(1, int(min(self.config.spans_per_token * len(x), found.size))))
        starts, lengths = places // self.config.max_width, places % self.config.max_width + 1
        numbers = {speaker: number for number, speaker in enumerate(dict.fromkeys(document.speakers))}
        speakers = [numbers[document.speakers[start]] for start in starts.tolist()]
        both = to_device(torch.from_numpy(np.stack([places, np.array(speakers)])), x.device)
        return Kept(
            [Span(start, start + length) for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)],
            self.mentions.vectors(both[0], tokens, x, heads, widths),
            scores.flatten().index_select(0, both[0]),
            both[1],
            self._genres.get(document.genre, 0),
        )

    def _scores(self, kept: Kept) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield the rows and the columns of each block of pairs, and its scores."""
        for rows, columns in self.pairs.blocks(len(kept.spans)):
            of = rows, columns, kept.vectors, kept.scores, kept.speakers, kept.genre
            if torch.is_grad_enabled() and len(kept.spans) > KEPT_ACTIVATIONS:
                yield rows, columns, checkpoint(self.pairs, *of, use_reentrant=False)
            else:
                yield rows, columns, self.pairs(*of)

    def _encode(self, texts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Return each token of a document in the context of its sentence, (T, ·), and its input, (T, ·)."""
        lengths = np.array([len(text) for text in texts])
        starts = np.cumsum(lengths) - lengths
        places = np.empty(lengths.sum(), dtype=np.int64)  # of each token among the padded ones of all groups
        tokens, inputs, before = [], [], 0
        for group in spans.groups(lengths.tolist(), PADDED_TOKENS):
            read = self.inputs([texts[row] for row in group])
            tokens.append(self._in_context(read).flatten(0, 1))
            inputs.append(read.vectors.flatten(0, 1))
            for row in group:
                places[starts[row] : starts[row] + lengths[row]] = np.arange(before, before + lengths[row])
                before += read.mask.shape[1]
        order = to_device(torch.from_numpy(places), tokens[0].device)
        both = (torch.cat(some) if len(some) > 1 else some[0] for some in (tokens, inputs))
        in_context, x = (some.index_select(0, order) for some in both)
        return in_context, x

    def _in_context(self, read: InputVectors) -> Tensor:
        """Run the biLSTM over sentences, (B, T, ·)."""
        hidden = self.dropout(self.encoder[0](read.vectors, read.order))
        for layer, gate in zip(self.encoder[1:], self.gates, strict=True):
            output = self.dropout(layer(hidden, read.order))
            hidden = torch.lerp(hidden, output, torch.sigmoid(gate(output)))
        return self.inputs.at_output(hidden, read.layers)


def _negative_log_likelihood(scores: Tensor, clusters: Tensor, rows: slice, columns: slice) -> Tensor:
    """Return −log p of the correct antecedents of a block's spans: of "none" where no antecedent is correct."""
    correct = (clusters[rows, None] == clusters[columns]) & (clusters[rows, None] > 0) & (scores[:, 1:] > -torch.inf)
    none = ~correct.any(dim=1, keepdim=True)
    of_correct = torch.where(torch.cat([none, correct], dim=1), torch.log_softmax(scores, dim=1), -torch.inf)
    return -torch.logsumexp(of_correct, dim=1).sum()


def _document(example: Example) -> Document:
    assert isinstance(example, Document)
    return example


FORMAT = PredictionFormat(data.read_gold, data.read_predictions, data.write_predictions)
TASK = Task(
    "coref", CorefConfig, data.read, data.labels, SpanRanker, metric.score, data.parse, data.to_json, FORMAT, "file"
)
