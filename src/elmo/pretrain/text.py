"""TEXT ─▶ CORPUS, on the way: bilm-tf's text shards and vocabulary, or any file of sentences, used as they are."""

from pathlib import Path

from elmo.pretrain.corpus import MANIFEST, Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.prepare import prepare


def corpus_at(
    path: Path, cache: Path, vocabulary: Path | None = None, world: World | None = None, tokenizer: str = "whitespace"
) -> Corpus:
    """The corpus in a folder; text, one sentence a line, is first made one in `cache`, in its own order."""
    if (path / MANIFEST).exists():
        return Corpus.open(path)
    world = world or World()
    if world.rank == 0 and not (cache / MANIFEST).exists():
        prepare(
            path, cache, vocabulary=vocabulary, tokenizer=tokenizer,
            sentences="lines", shuffle=False, deduplicate=False, heldout="0", min_count=1,
        )  # fmt: skip
    world.barrier()
    return Corpus.open(cache)
