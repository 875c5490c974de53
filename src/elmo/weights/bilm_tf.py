"""PUBLISHED FILES ◀─▶ MODEL: bilm-tf's options.json + HDF5, and its token-embedding file.

Every peculiarity of that format is handled here and nowhere else:
- gates are in TensorFlow's order i, j, f, o (j is the candidate); ours is i, f, o, j;
- `W_0` is `[x; h] ─▶ gates`, with the weights of inputs and state in one matrix; each direction has its own;
- embeddings have no row for "no token"; ours have a first row of zeros;
- `n_characters` is 261 in training files and 262 in prediction files, for the same 261 rows: the array decides.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.files import new_hdf5, replacing
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.weights.hdf5 import HDF5File
from elmo.weights.json_file import read_json

TO_OURS = (0, 2, 3, 1)  # i, j, f, o ─▶ i, f, o, j
TO_THEIRS = (0, 3, 1, 2)


def read(options: Path, weights: Path, embedding: Path | None = None) -> BiLM:
    """Read a model; with a token-embedding file, words are looked up in it instead of being read as characters."""
    config = read_options(options)
    with HDF5File(weights) as file:
        if embedding is None and config.char_cnn is not None:
            config = replace(config, char_cnn=replace(config.char_cnn, n_characters=character_rows(file)))
            tensors = dict(model_tensors(file, config))
            file.refuse_unread(("CNN", "RNN"))
        else:
            with HDF5File(embedding or weights) as table:
                rows = table.rows("embedding")
                try:
                    config = BiLMConfig(config.lstm, None, n_words=rows, bidirectional=config.bidirectional)
                except ConfigError as error:
                    raise WeightsError(f"{table.path}: {error}") from None
                words = table.array("embedding", rows, config.lstm.projection_dim, because="options.json lstm")
            tensors = {"token_encoder.embedding": with_empty_row(words), **dict(lstm_tensors(file, config))}
            file.refuse_unread(("RNN",))
    with torch.device("meta"):
        bilm = BiLM(config)
    bilm.load_state_dict(tensors, assign=True)
    return bilm.eval()


def write(bilm: BiLM, options: Path, weights: Path) -> None:
    """Write both files, which bilm-tf, AllenNLP and simple_elmo can load. They cannot store a softmax."""
    if bilm.config.many_langs is not None:
        raise WeightsError(
            f"{weights}: the published format has no place for the words and characters of ELMoForManyLangs; give the "
            "name of a folder"
        )
    tensors = {name: tensor.detach().float().cpu().numpy() for name, tensor in bilm.state_dict().items()}
    with replacing(weights) as path, new_hdf5(path) as file:
        for name, array in _arrays(bilm.config, tensors):
            file.create_dataset(name, data=np.ascontiguousarray(array))
    with replacing(options) as path:
        path.write_text(json.dumps(options_of(bilm.config), indent=1) + "\n", encoding="utf-8")


def write_token_embeddings(vectors: npt.NDArray[np.floating[Any]], path: Path) -> None:
    """Write a token-embedding file: the context-independent vectors (V, D) of a vocabulary, in its order."""
    with replacing(path) as temporary, new_hdf5(temporary) as file:
        file.create_dataset("embedding", data=vectors)


def stored_dtypes(weights: Path) -> list[str]:
    """Return the types in which the arrays of a file are stored; first the one with most bytes."""
    with HDF5File(weights) as file:
        sizes: Counter[str] = Counter()
        for dataset in file.datasets().values():
            sizes[str(dataset.dtype)] += dataset.nbytes
    return [dtype for dtype, _ in sizes.most_common()]


def read_options(path: Path) -> BiLMConfig:
    """Read options.json. `n_characters` is taken from the array instead."""
    options = read_json(path)
    try:
        lstm, cnn = options["lstm"], options.get("char_cnn")
        config = LSTMConfig(
            dim=lstm["dim"],
            projection_dim=lstm.get("projection_dim", lstm["dim"]),
            n_layers=lstm.get("n_layers", 1),
            cell_clip=lstm.get("cell_clip"),
            proj_clip=lstm.get("proj_clip"),
            use_skip_connections=bool(lstm.get("use_skip_connections", False)),
        )
        bidirectional = bool(options.get("bidirectional", True))
        if cnn is None:
            return BiLMConfig(config, None, n_words=options["n_tokens_vocab"], bidirectional=bidirectional)
        return BiLMConfig(
            config,
            CharCNNConfig(
                activation=cnn["activation"],
                embedding_dim=cnn["embedding"]["dim"],
                filters=tuple((width, count) for width, count in cnn["filters"]),
                n_highway=cnn.get("n_highway") or 0,
                max_characters_per_token=cnn["max_characters_per_token"],
            ),
            bidirectional=bidirectional,
        )
    except ConfigError as error:
        raise WeightsError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else f"unexpected form ({error})"
        raise WeightsError(f"{path}: {what}; expected the options.json of a biLM, with 'lstm' and 'char_cnn'") from None


class Arrays(Protocol):
    """Named arrays of a file, checked as they are read."""

    path: Path

    def rows(self, name: str) -> int:
        """Return the number of rows of a matrix."""

    def array(self, name: str, *shape: int, because: str = "options.json") -> npt.NDArray[np.float32]:
        """Read an array of this shape; `because` says what requires it."""


def character_rows(file: Arrays) -> int:
    """Return the number of characters, without "no token"."""
    rows = file.rows("char_embed")
    if rows not in (261, 262):  # some were trained with n_characters = 262; their last row was never used
        raise WeightsError(f"{file.path}: 'char_embed' has {rows} rows; expected 261 (256 bytes and 5 marks)")
    return rows


def options_of(config: BiLMConfig) -> dict[str, Any]:
    """Return the options.json of a prediction file."""
    lstm, cnn = config.lstm, config.char_cnn
    options: dict[str, Any] = {
        "lstm": {
            "cell_clip": lstm.cell_clip,
            "dim": lstm.dim,
            "n_layers": lstm.n_layers,
            "proj_clip": lstm.proj_clip,
            "projection_dim": lstm.projection_dim,
            "use_skip_connections": lstm.use_skip_connections,
        }
    }
    if not config.bidirectional:
        options["bidirectional"] = False
    if cnn is None:
        return options | {"n_tokens_vocab": config.n_words}
    options["char_cnn"] = {
        "activation": cnn.activation,
        "embedding": {"dim": cnn.embedding_dim},
        "filters": [list(pair) for pair in cnn.filters],
        "max_characters_per_token": cnn.max_characters_per_token,
        "n_characters": 262,  # bilm-tf accepts no other value in prediction files
        "n_highway": cnn.n_highway,
    }
    if not cnn.n_highway:
        del options["char_cnn"]["n_highway"]  # bilm-tf checks its presence, not its value
    return options


def model_tensors(file: Arrays, config: BiLMConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield our parameters, converted from the arrays of a file, for a model that reads characters."""
    cnn, dim = config.char_cnn, config.lstm.projection_dim
    assert cnn is not None
    n_filters = cnn.n_filters
    yield "token_encoder.embedding", with_empty_row(file.array("char_embed", cnn.n_characters, cnn.embedding_dim))
    for k, (width, count) in enumerate(cnn.filters):
        because = f"options.json filters[{k}]"
        weight = file.array(f"CNN/W_cnn_{k}", 1, width, cnn.embedding_dim, count, because=because)
        yield f"token_encoder.filters.{k}", torch.from_numpy(weight.reshape(width * cnn.embedding_dim, count))
        yield f"token_encoder.biases.{k}", torch.from_numpy(file.array(f"CNN/b_cnn_{k}", count, because=because))
    for k in range(cnn.n_highway):
        both = [file.array(f"CNN_high_{k}/W_{part}", n_filters, n_filters) for part in ("carry", "transform")]
        bias = [file.array(f"CNN_high_{k}/b_{part}", n_filters) for part in ("carry", "transform")]
        yield f"token_encoder.highways.{k}.weight", torch.from_numpy(np.concatenate(both, axis=1))
        yield f"token_encoder.highways.{k}.bias", torch.from_numpy(np.concatenate(bias))
    if n_filters != dim:
        yield "token_encoder.projection", torch.from_numpy(file.array("CNN_proj/W_proj", n_filters, dim))
        yield "token_encoder.projection_bias", torch.from_numpy(file.array("CNN_proj/b_proj", dim))
    yield from lstm_tensors(file, config)


def lstm_tensors(file: Arrays, config: BiLMConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of the LSTMs."""
    dim, cell = config.lstm.projection_dim, config.lstm.dim
    because = "options.json lstm"
    for layer in range(config.lstm.n_layers):
        cells = [cell_name(direction, layer) for direction in range(config.directions)]
        gates = [file.array(f"{name}/W_0", 2 * dim, 4 * cell, because=because) for name in cells]
        biases = [file.array(f"{name}/B", 4 * cell, because=because) for name in cells]
        weight = torch.from_numpy(_permuted(np.stack(gates), TO_OURS))  # (2, 2D, 4H)
        yield f"lstms.{layer}.weight_input", weight[:, :dim].contiguous()
        yield f"lstms.{layer}.weight_hidden", weight[:, dim:].contiguous()
        yield f"lstms.{layer}.bias", torch.from_numpy(_permuted(np.stack(biases), TO_OURS))
        if cell != dim:
            projections = [file.array(f"{name}/W_P_0", cell, dim, because=because) for name in cells]
            yield f"lstms.{layer}.weight_projection", torch.from_numpy(np.stack(projections))


def _arrays(config: BiLMConfig, ours: Mapping[str, npt.NDArray[np.float32]]) -> Iterator[tuple[str, Any]]:
    """Yield the file's datasets, converted from our parameters: the inverse of `model_tensors`."""
    cnn = config.char_cnn
    encoder = "token_encoder"
    yield ("char_embed" if cnn is not None else "embedding"), ours[f"{encoder}.embedding"][1:]
    if cnn is not None:
        for k, (width, count) in enumerate(cnn.filters):
            yield f"CNN/W_cnn_{k}", ours[f"{encoder}.filters.{k}"].reshape(1, width, cnn.embedding_dim, count)
            yield f"CNN/b_cnn_{k}", ours[f"{encoder}.biases.{k}"]
        for k in range(cnn.n_highway):
            for part, weight, bias in zip(
                ("carry", "transform"),
                np.split(ours[f"{encoder}.highways.{k}.weight"], 2, axis=1),
                np.split(ours[f"{encoder}.highways.{k}.bias"], 2),
                strict=True,
            ):
                yield f"CNN_high_{k}/W_{part}", weight
                yield f"CNN_high_{k}/b_{part}", bias
        if f"{encoder}.projection" in ours:
            yield "CNN_proj/W_proj", ours[f"{encoder}.projection"]
            yield "CNN_proj/b_proj", ours[f"{encoder}.projection_bias"]
    for layer in range(config.lstm.n_layers):
        for direction in range(config.directions):
            name = cell_name(direction, layer)
            parts = [ours[f"lstms.{layer}.{part}"][direction] for part in ("weight_input", "weight_hidden")]
            yield f"{name}/W_0", _permuted(np.concatenate(parts), TO_THEIRS)
            yield f"{name}/B", _permuted(ours[f"lstms.{layer}.bias"][direction], TO_THEIRS)
            if f"lstms.{layer}.weight_projection" in ours:
                yield f"{name}/W_P_0", ours[f"lstms.{layer}.weight_projection"][direction]


def cell_name(direction: int, layer: int) -> str:
    """Return the name of the group of an LSTM's arrays."""
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def _permuted(array: npt.NDArray[np.float32], order: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Reorder the four gates, which are side by side in the last axis."""
    gates = np.split(array, 4, axis=-1)
    return np.concatenate([gates[k] for k in order], axis=-1)


def with_empty_row(array: npt.NDArray[np.float32]) -> Tensor:
    """Put the row of "no token" before the rows of a table."""
    return torch.from_numpy(np.concatenate([np.zeros_like(array[:1]), array]))
