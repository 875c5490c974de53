"""Arguments and options that several verbs have in common."""

from typing import Annotated

import typer

from elmo.errors import WeightsError

_MODEL = (
    "A model folder, a zip of one, an .hdf5 file beside its options, hf:OWNER/NAME on the Hugging Face Hub, or the "
    "name of a packaged or published model."
)

ModelArgument = Annotated[str, typer.Argument(help=_MODEL)]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
ModelOption = Annotated[str, typer.Option("--model", "-m", help=_MODEL)]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", help="CPU threads for PyTorch. By default PyTorch chooses.", min=1),
]


def use_threads(threads: int | None) -> None:
    """Apply `--threads`; call it before anything is computed."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def no_softmax(model: str) -> WeightsError:
    """The error for a model that cannot predict words."""
    return WeightsError(
        f"{model}: has no softmax, so it predicts no words; published HDF5 files have none. `elmo finetune` trains one"
    )
