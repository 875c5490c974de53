"""AN OPTIMIZER'S STATE ◀─▶ TENSORS named `parameter.quantity`: the order of the parameters does not matter."""

from collections.abc import Mapping

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
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own = {names[parameter]: (number, parameter) for number, parameter in enumerate(parameters)}
    states: dict[int, dict[str, Tensor | int]] = {}
    for full_name, value in tensors.items():
        name, _, quantity = full_name.rpartition(".")
        if name not in known:
            raise KeyError(f"optimizer state of {name!r}, which is not trained")
        if name in own:
            number, parameter = own[name]
            states.setdefault(number, {})[quantity] = _copied(value, parameter)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def _copied(value: Tensor, parameter: Tensor) -> Tensor | int:
    """Copy a tensor to its parameter's device. PyTorch decides where a count of steps is, which may be an integer."""
    if not value.is_floating_point():
        return int(value)
    return value.to(parameter.device, copy=True) if value.dim() else value.clone()
