"""TEXTS ─▶ LAYERS, COMPUTED ONCE: the layers of a frozen biLM, stored for all epochs, seeds and configs.

$ELMO_CACHE/layers/MODEL-TEXTS.npy    (tokens, L+1, 2D) in float16, memory-mapped; named by hashes of model and texts
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

PART = 65_536  # tokens per part

Stored = npt.NDArray[np.float16]


@dataclass(frozen=True)
class _StoredLayers:
    """The layers of some texts; never changed."""

    starts: dict[Tokens, int]  # the first row of each text
    stored: Stored  # (tokens, L+1, 2D)

    def has(self, texts: Sequence[Tokens]) -> bool:
        """Return whether the layers of all these texts are stored."""
        return all(text in self.starts for text in texts)

    def rows(self, texts: Sequence[Tokens], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return the rows of the tokens, (B, T); that of zeros where the mask is false."""
        starts = np.array([self.starts[text] for text in texts])
        return np.where(mask, starts[:, None] + np.arange(mask.shape[1]), len(self.stored))

    def gather(self, texts: Sequence[Tokens], mask: npt.NDArray[np.bool_]) -> Stored:
        """Return the layers of texts as (B, T, L+1, 2D); zeros where the mask (B, T) is false."""
        gathered = np.zeros((*mask.shape, *self.stored.shape[1:]), dtype=np.float16)
        gathered[mask] = self.stored[self.rows(texts, mask)[mask]]
        return gathered


# The layers of `FrozenLayers.holding`: each thread (and each asynchronous task) has its own.
_holding: ContextVar[tuple["FrozenLayers", _StoredLayers] | None] = ContextVar("_holding", default=None)


class FrozenLayers:
    """The layers of any text: those of `texts` are looked up, others are computed. Any thread may call it.

    The layers of `texts` are read from `folder`, or computed and stored there; without a folder they stay in memory.
    While they are computed, `progress(done, total)` is called with numbers of tokens. `state` is the LSTMs' state
    before each text, as in `Embedder.embed`; "carried" follows the order of the texts, from zeros in every part.
    """

    def __init__(
        self,
        embedder: Embedder,
        texts: Iterable[Tokens] = (),
        folder: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
        state: str = "fresh",
    ) -> None:
        self.embedder = embedder
        self.state = state
        self._progress = progress
        self._stored = self._store(texts, folder)
        self._on_device: Tensor | None = None  # the same on a GPU, if it fits there, and one more row, of zeros
        if self._stored is not None and embedder.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(embedder.device)
            if 2 * self._stored.stored.nbytes < free:
                self._on_device = _with_zeros(self._stored.stored, embedder.device)

    @contextmanager
    def holding(self, texts: Iterable[Tokens]) -> Iterator[None]:
        """Compute the layers of these texts together, and look them up inside this context, in this thread only."""
        stored = self._store(texts, None)
        before = _holding.set(None if stored is None else (self, stored))
        try:
            yield
        finally:
            _holding.reset(before)

    def layers(self, texts: Sequence[Tokens]) -> Layers:
        """Return the layers of a batch in float32, (L+1, B, T, 2D)."""
        mask = np.arange(max(map(len, texts))) < np.array([len(text) for text in texts])[:, None]
        read, inside = self.read(texts, mask), torch.from_numpy(mask)
        return self.of_read(to_device(read, self.embedder.device), to_device(inside, self.embedder.device))

    def read(self, texts: Sequence[Tokens], mask: npt.NDArray[np.bool_]) -> Tensor:
        """Look texts up on the CPU, or compute them: what `of_read` needs to know of a batch with this mask (B, T).

        If the layers are on the device: their rows, (B, T). Else the layers themselves, (B, T, L+1, 2D) in float16.
        """
        stored = self._find(texts)
        if stored is not None:
            on_device = stored is self._stored and self._on_device is not None
            return torch.from_numpy(stored.rows(texts, mask) if on_device else stored.gather(texts, mask))
        computed = np.zeros((*mask.shape, self.embedder.n_layers, self.embedder.dim), dtype=np.float16)
        for row, array in zip(computed, self.embedder.embed(texts, dtype="float16", state=self.state), strict=True):
            row[: array.shape[1]] = array.transpose(1, 0, 2)
        return torch.from_numpy(computed)

    def of_read(self, read: Tensor, mask: Tensor) -> Layers:
        """Return the layers of a batch from what was read, and its mask, on the device."""
        gathered = self._on_device[read] if read.dim() == 2 and self._on_device is not None else read
        # Float32 and each layer in one piece, by one copy: the mixes would make a copy each.
        activations = gathered.permute(2, 0, 1, 3).to(torch.float32, memory_format=torch.contiguous_format)
        return Layers(activations, mask)

    def _store(self, texts: Iterable[Tokens], folder: Path | None) -> _StoredLayers | None:
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return None
        ends = np.cumsum([len(text) for text in distinct])
        starts = {text: int(end) - len(text) for text, end in zip(distinct, ends, strict=True)}
        return _StoredLayers(starts, self._read_or_compute(distinct, int(ends[-1]), folder))

    def _find(self, texts: Sequence[Tokens]) -> _StoredLayers | None:
        """Find stored layers that contain all these texts."""
        holding = _holding.get()
        of_thread = holding[1] if holding is not None and holding[0] is self else None
        return next((stored for stored in (of_thread, self._stored) if stored is not None and stored.has(texts)), None)

    def _read_or_compute(self, texts: list[Tokens], n_tokens: int, folder: Path | None) -> Stored:
        if folder is None:
            return self._compute(texts, 0, n_tokens)
        digest = hashlib.sha256()
        for text in texts:
            digest.update("\x1f".join(text).encode("utf-8", "surrogatepass") + b"\x1e")
        if self.state != "fresh":
            digest.update(self.state.encode())
        path = folder / f"{self.embedder.fingerprint()}-{digest.hexdigest()[:16]}.npy"
        shape = n_tokens, self.embedder.n_layers, self.embedder.dim
        try:
            self._compute_into(path, texts, shape)
        except DataError:
            if not path.exists():  # else another run has computed the same, and has removed the parts
                raise
        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
        return _mapped(path, shape)

    def _compute_into(self, path: Path, texts: list[Tokens], shape: tuple[int, int, int]) -> None:
        """Compute a file part by part; parts that exist, from an interrupted run, are not computed again."""
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

    def _compute(self, texts: list[Tokens], done: int, total: int) -> Stored:
        """Compute layers, (tokens, L+1, 2D); `done` of the `total` tokens were computed before."""
        computed: Stored = np.empty((sum(map(len, texts)), self.embedder.n_layers, self.embedder.dim), np.float16)
        place = 0
        if self.state == "carried":
            self.embedder.reset_state()
        for array in self.embedder.embed(texts, dtype="float16", state=self.state):
            computed[place : place + array.shape[1]] = array.transpose(1, 0, 2)
            place += array.shape[1]
            if self._progress is not None:
                self._progress(done + place, total)
        return computed


def _with_zeros(stored: Stored, device: torch.device) -> Tensor:
    """Copy stored layers to a device, with one more row, of zeros: that of places without a token."""
    rows = torch.zeros(len(stored) + 1, *stored.shape[1:], dtype=torch.float16, device=device)
    rows[:-1] = torch.from_numpy(stored)
    return rows


def _mapped(path: Path, shape: tuple[int, int, int]) -> Stored:
    """Open a file of layers; they are read when they are used."""
    try:
        stored: Stored = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: damaged ({error}). Remove it, and it is computed again") from None
    if stored.shape != shape or stored.dtype != np.float16:
        found = f"{stored.dtype} of shape {stored.shape}"
        raise DataError(
            f"{path}: contains {found}; expected float16 of shape {shape}. Remove it, and it is computed again"
        )
    return stored


def layers_folder() -> Path:
    """Return the folder where layers are stored: `$ELMO_CACHE/layers`."""
    return cache_folder() / "layers"
