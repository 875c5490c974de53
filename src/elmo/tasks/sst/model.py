"""[x; ELMo] ─▶ biLSTM ─▶ [h; ELMo] ─▶ BIATTENTION ─▶ biLSTM ─▶ POOLING ─▶ MAXOUT ─▶ A LABEL.

The biattentive classification network of McCann et al. (2017); both of its inputs are the same sentence (paper,
section 4). McCann et al. use batch normalisation in the maxout layers. AllenNLP does not, and reaches the accuracy of
the paper; without it a sentence never depends on the other sentences of its batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from elmo.config import Bounds, CheckedConfig, Probability
from elmo.errors import ConfigError
from elmo.tasks.accuracy import label_lines
from elmo.tasks.classifier import Classifier
from elmo.tasks.examples import Example
from elmo.tasks.inputs import LARGEST, ElmoConfig, Inputs, InputsConfig, Size, Texts
from elmo.tasks.layers.encoder import BiLSTM, masked_softmax
from elmo.tasks.reading import parse_sentence
from elmo.tasks.sst import data, metric
from elmo.tasks.task import Task
from elmo.tasks.train_config import TrainConfig


def _inputs() -> InputsConfig:
    """Fixed word vectors, dropout 0.5 on words and on ELMo."""
    return InputsConfig(elmo=ElmoConfig(mix_l2=0.0), vectors_trainable=False, dropout=0.5)


@dataclass(frozen=True)
class SstConfig(CheckedConfig):
    """AllenNLP's sizes, which are the paper's: 300 units everywhere, maxout layers of 1200, 600 and five units."""

    prenet: Size = 300
    hidden: Size = 300  # H, in each direction, of the encoder and of the integrator
    maxout: Annotated[int, Bounds(ge=2, le=LARGEST)] = 1200  # units of the first maxout layer; the second has half
    pool: Size = 4  # linear units per maxout unit, which is their maximum
    prenet_dropout: Probability = 0.25
    integrator_dropout: Probability = 0.1  # on the pooled vector
    maxout_dropout: Probability = 0.2  # after the first maxout layer
    maxout_dropout_2: Probability = 0.3  # after the second
    inputs: InputsConfig = field(default_factory=_inputs)
    train: TrainConfig = field(default_factory=lambda: TrainConfig(epochs=40, patience=5, batch_size=100))


class BCN(Classifier):
    """Encode a sentence, attend to itself, encode again, pool, and score every label."""

    def __init__(self, config: SstConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__(inputs, labels)
        if not set(labels) <= set(data.NAMES):
            raise ConfigError(f"labels are {labels!r:.80}; expected those of {', '.join(data.NAMES)}")
        self.prenet = nn.Sequential(nn.Linear(inputs.dim, config.prenet), nn.ReLU(), nn.Dropout(config.prenet_dropout))
        self.encoder = BiLSTM(config.prenet, config.hidden)
        self.integrator = BiLSTM(3 * (self.encoder.output_dim + inputs.output_dim), config.hidden)
        self.pooling = Pooling(self.integrator.output_dim)
        self.scores = nn.Sequential(
            nn.Dropout(config.integrator_dropout),
            Maxout(self.pooling.output_dim, config.maxout, config.pool),
            nn.Dropout(config.maxout_dropout),
            Maxout(config.maxout, config.maxout // 2, config.pool),
            nn.Dropout(config.maxout_dropout_2),
            Maxout(config.maxout // 2, len(labels), config.pool),
        )

    def prepare_texts(self, examples: Sequence[Example], *, recorded: bool = False) -> Texts:
        """Prepare the sentences."""
        return self.inputs.prepare([example.texts[0] for example in examples], recorded=recorded)

    def scores_of(self, texts: Texts) -> Tensor:
        """Compute the score of every label, (B, K)."""
        text = self.inputs(texts)
        encoded = self.encoder(self.prenet(text.vectors), text.order)
        x = self.inputs.at_output(encoded, text.layers)
        context = biattention(x, text.mask)
        integrated = self.integrator(torch.cat([x, x - context, x * context], dim=-1), text.order)  # (B, T, 2H)
        scores: Tensor = self.scores(self.pooling(integrated, text.mask))
        return scores


def biattention(x: Tensor, mask: Tensor) -> Tensor:
    """Return for each token of x (B, T, ·) the mean of its sentence, weighted by the similarity of the tokens to it."""
    similarity = x @ x.transpose(1, 2)  # (B, T, T)
    return masked_softmax(similarity, mask[:, None]) @ x


class Pooling(nn.Module):
    """x (B, T, dim) ─▶ (B, 4 dim): maximum, minimum and mean over the tokens, and a mean with learned weights."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.output_dim = 4 * dim
        self.attention = nn.Linear(dim, 1, bias=False)  # a bias would be lost in the softmax

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool over the tokens of each sequence, none of them empty."""
        is_token = mask[..., None]
        maximum = torch.where(is_token, x, -torch.inf).max(dim=1).values
        minimum = torch.where(is_token, x, torch.inf).min(dim=1).values
        mean = (x * is_token).sum(dim=1) / is_token.sum(dim=1)
        weights = masked_softmax(self.attention(x).squeeze(2), mask)  # (B, T)
        return torch.cat([maximum, minimum, mean, (weights[:, None] @ x).squeeze(1)], dim=1)


class Maxout(nn.Module):
    """x (B, input_dim) ─▶ (B, output_dim): each unit is the maximum of `pool` linear units (Goodfellow et al. 2013)."""

    def __init__(self, input_dim: int, output_dim: int, pool: int) -> None:
        super().__init__()
        self.pool = pool
        self.linear = nn.Linear(input_dim, output_dim * pool)

    def forward(self, x: Tensor) -> Tensor:
        """Take the maximum of every `pool` neighbouring values."""
        values: Tensor = self.linear(x)
        return values.view(len(x), -1, self.pool).max(dim=2).values


FORMAT = label_lines(partial(data.read_file, phrases=False), tuple(data.NAMES))
TASK = Task("sst", SstConfig, data.read, data.labels, BCN, metric.score, parse_sentence, data.to_json, FORMAT)
