"""TEXTS ─▶ LAYERS, ONCE: the layers of a corpus by a frozen biLM, kept for all epochs, seeds and configurations.

$ELMO_CACHE/layers/MODEL-TEXTS.npy    (tokens, L+1, 2D) in float16, memory-mapped; named by the model and the texts
$ELMO_CACHE/layers/MODEL-TEXTS/       its parts, while it is being computed
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.errors import DataError
from elmo.files import write_array, write_array_pieces
from elmo.model.device import to_device
from elmo.model.layers import Layers
from elmo.text.batches import windows
from elmo.text.tokens import Tokens
from elmo.weights.download import cache_folder

PART = 65_536  # tokens whose layers are computed before they are written

Stored = npt.NDArray[np.float16]


@dataclass(frozen=True)
class _Held:
    """The layers of some texts: made once, then only read."""

    starts: dict[Tokens, int]  # text ─▶ its first row
    stored: Stored  # (tokens, L+1, 2D)
    on_device: Tensor | None  # the same, if it fits there

    def has(self, texts: Sequence[Tokens]) -> bool:
        """Whether the layers of all these texts are here."""
        return all(text in self.starts for text in texts)

    def gather(self, rows: npt.NDArray[np.int64], device: torch.device) -> Tensor:
        """These rows, (…, L+1, 2D), on a device."""
        if self.on_device is not None:
            return self.on_device[to_device(torch.from_numpy(rows), device)]
        return to_device(torch.from_numpy(self.stored[rows]), device)


# What `FrozenLayers.holding` holds, for each thread (and each asynchronous task) its own.
_holding: ContextVar[tuple["FrozenLayers", _Held] | None] = ContextVar("_holding", default=None)


class FrozenLayers:
    """The layers of any text: those of `texts` are looked up, others are computed. Any thread may ask.

    `told(done, total)` reports progress while the layers of `texts` are computed: tokens done, and of how many.
    """

    def __init__(
        self,
        embedder: Embedder,
        texts: Iterable[Tokens] = (),
        folder: Path | None = None,
        told: Callable[[int, int], None] | None = None,
    ) -> None:
        self.embedder = embedder
        self._told = told
        self._held = self._hold(texts, folder)

    @contextmanager
    def holding(self, texts: Iterable[Tokens]) -> Iterator[None]:
        """Inside this context, and in this thread alone, look up the layers of these texts: computed in one go."""
        held = self._hold(texts, None)
        before = _holding.set(None if held is None else (self, held))
        try:
            yield
        finally:
            _holding.reset(before)

    def layers(self, texts: Sequence[Tokens]) -> Layers:
        """The layers of a batch, in float32: (L+1, B, T, 2D)."""
        longest = max(map(len, texts))
        mask = np.arange(longest) < np.array([len(text) for text in texts])[:, None]
        held = self._held_of(texts)
        if held is not None:
            starts = np.array([held.starts[text] for text in texts])
            rows = np.where(mask, starts[:, None] + np.arange(longest), 0)
            gathered = held.gather(rows, self.embedder.device)
        else:
            both = np.zeros((*mask.shape, self.embedder.n_layers, self.embedder.dim), dtype=np.float16)
            for row, array in zip(both, self.embedder.embed(texts, dtype="float16"), strict=True):
                row[: array.shape[1]] = array.transpose(1, 0, 2)
            gathered = to_device(torch.from_numpy(both), self.embedder.device)
        where = to_device(torch.from_numpy(mask), self.embedder.device)
        return Layers(gathered.float().permute(2, 0, 1, 3) * where[..., None], where)

    def _hold(self, texts: Iterable[Tokens], folder: Path | None) -> _Held | None:
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return None
        ends = np.cumsum([len(text) for text in distinct])
        starts = {text: int(end) - len(text) for text, end in zip(distinct, ends, strict=True)}
        stored = self._read_or_compute(distinct, int(ends[-1]), folder)
        on_device = None
        if self.embedder.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.embedder.device)
            if 2 * stored.nbytes < free:
                on_device = torch.from_numpy(stored).to(self.embedder.device)
        return _Held(starts, stored, on_device)

    def _held_of(self, texts: Sequence[Tokens]) -> _Held | None:
        """Where the layers of all these texts can be looked up, if anywhere."""
        holding = _holding.get()
        here = holding[1] if holding is not None and holding[0] is self else None
        return next((held for held in (here, self._held) if held is not None and held.has(texts)), None)

    def _read_or_compute(self, texts: list[Tokens], n_tokens: int, folder: Path | None) -> Stored:
        if folder is None:
            return self._compute(texts, 0, n_tokens)
        digest = hashlib.sha256()
        for text in texts:
            digest.update("\x1f".join(text).encode("utf-8", "surrogatepass") + b"\x1e")
        path = folder / f"{self.embedder.fingerprint()}-{digest.hexdigest()[:16]}.npy"
        shape = n_tokens, self.embedder.n_layers, self.embedder.dim
        try:
            self._compute_into(path, texts, shape)
        except DataError:
            if not path.exists():  # else another run computed the same, was faster, and removed the parts
                raise
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        return _mapped(path, shape)

    def _compute_into(self, path: Path, texts: list[Tokens], shape: tuple[int, int, int]) -> None:
        """Part by part: those that were done when it was interrupted are not done again."""
        folder, done = path.with_suffix(""), 0
        parts: list[tuple[Path, int]] = []
        for number, some in enumerate(windows(texts, PART)):
            part, count = folder / f"{number:05}.npy", sum(map(len, some))
            if path.exists():
                return
            if not part.exists():
                write_array(part, self._compute(some, done, shape[0]))
            parts.append((part, count))
            done += count
        write_array_pieces(path, np.float16, shape, (_mapped(part, (count, *shape[1:])) for part, count in parts))
        shutil.rmtree(folder, ignore_errors=True)

    def _compute(self, texts: list[Tokens], done: int, of: int) -> Stored:
        """(tokens, L+1, 2D); `done` of all tokens were computed before."""
        computed: Stored = np.empty((sum(map(len, texts)), self.embedder.n_layers, self.embedder.dim), np.float16)
        place = 0
        for array in self.embedder.embed(texts, dtype="float16"):
            computed[place : place + array.shape[1]] = array.transpose(1, 0, 2)
            place += array.shape[1]
            if self._told is not None:
                self._told(done + place, of)
        return computed


def _mapped(path: Path, shape: tuple[int, int, int]) -> Stored:
    """Layers in a file, read as they are asked for."""
    try:
        stored: Stored = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: damaged ({error}); remove it, and it is computed again") from None
    if stored.shape != shape or stored.dtype != np.float16:
        raise DataError(f"{path}: holds {stored.shape}, not {shape}; remove it, and it is computed again")
    return stored


def layers_folder() -> Path:
    """Where layers are kept: `$ELMO_CACHE/layers`."""
    return cache_folder() / "layers"
