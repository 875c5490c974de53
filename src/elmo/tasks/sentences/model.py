"""LAYERS ─▶ HIDDEN LAYER ─▶ ATTENTION ─▶ PROJECTION ─▶ A SENTENCE VECTOR, learned from what follows from what.

The loss is contrastive (InfoNCE): among all sentences of a batch, a premise must find the one that follows from it, and
that one its premise, by the cosine of their vectors; likewise a question, and the sentence that has its answer. The
contradictions of the premises are among the candidates. The biLM is frozen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from elmo.config import CheckedConfig, PositiveFloat, PositiveInt
from elmo.errors import ConfigError
from elmo.model.device import to_device
from elmo.model.sentence_head import SentenceHead, SentenceHeadSize
from elmo.tasks.examples import Example
from elmo.tasks.inputs import ElmoConfig, Inputs, InputsConfig
from elmo.tasks.sentences import data, metric
from elmo.tasks.task import PredictionFormat, Task, TaskModel
from elmo.tasks.train_config import TrainConfig
from elmo.text.tokens import Tokens


@dataclass(frozen=True)
class SentencesConfig(CheckedConfig):
    """The recipe of a sentence head."""

    hidden: PositiveInt = 512  # units between a token and what is averaged
    dim: PositiveInt = 512  # of a sentence vector
    temperature: PositiveFloat = 0.05  # cosines are divided by it
    inputs: InputsConfig = field(
        default_factory=lambda: InputsConfig(
            elmo=ElmoConfig(mix="layer:0", layer_norm="token", dropout=0.1, mix_l2=0.0)
        )
    )
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(epochs=6, patience=3, batch_size=256, learning_rate=1e-3)
    )


    def __post_init__(self) -> None:
        super().__post_init__()
        inputs, elmo = self.inputs, self.inputs.elmo
        wanted = {
            "inputs.vectors": (inputs.vectors, None),
            "inputs.characters": (inputs.characters, None),
            "inputs.elmo.placement": (elmo.placement, "input"),
            "inputs.elmo.trainable": (elmo.trainable, False),
        }
        for name, (found, expected) in wanted.items():
            if found != expected:
                raise ConfigError(
                    f"{name} is {found!r}; a sentence head reads nothing but the layers of a frozen biLM: "
                    f"expected {expected!r}"
                )
        if elmo.layer_norm == "bilm-tf":
            raise ConfigError(
                "inputs.elmo.layer_norm is 'bilm-tf': a vector would depend on the other sentences of its batch; "
                "expected 'token' or none"
            )


class SentenceEncoder(TaskModel):
    """Encodes sentences; the similarity of two is the cosine of their vectors."""

    def __init__(self, config: SentencesConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.inputs = inputs
        self.temperature = config.temperature
        self.head = SentenceHead(SentenceHeadSize(inputs.dim, config.hidden, config.dim))

    def encode(self, texts: Sequence[Tokens]) -> Tensor:
        """Compute the vectors of sentences, (B, dim), of length 1."""
        x = self.inputs(texts)
        vectors: Tensor = self.head(x.vectors, x.mask)
        return vectors

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """Compute −log p of the entailed sentences given the premises, and of the premises given these: their mean."""
        premises = [example.texts[0] for example in examples]
        candidates = [example.texts[1] for example in examples]
        candidates += [example.texts[2] for example in examples if len(example.texts) > 2]
        return info_nce(
            self.encode(premises), self.encode(candidates), same_sentences(premises, candidates), self.temperature
        )

    def answers(self, examples: Sequence[Example]) -> list[float]:
        """Return the cosine of each pair."""
        first, second = (self.encode([example.texts[side] for example in examples]) for side in (0, 1))
        cosines: list[float] = (first * second).sum(dim=1).tolist()
        return cosines


def info_nce(anchors: Tensor, candidates: Tensor, excluded: Tensor, temperature: float) -> Tensor:
    """Compute the contrastive loss: anchors (B, D) and candidates (C ≥ B, D), of length 1; candidate i is anchor i's.

    excluded (B, C) says which candidates an anchor is not compared with. The candidates after the first B are negatives
    of the anchors only.
    """
    count = len(anchors)
    scores = (anchors @ candidates.T / temperature).masked_fill(to_device(excluded, anchors.device), -torch.inf)
    own = torch.arange(count, device=anchors.device)
    forward = torch.nn.functional.cross_entropy(scores, own)
    backward = torch.nn.functional.cross_entropy(scores[:, :count].T, own)
    return (forward + backward) / 2


def same_sentences(premises: Sequence[Tokens], candidates: Sequence[Tokens]) -> Tensor:
    """Return which candidates are no negatives of a premise, (B, C), although they belong to another example.

    They are the same sentence as its own candidate, or follow from the same premise.
    """
    numbers: dict[Tokens, int] = {}
    of_premises = torch.tensor([numbers.setdefault(text, len(numbers)) for text in premises])
    of_candidates = torch.tensor([numbers.setdefault(text, len(numbers)) for text in candidates])
    count = len(premises)
    same = of_candidates[:count, None] == of_candidates[None, :]
    same[:, :count] |= of_premises[:, None] == of_premises[None, :]
    return same.fill_diagonal_(False)


TASK = Task(
    "sentences",
    SentencesConfig,
    data.read,
    data.labels,
    SentenceEncoder,
    metric.score,
    data.parse,
    data.to_json,
    PredictionFormat(data.read_judged, data.read_similarities, data.write_similarities),
)
