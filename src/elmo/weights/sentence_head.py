"""THE FOLDER OF A TRAINED TASK `sentences` ─▶ ITS SENTENCE HEAD, by its path, or by its name if it is installed.

Only what turns layers into a vector is read: the mix and the head. The biLM, which `elmo train`
puts beside them unless it is installed, is not.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError, ElmoError, WeightsError
from elmo.model.device import without_autocast
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix
from elmo.model.sentence_head import SentenceHead, SentenceHeadSize
from elmo.weights import installed
from elmo.weights.json_file import read_json
from elmo.weights.tensor_files import read_tensors

TASK = "sentences"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MIX, HEAD = "inputs.mix_input.", "head."  # the names of the tensors begin with one of these


@dataclass(frozen=True)
class TrainedHead:
    """A sentence head, and the biLM whose layers it reads."""

    mix: ScalarMix
    head: SentenceHead
    layer: int | None  # the only layer of the biLM that is read; None: all are
    bilm: str  # its name, or its folder
    dim: int  # of a sentence vector
    fingerprint: str  # a hash of config and weights

    @torch.no_grad()
    def encode(self, layers: Tensor) -> Tensor:
        """Return the vector of one sentence, (dim,), from its layers (L+1, T, 2D), or from the only one (T, 2D)."""
        if self.layer is not None:  # the weights of the mix are 1 for this one, and 0 for the others
            layers = layers.expand(len(self.mix.weights), -1, -1)
        batch = Layers(layers[:, None], torch.ones(1, layers.shape[1], dtype=torch.bool, device="cpu"))
        with without_autocast(layers):
            vector: Tensor = self.head(self.mix(batch), batch.mask)[0]
        return vector


def find(name: str) -> Path | None:
    """Return the folder of a trained task: an installed name, or a path; None if there is none."""
    if (found := installed.find(installed.TASKS, name)) is not None:
        return found
    path = Path(name).expanduser().absolute()
    return path if path.is_dir() else None


def names() -> list[str]:
    """Return the names of all installed sentence heads."""
    return [name for name, folder in installed.installed(installed.TASKS).items() if _is_head(folder)]


def _is_head(folder: Path) -> bool:
    try:
        return read_json(folder / CONFIG).get("task") == TASK
    except ElmoError:
        return False


def read(folder: Path, n_layers: int, input_dim: int, fingerprint: str) -> TrainedHead:
    """Read the head of a trained task `sentences`, for a biLM of these sizes with this fingerprint."""
    path = folder / CONFIG
    record = read_json(path)
    if record.get("model_type") != "elmo-task" or record.get("task") != TASK:
        what = record.get("task", record.get("model_type"))
        raise WeightsError(f"{folder}: is a model of {what!r:.80}; expected a trained task {TASK!r}")
    try:
        config, elmo = record["config"], record["elmo"]
        hidden, dim, settings = config["hidden"], config["dim"], config["inputs"]["elmo"]
        bilm = str(folder / elmo["folder"]) if "folder" in elmo else str(elmo["name"])
        expected, mix_name, layer_norm = elmo["fingerprint"], settings["mix"], settings["layer_norm"]
    except (KeyError, TypeError) as error:
        raise WeightsError(f"{path}: lacks {error}; expected what `elmo train {TASK}` writes there") from None
    if not all(type(size) is int and 1 <= size < 1 << 31 for size in (hidden, dim)):  # true is not a size
        raise WeightsError(f"{path}: hidden is {hidden!r:.40}, dim is {dim!r:.40}; expected positive integers")
    if expected != fingerprint:
        raise WeightsError(
            f"{folder}: this sentence head reads the layers of {bilm}; the model is another one, or was loaded in "
            f"another precision. Use elmo.load({bilm!r}), or --model {bilm}"
        )
    try:
        with torch.device("meta"):  # without memory for the sizes that config.json claims
            mix = ScalarMix(n_layers, str(mix_name), layer_norm=layer_norm)
            head = SentenceHead(SentenceHeadSize(input_dim, hidden, dim))
    except ConfigError as error:
        raise WeightsError(f"{path}: {error}") from None
    state = {**_load(mix, folder / WEIGHTS, MIX), **_load(head, folder / WEIGHTS, HEAD)}
    return TrainedHead(mix, head, mix.only_layer, bilm, dim, _fingerprint((mix_name, layer_norm), state))


def _load(module: nn.Module, path: Path, prefix: str) -> dict[str, Tensor]:
    """Give a module its tensors; return them by their names in the file."""
    shapes = {f"{prefix}{name}": tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    state = {name: tensor.clone() for name, tensor in read_tensors(path, shapes, CONFIG).items()}
    module.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in state.items()}, assign=True)
    module.eval().requires_grad_(False)
    return state


def _fingerprint(settings: tuple[str, str | None], state: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(repr(settings).encode())
    for name in sorted(state):
        digest.update(f"{name} {tuple(state[name].shape)}\n".encode() + state[name].numpy().tobytes())
    return digest.hexdigest()[:16]
