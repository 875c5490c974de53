"""ONE CALL PER COMMAND, from paths: what `elmo pretrain`, `elmo finetune` and `elmo perplexity` do."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import ConfigError, DataError, WeightsError, no_softmax
from elmo.files import locked, optional_path
from elmo.model.device import device_named
from elmo.pretrain import evaluate
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus_source import TextOptions, open_or_prepare
from elmo.pretrain.distributed import World, joined
from elmo.pretrain.evaluate import Perplexity
from elmo.pretrain.finetune import SOFTMAX, Change, steps_saved
from elmo.pretrain.finetune import finetune as run_finetuning
from elmo.pretrain.loop import Report, Training
from elmo.training.interrupt import stopping
from elmo.training.run import MODEL, RECORD, Run
from elmo.weights import source
from elmo.weights.folder import VOCABULARY


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    finished: bool  # False: it was interrupted, and can be resumed
    steps: int  # done and saved
    model: Path  # the model folder; it exists if the run has finished
    n_parameters: int | None = None  # without the softmax
    perplexity: float | None = None  # the best on the held-out text
    change: Change | None = None  # of a finished fine-tuning: the held-out perplexity before and after


def pretrain(
    corpus: str | Path,
    out: str | Path,
    *,
    preset: str | None = None,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    tokenizer: str | None = None,
    vocabulary: str | Path | None = None,
    resume: bool = False,
    ignore_memory: bool = False,
    catch_signals: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Train a biLM on a corpus folder or a text; OUT/model is the result.

    The recipe is the default, changed by `preset`, the TOML file `config` and `settings` ("optimizer.name=adam"), in
    this order. `tokenizer` and `vocabulary` are for text; to resume a run, they need not be given again. With
    `catch_signals`, SIGINT and SIGTERM end the run after its current step, with a checkpoint. Processes that torchrun
    started share the work.
    """
    corpus, out = Path(corpus).expanduser(), Path(out).expanduser()
    with joined() as world, _owned(out, world):
        recipe = _recipe("pretrain", out, resume, config, settings, preset)
        options = _text_options(corpus, out, resume, tokenizer, vocabulary)
        text = open_or_prepare(corpus, out, options, world=world)
        with stopping(catch_signals) as stop:
            training = Training(
                text, out, recipe,
                resume=resume, ignore_memory=ignore_memory, world=world, report=report, facts=options.record(corpus),
            )  # fmt: skip
            finished = training.train(stop)
        progress = training.progress
        return Outcome(finished, progress.step, out / MODEL, training.bilm.n_parameters(), progress.best)


def finetune(
    model: str | Path,
    corpus: str | Path,
    out: str | Path,
    *,
    config: str | Path | None = None,
    settings: Iterable[str] = (),
    tokenizer: str | None = None,
    resume: bool = False,
    ignore_memory: bool = False,
    catch_signals: bool = False,
    report: Report | None = None,
) -> Outcome:
    """Train a model further on a domain's text, by default for one epoch; OUT/model is the result.

    The arguments are those of `pretrain`. Five percent of a text are held out; a corpus folder must have a held-out
    part.
    """
    corpus, out = Path(corpus).expanduser(), Path(out).expanduser()
    with joined() as world, _owned(out, world):
        recipe = _recipe("finetune", out, resume, config, settings)
        start = source.read(model, softmax=True)
        options = _text_options(corpus, out, resume, tokenizer)
        text = open_or_prepare(corpus, out, options, heldout="5%", world=world)
        with stopping(catch_signals) as stop:
            change = run_finetuning(
                start, text, out, recipe,
                resume=resume, ignore_memory=ignore_memory, stop=stop, world=world, report=report,
                facts=options.record(corpus),
            )  # fmt: skip
        return Outcome(change is not None, steps_saved(out), out / MODEL, change=change)


def perplexity(
    model: str | Path,
    corpus: str | Path,
    *,
    part: str = "heldout",
    tokenizer: str | None = None,
    tokens: int | None = None,
    state: str = "carried",
    device: str = "auto",
) -> Perplexity:
    """Score a model on a part of a corpus folder, "heldout" or "train", or on a text; or on about `tokens` of it.

    The LSTM state is "carried" from sentence to sentence, as in training, or "fresh" in each.
    """
    if part not in ("heldout", "train"):
        raise ConfigError(f"--part is {part!r}; expected heldout or train")
    if state not in ("carried", "fresh"):
        raise ConfigError(f"--state is {state!r}; expected carried or fresh")
    read = source.read(model, softmax=True)
    if read.bilm.softmax is None:
        raise no_softmax(model)
    if read.vocabulary is None:
        raise WeightsError(f"{model}: has a softmax but no {VOCABULARY}; expected the file with its words")
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(corpus).expanduser()
        text = open_or_prepare(path, Path(temporary), TextOptions(tokenizer))
        prepared = text.folder == path
        shards = text.heldout if part == "heldout" and prepared else text.train
        if not shards:
            raise DataError(f"{corpus}: nothing is held out; --part train scores the training text")
        bilm = read.bilm.to(device_named(device))
        return evaluate.perplexity(bilm, read.vocabulary, text, shards, tokens=tokens, carried=state == "carried")


def _recipe(
    task: str,
    out: Path,
    resume: bool,
    file: str | Path | None,
    settings: Iterable[str],
    preset: str | None = None,
) -> PretrainConfig:
    """Build the recipe: defaults ◀ preset ◀ file ◀ settings. A resumed run keeps the recipe it was started with."""
    started_with = _begun(out).config_of(task) if resume else None
    finetuning = task == "finetune"
    return PretrainConfig.load(preset, optional_path(file), settings, finetuning=finetuning, started_with=started_with)


def _text_options(
    corpus: Path, out: Path, resume: bool, tokenizer: str | None, vocabulary: str | Path | None = None
) -> TextOptions:
    """Return how to read a text: as the options say, or for a resumed run as its record says."""
    options = TextOptions(tokenizer, optional_path(vocabulary))
    return options.resumed(corpus, _begun(out).record) if resume else options


def _begun(out: Path) -> Run:
    """Return the run to resume: of a fine-tuning that is in its first stage, the one that trains a new softmax."""
    return Run(next((folder for folder in (out, out / SOFTMAX) if (folder / RECORD).exists()), out))


@contextmanager
def _owned(out: Path, world: World) -> Iterator[None]:
    """Lock the run's folder; of several processes, the first one does it for all."""
    if world.rank != 0:
        yield
        return
    with locked(out):
        yield
