"""[x; ELMo] ─▶ biLSTM ─▶ [h; ELMo] ─▶ ALIGNMENT ─▶ biLSTM ─▶ POOLING ─▶ ONE OF THREE LABELS.

ESIM, the sequential model of Chen et al. (2017); paper, section 4. One network encodes both sentences, a premise of P
tokens and a hypothesis of Q; each token is then compared with the tokens of the other sentence that match it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from elmo.config import CheckedConfig, Probability
from elmo.tasks.accuracy import label_lines
from elmo.tasks.classifier import Classifier
from elmo.tasks.examples import Example
from elmo.tasks.inputs import ElmoConfig, Inputs, InputsConfig, Size, Texts
from elmo.tasks.layers.encoder import BiLSTM, Order, VariationalDropout, masked_softmax
from elmo.tasks.snli import data, metric
from elmo.tasks.task import Task
from elmo.tasks.train_config import TrainConfig


@dataclass(frozen=True)
class SnliConfig(CheckedConfig):
    """The paper's: 300 units everywhere, ELMo at input and output, λ 0.001, learning rate halved when dev stagnates."""

    hidden: Size = 300  # H, of both biLSTMs, in each direction
    projection: Size = 300  # units per token after the alignment
    feedforward: Size = 300  # units before the labels
    dropout: Probability = 0.5  # before both biLSTMs, the same units for all tokens; and before the last layers
    inputs: InputsConfig = field(
        default_factory=lambda: InputsConfig(elmo=ElmoConfig(placement="both", mix_l2=0.001), vectors_trainable=False),
    )
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(
            epochs=75, patience=5, batch_size=32, learning_rate=4e-4, clip_norm=10.0, schedule="halve"
        )
    )


@dataclass(frozen=True)
class Pair:
    """The prepared texts of a batch."""

    premise: Texts
    hypothesis: Texts
    both: Order  # of the premises and the hypotheses behind each other, in one batch


class Esim(Classifier):
    """Align the tokens of two sentences, and score every label of the pair."""

    def __init__(self, config: SnliConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__(inputs, labels)
        self.token_dropout = VariationalDropout(config.dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = BiLSTM(inputs.dim, config.hidden)
        self.projection = _linear(4 * (self.encoder.output_dim + inputs.output_dim), config.projection)
        self.composition = BiLSTM(config.projection, config.hidden)
        self.feedforward = _linear(4 * self.composition.output_dim, config.feedforward)
        self.classes = _linear(config.feedforward, len(labels))

    def prepare_texts(self, examples: Sequence[Example], *, recorded: bool = False) -> Pair:
        """Prepare the premises and the hypotheses."""
        premise, hypothesis = (
            self.inputs.prepare([example.texts[side] for example in examples], recorded=recorded) for side in (0, 1)
        )
        longest = max(premise.mask.shape[1], hypothesis.mask.shape[1])
        both = self.inputs.order(premise.lengths + hypothesis.lengths, longest, recorded=recorded)
        return Pair(premise, hypothesis, both)

    def scores_of(self, texts: Pair) -> Tensor:
        """Compute the score of every label, (B, K)."""
        premise, hypothesis, both = self.inputs(texts.premise), self.inputs(texts.hypothesis), texts.both
        hidden = self.encoder(self.token_dropout(together(premise.vectors, hypothesis.vectors)), both)
        a, b = hidden.chunk(2)
        a = self.inputs.at_output(a[:, : premise.mask.shape[1]], premise.layers)  # (B, P, ·)
        b = self.inputs.at_output(b[:, : hypothesis.mask.shape[1]], hypothesis.layers)  # (B, Q, ·)
        combined = self._combined(a, b, *align(a, premise.mask, b, hypothesis.mask))
        composed = self.composition(self.token_dropout(combined), both)
        pooled = pool(composed, together(premise.mask, hypothesis.mask))
        v = torch.cat(pooled.chunk(2), dim=1)  # (B, 8H)
        scores: Tensor = self.classes(torch.tanh(self.feedforward(self.dropout(v))))
        return scores

    def _combined(self, a: Tensor, b: Tensor, from_b: Tensor, from_a: Tensor) -> Tensor:
        """Combine every token with its alignment, those of both sentences in one product: (2B, T, projection)."""
        own = torch.cat([a.flatten(0, 1), b.flatten(0, 1)])  # (B · (P + Q), ·)
        other = torch.cat([from_b.flatten(0, 1), from_a.flatten(0, 1)])
        combined = torch.relu(self.projection(torch.cat([own, other, own - other, own * other], dim=-1)))
        of_a, of_b = combined.split_with_sizes([a.shape[0] * a.shape[1], b.shape[0] * b.shape[1]])
        return together(of_a.view(*a.shape[:2], -1), of_b.view(*b.shape[:2], -1))


def together(a: Tensor, b: Tensor) -> Tensor:
    """Put both sentences of all pairs into one batch: (B, P, …), (B, Q, …) ─▶ (2B, T, …), T the larger of P and Q."""
    longest = max(a.shape[1], b.shape[1])
    padded = []
    for one in (a, b):
        missing = longest - one.shape[1]
        padded.append(nn.functional.pad(one, (0, 0) * (one.ndim - 2) + (0, missing)) if missing else one)
    return torch.cat(padded)


def align(a: Tensor, a_mask: Tensor, b: Tensor, b_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return for every token the mean of the other sentence's tokens, weighted by how well they match it.

    a (B, P, D), b (B, Q, D) ─▶ from b (B, P, D), from a (B, Q, D)
    """
    scores = a @ b.transpose(1, 2)  # (B, P, Q)
    from_b = masked_softmax(scores, b_mask[:, None]) @ b
    from_a = masked_softmax(scores.transpose(1, 2), a_mask[:, None]) @ a
    return from_b, from_a


def pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the average and the maximum over the tokens: x (B, T, D) ─▶ (B, 2D)."""
    is_token = mask[..., None]
    average = (x * is_token).sum(dim=1) / is_token.sum(dim=1)
    return torch.cat([average, torch.where(is_token, x, -torch.inf).amax(dim=1)], dim=1)


def _linear(input_dim: int, output_dim: int) -> nn.Linear:
    layer = nn.Linear(input_dim, output_dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


FORMAT = label_lines(data.read_file, data.LABELS)
TASK = Task("snli", SnliConfig, data.read, data.labels, Esim, metric.score, data.parse, data.to_json, FORMAT)
