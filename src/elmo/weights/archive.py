"""A ZIP OR A TAR ─▶ A TEMPORARY FOLDER with the files that a model needs; harmful ones are refused, not unpacked.

Besides our folders, the published files and training runs: the zips of the NLPL repository, tars of ELMoForManyLangs,
and AllenNLP's model.tar.gz. The last has the weights of a task (weights.th, which is not read) and, if it was trained
with files, those of its biLM, as `fta/NAME.options_file` and `fta/NAME.weight_file`.
"""

import errno
import gzip
import lzma
import re
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from elmo.errors import ElmoError, WeightsError
from elmo.text import lexicon
from elmo.weights import folder, json_file, many_langs
from elmo.weights.tensor_files import index_of

MAX_VOCABULARY = 512 << 20  # bytes in a zip
MAX_WEIGHTS = 16 << 30  # of one file, and of all together
MAX_RATIO = 100  # of the size to the compressed size, of what is larger than UNSUSPICIOUS
UNSUSPICIOUS = 64 << 20
MAX_READ = 16 << 20  # bytes that a tar's own headers may have

COMPRESSED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
}  # the first bytes of a compressed tar
# What the readers of archives raise depends on where the damage is.
DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, struct.error, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, LookupError, OverflowError, MemoryError),
)
ALLENNLP = "weights.th"
FILES_OF_ALLENNLP = {".options_file": "options.json", ".weight_file": "weights.hdf5"}
CHECKPOINT = re.compile(r"checkpoint|.+\.(index|data-\d{5}-of-\d{5})")


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give the model at `path`: a zip or a tar unpacked into a temporary folder, anything else as it is.

    An error in the block names the archive instead of the folder.
    """
    unpack = _unpacker(path)
    if unpack is None:
        yield path
        return
    with tempfile.TemporaryDirectory() as temporary:
        with _failures(path, temporary) as reading:
            unpack(path, Path(temporary), reading)
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


@dataclass
class _Reading:
    """The file of an archive that is being read."""

    name: str = "it"


def _unpacker(path: Path) -> Callable[[Path, Path, _Reading], None] | None:
    """Return the function that unpacks this file; None if it is no archive."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(264)
    if head.startswith(b"PK"):
        return _unpack_zip
    return _unpack_tar if head.startswith(tuple(COMPRESSED)) or head[257:262] == b"ustar" else None


@contextmanager
def _failures(path: Path, target: str) -> Iterator[_Reading]:
    """Turn an error of unpacking into one line."""
    reading = _Reading()
    try:
        yield reading
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WeightsError(
                f"{path}: {reading.name} does not fit in {target}; make room, or set TMPDIR to another folder"
            ) from None
        raise WeightsError(f"{path}: {reading.name} is damaged. Get the file again") from None
    except DAMAGED:
        raise WeightsError(f"{path}: {reading.name} is damaged. Get the file again") from None


def _unpack_zip(path: Path, target: Path, reading: _Reading) -> None:
    with zipfile.ZipFile(path) as archive:
        for base, member in _wanted(path, archive).items():
            reading.name = member.filename
            # zipfile stops at the size in the zip's directory.
            with archive.open(member) as packed, (target / base).open("wb") as file:
                shutil.copyfileobj(packed, file)


def _unpack_tar(path: Path, target: Path, reading: _Reading) -> None:
    """Unpack a tar in one pass: what is in it is known only when all of it was read."""
    seen: set[str] = set()
    with _opened(path) as plain, tarfile.open(fileobj=cast(IO[bytes], _Limited(path, plain)), mode="r:") as archive:
        for member in archive:
            reading.name = member.name
            base = Path(member.name).name
            seen.add(base)
            base = next((name for end, name in FILES_OF_ALLENNLP.items() if base.endswith(end)), base)
            limit = _limit(base)
            packed = archive.extractfile(member) if member.isfile() and limit is not None else None
            if packed is None or limit is None or base.startswith("._"):  # a link, or not of a model
                continue
            if (target / base).exists():
                raise WeightsError(f"{path}: contains more than one {base}; expected the archive of one model")
            if member.size > limit:
                raise WeightsError(f"{path}: {member.name} has {member.size:,} bytes; expected at most {limit:,}")
            with (target / base).open("wb") as file:
                shutil.copyfileobj(packed, file)
    if ALLENNLP in seen:
        (target / folder.CONFIG).unlink(missing_ok=True)  # the task's
        if not all((target / name).exists() for name in FILES_OF_ALLENNLP.values()):
            raise WeightsError(
                f"{path}: an archive of AllenNLP without the files of a biLM (fta/….weight_file); load those that its "
                "config.json names"
            )


def _opened(path: Path) -> IO[bytes]:
    """Open a tar, uncompressed."""
    with path.open("rb") as file:
        head = file.read(6)
    opener: Callable[..., IO[bytes]] = next((COMPRESSED[start] for start in COMPRESSED if head.startswith(start)), open)
    return opener(path, "rb")


class _Limited:
    """A file to read from that ends with an error where a tar unpacks to more than a model could."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._limit = min(max(UNSUSPICIOUS, MAX_RATIO * path.stat().st_size), MAX_WEIGHTS)

    def read(self, size: int) -> bytes:
        """Read so many bytes. Only a tar's own headers are read in large pieces."""
        if size < 0 or size > MAX_READ:
            raise WeightsError(f"{self._path}: has a header of {size:,} bytes; expected the archive of a model")
        self._check(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, place: int) -> int:
        """Go to a place."""
        self._check(place)
        return self._file.seek(place)

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell()

    def _check(self, place: int) -> None:
        if place > self._limit:
            raise WeightsError(
                f"{self._path}: unpacks to more than {self._limit:,} bytes; no model compresses so well. Unpack it "
                "yourself if you trust it"
            )


def _wanted(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the files of a zip that a model needs, by name; refuse harmful ones."""
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        base = Path(member.filename).name
        if base == "data.pkl":  # the file itself was written by torch.save
            raise pickled(path)
        if member.is_dir() or base.startswith("._") or (limit := _limit(base)) is None:  # ._: added by macOS
            continue
        if base in wanted:
            raise WeightsError(f"{path}: contains more than one {base}; expected the archive of one model")
        _refuse_bomb(f"{path}: {member.filename} has", member.file_size, member.compress_size, limit)
        wanted[base] = member
    size, packed = (sum(getattr(member, of) for member in wanted.values()) for of in ("file_size", "compress_size"))
    _refuse_bomb(f"{path}: {len(wanted)} files have", size, packed, MAX_WEIGHTS)  # many small ones: there may be shards
    return wanted


def _limit(base: str) -> int | None:
    """Return the size limit of a file of this name; None if a model does not need it."""
    if base in (folder.CONFIG, index_of(Path(folder.WEIGHTS)).name) or base.endswith("options.json"):
        return json_file.MAX_BYTES
    if base.startswith("cnn_") and base.endswith(".json"):  # the sizes of ELMoForManyLangs
        return json_file.MAX_BYTES
    if (base.startswith("vocab") and ".txt" in base) or base in (lexicon.WORDS, lexicon.CHARACTERS):
        return MAX_VOCABULARY
    if base in (many_langs.ENCODER, many_langs.TOKEN_EMBEDDER) or CHECKPOINT.fullmatch(base):
        return MAX_WEIGHTS
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
