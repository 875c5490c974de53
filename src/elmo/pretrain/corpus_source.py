"""A PATH ─▶ CORPUS: a folder that `elmo prepare` wrote, or any text with one sentence per line."""

import hashlib
from pathlib import Path

from elmo.errors import ConfigError
from elmo.pretrain.corpus import MANIFEST, Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.prepare import prepare
from elmo.text.tokenizers import source


def open_or_prepare(
    path: Path,
    cache: Path,
    vocabulary: Path | None = None,
    *,
    heldout: str = "0",
    tokenizer: str | None = None,
    world: World | None = None,
) -> Corpus:
    """Open a corpus folder; text, with one sentence per line, is first turned into one inside `cache`.

    `tokenizer` is moses (the default), whitespace or PATH:FUNC. The text keeps its order, unless a share of it is held
    out.
    """
    if (path / MANIFEST).exists():
        for name, given in (("vocabulary", vocabulary), ("tokenizer", tokenizer)):
            if given is not None:
                raise ConfigError(
                    f"{path} is a prepared corpus and has its own {name}; --{name} {given} is only for text. Remove "
                    f"the option, or give it to `elmo prepare`"
                )
        return Corpus.open(path)
    tokenizer = tokenizer or "moses"
    world = world or World()
    folder = cache / f"corpus-{_fingerprint(path, vocabulary, tokenizer, heldout)}"
    if world.rank == 0 and not (folder / MANIFEST).exists():
        prepare(
            path, folder, vocabulary=vocabulary, tokenizer=tokenizer, heldout=heldout,
            sentences="lines", shuffle=heldout != "0", deduplicate=False, min_count=1,
        )  # fmt: skip
    world.barrier()
    return Corpus.open(folder)


def _fingerprint(path: Path, vocabulary: Path | None, tokenizer: str, heldout: str) -> str:
    """Hash what the corpus depends on: the files, with their sizes and times, and how they are read."""
    text = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [*text, *(file for file in (vocabulary, source(tokenizer)) if file is not None)]
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(repr((facts, tokenizer, heldout)).encode()).hexdigest()[:12]
