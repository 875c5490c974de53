"""A ZIP ─▶ A TEMPORARY FOLDER with the files that a model needs; harmful ones are refused before they are unpacked."""

import errno
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmo.errors import ElmoError, WeightsError
from elmo.weights import folder, json_file
from elmo.weights.tensor_files import index_of

MAX_VOCABULARY = 512 << 20  # bytes in a zip
MAX_WEIGHTS = 16 << 30  # of one file, and of all together
MAX_RATIO = 100  # of the size to the compressed size, of what is larger than UNSUSPICIOUS
UNSUSPICIOUS = 64 << 20


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give the model at `path`: a zip unpacked into a temporary folder, anything else as it is.

    An error in the block names the zip instead of the folder.
    """
    if not path.is_file() or not _is_zip(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as temporary:
        _unpack(path, Path(temporary))
        try:
            yield Path(temporary)
        except ElmoError as error:
            raise type(error)(str(error).replace(temporary, str(path))) from None


def pickled(path: Path) -> WeightsError:
    """Return the error for a pickle."""
    return WeightsError(
        f"{path}: a Python pickle, which can run any code when it is read, so it is refused; "
        f"expected {folder.WEIGHTS} or an .hdf5 of the same model"
    )


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _unpack(path: Path, target: Path) -> None:
    name = "the zip"
    try:
        with zipfile.ZipFile(path) as archive:
            for base, member in _wanted(path, archive).items():
                name = member.filename
                # zipfile stops at the size in the zip's directory.
                with archive.open(member) as packed, (target / base).open("wb") as file:
                    shutil.copyfileobj(packed, file)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WeightsError(
                f"{path}: {name} does not fit in {target}; make room, or set TMPDIR to another folder"
            ) from None
        raise WeightsError(f"{path}: {name} is damaged. Get the file again") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError):
        raise WeightsError(f"{path}: {name} is damaged. Get the file again") from None


def _wanted(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files of a zip that a model needs, by name; refuse harmful ones."""
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        base = Path(member.filename).name
        if base == "data.pkl":  # what torch.save writes
            raise pickled(path)
        if member.is_dir() or base.startswith("._") or (limit := _limit(base)) is None:  # ._: added by macOS
            continue
        if base in wanted:
            raise WeightsError(f"{path}: contains more than one {base}; expected the zip of one model")
        _refuse_bomb(f"{path}: {member.filename} has", member.file_size, member.compress_size, limit)
        wanted[base] = member
    size, packed = (sum(getattr(member, of) for member in wanted.values()) for of in ("file_size", "compress_size"))
    _refuse_bomb(f"{path}: {len(wanted)} files have", size, packed, MAX_WEIGHTS)  # many small ones: there may be shards
    return wanted


def _limit(base: str) -> int | None:
    """Return the size limit of a file of this name in a zip; None if a model does not need it."""
    if base in (folder.CONFIG, index_of(Path(folder.WEIGHTS)).name) or base.endswith("options.json"):
        return json_file.MAX_BYTES
    if base == folder.VOCABULARY:
        return MAX_VOCABULARY
    return MAX_WEIGHTS if base.endswith((".safetensors", ".hdf5", ".h5")) else None


def _refuse_bomb(what: str, size: int, packed: int, limit: int) -> None:
    """Refuse what would fill the disk or the memory, by its sizes in the zip's directory."""
    if size > limit:
        raise WeightsError(f"{what} {size:,} bytes; expected at most {limit:,}")
    if size > UNSUSPICIOUS and size > MAX_RATIO * packed:
        raise WeightsError(
            f"{what} {size:,} bytes, compressed to {packed:,}; no model compresses so well. "
            "Unpack it yourself if you trust it"
        )
