"""ONE CALL PER VERB, from paths: what `elmo train`, `elmo evaluate`, `elmo predict` and `elmo package` do."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmo.errors import DataError
from elmo.files import locked, optional_path, refuse_existing
from elmo.tasks import seeds as several
from elmo.tasks.distribution import Distribution, write_distribution
from elmo.tasks.predict import load_task
from elmo.tasks.predict_file import predict_file
from elmo.tasks.recipe import recipe
from elmo.tasks.task import prediction_format, task_named
from elmo.tasks.train import Report, TaskTraining
from elmo.text.reader import Lines, read_lines
from elmo.training.interrupt import stopping
from elmo.training.run import MODEL, Run
from elmo.training.seeds import Logs


@dataclass(frozen=True)
class Outcome:
    """The end of a run of one seed."""

    finished: bool  # False: it was interrupted, and can be resumed
    epochs: int  # done and saved
    model: Path  # the trained task; it exists if the run has finished
    best_epoch: int | None = None
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # of the best epoch, by part of the data


def train(
    task: str,
    data: str | Path,
    out: str | Path,
    *,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    resume: bool = False,
    catch_signals: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Train a task, named or the folder of one, on a folder of data; OUT/model is the result.

    The recipe is the task's default, changed by the TOML file `config` and then by `settings` ("train.epochs=2"). With
    `catch_signals`, SIGINT and SIGTERM end the run after its current batch; it can be resumed after the last complete
    epoch.
    """
    out = Path(out).expanduser()
    with locked(out):
        found, built = recipe(task, optional_path(config), settings, out if resume else None)
        with stopping(catch_signals) as stop:
            training = TaskTraining(
                found, built, found.read(Path(data).expanduser()), out, data=str(data), resume=resume, report=report
            )
            finished = training.train(stop)
        if not finished:
            return Outcome(False, training.progress.epoch, out / MODEL)
        record = Run.open(out).record
    return Outcome(True, training.progress.epoch, out / MODEL, record["best_epoch"], record["scores"])


def train_seeds(
    task: str,
    data: str | Path,
    out: str | Path,
    *,
    seeds: int,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    jobs: int | None = None,
    threads: int | None = None,
    catch_signals: bool = False,
    report: Report | None = None,
    progress: Callable[[Logs, int], None] | None = None,
) -> dict[str, Any] | None:
    """Train several seeds of a task, each in a process of its own with `threads` threads, `jobs` side by side.

    Return the content of OUT/report.json: means and standard deviations; None if a signal ended it early, and the same
    call continues. `progress` is called now and then with the metrics of all seeds and the number of epochs.
    """
    out = Path(out).expanduser()
    with locked(out):
        _, built = recipe(task, optional_path(config), settings)

        def show(logs: Logs) -> None:
            if progress is not None:
                progress(logs, built.train.epochs)

        with stopping(catch_signals) as stop:
            return several.train_seeds(
                task, built, Path(data).expanduser(), out,
                count=seeds, jobs=jobs, threads=threads, stop=stop, report=report, progress=show,
            )  # fmt: skip


def evaluate(
    model: str | Path,
    data: str | Path,
    part: str = "test",
    *,
    task: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    word_cache: str | Path | None = None,
    output: str | Path | None = None,
) -> dict[str, float]:
    """Score a trained task on a part of a folder of data; `task` is the folder of a task of your own.

    `output` is a new file for the predictions, in the public format of the task; `precision` and `word_cache` are those
    of the biLM, see `load_task`.
    """
    own = task_named(task) if task else None
    return load_task(model, device, own, precision=precision, word_cache=word_cache).evaluate(data, part, output)


def evaluate_predictions(task: str, gold: str | Path, predictions: str | Path) -> dict[str, float]:
    """Score a file of predictions, of any system, against a gold file; both have the public format of the task."""
    found = task_named(task)
    format = prediction_format(found)
    examples = format.read_gold(Path(gold).expanduser())
    if not examples:
        raise DataError(f"{gold}: contains no example; expected gold answers to score against")
    predicted = format.read_predictions(Path(predictions).expanduser(), examples)
    return found.score([example.gold for example in examples], predicted)


def predict(
    model: str | Path,
    input: str | Path,
    output: str | Path | None = None,
    *,
    jsonl: bool | None = None,
    task: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    word_cache: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Answer every line of a file with a trained task: see `predict_file`; `task` is the folder of one of your own.

    `precision` and `word_cache` are those of the biLM, see `load_task`.
    """
    if output is not None and str(output) != "-":
        refuse_existing(Path(output).expanduser())  # before the model is read
    Lines(input)
    own = task_named(task) if task else None
    predictor = load_task(model, device, own, precision=precision, word_cache=word_cache)
    return predict_file(predictor, input, output, jsonl=jsonl, progress=progress)


def package(
    model: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    title: str | None = None,
    license: str | None = None,
    language: str | None = None,
    notes: str | Path | None = None,
    data: str | Path | None = None,
    max_words: int | None = None,
    device: str = "auto",
    task: str | None = None,
) -> Distribution:
    """Write a trained task as a distribution: see `write_distribution`; `notes` is a Markdown file for its card."""
    return write_distribution(
        model, out,
        name=name, title=title, license=license, language=language,
        notes="" if notes is None else "\n".join(line for _, line in read_lines(notes)),
        data=data, max_words=max_words, device=device, task=task_named(task) if task else None,
    )  # fmt: skip
