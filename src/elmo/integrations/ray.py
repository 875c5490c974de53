"""A TEXT OR PARQUET FILE ─▶ A FOLDER OF PARQUET FILES, on a Ray cluster: `elmo embed --engine ray` as one call.

A task reads and tokenizes the input and cuts it into shards: the windows of sentences that one process would compute
together. So every sentence is in the same batch as in one process, and has the same values, to the bit. Workers load
the model once and write a file per shard. A file is complete or not there, so a run that was killed continues with the
missing shards.
"""

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmo.embed.embed_file import Embedded, EmbedProgress
from elmo.embed.embedder import load
from elmo.embed.runner import WINDOW_BATCHES
from elmo.embed.selection import Selection
from elmo.embed.sentences import MAX_SENTENCE_TOKENS
from elmo.embed.store import compare_settings, format_of, write_settings
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import locked, refuse_existing, write_error
from elmo.integrations.ray_shards import SETTINGS, Job, error_of, open_input, shard_name
from elmo.messages import counted
from elmo.packaged import DEFAULT
from elmo.text.reader import STDIN

STATES = ("fresh", "warm")

_OWN_NAME = re.compile(r"\d+\.parquet|_settings\.json|\..*\.tmp")  # the files of an unfinished run


def embed_file_on_ray(
    input: str | Path,
    output: str | Path,
    model: str | Path = DEFAULT,
    *,
    workers: int | None = None,
    layers: str | None = None,
    pool: str | None = None,
    format: str | None = None,
    dtype: str = "float32",
    tokenized: bool = False,
    field: str = "text",
    state: str = "fresh",
    batch_tokens: int | None = None,
    max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    device: str = "auto",
    precision: str = "float32",
    threads: int | None = None,
    forget_sentences: bool = False,
    resume: bool = False,
    progress: EmbedProgress | None = None,
) -> Embedded:
    """Embed a file with `workers` processes of one thread each (by default one per CPU of the cluster).

    It uses the cluster that this process is connected to, the one that `RAY_ADDRESS` names, or else this machine. All
    nodes must see the input, the model and the output under the same names. `input` is text, one sentence per line, or
    Parquet with the text in the column `field`. `output` becomes a folder of Parquet files with the rows of
    `embed_file`. Until it is complete, finished shards are in `OUTPUT.part`: `resume=True` computes the missing ones.
    """
    output = Path(output).expanduser().absolute()
    _refuse_what_ray_cannot_do(str(input), output, format, state, device, threads, workers)
    ray = _import_ray()
    refuse_existing(output)
    name = str(Path(input).expanduser().absolute())
    open_input(name, field).close()
    with locked(output):  # also checks that the output can be written
        model = Path(model).absolute() if Path(model).exists() else model
        embedder = load(model, device="cpu", precision=precision)
        pooling = embedder.pooling(pool, layers, default="all") if pool else None
        chosen = pooling.layers if pooling else layers or "all"
        Selection.parse(chosen, embedder.n_layers, dtype)
        job = Job(
            input=name,
            field=field,
            part=str(output.with_name(output.name + ".part")),
            model=str(model),
            fingerprint=embedder.fingerprint(),
            window_tokens=WINDOW_BATCHES * embedder.runner.batch_tokens(batch_tokens),
            layers=chosen if isinstance(chosen, str | int) else list(chosen),
            pool=pooling.name if pooling else None,
            pooling=pooling.identity if pooling else None,
            dtype=dtype,
            tokenized=tokenized,
            state=state,
            batch_tokens=batch_tokens,
            max_sentence_tokens=max_sentence_tokens,
            precision=precision,
            forget_sentences=forget_sentences,
        )
        del embedder  # the workers have their own
        part = Path(job.part)
        _begin(part, job.settings(), resume)
        try:
            with _cluster(ray):
                done = _run(ray, job, _workers(ray, workers), progress)
            _finish(part, output)
        except BaseException as error:
            how = _what_is_saved(part)
            if isinstance(error, ElmoError) and how:
                raise type(error)(f"{error}. {how}") from error
            if how:
                error.add_note(how)
            raise
    return done


def _refuse_what_ray_cannot_do(
    input: str, output: Path, format: str | None, state: str, device: str, threads: int | None, workers: int | None
) -> None:
    if input == STDIN:
        raise ConfigError("--engine ray cannot read standard input, which other machines do not see; give a file")
    if format_of(output, format) != "parquet":
        raise ConfigError(f"{output}: --engine ray writes a folder of Parquet files; give a name that ends in .parquet")
    if state not in STATES:
        raise ConfigError(f"--engine ray computes sentences in any order: state is {state!r}; expected fresh or warm")
    if device not in ("auto", "cpu"):
        raise ConfigError(f"--engine ray computes on CPUs: device is {device!r}; expected cpu")
    if threads not in (None, 1):
        raise ConfigError(f"--engine ray has one thread per worker: threads is {threads}; set --workers instead")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}; expected 1 or more")


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError:
        raise ElmoError("--engine ray needs Ray: pip install 'elmo-torch[ray]'") from None
    return ray


def _begin(part: Path, settings: dict[str, Any], resume: bool) -> None:
    """Make the folder of an unfinished run, or check that the run in it can be resumed."""
    try:
        names = sorted(path.name for path in part.iterdir()) if part.exists() else []
    except OSError as error:
        raise write_error(part, error) from error
    if other := [name for name in names if not _OWN_NAME.fullmatch(name)]:
        raise DataError(f"{part}: contains {other[0]}, so it is not an unfinished run; move it away first")
    if not any(name.endswith(".parquet") for name in names):
        write_settings(part / SETTINGS, settings)
    elif not resume:
        raise DataError(f"{part}: contains an unfinished run. Use --resume to continue it, or remove it to start over")
    else:
        compare_settings(part / SETTINGS, settings)


@contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine, unless this process is connected already."""
    if ray.is_initialized():
        yield
        return
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _workers(ray: Any, asked: int | None) -> int:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if asked is not None and asked > cpus:  # Ray would wait for more machines forever
        raise ConfigError(f"workers is {asked}, but the cluster has {cpus} CPUs; expected at most one worker per CPU")
    return asked or cpus


def _run(ray: Any, job: Job, workers: int, progress: EmbedProgress | None) -> Embedded:
    """Compute the missing shards; return the size of all of them."""
    from elmo.integrations.ray_tasks import ShardSource, Worker

    numbers: set[int] = set()
    sentences = tokens = new = position = 0
    with _quiet(ray):
        shards = ray.data.read_datasource(ShardSource(job), num_cpus=0, override_num_blocks=1)
        results = shards.map_batches(
            Worker,
            fn_constructor_kwargs={"job": job},
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
            batch_size=1,
        )
        try:
            for row in results.iter_rows():
                if row["error"]:
                    raise error_of(row["kind"], row["error"])
                numbers.add(row["number"])
                sentences += row["sentences"]
                tokens += row["tokens"]
                new += row["tokens"] if row["new"] else 0
                position = max(position, row["position"])
                if progress is not None:
                    progress(new, position)
        except ray.exceptions.RayError as error:
            raise ElmoError(f"Ray stopped the run: {str(error).strip().splitlines()[-1]}") from error
    _refuse_surplus_shards(job, numbers)
    return Embedded(sentences, tokens)


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Give every shard a block of its own, and leave the reports to the caller."""
    context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.target_max_block_size, context.enable_progress_bars, log.level
    context.target_max_block_size, context.enable_progress_bars = 1, False
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.target_max_block_size, context.enable_progress_bars = before[:2]
        log.setLevel(before[2])


def _refuse_surplus_shards(job: Job, numbers: set[int]) -> None:
    expected = {shard_name(number) for number in numbers}
    if any(path.name not in expected for path in Path(job.part).glob("*.parquet")):
        raise DataError(
            f"{job.input}: has {len(numbers)} shards, but the run to resume has read more; restore it, or remove "
            f"{job.part} to start over"
        )


def _finish(part: Path, output: Path) -> None:
    try:
        for path in part.glob(".*.tmp"):  # of workers that were killed
            path.unlink()
        part.rename(output)
    except OSError as error:
        raise write_error(output, error) from error


def _what_is_saved(part: Path) -> str:
    """Say how to continue a failed run. If no shard is finished, remove the folder."""
    saved = len(list(part.glob("*.parquet"))) if part.exists() else 0
    if saved:
        return f"{counted(saved, 'shard')} {'is' if saved == 1 else 'are'} saved in {part}; use --resume to continue"
    shutil.rmtree(part, ignore_errors=True)
    return ""
