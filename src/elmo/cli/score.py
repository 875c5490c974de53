"""`elmo score`: a text file, one sentence per line ─▶ how probable the language model finds each word."""

import io
import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from elmo.cli.arguments import DeviceOption, ModelOption, no_softmax
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.lines import Lines
from elmo.cli.progress import Progress
from elmo.packaged import DEFAULT

if TYPE_CHECKING:
    from elmo.embed.language_model import Scores


def score(
    input: Annotated[str, typer.Argument(help="A text file, one sentence per line; - is standard input.")],
    model: ModelOption = DEFAULT,
    output: Annotated[Path | None, typer.Option(help="The file to write instead of standard output.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="One row of a table per sentence, in tabs.")] = False,
    tokenized: Annotated[
        bool, typer.Option("--tokenized/--raw", help="Split at white space, or tokenise raw text.")
    ] = False,
    state: Annotated[str, typer.Option(help="Where each sentence starts: fresh or warm.")] = "fresh",
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens computed together.", min=1)] = None,
    device: DeviceOption = "auto",
    precision: Annotated[str, typer.Option(help="float32, or bfloat16: faster and less exact.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="CPU threads; PyTorch's choice if not given.", min=1)] = None,
) -> None:
    """Score a text file, one sentence per line, with the language model; a blank line is an empty sentence.

    Each line becomes a JSON object: its number as "sentence", its tokens, the natural logarithms of their
    probabilities "forward" (after what is before them) and "backward" (before what is after them), those of the
    sentence's boundaries as "forward_end" and "backward_end", its perplexity, and how many tokens are "unknown": not
    in the vocabulary, scored as <UNK>. With --summary it becomes a row, tabs between: number, tokens, unknown tokens,
    forward and backward log-probability, perplexity, the tokens themselves. The totals go to standard error.

    \b
    Examples:
      $ elmo score sentences.txt --output scores.jsonl
      $ elmo score sentences.txt --model model --tokenized --summary > scores.tsv
      $ cat sentences.txt | elmo score - --model model --state warm > scores.jsonl
    """
    from elmo.files import refuse_existing
    from elmo.text.tokens import words

    if output is not None:
        refuse_existing(output)
    lines = Lines(input)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    from elmo.embed.embedder import load

    embedder = load(model, device=device, precision=precision, softmax=True)
    if embedder.bilm.softmax is None:
        raise no_softmax(model)
    positions: deque[int] = deque()

    def sentences() -> Iterator[list[str]]:
        for line in lines:
            positions.append(lines.position)
            yield line.split() if tokenized else words(line)

    scored = embedder.score_all(sentences(), state=state, batch_tokens=batch_tokens)
    totals, row = _Totals(), _table_row if summary else _json
    in_the_way = output is None and sys.stdout.isatty()
    with interrupted_by_sigterm(), Progress(lines.size, hidden=in_the_way) as progress:
        try:
            with _written(output) as file:
                for scores in scored:
                    totals.add(scores)
                    print(row(totals.sentences, scores), file=file)
                    progress.advance(len(scores.tokens), positions.popleft())
        except KeyboardInterrupt:
            left = "" if output is None else "; nothing was written"
            print(f"elmo: interrupted after {totals.sentences} sentences{left}", file=sys.stderr)
            raise typer.Exit(130) from None
    print(f"{output or input}: {totals}", file=sys.stderr)


class _Totals:
    """The sums over all sentences."""

    def __init__(self) -> None:
        self.sentences = self.tokens = self.unknown = 0
        self.forward, self.backward = 0.0, 0.0
        self.bidirectional = True

    def add(self, scores: "Scores") -> None:
        """One sentence more."""
        self.sentences += 1
        self.tokens += len(scores.tokens)
        self.unknown += _unknown(scores)
        self.forward += scores.forward_total
        self.backward += scores.backward_total or 0.0
        self.bidirectional = scores.backward is not None

    def __str__(self) -> str:
        from elmo.embed.language_model import perplexity

        counted = f"{self.sentences:,} sentences, {self.tokens:,} tokens"
        if not self.sentences:
            return counted
        n = self.tokens + self.sentences
        shown = f"{perplexity(self.forward, n):.2f}"
        if self.bidirectional:
            both, backward = perplexity(self.forward + self.backward, 2 * n), perplexity(self.backward, n)
            shown = f"{both:.2f} (forward {shown}, backward {backward:.2f})"
        return f"{counted}, {self.unknown / max(self.tokens, 1):.2%} unknown; perplexity {shown}"


@contextmanager
def _written(output: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is there whole or not at all."""
    from elmo.files import replacing

    if output is not None:
        with replacing(output) as path, path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # as the input
    yield sys.stdout


def _json(number: int, scores: "Scores") -> str:
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


def _table_row(number: int, scores: "Scores") -> str:
    numbers = (_rounded(value) for value in (scores.forward_total, scores.backward_total, scores.perplexity))
    shown = ["" if value is None else str(value) for value in numbers]
    return "\t".join([str(number), str(len(scores.tokens)), str(_unknown(scores)), *shown, " ".join(scores.tokens)])


def _rounded(values: Any) -> Any:
    """To six digits after the point: float32 has no more. What is none stays so."""
    import numpy as np

    return None if values is None else np.round(values, 6).tolist()


def _unknown(scores: "Scores") -> int:
    return len(scores.tokens) - int(scores.known.sum())
