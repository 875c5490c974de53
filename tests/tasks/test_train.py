"""The training loop of tasks: it learns, is resumed to the same end, and keeps the epoch with the best dev score."""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from elmo.errors import ConfigError, DataError, ElmoError
from elmo.tasks import folder
from elmo.tasks import train as train_module
from elmo.tasks.learner import Learner
from elmo.tasks.ner.model import TASK, Tagger
from elmo.tasks.train import TaskTraining
from elmo.training.run import Run
from tasks.small_ner import recipe, splits, write_elmo, write_vectors


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("files")
    write_elmo(place / "elmo")
    write_vectors(place / "glove.txt")
    return place


def with_elmo(files: Path, *assignments: str) -> Any:
    return recipe(f"inputs.elmo.model={files / 'elmo'}", f"inputs.vectors={files / 'glove.txt'}", *assignments)


def train(files: Path, out: Path, *assignments: str, resume: bool = False, stop: threading.Event | None = None) -> bool:
    config = with_elmo(files, *assignments)
    training = TaskTraining(TASK, config, splits(), out, resume=resume, cache=files / "cache")
    return training.train(stop)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def log(out: Path) -> list[dict[str, Any]]:
    timed = ("train_seconds", "dev_seconds", "memory")
    return [{name: value for name, value in line.items() if name not in timed} for line in Run(out).metrics()]


@pytest.mark.parametrize("placement", ["none", "input", "output", "both"])
def test_it_overfits_saves_loads_and_answers_the_same(placement: str, files: Path, tmp_path: Path) -> None:
    config = with_elmo(
        files, f"inputs.elmo.placement={placement}", "train.epochs=25", "train.learning_rate=3e-2", "dropout=0"
    )
    eight = splits()["train"][:8]
    training = TaskTraining(TASK, config, {"train": eight, "dev": eight}, tmp_path / "run", cache=files / "cache")
    assert training.train()
    assert training.progress.best == 100.0
    read = folder.load(tmp_path / "run" / "model", "cpu")
    again = TaskTraining.answers(training, eight)
    training.model = read.model
    assert training.answers(eight) == again == [list(example.gold) for example in eight]
    assert read.scores["dev"]["f1"] == 100.0


class Stopping:
    """A report that stops the run after a number of batches."""

    def __init__(self, after: int) -> None:
        self.left, self.stop = after, threading.Event()

    def prepared(self, done: int, of: int) -> None:
        pass

    def began(self, epoch: int, batches: int) -> None:
        pass

    def stepped(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.set()

    def logged(self, values: Mapping[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    "changes",
    [
        ["inputs.elmo.placement=both", "train.ema=0.9"],
        ["train.optimizer=adadelta", "train.learning_rate=1.0", "train.schedule=halve"],
        ["inputs.elmo.trainable=true", "inputs.elmo.learning_rate=1e-4"],
    ],
)
@pytest.mark.parametrize("after", [1, 7, 12])
def test_an_interrupted_run_ends_like_one_that_was_not(
    changes: list[str], after: int, files: Path, tmp_path: Path
) -> None:
    assert train(files, tmp_path / "whole", *changes)
    report = Stopping(after)
    config = with_elmo(files, *changes)
    out = tmp_path / "interrupted"
    assert not TaskTraining(TASK, config, splits(), out, report=report, cache=files / "cache").train(report.stop)
    assert train(files, out, *changes, resume=True)
    assert log(out) == log(tmp_path / "whole")
    ours, theirs = weights(out), weights(tmp_path / "whole")
    assert sorted(ours) == sorted(theirs)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_the_same_seed_is_the_same_run_whether_layers_are_computed_or_read(files: Path, tmp_path: Path) -> None:
    for name in ("computed", "read"):
        config = with_elmo(files, "train.epochs=1")
        TaskTraining(TASK, config, splits(), tmp_path / name, cache=tmp_path / "cache").train()
    assert log(tmp_path / "computed") == log(tmp_path / "read")


def test_killed_between_its_first_line_and_its_first_checkpoint(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is logged once, not twice."""
    train(files, tmp_path / "whole")

    def killed(self: TaskTraining) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(TaskTraining, "_save", killed)
        train(files, tmp_path / "run")
    assert [line["step"] for line in log(tmp_path / "run")] == [1]
    train(files, tmp_path / "run", resume=True)
    assert log(tmp_path / "run") == log(tmp_path / "whole")


def test_a_longer_run_that_is_interrupted_has_no_result(files: Path, tmp_path: Path) -> None:
    """The scores of the shorter one are not its own; the longer one's are those of a run that was never shorter."""
    train(files, tmp_path / "run", "train.epochs=1")
    assert "scores" in Run.open(tmp_path / "run").record
    stop = threading.Event()
    stop.set()
    assert not train(files, tmp_path / "run", "train.epochs=3", resume=True, stop=stop)
    assert "scores" not in Run.open(tmp_path / "run").record
    assert Run.open(tmp_path / "run").record["config"]["train"]["epochs"] == 3
    train(files, tmp_path / "run", "train.epochs=3", resume=True)
    train(files, tmp_path / "whole", "train.epochs=3")
    assert Run.open(tmp_path / "run").record["scores"] == Run.open(tmp_path / "whole").record["scores"]


def test_a_batch_has_the_random_numbers_of_pytorch_s_own_seed() -> None:
    torch.manual_seed(7)
    expected = torch.rand(5)
    train_module._seed(7, torch.device("cpu"))
    assert torch.equal(torch.rand(5), expected)


def test_two_seeds_differ_and_one_does_not(files: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(files, tmp_path / name, f"train.seed={seed}")
    assert log(tmp_path / "a") == log(tmp_path / "b") != log(tmp_path / "c")


@pytest.mark.parametrize("changes", [[], ["inputs.elmo.trainable=true"]], ids=["frozen", "trainable"])
def test_gradients_are_the_same_every_time_on_two_threads(changes: list[str], files: Path, tmp_path: Path) -> None:
    """Gradients of what a batch reads more than once must be summed in a fixed order.

    PyTorch splits a sum over two threads only where it is large, so the sizes are above its limit of 32,768 numbers.
    """
    config = with_elmo(files, "inputs.characters.filters=512", *changes)
    training = TaskTraining(TASK, config, splits(), tmp_path, cache=files / "cache")
    parameters = [p for p in training.model.parameters() if p.requires_grad]
    training.model.train()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    found = []
    try:
        for _ in range(6):
            torch.manual_seed(1)
            loss = training.model.loss(training.splits["train"])
            found.append(torch.autograd.grad(loss, parameters, allow_unused=True))
    finally:
        torch.set_num_threads(threads)
    for gradients in found[1:]:
        for one, first in zip(gradients, found[0], strict=True):
            assert (one is first is None) or (one is not None and first is not None and torch.equal(one, first))


def test_another_recipe_is_not_resumed(files: Path, tmp_path: Path) -> None:
    train(files, tmp_path / "run", "train.epochs=1")
    train(files, tmp_path / "run", "train.epochs=2", "train.patience=9", resume=True)
    with pytest.raises(ConfigError, match=r"run: the run was started with train\.learning_rate 0\.01, not 0\.5\. Give"):
        train(files, tmp_path / "run", "train.learning_rate=0.5", resume=True)
    with pytest.raises(DataError, match=r"run already contains a run\. Use --resume to continue it, or"):
        train(files, tmp_path / "run")


class Scripted:
    """Replace the scores of all epochs, and of the test part after them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: float) -> None:
        scores = iter(values)
        monkeypatch.setattr(TaskTraining, "score", lambda *_: {"f1": next(scores)})


def test_patience_and_the_best_epoch(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch, 1.0, 5.0, 4.0, 5.0, 99.0)  # the last is the test part's
    assert train(files, tmp_path / "run", "train.epochs=50", "train.patience=2")
    assert [line["dev_f1"] for line in log(tmp_path / "run")] == [1.0, 5.0, 4.0, 5.0]
    record = Run.open(tmp_path / "run").record
    assert (record["best_epoch"], record["scores"]) == (2, {"dev": {"f1": 5.0}, "test": {"f1": 99.0}})
    best = load_file(tmp_path / "run" / "checkpoints" / "step-00000002" / "training.safetensors")
    for name, value in weights(tmp_path / "run").items():
        assert torch.equal(value, best[f"model.{name}"]), name
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert saved["scores"] == record["scores"]


def test_the_learning_rate_is_halved_after_an_epoch_without_a_better_score(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Scripted(monkeypatch, 1.0, 0.5, 2.0, 2.0, 1.0, 0.0)
    train(files, tmp_path, "train.epochs=5", "train.schedule=halve", "train.learning_rate=0.08")
    assert [line["learning_rate"] for line in log(tmp_path)] == [0.08, 0.08, 0.04, 0.04, 0.02]


def test_the_learning_rate_decays_every_few_steps(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 sentences in batches of 5 are 5 steps per epoch; a resumed run continues with the rate of its step."""
    rates: list[float] = []
    set_rate = Learner.set_learning_rate
    monkeypatch.setattr(Learner, "set_learning_rate", lambda self, rate: (rates.append(rate), set_rate(self, rate))[1])
    changes = ["train.schedule=decay", "train.learning_rate=0.08", "train.decay=0.5", "train.decay_steps=3"]
    train(files, tmp_path, *changes, "train.epochs=1")
    train(files, tmp_path, *changes, "train.epochs=2", resume=True)
    assert rates == pytest.approx([0.08 / 2 ** (step // 3) for step in range(10)])
    assert [line["learning_rate"] for line in log(tmp_path)] == pytest.approx([0.04, 0.01])


def test_a_trained_bilm_has_a_learning_rate_of_its_own(files: Path, tmp_path: Path) -> None:
    changes = ["inputs.elmo.trainable=true", "inputs.elmo.learning_rate=1e-5", "train.learning_rate=1e-2"]
    config = with_elmo(files, *changes, "train.epochs=1", "train.batch_size=24")
    training = TaskTraining(TASK, config, splits(), tmp_path, cache=files / "cache")
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    training.train()
    for name, parameter in training.model.named_parameters():
        moved = (parameter.detach() - before[name]).abs().max().item()
        rate = 1e-5 if name.startswith("inputs.bilm.") else 1e-2
        assert moved <= 1.01 * rate, name  # Adam's first step is as long as its rate
        if "bilm" in name or "encoder" in name:
            assert moved > 0.9 * rate, name
    read = folder.load(tmp_path / "model", "cpu")
    for name, parameter in read.model.named_parameters():
        assert torch.equal(parameter, training.model.get_parameter(name)), name


def test_a_loss_that_is_no_number_ends_the_run(files: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ElmoError, match=r"^epoch \d+: loss (nan|inf), in the batch that begins with '.+'; .*\. Try a lower train\.lear"
    ):
        train(files, tmp_path, "train.learning_rate=1e30", "train.clip_norm=none", "train.epochs=20")
    assert not (tmp_path / "model").exists()


def test_a_fraction_uses_the_layers_of_the_whole(files: Path, tmp_path: Path) -> None:
    train(files, tmp_path / "whole", "train.epochs=1")
    before = set((files / "cache").iterdir())
    train(files, tmp_path / "half", "train.epochs=1", "train.train_fraction=0.5", "train.seed=3")
    assert set((files / "cache").iterdir()) == before
    assert Run.open(tmp_path / "half").record["config"]["train"]["train_fraction"] == 0.5


def test_an_epoch_of_several_passes_reads_every_example_as_often(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    loss = Tagger.loss
    monkeypatch.setattr(Tagger, "loss", lambda self, some: read.append(some) or loss(self, some))
    train(files, tmp_path, "train.epochs=2", "train.passes=3")
    texts = [example.texts[0] for some in read for example in some]
    assert Counter(texts) == Counter(6 * [example.texts[0] for example in splits()["train"]])
    assert [line["step"] for line in log(tmp_path)] == [1, 2]
    orders = [[example.texts[0] for example in some] for some in read]
    assert orders[: len(orders) // 6] != orders[len(orders) // 6 : len(orders) // 3]  # a new order in each pass


def test_parts_that_are_missing(files: Path, tmp_path: Path) -> None:
    for part in ("train", "dev"):
        some = {name: examples for name, examples in splits().items() if name != part}
        with pytest.raises(
            DataError, match=rf"^here: no {part} part; expected train to learn from, dev to choose the best epoch$"
        ):
            TaskTraining(TASK, with_elmo(files), some, tmp_path, data="here")


def test_the_average_of_the_weights_is_scored_and_exported(files: Path, tmp_path: Path) -> None:
    """Of weights w0, w1, … the mean is m_t = d_t m_{t−1} + (1 − d_t) w_t, with d_t = min(d, t / (9 + t)), m_0 = w0."""
    config = with_elmo(files, "train.ema=0.15", "train.epochs=1", "train.batch_size=12")
    training = TaskTraining(TASK, config, splits(), tmp_path, cache=files / "cache")

    def now() -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in training.model.named_parameters()}

    seen, step = [now()], training.learner.step

    def watched(number: int) -> None:
        step(number)
        seen.append(now())

    training.learner.step = watched  # type: ignore[method-assign]
    assert training.train()
    assert len(seen) == 3
    exported = weights(tmp_path)
    for name, start in seen[0].items():
        first = 0.1 * start + 0.9 * seen[1][name]  # 1 / 10 is less than 0.15
        assert torch.allclose(exported[name], 0.15 * first + 0.85 * seen[2][name], atol=1e-7), name


def test_tensorboard_sees_the_log_of_a_task(files: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(files, tmp_path / "run", "train.epochs=2", "train.tensorboard=true")
    seen = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    seen.Reload()
    lines = Run(tmp_path / "run").metrics()
    assert {event.step: event.value for event in seen.Scalars("loss")} == pytest.approx(
        {line["step"]: line["loss"] for line in lines}
    )
    weights = {line["step"]: line["mixes"]["input"]["weights"][1] for line in lines}
    assert {event.step: event.value for event in seen.Scalars("mixes/input/weights/1")} == pytest.approx(weights)
