"""HAVE THE WEIGHTS CHANGED? Whoever trains, loads or moves a biLM changes what was computed from it before.

In-place changes raise a tensor's version, a new tensor has another address, and what goes through `.data`, which raises
no version, changes numbers: some of every parameter are compared. Single numbers changed through `.data` may stay
unnoticed: change the parameter itself, under `torch.no_grad()`.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

SAMPLES = 16  # numbers of each parameter that are compared


class Snapshot:
    """A set of tensors as they were: compares in microseconds, whatever their size."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        tensors = list(tensors)
        self._identities = [_identity(tensor) for tensor in tensors]
        # Views: they keep the memory, so no other tensor can come to lie at the same address.
        self._samples = [_sample(tensor.detach()) for tensor in tensors]
        self._values = torch.cat(self._samples)

    def matches(self, tensors: Iterable[Tensor]) -> bool:
        """Whether these tensors are those of the snapshot, and have the same numbers."""
        if [_identity(tensor) for tensor in tensors] != self._identities:
            return False
        return torch.equal(torch.cat(self._samples), self._values)


def _identity(tensor: Tensor) -> tuple[int, int]:
    # A tensor made in inference mode has no version: its numbers alone tell.
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _sample(tensor: Tensor) -> Tensor:
    """A view of a few numbers, spread over rows and columns."""
    there = tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1) - tensor.storage_offset()
    count = min(tensor.numel(), there)
    few = min(count, SAMPLES)
    return tensor.as_strided((few,), (max(int(count / (SAMPLES + 0.618)), 1),), tensor.storage_offset())
