"""AN OPTIMIZER'S STATE ◀─▶ TENSORS named `parameter.quantity`: the order of the parameters does not matter."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def state_tensors(optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """Return the state of an optimizer; `names` has the name of every parameter."""
    return {
        f"{names[parameter]}.{quantity}": value if isinstance(value, Tensor) else torch.tensor(value)
        for parameter, values in optimizer.state.items()
        for quantity, value in values.items()
    }


def restore_state(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str], tensors: Mapping[str, Tensor]
) -> None:
    """Restore what `state_tensors` returned; tensors of parameters that another optimizer updates are ignored.

    A tensor whose parameter is not in `names` is a KeyError.
    """
    known = set(names.values())
    states: dict[str, dict[str, Any]] = {}
    for full_name, value in tensors.items():
        name, _, quantity = full_name.rpartition(".")
        if name not in known:
            raise KeyError(f"optimizer state of {name!r}, which is not trained")
        # Tensors are copied, because the optimizer changes them. An integer counts steps outside of a tensor.
        states.setdefault(name, {})[quantity] = value.clone() if value.is_floating_point() else int(value)
    own = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    by_number = {number: states[name] for number, name in enumerate(own) if name in states}
    # PyTorch moves each tensor to its parameter's device, except for step counts, which some optimizers want on a CPU.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": by_number})
