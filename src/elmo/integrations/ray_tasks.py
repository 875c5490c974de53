"""What runs on a Ray cluster: a task that cuts the input into shards, and workers that embed them.

Between them, a shard is a row. A user's error is a row, too: Ray would wrap it in a traceback.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from elmo.embed.embedder import load
from elmo.errors import ElmoError, WeightsError
from elmo.integrations.ray_shards import Job, Shard, cut, embed_shard, is_done


class ShardSource(Datasource):
    """The shards of a file as a dataset of Ray: one task reads it from beginning to end."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def estimate_inmemory_data_size(self) -> int | None:
        """Nothing is known of the size."""
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[Any]:
        """Return the task."""
        job = self.job
        return [ReadTask(lambda: _read(job), BlockMetadata(None, None, None, None))]


class Worker:
    """A process with one thread and a model, which embeds shards."""

    def __init__(self, job: Job) -> None:
        import torch

        torch.set_num_threads(1)
        self.job = job
        self.embedder = load(job.model, device="cpu", precision=job.precision)
        if self.embedder.fingerprint() != job.fingerprint:
            raise WeightsError(f"{job.model}: the model is another one on this node; copy the same files to all nodes")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed the shard in a batch of one row; return the row without its sentences."""
        row = {name: values[0] for name, values in batch.items()}
        sentences = json.loads(row.pop("tokens_of_sentences"))
        if row["new"] and not row["error"]:
            shard = Shard(row["number"], row["first"], sentences, row["position"])
            try:
                embed_shard(self.job, self.embedder, shard)
            except ElmoError as error:
                row["kind"], row["error"] = type(error).__name__, str(error)
        return {name: np.array([value]) for name, value in row.items()}


def _read(job: Job) -> Iterator[Any]:
    """Yield a table of one row for each shard, and a row for an error."""
    try:
        for shard in cut(job):
            new = not is_done(job, shard)
            yield _row(shard, new)
    except ElmoError as error:
        yield _row(Shard(-1, 0, [], 0), False, type(error).__name__, str(error))


def _row(shard: Shard, new: bool, kind: str = "", error: str = "") -> Any:
    values = {
        "number": shard.number,
        "first": shard.first,
        "sentences": len(shard.sentences),
        "tokens": shard.tokens,
        "position": shard.position,
        "new": new,
        "tokens_of_sentences": json.dumps(shard.sentences if new else []),
        "kind": kind,
        "error": error,
    }
    return pa.table({name: [value] for name, value in values.items()})
