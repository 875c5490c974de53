"""`elmo train`: a task's data ─▶ a trained task, for one seed or several."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ThreadsOption, use_threads
from elmo.cli.progress import EpochReport, SeedReport
from elmo.cli.training import ConfigOption, SetOption, interrupted
from elmo.errors import ConfigError

TaskArgument = Annotated[
    str, typer.Argument(help="squad, snli, srl, coref, ner, sst or sentences; or the folder of your own task.")
]
DataArgument = Annotated[
    Path, typer.Argument(help="A folder with the task's data files, under their original names.")
]


def train(
    task: TaskArgument,
    data: DataArgument,
    out: Annotated[Path, typer.Argument(help="The folder of the run; OUT/model is the trained task.")],
    config: ConfigOption = None,
    set: SetOption = None,
    seeds: Annotated[
        int, typer.Option(help="Number of random seeds to train; mean and standard deviation are reported.", min=1)
    ] = 1,
    jobs: Annotated[
        int | None, typer.Option(help="Number of seeds to train at once.  [default: all on a GPU, else 1]", min=1)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last complete epoch.")] = False,
    threads: ThreadsOption = None,
) -> None:
    """Train the model of a task.

    ELMo is added at the input of the task's network, at its output, both or nowhere: --set inputs.elmo.placement=none
    trains the baseline. The default recipe is the paper's. Its fields are those of the task's config, such as
    elmo.tasks.ner.model.NerConfig, explained in docs/tasks.md. The layers of a frozen biLM are computed once for all
    epochs and runs, and kept in $ELMO_CACHE/layers.

    After Ctrl-C or SIGTERM, --resume continues from the last complete epoch, with the same recipe. With --seeds, run
    the same command again instead; finished seeds are not trained again.

    \b
    Examples:
      $ elmo train ner entities run --set train.epochs=2
      $ elmo train ner entities seeds --set inputs.elmo.model=model --set train.epochs=1 --seeds 2
    """
    from elmo.tasks import from_paths
    from elmo.training.seeds import REPORT

    use_threads(threads)
    if seeds > 1 and resume:
        raise ConfigError("--resume continues one run; to continue --seeds, run the same command again without it")
    if seeds > 1:
        with SeedReport() as report:
            found = from_paths.train_seeds(
                task,
                data,
                out,
                seeds=seeds,
                config=config,
                settings=set or [],
                jobs=jobs,
                threads=threads,
                catch_signals=True,
                report=report,
                progress=report.show,
            )
        if found is None:
            print(f"elmo: {out}: interrupted. Run the same command again to continue", file=sys.stderr)
            raise typer.Exit(130)
        for part, spread in found["scores"].items():
            shown = ", ".join(f"{name} {value['mean']:.2f} ± {value['sd']:.2f}" for name, value in spread.items())
            print(f"{out / REPORT}: {part} {shown}, {seeds} seeds", file=sys.stderr)
        return
    with EpochReport() as report:
        outcome = from_paths.train(
            task, data, out, config=config, settings=set or [], resume=resume, catch_signals=True, report=report
        )
    if not outcome.finished:
        raise interrupted(out, "epoch", outcome.epochs)
    for part, scores in outcome.scores.items():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
        print(f"{outcome.model}: {part} {shown} (epoch {outcome.best_epoch})", file=sys.stderr)
