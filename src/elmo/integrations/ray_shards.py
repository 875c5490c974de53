"""SHARDS of a file: how the input is cut, and what a worker writes for each. Without Ray."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmo import errors
from elmo.embed.arrays import embed_sentences
from elmo.embed.embedder import Embedder
from elmo.embed.lines import tokens_of_lines
from elmo.embed.store import Record, write_parquet
from elmo.errors import DataError, ElmoError, WeightsError
from elmo.files import replacing
from elmo.text.batches import windows
from elmo.text.reader import Lines, TextColumn

SETTINGS = "_settings.json"  # readers of Parquet folders skip names that begin with an underscore


@dataclass(frozen=True)
class Job:
    """Everything that the tasks of a run need to know: files, model and options."""

    input: str
    field: str
    part: str
    model: str
    fingerprint: str
    window_tokens: int  # of a shard
    layers: str | int | list[float]
    pool: str | None
    pooling: str | None  # its identity
    dtype: str
    tokenized: bool
    state: str
    batch_tokens: int | None
    max_sentence_tokens: int | None
    precision: str
    forget_sentences: bool

    def settings(self) -> dict[str, Any]:
        """Return what a run and the run that it resumes must have in common. Files may have moved."""
        settings = asdict(self)
        for name in ("input", "part", "model", "pool", "max_sentence_tokens"):
            del settings[name]
        return settings


@dataclass(frozen=True)
class Shard:
    """Consecutive sentences of the input, which are computed together."""

    number: int
    first: int  # index of its first sentence
    sentences: list[list[str]]
    position: int  # bytes of the input read up to its end

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return sum(map(len, self.sentences))

    def digest(self) -> str:
        """Return a hash of the sentences."""
        return hashlib.sha256(json.dumps(self.sentences).encode()).hexdigest()


def shard_name(number: int) -> str:
    """Return the file name of a shard; the order of names is the order of sentences."""
    return f"{number:08d}.parquet"


def open_input(name: str, field: str) -> Lines:
    """Open a Parquet file by its ending, or else a text file."""
    return TextColumn(name, field) if name.endswith(".parquet") else Lines(name)


def cut(job: Job) -> Iterator[Shard]:
    """Yield the shards of the input; at least one, which may be empty."""
    lines = open_input(job.input, job.field)
    sentences = (tokens for _, tokens in tokens_of_lines(lines, job.tokenized, job.max_sentence_tokens))
    first = number = 0
    for number, window in enumerate(windows(sentences, job.window_tokens), 1):
        yield Shard(number - 1, first, window, lines.position)
        first += len(window)
    if number == 0:
        yield Shard(0, 0, [], 0)


def is_done(job: Job, shard: Shard) -> bool:
    """Whether the run to resume has written this shard; refuse it if it was of other sentences."""
    import pyarrow.parquet as parquet

    path = Path(job.part) / shard_name(shard.number)
    if not path.exists():
        return False
    if (parquet.read_schema(path).metadata or {}).get(b"sentences") != shard.digest().encode():
        what = f"sentences {shard.first + 1} to {shard.first + len(shard.sentences)} have changed"
        raise DataError(
            f"{job.input}: {what} since the run to resume; restore them, or remove {job.part} to start over"
        )
    return True


def embed_shard(job: Job, embedder: Embedder, shard: Shard) -> None:
    """Compute a shard and write its file."""
    arrays = embed_sentences(
        embedder.runner,
        shard.sentences,
        job.layers,
        dtype=job.dtype,
        state=job.state,
        batch_tokens=job.batch_tokens,
        max_sentence_tokens=job.max_sentence_tokens,
    )
    pooling = embedder.pooling(job.pool) if job.pool else None
    if pooling and pooling.identity != job.pooling:
        raise WeightsError(
            f"{job.pool}: the sentence head is another one on this node; copy the same files to all nodes"
        )

    def records() -> Iterator[Record]:
        for index, (tokens, array) in enumerate(zip(shard.sentences, arrays, strict=True), shard.first):
            yield index, tokens, pooling.pool(array, tokens) if pooling else array

    with replacing(Path(job.part) / shard_name(shard.number)) as path:
        write_parquet(path, records(), job.dtype, not job.forget_sentences, {"sentences": shard.digest()})


def error_of(kind: str, message: str) -> ElmoError:
    """Return the error that a task met, from the name of its class and its message."""
    error: ElmoError = getattr(errors, kind, ElmoError)(message)
    return error
