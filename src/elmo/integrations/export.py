"""A MODEL ─▶ A MODEL FOR ANOTHER RUNTIME: what `elmo export` does, as one call."""

from pathlib import Path
from typing import Literal, get_args

from elmo.errors import ConfigError
from elmo.files import locked, refuse_existing
from elmo.integrations.onnx import export_onnx
from elmo.integrations.torch_export import export_torch
from elmo.weights import source

Format = Literal["onnx", "torch-export"]


def export(model: str | Path, output: str | Path, *, format: str = "onnx") -> tuple[Path, Path]:
    """Write a model, named as for `elmo.load`, into a new folder: the token encoder and the LSTMs, a file each.

    The format is "onnx", which any ONNX runtime reads, or "torch-export", which PyTorch reads without this library.
    """
    output = Path(output).expanduser()
    if format not in get_args(Format):
        raise ConfigError(f"--format is {format!r}; expected one of {', '.join(get_args(Format))}")
    refuse_existing(output)
    with locked(output):
        bilm = source.read(model).bilm.requires_grad_(False)
        return export_onnx(bilm, output) if format == "onnx" else export_torch(bilm, output)
