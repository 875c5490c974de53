"""TEXTS ─▶ LAYERS, ONCE: what a frozen biLM says of a corpus, kept for all epochs, seeds and configurations.

$ELMO_CACHE/layers/MODEL-TEXTS.npy    (tokens, L+1, 2D) in float16, memory-mapped; named by the model and the texts
$ELMO_CACHE/layers/MODEL-TEXTS/       its parts, while it is being computed
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.errors import DataError
from elmo.files import replacing
from elmo.model.device import onto
from elmo.model.layers import Layers
from elmo.text.batches import windows
from elmo.weights.download import cache_folder

PART = 65_536  # tokens whose layers are computed before they are written

Tokens = tuple[str, ...]
Stored = npt.NDArray[np.float16]


class FrozenLayers:
    """The layers of any text: those it was made for are looked up, others are computed.

    `told` hears how many tokens are done, and of how many, while those of `texts` are computed.
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
        self.hold(texts, folder)

    def hold(self, texts: Iterable[Tokens], folder: Path | None = None) -> None:
        """Have the layers of these texts, and of no others, to be looked up: all of them computed in one go."""
        distinct = list(dict.fromkeys(texts))
        lengths = [len(text) for text in distinct]
        starts = np.cumsum([0, *lengths])
        self._starts = {text: int(start) for text, start in zip(distinct, starts, strict=False)}
        self._stored = self._read_or_compute(distinct, int(starts[-1]), folder) if distinct else None
        self._on_device: Tensor | None = None
        if self._stored is not None and self.embedder.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.embedder.device)
            if 2 * self._stored.nbytes < free:
                self._on_device = torch.from_numpy(self._stored).to(self.embedder.device)

    def layers(self, texts: Sequence[Tokens]) -> Layers:
        """The layers of a batch, in float32: (L+1, B, T, 2D)."""
        longest = max(map(len, texts))
        mask = np.arange(longest) < np.array([len(text) for text in texts])[:, None]
        if all(text in self._starts for text in texts) and self._stored is not None:
            starts = np.array([self._starts[text] for text in texts])
            rows = np.where(mask, starts[:, None] + np.arange(longest), 0)
            gathered = self._gather(rows)
        else:
            both = np.zeros((*mask.shape, self.embedder.n_layers, self.embedder.dim), dtype=np.float16)
            for row, array in zip(both, self.embedder.embed(texts, dtype="float16"), strict=True):
                row[: array.shape[1]] = array.transpose(1, 0, 2)
            gathered = onto(torch.from_numpy(both), self.embedder.device)
        where = onto(torch.from_numpy(mask), self.embedder.device)
        return Layers(gathered.float().permute(2, 0, 1, 3) * where[..., None], where)

    def _gather(self, rows: npt.NDArray[np.int64]) -> Tensor:
        if self._on_device is not None:
            return self._on_device[onto(torch.from_numpy(rows), self.embedder.device)]
        assert self._stored is not None
        return onto(torch.from_numpy(self._stored[rows]), self.embedder.device)

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
            if not path.exists():  # else another run had the same to do, was faster, and took the parts away
                raise
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
                with replacing(part) as temporary, temporary.open("wb") as file:
                    np.save(file, self._compute(some, done, shape[0]))
            parts.append((part, count))
            done += count
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for part, count in parts:
                file.write(_mapped(part, (count, *shape[1:])).data)
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
