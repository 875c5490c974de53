"""`elmo train`, `evaluate`, `predict` and `check`: from files to files."""

import contextlib
import errno
import json
import os
import shutil
import signal
import statistics
import subprocess
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import elmo as library
from elmo.cli.progress import EpochReport
from elmo.config import build
from elmo.errors import WeightsError
from elmo.files import locked
from elmo.pretrain.config import PretrainConfig
from elmo.tasks.recipe import recipe as recipe_of
from elmo.training.run import Run
from embedders import Finished, assert_refused, command, elmo, environment, nothing_new_in
from tasks.small_ner import splits, write_columns, write_elmo, write_vectors

SMALL = [
    "hidden=8", "n_layers=1", "dropout=0", "inputs.characters.filters=6", "inputs.characters.dim=4",
    "train.batch_size=4", "train.device=cpu", "train.learning_rate=2e-2",
]  # fmt: skip


def sets(*assignments: str) -> list[str]:
    return [part for assignment in (*SMALL, *assignments) for part in ("--set", assignment)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, vectors, a biLM, and a tagger that was trained with them."""
    place = tmp_path_factory.mktemp("tasks")
    write_columns(place / "entities", splits(40, 12, 12))
    write_vectors(place / "glove.txt")
    write_elmo(place / "elmo")
    return place


def inputs(place: Path) -> list[str]:
    return sets(f"inputs.elmo.model={place / 'elmo'}", f"inputs.vectors={place / 'glove.txt'}")


@pytest.fixture(scope="module")
def tagger(place: Path) -> Path:
    arguments = ["ner", place / "entities", place / "run", *inputs(place), "--set", "train.epochs=20"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ELMO_CACHE", str(place / "cache"))
        ended = elmo("train", *arguments)
    assert ended.code == 0, ended.err
    return place / "run" / "model"


def test_a_task_is_trained_and_records_its_scores(tagger: Path) -> None:
    record = Run.open(tagger.parent).record
    assert record["scores"]["dev"]["f1"] > 80
    assert set(record["scores"]) == {"dev", "test"}
    lines = Run(tagger.parent).metrics()
    assert len(lines) == 20
    assert lines[-1]["mixes"]["input"]["gamma"] != 1.0


def test_evaluate_finds_the_score_it_was_saved_with(tagger: Path, place: Path) -> None:
    saved = json.loads((tagger / "config.json").read_text())["scores"]
    for part in ("dev", "test"):
        ended = elmo("evaluate", tagger, place / "entities", "--part", part, "--device", "cpu", "--json")
        assert json.loads(ended.out) == pytest.approx(saved[part])
    shown = elmo("evaluate", tagger, place / "entities", "--device", "cpu").out
    assert f"f1              {saved['test']['f1']:>8.2f}" in shown


def test_predictions_that_are_written_have_the_same_scores(tagger: Path, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.txt"
    ended = elmo("evaluate", tagger, place / "entities", "--device", "cpu", "--json", "--output", out)
    again = elmo("evaluate", "ner", place / "entities" / "test.txt", "--predictions", out, "--json")
    assert json.loads(ended.out) == json.loads(again.out)
    assert len(out.read_text().splitlines()[0].split(" ")) == 3
    kept = out.read_bytes()
    assert_refused(elmo("evaluate", tagger, place / "entities", "--output", out), "exists already")
    assert out.read_bytes() == kept


def test_evaluate_without_that_part(tagger: Path, place: Path) -> None:
    ended = elmo("evaluate", tagger, place / "entities", "--part", "all")
    assert_refused(ended, "entities: no all part; expected train or dev or test")


def test_predict_text_and_json_lines(tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Anna left for Lima.\n\nBela saw Oslo.\n", encoding="utf-8")
    (tmp_path / "items.jsonl").write_text('{"tokens": ["Anna", "left", "for", "Lima", "."]}\n["Bela"]\n')
    text = [json.loads(line) for line in elmo("predict", tagger, tmp_path / "text.txt").out.splitlines()]
    assert text.pop(1) == {"line": 2, "blank": True}
    assert [line.pop("line") for line in text] == [1, 3]
    assert [line["tokens"] for line in text] == [["Anna", "left", "for", "Lima", "."], ["Bela", "saw", "Oslo", "."]]
    ended = elmo("predict", tagger, tmp_path / "items.jsonl", "--output", tmp_path / "out.jsonl")
    assert (ended.code, ended.out) == (0, "")
    items = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert items[0] == {"line": 1, **text[0]}
    assert items[1]["tokens"] == ["Bela"]
    loaded = library.load_task(tagger, "cpu")
    assert loaded.predict(["Anna left for Lima.", "Bela saw Oslo."]) == text
    assert loaded.labels == ["O", *(f"{mark}-{kind}" for kind in ("LOC", "PER") for mark in "BIUL")]
    assert loaded.scores["dev"]["f1"] > 80


def test_predict_standard_input(tagger: Path) -> None:
    ended = elmo("predict", tagger, "-", stdin=[b"Anna left .\n"])
    assert json.loads(ended.out)["tokens"] == ["Anna", "left", "."]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{", "items.jsonl: line 1 is not JSON"),
        ("[]", "items.jsonl: line 1: []: expected a sentence, a list of tokens"),
        ('{"words": 1}', "expected a sentence, a list of tokens, or an object with 'text' or 'tokens'"),
    ],
)
def test_what_cannot_be_predicted(lines: str, message: str, tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(lines + "\n")
    assert_refused(elmo("predict", tagger, tmp_path / "items.jsonl", "--output", tmp_path / "out.jsonl"), message)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_exists_is_not_overwritten(tagger: Path, tmp_path: Path) -> None:
    for name in ("in.txt", "out.jsonl"):
        (tmp_path / name).write_text("mine\n")
    assert_refused(elmo("predict", tagger, tmp_path / "in.txt", "--output", tmp_path / "out.jsonl"), "exists")
    assert (tmp_path / "out.jsonl").read_text() == "mine\n"


def test_a_trained_task_loads_anywhere(tagger: Path, tmp_path: Path) -> None:
    """The biLM that it needs is in its folder, unless it comes with the package."""
    tagger.rename(tmp_path / "moved")
    try:
        assert library.load_task(tmp_path / "moved", "cpu").predict(["Anna left ."])
    finally:
        (tmp_path / "moved").rename(tagger)


def test_the_folder_of_a_run_is_not_its_model(tagger: Path, place: Path, tmp_path: Path) -> None:
    run = tagger.parent
    ended = elmo("evaluate", run, place / "entities")
    assert_refused(ended, f"{run}: the folder of a run, not of a trained task; give {tagger}")
    (tmp_path / "run").mkdir()
    shutil.copy(run / "run.json", tmp_path / "run")
    hint = f"the run has not finished, there is no {tmp_path / 'run' / 'model'} yet"
    message = f"{tmp_path / 'run'}: the folder of a run, not of a trained task; {hint}"
    with pytest.raises(WeightsError) as refused:
        library.load_task(tmp_path / "run")
    assert str(refused.value) == message


def test_a_language_model_is_no_trained_task(place: Path) -> None:
    assert_refused(elmo("predict", place / "elmo", "-"), "config.json: not a trained task: model_type is 'elmo'")


# Several seeds


def train_seeds(place: Path, out: Path, *more: object, task: str = "ner", data: str = "entities") -> Finished:
    arguments = [task, place / data, out, *(inputs(place) if task == "ner" else []), "--set", "train.epochs=2", *more]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ELMO_CACHE", str(place / "cache"))
        return elmo("train", *arguments)


@pytest.fixture(scope="module")
def two_seeds(place: Path) -> Path:
    """Seeds 0 and 1, trained side by side."""
    ended = train_seeds(place, place / "seeds", "--seeds", 2, "--jobs", 2)
    assert ended.code == 0, ended.err
    assert ended.out == ""
    report = json.loads((place / "seeds" / "report.json").read_text())
    for part, scores in report["scores"].items():
        assert f"{part} f1 {scores['f1']['mean']:.2f} ± {scores['f1']['sd']:.2f}" in ended.err
    return place / "seeds"


def test_seeds_side_by_side_and_their_report(two_seeds: Path, place: Path, tmp_path: Path) -> None:
    report = json.loads((two_seeds / "report.json").read_text())
    each = [Run.open(two_seeds / f"seed-{seed}").record["scores"] for seed in (0, 1)]
    assert each[0] != each[1]
    for part in ("dev", "test"):
        values = [scores[part]["f1"] for scores in each]
        assert report["scores"][part]["f1"] == pytest.approx({"mean": sum(values) / 2, "sd": statistics.stdev(values)})
    assert (two_seeds / "seed-1" / "log.txt").read_text().startswith("epoch 1: loss ")
    alone = train_seeds(place, tmp_path / "one", "--set", "train.seed=1")
    assert alone.code == 0, alone.err
    assert Run.open(tmp_path / "one").record["scores"] == each[1]


def test_finished_seeds_are_not_trained_again(two_seeds: Path, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(two_seeds, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    again = train_seeds(place, out, "--seeds", 2)
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    more = train_seeds(place, out, "--seeds", 3)
    assert more.code == 0, more.err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    report = json.loads((out / "report.json").read_text())
    assert list(report["each"]) == ["0", "1", "2"]
    assert "3 seeds" in more.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "train.learning_rate=0.5"], "the run was started with train.learning_rate 0.02, not 0.5."),
        (["--set", "train.epochs=3"], "the run was started with train.epochs 2, not 3."),
        (["--set", "inputs.elmo.placement=none"], "the run was started with inputs.elmo.placement input, not none."),
    ],
)
def test_seeds_of_another_recipe(more: list[str], message: str, two_seeds: Path, place: Path) -> None:
    """Their scores are not the result of this command."""
    with nothing_new_in(two_seeds):
        assert_refused(train_seeds(place, two_seeds, "--seeds", 2, *more), f"{two_seeds / 'seed-0'}: {message}")


def test_seeds_are_not_resumed_by_an_option(two_seeds: Path, place: Path) -> None:
    message = "--resume continues one run; to continue --seeds, run the same command again without it"
    with nothing_new_in(two_seeds):
        assert_refused(train_seeds(place, two_seeds, "--seeds", 2, "--resume"), message)


def test_seeds_on_other_data(two_seeds: Path, place: Path) -> None:
    write_columns(place / "others", splits(39, 12, 12))
    message = f"others: not the data that the run in {two_seeds / 'seed-0'} was started with; its content has changed"
    with nothing_new_in(two_seeds):
        assert_refused(train_seeds(place, two_seeds, "--seeds", 2, data="others"), message)


def test_seeds_of_another_task(two_seeds: Path, place: Path) -> None:
    (place / "trees").mkdir(exist_ok=True)
    for part in ("train", "dev", "test"):
        (place / "trees" / f"{part}.txt").write_text("(3 (2 It) (4 (2 's) (3 fun)))\n")
    options = ["--set", f"inputs.elmo.model={place / 'elmo'}", "--set", "train.device=cpu"]
    with nothing_new_in(two_seeds):
        ended = train_seeds(place, two_seeds, "--seeds", 2, *options, task="sst", data="trees")
        assert_refused(ended, f"{two_seeds / 'seed-0'} contains a run of ner, not of sst. Choose another folder")


def test_seeds_in_the_folder_of_one_run(tagger: Path, place: Path) -> None:
    ended = train_seeds(place, tagger.parent, "--seeds", 2)
    assert_refused(ended, f"{tagger.parent} already contains a run of one seed. Choose another folder")


def test_interrupted_seeds_continue(two_seeds: Path, place: Path, tmp_path: Path) -> None:
    """Seed 0 is done, seed 1 was killed after its first epoch: the same command ends in the same report."""
    out = tmp_path / "out"
    shutil.copytree(two_seeds, out)
    (out / "report.json").unlink()
    shutil.rmtree(out / "seed-1")
    ended = elmo(
        "train", "ner", place / "entities", out / "seed-1", *inputs(place), "--set", "train.seed=1", "--set",
        "train.epochs=1",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    shutil.rmtree(out / "seed-1" / "model")
    record = json.loads((out / "seed-1" / "run.json").read_text())
    record = {name: value for name, value in record.items() if name not in ("scores", "best_epoch")}
    record["config"]["train"]["epochs"] = 2
    (out / "seed-1" / "run.json").write_text(json.dumps(record))
    again = train_seeds(place, out, "--seeds", 2)
    assert again.code == 0, again.err
    reports = [json.loads((folder / "report.json").read_text()) for folder in (out, two_seeds)]
    assert reports[0]["scores"] == reports[1]["scores"]


def test_a_seed_that_fails_is_named(place: Path, tmp_path: Path) -> None:
    more = ["--set", "train.learning_rate=1e30", "--set", "train.clip_norm=none"]
    ended = train_seeds(place, tmp_path / "out", "--seeds", 2, *more)
    assert_refused(ended, "elmo: seed 0: epoch ", f"is in {tmp_path / 'out' / 'seed-0' / 'log.txt'}")


def test_an_interrupted_training_is_resumed(place: Path, tmp_path: Path) -> None:
    arguments = ["ner", place / "entities", tmp_path / "run", *inputs(place), "--set", "train.epochs=400"]
    more = ["--set", "train.patience=none"]
    process = subprocess.Popen(
        command("train", *arguments, *more), env=environment(ELMO_CACHE=str(place / "cache")), stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 120
    while len(Run(tmp_path / "run").metrics()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    done = len(Run(tmp_path / "run").metrics())
    expected = f"elmo: {tmp_path / 'run'}: interrupted after epoch {done}. Use --resume to continue from there\n"
    assert said.decode().endswith(expected)
    # Without its recipe, which is recorded.
    ended = elmo("train", *arguments[:3], "--resume", "--set", f"train.epochs={done + 1}")
    assert ended.code == 0, ended.err
    assert [line["step"] for line in Run(tmp_path / "run").metrics()] == list(range(1, done + 2))


@pytest.mark.parametrize("seeds", [1, 2])
def test_another_process_that_writes_the_same_run(seeds: int, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with locked(out), nothing_new_in(tmp_path):
        ended = train_seeds(place, out, "--seeds", seeds)
        assert_refused(ended, f"{out}: another process is writing it. Wait until it ends, or choose another name")


# A full disk, damaged files


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "step-00000002", "model"])
def test_a_disk_that_is_full(name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the file; when there is room again, the run continues to the same end."""
    out, recipe = tmp_path / "run", [*inputs(place), "--set", "train.epochs=3"]
    assert elmo("train", "ner", place / "entities", tmp_path / "whole", *recipe).code == 0
    fsync, opened = os.fsync, Path.open

    def full(file: int) -> None:
        path = str(Path(f"/proc/self/fd/{file}").readlink()).replace("/.", "/")
        if f"/{name}." in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    def full_log(self: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        return opened(Path("/dev/full") if self.name == name and mode == "a" else self, mode, *rest, **more)

    with monkeypatch.context() as patched:
        if name == "metrics.jsonl":
            patched.setattr(Path, "open", full_log)
        else:
            patched.setattr(os, "fsync", full)
        ended = elmo("train", "ner", place / "entities", out, *recipe)
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err
    where = f"{tmp_path}/run/checkpoints/{name}" if name.startswith("step") else f"{tmp_path}/run/{name}"
    assert ended.err.splitlines()[-1].startswith(f"elmo: {where}")
    assert ended.err.endswith(": the disk is full; nothing was written. Free some space first\n")
    assert list(tmp_path.rglob(".*")) == []
    again = elmo("train", "ner", place / "entities", out, *(recipe if name == "run.json" else ["--resume"]))
    assert again.code == 0, again.err
    ours, theirs = (load_file(folder / "model" / "model.safetensors") for folder in (out, tmp_path / "whole"))
    assert all(torch.equal(ours[tensor], value) for tensor, value in theirs.items())


def test_a_disk_that_is_full_for_the_report(
    two_seeds: Path, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(two_seeds, tmp_path / "out")
    before = (tmp_path / "out" / "report.json").read_bytes()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ended = train_seeds(place, tmp_path / "out", "--seeds", 2)
    assert_refused(ended, "out/report.json: the disk is full; nothing was written. Free some space first")
    assert (tmp_path / "out" / "report.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", b"{", "run.json: damaged ("),
        ("metrics.jsonl", b"{\n", "metrics.jsonl: line 1 is damaged (b'{')"),
        ("checkpoints/step-00000002/training.json", b"{}", "step-00000002: a damaged checkpoint (KeyError: 'progress'"),
        ("checkpoints/step-00000002/training.safetensors", b"", "step-00000002: a damaged checkpoint ("),
    ],
)
def test_damaged_files_of_a_run(
    name: str, content: bytes, message: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupt(patched, 25)
        elmo("train", "ner", place / "entities", tmp_path / "run", *inputs(place))
    (tmp_path / "run" / name).write_bytes(content)
    assert_refused(elmo("train", "ner", place / "entities", tmp_path / "run", "--resume"), message)


def interrupt(patched: pytest.MonkeyPatch, at: int) -> None:
    """Send this process SIGINT after a batch, counted over all epochs."""
    stepped, seen = EpochReport.stepped, []

    def interrupting(self: EpochReport) -> None:
        stepped(self)
        seen.append(1)
        if len(seen) == at:
            signal.raise_signal(signal.SIGINT)

    patched.setattr(EpochReport, "stepped", interrupting)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (4, "interrupted in the first epoch; nothing is saved yet. Use --resume to start over"),
        (15, "interrupted after epoch 1. Use --resume to continue from there"),
    ],
)
def test_a_resumed_training_knows_its_recipe(
    at: int, message: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten batches make an epoch. The recipe is not given again, and is not the default one."""
    recipe = [*inputs(place), "--set", "train.epochs=3"]
    assert elmo("train", "ner", place / "entities", tmp_path / "whole", *recipe).code == 0
    with monkeypatch.context() as patched:
        interrupt(patched, at)
        ended = elmo("train", "ner", place / "entities", tmp_path / "run", *recipe)
    assert ended.code == 130
    assert ended.err.endswith(f"elmo: {tmp_path / 'run'}: {message}\n")
    resumed = elmo("train", "ner", place / "entities", tmp_path / "run", "--resume")
    assert resumed.code == 0, resumed.err
    records = [Run.open(tmp_path / name).record for name in ("run", "whole")]
    assert records[0]["config"] == records[1]["config"]
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "whole"))
    assert sorted(ours) == sorted(theirs)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_nothing_to_resume(place: Path, tmp_path: Path) -> None:
    with nothing_new_in(tmp_path):
        ended = elmo("train", "ner", place / "entities", tmp_path / "run", *inputs(place), "--resume")
        assert_refused(ended, "run: nothing to resume, no run.json in it. Train without --resume first")


@pytest.mark.parametrize("wrong", ["shorter", "labels", "vectors", "biLM", "task", "recipe"])
def test_a_training_is_resumed_with_what_it_was_started_with(
    wrong: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter file was accepted, other labels were a traceback."""
    shutil.copy(place / "glove.txt", tmp_path / "glove.txt")
    shutil.copytree(place / "elmo", tmp_path / "elmo")
    shutil.copytree(place / "entities", tmp_path / "entities")
    with monkeypatch.context() as patched:
        interrupt(patched, 25)
        ended = elmo("train", "ner", tmp_path / "entities", tmp_path / "run", *inputs(tmp_path))
    assert "interrupted after epoch 2" in ended.err
    train = tmp_path / "entities" / "train.txt"
    task, more, where = "ner", [], tmp_path / "entities"
    message = f": not the data that the run in {tmp_path / 'run'} was started with; its content has changed since."
    if wrong == "shorter":
        train.write_text(train.read_text()[:-200])
    elif wrong == "labels":
        train.write_text(train.read_text().replace("-LOC", "-CITY"))
    elif wrong == "vectors":
        where = tmp_path / "glove.txt"
        write_vectors(where, dim=7)
        message = message.replace("the data", "the vectors")
    elif wrong == "biLM":
        where = tmp_path / "elmo"
        tensors = load_file(where / "model.safetensors")
        tensors = {name: value + 1e-3 if name.endswith("bias") else value for name, value in tensors.items()}
        save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
        message = message.replace("the data", "the biLM")
    elif wrong == "task":
        task, where = "sst", tmp_path / "run"
        message = " contains a run of ner, not of sst. Choose another folder"
    else:
        more, where = ["--set", "hidden=9"], tmp_path / "run"
        message = ": the run was started with hidden 8, not 9. Give the same recipe (only train.epochs, train.patience"
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    ended = elmo("train", task, tmp_path / "entities", tmp_path / "run", "--resume", *more)
    assert_refused(ended, f"{where}{message}")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parsing"], "parsing: no such task; expected squad, snli, srl, "),
        (["ner"], ": contains no file of the task; expected some of train.txt, eng.train,"),
    ],
)
def test_what_cannot_be_trained(arguments: list[str], message: str, tmp_path: Path) -> None:
    name, *rest = arguments
    assert_refused(elmo("train", name, tmp_path, tmp_path / "out", *rest), message)
    assert not (tmp_path / "out").exists()


ELMO = "task = 'ner'\n[inputs.elmo]\nmodel = "
RECIPE = """
task = "ner"
hidden = 100
[inputs]
vectors = "VECTORS"
[inputs.elmo]
placement = "both"
[train]
epochs = 3
"""


def test_check_reads_a_recipe_and_runs_nothing(place: Path, tmp_path: Path) -> None:
    (tmp_path / "ner.toml").write_text(RECIPE.replace("VECTORS", str(place / "glove.txt")))
    ended = elmo("check", tmp_path / "ner.toml")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"{tmp_path / 'ner.toml'}: a recipe for ner\n"
    (tmp_path / "pretrain.toml").write_text("steps = 3\n")
    assert "pretrain.toml: a recipe for pretraining" in elmo("check", tmp_path / "pretrain.toml").out


def test_check_shows_a_recipe_that_can_be_read_back(place: Path, tmp_path: Path) -> None:
    """As TOML, with every field: the defaults, and those without a value too."""
    (tmp_path / "ner.toml").write_text(RECIPE.replace("VECTORS", str(place / "glove.txt")))
    (tmp_path / "bilm.toml").write_text('steps = 3\nnegatives = "none"\n[model]\nchar_cnn = "none"\n')
    for name in ("ner.toml", "bilm.toml"):
        shown = elmo("check", tmp_path / name, "--show")
        assert shown.code == 0, shown.err
        (tmp_path / "shown.toml").write_text(shown.out)
        again = elmo("check", tmp_path / "shown.toml", "--show")
        assert again.out.replace("shown.toml", name) == shown.out
        if name == "ner.toml":
            values = tomllib.loads(shown.out)
            assert values.pop("task") == "ner"
            task, config = recipe_of("ner", tmp_path / name)
            assert build(task.config, values) == config == recipe_of("ner", tmp_path / "shown.toml")[1]
            assert (values["hidden"], values["train"]["patience"], values["train"]["ema"]) == (100, 25, "none")
        else:
            assert PretrainConfig.load(None, tmp_path / "shown.toml") == PretrainConfig.load(None, tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECIPE, "ner.toml: inputs.vectors is 'VECTORS'; there is no such file"),
        (f"{ELMO}'tuned/model'", "ner.toml: inputs.elmo.model is 'tuned/model'; there is no such file or folder"),
        (f"{ELMO}'damaged'", "ner.toml: inputs.elmo.model: damaged/config.json: not JSON"),
        ("task = 'ner'\nhiden = 1", "ner.toml: unknown field 'hiden'; did you mean 'hidden'?"),
        ("task = ", "ner.toml: not TOML"),
    ],
)
def test_check_refuses_what_would_fail_later(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "ner.toml").write_text(text)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    with contextlib.chdir(tmp_path):
        assert_refused(elmo("check", tmp_path / "ner.toml"), message)


def recipes() -> list[Any]:
    return sorted((Path(__file__).parents[2] / "experiments").rglob("*.toml"))


@pytest.mark.parametrize("path", recipes(), ids=lambda path: path.name)
def test_every_recipe_of_ours_can_be_read(path: Path) -> None:
    ended = elmo("check", path)
    assert ended.code == 0 or "there is no such file" in ended.err, ended.err
