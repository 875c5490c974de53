"""Training steps that are recorded: nothing but tensors changes from batch to batch, and a replay computes the same."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from analysis import mini
from elmo.analysis.quick import quick_configs
from elmo.embed.embedder import load
from elmo.tasks import prepared, recorded
from elmo.tasks.batches import batches
from elmo.tasks.examples import Example
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.prepared import on_device, rounded_up, tensors
from elmo.tasks.recipe import recipe
from elmo.tasks.recorded import RecordedSteps, loss_and_gradients
from elmo.tasks.task import PreparedModel
from elmo.tasks.train import TaskTraining
from elmo.training.run import Run

SETUPS = {one["task"]: one for one in quick_configs()["layer-weights"]["tasks"]}
RECORDED = ["squad", "snli", "ner", "sst"]
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def settings(name: str) -> list[str]:
    return [
        f"inputs.elmo.model={json.dumps(mini.model())}", "inputs.elmo.placement=both", *SETUPS[name]["settings"],
        *(["inputs.characters.filters=4"] if name in ("squad", "ner") else []),
    ]  # fmt: skip


def model_and_examples(name: str) -> tuple[PreparedModel, Sequence[Example]]:
    """A small model on the small biLM, in evaluation; and examples."""
    task, config = recipe(name, None, settings(name))
    examples = task.read(mini.data() / SETUPS[name]["data"])["train"]
    torch.manual_seed(0)
    texts = (text for example in examples for text in example.texts)
    inputs = Inputs(config.inputs, frozen=FrozenLayers(load(mini.model(), device="cpu"), texts))
    model = task.model(config, inputs, task.labels(examples))
    assert isinstance(model, PreparedModel)
    return model.eval(), examples


def shapes(batch: Any) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors(batch)]


@pytest.mark.parametrize(("length", "wanted"), [(1, 1), (7, 7), (8, 8), (9, 10), (17, 20), (33, 40), (100, 112)])
def test_lengths_are_rounded_up_to_few_different_ones(length: int, wanted: int) -> None:
    assert rounded_up(length) == wanted


@pytest.mark.parametrize("name", RECORDED)
def test_rounding_lengths_up_changes_nothing(name: str) -> None:
    model, examples = model_and_examples(name)
    for some in (examples[:3], examples[3:8], examples[:1]):
        batch = model.prepare(some, recorded=True)
        torch.testing.assert_close(model.loss_of(batch), model.loss(some), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RECORDED)
def test_a_step_is_a_function_of_the_tensors_of_its_batch(name: str) -> None:
    """Traced with one batch, it computes the loss and all gradients of another one of the same shapes.

    What a graph on a GPU records is such a trace: a number that Python computed from the first batch would stay in it,
    and a decision by the value of a tensor would be an error.
    """
    model, examples = model_and_examples(name)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    by_shapes: dict[Any, list[Sequence[Example]]] = {}
    for example in examples:
        by_shapes.setdefault(str(shapes(model.prepare([example, example], recorded=True))), []).append([example] * 2)
    first, *others = max(by_shapes.values(), key=len)
    assert others, "no two examples of the same shapes"
    template = model.prepare(first, recorded=True)

    def step(batch: Any) -> tuple[Tensor, ...]:
        loss = model.loss_of(batch)
        return loss, *torch.autograd.grad(loss + model.inputs.penalty(), parameters, allow_unused=True)

    def of_tensors(*given: Tensor) -> tuple[Tensor, ...]:
        values = iter(given)
        return step(prepared._mapped(template, lambda _: next(values)))

    traced = make_fx(of_tensors)(*tensors(template))
    for other in others[:3]:
        batch = model.prepare(other, recorded=True)
        found, expected = traced(*tensors(batch)), step(batch)
        assert not torch.equal(expected[0], step(template)[0])
        for one, wanted in zip(found, expected, strict=True):
            assert (one is None) == (wanted is None)
            if wanted is not None:
                torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-6)


def gradients(model: PreparedModel) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_a_replay_computes_the_losses_and_gradients_of_the_step(name: str, device: str, tmp_path: Path) -> None:
    """Batches of several shapes in turn; on a CPU the same code computes instead of recording."""
    task, config = recipe(name, None, [*settings(name), f"train.device={device}"])
    splits = task.read(mini.data() / SETUPS[name]["data"])
    training = TaskTraining(task, config, splits, tmp_path / "run", cache=tmp_path / "cache")
    model, examples = training.model, splits["train"]
    assert isinstance(model, PreparedModel) and (training._recorded is not None) == (device == "cuda")
    for module in model.eval().modules():  # no dropout, but cuDNN computes gradients in training only
        module.train(isinstance(module, torch.nn.RNNBase))
    steps = RecordedSteps(model)
    for _ in range(2):  # recorded, then replayed
        for rows in batches(examples, 4, np.random.default_rng(0)):
            some = [examples[row] for row in rows]
            replayed = steps(some)
            found = gradients(model)
            model.zero_grad(set_to_none=True)
            loss = loss_and_gradients(model, on_device(model.prepare(some), model.device))
            torch.testing.assert_close(replayed, loss, rtol=1e-3, atol=1e-4)
            expected = gradients(model)
            assert found.keys() == expected.keys() != set()
            for key, gradient in expected.items():
                torch.testing.assert_close(found[key], gradient, rtol=2e-2, atol=1e-3, msg=key)
            model.zero_grad(set_to_none=True)
    assert len(steps._recordings) > 1


def test_more_shapes_than_can_be_recorded_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MAX_GRAPHS", 1)
    model, examples = model_and_examples("ner")
    steps = RecordedSteps(model)
    for number in range(6):
        some = examples[: number + 1]
        torch.testing.assert_close(steps(some), model.loss(some).detach(), rtol=1e-5, atol=1e-6)
        model.zero_grad(set_to_none=True)
    assert len(steps._recordings) == 1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_a_replay_draws_random_numbers_by_the_seed(device: str, tmp_path: Path) -> None:
    """The step that is recorded counts as its first replay, and what is drawn after it does not depend on it."""
    task, config = recipe("ner", None, [*settings("ner"), f"train.device={device}", "dropout=0.5"])
    splits = task.read(mini.data() / SETUPS["ner"]["data"])
    model = TaskTraining(task, config, splits, tmp_path / "run", cache=tmp_path / "cache").model.train()
    assert isinstance(model, PreparedModel)
    steps, losses, after = RecordedSteps(model), [], []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        losses.append(steps(splits["train"][:4]).item())
        after.append(torch.rand(1, device=device).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[1] != pytest.approx(losses[2], rel=1e-3)
    assert after[0] == after[1] != after[2]


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=needs_gpu)])
def test_a_recorded_run_learns_what_the_other_learns(name: str, device: str, tmp_path: Path) -> None:
    """Without dropout: rounded lengths have other random numbers."""
    off = ["dropout=0"]
    if name == "sst":
        off = [f"{one}=0" for one in ("prenet_dropout", "integrator_dropout", "maxout_dropout", "maxout_dropout_2")]
    losses = []
    for kind in ("true", "false"):
        changes = [f"train.device={device}", f"train.recorded={kind}", "train.epochs=3", "inputs.elmo.dropout=0"]
        task, config = recipe(name, None, [*settings(name), *changes, "inputs.dropout=0", *off])
        splits = task.read(mini.data() / SETUPS[name]["data"])
        training = TaskTraining(task, config, splits, tmp_path / kind, cache=tmp_path / "cache")
        assert training.train()
        losses.append([line["loss"] for line in Run.open(tmp_path / kind).metrics()])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
