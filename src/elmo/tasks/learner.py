"""A TASK'S MODEL AND ITS OPTIMIZER, with the average of the weights; saved and restored together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from elmo.tasks.inputs import BILM
from elmo.tasks.task import TaskModel
from elmo.tasks.train_config import TrainConfig
from elmo.training.optimizer_state import restore_state, state_tensors


class Learner:
    """A model that takes optimizer steps.

    `bilm_learning_rate` is that of the biLM at the start, if it is not the one of the config.
    """

    def __init__(self, model: TaskModel, config: TrainConfig, bilm_learning_rate: float | None = None) -> None:
        self.model = model
        self._config = config
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in self._trained.items()}
        self._optimizer = _optimizer(self._trained, config, bilm_learning_rate)
        self._parts = _independent_parts(self._trained, model.independent)
        self._average = {name: p.detach().clone() for name, p in self._trained.items()} if config.ema else {}

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use a learning rate from now on; a biLM keeps its share of it."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate * group["share"]

    def step(self, number: int) -> None:
        """Take one optimizer step with the gradients as they are; `number` counts the steps of the run from 0."""
        parameters = self._trained.values()
        if self._config.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self._config.clip_value)
        if self._config.clip_norm is not None:
            for part in self._parts:
                nn.utils.clip_grad_norm_(part, self._config.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)  # not kept in memory while the next loss is computed
        self._update_average(number)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside this context the model has the average of its weights, if the config asks for one."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that `restore` needs, by name."""
        frozen = {name for name, parameter in self.model.named_parameters() if not parameter.requires_grad}
        tensors = {f"model.{name}": v for name, v in self.model.state_dict().items() if name not in frozen}
        state = state_tensors(self._optimizer, self._names)
        tensors |= {f"optimizer.{name}": value for name, value in state.items()}
        return tensors | {f"mean.{name}": value for name, value in self._average.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the tensors of an earlier step."""
        self.restore_weights(tensors)
        restore_state(self._optimizer, self._names, _of_kind("optimizer", tensors))

    def restore_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the weights and their average, without the state of the optimizer."""
        weights = _of_kind("model", tensors)
        missing = self._trained.keys() - weights.keys()
        if missing:
            raise KeyError(f"no tensor {min(missing)!r}")
        try:
            self.model.load_state_dict(weights, strict=False)
        except RuntimeError as error:  # shapes; the message has several lines
            raise ValueError(str(error).split("\n")[1].strip()) from None
        average = _of_kind("mean", tensors)
        self._average = {name: value.to(self._trained[name].device) for name, value in average.items()}

    @torch.no_grad()
    def _update_average(self, number: int) -> None:
        """Move the average towards the weights: faster at first, so that the initial weights are soon forgotten."""
        if self._config.ema is not None:
            decay = min(self._config.ema, (1 + number) / (10 + number))
            averages = [self._average[name] for name in self._trained]
            torch._foreach_lerp_(averages, list(self._trained.values()), 1 - decay)  # one launch for all on a GPU

    @torch.no_grad()
    def _swap(self) -> None:
        for name, value in self._average.items():
            kept = self._trained[name].detach().clone()
            self._trained[name].copy_(value)
            value.copy_(kept)


def _optimizer(
    parameters: Mapping[str, nn.Parameter], config: TrainConfig, bilm_learning_rate: float | None
) -> torch.optim.Optimizer:
    share = 1.0 if bilm_learning_rate is None else bilm_learning_rate / config.learning_rate
    by_share: dict[float, list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        by_share.setdefault(share if name.startswith(BILM) else 1.0, []).append(parameter)
    groups = [{"params": some, "share": share} for share, some in by_share.items()]
    if config.optimizer == "adadelta":
        return torch.optim.Adadelta(groups, config.learning_rate, rho=config.rho, weight_decay=config.weight_decay)
    fused = next(iter(parameters.values())).device.type in ("cpu", "cuda")  # one pass over each parameter
    return torch.optim.Adam(groups, config.learning_rate, weight_decay=config.weight_decay, fused=fused)


def _independent_parts(parameters: Mapping[str, nn.Parameter], names: tuple[str, ...]) -> list[list[nn.Parameter]]:
    """Divide parameters into those of each independent part of a model, and the others."""
    parts: dict[str, list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        attribute = name.partition(".")[0]
        parts.setdefault(attribute if attribute in names else "", []).append(parameter)
    return list(parts.values())


def _of_kind(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose name begins with a kind, named without it."""
    return {name.removeprefix(f"{kind}."): v for name, v in tensors.items() if name.startswith(f"{kind}.")}
