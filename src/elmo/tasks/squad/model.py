"""[x; ELMo] ─▶ biGRU ─▶ [h; ELMo] ─▶ BI-ATTENTION ─▶ SELF-ATTENTION ─▶ START AND END ─▶ A PIECE OF THE PARAGRAPH.

The paragraph model of Clark & Gardner (2017); paper, section 4 and appendix A.4. A row is a question and a window of
its paragraph: R rows, P tokens in the longest window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn

from elmo.config import CheckedConfig, Probability
from elmo.tasks.examples import Example
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig, InputVectors, Size, Texts
from elmo.tasks.layers.encoder import BiGRU, VariationalDropout
from elmo.tasks.squad import data, metric
from elmo.tasks.squad.attention import BiAttention, SelfAttention
from elmo.tasks.squad.data import Questions
from elmo.tasks.squad.predictions import read_predictions, write_predictions
from elmo.tasks.squad.spans import BestSpan, answer, best_spans, gold_places
from elmo.tasks.task import PredictionFormat, PreparedModel, Task
from elmo.tasks.train_config import TrainConfig
from elmo.text.tokens import Tokens

Row = tuple[Tokens, Tokens]
"""A question, and a window of its paragraph."""

CELLS = 1 << 23  # the most pairs of tokens, R · P · P, that are compared at once while answering: 32 MiB in float32


@dataclass(frozen=True)
class SquadConfig(CheckedConfig):
    """The paper's: GRUs of 2 × 90 units, 100 character filters of width 5, ELMo at input and output, λ 0."""

    hidden: Size = 90  # H, of every biGRU, in each direction
    feedforward: Size = 180  # units per token after each attention
    dropout: Probability = 0.2  # on what every biGRU and every attention reads, the same units for all tokens
    max_answer: Size = 17  # tokens of a predicted answer
    inputs: InputsConfig = field(
        default_factory=lambda: InputsConfig(
            elmo=ElmoConfig(placement="both", mix_l2=0.0),
            characters=CharactersConfig(dim=20, filters=100, width=5),
            vectors_trainable=False,
        )
    )
    train: TrainConfig = field(
        default_factory=lambda: TrainConfig(
            epochs=40, patience=8, batch_size=45, optimizer="adadelta", learning_rate=1.0, clip_norm=None, ema=0.999
        )
    )


@dataclass(frozen=True)
class Asked:
    """A prepared batch with gold answers: N questions, W windows of the longest paragraph."""

    questions: Texts  # of each row
    windows: Texts
    gold: Tensor  # (2, N, W · P) whether a token is a gold start, and a gold end
    places: Tensor | None  # (R,) of the rows among the N · W, if these are more: paragraphs with fewer windows


class Reader(PreparedModel):
    """Score every token of a paragraph as the start and as the end of the answer to a question."""

    def __init__(self, config: SquadConfig, inputs: Inputs, labels: list[str]) -> None:
        super().__init__()
        self.inputs = inputs
        self.max_answer = config.max_answer
        self.dropout = VariationalDropout(config.dropout)
        self.encoder = BiGRU(inputs.dim, config.hidden)
        self.attention = BiAttention(self.encoder.output_dim + inputs.output_dim)
        self.merge = nn.Linear(self.attention.output_dim, config.feedforward)
        self.self_attention = SelfAttention(config.feedforward, config.hidden, config.dropout)
        self.start = BiGRU(config.feedforward, config.hidden)
        self.end = BiGRU(config.feedforward + self.start.output_dim, config.hidden)
        self.start_score = nn.Linear(self.start.output_dim, 1, bias=False)  # a bias would be lost in the softmax
        self.end_score = nn.Linear(self.end.output_dim, 1, bias=False)

    def prepare(self, examples: Sequence[Example], *, recorded: bool = False) -> Asked:
        """Prepare the questions, the windows and the places of the gold answers."""
        asked = cast("Sequence[Questions]", examples)
        questions, windows = (self.inputs.prepare(side, recorded=recorded) for side in zip(*_rows(asked), strict=True))
        n_windows = max(len(example.paragraph.windows) for example in asked)
        gold = torch.from_numpy(gold_places(asked, n_windows, windows.mask.shape[1]))
        places = None
        if len(windows.mask) < len(asked) * n_windows:
            numbers = [n * n_windows + k for n, one in enumerate(asked) for k in range(len(one.paragraph.windows))]
            places = torch.tensor(numbers)
        return Asked(questions, windows, gold, places)

    def loss_of(self, batch: Asked) -> Tensor:
        """Compute −log p(start) − log p(end) of the gold answers, the mean over questions.

        Where a question has several gold answers, p is the sum over them, and where a paragraph has several windows,
        all of them share one softmax: the sum objective and the shared normalization of Clark & Gardner (section 3.2).
        """
        scores = self._scores(self.inputs(batch.questions), self.inputs(batch.windows))  # (2, R, P)
        if batch.places is not None:  # paragraphs with fewer windows get empty ones
            empty = scores.new_full(batch.gold.shape, -torch.inf).view(2, -1, scores.shape[2])
            scores = empty.index_copy(1, batch.places, scores)
        log_p = torch.log_softmax(scores.view_as(batch.gold), dim=2)
        return -torch.where(batch.gold, log_p, -torch.inf).logsumexp(dim=2).sum(dim=0).mean()

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        """Return the most probable span of at most `max_answer` tokens; a paragraph without tokens has none."""
        asked = cast("Sequence[Questions]", examples)
        found = (best for some in _parts(_rows(asked)) for best in self._best_spans(some))
        answers: list[Any] = []
        for example in asked:
            windows = len(example.paragraph.windows)
            some = [answer(example.paragraph, list(islice(found, windows))) for _ in range(example.n_questions)]
            answers.append(some[0] if isinstance(example.asked, str) else tuple(some))
        return answers

    def _best_spans(self, rows: Sequence[Row]) -> list[BestSpan]:
        questions, windows = zip(*rows, strict=True)
        return best_spans(self._scores(self.inputs(questions), self.inputs(windows)), self.max_answer)

    def _scores(self, question: InputVectors, paragraph: InputVectors) -> Tensor:
        """The scores of all tokens of the windows as start and as end, (2, R, P), −∞ where there is no token."""
        attended = self.attention(self._encode(paragraph), paragraph.mask, self._encode(question), question.mask)
        x = torch.relu(self.merge(attended))
        x = x + self.self_attention(x, paragraph.mask, paragraph.order)
        start = self.start(self.dropout(x), paragraph.order)
        end = self.end(self.dropout(torch.cat([x, start], dim=-1)), paragraph.order)
        scores = torch.stack([self.start_score(start), self.end_score(end)]).squeeze(3)
        return torch.where(paragraph.mask, scores, -torch.inf)

    def _encode(self, x: InputVectors) -> Tensor:
        """Encode questions or windows with the GRU that they share, and add ELMo to its output.

        That is where the paper adds it (appendix A.4: "to both the input and output of the contextual GRU layer"), so
        that the attentions compare ELMo vectors too (section 5.2).
        """
        hidden = self.encoder(self.dropout(x.vectors), x.order)
        return self.inputs.at_output(self.dropout(hidden), x.layers)


def _rows(examples: Sequence[Questions]) -> list[Row]:
    """The rows of a batch: for each question, the windows of its paragraph."""
    return [
        (question, window)
        for example in examples
        for question in example.texts[: example.n_questions]
        for window in example.paragraph.texts
    ]


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Cut rows into parts of at most `CELLS` pairs of tokens, at least one row each."""
    first, longest = 0, 0
    for number, (_, window) in enumerate(rows):
        longest = max(longest, len(window))
        if number > first and (number + 1 - first) * longest**2 > CELLS:
            yield rows[first:number]
            first, longest = number, len(window)
    if rows:
        yield rows[first:]


FORMAT = PredictionFormat(data.read_file, read_predictions, write_predictions)
TASK = Task("squad", SquadConfig, data.read, data.labels, Reader, metric.score, data.parse, data.to_json, FORMAT)
