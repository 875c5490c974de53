"""The curves of runs, and `elmo plot`: the axes show the logged numbers, and the labels say what they are."""

import builtins
import json
import math
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elmo.errors import DataError
from elmo.training.plot import draw
from embedders import assert_refused, elmo, nothing_new_in

Points = tuple[list[float], list[float]]


def write_run(folder: Path, negatives: int | None = 8192, directions: int = 2, lines: int = 4) -> Path:
    """A run whose figures are easy to say: one line of training per 100 tokens, an evaluation after every other."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"negatives": negatives}))
    metrics: list[dict[str, Any]] = []
    for k in range(1, lines + 1):
        both = {"forward_loss": 9.0 - k, "backward_loss": 8.0 - k}
        losses = dict(list(both.items())[:directions])
        about = {"step": k, "epoch": k / 10, "tokens": 100 * k, "time": 1.7e9 + k}
        mean = sum(losses.values()) / directions
        metrics.append(
            about
            | losses
            | {"loss": mean, "gradient_norm": 1.0, "learning_rate": 0.2 / k, "tokens_per_second": 1000.0 + k}
        )
        if k % 2 == 0:
            forward, backward = 500.0 / k, 300.0 / k
            held = {"forward_perplexity": forward, "backward_perplexity": backward if directions == 2 else None}
            mean = (forward + backward) / 2 if directions == 2 else forward
            metrics.append(about | held | {"perplexity": mean, "unknown": 0.1})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    return folder


def curves(axes: Axes) -> dict[str, Points]:
    """Label ─▶ (x, y) of every line."""
    found = {
        str(line.get_label()): (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in axes.get_lines()
    }
    assert len(found) == len(axes.get_lines())
    return found


def panels(figure: Figure) -> tuple[Axes, Axes, Axes, Axes]:
    """Loss, perplexity, tokens/s, learning rate."""
    loss, perplexity, speed, rate = figure.axes
    return loss, perplexity, speed, rate


def test_the_curves_are_what_was_logged(tmp_path: Path) -> None:
    loss, perplexity, speed, rate = panels(draw([write_run(tmp_path / "run")]))
    tokens = [100.0, 200.0, 300.0, 400.0]
    assert curves(loss) == {
        "sampled loss, forward": (tokens, [8.0, 7.0, 6.0, 5.0]),
        "sampled loss, backward": (tokens, [7.0, 6.0, 5.0, 4.0]),
    }
    assert curves(perplexity) == {
        "forward": ([200.0, 400.0], [250.0, 125.0]),
        "backward": ([200.0, 400.0], [150.0, 75.0]),
        "mean": ([200.0, 400.0], [200.0, 100.0]),
        "best 100.0": ([400.0], [100.0]),
    }
    assert curves(speed) == {"tokens/s": (tokens, [1001.0, 1002.0, 1003.0, 1004.0])}
    assert curves(rate) == {"learning rate": (tokens, [0.2, 0.1, pytest.approx(0.2 / 3), 0.05])}


def test_the_axes_say_what_they_are(tmp_path: Path) -> None:
    loss, perplexity, speed, rate = panels(draw([write_run(tmp_path / "run")]))
    labels = [axes.get_ylabel() for axes in (loss, perplexity, speed, rate)]
    assert labels == ["sampled loss", "held-out perplexity", "tokens/s", "learning rate"]
    assert [axes.get_yscale() for axes in (loss, perplexity, speed, rate)] == ["linear", "log", "linear", "linear"]
    assert speed.get_xlabel() == "tokens seen"
    assert loss.get_xlim() == perplexity.get_xlim() == speed.get_xlim() == rate.get_xlim()
    assert all(axes.get_shared_x_axes().joined(loss, axes) for axes in (perplexity, speed))
    legend = speed.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["tokens/s", "learning rate"]


@pytest.mark.parametrize(("negatives", "name"), [(8192, "sampled loss"), (1, "sampled loss"), (None, "loss")])
def test_a_training_loss_is_called_sampled_unless_it_is_not(
    tmp_path: Path, negatives: int | None, name: str
) -> None:
    loss = panels(draw([write_run(tmp_path / "run", negatives)]))[0]
    assert loss.get_ylabel() == name
    assert list(curves(loss)) == [f"{name}, forward", f"{name}, backward"]


def test_runs_are_compared_each_in_its_colour(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", None, lines=6)]
    loss, perplexity, speed, rate = panels(draw(runs))
    assert list(curves(loss)) == [
        f"{runs[0]}: sampled loss, forward",
        f"{runs[0]}: sampled loss, backward",
        f"{runs[1]}: loss, forward",
        f"{runs[1]}: loss, backward",
    ]
    assert loss.get_ylabel() == "training loss"
    assert curves(perplexity)[f"{runs[1]}: best {400 / 6:.1f}"] == ([600.0], [pytest.approx(400 / 6)])
    for axes in (loss, perplexity, speed, rate):
        colors = {str(line.get_label()).split(":")[0]: line.get_color() for line in axes.get_lines()}
        assert len(set(colors.values())) == 2
        for line in axes.get_lines():
            assert line.get_color() == colors[str(line.get_label()).split(":")[0]]


def test_the_best_is_the_lowest_not_the_last_and_is_written_beside_its_mark(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        for tokens, value in ((500, 12345.678), (600, math.nan), (700, 1234.5678), (800, math.inf)):
            file.write(json.dumps({"step": 9, "tokens": tokens, "perplexity": value}) + "\n")
    perplexity = panels(draw([run]))[1]
    assert curves(perplexity)["best 100.0"] == ([400.0], [100.0])
    assert [text.get_text() for text in perplexity.texts] == ["100.0"]
    assert perplexity.texts[0].xy == (400, 100.0)


def test_a_model_of_one_direction_has_one_curve(tmp_path: Path) -> None:
    loss, perplexity, *_ = panels(draw([write_run(tmp_path / "run", directions=1)]))
    assert list(curves(loss)) == ["sampled loss, forward"]
    assert curves(perplexity)["forward"] == ([200.0, 400.0], [250.0, 125.0])
    assert "backward" not in curves(perplexity)


def test_a_run_that_has_not_been_evaluated_is_drawn(tmp_path: Path) -> None:
    loss, perplexity, *_ = panels(draw([write_run(tmp_path / "run", lines=1)]))
    assert curves(loss)["sampled loss, forward"] == ([100.0], [8.0])
    assert curves(perplexity) == {}
    assert all(line.get_marker() == "." for line in loss.get_lines())  # a line of one point shows nothing


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "tokens": 500, "lo')
    assert curves(panels(draw([run]))[0])["sampled loss, forward"][0] == [100.0, 200.0, 300.0, 400.0]


@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG\r\n"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF-"), ("A.PNG", b"\x89PNG")]
)
def test_the_ending_chooses_the_format(tmp_path: Path, name: str, magic: bytes) -> None:
    output = tmp_path / "figures" / name
    ended = elmo("plot", write_run(tmp_path / "run"), "--output", output)
    assert ended == (0, "", f"{output}: 1 run\n")
    assert output.read_bytes().startswith(magic)
    assert [path.name for path in output.parent.iterdir()] == [name]


def test_curves_lie_in_the_run_and_are_drawn_again(tmp_path: Path) -> None:
    run, other = write_run(tmp_path / "run"), write_run(tmp_path / "other")
    assert elmo("plot", run).err == f"{run / 'curves.png'}: 1 run\n"
    alone = (run / "curves.png").read_bytes()
    assert elmo("plot", run, other).err == f"{run / 'curves.png'}: 2 runs\n"
    assert (run / "curves.png").read_bytes() != alone
    assert sorted(path.name for path in run.iterdir()) == ["curves.png", "metrics.jsonl", "run.json"]
    assert sorted(path.name for path in other.iterdir()) == ["metrics.jsonl", "run.json"]


def test_one_mistake_is_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    empty = write_run(tmp_path / "empty", lines=0)
    early = write_run(tmp_path / "early", lines=0)
    (early / "metrics.jsonl").unlink()
    with nothing_new_in(tmp_path):
        assert_refused(elmo("plot", tmp_path / "none"), f"{tmp_path / 'none'}: no run.json in it; expected the folder")
        for folder in (empty, early):
            assert_refused(elmo("plot", folder), f"{folder}: no metrics yet; they begin after log_every")
            assert_refused(elmo("plot", run, folder), f"{folder}: no metrics yet")
        for name in ("curves.jpg", "curves"):
            ended = elmo("plot", run, "--output", tmp_path / name)
            assert_refused(ended, f"{tmp_path / name}: unknown format; expected a file name ending in .png, .svg, .pdf")
        ended = elmo("plot", run, "--output", run / "run.json" / "curves.png")
        assert_refused(ended, f"{run / 'run.json' / 'curves.png'}: cannot be written")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, real = write_run(tmp_path / "run"), builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with nothing_new_in(tmp_path):
        assert_refused(elmo("plot", run), "curves need matplotlib: pip install 'elmo-torch[plot]'")


def test_a_figure_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run")
    elmo("plot", run)
    before = (run / "curves.png").read_bytes()

    def full(self: Figure, path: Path, **_: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with nothing_new_in(tmp_path):
        assert_refused(elmo("plot", run), "curves.png: the disk is full")
    assert (run / "curves.png").read_bytes() == before


def test_drawing_needs_no_display_and_leaves_no_figure_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    import matplotlib.pyplot as pyplot

    before = pyplot.get_fignums()
    assert elmo("plot", write_run(tmp_path / "run")).code == 0
    assert pyplot.get_fignums() == before


def test_a_folder_that_is_no_run_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no run\.json in it"):
        draw([tmp_path])


# Of a task


def write_task_run(folder: Path, score: str = "f1", values: tuple[float, ...] = (40.0, 62.5, 60.0)) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"task": "ner"}))
    lines = [
        {"step": k, "loss": 3.0 / k, f"dev_{score}": value, "dev_precision": 1.0, "learning_rate": 0.01 / k}
        for k, value in enumerate(values, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_curves_of_a_task(tmp_path: Path) -> None:
    loss, score, rate = draw([write_task_run(tmp_path / "run")]).axes
    epochs = [1.0, 2.0, 3.0]
    assert curves(loss) == {"loss": (epochs, [3.0, 1.5, 1.0])}
    assert curves(score) == {"dev f1": (epochs, [40.0, 62.5, 60.0]), "best 62.5": ([2.0], [62.5])}
    assert curves(rate) == {"learning rate": (epochs, [0.01, 0.005, pytest.approx(0.01 / 3)])}
    assert [axes.get_ylabel() for axes in (loss, score, rate)] == ["training loss", "dev f1", "learning rate"]
    assert rate.get_xlabel() == "epoch"


def test_tasks_are_compared(tmp_path: Path) -> None:
    runs = [write_task_run(tmp_path / "a"), write_task_run(tmp_path / "b", "accuracy", (70.0,))]
    loss, score, _ = draw(runs).axes
    assert list(curves(loss)) == [f"{runs[0]}: loss", f"{runs[1]}: loss"]
    assert score.get_ylabel() == "dev score"
    ended = elmo("plot", *runs, "--output", tmp_path / "curves.svg")
    assert ended.code == 0, ended.err
    assert (tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")


def test_runs_of_both_kinds_are_refused(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "bilm"), write_task_run(tmp_path / "task")]
    message = f"{runs[0]} is a run of a biLM, {runs[1]} a run of a task; expected one kind. Plot them separately"
    with nothing_new_in(tmp_path):
        assert_refused(elmo("plot", *runs), message)
