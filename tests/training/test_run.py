"""A run's folder: begun once, logged line by line, whatever moment it was killed in."""

import errno
import json
import os
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.errors import ConfigError, DataError
from elmo.training.run import Request, Run, Source, fingerprint_of_file, fingerprint_of_tensors


@dataclass(frozen=True)
class Part:
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Config:
    learning_rate: float = 0.2
    negatives: int | None = None
    part: Part = field(default_factory=Part)


def request(learning_rate: float = 0.2, task: str = "pretrain", fingerprint: str = "0123", **more: Any) -> Request:
    config = Config(learning_rate, more.pop("negatives", None))
    return Request(task, config, {"corpus": Source("here/corpus", fingerprint)}, ("negatives",), **more)


def begin(folder: Path, **facts: Any) -> Run:
    run = Run(folder)
    run.begin(request(), **facts)
    return run


def test_a_new_run_records_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/elmo", "pretrain", "corpus", "out"])
    folder = tmp_path / "deep" / "run"
    run = begin(folder, negatives=3)
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert record == {
        "command": ["elmo", "pretrain", "corpus", "out"],
        "versions": {
            "elmo-torch": elmo.__version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            "torch": version("torch"),
            "numpy": np.__version__,
        },
        "task": "pretrain",
        "sources": {"corpus": {"path": "here/corpus", "fingerprint": "0123"}},
        "negatives": 3,
        "config": {"learning_rate": 0.2, "negatives": None, "part": {"sizes": [1, 2]}},
    }
    assert record["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert run.record == record
    assert Run.open(folder).record == record
    assert run.metrics() == []


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin(folder).log(step=1)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(DataError) as refused:
        begin(folder)
    assert str(refused.value) == (
        f"{folder} already contains a run. Use --resume to continue it, or choose another folder"
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_of_other_things_may_become_a_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    begin(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "run.json"]


@pytest.mark.parametrize("name", ["none", "file"])
def test_a_folder_without_a_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError) as refused:
        Run.open(tmp_path / name)
    assert str(refused.value) == f"{tmp_path / name}: no run.json in it; expected the folder of a run"


def test_facts_are_added_to_the_record(tmp_path: Path) -> None:
    run = begin(tmp_path, corpus="a")
    before = run.record
    run.add(best=39.7, corpus="b")
    assert run.record == {**before, "best": 39.7, "corpus": "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_what_is_logged_is_read_again_to_the_bit(tmp_path: Path) -> None:
    run = begin(tmp_path)
    lines = [
        {"step": 1, "loss": 0.1 + 0.2, "time": 1.7e9},
        {"step": 2, "loss": 1e-300, "backward": None, "text": "zwei\nZeilen \u2028 \x85 ü"},
        {"step": 3, "loss": float("inf")},
    ]
    for line in lines:
        run.log(**line)
    assert Run.open(tmp_path).metrics() == lines


@pytest.mark.parametrize("cut", range(1, 27))
def test_a_line_that_was_being_written_is_left_out(tmp_path: Path, cut: int) -> None:
    run = begin(tmp_path)
    for step in (1, 2):
        run.log(step=step, word="ü", loss=0.5)
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert run.metrics() == [{"step": 1, "word": "ü", "loss": 0.5}]


def test_after_half_a_line_a_resumed_run_logs_whole_ones(tmp_path: Path) -> None:
    """As a training resumes: what came after its checkpoint is forgotten, half a line with it, then it goes on."""
    run = begin(tmp_path)
    for step in (1, 2, 3):
        run.log(step=step)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    run.forget_after(2)
    run.log(step=3, again=True)
    assert run.metrics() == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


@pytest.mark.parametrize(("step", "kept"), [(0, []), (15, [10]), (20, [10, 20, 20]), (99, [10, 20, 20, 30])])
def test_what_came_after_a_step_is_forgotten(tmp_path: Path, step: int, kept: list[int]) -> None:
    run = begin(tmp_path)
    for number in (10, 20, 20, 30):  # a step may have a line of training and one of evaluation
        run.log(step=number, loss=1 / 3)
    run.forget_after(step)
    assert [line["step"] for line in run.metrics()] == kept
    assert all(line["loss"] == 1 / 3 for line in run.metrics())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "run.json"]


def test_to_forget_where_nothing_was_logged_is_no_mistake(tmp_path: Path) -> None:
    run = begin(tmp_path)
    run.forget_after(5)
    assert run.metrics() == []
    run.log(step=6)
    assert run.metrics() == [{"step": 6}]


@pytest.mark.parametrize("line", [b"{not json", b"3", b"{}", b'{"step": "1"}', b"\xff\xfe", b""])
def test_a_damaged_line_in_the_middle_is_named(line: bytes, tmp_path: Path) -> None:
    run = begin(tmp_path)
    run.log(step=1)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    run.log(step=2)
    for use in (run.metrics, lambda: run.forget_after(1)):
        with pytest.raises(DataError, match=r"metrics\.jsonl: line 2 is damaged \(.*\); .* Remove the line$"):
            use()


@pytest.mark.parametrize("text", ["{", "", "\udcff", "[" * 100_000])
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    run = begin(tmp_path)
    (tmp_path / "run.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    for use in (lambda: run.record, lambda: run.resume(request()), lambda: run.config_of("pretrain")):
        with pytest.raises(DataError, match=r"run\.json: damaged \(.*\)\. Restore it, or choose another folder$"):
            use()


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "{}", '{"task": "ner", "config": {}}', '{"task": "pretrain", "config": {}, "sources": {"corpus": []}}'),
        '{"task": "pretrain", "config": {}, "sources": {"corpus": {"path": "a"}}}',
    ],
)
def test_a_record_of_something_else(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(DataError, match=r"run\.json: not the record of a run"):
        Run(tmp_path).resume(request())


# Resuming


def test_an_equal_request_is_resumed_and_fields_that_may_change_are_recorded(tmp_path: Path) -> None:
    run = begin(tmp_path)
    for step in (1, 2):
        run.log(step=step)
    changed = request(negatives=5)
    assert run.resume(changed) is None  # no checkpoint was saved
    run.rewind(changed, 1)
    assert run.record["config"]["negatives"] == 5
    assert run.metrics() == [{"step": 1}]
    for step in (10, 9):
        (tmp_path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    saved = run.resume(request())
    assert saved is not None and saved.step == 10


def test_nothing_to_resume(tmp_path: Path) -> None:
    for use in (lambda run: run.resume(request()), lambda run: run.config_of("pretrain")):
        with pytest.raises(DataError) as refused:
            use(Run(tmp_path / "run"))
        assert str(refused.value) == (
            f"{tmp_path / 'run'}: nothing to resume, no run.json in it. Train without --resume first"
        )
    assert not (tmp_path / "run").exists()


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    with pytest.raises(ConfigError) as refused:
        run.resume(request(learning_rate=0.3))
    assert str(refused.value) == (
        f"{tmp_path / 'run'}: the run was started with learning_rate 0.2, not 0.3. Give the same recipe (only "
        "negatives may change), or choose another folder"
    )


def test_another_task_is_refused(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    with pytest.raises(ConfigError) as refused:
        run.resume(request(task="ner"))
    message = "contains a run of pretrain, not of ner. Choose another folder"
    assert str(refused.value) == f"{tmp_path / 'run'} {message}"


def test_other_data_are_refused(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    with pytest.raises(DataError) as refused:
        run.resume(request(fingerprint="4567"))
    assert str(refused.value) == (
        f"here/corpus: not the corpus that the run in {tmp_path / 'run'} was started with; its content has changed "
        "since. Give the same corpus, or choose another folder"
    )
    for sources in ({}, {**request().sources, "model": Source("m", "1")}):
        with pytest.raises(DataError, match=r"not the (corpus|model) that the run in"):
            run.resume(Request("pretrain", Config(), sources))


def test_checkpoints_without_a_record_are_not_overwritten(tmp_path: Path) -> None:
    """Their steps would be taken for those of the new run."""
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(DataError) as refused:
        begin(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path / 'checkpoints'}: exists already, without the run.json of a run that could be resumed. Move it "
        "away, or choose another folder"
    )


@pytest.mark.parametrize("name", ["model", "metrics.jsonl"])
@pytest.mark.parametrize("link", [True, False])
def test_files_of_the_user_that_a_run_would_replace_are_kept(name: str, link: bool, tmp_path: Path) -> None:
    """The end of the run would have removed `model`; its lines would have been mixed with those of another log."""
    out, mine = tmp_path / "out", tmp_path / "mine"
    out.mkdir()
    place = mine if link else out / name
    if name == "model":
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    else:
        place.write_text('{"step": 1}\n')
    if link:
        (out / name).symlink_to(place)
    with pytest.raises(DataError, match=rf"out/{name}: exists already, without the run\.json of a run that could be"):
        begin(out)
    assert [path.name for path in out.iterdir()] == [name]


def test_a_link_that_leads_nowhere_is_in_the_way_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"model: exists already, without the run\.json"):
        begin(tmp_path)


def test_the_result_replaces_an_older_one_and_what_a_killed_run_left(tmp_path: Path) -> None:
    run = begin(tmp_path)
    for name in (".model.abc", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    run.export(lambda folder: (folder / "new").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "run.json"]
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["new"]


def test_an_older_result_stays_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if that is found out only when the new one is complete."""
    run = begin(tmp_path)
    run.export(lambda folder: (folder / "old").touch())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"model: the disk is full; nothing was written"):
        run.export(lambda folder: (folder / "new").touch())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "run.json"]
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["old"]


def test_files_and_tensors_have_fingerprints(tmp_path: Path) -> None:
    path = tmp_path / "file"
    found = set()
    for content in (b"", b"a", b"ab" * 3_000_000, b"ab" * 2_999_999 + b"ba"):
        path.write_bytes(content)
        found.add(fingerprint_of_file(path))
        assert fingerprint_of_file(path) in found
    assert len(found) == 4
    with pytest.raises(DataError, match=r"nothing: cannot be read \(No such file"):
        fingerprint_of_file(tmp_path / "nothing")
    one = torch.arange(6.0)
    models = [{"a": one}, {"b": one}, {"a": one.view(2, 3)}, {"a": one.bfloat16()}, {"a": one, "b": one}]
    assert len({fingerprint_of_tensors(model) for model in models}) == 5
    assert fingerprint_of_tensors({"b": one, "a": one.view(3, 2).T.contiguous().T.flatten()}) == (
        fingerprint_of_tensors(models[4])
    )


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file.*"):
        begin(tmp_path / "file" / "run")
