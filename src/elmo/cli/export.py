"""`elmo export`: a model ─▶ files for another runtime."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import ModelArgument


def export(
    model: ModelArgument,
    output: Annotated[Path, typer.Argument(help="A new folder.")],
    format: Annotated[
        str, typer.Option(help="onnx; or torch-export, which PyTorch reads without this library.")
    ] = "onnx",
) -> None:
    """Export a model for another runtime.

    Two files are written: the token encoder, which gets every distinct word once, and the LSTMs, which get the vectors
    of padded sentences and their lengths. Every sentence starts from zeros. The vectors are those of `elmo embed`, to
    1e-5. ONNX needs the package onnx: pip install 'elmo-torch[onnx]'.

    \b
    Examples:
      $ elmo export model exported
      $ elmo export model exported --format torch-export
    """
    from elmo.integrations.export import export as run

    files = run(model, output, format=format)
    print(f"{output}: {' and '.join(file.name for file in files)}", file=sys.stderr)
