"""What several verbs ask for, said once."""

from typing import Annotated

import typer

_MODEL = "A model folder, a zip of one, an .hdf5 beside its options, a hub id, or a published name."

ModelArgument = Annotated[str, typer.Argument(help=_MODEL)]
ModelOption = Annotated[str, typer.Option("--model", "-m", help=_MODEL)]
