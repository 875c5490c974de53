"""A TEXT FILE ─▶ PROBABILITIES OF ITS WORDS: `elmo score` as one call."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.embedder import load
from elmo.embed.language_model import Scores, perplexity
from elmo.embed.lines import tokens_of_lines
from elmo.embed.sentences import MAX_SENTENCE_TOKENS
from elmo.errors import no_softmax
from elmo.messages import counted
from elmo.packaged import DEFAULT
from elmo.text.reader import Lines
from elmo.text.writer import text_output


@dataclass
class Totals:
    """Sums over all sentences."""

    sentences: int = 0
    tokens: int = 0
    unknown: int = 0  # tokens that are not in the vocabulary
    forward: float = 0.0  # log-probability
    backward: float = 0.0
    bidirectional: bool = True

    def add(self, scores: Scores) -> None:
        """Add a sentence."""
        self.sentences += 1
        self.tokens += len(scores.tokens)
        self.unknown += _unknown(scores)
        self.forward += scores.forward_total
        self.backward += scores.backward_total or 0.0
        self.bidirectional = scores.backward is not None

    def __str__(self) -> str:
        size = f"{counted(self.sentences, 'sentence')}, {counted(self.tokens, 'token')}"
        if not self.sentences:
            return size
        n = self.tokens + self.sentences
        forward = perplexity(self.forward, n)
        shown = f"{forward:.2f}"
        if self.bidirectional:
            backward = perplexity(self.backward, n)
            shown = f"{(forward + backward) / 2:.2f} (forward {forward:.2f}, backward {backward:.2f})"
        return f"{size}, {self.unknown / max(self.tokens, 1):.2%} unknown; perplexity {shown}"


def score_file(
    input: str | Path,
    output: str | Path | None = None,
    model: str | Path = DEFAULT,
    *,
    summary: bool = False,
    tokenized: bool = False,
    state: str = "fresh",
    batch_tokens: int | None = None,
    max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    device: str = "auto",
    precision: str = "float32",
    word_cache: str | Path | None = None,
    totals: Totals | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Totals:
    """Score a text file, one sentence per line, and write a JSON object per line, or with `summary` a row of a table.

    `input` may be compressed; "-" is standard input. `output` must not exist; None or "-" is standard output. A longer
    line than `max_sentence_tokens` is refused; None sets no limit. The sums are returned, and kept up to date in
    `totals` if given. `progress` is called with the number of tokens scored so far, and the bytes of the input up to
    there. `word_cache` is a folder that keeps word vectors for later calls (docs/cpu.md).
    """
    totals = Totals() if totals is None else totals
    lines = Lines(input)
    row = _table_row if summary else _json
    with text_output(output) as file:
        embedder = load(model, device=device, precision=precision, softmax=True, word_cache=word_cache)
        if embedder.runner.module.softmax is None:
            raise no_softmax(model)
        positions: deque[int] = deque()

        def sentences() -> Iterator[list[str]]:
            for _, tokens in tokens_of_lines(lines, tokenized, max_sentence_tokens):
                positions.append(lines.position)
                yield tokens

        scored = embedder.score_all(
            sentences(), state=state, batch_tokens=batch_tokens, max_sentence_tokens=max_sentence_tokens
        )
        for scores in scored:
            totals.add(scores)
            print(row(totals.sentences, scores), file=file)
            position = positions.popleft()
            if progress is not None:
                progress(totals.tokens, position)
    return totals


def _json(number: int, scores: Scores) -> str:
    values = {
        "sentence": number,
        "tokens": scores.tokens,
        "forward": _rounded(scores.forward),
        "backward": _rounded(scores.backward),
        "forward_end": _rounded(scores.forward_end),
        "backward_end": _rounded(scores.backward_end),
        "perplexity": _rounded(scores.perplexity),
        "unknown": _unknown(scores),
    }
    return json.dumps(values, ensure_ascii=False)


def _table_row(number: int, scores: Scores) -> str:
    numbers = (_rounded(value) for value in (scores.forward_total, scores.backward_total, scores.perplexity))
    shown = ["" if value is None else str(value) for value in numbers]
    return "\t".join([str(number), str(len(scores.tokens)), str(_unknown(scores)), *shown, " ".join(scores.tokens)])


def _rounded(values: Any) -> Any:
    """Round to six digits after the point: float32 has no more."""
    return None if values is None else np.round(values, 6).tolist()


def _unknown(scores: Scores) -> int:
    return len(scores.tokens) - int(scores.known.sum())
