"""A MODEL ─▶ FACTS ABOUT IT: architecture, number of parameters, files."""

from dataclasses import dataclass
from pathlib import Path

from elmo.model.bilm import BiLMConfig
from elmo.packaged import DEFAULT
from elmo.weights import archive, bilm_tf, folder, many_langs, source, tf_checkpoint
from elmo.weights.tensor_files import stored_dtypes


@dataclass(frozen=True)
class ModelInfo:
    """The facts that `elmo info` prints."""

    name: str
    config: BiLMConfig
    n_parameters: int  # without the softmax
    dtypes: list[str]  # in which the weights are stored; first the one with most bytes
    vocabulary_size: int | None  # None: the model has no vocabulary
    has_warm_state: bool  # a warm state is stored with the model
    files: dict[Path, int]  # sizes in bytes


def model_info(model: str | Path = DEFAULT) -> ModelInfo:
    """Read a model, named as for `elmo.load`, and return the facts about it."""
    path = source.locate(model)
    with archive.unpacked(path) as place:
        read = source.read(place)
        dtypes = _dtypes(place)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if path.suffix in (".hdf5", ".h5"):
        files.append(source.options_beside(path))
    elif not path.is_dir() and (checkpoint := tf_checkpoint.find(path)) is not None:
        files = [*sorted(checkpoint.parent.glob(f"{checkpoint.name}.*")), source.options_beside(checkpoint)]
    return ModelInfo(
        name=str(model),
        config=read.bilm.config,
        n_parameters=read.bilm.n_parameters(),
        dtypes=dtypes,
        vocabulary_size=len(read.vocabulary) if read.vocabulary else None,
        has_warm_state=read.warm_state is not None,
        files={file: file.stat().st_size for file in files if file.is_file()},
    )


def _dtypes(place: Path) -> list[str]:
    if many_langs.is_folder(place) or (not source.has_hdf5(place) and tf_checkpoint.find(place) is not None):
        return ["float32"]
    if (place / folder.CONFIG).is_file():
        return stored_dtypes(place / folder.WEIGHTS)
    return bilm_tf.stored_dtypes(source.published_weights(place))
