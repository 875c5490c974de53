"""THE STATISTICS OF `pooling="sif"` ◀─▶ TWO FILES of a model folder.

    sif.safetensors    a, the weight of each layer, the mean and the common components of sentence vectors
    sif_words.txt      the number of tokens that were counted, then the frequent words and their counts, with a tab
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from elmo.errors import WeightsError
from elmo.files import replacing
from elmo.text.reader import read_lines

STATISTICS, WORDS = "sif.safetensors", "sif_words.txt"
TOTAL = "<total>"

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sif:
    """What smooth inverse frequency needs to know about a model and a text (Arora et al. 2017)."""

    a: float  # the weight of a word of probability p is a / (a + p)
    layers: tuple[float, ...]  # the weight of each layer in a token's vector
    counts: dict[str, int]  # of the frequent words, in lower case
    total: int  # tokens that were counted
    mean: Array  # (2D,)
    components: Array  # (K, 2D), orthonormal

    def weight(self, word: str) -> float:
        """Return the weight of a word, in (0, 1]; a word that is not among the frequent ones has 1."""
        return self.a / (self.a + self.counts.get(word.lower(), 0) / self.total)


def write(folder: Path, sif: Sif) -> None:
    """Write both files into an existing folder; the second one makes them valid."""
    lines = [f"{TOTAL}\t{sif.total}\n", *(f"{word}\t{count}\n" for word, count in sif.counts.items())]
    with replacing(folder / WORDS) as path:
        path.write_text("".join(lines), encoding="utf-8")
    arrays: dict[str, npt.NDArray[Any]] = {
        "a": np.array(sif.a, dtype=np.float64),
        "layers": np.array(sif.layers, dtype=np.float64),
        "mean": np.ascontiguousarray(sif.mean),
        "components": np.ascontiguousarray(sif.components),
    }
    with replacing(folder / STATISTICS) as path:
        path.write_bytes(save(arrays))  # `save_file` makes files that only their owner can read


def read(folder: Path, n_layers: int, dim: int) -> Sif | None:
    """Read the statistics of a model folder; None if it has none. `n_layers` and `dim` are those of its model."""
    path = folder / STATISTICS
    if not path.exists():
        return None
    try:
        arrays = load_file(path)
        a, layers, mean, components = (arrays[name] for name in ("a", "layers", "mean", "components"))
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: cannot be read ({error})") from None
    except KeyError as error:
        raise WeightsError(f"{path}: has no tensor {error}; make the statistics again with elmo sif") from None
    found = (a.shape, layers.shape, mean.shape, components.shape[1:])
    if found != ((), (n_layers,), (dim,), (dim,)) or components.ndim != 2:
        raise WeightsError(
            f"{path}: is of another model, of {layers.size} layers of {mean.size}; this one has {n_layers} of {dim}. "
            "Make the statistics again with elmo sif"
        )
    counts = _read_counts(folder / WORDS)
    total = counts.pop(TOTAL, 0)
    if total < 1:
        raise WeightsError(f"{folder / WORDS}: does not begin with {TOTAL} and a number; make it again with elmo sif")
    return Sif(float(a), tuple(layers.tolist()), counts, total, mean, components)


def _read_counts(path: Path) -> dict[str, int]:
    counts = {}
    for number, line in read_lines(path):
        word, tab, count = line.rstrip("\n").partition("\t")
        if not tab or not count.isdecimal():
            raise WeightsError(f"{path}:{number}: {line.strip()!r}; expected a word, a tab and its count")
        counts[word] = int(count)
    return counts
