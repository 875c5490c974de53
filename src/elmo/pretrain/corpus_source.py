"""A PATH ─▶ CORPUS: a folder that `elmo prepare` wrote, or any text with one sentence per line."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elmo.errors import ConfigError
from elmo.pretrain.corpus import MANIFEST, Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.prepare import prepare
from elmo.text.reader import files
from elmo.text.tokenizers import source


@dataclass(frozen=True)
class TextOptions:
    """How a text is read. A run records it, so that the options need not be given again to resume it."""

    tokenizer: str | None = None  # moses (None), whitespace or PATH:FUNC
    vocabulary: Path | None = None  # a file; None: all words of the text

    def record(self, path: Path) -> dict[str, Any]:
        """Return what a run on this path records; nothing if it is a prepared corpus."""
        if is_prepared(path):
            return {}
        vocabulary = None if self.vocabulary is None else str(self.vocabulary)
        return {"text": {"tokenizer": self.tokenizer or "moses", "vocabulary": vocabulary}}

    def resumed(self, path: Path, record: Mapping[str, Any]) -> "TextOptions":
        """Return the options of a run to resume: those of its record where none are given. Refuse another tokenizer.

        Another vocabulary is refused later, because it gives another corpus.
        """
        began = record.get("text")
        if began is None or is_prepared(path):
            return self
        if self.tokenizer not in (None, began["tokenizer"]):
            raise ConfigError(
                f"--tokenizer is {self.tokenizer}, but the run was started with {began['tokenizer']}. Leave out the "
                f"option, or choose another folder"
            )
        vocabulary = self.vocabulary or (began["vocabulary"] and Path(began["vocabulary"]))
        return replace(self, tokenizer=began["tokenizer"], vocabulary=vocabulary)


def is_prepared(path: Path) -> bool:
    """Return whether `elmo prepare` wrote this folder."""
    try:
        return (path / MANIFEST).exists()
    except OSError:  # it may not be read: listing the files of the text says so
        return False


def open_or_prepare(
    path: Path,
    cache: Path,
    options: TextOptions | None = None,
    *,
    heldout: str = "0",
    world: World | None = None,
) -> Corpus:
    """Open a corpus folder; text, with one sentence per line, is first turned into one inside `cache`.

    The text keeps its order, unless a share of it is held out.
    """
    options = options or TextOptions()
    if is_prepared(path):
        for name, given in vars(options).items():
            if given is not None:
                raise ConfigError(
                    f"{path} is a prepared corpus and has its own {name}; --{name} {given} is only for text. Remove "
                    f"the option, or give it to `elmo prepare`"
                )
        return Corpus.open(path)
    if path.name == MANIFEST and path.is_file():
        raise ConfigError(f"{path}: is a file of a prepared corpus; expected its folder, {path.parent}")
    tokenizer, vocabulary = options.tokenizer or "moses", options.vocabulary
    world = world or World()
    folder = cache / f"corpus-{_fingerprint(path, vocabulary, tokenizer, heldout)}"
    if world.rank == 0 and not is_prepared(folder):
        prepare(
            path, folder, vocabulary=vocabulary, tokenizer=tokenizer, heldout=heldout,
            sentences="lines", shuffle=heldout != "0", deduplicate=False, min_count=1,
        )  # fmt: skip
    world.barrier()
    return Corpus.open(folder)


def _fingerprint(path: Path, vocabulary: Path | None, tokenizer: str, heldout: str) -> str:
    """Hash what the corpus depends on: the files, with their sizes and times, and how they are read."""
    text = [Path(name) for name in files([path])]
    read = [*text, *(file for file in (vocabulary, source(tokenizer)) if file is not None)]
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in read if file.is_file()]
    return hashlib.sha256(repr((facts, tokenizer, heldout)).encode()).hexdigest()[:12]
