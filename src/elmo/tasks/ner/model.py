"""[x; ELMo] ─▶ biLSTM ─▶ [h; ELMo] ─▶ CRF ─▶ ENTITIES (Peters et al. 2017; paper, section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from elmo.config import CheckedConfig, Probability
from elmo.tasks.examples import Example
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig, LayerCount, Size, Texts
from elmo.tasks.layers.crf import CRF
from elmo.tasks.layers.encoder import BiLSTM
from elmo.tasks.ner import data, metric
from elmo.tasks.ner.data import Span, spans_of, tags_of
from elmo.tasks.prepared import on_device
from elmo.tasks.reading import parse_sentence
from elmo.tasks.task import PredictionFormat, PreparedModel, Task
from elmo.tasks.train_config import TrainConfig


@dataclass(frozen=True)
class NerConfig(CheckedConfig):
    """The paper's tagger: two layers of 2 × 200 units, 128 character filters of width 3, λ 0.1."""

    hidden: Size = 200  # H, in each direction
    n_layers: LayerCount = 2
    dropout: Probability = 0.5  # on everything the network reads, ELMo included; between its layers, and on its output
    inputs: InputsConfig = field(
        default_factory=lambda: InputsConfig(characters=CharactersConfig(), elmo=ElmoConfig(mix_l2=0.1, dropout=0.0))
    )
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class Tagged:
    """A prepared batch of sentences with gold answers."""

    texts: Texts
    tags: Tensor  # (B, T) numbers


class Tagger(PreparedModel):
    """A biLSTM that scores every BIOUL tag of every token, and a CRF over the scores."""

    def __init__(self, config: NerConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        data.refuse_unknown_tags(labels)
        self.labels = labels
        self.inputs = inputs
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = BiLSTM(inputs.dim, config.hidden, config.n_layers, config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + inputs.output_dim, len(labels))
        self.crf = CRF(labels, data.legal)
        self._numbers = {label: number for number, label in enumerate(labels)}

    def prepare(self, examples: Sequence[Example], *, recorded: bool = False) -> Tagged:
        """Prepare the sentences and the numbers of their tags."""
        texts = self.inputs.prepare([example.texts[0] for example in examples], recorded=recorded)
        n_tokens = texts.mask.shape[1]
        rows = [[self._numbers[tag] for tag in tags_of(example.gold, n_tokens)] for example in examples]
        return Tagged(texts, torch.tensor(rows))

    def loss_of(self, batch: Tagged) -> Tensor:
        """Compute −log p of the gold tags, the mean over sentences."""
        return -self.crf.log_likelihood(self._scores(batch.texts), batch.tags, batch.texts.mask).mean()

    def answers(self, examples: Sequence[Example]) -> list[list[Span]]:
        """Return the entities of the best legal path of tags."""
        texts = on_device(self.inputs.prepare([example.texts[0] for example in examples]), self.device)
        paths = self.crf.best(self._scores(texts), texts.mask)
        return [spans_of([self.labels[number] for number in path]) for path in paths]

    def _scores(self, texts: Texts) -> Tensor:
        """Return the scores of all tags, (B, T, K)."""
        x = self.inputs(texts)
        hidden = self.encoder(self.dropout(x.vectors), x.order)
        scores: Tensor = self.scores(self.inputs.at_output(self.dropout(hidden), x.layers))
        return scores


FORMAT = PredictionFormat(data.read_file, data.read_predictions, data.write_predictions)
TASK = Task("ner", NerConfig, data.read, data.labels, Tagger, metric.score, parse_sentence, data.to_json, FORMAT)
