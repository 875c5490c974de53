"""`elmo finetune`: a model and a domain's text ─▶ a model of the domain."""

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument, ThreadsOption, use_threads
from elmo.cli.interrupt import stopping
from elmo.cli.training import (
    ConfigOption,
    CorpusArgument,
    MemoryOption,
    Reporter,
    ResumeOption,
    SetOption,
    TokenizerOption,
    interrupted,
    owned,
    recipe,
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
    """Train a model further on a domain's text, by default for one epoch.

    A model folder with its softmax is trained as it is. Published files have none: a new softmax over the domain's
    vocabulary is trained first with the biLM frozen, then both. Held-out perplexity is printed before and after.

    \b
    Example:
      $ elmo finetune model corpus tuned --set steps=4 --set batch.size=4
    """
    from elmo.pretrain.corpus_source import open_or_prepare
    from elmo.pretrain.distributed import joined
    from elmo.pretrain.finetune import finetune as run
    from elmo.pretrain.finetune import steps_saved
    from elmo.training.run import MODEL
    from elmo.weights import source

    use_threads(threads)
    with joined() as world, owned(out, world.rank), Reporter() as report:
        asked = recipe("finetune", out, resume, config, set)
        read = source.read(model, softmax=True)
        text = open_or_prepare(corpus, out, heldout="5%", tokenizer=tokenizer, world=world)
        with stopping() as stop:
            change = run(
                read, text, out, asked,
                resume=resume, ignore_memory=ignore_memory, stop=stop, world=world, report=report,
            )  # fmt: skip
        if change is None:
            raise interrupted(out, "step", steps_saved(out), world.rank)
    if world.rank == 0:
        print(f"{'held-out perplexity':<22}{'before':>10}{'after':>10}")
        for name in ("forward", "backward", "mean"):
            before, after = getattr(change.before, name), getattr(change.after, name)
            if before is not None:
                print(f"{name:<22}{before:>10.2f}{after:>10.2f}")
        print(f"{out / MODEL}: {change.after.tokens:,} tokens, {change.after.unknown:.2%} unknown")
