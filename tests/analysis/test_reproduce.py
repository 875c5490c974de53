"""`elmo analyse` and `elmo reproduce`, in the smallest form: a random biLM of a thousand weights, one seed."""

import json
import re
import shutil
import threading
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis import mini
from elmo.analysis import from_paths, report
from elmo.analysis.analysis import ANALYSES, StoppedError, Workspace, analysis_named, build_config
from elmo.analysis.from_paths import analyse, reproduce
from elmo.analysis.machine import machine
from elmo.analysis.quick import quick_configs
from elmo.analysis.quick_data import write_data
from elmo.analysis.sweep import Cell, Sweep, TaskSetup, _train_job
from elmo.config import build
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.tasks.ner import model as ner_model
from elmo.tasks.task import TASKS, task_named
from elmo.tasks.train import TaskTraining
from embedders import elmo

ONE_SEED = [f"{name}.seeds=1" for name in ANALYSES if hasattr(analysis_named(name).config, "seeds")]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, reproduced in miniature."""
    out = tmp_path_factory.mktemp("reproduce") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELMO_CACHE", str(out.parent / "cache"))
        patch.setattr(from_paths, "write_data", partial(write_data, sentences=24))
        found = reproduce(out, quick=True, model=mini.model(), settings=ONE_SEED)
    assert found.problems == {}
    assert not found.interrupted
    return out


def test_every_analysis_leaves_results_a_table_and_a_figure(done: Path) -> None:
    for name in ANALYSES:
        record = json.loads((done / name / "results.json").read_text(encoding="utf-8"))
        assert record["analysis"] == name
        assert record["machine"]["torch"]
        table = (done / name / "table.md").read_text(encoding="utf-8")
        assert table == analysis_named(name).table(record["results"])
        assert table.startswith("| ") and "nan" not in table
        assert (done / name / "figure.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (done / name / "figure.svg").read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Checks that tags are balanced, and collects what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {name}={value}" for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br", "path", "use", "image", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass


def test_the_report_needs_no_other_file(done: Path) -> None:
    text = (done / "report.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert [one for one in tags.loads if not re.search(r"href=#", one)] == []
    assert "<script" not in text and "@import" not in text and "url(http" not in text
    for name in ANALYSES:
        assert f'<section id="{name}">' in text
    assert text.count("<figure><svg") == len(ANALYSES)
    assert f"{len(ANALYSES)} of {len(ANALYSES)} analyses have results" in text
    assert "Its figures mean nothing" in text
    assert text.count('class="badge') >= 15


def test_a_finished_reproduction_is_not_run_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweep, "run", lambda *_: pytest.fail("trained again"))
    before = {path: path.stat().st_mtime_ns for path in done.glob("*/results.json")}
    assert reproduce(done, quick=True, model=mini.model(), settings=ONE_SEED).problems == {}
    assert {path: path.stat().st_mtime_ns for path in done.glob("*/results.json")} == before


def test_an_interruption_keeps_what_is_finished_in_the_report(done: Path, tmp_path: Path) -> None:
    """Also an analysis without results whose training runs are all there; one that computes something waits."""
    shutil.copytree(done, tmp_path / "out")
    for name in ("placement", "state", "pos"):
        (tmp_path / "out" / name / "results.json").unlink()
    found = reproduce(tmp_path / "out", quick=True, model=mini.model(), settings=ONE_SEED, minutes=0)
    assert found.interrupted
    assert found.problems == dict.fromkeys(("pos", "state"), "interrupted; the same command continues")
    text = found.report.read_text(encoding="utf-8")
    assert f"{len(ANALYSES) - 2} of {len(ANALYSES)} analyses have results" in text
    before, after = (json.loads((out / "placement" / "results.json").read_text()) for out in (done, tmp_path / "out"))
    assert after["results"] == before["results"]


def test_a_dataset_is_read_once_for_all_analyses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    task = task_named("ner")

    def counted(folder: Path) -> object:
        read.append(folder.name)
        return task.read(folder)

    monkeypatch.setattr(ner_model, "TASK", replace(task, read=counted))
    place = mini.workspace(tmp_path)
    setup = TaskSetup("ner", "entities", vectors="vectors.txt", settings=("hidden=3", "train.device=cpu"))
    for analysis in ("one", "other"):
        Sweep(replace(place, out=tmp_path / analysis))._prepare(Cell(setup, {}, mini.model(), 1))
    assert read == ["entities"]


def test_a_run_that_another_sweep_has_finished_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sweeps begin at the same time; the second one comes to a run that the first has finished meanwhile."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    small = ("hidden=3", "train.epochs=1", "train.device=cpu")
    setup = TaskSetup("ner", "entities", vectors="vectors.txt", settings=small)
    place = mini.workspace(tmp_path)
    cell = Cell(setup, {}, mini.model(), 1)
    waiting = [(Sweep(place)._prepare(cell), 0)]
    Sweep(place).run({"a": cell})
    (record,) = place.runs.glob("*/seed-0/run.json")
    before = record.read_bytes(), record.stat().st_mtime_ns
    Sweep(place)._train_here(waiting)
    _train_job("ner", {}, place.data / "entities", 0, record.parent, True, place.stop)
    assert (record.read_bytes(), record.stat().st_mtime_ns) == before


def test_the_report_says_where_the_runs_were_trained(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may be computed on another machine than the one that trained."""
    path = done / "placement" / "results.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    (here,) = {json.dumps(one) for cell in record["results"]["cells"].values() for one in cell["machines"]}
    assert json.loads(here) == record["machine"]
    cells = list(record["results"]["cells"].values())
    cells[0]["machines"] = [{"processor": "P", "GPU": "G 100", "torch": "9.8"}]
    for cell in cells:
        cell["seconds"] = 1800.0
    shown = report._training(record)  # half an hour for each
    assert shown["training runs"] == f"{len(cells)}, {len(cells) / 2:,.1f} hours if one after another"
    assert shown["trained on"].startswith("G 100, torch 9.8; ")


def test_analyses_share_their_runs(done: Path) -> None:
    def runs(name: str) -> dict[str, str]:
        cells = json.loads((done / name / "results.json").read_text(encoding="utf-8"))["results"]["cells"]
        return {key: cell["runs"] for key, cell in cells.items()}

    both = runs("placement")["snli/input and output"]
    assert runs("layer-weighting")["snli/all layers, λ = 0.001"] == both  # the default of the task
    assert runs("layer-weights")["snli"] == both
    assert runs("sample-efficiency")["snli/with ELMo/1.0"] == both
    assert len(set(runs("layer-weighting").values())) == len(runs("layer-weighting"))
    assert (done / "runs" / both / "seed-0" / "model").is_dir()
    assert list((done / "runs").glob("*/seed-*/checkpoints")) == []


def test_baselines_are_the_same_run_for_every_bilm(tmp_path: Path) -> None:
    setup = TaskSetup("ner", "entities", vectors="vectors.txt")
    sweep = Sweep(mini.workspace(tmp_path))
    without = {"inputs": {"elmo": {"placement": "none", "mix": "last"}}}
    one, other = (sweep._prepare(Cell(setup, without, model, 1)).folder for model in (mini.model(), "english"))
    assert one == other
    assert one != sweep._prepare(Cell(setup, {}, mini.model(), 1)).folder


def test_a_cell_has_the_scores_of_its_runs(done: Path) -> None:
    cells = json.loads((done / "layer-weighting" / "results.json").read_text(encoding="utf-8"))["results"]["cells"]
    cell = cells["ner/last layer"]
    run = json.loads((done / "runs" / cell["runs"] / "seed-0" / "run.json").read_text(encoding="utf-8"))
    assert run["config"]["inputs"]["elmo"]["mix"] == "last"
    assert cell["dev"] == [run["scores"]["dev"]["f1"]]
    assert cell["test"] == [run["scores"]["test"]["f1"]]
    assert max(cell["curves"][0]) == cell["dev"][0]
    assert (cell["examples"], cell["updates_per_epoch"]) == (24, 2)  # batches of 16


def test_missing_data_leave_out_one_analysis_only(tmp_path: Path) -> None:
    only = ["pos", "anisotropy"]
    found = reproduce(
        tmp_path / "out", mini.data(), only=only, model=mini.model(),
        settings=["anisotropy.data=treebank", "anisotropy.tokens=50"],
    )  # fmt: skip
    assert list(found.problems) == ["pos"]
    assert "ud-english-ewt: not found; expected a dataset there" in found.problems["pos"]
    text = found.report.read_text(encoding="utf-8")
    assert "1 of 2 analyses have results" in text
    assert "ud-english-ewt: not found" in text


def test_a_missing_model_leaves_out_one_analysis_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of the others are trained in one sweep."""
    trained: list[set[str]] = []
    monkeypatch.setattr(Sweep, "run", lambda _, cells: trained.append({key.partition("/")[0] for key in cells}))
    small = {name: {**quick_configs()[name], "model": mini.model()} for name in ("placement", "state", "layer-weights")}
    small["placement"]["model"] = str(tmp_path / "nowhere")
    built = {name: build(analysis_named(name).config, values) for name, values in small.items()}
    from_paths._train_together(list(built), built, mini.workspace(tmp_path))
    assert trained == [{"state", "layer-weights"}]


def test_wrong_settings_are_refused_before_anything_runs(tmp_path: Path) -> None:
    for settings, message in (
        (["pos.epoch=3"], r"^pos: unknown field 'epoch'; did you mean 'epochs'\?$"),
        (["poss.epochs=3"], r"^--set poss\.…: expected the name of an analysis first"),
    ):
        with pytest.raises(ConfigError, match=message):
            reproduce(tmp_path / "out", quick=True, settings=settings)
    with pytest.raises(ConfigError, match=r"the folder of the datasets is missing: give --data FOLDER, or --quick"):
        reproduce(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"--quick makes its own small datasets and configs; remove --data"):
        reproduce(tmp_path / "out", tmp_path, quick=True)
    with pytest.raises(ConfigError, match=r"^ner: no such analysis; expected tasks, layer-weighting, placement, "):
        analyse("ner", tmp_path, tmp_path / "out")
    twice = [{"task": "ner", "data": "entities"}, {"task": "ner", "data": "roles"}]
    with pytest.raises(ConfigError, match=r"^tasks: 2 of them are named 'ner'; give each a title of its own$"):
        build_config(analysis_named("state"), None, {"tasks": twice})
    assert not (tmp_path / "out").exists()


def test_results_of_another_config_are_kept(tmp_path: Path) -> None:
    settings = [f"model={mini.model()}", "data=treebank", "tokens=50"]
    assert analyse("anisotropy", mini.data(), tmp_path / "out", settings=settings) is not None
    before = (tmp_path / "out" / "results.json").read_bytes()
    with pytest.raises(ConfigError, match=r"contains results of another config \(tokens 50, not 60\)\. Give the same"):
        analyse("anisotropy", mini.data(), tmp_path / "out", settings=[*settings[:2], "tokens=60"])
    with pytest.raises(DataError, match=r"results of anisotropy, not of pos\. Choose another folder"):
        analyse("pos", mini.data(), tmp_path / "out", settings=settings[:2])
    assert (tmp_path / "out" / "results.json").read_bytes() == before
    (tmp_path / "out" / "results.json").write_text("{")
    with pytest.raises(DataError, match=r"results\.json: damaged .*Remove it, and it is computed again"):
        analyse("anisotropy", mini.data(), tmp_path / "out", settings=settings)


def test_figures_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ElmoError, match=r"need matplotlib: pip install 'elmo-torch\[plot\]'"):
        analyse("pos", mini.data(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_interrupted_sweep_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    place = mini.workspace(tmp_path)
    config = build(analysis_named("placement").config, quick_configs()["placement"])
    setup = next(one for one in config.tasks if one.task == "snli")
    cells = {
        name: Cell(setup, {"inputs": {"elmo": {"placement": name}}}, mini.model(), 1) for name in ("input", "output")
    }

    def stop_after_one(what: str, done: int, total: int) -> None:
        if what == "training runs" and done == 1:
            place.stop.set()

    stopped = type(place)(place.data, place.out, place.runs, None, place.stop, stop_after_one)
    with pytest.raises(StoppedError):
        Sweep(stopped).run(cells)
    (first,) = place.runs.glob("*/seed-0/model")
    before = first.stat().st_mtime_ns
    place.stop.clear()
    found = Sweep(place).run(cells)
    assert first.stat().st_mtime_ns == before
    assert found["input"]["runs"] != found["output"]["runs"]


def test_runs_that_were_moved_are_read_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine the datasets, the vectors and the biLM are elsewhere; a path is no part of a run."""
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    changes = ("hidden=4", "train.epochs=2", "train.device=cpu")
    setup = TaskSetup("ner", "entities", vectors="vectors.txt", settings=changes)
    here = mini.workspace(tmp_path / "here")
    uninterrupted = Sweep(here).run({"a": Cell(setup, {}, mini.model(), 2)})["a"]

    def stop_in_the_second_run(what: str, done: int, total: int) -> None:
        if what == "training runs" and done == 1:
            monkeypatch.setattr(TaskTraining, "_train_epoch", stop_after_an_epoch)

    train_epoch = TaskTraining._train_epoch

    def stop_after_an_epoch(training: TaskTraining, stop: threading.Event) -> float | None:
        return None if training.progress.epoch == 1 else train_epoch(training, stop)

    cut = replace(mini.workspace(tmp_path / "cut"), progress=stop_in_the_second_run)
    with pytest.raises(StoppedError):
        Sweep(cut).run({"a": Cell(setup, {}, mini.model(), 2)})
    monkeypatch.setattr(TaskTraining, "_train_epoch", train_epoch)
    (folder,) = cut.runs.iterdir()
    shutil.rmtree(folder / "seed-0" / "model")  # of a finished run, run.json and metrics.jsonl are enough
    assert sorted(path.name for path in (folder / "seed-0").iterdir() if path.suffix != ".lock") == [
        "metrics.jsonl",
        "run.json",
    ]
    assert (folder / "seed-1" / "checkpoints").is_dir() and not (folder / "seed-1" / "model").exists()

    for old, new in ((mini.data(), "data"), (Path(mini.model()), "model"), (cut.runs, "runs")):
        shutil.copytree(old, tmp_path / "elsewhere" / new)
    there = Workspace(tmp_path / "elsewhere" / "data", tmp_path / "out", tmp_path / "elsewhere" / "runs")
    for jobs in (None, 2):
        model = str(tmp_path / "elsewhere" / "model")
        found = Sweep(replace(there, jobs=jobs)).run({"a": Cell(setup, {}, model, 2)})["a"]
        assert found["runs"] == folder.name
        assert not (there.runs / folder.name / "seed-0" / "model").exists()  # it was not trained again
        assert (found["curves"], found["test"]) == (uninterrupted["curves"], uninterrupted["test"])


def test_a_sweep_begins_with_the_first_seed_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = TaskSetup("ner", "entities", vectors="vectors.txt")
    cells = {str(hidden): Cell(setup, {"hidden": hidden}, mini.model(), 2) for hidden in (3, 4)}
    order: list[tuple[int, int]] = []
    monkeypatch.setattr(Sweep, "_train", lambda _, waiting: order.extend((c.config.hidden, s) for c, s in waiting))
    with pytest.raises(DataError):  # there are no scores
        Sweep(mini.workspace(tmp_path)).run(cells)
    assert order == [(3, 0), (4, 0), (3, 1), (4, 1)]


def test_the_time_is_limited(tmp_path: Path) -> None:
    words = ["--data", str(mini.data()), "--set", f"model={mini.model()}", "--set", "data=treebank"]
    ended = elmo("analyse", "pos", str(tmp_path / "tags"), *words, "--minutes", "0")
    assert (ended.code, ended.err.splitlines()[-1]) == (
        130, f"elmo: {tmp_path / 'tags'}: interrupted. Run the same command again to continue"
    )  # fmt: skip
    assert not (tmp_path / "tags" / "results.json").exists()
    ended = elmo("reproduce", str(tmp_path / "out"), "--data", str(mini.data()), "--only", "state", "--minutes", "0")
    assert ended.code == 130
    assert "elmo: state: interrupted; the same command continues" in ended.err


def test_runs_in_parallel_have_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    setup = TaskSetup(
        "ner", "entities", vectors="vectors.txt", settings=("hidden=4", "train.epochs=1", "train.device=cpu")
    )
    cells = {"a": Cell(setup, {}, mini.model(), 2)}
    one, other = mini.workspace(tmp_path / "one"), mini.workspace(tmp_path / "other")
    parallel = type(other)(other.data, other.out, other.runs, jobs=2)
    ours, theirs = (Sweep(place).run(cells)["a"] for place in (one, parallel))
    assert ours["seeds"] == theirs["seeds"] == [0, 1]
    assert ours["curves"] == theirs["curves"]
    assert ours["machines"] == theirs["machines"] == [machine()]
    assert (parallel.runs / ours["runs"] / "seed-0" / "log.txt").exists()
    assert list(parallel.runs.glob("*/seed-*/checkpoints")) == []


def test_the_small_datasets_are_those_of_the_tasks() -> None:
    small = {one["task"]: one["data"] for one in quick_configs()["tasks"]["tasks"]}
    assert set(small) == set(TASKS) - {"sentences"}  # which is not the paper's
    for name, folder in small.items():
        splits = task_named(name).read(mini.data() / folder)
        assert set(splits) == {"train", "dev", "test"}
        assert all(len(part) >= 4 for part in splits.values())


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    words = ["--set", f"model={mini.model()}", "--set", "data=treebank", "--set", "epochs=1", "--set", "seeds=1"]
    ended = elmo("analyse", "pos", str(tmp_path / "out"), "--data", str(mini.data()), *words)
    assert ended.code == 0, ended.err
    assert ended.out == (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| most frequent tag | 100.00 | 100.00 |" in ended.out
    wrong = elmo("analyse", "nothing", str(tmp_path / "x"))
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)


def test_markdown_becomes_html() -> None:
    found = report.to_html("| a | **b** |\n| --- | --- |\n| 1.5 ± 0.2 | x \\| <y> |\n\nSome *text*.\n")
    assert "<th>a</th><th><b>b</b></th>" in found
    assert '<td class="number">1.5 ± 0.2</td><td>x | &lt;y&gt;</td>' in found
    assert found.endswith("<p>Some *text*.</p>")


def test_a_long_table_is_folded_away() -> None:
    def table(rows: int) -> str:
        return report.to_html("| name | b |\n| --- | --- |\n" + "| 1 | 2 |\n" * rows)

    assert "<details>" not in table(report.LONG)
    assert "<details><summary>name (25 rows)</summary>" in table(25)
