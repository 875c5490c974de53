"""[x; ELMo] ─▶ biLSTM ─▶ A TAG FOR EVERY WORD."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from pos import data, metric
from torch import Tensor, nn

from elmo.config import CheckedConfig, PositiveInt, Probability
from elmo.tasks.examples import Example
from elmo.tasks.inputs import Inputs, InputsConfig
from elmo.tasks.layers.encoder import BiLSTM
from elmo.tasks.reading import parse_sentence
from elmo.tasks.task import Task, TaskModel
from elmo.tasks.train_config import TrainConfig

NO_TAG = -100  # of padding: cross-entropy ignores it


@dataclass(frozen=True)
class PosConfig(CheckedConfig):
    hidden: PositiveInt = 128
    dropout: Probability = 0.3
    inputs: InputsConfig = field(default_factory=InputsConfig)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(epochs=20, patience=3))


class Tagger(TaskModel):
    def __init__(self, config: PosConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.inputs = inputs
        self.labels = labels
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = BiLSTM(inputs.dim, config.hidden)
        self.scores = nn.Linear(self.encoder.output_dim + inputs.output_dim, len(labels))

    def forward(self, examples: Sequence[Example]) -> Tensor:
        x = self.inputs([example.texts[0] for example in examples])
        hidden = self.encoder(self.dropout(x.vectors), x.order)
        return self.scores(self.inputs.at_output(self.dropout(hidden), x.layers))  # (B, T, K)

    def loss(self, examples: Sequence[Example]) -> Tensor:
        rows = [torch.tensor([self.labels.index(tag) for tag in example.gold]) for example in examples]
        gold = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=NO_TAG)
        scores = self(examples)
        return nn.functional.cross_entropy(scores.flatten(0, 1), gold.flatten().to(scores.device), ignore_index=NO_TAG)

    def answers(self, examples: Sequence[Example]) -> list[list[str]]:
        best = self(examples).argmax(dim=-1).tolist()
        lengths = (len(example.texts[0]) for example in examples)
        return [[self.labels[k] for k in row[:length]] for row, length in zip(best, lengths, strict=True)]


TASK = Task("pos", PosConfig, data.read, data.labels, Tagger, metric.score, parse_sentence, data.to_json)
