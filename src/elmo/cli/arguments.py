"""What several verbs ask for, said once."""

from typing import Annotated

import typer

from elmo.errors import WeightsError

_MODEL = "A model folder, a zip of one, an .hdf5 beside its options, a hub id, a published or packaged name."

ModelArgument = Annotated[str, typer.Argument(help=_MODEL)]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
ModelOption = Annotated[str, typer.Option("--model", "-m", help=_MODEL)]


def no_softmax(model: str) -> WeightsError:
    """What is said of a model that cannot predict."""
    return WeightsError(
        f"{model}: has no softmax, so it predicts no words; published HDF5 files have none. `elmo finetune` trains one"
    )
