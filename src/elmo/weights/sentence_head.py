"""THE FOLDER OF A TRAINED TASK `sentences` ─▶ ITS SENTENCE HEAD, by its path, or by its name if it is installed.

Only what turns layers into a vector is read: the mix, the attention and the projection. The biLM, which `elmo train`
puts beside them unless it is installed, is not.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from elmo.errors import ElmoError, WeightsError
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix
from elmo.model.sentence_head import SentenceHead, SentenceHeadSize
from elmo.weights import installed
from elmo.weights.json_file import read_json

TASK = "sentences"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
MIX, HEAD = "inputs.mix_input.", "head."  # the names of the tensors begin with one of these


@dataclass(frozen=True)
class TrainedHead:
    """A sentence head, and the biLM whose layers it reads."""

    mix: ScalarMix
    head: SentenceHead
    bilm: str  # its name, or its folder
    bilm_fingerprint: str  # `Embedder.fingerprint()` of the biLM
    dim: int  # of a sentence vector
    fingerprint: str  # a hash of config and weights

    @torch.no_grad()
    def encode(self, layers: Tensor) -> Tensor:
        """Return the vector of one sentence, (dim,), from all its layers (L+1, T, 2D)."""
        batch = Layers(layers[:, None], torch.ones(1, layers.shape[1], dtype=torch.bool))
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


def read(folder: Path) -> TrainedHead:
    """Read the head of a trained task `sentences`."""
    record = read_json(folder / CONFIG)
    if record.get("model_type") != "elmo-task" or record.get("task") != TASK:
        what = record.get("task", record.get("model_type"))
        raise WeightsError(f"{folder}: is a model of {what!r}; expected a trained task {TASK!r}")
    try:
        config, elmo, state = record["config"], record["elmo"], load_file(folder / WEIGHTS)
        settings, projection = config["inputs"]["elmo"], state[f"{HEAD}projection.weight"]
        n_layers = len(state.get(f"{MIX}scalars", state.get(f"{MIX}fixed", ())))
        mix = ScalarMix(n_layers, settings["mix"], layer_norm=settings["layer_norm"])
        head = SentenceHead(SentenceHeadSize(projection.shape[1], config["attention"], config["dim"]))
        _load(mix, state, MIX)
        _load(head, state, HEAD)
        bilm = str(folder / elmo["folder"]) if "folder" in elmo else str(elmo["name"])
        return TrainedHead(mix, head, bilm, str(elmo["fingerprint"]), config["dim"], _fingerprint(settings, state))
    except (OSError, SafetensorError, KeyError, IndexError, TypeError, ValueError, RuntimeError, ElmoError) as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise WeightsError(f"{folder}: cannot be read as a trained task {TASK!r} ({what})") from None


def _load(module: nn.Module, state: dict[str, Tensor], prefix: str) -> None:
    tensors = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{prefix}{name} has values that are not finite")
    module.load_state_dict(tensors)
    module.eval().requires_grad_(False)


def _fingerprint(settings: dict[str, Any], state: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(repr((settings["mix"], settings["layer_norm"])).encode())
    for name in sorted(state):
        digest.update(f"{name} {tuple(state[name].shape)}\n".encode() + state[name].float().numpy().tobytes())
    return digest.hexdigest()[:16]
