"""THE SETTINGS OF `elmo prepare`, and its work folder `OUT.part`, where an interrupted run continues."""

import json
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import locked, refuse_existing, replacing, write_error
from elmo.pretrain.corpus import MANIFEST
from elmo.pretrain.sorted_parts import KEYS, SentenceReader
from elmo.text.tokenizers import source, tokenizer
from elmo.text.vocabulary import SPECIAL

SETTINGS, CORPUS = "settings.json", "corpus"
# The names in a work folder, also of files that were being written.
_OWN = re.compile(r"\.?(settings\.json|corpus\.json|rows\.npy)(\.\d+\.tmp)?|parts|heldout|shards|corpus")


@dataclass(frozen=True)
class PrepareSettings:
    """The arguments of `prepare`, which explains them."""

    tokenizer: str
    sentences: str
    heldout: str
    vocabulary: str | None
    vocab_size: int | None
    min_count: int | None
    shards: int | None
    deduplicate: bool
    shuffle: bool
    field: str
    seed: int
    longest_line: int
    block_bytes: int

    def __post_init__(self) -> None:
        if self.sentences not in ("split", "lines"):
            raise ConfigError(f"sentences is {self.sentences!r}; expected 'split' or 'lines'")
        given = [name for name in ("vocabulary", "vocab_size", "min_count") if getattr(self, name) is not None]
        if self.min_count == 1 and self.vocabulary is not None:  # every word occurs once
            given.remove("min_count")
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} both define the vocabulary. Give only one of them")
        if self.vocab_size is not None and self.vocab_size <= len(SPECIAL):
            raise ConfigError(f"vocab_size is {self.vocab_size}; expected more than the {len(SPECIAL)} special words")
        for name in ("min_count", "shards"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; expected 1 or more")
        if self.share is not None and self.share >= 1:
            raise ConfigError(f"heldout is {self.heldout}; expected a share below 1, such as 0.5%, or a text file")
        if not self.shuffle and (self.deduplicate or self.share):
            raise ConfigError(
                "shuffle is False; expected True, because removing duplicates and holding out a share need shuffling"
            )
        tokenizer(self.tokenizer)

    @property
    def share(self) -> Decimal | None:
        """The share of the sentences that is held out; None if `heldout` is a text file."""
        number = re.fullmatch(r"(\d*\.?\d+)(%?)", self.heldout)
        return Decimal(number[1]) / (100 if number[2] else 1) if number else None

    @property
    def bound(self) -> int:
        """The key below which sentences are held out."""
        return int((self.share or 0) * KEYS)

    def reader(self) -> SentenceReader:
        """Return the settings that the reading processes need."""
        bound = 0 if self.deduplicate else self.bound
        return SentenceReader(
            tokenizer=self.tokenizer,
            split=self.sentences == "split",
            deduplicate=self.deduplicate,
            shuffle=self.shuffle,
            heldout=bound,
            seed=self.seed,
            longest_line=self.longest_line,
        )

    def reading(self) -> dict[str, Any]:
        """Return everything that the content of the parts depends on."""
        own = source(self.tokenizer)
        files = {"field": self.field, "block_bytes": self.block_bytes, "tokenizer_crc32": own and _crc32(own)}
        return asdict(self.reader()) | files

    def merging(self) -> dict[str, Any]:
        """Return everything else that the merged shards depend on."""
        vocabulary = self.vocabulary and _crc32(Path(self.vocabulary))
        return {"heldout": self.heldout, "shards": self.shards, "vocabulary_crc32": vocabulary}


@contextmanager
def work_folder(target: Path, settings: PrepareSettings) -> Iterator[Path]:
    """Lock and open the work folder; it is removed if an error ends the run before the first part is complete."""
    work = target.parent / f"{target.name}.part"
    path = work / SETTINGS
    now = settings.reading()
    with locked(target):
        if _is_finished(work, target):
            _remove(work)
        refuse_existing(target)
        if not path.exists():
            _clear(work)
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(now, indent=1), encoding="utf-8")
        before = _settings(path)
        for name in {**now, **before}:
            if before.get(name) != now.get(name):
                raise ConfigError(
                    f"{work}: {name} is {now.get(name)!r}, but the interrupted run had {before.get(name)!r}. Give the "
                    "same value, or remove the folder to start over"
                )
        try:
            yield work
        except ElmoError:
            if not any(work.glob("*/*.json")):
                shutil.rmtree(work, ignore_errors=True)
            raise


def _clear(work: Path) -> None:
    """Remove what a killed run left without its settings; refuse a folder with other files, which are the user's."""
    try:
        others = sorted(path.name for path in work.iterdir() if not _OWN.fullmatch(path.name))
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(work, error) from error
    if others:
        raise DataError(
            f"{work}: contains {others[0]!r}, which `elmo prepare` did not write there; it would remove the folder at "
            f"its end. Move it away, or choose another output"
        )
    shutil.rmtree(work, ignore_errors=True)


def finish(work: Path, target: Path) -> None:
    """Move the corpus from the work folder to its place, and remove the folder."""
    try:
        shutil.copyfile(work / CORPUS / MANIFEST, work / MANIFEST)  # if this is killed: for `_is_finished`
        (work / CORPUS).rename(target)
    except OSError as error:
        raise write_error(target, error) from error
    _remove(work)


def _is_finished(work: Path, target: Path) -> bool:
    """Return whether a run was killed after it had moved its corpus from the work folder to its place."""
    try:
        return not (work / CORPUS).exists() and (work / MANIFEST).read_bytes() == (target / MANIFEST).read_bytes()
    except OSError:  # one of them is not there
        return False


def _remove(work: Path) -> None:
    """Remove a work folder that is not needed any more; last of all the file by which that is known."""
    with suppress(OSError):
        for path in work.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MANIFEST:
                path.unlink()
    shutil.rmtree(work, ignore_errors=True)


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(settings, dict):
            return settings
    except (OSError, ValueError):
        pass
    raise DataError(f"{path}: damaged. Remove the folder {path.parent} to start over")


def _crc32(path: Path) -> int:
    try:
        return zlib.crc32(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
