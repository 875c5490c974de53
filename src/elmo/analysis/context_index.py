"""AN INDEX OF CONTEXTS: the vectors of all tokens of a corpus by one layer, on disk, and exact search in them.

FOLDER/00000.npy …    vectors of about 65,536 tokens each: (tokens, 2D), of length 1, in float16, memory-mapped
FOLDER/index.json     which model, layer and text they belong to

The parts of an interrupted build are used again. A search multiplies block by block and keeps the best of each block:
exact, and bounded in memory. An approximate index does not pay at a few million vectors.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo.analysis.vectors import Array, unit
from elmo.embed.embedder import Embedder
from elmo.errors import DataError
from elmo.files import replacing, write_array
from elmo.text.batches import windows

PART = 65_536  # tokens
BLOCK = 4_096  # rows that are converted to float32 and multiplied at once on a CPU
MANIFEST = "index.json"


class Hit(NamedTuple):
    """A token that was found."""

    cosine: float
    sentence: int  # in the corpus
    place: int  # in the sentence


class ContextIndex:
    """The contexts of a corpus: `search` finds those that are most similar to a vector."""

    def __init__(self, parts: Sequence[Tensor], lengths: Sequence[int]) -> None:
        self._parts = parts
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def search(self, queries: Array, k: int) -> list[list[Hit]]:
        """Return the k tokens of the largest cosine for each query (Q, 2D), in falling order."""
        wanted = torch.from_numpy(unit(np.atleast_2d(queries)).astype(np.float32)).to(self._device())
        best: list[tuple[Tensor, Tensor]] = []
        first = 0
        for part in self._parts:
            cosines = _products(part, wanted)  # (Q, tokens)
            values, rows = cosines.topk(min(k, len(part)), dim=1)
            best.append((values, rows + first))
            first += len(part)
        values, rows = (torch.cat([one[side] for one in best], dim=1) for side in (0, 1))
        order = values.topk(min(k, values.shape[1]), dim=1)
        found = rows.gather(1, order.indices)
        return [
            [self._hit(cosine, row) for cosine, row in zip(some.tolist(), where.tolist(), strict=True)]
            for some, where in zip(order.values, found, strict=True)
        ]

    def _hit(self, cosine: float, row: int) -> Hit:
        sentence = int(np.searchsorted(self._ends, row, side="right"))
        before = int(self._ends[sentence - 1]) if sentence else 0
        return Hit(cosine, sentence, row - before)

    def _device(self) -> torch.device:
        return self._parts[0].device


def _products(part: Tensor, queries: Tensor) -> Tensor:
    """Multiply float16 rows (N, D) with queries (Q, D) in float32: (Q, N). On a CPU, blocks stay in its cache."""
    rows = BLOCK if part.device.type == "cpu" else len(part)
    block = torch.empty(min(rows, len(part)), part.shape[1], device=part.device)
    products = torch.empty(len(part), len(queries), device=part.device)
    for first in range(0, len(part), rows):
        some = part[first : first + rows]
        torch.mm(block[: len(some)].copy_(some), queries.T, out=products[first : first + rows])
    return products.T


def build_index(
    folder: Path,
    embedder: Embedder,
    sentences: Sequence[Sequence[str]],
    layer: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ContextIndex:
    """Open the index of these sentences by this model and layer, or build it; its parts stay where the model is."""
    facts = {"model": embedder.fingerprint(), "layer": layer, "text": _fingerprint(sentences)}
    manifest = folder / MANIFEST
    if not manifest.exists():
        with replacing(manifest) as temporary:
            temporary.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    elif json.loads(manifest.read_text(encoding="utf-8")) != facts:
        raise DataError(f"{folder}: an index of another model, layer or text. Remove it, or choose another folder")
    total, done = sum(map(len, sentences)), 0
    parts = []
    for number, some in enumerate(windows([list(one) for one in sentences], PART)):
        path = folder / f"{number:05}.npy"
        if not path.exists():
            arrays = embedder.embed(some, layer)
            write_array(path, unit(np.concatenate(list(arrays))).astype(np.float16))
        done += sum(map(len, some))
        progress(done, total)
        parts.append(_mapped(path, sum(map(len, some)), embedder))
    return ContextIndex(parts, [len(sentence) for sentence in sentences])


def _mapped(path: Path, tokens: int, embedder: Embedder) -> Tensor:
    try:
        stored = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: damaged ({error}). Remove it, and it is computed again") from None
    if stored.shape != (tokens, embedder.dim) or stored.dtype != np.float16:
        raise DataError(f"{path}: not of this corpus. Remove it, and it is computed again")
    return torch.from_numpy(stored).to(embedder.device)


def _fingerprint(sentences: Sequence[Sequence[str]]) -> str:
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update("\x1f".join(sentence).encode("utf-8", "surrogatepass") + b"\x1e")
    return digest.hexdigest()[:16]
