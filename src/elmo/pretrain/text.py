"""TEXT ─▶ CORPUS, on the way: bilm-tf's text shards and vocabulary, or any file of sentences, used as they are."""

import hashlib
from pathlib import Path

from elmo.errors import ConfigError
from elmo.pretrain.corpus import MANIFEST, Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.prepare import prepare


def corpus_at(
    path: Path,
    cache: Path,
    vocabulary: Path | None = None,
    *,
    heldout: str = "0",
    tokenizer: str = "whitespace",
    world: World | None = None,
) -> Corpus:
    """The corpus in a folder; text, one sentence a line, is first made one inside `cache`.

    It keeps its order, unless a share of it is to be held out.
    """
    if (path / MANIFEST).exists():
        if vocabulary is not None:
            raise ConfigError(f"{path}: has its own vocabulary; {vocabulary} goes with plain text, or `elmo prepare`")
        return Corpus.open(path)
    world = world or World()
    folder = cache / f"corpus-{_fingerprint(path, vocabulary)}"
    if world.rank == 0 and not (folder / MANIFEST).exists():
        prepare(
            path, folder, vocabulary=vocabulary, tokenizer=tokenizer, heldout=heldout,
            sentences="lines", shuffle=heldout != "0", deduplicate=False, min_count=1,
        )  # fmt: skip
    world.barrier()
    return Corpus.open(folder)


def _fingerprint(path: Path, vocabulary: Path | None) -> str:
    """What tells a text from another, or from itself before it was changed."""
    files = [*(sorted(path.rglob("*")) if path.is_dir() else [path]), *([vocabulary] if vocabulary is not None else [])]
    facts = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
