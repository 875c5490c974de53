"""A NAME ─▶ A MODEL: a folder, a zip of one, an HDF5 beside its options, a hub id, a published or a packaged name.

What exists on the disk comes first, then what is in the package, then what must be fetched. Nothing is ever unpickled.
"""

import tempfile
import zipfile
from pathlib import Path

from elmo.errors import WeightsError
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf, folder, published
from elmo.weights.folder import Pretrained

PACKAGED = Path(__file__).parents[1] / "packaged"  # one model folder per name


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
    words = Vocabulary.read(Path(vocabulary)) if vocabulary is not None else None
    if path.is_file() and zipfile.is_zipfile(path):
        return _read_zip(path, words, softmax)
    if path.is_dir() and (path / folder.CONFIG).exists():
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
    if path.exists():
        return path
    if name in packaged():
        return PACKAGED / name
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


def options_beside(weights: Path) -> Path:
    """The options of a weights file: `x_weights.hdf5` has `x_options.json` beside it, or plain `options.json`."""
    named = weights.with_name(weights.name.replace("weights", "options")).with_suffix(".json")
    plain = weights.with_name("options.json")
    for path in (named, plain):
        if path.exists():
            return path
    raise WeightsError(f"{weights}: no options beside it; looked for {named.name} and {plain.name}")


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
        head = file.read(2)
    if head[:1] == b"\x80" or head == b"PK" or path.suffix in (".pt", ".th", ".bin", ".pkl"):
        raise WeightsError(
            f"{path}: a Python pickle, which can run any code when it is read, so it is not; "
            f"expected {folder.WEIGHTS} or an .hdf5 of the same model"
        )


def _read_zip(path: Path, words: Vocabulary | None, softmax: bool) -> Pretrained:
    """Unpack what a model needs, and nothing else, into a folder that is gone afterwards."""
    wanted = {folder.CONFIG, folder.WEIGHTS, folder.VOCABULARY, folder.WARM_STATE}
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as temporary:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if any(Path(member.filename).name == "data.pkl" for member in members):
            _refuse_pickle(path)
        for member in members:
            name = Path(member.filename).name
            if name in wanted or Path(name).suffix in (".hdf5", ".h5") or name.endswith("options.json"):
                target = Path(temporary) / name
                if target.exists():
                    raise WeightsError(f"{path}: holds more than one {name}; expected the zip of one model folder")
                try:
                    with archive.open(member) as packed, target.open("wb") as file:
                        while chunk := packed.read(1 << 20):
                            file.write(chunk)
                except zipfile.BadZipFile:
                    raise WeightsError(f"{path}: {member.filename} is damaged. Get the file again") from None
        try:
            model = read(temporary, softmax=softmax)
        except WeightsError as error:
            raise WeightsError(str(error).replace(temporary, str(path))) from None
        return Pretrained(model.bilm, words or model.vocabulary, model.warm_state)


def _words_of(words: Vocabulary | None, n_words: int, where: Path) -> Vocabulary:
    if words is None:
        beside = where.with_name(folder.VOCABULARY)
        if not beside.exists():
            raise WeightsError(f"{where}: words enter this model by their row; give vocabulary= the file of its words")
        words = Vocabulary.read(beside)
    if len(words) != n_words:
        raise WeightsError(f"{where}: 'embedding' has {n_words} rows, the vocabulary {len(words)} words")
    return words
