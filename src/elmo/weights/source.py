"""A NAME ─▶ A MODEL: a folder, a zip of one, an HDF5 beside its options, a hub id, a published or a packaged name.

Packaged names come first, so that they mean the same everywhere (write `./name` for a folder of that name), then files
and folders, then models to download. A name that looks like a path is never looked up on the Hugging Face Hub, where a
stranger's model could have that name; `hf:owner/name` always is. Nothing is ever unpickled.
"""

import errno
import logging
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
from elmo.weights import bilm_tf, folder, json_file, many_langs, published, tf_checkpoint
from elmo.weights.folder import Pretrained

log = logging.getLogger("elmo")

HUB_PREFIX = "hf:"
FILE_ENDINGS = (
    *(".hdf5", ".h5", ".zip", ".safetensors", ".json", ".txt", ".bin", ".pt", ".pth", ".th", ".pkl", ".ckpt", ".gz"),
)
MAX_VOCABULARY = 512 << 20  # bytes in a zip
MAX_WEIGHTS = 16 << 30
MAX_RATIO = 100  # of a file's size to its compressed size, for files larger than UNSUSPICIOUS
UNSUSPICIOUS = 64 << 20


def read(
    source: str | Path,
    *,
    options: str | Path | None = None,
    vocabulary: str | Path | None = None,
    token_embeddings: str | Path | None = None,
    softmax: bool = False,
) -> Pretrained:
    """Read a model wherever it is; the keywords name files that are not beside the weights."""
    path = locate(source)
    options, vocabulary, token_embeddings = map(_path, (options, vocabulary, token_embeddings))
    if path.is_file() and _is_zip(path):
        with _unpacked(path) as unpacked:
            try:
                return _read(unpacked, options, vocabulary, token_embeddings, softmax)
            except ElmoError as error:
                raise type(error)(str(error).replace(str(unpacked), str(path))) from None
    return _read(path, options, vocabulary, token_embeddings, softmax)


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name).expanduser()


def _read(
    path: Path, options: Path | None, vocabulary: Path | None, token_embeddings: Path | None, softmax: bool
) -> Pretrained:
    words = Vocabulary.read(vocabulary) if vocabulary is not None else None
    if many_langs.is_folder(path):
        if any(name is not None for name in (options, vocabulary, token_embeddings)):
            raise WeightsError(f"{path}: is a folder of ELMoForManyLangs, which has its own options and words")
        return many_langs.read(path)
    if path.is_dir() and (path / folder.CONFIG).exists():
        if options is not None or token_embeddings is not None:
            raise WeightsError(f"{path}: has its own {folder.CONFIG}; options= and token_embeddings= are for an .hdf5")
        model = folder.read(path, softmax)
        return Pretrained(model.bilm, words or model.vocabulary, model.warm_state, model.lexicon)
    checkpoint = tf_checkpoint.find(path)
    if checkpoint is not None and (softmax or not _has_hdf5(path)):  # an .hdf5 has no softmax
        if token_embeddings is not None:
            raise WeightsError(f"{path}: is a checkpoint of TensorFlow; token_embeddings= is for an .hdf5")
        return _read_checkpoint(checkpoint, options, words, softmax)
    weights = _weights_in(path) if path.is_dir() else path
    _refuse_pickle(weights)
    bilm = bilm_tf.read(options or options_beside(weights), weights, token_embeddings)
    if bilm.config.n_words is not None:
        words = _words_of(words, bilm.config.n_words, token_embeddings or weights)
    return Pretrained(bilm, words)


def _read_checkpoint(prefix: Path, options: Path | None, words: Vocabulary | None, softmax: bool) -> Pretrained:
    """Read a checkpoint of bilm-tf, whose vocabulary is often elsewhere."""
    bilm = tf_checkpoint.read(prefix, options or options_beside(prefix), softmax)
    size = bilm.config.n_words if bilm.config.n_words is not None else bilm.config.n_softmax
    if size is not None and words is None and bilm.config.n_words is None and _words_beside(prefix) is None:
        log.warning("%s: no %s beside it; without it the softmax cannot be used", prefix, folder.VOCABULARY)
        return Pretrained(bilm)
    return Pretrained(bilm, words if size is None else _words_of(words, size, prefix))


def locate(source: str | Path) -> Path:
    """Find the files of a model; download them first if necessary."""
    path, name = Path(source).expanduser(), str(source)
    if not name.strip():
        raise WeightsError(f"the name of the model is empty; {_expected()}")
    if name in packaged():
        return PACKAGED / name
    if name.startswith(HUB_PREFIX):
        return published.fetch_hub(*_hub_id(name))
    if _exists(path):
        _refuse_run(path)
        return path
    if tf_checkpoint.find(path) is not None:  # the name of a checkpoint is that of its files, without an ending
        return path
    if name in published.PUBLISHED:
        return published.fetch(name)[1]
    if published.HUB_ID.fullmatch(name) and not isinstance(source, Path) and not _looks_like_a_path(name):
        log.warning("%s: not found here, asking the Hugging Face Hub; write %s%s to say so", name, HUB_PREFIX, name)
        return published.fetch_hub(name)
    raise WeightsError(f"{name}: no such file or folder, and no model of that name; {_expected()}")


def _expected() -> str:
    return (
        "expected a model folder, a zip of one, an .hdf5 with its options beside it, hf:owner/name on the Hugging Face "
        f"Hub, or one of {', '.join([*packaged(), *published.PUBLISHED])}"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})") from None


def _looks_like_a_path(name: str) -> bool:
    """Whether `owner/name` means a missing file or folder: its parent exists, or it has the suffix of a file."""
    return name.startswith((".", "/", "~")) or Path(name).parent.exists() or Path(name).suffix in FILE_ENDINGS


def _hub_id(name: str) -> tuple[str, str | None]:
    """Parse `hf:owner/name` or `hf:owner/name@revision`."""
    repo_id, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
    return repo_id, revision or None


def _refuse_run(path: Path) -> None:
    """Refuse the folder of a run, which is easily confused with its model."""
    if (path / "run.json").exists() and (path / "model").is_dir() and not (path / folder.CONFIG).exists():
        raise WeightsError(f"{path}: is the folder of a training run; its model is {path / 'model'}")


def packaged() -> list[str]:
    """Return the names of the models in the package."""
    return sorted(path.name for path in PACKAGED.glob("*") if (path / folder.CONFIG).exists())


def options_names(weights: Path) -> list[Path]:
    """Return possible paths of the options of a weights file: `x_options.json` for `x_weights.hdf5`, `options.json`."""
    before, found, _ = weights.name.partition("weights")
    named = [weights.name.replace("weights", "options"), f"{before}options.json"] if found else []
    return [weights.with_name(name).with_suffix(".json") for name in [*named, "options.json"]]


def options_beside(weights: Path) -> Path:
    """Find the options beside a weights file."""
    names = dict.fromkeys(options_names(weights))
    for path in names:
        if path.exists():
            return path
    raise WeightsError(f"{weights}: no options beside it; looked for {' and '.join(path.name for path in names)}")


def _has_hdf5(path: Path) -> bool:
    return path.is_dir() and any([*path.glob("*.hdf5"), *path.glob("*.h5")])


def _weights_in(path: Path) -> Path:
    found = sorted([*path.glob("*.hdf5"), *path.glob("*.h5")])
    for candidates in (found, [file for file in found if "weights" in file.name]):
        if len(candidates) == 1:
            return candidates[0]
    for pickle in sorted([*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.th"), *path.glob("*.pkl")]):
        _refuse_pickle(pickle)
    what = f"{len(found)} .hdf5 files" if found else f"neither {folder.CONFIG} nor an .hdf5 file"
    raise WeightsError(f"{path}: contains {what}; expected {folder.CONFIG} with {folder.WEIGHTS}, or one .hdf5")


def _refuse_pickle(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(1)
    if head == b"\x80" or path.suffix in (".pt", ".th", ".bin", ".pkl"):
        raise _is_a_pickle(path)


def _is_a_pickle(path: Path) -> WeightsError:
    return WeightsError(
        f"{path}: a Python pickle, which can run any code when it is read, so it is refused; "
        f"expected {folder.WEIGHTS} or an .hdf5 of the same model"
    )


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Unpack the files of a zip that a model needs into a temporary folder."""
    with tempfile.TemporaryDirectory() as temporary:
        name = "the zip"
        try:
            with zipfile.ZipFile(path) as archive:
                wanted = _wanted(path, archive)
                for base, member in wanted.items():
                    name = member.filename
                    # zipfile stops at the size in the zip's directory.
                    with archive.open(member) as packed, (Path(temporary) / base).open("wb") as file:
                        shutil.copyfileobj(packed, file)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise WeightsError(
                    f"{path}: {name} does not fit in {temporary}; make room, or set TMPDIR to another folder"
                ) from None
            raise WeightsError(f"{path}: {name} is damaged. Get the file again") from None
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError):
            raise WeightsError(f"{path}: {name} is damaged. Get the file again") from None
        yield Path(temporary)


def _wanted(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files of a zip that a model needs, by name; refuse harmful ones before anything is unpacked."""
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        base = Path(member.filename).name
        if base == "data.pkl":  # what torch.save writes
            raise _is_a_pickle(path)
        if member.is_dir() or base.startswith("._") or (limit := _limit(base)) is None:  # ._: added by macOS
            continue
        if base in wanted:
            raise WeightsError(f"{path}: contains more than one {base}; expected the zip of one model")
        _refuse_bomb(path, member, limit)
        wanted[base] = member
    return wanted


def _limit(base: str) -> int | None:
    """Return the size limit of a file of this name in a zip; None if a model does not need it."""
    if base == folder.CONFIG or base.endswith("options.json"):
        return json_file.MAX_BYTES
    if base == folder.VOCABULARY:
        return MAX_VOCABULARY
    if base in (folder.WEIGHTS, folder.WARM_STATE) or base.endswith((".hdf5", ".h5")):
        return MAX_WEIGHTS
    return None


def _refuse_bomb(path: Path, member: zipfile.ZipInfo, limit: int) -> None:
    """Refuse a file that would fill the disk or the memory, by its size in the zip's directory."""
    size, packed = member.file_size, member.compress_size
    if size > limit:
        raise WeightsError(f"{path}: {member.filename} has {size:,} bytes; expected at most {limit:,}")
    if size > UNSUSPICIOUS and size > MAX_RATIO * packed:
        raise WeightsError(
            f"{path}: {member.filename} has {size:,} bytes, compressed to {packed:,}; no model compresses so well. "
            "Unpack it yourself if you trust it"
        )


def _words_of(words: Vocabulary | None, n_words: int, where: Path) -> Vocabulary:
    if words is None:
        beside = _words_beside(where)
        if beside is None:
            raise WeightsError(f"{where}: this model reads word ids; give the file of its words with vocabulary=")
        words = Vocabulary.read(beside)
    if len(words) != n_words:
        raise WeightsError(f"{where}: has rows for {n_words} words, the vocabulary {len(words)} words")
    return words


def _words_beside(weights: Path) -> Path | None:
    """Find the vocabulary beside a weights file: our name, or the only file of a name like `vocab-2016-09-10.txt`."""
    named = weights.with_name(folder.VOCABULARY)
    if named.exists():
        return named
    found = sorted(weights.parent.glob("vocab*.txt*"))
    return found[0] if len(found) == 1 else None
