"""MANY PROCESSES: each reads its own rows of text, and gradients are summed; of large tables only the rows in use.

    torchrun --nproc-per-node 8 -m elmo pretrain CORPUS OUT …

The number of distinct rows grows like the vocabulary of a text, much more slowly than its length. So the data exchanged
for a softmax of 793,471 words stays about as large as the gradient of the LSTMs: see docs/scaling.md.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """The rank of this process, and the number of processes."""

    rank: int = 0
    size: int = 1

    def rows(self, batch: int) -> range:
        """Return this process's rows of a batch."""
        each = batch // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Sum each tensor over all processes, in place, with one message."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def sum_rows(self, rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum gradients of table rows over all processes; returns the distinct rows, ascending, and their sums."""
        union = torch.unique(torch.cat(self.gather(rows)))
        total = values.new_zeros(len(union), *values.shape[1:])
        total.index_add_(0, torch.searchsorted(union, rows), values)
        self.sum([total])
        return union, total

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes; they may differ in the length of the first axis."""
        if self.size == 1:
            return [tensor]
        length = torch.tensor([len(tensor)], device=tensor.device)
        lengths = [torch.empty_like(length) for _ in range(self.size)]
        dist.all_gather(lengths, length)
        longest = max(int(length) for length in lengths)
        padded = tensor.new_zeros(longest, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        every = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(every, padded)
        return [one[: int(length)] for one, length in zip(every, lengths, strict=True)]

    def any(self, flag: bool, device: torch.device) -> bool:
        """Return whether the flag is set in any process."""
        if self.size == 1:
            return flag
        flags = torch.tensor([float(flag)], device=device)
        self.sum([flags])
        return bool(flags.item())

    def barrier(self) -> None:
        """Wait for the other processes."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined() -> Iterator[World]:
    """Join the processes that torchrun started; without torchrun there is only this one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
