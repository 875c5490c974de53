"""HAVE THE WEIGHTS CHANGED? Training, loading or moving a biLM makes cached vectors and states invalid.

In-place changes increase a tensor's version, and a new tensor has another address. Changes through `.data` increase no
version: for them, a few values of every parameter are compared. Single values changed through `.data` may stay
unnoticed: change the parameter itself, under `torch.no_grad()`.

It is checked in every call, so it must be fast: 30 parameters take about 50 microseconds on a CPU.
"""

from collections.abc import Sequence
from operator import is_

import torch
from torch import Tensor, nn

PLACES, VALUES = 2, 8  # places of each parameter that are compared, and values at each place


class Snapshot:
    """The parameters of some modules at one moment."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules
        self._parameters = self._tensors()
        self._addresses = [tensor.data_ptr() for tensor in self._parameters]
        # A tensor created in inference mode has no version: only its values are compared.
        self._with_version = [tensor for tensor in self._parameters if not tensor.is_inference()]
        self._versions = [tensor._version for tensor in self._with_version]
        # Views: they keep the memory, so that no other tensor can get the same address.
        self._on_cpu: list[memoryview] = []
        self._elsewhere: list[Tensor] = []
        for tensor in self._parameters:
            if tensor.device.type == "cpu":
                self._on_cpu += [sample.numpy().data for sample in _samples(tensor.detach())]
            else:
                self._elsewhere += _samples(tensor.detach())
        self._values = self._read()

    def holds(self) -> bool:
        """Whether the modules have the same parameters with the same values."""
        tensors = self._tensors()
        return (
            len(tensors) == len(self._parameters)
            and all(map(is_, tensors, self._parameters))
            and [tensor.data_ptr() for tensor in tensors] == self._addresses
            and [tensor._version for tensor in self._with_version] == self._versions
            and self._read() == self._values
        )

    def drop(self) -> None:
        """Let go of the parameters' memory. From now on it does not hold."""
        self._parameters, self._with_version, self._on_cpu, self._elsewhere = [], [], [], []

    def _tensors(self) -> list[Tensor]:
        tensors: list[Tensor] = []
        waiting = list(self._modules)
        for module in waiting:  # the list grows; nn.Module.parameters() takes several times as long
            tensors += [parameter for parameter in module._parameters.values() if parameter is not None]
            waiting += [child for child in module._modules.values() if child is not None]
        return tensors

    def _read(self) -> bytes:
        if not self._elsewhere:
            return b"".join(self._on_cpu)
        return b"".join([*self._on_cpu, torch.cat(self._elsewhere).cpu().numpy().tobytes()])


def _samples(tensor: Tensor) -> list[Tensor]:
    """Return a few values at each of a few places, spread over rows and columns, as bytes."""
    there = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    count = min(tensor.numel(), there)
    memory = tensor.as_strided((count,), (1,), tensor.storage_offset())
    starts = {max(int(count * (k + 0.618) / PLACES) - VALUES, 0) for k in range(PLACES)}
    return [memory[start : start + VALUES].view(torch.uint8) for start in sorted(starts)]
