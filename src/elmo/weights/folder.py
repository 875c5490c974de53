"""OUR FOLDER ◀─▶ MODEL, in the Hugging Face layout.

    config.json               what the model is made of
    model.safetensors         its parameters, and the softmax where there is one
    vocabulary.txt            the words of the softmax or of the word table
    warm_state.safetensors    where `state="warm"` starts every sentence
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.config import build
from elmo.errors import ConfigError, WeightsError
from elmo.files import new_folder, refuse_existing
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.lstm import State
from elmo.text.vocabulary import Vocabulary
from elmo.weights.json_file import read_json

CONFIG, WEIGHTS, VOCABULARY, WARM_STATE = (
    "config.json",
    "model.safetensors",
    "vocabulary.txt",
    "warm_state.safetensors",
)

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # of the tensors in a file


@dataclass(frozen=True)
class Pretrained:
    """A model as its files give it."""

    bilm: BiLM
    vocabulary: Vocabulary | None = None
    warm_state: State | None = None


def read(folder: Path, softmax: bool = False) -> Pretrained:
    """Read a folder. The softmax is left on the disk unless asked for: only language modelling needs it."""
    config = config_of(read_json(folder / CONFIG), folder / CONFIG)
    if not softmax:
        config = dataclasses.replace(config, n_softmax=None)
    with torch.device("meta"):
        bilm = BiLM(config)
    expected = {name: tuple(tensor.shape) for name, tensor in bilm.state_dict().items()}
    bilm.load_state_dict(tensors_of(folder / WEIGHTS, expected), assign=True)
    words, warm = folder / VOCABULARY, folder / WARM_STATE
    vocabulary = Vocabulary.read(words) if words.exists() else None
    if softmax and vocabulary is not None and config.n_softmax not in (None, len(vocabulary)):
        raise WeightsError(
            f"{words}: the softmax has {config.n_softmax:,} words, the vocabulary {len(vocabulary):,}. "
            f"Are they from one model?"
        )
    state = None
    if warm.exists():
        lstm = config.lstm
        leading = (lstm.n_layers, config.directions, 1)
        shapes = {"h": (*leading, lstm.projection_dim), "c": (*leading, lstm.dim)}
        state = State(**tensors_of(warm, shapes))
    return Pretrained(bilm.eval(), vocabulary, state)


def write(model: Pretrained, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a model folder atomically, in the given dtype if there is one. An existing folder is never overwritten."""
    refuse_existing(folder)
    with new_folder(folder) as temporary:
        fill(temporary, model, dtype)


def fill(folder: Path, model: Pretrained, dtype: torch.dtype | None = None) -> None:
    """Write a model's files into a folder that is there."""
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in model.bilm.state_dict().items()}
    for name, tensor in tensors.items():
        if dtype is not None and not tensor.isfinite().all():
            raise WeightsError(f"{name!r} has values that {dtype} cannot hold; keep the model in float32")
    config = {"model_type": "elmo", "architectures": ["BiLM"], **dataclasses.asdict(model.bilm.config)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    if model.vocabulary is not None:
        model.vocabulary.write(folder / VOCABULARY)
    if model.warm_state is not None:
        state = {name: tensor.float().cpu().contiguous() for name, tensor in model.warm_state._asdict().items()}
        save_file(state, folder / WARM_STATE)


def config_of(values: dict[str, Any], where: Path) -> BiLMConfig:
    """A config.json's content, checked: unknown fields are refused with the nearest name."""
    values = {name: value for name, value in values.items() if name not in ("model_type", "architectures")}
    try:
        config = build(BiLMConfig, values)
    except ConfigError as error:
        raise WeightsError(f"{where}: {error}") from None
    if "lstm" not in values:
        raise WeightsError(f"{where}: not the config of a biLM; expected 'lstm' and 'char_cnn'")
    return config


def tensors_of(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The named tensors of a safetensors file in float32, each checked."""
    try:
        with safe_open(path, framework="pt") as file:
            missing = sorted(set(shapes) - set(file.keys()))
            if missing:
                raise WeightsError(f"{path}: no tensor {missing[0]!r}; {CONFIG} asks for it. Are they from one model?")
            tensors = {name: file.get_tensor(name) for name in shapes}
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file; a model folder holds {CONFIG} and {WEIGHTS}") from None
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: damaged, or not safetensors ({error}). Get the file again") from None
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape:
            raise WeightsError(
                f"{path}: {name!r} has shape {tuple(tensor.shape)}; {CONFIG} needs {shape}. Are they from one model?"
            )
        if tensor.dtype not in DTYPES:
            found, *names = (str(dtype).removeprefix("torch.") for dtype in (tensor.dtype, *DTYPES))
            raise WeightsError(f"{path}: {name!r} is of type {found}; expected one of {', '.join(names)}")
        tensors[name] = tensor.float()
        if not torch.isfinite(tensors[name].sum(dtype=torch.float64)):
            raise WeightsError(f"{path}: {name!r} holds NaN or infinity; the weights are damaged")
    return tensors
