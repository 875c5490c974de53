"""`elmo pretrain`: a corpus ─▶ a biLM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.interrupt import stopping
from elmo.cli.training import (
    ConfigOption,
    CorpusArgument,
    Reporter,
    ResumeOption,
    SetOption,
    VocabularyOption,
    interrupted,
    recipe,
)


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Argument(help="The run's folder; OUT/model is the trained model.")],
    preset: Annotated[str | None, typer.Option(help="tiny, small, medium or original [default: original].")] = None,
    config: ConfigOption = None,
    set: SetOption = None,
    vocabulary: VocabularyOption = None,
    resume: ResumeOption = False,
) -> None:
    """Train a biLM: the original's recipe unless told otherwise.

    On a CPU, a GPU, or many: torchrun --nproc-per-node 8 -m elmo pretrain CORPUS OUT …

    The fields of a recipe are those of elmo.pretrain.config.PretrainConfig; steps, epochs and seed stand at the top.
    Ctrl-C and SIGTERM save first; --resume goes on as if nothing had happened.

    \b
    Examples:
      $ elmo pretrain corpus run --preset tiny --set steps=4 --set batch.size=4
      $ elmo pretrain corpus interrupted --resume
    """
    from elmo.pretrain.distributed import joined
    from elmo.pretrain.loop import MODEL, Training
    from elmo.pretrain.text import corpus_at

    asked = recipe(out, resume, config, set, preset)
    with joined() as world, Reporter() as report:
        text = corpus_at(corpus, out, vocabulary, world=world)
        with stopping() as stop:
            training = Training(text, out, asked, resume=resume, world=world, report=report)
            ended = training.train(stop)
        if not ended:
            raise interrupted(out, world.rank)
        if world.rank == 0:
            best = training.progress.best
            what = f", held-out perplexity {best:.2f}" if best is not None else ""
            print(f"{out / MODEL}: {training.bilm.n_parameters():,} parameters{what}", file=sys.stderr)
