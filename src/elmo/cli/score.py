"""`elmo score`: a text file, one sentence per line ─▶ how probable the language model finds each word."""

import sys
from typing import Annotated

import typer

from elmo.cli.arguments import (
    BatchTokensOption,
    DeviceOption,
    MaxTokensOption,
    ModelOption,
    OutputOption,
    PrecisionOption,
    TextArgument,
    ThreadsOption,
    TokenizedOption,
    WordCacheOption,
    to_standard_output,
    use_threads,
)
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.cli.progress import FileReport
from elmo.messages import counted
from elmo.packaged import DEFAULT


def score(
    input: TextArgument,
    model: ModelOption = DEFAULT,
    output: OutputOption = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Write a table with one row per sentence, its columns separated by tabs.")
    ] = False,
    tokenized: TokenizedOption = False,
    state: Annotated[
        str,
        typer.Option(help="LSTM state at the start of each sentence: fresh (zeros) or warm (a stored state)."),
    ] = "fresh",
    batch_tokens: BatchTokensOption = None,
    max_sentence_tokens: MaxTokensOption = 100_000,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    word_cache: WordCacheOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Score the sentences of a text file with the language model.

    Writes a JSON object per line of the input: its number ("sentence"), its tokens, the natural logarithms of their
    probabilities given the words before them ("forward") and after them ("backward"), those of the ends of the sentence
    ("forward_end", "backward_end"), the perplexity, and the number of tokens that are not in the vocabulary and are
    scored as <UNK> ("unknown"). A blank line is an empty sentence. With --summary, writes a row per line instead:
    number, tokens, unknown tokens, forward and backward log-probability, perplexity, and the tokens themselves. The
    totals are printed to standard error.

    \b
    Examples:
      $ elmo score sentences.txt --output scores.jsonl
      $ elmo score sentences.txt --model model --tokenized --summary > scores.tsv
      $ cat sentences.txt | elmo score - --model model --state warm > scores.jsonl
    """
    from elmo.embed.score_file import Totals, score_file
    from elmo.text.reader import total_bytes

    use_threads(threads)
    totals = Totals()
    on_terminal = to_standard_output(output) and sys.stdout.isatty()
    with interrupted_by_sigterm(), FileReport(total_bytes([input]), hidden=on_terminal) as report:
        try:
            score_file(
                input,
                output,
                model,
                summary=summary,
                tokenized=tokenized,
                state=state,
                batch_tokens=batch_tokens,
                max_sentence_tokens=max_sentence_tokens,
                device=device,
                precision=precision,
                word_cache=word_cache,
                totals=totals,
                progress=report.show,
            )
        except KeyboardInterrupt:
            left = "" if to_standard_output(output) else "; nothing was written"
            print(f"elmo: interrupted after {counted(totals.sentences, 'sentence')}{left}", file=sys.stderr)
            raise typer.Exit(130) from None
    print(f"{input if to_standard_output(output) else output}: {totals}", file=sys.stderr)
