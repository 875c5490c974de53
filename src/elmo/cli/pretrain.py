"""`elmo pretrain`: a corpus ─▶ a biLM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ThreadsOption, use_threads
from elmo.cli.progress import StepReport
from elmo.cli.training import (
    ConfigOption,
    CorpusArgument,
    MemoryOption,
    ResumeOption,
    SetOption,
    TokenizerOption,
    VocabularyOption,
    interrupted,
    is_first_process,
)


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Argument(help="The folder of the run; OUT/model is the trained model.")],
    preset: Annotated[
        str | None, typer.Option(help="Model size: tiny, small, medium or original.  [default: original]")
    ] = None,
    config: ConfigOption = None,
    set: SetOption = None,
    tokenizer: TokenizerOption = None,
    vocabulary: VocabularyOption = None,
    resume: ResumeOption = False,
    ignore_memory: MemoryOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Train a biLM on a corpus.

    The default recipe is that of the original model. Its fields are those of elmo.pretrain.config.PretrainConfig, which
    docs/reference/recipes.md lists. Trains on a CPU, a GPU, or several: torchrun --nproc-per-node 8 -m elmo pretrain
    CORPUS OUT …

    On Ctrl-C or SIGTERM the run saves a checkpoint and ends. --resume continues it; the result is the same as without
    the interruption.

    \b
    Examples:
      $ elmo pretrain corpus run --preset tiny --set steps=4 --set batch.size=4
      $ elmo pretrain corpus interrupted --resume
    """
    from elmo.pretrain import from_paths

    use_threads(threads)
    with StepReport() as report:
        outcome = from_paths.pretrain(
            corpus,
            out,
            preset=preset,
            config=config,
            settings=set or [],
            tokenizer=tokenizer,
            vocabulary=vocabulary,
            resume=resume,
            ignore_memory=ignore_memory,
            catch_signals=True,
            report=report,
        )
    if not outcome.finished:
        raise interrupted(out, "step", outcome.steps)
    if is_first_process():
        found = f", held-out perplexity {outcome.perplexity:.2f}" if outcome.perplexity is not None else ""
        print(f"{outcome.model}: {outcome.n_parameters:,} parameters{found}", file=sys.stderr)
