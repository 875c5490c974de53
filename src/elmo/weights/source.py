"""A NAME ─▶ A MODEL: a folder, a zip of one, an HDF5 beside its options, a hub id, a published or a packaged name.

What is in the package comes first, so that its names mean the same everywhere (a folder of that name is `./name`), then
what exists on the disk, then what must be fetched. Nothing is ever unpickled.
"""

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmo.errors import ElmoError, WeightsError
from elmo.packaged import FOLDER as PACKAGED
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf, folder, published
from elmo.weights.folder import Pretrained


def read(
    source: str | Path,
    *,
    options: str | Path | None = None,
    vocabulary: str | Path | None = None,
    token_embeddings: str | Path | None = None,
    softmax: bool = False,
) -> Pretrained:
    """Read a model wherever it is; the keywords name what does not lie beside the weights."""
    path = locate(source)
    if path.is_file() and _is_zip(path):
        with _unpacked(path) as unpacked:
            try:
                return _read(unpacked, options, vocabulary, token_embeddings, softmax)
            except ElmoError as error:
                raise type(error)(str(error).replace(str(unpacked), str(path))) from None
    return _read(path, options, vocabulary, token_embeddings, softmax)


def _read(
    path: Path,
    options: str | Path | None,
    vocabulary: str | Path | None,
    token_embeddings: str | Path | None,
    softmax: bool,
) -> Pretrained:
    words = Vocabulary.read(Path(vocabulary)) if vocabulary is not None else None
    if path.is_dir() and (path / folder.CONFIG).exists():
        if options is not None or token_embeddings is not None:
            raise WeightsError(f"{path}: has its own {folder.CONFIG}; options= and token_embeddings= go with an .hdf5")
        model = folder.read(path, softmax)
        return Pretrained(model.bilm, words or model.vocabulary, model.warm_state)
    weights = _weights_in(path) if path.is_dir() else path
    _refuse_pickle(weights)
    table = Path(token_embeddings) if token_embeddings is not None else None
    bilm = bilm_tf.read(Path(options) if options is not None else options_beside(weights), weights, table)
    if bilm.config.n_words is not None:
        words = _words_of(words, bilm.config.n_words, table or weights)
    return Pretrained(bilm, words)


def locate(source: str | Path) -> Path:
    """Where a model's files are; fetched first if need be."""
    path, name = Path(source).expanduser(), str(source)
    if name in packaged():
        return PACKAGED / name
    if path.exists():
        return path
    if name in published.PUBLISHED:
        return published.fetch(name)[1]
    if published.HUB_ID.fullmatch(name) and path.suffix not in (".hdf5", ".zip"):
        return published.fetch_hub(name)
    names = ", ".join([*packaged(), *published.PUBLISHED])
    raise WeightsError(
        f"{name}: no such file or folder, and no model of that name; expected a model folder, a zip of one, an .hdf5 "
        f"with its options beside it, a hub id (owner/name), or one of {names}"
    )


def packaged() -> list[str]:
    """The models that came with the package."""
    return sorted(path.name for path in PACKAGED.glob("*") if (path / folder.CONFIG).exists())


def options_names(weights: Path) -> list[Path]:
    """Where the options of a weights file may lie: `x_weights.hdf5` has `x_options.json`, or plain `options.json`."""
    before, found, _ = weights.name.partition("weights")
    named = [weights.name.replace("weights", "options"), f"{before}options.json"] if found else []
    return [weights.with_name(name).with_suffix(".json") for name in [*named, "options.json"]]


def options_beside(weights: Path) -> Path:
    """The options that lie beside a weights file."""
    names = dict.fromkeys(options_names(weights))
    for path in names:
        if path.exists():
            return path
    raise WeightsError(f"{weights}: no options beside it; looked for {' and '.join(path.name for path in names)}")


def _weights_in(path: Path) -> Path:
    found = sorted([*path.glob("*.hdf5"), *path.glob("*.h5")])
    for candidates in (found, [file for file in found if "weights" in file.name]):
        if len(candidates) == 1:
            return candidates[0]
    for pickle in sorted([*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.th"), *path.glob("*.pkl")]):
        _refuse_pickle(pickle)
    what = f"{len(found)} .hdf5 files" if found else f"neither {folder.CONFIG} nor an .hdf5 file"
    raise WeightsError(f"{path}: holds {what}; expected {folder.CONFIG} with {folder.WEIGHTS}, or one .hdf5")


def _refuse_pickle(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(1)
    if head == b"\x80" or path.suffix in (".pt", ".th", ".bin", ".pkl"):
        raise _is_a_pickle(path)


def _is_a_pickle(path: Path) -> WeightsError:
    return WeightsError(
        f"{path}: a Python pickle, which can run any code when it is read, so it is not; "
        f"expected {folder.WEIGHTS} or an .hdf5 of the same model"
    )


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """A folder with what a model needs of a zip, and nothing else; gone afterwards."""
    wanted = {folder.CONFIG, folder.WEIGHTS, folder.VOCABULARY, folder.WARM_STATE}
    with tempfile.TemporaryDirectory() as temporary:
        name = "the zip"
        try:
            with zipfile.ZipFile(path) as archive:
                names = [member.filename for member in archive.infolist() if not member.is_dir()]
                if any(Path(name).name == "data.pkl" for name in names):  # what torch.save writes
                    raise _is_a_pickle(path)
                for name in names:
                    base = Path(name).name
                    if base.startswith("._"):  # what a Mac adds
                        continue
                    if base in wanted or base.endswith((".hdf5", ".h5", "options.json")):
                        target = Path(temporary) / base
                        if target.exists():
                            raise WeightsError(f"{path}: holds more than one {base}; expected the zip of one model")
                        with archive.open(name) as packed, target.open("wb") as file:
                            shutil.copyfileobj(packed, file)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError):
            raise WeightsError(f"{path}: {name} is damaged. Get the file again") from None
        yield Path(temporary)


def _words_of(words: Vocabulary | None, n_words: int, where: Path) -> Vocabulary:
    if words is None:
        beside = where.with_name(folder.VOCABULARY)
        if not beside.exists():
            raise WeightsError(f"{where}: words enter this model by their row; give vocabulary= the file of its words")
        words = Vocabulary.read(beside)
    if len(words) != n_words:
        raise WeightsError(f"{where}: 'embedding' has {n_words} rows, the vocabulary {len(words)} words")
    return words
