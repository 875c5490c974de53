"""NAMED TENSORS ◀─▶ SAFETENSORS FILES, as Hugging Face lays them out: one file, or shards with an index.

    model.safetensors                      one file, if it is small enough
    model-00001-of-00003.safetensors, …    shards, and model.safetensors.index.json: which tensor is in which shard

A matrix may be stored in int8 (`elmo.weights.int8`): `NAME` is then int8 and `NAME.scale` has its scales.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import WeightsError
from elmo.weights.int8 import SCALE, dequantize
from elmo.weights.json_file import read_json

MAX_SHARD_BYTES = 48_000_000
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # the types of tensors in a file, and int8


def index_of(path: Path) -> Path:
    """Return the path of the index of the shards of `path`."""
    return path.with_name(path.name + ".index.json")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], max_bytes: int | None = None) -> None:
    """Write tensors to `path`, or if they have more than `max_bytes`, to shards of at most this size beside it.

    A tensor is never divided. One that is larger than `max_bytes` is a WeightsError.
    """
    shards: list[dict[str, Tensor]] = [{}]
    room = max_bytes
    for name, tensor in tensors.items():
        if max_bytes is not None and room is not None:
            if tensor.nbytes > max_bytes:
                raise WeightsError(f"{path}: {name!r} has {tensor.nbytes:,} bytes; expected at most {max_bytes:,}")
            if tensor.nbytes > room and not name.endswith(SCALE):  # a matrix and its scales are in one shard
                shards.append({})
                room = max_bytes
            room -= tensor.nbytes
        shards[-1][name] = tensor
    if len(shards) == 1:
        save_file(shards[0], path, metadata={"format": "pt"})
        return
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = path.with_name(f"{path.stem}-{number:05d}-of-{len(shards):05d}{path.suffix}")
        save_file(shard, file, metadata={"format": "pt"})
        where |= dict.fromkeys(shard, file.name)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    index_of(path).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]], wanted_by: str) -> dict[str, Tensor]:
    """Read tensors in float32, and check their shapes; `wanted_by` is the file that requires them, for messages."""
    tensors: dict[str, Tensor] = {}
    for file, names in _files_of(path, shapes, wanted_by).items():
        tensors |= _read_file(file, {name: shapes[name] for name in names}, wanted_by)
    return tensors


def _files_of(path: Path, names: Collection[str], wanted_by: str) -> dict[Path, list[str]]:
    """Return the names of the tensors to read from each file: from `path`, or from the shards in its index."""
    index = index_of(path)
    if path.exists() or not index.exists():
        return {path: list(names)}
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict):
        raise WeightsError(f"{index}: has no 'weight_map'; expected the file of each tensor")
    missing = [name for name in names if name not in where]
    if missing:
        raise WeightsError(f"{index}: no tensor {missing[0]!r}; {wanted_by} asks for it. Are they from one model?")
    files: dict[Path, list[str]] = {}
    for name in names:
        shard = str(where[name])
        if Path(shard).name != shard:
            raise WeightsError(f"{index}: {name!r} is in {shard!r}; expected the name of a file beside the index")
        files.setdefault(index.with_name(shard), []).append(name)
    return files


def _read_file(path: Path, shapes: Mapping[str, tuple[int, ...]], wanted_by: str) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            there = set(file.keys())
            missing = sorted(set(shapes) - there)
            if missing:
                raise WeightsError(
                    f"{path}: no tensor {missing[0]!r}; {wanted_by} asks for it. Are they from one model?"
                )
            tensors = {name: file.get_tensor(name) for name in shapes}
            scales = {name: file.get_tensor(name + SCALE) for name in shapes if name + SCALE in there}
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file; a model folder contains {wanted_by} and {path.name}") from None
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: damaged, or not safetensors ({error}). Get the file again") from None
    for name, shape in shapes.items():
        tensors[name] = _checked(f"{path}: {name!r}", tensors[name], scales.get(name), shape, wanted_by)
    return tensors


def _checked(where: str, tensor: Tensor, scale: Tensor | None, shape: tuple[int, ...], wanted_by: str) -> Tensor:
    """Return a tensor of a file in float32; refuse one of another shape or type, and one that is not finite."""
    if tuple(tensor.shape) != shape:
        raise WeightsError(
            f"{where} has shape {tuple(tensor.shape)}; {wanted_by} needs {shape}. Are they from one model?"
        )
    if tensor.dtype == torch.int8 and scale is not None:
        sizes = tuple(scale.shape)
        if len(sizes) != len(shape) or any(size not in (1, full) for size, full in zip(sizes, shape, strict=True)):
            raise WeightsError(f"{where} has shape {shape} and scales of shape {sizes}; expected one for each output")
        tensor = dequantize(tensor, scale)
    elif tensor.dtype not in FLOATS:
        found, *known = (str(dtype).removeprefix("torch.") for dtype in (tensor.dtype, *FLOATS))
        raise WeightsError(f"{where} is of type {found}; expected one of {', '.join(known)}, or int8 with its scales")
    tensor = tensor.float()
    if not torch.isfinite(tensor.sum(dtype=torch.float64)):
        raise WeightsError(f"{where} contains NaN or infinity; the weights are damaged")
    return tensor
