"""NAMED TENSORS ◀─▶ SAFETENSORS FILES, as Hugging Face lays them out: one file, or shards with an index.

    model.safetensors                      one file, if it is small enough
    model-00001-of-00003.safetensors, …    shards, and model.safetensors.index.json: which tensor is in which shard

A matrix may be stored in int8 (`elmo.weights.int8`): `NAME` is then int8 and `NAME.scale` has its scales.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmo.errors import WeightsError
from elmo.weights.int8 import SCALE, dequantize
from elmo.weights.json_file import LONGEST_NAME, read_json

MAX_SHARD_BYTES = 48_000_000
MAX_HEADER = 16 << 20  # bytes; the header of a biLM has a few thousand
ENTRY_BYTES = 256  # at most, of a tensor's entry in the header of a file
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # the types of tensors in a file, and int8


def index_of(path: Path) -> Path:
    """Return the path of the index of the shards of `path`."""
    return path.with_name(path.name + ".index.json")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], max_bytes: int | None = None) -> None:
    """Write tensors to `path`; with `max_bytes`, to shards of at most this size beside it if they need more than one.

    A tensor is in one shard, together with its scales. One that is larger than `max_bytes` has a shard of its own.
    """
    shards = [dict(tensors)] if max_bytes is None else _divided(tensors, max_bytes)
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


def _divided(tensors: Mapping[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    """Divide tensors, in their order, into shards."""
    shards: list[dict[str, Tensor]] = [{}]
    room = max_bytes
    for name in tensors:
        if name.endswith(SCALE):
            continue
        group = {key: tensors[key] for key in (name, name + SCALE) if key in tensors}
        size = sum(part.nbytes + ENTRY_BYTES for part in group.values())
        if size > room and shards[-1]:
            shards.append({})
            room = max_bytes
        shards[-1] |= group
        room -= size
    return shards


def read_tensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], wanted_by: str, prefix: str = ""
) -> dict[str, Tensor]:
    """Read tensors in float32, and check their shapes; `wanted_by` is the file that requires them, for messages.

    In the file, a name may have the prefix, as where the model is a part of a larger one.
    """
    tensors: dict[str, Tensor] = {}
    for file, names in _files_of(path, shapes, wanted_by, prefix).items():
        tensors |= _read_file(file, {name: shapes[name] for name in names}, wanted_by, prefix)
    return tensors


def stored_dtypes(path: Path) -> list[str]:
    """Return the types in which the tensors of `path`, or of its shards, are stored; first the one with most bytes."""
    sizes: Counter[str] = Counter()
    for file in sorted(set(_index(path).values())) or [path]:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                tensor = tensors.get_tensor(name)  # mapped into memory, not read
                sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
    return [dtype for dtype, _ in sizes.most_common()]


def _stored_name(name: str, there: Collection[str], prefix: str) -> str:
    """Return the name under which a tensor is stored, among those that are there."""
    return prefix + name if name not in there and prefix + name in there else name


def _files_of(path: Path, names: Collection[str], wanted_by: str, prefix: str) -> dict[Path, list[str]]:
    """Return the names of the tensors to read from each file: from `path`, or from the shards in its index."""
    where = _index(path)
    if not where:
        return {path: list(names)}
    missing = [name for name in names if _stored_name(name, where, prefix) not in where]
    if missing:
        raise WeightsError(
            f"{index_of(path)}: no tensor {missing[0]!r}; {wanted_by} asks for it. Are they from one model?"
        )
    files: dict[Path, list[str]] = {}
    for name in names:
        files.setdefault(where[_stored_name(name, where, prefix)], []).append(name)
    return files


def _index(path: Path) -> dict[str, Path]:
    """Return the shard of every tensor, by the index of `path`; empty if `path` is one file without an index.

    The shards that the index names must all be there, and no others.
    """
    index = index_of(path)
    shards = set(path.parent.glob(f"{path.stem}-*-of-*{path.suffix}"))
    if not index.exists():
        if shards:
            raise WeightsError(f"{index}: no such file, but there are shards such as {min(shards).name}. Get it, too")
        return {}
    if path.exists():
        raise WeightsError(f"{path}: is there beside {index.name}; expected one file, or shards with an index")
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise WeightsError(f"{index}: has no 'weight_map'; expected the file of each tensor")
    for name, shard in names.items():
        size = len(shard.encode("utf-8", "ignore")) if isinstance(shard, str) else 0
        if not 0 < size <= LONGEST_NAME or Path(shard).name != shard:
            raise WeightsError(f"{index}: {name!r} is in {shard!r}; expected the name of a file beside the index")
    where = {name: index.with_name(shard) for name, shard in names.items()}
    named = set(where.values())
    missing = sorted(file for file in named if not file.exists())
    if missing:
        raise WeightsError(
            f"{missing[0]}: no such file; {index.name} names {len(named)} shards, {len(missing)} of them missing. "
            "Get the files again"
        )
    if shards - named:
        raise WeightsError(
            f"{min(shards - named)}: a shard that {index.name} does not name. Are the files from one model?"
        )
    return where


def _read_file(
    path: Path, shapes: Mapping[str, tuple[int, ...]], wanted_by: str, prefix: str
) -> dict[str, Tensor]:
    """Read the named tensors of one file."""
    tensors: dict[str, Tensor] = {}
    try:
        refuse_large_header(path)
        with safe_open(path, framework="pt") as file:
            there = set(file.keys())
            stored = {name: _stored_name(name, there, prefix) for name in shapes}
            missing = sorted(name for name in shapes if stored[name] not in there)
            if missing:
                raise WeightsError(
                    f"{path}: no tensor {missing[0]!r}; {wanted_by} asks for it. Are they from one model?"
                )
            in_int8 = any(name.endswith(SCALE) for name in there)
            for name, shape in shapes.items():
                scale = file.get_tensor(stored[name] + SCALE) if stored[name] + SCALE in there else None
                tensor = _checked(f"{path}: {name!r}", file.get_tensor(stored[name]), scale, shape, wanted_by)
                # What is float32 in the file is not copied, and keeps all of the file mapped into memory. Beside int8
                # that would be a few small tensors.
                tensors[name] = tensor.clone() if in_int8 and scale is None else tensor
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file; a model folder contains {wanted_by} and {path.name}") from None
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path}: damaged, or not safetensors ({error}). Get the file again") from None
    return tensors


def refuse_large_header(path: Path) -> None:
    """Refuse a file whose header alone would fill the memory. The rest of a header is checked by safetensors."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER:
        raise WeightsError(
            f"{path}: damaged, or not safetensors (a header of {size:,} bytes; expected at most {MAX_HEADER:,}). "
            "Get the file again"
        )


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
        if scale.dtype not in FLOATS:
            kind = str(scale.dtype).removeprefix("torch.")
            raise WeightsError(f"{where} has scales of type {kind}; expected float32")
        tensor = dequantize(tensor, scale)
    elif tensor.dtype not in FLOATS:
        found, *known = (str(dtype).removeprefix("torch.") for dtype in (tensor.dtype, *FLOATS))
        raise WeightsError(f"{where} is of type {found}; expected one of {', '.join(known)}, or int8 with its scales")
    tensor = tensor.float()
    if tensor.numel() and not all(value.isfinite() for value in tensor.aminmax()):  # a sum would need a copy in float64
        raise WeightsError(f"{where} contains NaN or infinity; the weights are damaged")
    return tensor
