"""LAYERS OF A BATCH ─▶ ONE ARRAY PER SENTENCE: layers are chosen on the device, then brought to the host."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from elmo.embed.selection import Array, Selection
from elmo.model.packing import Packing


class Staging:
    """Pinned memory through which results come from a GPU, used again and again; a piece for each thread at work."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    @contextmanager
    def array(self, tensor: Tensor) -> Iterator[Array]:
        """The tensor as an array, valid inside the context."""
        if tensor.device.type != "cuda":
            yield tensor.cpu().numpy()
            return
        size = tensor.numel() * tensor.element_size()
        try:
            memory = self._free.pop()  # taken by this thread alone: list.pop is atomic
        except IndexError:
            memory = torch.empty(0, dtype=torch.uint8)
        if len(memory) < size:
            memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        yield memory[:size].view(tensor.dtype).view(tensor.shape).copy_(tensor).numpy()
        self._free.append(memory)


class SentenceArrays:
    """Makes the arrays that were asked for of a batch's layers."""

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
