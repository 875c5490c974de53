"""Arguments, options and messages of the commands that train."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

CorpusArgument = Annotated[
    Path,
    typer.Argument(help="A corpus folder from `elmo prepare`; or text, one sentence per line: a file or a folder."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with the recipe, or some fields of it.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the recipe. Can be given several times."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")]
MemoryOption = Annotated[
    bool, typer.Option("--ignore-memory", help="Train even if the run probably does not fit into memory.")
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        help="Only for text: moses, whitespace (text that is tokenized), or your own function as PATH:FUNC.  "
        "[default: moses]"
    ),
]
VocabularyOption = Annotated[
    Path | None,
    typer.Option(help="Only for text: a vocabulary file in bilm-tf's format. By default all words of the text."),
]


def is_first_process() -> bool:
    """Whether this process prints: torchrun may have started several."""
    return os.environ.get("RANK", "0") == "0"


def interrupted(out: Path, unit: str, done: int) -> typer.Exit:
    """Print what an interrupted run has saved, in steps or epochs; return the exit of the command."""
    if done:
        message = f"interrupted after {unit} {done}. Use --resume to continue from there"
    else:
        message = f"interrupted in the first {unit}; nothing is saved yet. Use --resume to start over"
    if is_first_process():
        print(f"elmo: {out}: {message}", file=sys.stderr)
    return typer.Exit(130)
