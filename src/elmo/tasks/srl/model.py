"""[x; ELMo; is it the predicate] ─▶ DEEP HIGHWAY LSTM ─▶ [h; ELMo] ─▶ BIO TAGS ─▶ THE ARGUMENTS OF A PREDICATE.

The model of He et al. (2017); paper, section 4. A sentence is read once for each of its predicates. In data the
predicates are given; in other text `PredicateFinder` finds them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from elmo.config import CheckedConfig, Probability
from elmo.model.device import to_device
from elmo.tasks.examples import Example
from elmo.tasks.inputs import ElmoConfig, Inputs, InputsConfig, InputVectors, LayerCount, Size
from elmo.tasks.layers.highway_lstm import HighwayLSTM
from elmo.tasks.srl import conll, data, metric
from elmo.tasks.srl.data import Answer, Proposition, Sentence, spans_of
from elmo.tasks.srl.decoding import best_tags
from elmo.tasks.srl.predicates import PredicateFinder
from elmo.tasks.task import PredictionFormat, Task, TaskModel
from elmo.tasks.train_config import TrainConfig
from elmo.text.tokens import Tokens

NO_TAG = -100  # of padding, and of sentences without a predicate: cross-entropy ignores it
MAX_TOKENS = 20_000  # of propositions answered at once: a sentence is read as often as it has predicates


@dataclass(frozen=True)
class SrlConfig(CheckedConfig):
    """He et al.'s: eight layers of 300 units, recurrent dropout 0.1; Adadelta, batches of 80 propositions."""

    hidden: Size = 300  # H
    n_layers: LayerCount = 8
    predicate_dim: Size = 100  # of the vector that marks the predicate
    dropout: Probability = 0.1  # recurrent, in every layer
    inputs: InputsConfig = field(default_factory=lambda: InputsConfig(elmo=ElmoConfig(mix_l2=0.001, dropout=0.1)))
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(
            epochs=500, batch_size=80, optimizer="adadelta", learning_rate=1.0, rho=0.95, clip_norm=1.0
        )
    )


class RoleLabeler(TaskModel):
    """Score every BIO tag of every token of a sentence, for one predicate; and find the predicates."""

    independent = ("finder",)

    def __init__(self, config: SrlConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels
        self.inputs = inputs
        self.is_predicate = nn.Embedding(2, config.predicate_dim)
        self.encoder = HighwayLSTM(inputs.dim + config.predicate_dim, config.hidden, config.n_layers, config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + inputs.output_dim, len(labels))
        self.finder = PredicateFinder(inputs)
        nn.init.xavier_uniform_(self.is_predicate.weight)
        nn.init.normal_(self.scores.weight, std=0.01)
        nn.init.zeros_(self.scores.bias)
        self._numbers = {label: number for number, label in enumerate(labels)}

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Compute −log p of the gold tags, the mean over propositions, and add the loss of the finder."""
        gold: list[Answer] = [example.gold for example in examples]
        x = self.inputs([example.texts[0] for example in examples])
        tags = np.full(x.mask.shape, NO_TAG)
        for row, answer in enumerate(gold):
            for _, spans in answer.propositions:  # one, or none
                tags[row, : x.lengths[row]] = 0
                for start, end, role in spans:
                    tags[row, start:end] = self._numbers[f"I-{role}"]
                    tags[row, start] = self._numbers[f"B-{role}"]
        scores = self._scores(x, [answer.propositions[0].predicate if answer.propositions else None for answer in gold])
        wanted = to_device(torch.from_numpy(tags).flatten(), x.mask.device)
        total = nn.functional.cross_entropy(scores.flatten(0, 1), wanted, ignore_index=NO_TAG, reduction="sum")
        propositions = sum(len(answer.propositions) for answer in gold)
        return total / max(propositions, 1) + self.finder.loss(x, [answer.predicates for answer in gold])

    def answers(self, examples: Sequence[Example]) -> list[Answer]:
        """Return the propositions of each example: of its predicates, or of those that are found."""
        found = self.finder.found(self.inputs([example.texts[0] for example in examples]))
        asked = [
            places if not isinstance(example, Sentence) or example.predicates is None else example.predicates
            for example, places in zip(examples, found, strict=True)
        ]
        pairs = [(example.texts[0], place) for example, some in zip(examples, asked, strict=True) for place in some]
        propositions = iter([one for some in _portions(pairs) for one in self._propositions(some)])
        return [
            Answer(tuple(next(propositions) for _ in some), places) for some, places in zip(asked, found, strict=True)
        ]

    def _propositions(self, pairs: Sequence[tuple[Tokens, int]]) -> list[Proposition]:
        """Find the arguments of some predicates: pairs of a sentence and the number of a token."""
        x = self.inputs([tokens for tokens, _ in pairs])
        paths = best_tags(self._scores(x, [place for _, place in pairs]), x.mask)
        return [
            Proposition(place, spans_of([self.labels[number] for number in path]))
            for (_, place), path in zip(pairs, paths, strict=True)
        ]

    def _scores(self, x: InputVectors, predicates: Sequence[int | None]) -> Tensor:
        """Score all tags of all tokens, (B, T, K); each sentence has one predicate, or none."""
        marks = np.zeros(x.mask.shape, dtype=np.int64)
        for row, place in enumerate(predicates):
            if place is not None:
                marks[row, place] = 1
        marked = self.is_predicate(to_device(torch.from_numpy(marks), x.mask.device))
        hidden = self.encoder(torch.cat([x.vectors, marked], dim=-1), x.packed)
        scores: Tensor = self.scores(self.inputs.at_output(hidden, x.layers))
        return scores


def _portions(pairs: Sequence[tuple[Tokens, int]]) -> Iterator[Sequence[tuple[Tokens, int]]]:
    """Divide propositions into portions that are answered at once, of at most MAX_TOKENS tokens with padding."""
    first, longest = 0, 0
    for number, (tokens, _) in enumerate(pairs):
        longest = max(longest, len(tokens))
        if number > first and longest * (number + 1 - first) > MAX_TOKENS:
            yield pairs[first:number]
            first, longest = number, len(tokens)
    if pairs:
        yield pairs[first:]


FORMAT = PredictionFormat(conll.read_file, conll.read_predictions, conll.write_predictions)
TASK = Task("srl", SrlConfig, conll.read, data.labels, RoleLabeler, metric.score, data.parse, data.to_json, FORMAT)
