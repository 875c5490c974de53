"""A NAME ─▶ A LOADED MODEL, once in each process, for adapters that are copied often and have its name only."""

from functools import lru_cache

from elmo.embed.embedder import Embedder, load


@lru_cache(maxsize=2)
def loaded(model: str, device: str, precision: str) -> Embedder:
    """Load a model, or return the one that was loaded before; the two latest are kept."""
    return load(model, device=device, precision=precision)
