"""A BATCH AS TENSORS: what the CPU prepares for a step, before the device computes it.

A prepared batch is a frozen dataclass. Its fields are tensors, other prepared batches, tuples of these, or None; what
else it has is the same in every batch of the same shapes.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from elmo.model.device import to_device

Prepared = TypeVar("Prepared")


def on_device(batch: Prepared, device: torch.device) -> Prepared:
    """Return the same batch with all tensors on a device."""
    moved: Prepared = _mapped(batch, lambda tensor: to_device(tensor, device))
    return moved


def tensors(batch: Any) -> Iterator[Tensor]:
    """Yield all tensors of a batch, always in the same order."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, tuple):
        for one in batch:
            yield from tensors(one)
    elif is_dataclass(batch):
        for field in fields(batch):
            yield from tensors(getattr(batch, field.name))


def rounded_up(length: int) -> int:
    """Round a length up so that few different ones are left, at most four between a power of two and the next."""
    step = 1 << max(0, length.bit_length() - 3)
    return -(-length // step) * step


def _mapped(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, tuple):
        return tuple(_mapped(one, change) for one in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        return replace(batch, **{field.name: _mapped(getattr(batch, field.name), change) for field in fields(batch)})
    return batch
