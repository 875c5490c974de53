"""TEXT ─▶ CORPUS, without `elmo prepare`: any text with one sentence per line, bilm-tf's shards for example."""

import hashlib
from pathlib import Path

from elmo.errors import ConfigError
from elmo.pretrain.corpus import MANIFEST, Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.prepare import prepare
from elmo.text.tokenizers import source


def corpus_at(
    path: Path,
    cache: Path,
    vocabulary: Path | None = None,
    *,
    heldout: str = "0",
    tokenizer: str | None = None,
    world: World | None = None,
) -> Corpus:
    """Open a corpus folder; text, one sentence per line, is first made into one inside `cache`.

    `tokenizer` is moses (the default), whitespace or PATH:FUNC. The text keeps its order, unless a share of it is to be
    held out.
    """
    if (path / MANIFEST).exists():
        for name, given in (("vocabulary", vocabulary), ("tokenizer", tokenizer)):
            if given is not None:
                raise ConfigError(
                    f"{path}: a prepared corpus, which has its {name}; --{name} {given} is for text and `elmo prepare`"
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
    """What tells a corpus from another: its files, whether they have changed, and how they are read."""
    text = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [*text, *(file for file in (vocabulary, source(tokenizer)) if file is not None)]
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(repr((facts, tokenizer, heldout)).encode()).hexdigest()[:12]
