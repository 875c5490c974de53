"""`elmo finetune`: a model and a domain's text ─▶ a model of the domain."""

from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument
from elmo.cli.interrupt import stopping
from elmo.cli.training import (
    ConfigOption,
    CorpusArgument,
    Reporter,
    ResumeOption,
    SetOption,
    interrupted,
    recipe,
)


def finetune(
    model: ModelArgument,
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Argument(help="The run's folder; OUT/model is the new model.")],
    config: ConfigOption = None,
    set: SetOption = None,
    resume: ResumeOption = False,
) -> None:
    """Go on training a model on a domain's text, for one epoch unless told otherwise.

    A folder with its softmax is simply trained on. Published files have none: a new softmax over the domain's
    vocabulary is trained first with the biLM frozen, then both. Held-out perplexity is printed before and after.

    \b
    Example:
      $ elmo finetune model corpus tuned --set steps=4 --set batch.size=4
    """
    from elmo.pretrain.distributed import joined
    from elmo.pretrain.finetune import finetune as run
    from elmo.pretrain.loop import MODEL
    from elmo.pretrain.text import corpus_at
    from elmo.weights import source

    asked = recipe(out, resume, config, set, None, finetuning=True)
    read = source.read(model, softmax=True)
    with joined() as world, Reporter() as report:
        text = corpus_at(corpus, out, heldout="5%", world=world)
        with stopping() as stop:
            change = run(read, text, out, asked, resume=resume, stop=stop, world=world, report=report)
        if change is None:
            raise interrupted(out, world.rank)
    if world.rank == 0:
        print(f"{'held-out perplexity':<22}{'before':>10}{'after':>10}")
        for name in ("forward", "backward", "mean"):
            before, after = getattr(change.before, name), getattr(change.after, name)
            if before is not None:
                print(f"{name:<22}{before:>10.2f}{after:>10.2f}")
        print(f"{out / MODEL}: {change.after.tokens:,} tokens, {change.after.unknown:.2%} unknown")
