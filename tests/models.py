"""Small models as files in the published format, and sentences to read with them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from elmo.model.bilm import BiLM
from elmo.model.layers import Layers
from elmo.model.lstm import State
from elmo.text.characters import sentence_ids
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from numpy_reference import Options, Reference, random_options, random_weights

Batches = Sequence[Sequence[Sequence[str]]]

WORDS = [
    *("the", "The", "cat", "sat", "on", "a", "mat", ".", ",", "U.S.", "naïve", "日本語", "🙂", "Привет", "x"),
    *("", "<UNK>", "<S>", "</S>", "\x00", "unbelievable", "straightforwardness"),
    *("y" * 48, "z" * 49, "long" * 30, "é" * 24 + "a", "a" + "é" * 24, "語" * 40),  # around and over 50 bytes
]

# What `random_options` may leave out by chance: name -> (lstm, char_cnn, scale of the LSTMs' weights).
VARIANTS: dict[str, tuple[Options, Options, float]] = {
    "no highway": ({}, {"n_highway": 0}, 1.0),
    "two highways": ({}, {"n_highway": 2}, 1.0),
    "tanh": ({}, {"activation": "tanh"}, 1.0),
    "F == D": ({"projection_dim": 7, "dim": 12}, {"filters": [[1, 3], [4, 4]]}, 1.0),
    "H == D": ({"projection_dim": 6, "dim": 6, "cell_clip": 3, "proj_clip": 0.1}, {}, 1.0),
    "D > H": ({"projection_dim": 9, "dim": 5}, {}, 1.0),
    "F == D == H": ({"projection_dim": 7, "dim": 7}, {"filters": [[1, 3], [4, 4]]}, 1.0),
    "no skip": ({"n_layers": 2, "use_skip_connections": False}, {}, 1.0),
    "skip": ({"n_layers": 3, "use_skip_connections": True}, {}, 1.0),
    "one layer": ({"n_layers": 1, "use_skip_connections": True}, {}, 1.0),
    "two layers": ({"n_layers": 2}, {}, 1.0),
    "three layers": ({"n_layers": 3}, {}, 1.0),
    "twenty characters": ({}, {"max_characters_per_token": 20}, 1.0),
    "fifty characters": ({}, {"max_characters_per_token": 50, "filters": [[1, 4], [7, 5]]}, 1.0),
    "as many characters as the widest filter": ({}, {"max_characters_per_token": 7, "filters": [[2, 3], [7, 5]]}, 1.0),
    "no clips": ({"cell_clip": None, "proj_clip": None}, {}, 1.0),
    "only the cell clipped": ({"cell_clip": 0.5, "proj_clip": None}, {}, 1.0),
    "only the projection clipped": ({"cell_clip": None, "proj_clip": 0.2, "projection_dim": 4, "dim": 9}, {}, 1.0),
    "both clips": ({"projection_dim": 8, "dim": 32, "n_layers": 2, "cell_clip": 0.5, "proj_clip": 0.3}, {}, 1.5),
    # Large weights reach the published clips, and magnify rounding a thousandfold: to be run in float64.
    "both clips of 3": (
        {"projection_dim": 8, "dim": 32, "n_layers": 2, "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        {},
        4.0,
    ),
    "as published": (  # in small: every dataset of the format is there
        {"projection_dim": 5, "dim": 11, "n_layers": 2, "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True},
        {"filters": [[1, 3], [3, 4]], "n_highway": 1, "max_characters_per_token": 50, "activation": "relu"},
        1.0,
    ),
}


def published(variant: str | int) -> tuple[Options, dict[str, NDArray[np.float32]]]:
    """Options and weights of a variant, by name, or of the random one that a seed gives."""
    lstm, char_cnn, scale = VARIANTS[variant] if isinstance(variant, str) else ({}, {}, 1.0)
    rng = np.random.default_rng(list(VARIANTS).index(variant) + 1000 if isinstance(variant, str) else variant)
    options = random_options(rng, lstm, char_cnn)
    return options, random_weights(options, rng, scale)


def write_published(folder: Path, options: Options, weights: Mapping[str, Any], name: str = "") -> tuple[Path, Path]:
    """Write options.json and weights.hdf5 (or `name`_options.json and so on) and return where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"{name}_" if name else ""
    paths = folder / f"{prefix}options.json", folder / f"{prefix}weights.hdf5"
    paths[0].write_text(json.dumps(options))
    write_datasets(paths[1], weights)
    return paths


def write_datasets(path: Path, arrays: Mapping[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def datasets(path: Path) -> dict[str, NDArray[Any]]:
    """Every dataset of an HDF5 file by its path."""
    found: dict[str, NDArray[Any]] = {}

    def collect(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[...]

    with h5py.File(path) as file:
        file.visititems(collect)
    return found


def assert_same_datasets(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> None:
    """The same names, shapes, types and bits."""
    assert sorted(ours) == sorted(theirs)
    for name, array in theirs.items():
        assert ours[name].dtype == array.dtype, name
        assert ours[name].shape == array.shape, name
        assert ours[name].tobytes() == array.tobytes(), name


def small(folder: Path, variant: str | int = 0) -> tuple[BiLM, Reference]:
    """A model read from the files that are written into the folder, and its reference."""
    options, weights = published(variant)
    return bilm_tf.read(*write_published(folder, options, weights)), Reference(options, weights)


def random_sentences(rng: np.random.Generator, n: int, longest: int = 9) -> list[list[str]]:
    """Sentences of 0 to `longest` words, no two batches alike."""
    return [[str(word) for word in rng.choice(WORDS, size=rng.integers(0, longest + 1))] for _ in range(n)]


def ids_of(bilm: BiLM, sentences: Sequence[Sequence[str]], vocabulary: Vocabulary | None = None) -> torch.Tensor:
    """Character ids (B, T, C), or with a vocabulary word ids (B, T)."""
    if vocabulary is not None:
        rows = [torch.from_numpy(vocabulary.ids(["<S>", *sentence, "</S>"])) for sentence in sentences]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    assert bilm.config.char_cnn is not None
    return torch.from_numpy(sentence_ids(sentences, bilm.config.char_cnn.max_characters_per_token))


def carried(bilm: BiLM, batches: Batches, vocabulary: Vocabulary | None = None) -> Iterator[Layers]:
    """The layers of each batch, row by row from the state where that row last ended; a row not there keeps its own."""
    state = bilm.zero_state(max(map(len, batches)))
    for batch in batches:
        n = len(batch)
        layers, after = bilm(ids_of(bilm, batch, vocabulary), State(state.h[:, :, :n], state.c[:, :, :n]))
        state = State(*(torch.cat([new, old[:, :, n:]], dim=2) for new, old in zip(after, state, strict=True)))
        yield layers


def state_of(reference_states: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The reference's states of a batch, as (h (L, S, B, D), c (L, S, B, H))."""
    # a reference's state is [direction][layer] -> (c, h)
    h, c = (
        np.stack([[[layer[part] for layer in direction] for direction in state] for state in reference_states])
        for part in (1, 0)
    )  # (B, S, L, ·)
    return h.transpose(2, 1, 0, 3), c.transpose(2, 1, 0, 3)


@contextmanager
def on(path: str, bilm: torch.nn.Module) -> Iterator[None]:
    """Run on one of the two paths: a gradient is needed, or none is."""
    bilm.requires_grad_(path == "training")
    with torch.set_grad_enabled(path == "training"):
        yield
