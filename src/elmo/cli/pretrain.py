"""`elmo pretrain`: a corpus ─▶ a biLM."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ThreadsOption, use_threads
from elmo.cli.interrupt import stopping
from elmo.cli.training import (
    ConfigOption,
    CorpusArgument,
    MemoryOption,
    Reporter,
    ResumeOption,
    SetOption,
    TokenizerOption,
    VocabularyOption,
    interrupted,
    owned,
    recipe,
)


def pretrain(
    corpus: CorpusArgument,
    out: Annotated[Path, typer.Argument(help="The folder of the run; OUT/model is the trained model.")],
    preset: Annotated[str | None, typer.Option(help="tiny, small, medium or original [default: original].")] = None,
    config: ConfigOption = None,
    set: SetOption = None,
    tokenizer: TokenizerOption = None,
    vocabulary: VocabularyOption = None,
    resume: ResumeOption = False,
    ignore_memory: MemoryOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Train a biLM. By default the recipe is the original's.

    On a CPU, a GPU, or many: torchrun --nproc-per-node 8 -m elmo pretrain CORPUS OUT …

    The fields of a recipe are those of elmo.pretrain.config.PretrainConfig; steps, epochs and seed stand at the top.
    Ctrl-C and SIGTERM save first; --resume continues as if nothing had happened.

    \b
    Examples:
      $ elmo pretrain corpus run --preset tiny --set steps=4 --set batch.size=4
      $ elmo pretrain corpus interrupted --resume
    """
    from elmo.pretrain.corpus_source import open_or_prepare
    from elmo.pretrain.distributed import joined
    from elmo.pretrain.loop import Training
    from elmo.training.run import MODEL

    use_threads(threads)
    with joined() as world, owned(out, world.rank), Reporter() as report:
        asked = recipe("pretrain", out, resume, config, set, preset)
        text = open_or_prepare(corpus, out, vocabulary, tokenizer=tokenizer, world=world)
        with stopping() as stop:
            training = Training(
                text, out, asked, resume=resume, ignore_memory=ignore_memory, world=world, report=report
            )
            ended = training.train(stop)
        if not ended:
            raise interrupted(out, "step", training.progress.step, world.rank)
        if world.rank == 0:
            best = training.progress.best
            what = f", held-out perplexity {best:.2f}" if best is not None else ""
            print(f"{out / MODEL}: {training.bilm.n_parameters():,} parameters{what}", file=sys.stderr)
