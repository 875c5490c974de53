"""`elmo finetune`: a model and a domain's text ─▶ a model of the domain."""

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument, ThreadsOption, use_threads
from elmo.cli.progress import StepReport
from elmo.cli.training import (
    ConfigOption,
    CorpusArgument,
    MemoryOption,
    ResumeOption,
    SetOption,
    TokenizerOption,
    interrupted,
    is_first_process,
)


def finetune(
    model: ModelArgument,
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Argument(help="The folder of the run; OUT/model is the new model.")],
    config: ConfigOption = None,
    set: SetOption = None,
    tokenizer: TokenizerOption = None,
    resume: ResumeOption = False,
    ignore_memory: MemoryOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Train a model further on a domain's text.

    By default it trains for one epoch, with Adam. Published HDF5 files have no softmax: a new one, over the vocabulary
    of the domain, is trained first, with the biLM frozen; then both are trained. The held-out perplexity before and
    after is printed: of a text, five percent of the sentences are held out; a corpus folder needs a held-out part.

    \b
    Example:
      $ elmo finetune model corpus tuned --set steps=4 --set batch.size=4
    """
    from elmo.pretrain import from_paths

    use_threads(threads)
    with StepReport() as report:
        outcome = from_paths.finetune(
            model,
            corpus,
            out,
            config=config,
            settings=set or [],
            tokenizer=tokenizer,
            resume=resume,
            ignore_memory=ignore_memory,
            catch_signals=True,
            report=report,
        )
    if outcome.change is None:
        raise interrupted(out, "step", outcome.steps)
    if is_first_process():
        before, after = outcome.change.before, outcome.change.after
        print(f"{'held-out perplexity':<22}{'before':>10}{'after':>10}")
        for name in ("forward", "backward", "mean"):
            if getattr(before, name) is not None:
                print(f"{name:<22}{getattr(before, name):>10.2f}{getattr(after, name):>10.2f}")
        print(f"{outcome.model}: {after.tokens:,} tokens, {after.unknown:.2%} unknown")
