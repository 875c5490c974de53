"""`elmo train`, `evaluate`, `predict` and `check`: from files to files."""

import json
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import elmo as library
from elmo.training.run import Run
from embedders import assert_refused, command, elmo, environment
from tasks.road import splits, write_columns, write_elmo, write_vectors

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


def test_a_task_is_trained_and_says_what_it_reached(tagger: Path) -> None:
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


def test_evaluate_without_that_part(tagger: Path, place: Path) -> None:
    assert_refused(
        elmo("evaluate", tagger, place / "entities", "--part", "all"), "entities: no all part; there is train"
    )


def test_predict_text_and_json_lines(tagger: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Anna left for Lima.\n\nBela saw Oslo.\n", encoding="utf-8")
    (tmp_path / "items.jsonl").write_text('{"tokens": ["Anna", "left", "for", "Lima", "."]}\n["Bela"]\n')
    text = [json.loads(line) for line in elmo("predict", tagger, tmp_path / "text.txt").out.splitlines()]
    assert [line["tokens"] for line in text] == [["Anna", "left", "for", "Lima", "."], ["Bela", "saw", "Oslo", "."]]
    ended = elmo("predict", tagger, tmp_path / "items.jsonl", "--output", tmp_path / "out.jsonl")
    assert (ended.code, ended.out) == (0, "")
    items = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert items[0] == text[0]
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
    """The biLM it needs is in its folder, where it is none of the package's."""
    tagger.rename(tmp_path / "moved")
    try:
        assert library.load_task(tmp_path / "moved", "cpu").predict(["Anna left ."])
    finally:
        (tmp_path / "moved").rename(tagger)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "words.txt"])
def test_a_folder_that_is_no_task(name: str, tagger: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tagger, tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    assert_refused(elmo("predict", tmp_path / "model", "-"), "model: not a trained task that can be read")


def test_a_language_model_is_no_trained_task(place: Path) -> None:
    assert_refused(elmo("predict", place / "elmo", "-"), "elmo: not a trained task that can be read")


def test_seeds_side_by_side_and_their_report(place: Path, tmp_path: Path) -> None:
    arguments = ["ner", place / "entities", tmp_path / "out", *inputs(place), "--set", "train.epochs=2"]
    variables = environment(ELMO_CACHE=str(place / "cache"))
    ended = subprocess.run(
        command("train", *arguments, "--seeds", "2", "--jobs", "2"),
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    each = [Run.open(tmp_path / "out" / f"seed-{seed}").record["scores"] for seed in (0, 1)]
    assert each[0] != each[1]
    for part in ("dev", "test"):
        values = [scores[part]["f1"] for scores in each]
        found = report["scores"][part]["f1"]
        assert found == pytest.approx({"mean": sum(values) / 2, "sd": statistics.stdev(values)})
        assert f"{part} f1 {found['mean']:.2f} ± {found['sd']:.2f}" in ended.stderr
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    again = subprocess.run(
        command("train", *arguments, "--seeds", "2"), env=variables, capture_output=True, timeout=300
    )
    assert again.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == before


def test_a_seed_that_fails_is_named(place: Path, tmp_path: Path) -> None:
    arguments = ["ner", place / "entities", tmp_path / "out", *inputs(place), "--set", "train.learning_rate=1e30"]
    ended = subprocess.run(
        command("train", *arguments, "--seeds", "2", "--set", "train.clip_norm=none"),
        env=environment(ELMO_CACHE=str(place / "cache")), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("elmo: seed 0 ended with 2: epoch ")


def test_an_interrupted_training_goes_on(place: Path, tmp_path: Path) -> None:
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
    assert f"elmo: interrupted; everything is saved in {tmp_path / 'run'}, --resume goes on" in said.decode()
    done = len(Run(tmp_path / "run").metrics())
    ended = elmo("train", *arguments, *more, "--resume", "--set", f"train.epochs={done + 1}")
    assert ended.code == 0, ended.err
    assert [line["step"] for line in Run(tmp_path / "run").metrics()] == list(range(1, done + 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parsing"], "parsing: no such task; expected ner, sst, snli, or a folder with a model.py of your own"),
        (["ner", "--set", "train.epoch=3"], "unknown field 'train.epoch'; did you mean 'train.epochs'?"),
        (["ner"], ": none of train.txt, eng.train,"),
    ],
)
def test_what_cannot_be_trained(arguments: list[str], message: str, tmp_path: Path) -> None:
    name, *rest = arguments
    assert_refused(elmo("train", name, tmp_path, tmp_path / "out", *rest), message)
    assert not (tmp_path / "out").exists()


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
    ended = elmo("check", tmp_path / "ner.toml", "--show")
    assert (ended.code, ended.err) == (0, "")
    assert f"{tmp_path / 'ner.toml'}: a recipe for ner" in ended.out
    for line in ("hidden = 100", "inputs.elmo.placement = both", "train.epochs = 3", "inputs.elmo.mix_l2 = 0.1"):
        assert f"  {line}\n" in ended.out
    (tmp_path / "pretrain.toml").write_text("steps = 3\n")
    assert "pretrain.toml: a recipe for pretraining" in elmo("check", tmp_path / "pretrain.toml").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECIPE, "ner.toml: inputs.vectors is 'VECTORS'; there is no such file"),
        ("task = 'ner'\nhiden = 1", "ner.toml: unknown field 'hiden'; did you mean 'hidden'?"),
        ("task = 1", "ner.toml: task is 1; expected a task's name"),
        ("task = 'x'", "ner.toml: x: no such task"),
        ("task = ", "ner.toml: not TOML"),
    ],
)
def test_check_refuses_what_would_fail_later(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "ner.toml").write_text(text)
    assert_refused(elmo("check", tmp_path / "ner.toml"), message)


def test_a_recipe_of_another_task(place: Path, tmp_path: Path) -> None:
    (tmp_path / "ner.toml").write_text('task = "sst"\n')
    ended = elmo("train", "ner", place / "entities", tmp_path / "out", "--config", tmp_path / "ner.toml")
    assert_refused(ended, "ner.toml: a recipe for sst, not for ner")


def recipes() -> list[Any]:
    return sorted((Path(__file__).parents[2] / "experiments").rglob("*.toml"))


@pytest.mark.parametrize("path", recipes(), ids=lambda path: path.name)
def test_every_recipe_of_ours_can_be_read(path: Path) -> None:
    ended = elmo("check", path)
    assert ended.code == 0 or "inputs.vectors" in ended.err, ended.err
