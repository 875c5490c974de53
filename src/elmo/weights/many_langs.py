"""A FOLDER OF ELMoForManyLangs ─▶ MODEL: 44 languages, in its own layout.

    config.json            names the file of the sizes (`config_path`), by a path of the machine that trained it
    cnn_50_….json          the sizes; often not there, because it came with the program
    token_embedder.pkl     the weights of the token encoder, written by torch.save
    encoder.pkl            the weights of the LSTMs, likewise
    word.dic, char.dic     the rows of words and of characters: see `text/lexicon.py`

Differences in the weights, all handled here and nowhere else:
- a linear layer is (out, in); ours is (in, out);
- highways are [transform; gate], and the gate keeps the input: ours is [carry; transform], and the carry gate replaces
  it, so its weights have the other sign;
- gates are in the order i, f, candidate, o (ours i, f, o, candidate), with one bias, which has the forget bias in it;
- tables have no row for "no token".

The weights are pickles. They are read by PyTorch's restricted unpickler (`weights_only`), which knows tensors and
containers of them and nothing that could run code.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import FORGET_BIAS, LSTMConfig
from elmo.model.many_langs_encoder import ManyLangsConfig
from elmo.text.lexicon import PADDING, Lexicon
from elmo.weights.folder import CONFIG, Pretrained
from elmo.weights.json_file import LONGEST_NAME, read_json

ENCODER, TOKEN_EMBEDDER = "encoder.pkl", "token_embedder.pkl"
# The two files of sizes that came with the program are the same.
KNOWN = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")
SIZES: dict[str, Any] = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}


def is_folder(path: Path) -> bool:
    """Whether a path is a folder of ELMoForManyLangs."""
    return path.is_dir() and (path / ENCODER).is_file() and (path / TOKEN_EMBEDDER).is_file()


def read(folder: Path) -> Pretrained:
    """Read a model. Its softmax, if there is one, is not read."""
    sizes = _sizes(folder)
    try:
        encoder, tokens = _Weights(folder / ENCODER), _Weights(folder / TOKEN_EMBEDDER)
        lexicon, config = _config(folder, sizes, tokens)
        tensors = _token_tensors(tokens, config) | _lstm_tensors(encoder, config)
    except ConfigError as error:
        raise WeightsError(f"{folder}: {error}") from None
    for weights in (encoder, tokens):
        weights.refuse_unread()
    with torch.device("meta"):
        bilm = BiLM(config)
    bilm.load_state_dict(tensors, assign=True)
    return Pretrained(bilm.eval(), lexicon=lexicon)


def _sizes(folder: Path) -> dict[str, Any]:
    """Return the sizes: of the file that config.json names, wherever it was, or those that came with the program."""
    path = read_json(folder / CONFIG).get("config_path")
    if not isinstance(path, str):
        raise WeightsError(f"{folder / CONFIG}: has no config_path; expected the config of ELMoForManyLangs")
    name = os.path.basename(path.replace("\\", "/"))  # noqa: PTH119
    for place in (folder / name, folder / "configs" / name):
        if name and len(name.encode("utf-8", "ignore")) <= LONGEST_NAME and place.is_file():
            return read_json(place)
    if name in KNOWN:
        return SIZES
    raise WeightsError(f"{folder}: no {name!r}, which {CONFIG} names; it has the sizes of the model. Put it there")


def _config(folder: Path, sizes: dict[str, Any], tokens: "_Weights") -> tuple[Lexicon, BiLMConfig]:
    """Return the words and characters, and the architecture."""
    try:
        lstm, encoder = sizes["encoder"], sizes["token_embedder"]
        for part, kind in ((lstm, "elmo"), (encoder, "cnn")):
            if str(part["name"]).lower() != kind:
                raise WeightsError(f"{folder}: has the encoder {part['name']!r}; only {kind!r} can be read")
        if lstm["dim"] == lstm["projection_dim"]:
            raise WeightsError(f"{folder}: encoder.dim is encoder.projection_dim; only models that project are read")
        word_dim, char_dim, length = encoder["word_dim"], encoder["char_dim"], encoder["max_characters_per_token"]
        n_words = tokens.rows("word_emb_layer.embedding.weight") if word_dim > 0 else None
        n_characters = tokens.rows("char_emb_layer.embedding.weight") if char_dim > 0 else None
        lexicon = Lexicon.read(folder, n_words=n_words, n_characters=n_characters, max_characters=length)
        many = ManyLangsConfig(
            n_words=n_words,
            word_dim=word_dim if n_words is not None else None,
            char_cnn=None
            if n_characters is None
            else CharCNNConfig(
                activation=encoder["activation"],
                embedding_dim=char_dim,
                filters=tuple((width, count) for width, count in encoder["filters"]),
                n_highway=encoder["n_highway"],
                max_characters_per_token=length,
                n_characters=n_characters,
            ),
            padding_id=lexicon.characters[PADDING] + 1 if lexicon.characters is not None else None,
            max_characters_per_token=length,
        )
        config = LSTMConfig(
            dim=lstm["dim"],
            projection_dim=lstm["projection_dim"],
            n_layers=lstm["n_layers"],
            cell_clip=lstm["cell_clip"] or None,
            proj_clip=lstm["proj_clip"] or None,
            use_skip_connections=True,  # its code always adds them
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else f"unexpected form ({error})"
        raise WeightsError(f"{folder}: {what} in the sizes of the model, the file that {CONFIG} names") from None
    return lexicon, BiLMConfig(config, None, many_langs=many)


def _token_tensors(file: "_Weights", config: BiLMConfig) -> dict[str, Tensor]:
    many, dim = config.many_langs, config.lstm.projection_dim
    assert many is not None
    tensors: dict[str, Tensor] = {}
    width = 0
    if many.n_words is not None and many.word_dim is not None:
        words = file.tensor("word_emb_layer.embedding.weight", many.n_words, many.word_dim)
        tensors["word_embedding"] = _with_empty_row(words)
        width += many.word_dim
    if many.char_cnn is not None:
        cnn, n_filters = many.char_cnn, many.char_cnn.n_filters
        characters = file.tensor("char_emb_layer.embedding.weight", cnn.n_characters, cnn.embedding_dim)
        tensors["char_cnn.embedding"] = _with_empty_row(characters)
        for k, (size, count) in enumerate(cnn.filters):
            weight = file.tensor(f"convolutions.{k}.weight", count, cnn.embedding_dim, size)
            weight = weight.permute(2, 1, 0).contiguous()  # of width 1, reshape alone would give a view
            tensors[f"char_cnn.filters.{k}"] = weight.view(size * cnn.embedding_dim, count)
            tensors[f"char_cnn.biases.{k}"] = file.tensor(f"convolutions.{k}.bias", count)
        for k in range(cnn.n_highway):
            weight = file.tensor(f"highways._layers.{k}.weight", 2 * n_filters, n_filters)
            bias = file.tensor(f"highways._layers.{k}.bias", 2 * n_filters)
            for name, both in (("weight", weight), ("bias", bias)):
                transform, gate = both.chunk(2)
                tensors[f"char_cnn.highways.{k}.{name}"] = torch.cat([-gate, transform]).t().contiguous()
        width += n_filters
    tensors["projection"] = file.tensor("projection.weight", dim, width).t().contiguous()
    tensors["projection_bias"] = file.tensor("projection.bias", dim)
    return {f"token_encoder.{name}": tensor for name, tensor in tensors.items()}


def _lstm_tensors(file: "_Weights", config: BiLMConfig) -> dict[str, Tensor]:
    dim, cell = config.lstm.projection_dim, config.lstm.dim
    tensors: dict[str, Tensor] = {}
    for layer in range(config.lstm.n_layers):
        directions = [f"{direction}_layer_{layer}" for direction in ("forward", "backward")]

        def both(name: str, *shape: int, of: list[str] = directions) -> Tensor:
            return torch.stack([file.tensor(f"{direction}.{name}", *shape) for direction in of])

        bias = _permuted(both("state_linearity.bias", 4 * cell))
        bias[:, cell : 2 * cell] -= FORGET_BIAS
        tensors |= {
            f"lstms.{layer}.weight_input": _permuted(both("input_linearity.weight", 4 * cell, dim)).mT.contiguous(),
            f"lstms.{layer}.weight_hidden": _permuted(both("state_linearity.weight", 4 * cell, dim)).mT.contiguous(),
            f"lstms.{layer}.bias": bias,
            f"lstms.{layer}.weight_projection": both("state_projection.weight", dim, cell).mT.contiguous(),
        }
    return tensors


def _permuted(tensor: Tensor) -> Tensor:
    """Reorder the four gates of (S, 4H, …): i, f, candidate, o ─▶ i, f, o, candidate."""
    i, f, candidate, o = tensor.chunk(4, dim=1)
    return torch.cat([i, f, o, candidate], dim=1)


def _with_empty_row(table: Tensor) -> Tensor:
    return torch.cat([table.new_zeros(1, table.shape[1]), table])


class _Weights:
    """The tensors of a pickle, checked as they are taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
        except Exception:  # of any kind: the file decides what is called
            raise WeightsError(
                f"{path}: damaged, or has other things than tensors, which could run any code when read; refused"
            ) from None
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise WeightsError(f"{path}: expected the tensors of a model by their names")
        for name, value in found.items():
            if value.nbytes > value.untyped_storage().nbytes():  # one value, repeated by strides of 0
                raise WeightsError(f"{path}: {name!r} has more values than the file; it is damaged. Get it again")
        self._tensors: dict[str, Tensor] = found
        self._read: set[str] = set()

    def rows(self, name: str) -> int:
        """Return the number of rows of a matrix."""
        tensor = self._found(name)
        if tensor.dim() != 2:
            raise WeightsError(f"{self.path}: {name!r} has shape {tuple(tensor.shape)}; expected a matrix")
        return tensor.shape[0]

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of this shape in float32."""
        tensor = self._found(name)
        self._read.add(name)
        if tuple(tensor.shape) != shape:
            raise WeightsError(
                f"{self.path}: {name!r} has shape {tuple(tensor.shape)}; the sizes of the model need {shape}"
            )
        tensor = tensor.float()
        if tensor.numel() and not all(value.isfinite() for value in tensor.aminmax()):
            raise WeightsError(f"{self.path}: {name!r} contains NaN or infinity; the weights are damaged")
        return tensor

    def refuse_unread(self) -> None:
        """Refuse weights that the sizes do not mention."""
        unread = sorted(map(str, self._tensors.keys() - self._read))
        if unread:
            raise WeightsError(f"{self.path}: {unread[0]!r} is not in the sizes of the model")

    def _found(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise WeightsError(f"{self.path}: no tensor {name!r}; the sizes of the model ask for it")
        return self._tensors[name]
