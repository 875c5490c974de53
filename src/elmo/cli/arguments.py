"""Arguments and options that several commands have in common."""

from pathlib import Path
from typing import Annotated

import typer

# What a model can be, in a help screen.
MODEL = (
    "A model folder, a zip or tar of one, an .hdf5 file or a TensorFlow checkpoint with options.json in the same "
    "folder, hf:OWNER/NAME on the Hugging Face Hub, or the name of an installed or published model."
)

ModelArgument = Annotated[str, typer.Argument(help=MODEL)]
ModelOption = Annotated[str, typer.Option("--model", "-m", metavar="MODEL", help=MODEL)]
TextArgument = Annotated[
    str, typer.Argument(metavar="INPUT", help="A text file, one sentence per line; - is standard input.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file. By default, or with -, standard output."),
]
TokenizedOption = Annotated[
    bool, typer.Option("--tokenized/--raw", help="The input is tokens with spaces between them, or raw text.")
]
DeviceOption = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, …; auto is the first GPU if there is one, else the CPU.")
]
PrecisionOption = Annotated[
    str, typer.Option(help="float32, bfloat16, or int8 (only on a CPU). The last two are faster and less exact.")
]
BatchTokensOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Largest number of tokens in a batch.  [default: 65536 on a GPU; 2048 on a CPU, for small models with "
        "more than two threads up to 16384]",
        min=1,
    ),
]
MaxTokensOption = Annotated[
    int, typer.Option("--max-sentence-tokens", metavar="N", help="Refuse a line with more tokens.", min=1)
]
WordCacheOption = Annotated[
    Path | None,
    typer.Option(
        "--word-cache",
        metavar="FOLDER",
        help="Keep word vectors in this folder for later commands. You may delete it at any time.",
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", help="Number of CPU threads. By default PyTorch chooses.", min=1),
]


def to_standard_output(output: Path | None) -> bool:
    """Whether `--output` means standard output."""
    return output is None or str(output) == "-"


def use_threads(threads: int | None) -> None:
    """Apply `--threads`; call it before anything is computed."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
