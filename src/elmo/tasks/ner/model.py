"""[x; ELMo] ─▶ biLSTM ─▶ [h; ELMo] ─▶ CRF ─▶ ENTITIES (Peters et al. 2017; the paper, section 4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from elmo.config import CheckedConfig, PositiveInt, Probability
from elmo.model.device import to_device
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig, Texts
from elmo.tasks.layers.crf import CRF
from elmo.tasks.layers.encoder import BiLSTM
from elmo.tasks.ner import data, metric
from elmo.tasks.ner.data import Span, spans_of, tags_of
from elmo.tasks.reading import parse_sentence
from elmo.tasks.task import Task, TaskModel
from elmo.tasks.train import TrainConfig


@dataclass(frozen=True)
class NerConfig(CheckedConfig):
    """The paper's: 2 × 200, characters in 128 filters of width 3, λ 0.1."""

    hidden: PositiveInt = 200  # H, in each direction
    n_layers: PositiveInt = 2
    dropout: Probability = 0.5  # on all that is read, ELMo too; between the layers, and behind them
    inputs: InputsConfig = field(
        default_factory=lambda: InputsConfig(characters=CharactersConfig(), elmo=ElmoConfig(mix_l2=0.1, dropout=0.0))
    )
    train: TrainConfig = field(default_factory=TrainConfig)


class Tagger(TaskModel):
    """A score for every BIOUL tag of every token, and a CRF over them."""

    def __init__(self, config: NerConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels
        self.inputs = inputs
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = BiLSTM(inputs.dim, config.hidden, config.n_layers, config.dropout)
        self.scores = nn.Linear(self.encoder.output_dim + inputs.output_dim, len(labels))
        self.crf = CRF(labels, data.legal)
        self._numbers = {label: number for number, label in enumerate(labels)}

    def loss(self, texts: Sequence[Texts], gold: Sequence[Sequence[Span]]) -> Tensor:
        """−log p of the gold tags, the mean over sentences."""
        (text,) = texts
        n_tokens = text.mask.shape[1]
        rows = [[self._numbers[tag] for tag in tags_of(spans, n_tokens)] for spans in gold]
        labels = to_device(torch.tensor(rows), text.mask.device)
        return -self.crf.log_likelihood(self._scores(text), labels, text.mask).mean()

    def answers(self, texts: Sequence[Texts]) -> list[list[Span]]:
        """The entities of the best legal path."""
        (text,) = texts
        paths = self.crf.best(self._scores(text), text.mask)
        return [spans_of([self.labels[number] for number in path]) for path in paths]

    def _scores(self, text: Texts) -> Tensor:
        hidden = self.encoder(self.dropout(self.inputs(text)), text.packed)
        scores: Tensor = self.scores(self.inputs.at_output(self.dropout(hidden), text))
        return scores


TASK = Task("ner", NerConfig, data.read, data.labels, Tagger, metric.score, parse_sentence, data.show)
