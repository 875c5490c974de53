"""SENTENCES ─▶ ONE ARRAY EACH: the runner gives the layers of a batch; they are selected on the device, then copied."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from elmo.embed.runner import Runner
from elmo.embed.selection import Array, LayersArgument, Selection
from elmo.embed.sentences import MAX_SENTENCE_TOKENS, Sentence, tokenize_sentences
from elmo.embed.words import with_boundaries
from elmo.errors import ConfigError
from elmo.model.packing import Packing

STATES = ("fresh", "carried", "warm")


class Staging:
    """Pinned memory through which results are copied from a GPU. It is reused; each thread has its own piece."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    @contextmanager
    def array(self, tensor: Tensor) -> Iterator[Array]:
        """Return the tensor as an array, valid inside the context."""
        if tensor.device.type != "cuda":
            yield tensor.cpu().numpy()
            return
        size = tensor.numel() * tensor.element_size()
        try:
            memory = self._free.pop()  # taken by this thread alone: list.pop is atomic
        except IndexError:
            memory = torch.empty(0, dtype=torch.uint8, device="cpu")
        if len(memory) < size:
            memory = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        yield memory[:size].view(tensor.dtype).view(tensor.shape).copy_(tensor).numpy()
        self._free.append(memory)


class SentenceArrays:
    """Turns the layers of a batch into the arrays of its sentences."""

    def __init__(self, selection: Selection, staging: Staging) -> None:
        self.selection = selection
        self.staging = staging

    def __call__(self, batch: list[list[str]], layers: list[Tensor], packing: Packing) -> list[Array]:
        """L+1 layers (N, 2D), packed ─▶ (L+1, tokens, 2D) or (tokens, 2D) for each sentence."""
        chosen = self.selection.apply(layers)  # (…, N, 2D)
        if len(batch) == 1 and chosen.device.type == "cpu":  # packed, one sentence has its own order
            return [chosen.numpy()]
        with self.staging.array(chosen) as array:
            return [np.take(array, rows, axis=-2) for rows in packing.of_sentences()]


def embed_sentences(
    runner: Runner,
    sentences: Iterable[Sentence],
    layers: LayersArgument = "all",
    *,
    dtype: str = "float32",
    state: str = "fresh",
    batch_tokens: int | None = None,
    batch_size: int = 64,
    max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    skip: int = 0,
    staging: Staging | None = None,
) -> Iterator[Array]:
    """Check the arguments of `Embedder.embed`, and yield the array of each sentence after the first `skip`.

    Skipped sentences are read as well, so that the others get, to the bit, what they get without `skip`: the same
    batches, word cache and carried state.
    """
    if state not in STATES:
        raise ConfigError(f"state is {state!r}; expected one of {', '.join(STATES)}")
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; expected 1 or more")
    budget = runner.batch_tokens(batch_tokens)
    config = runner.module.config
    selection = Selection.parse(layers, config.n_layers, dtype)
    finish = SentenceArrays(selection, Staging() if staging is None else staging)
    split = tokenize_sentences(sentences, max_sentence_tokens)
    if state == "carried":
        arrays = runner.carry(map(with_boundaries, split), finish, batch_size=batch_size, skip=skip)
        return (np.ascontiguousarray(array[..., 1:-1, :]) for array in arrays)
    empty, start = partial(selection.empty, config.n_layers, config.output_dim), partial(runner.after, state)
    needed = selection.n_needed(config.n_layers)
    return runner.independent(split, finish, start, batch_tokens=budget, empty=empty, skip=skip, n_layers=needed)
