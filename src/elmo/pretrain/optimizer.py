"""GRADIENTS ─▶ WEIGHTS: Adagrad as the original was trained, or Adam; of large tables only rows with a gradient change.

For Adagrad this is exact, because it does not change rows without a gradient. Adam's moments decay in every step; here
those of a row decay only when it has a gradient (PyTorch's SparseAdam), and tables have no weight decay.
"""

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from elmo.pretrain.config import OptimizerConfig
from elmo.training.optimizer_state import restore_state, state_tensors

EPSILON = 1e-10  # added to the square root, as in PyTorch's Adagrad


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step out of `steps`."""
    warmup = min((step + 1) / config.warmup_steps, 1.0) if config.warmup_steps else 1.0
    done = min(step / steps, 1.0)
    decay = {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2.0}
    return config.learning_rate * warmup * decay[config.schedule]


class RowAdagrad(torch.optim.Optimizer):
    """PyTorch's Adagrad for sparse gradients with distinct rows; it never waits for the device."""

    def __init__(self, tables: Iterable[nn.Parameter], learning_rate: float, initial_accumulator: float) -> None:
        super().__init__(tables, {"lr": learning_rate})
        for table in self.param_groups[0]["params"]:
            self.state[table]["sum"] = torch.full_like(table, initial_accumulator)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update the rows that have a gradient."""
        learning_rate = self.param_groups[0]["lr"]
        for table in self.param_groups[0]["params"]:
            if table.grad is None:
                continue
            rows, gradient = table.grad._indices()[0], table.grad._values()
            sums = self.state[table]["sum"]
            total = sums.index_select(0, rows).addcmul_(gradient, gradient)
            sums.index_copy_(0, rows, total)
            root = total.sqrt_().add_(EPSILON)
            table.index_copy_(0, rows, table.index_select(0, rows).addcdiv_(gradient, root, value=-learning_rate))


class Optimizer:
    """One optimizer for dense and one for sparse gradients, with their state by parameter name."""

    def __init__(
        self, config: OptimizerConfig, parameters: Iterable[tuple[str, nn.Parameter]], tables: set[str]
    ) -> None:
        named = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in named.items()}
        dense = [parameter for name, parameter in named.items() if name not in tables]
        sparse = [parameter for name, parameter in named.items() if name in tables]
        self._optimizers: list[torch.optim.Optimizer] = []
        lr = config.learning_rate
        if config.name == "adagrad":
            start = config.initial_accumulator
            if dense:
                self._optimizers.append(torch.optim.Adagrad(dense, lr, initial_accumulator_value=start))
            if sparse:
                self._optimizers.append(RowAdagrad(sparse, lr, start))
        else:
            decay = config.weight_decay if config.name == "adamw" else 0.0
            if dense:
                self._optimizers.append(torch.optim.AdamW(dense, lr, config.betas, weight_decay=decay))
            if sparse:
                self._optimizers.append(torch.optim.SparseAdam(sparse, lr, config.betas))

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters that are trained."""
        return list(self._names)

    def step(self, learning_rate: float) -> None:
        """Update every weight that has a gradient."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
            # The rows are distinct and sorted, so they need no check.
            with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
                optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs, by `parameter.quantity`."""
        every = (state_tensors(optimizer, self._names) for optimizer in self._optimizers)
        return {name: value for tensors in every for name, value in tensors.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state()` returned."""
        for optimizer in self._optimizers:
            restore_state(optimizer, self._names, state)
