"""A CHECKPOINT OF BILM-TF'S TRAINING ─▶ MODEL, with the softmax, which published HDF5 files do not have.

    checkpoint, model.ckpt-935588.index, model.ckpt-935588.data-00000-of-00001, options.json

The variables are those of the HDF5 file under the scope `lm`, and `lm/softmax/W`, `lm/softmax/b`. TensorFlow renamed
the LSTM's: `RNN_0/rnn/multi_rnn_cell/cell_0/lstm_cell/kernel` was `RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0` before.
Other variables, such as the optimizer's, are not read.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from elmo.errors import ConfigError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.weights import bilm_tf
from elmo.weights.json_file import read_json
from elmo.weights.tf_bundle import Bundle

LATEST = "checkpoint"  # the file that names the latest checkpoint of a folder
FILE = re.compile(r"(.+?)\.(index|meta|data-\d{5}-of-\d{5})")
SCOPE = "lm/"
# With one layer there is no MultiRNNCell, with one direction no RNN_0.
CELL = re.compile(
    r"(?:RNN_(?P<direction>[01])/)?(?:rnn|RNN)/(?:(?:multi_rnn_cell/cell_|MultiRNNCell/Cell)(?P<layer>\d+)/)?"
    r"(?:lstm_cell|LSTMCell)/(?P<part>.+)"
)
NAMES = {"W_0": ("kernel", "weights"), "B": ("bias", "biases"), "W_P_0": ("projection/kernel", "projection/weights")}
PARTS = {name: old for old, new in NAMES.items() for name in (old, *new)}


def find(path: Path) -> Path | None:
    """Return the prefix of the checkpoint that a path means: a prefix, one of its files, or its folder; else None."""
    if path.is_dir():
        return _latest(path)
    parts = FILE.fullmatch(path.name)
    prefix = path.with_name(parts[1]) if parts else path
    try:
        return prefix if _index(prefix).is_file() else None
    except OSError:  # with its ending, the name is too long
        return None


def read(prefix: Path, options: Path, softmax: bool = False) -> BiLM:
    """Read a model. The softmax is left on the disk unless asked for: it is larger than all the rest."""
    file = _Variables(prefix)
    try:
        config = _config(file, options, softmax)
    except ConfigError as error:
        raise WeightsError(f"{options}: {error}") from None
    if config.char_cnn is not None:
        tensors = dict(bilm_tf.model_tensors(file, config))
    else:
        words = file.array("embedding", config.n_words or 0, config.lstm.projection_dim, because="options.json lstm")
        tensors = {"token_encoder.embedding": bilm_tf.with_empty_row(words), **dict(bilm_tf.lstm_tensors(file, config))}
    if config.n_softmax is not None:
        if not config.share_embedding_softmax:
            weight = file.array("softmax/W", config.n_softmax, config.lstm.projection_dim, because="options.json lstm")
            tensors["softmax.weight"] = torch.from_numpy(weight)
        tensors["softmax.bias"] = torch.from_numpy(file.array("softmax/b", config.n_softmax, because="softmax/W"))
    file.refuse_unread(("CNN", "RNN"))
    with torch.device("meta"):
        bilm = BiLM(config)
    bilm.load_state_dict(tensors, assign=True)
    return bilm.eval()


def _config(file: "_Variables", options: Path, softmax: bool) -> BiLMConfig:
    """Return the architecture: that of the options, with sizes and directions as the variables have them."""
    config = bilm_tf.read_options(options)
    shared = bool(read_json(options).get("share_embedding_softmax", False))
    if shared and config.char_cnn is not None:
        raise WeightsError(
            f"{options}: share_embedding_softmax is set, but this model reads characters and has no word embedding to"
            " share. Are the two files from the same model?"
        )
    table = "softmax/W" if not shared else "embedding"
    return replace(
        config,
        char_cnn=config.char_cnn and replace(config.char_cnn, n_characters=bilm_tf.character_rows(file)),
        n_words=None if config.char_cnn is not None else file.rows("embedding"),
        n_softmax=file.rows(table) if softmax and {table, "softmax/b"} <= file.names.keys() else None,
        bidirectional=any(name.startswith("RNN_1/") for name in file.names),  # its options have it only if it is so
        share_embedding_softmax=shared,
    )


def _latest(folder: Path) -> Path | None:
    """Return the prefix of a folder's latest checkpoint, or of its only one."""
    found = sorted(path.with_name(path.name.removesuffix(".index")) for path in folder.glob("*.index"))
    if not found:
        return None
    try:
        with (folder / LATEST).open("rb") as file:
            text = file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        text = ""
    named = re.search(r'^model_checkpoint_path: *"([^"]+)"', text, re.MULTILINE)
    # The path may be of another machine.
    latest = folder / re.split(r"[/\\]", named[1])[-1] if named else found[0]
    if latest in found and (named or len(found) == 1):
        return latest
    names = ", ".join(path.name for path in found[:3]) + (", …" if len(found) > 3 else "")
    raise WeightsError(f"{folder}: contains {names}, and its file {LATEST!r} names none of them; name one of them")


def _index(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")


def _published(name: str) -> str:
    """Return the name of a variable's dataset in an HDF5 file: `lm/RNN_0/rnn/…` ─▶ `RNN_0/RNN/…`."""
    name = name.removeprefix(SCOPE)
    cell = CELL.fullmatch(name)
    if cell is None or cell["part"] not in PARTS:
        return name
    return f"{bilm_tf.cell_name(int(cell['direction'] or 0), int(cell['layer'] or 0))}/{PARTS[cell['part']]}"


class _Variables:
    """The variables of a checkpoint by the names of the HDF5 file, checked as they are read."""

    def __init__(self, prefix: Path) -> None:
        self._bundle = Bundle(prefix)
        self.path = self._bundle.index
        every = set(self._bundle.names)
        # An optimizer's slot is named like a path inside of its variable: lm/CNN/W_cnn_0/Adagrad
        own = (name for name in every if name.startswith(SCOPE) and name.rpartition("/")[0] not in every)
        self.names = {_published(name): name for name in own}
        self._read: set[str] = set()

    def rows(self, name: str) -> int:
        """Return the number of rows of a matrix."""
        shape = self._bundle.shape(self._name(name))
        if len(shape) != 2:
            raise WeightsError(f"{self.path}: {name!r} has shape {shape}; expected a matrix")
        return shape[0]

    def array(self, name: str, *shape: int, because: str = "options.json") -> npt.NDArray[np.float32]:
        """Read an array of this shape; `because` says what requires it."""
        found = self._bundle.shape(self._name(name))
        if found != shape:
            raise WeightsError(
                f"{self.path}: {self.names[name]!r} has shape {found}; {because} needs {shape}. "
                "Are the files from the same model?"
            )
        self._read.add(name)
        array = self._bundle.array(self.names[name])
        if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
            raise WeightsError(f"{self.path}: {self.names[name]!r} contains NaN or infinity; the weights are damaged")
        return array

    def refuse_unread(self, prefixes: tuple[str, ...]) -> None:
        """Refuse a layer or a highway that the options do not mention, instead of ignoring it silently."""
        unread = sorted(name for name in self.names if name.startswith(prefixes) and name not in self._read)
        if unread:
            raise WeightsError(
                f"{self.path}: {self.names[unread[0]]!r} is not in options.json. Are the files from the same model?"
            )

    def _name(self, name: str) -> str:
        if name not in self.names:
            raise WeightsError(
                f"{self.path}: no variable {SCOPE + name!r}; options.json asks for it. "
                "Are the files from the same model?"
            )
        return self.names[name]
