"""Checkpoints: complete or not there, the last few and the best kept, damage named."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo.errors import WeightsError
from elmo.training import checkpoint
from elmo.training.checkpoint import Checkpoint


def fill(folder: Path) -> None:
    (folder / "model.txt").write_text("model")


def save(root: Path, step: int, value: float = 0.0) -> Checkpoint:
    return checkpoint.save(root, step, fill, {"a.b": torch.full((2, 3), value)}, {"step": step, "best": None})


def steps(root: Path) -> list[int]:
    return [one.step for one in checkpoint.all_of(root)]


def test_what_was_saved_is_read_again(tmp_path: Path) -> None:
    saved = save(tmp_path, 12, 0.1)
    assert saved.path == tmp_path / "step-00000012"
    assert sorted(path.name for path in saved.path.iterdir()) == ["model.txt", "training.json", "training.safetensors"]
    assert saved.facts() == {"step": 12, "best": None}
    assert torch.equal(saved.tensors()["a.b"], torch.full((2, 3), 0.1))


def test_its_facts_may_be_replaced(tmp_path: Path) -> None:
    saved = save(tmp_path, 12, 0.1)
    saved.replace_facts({"best": 12})
    assert saved.facts() == {"best": 12}
    assert torch.equal(saved.tensors()["a.b"], torch.full((2, 3), 0.1))
    assert sorted(path.name for path in saved.path.iterdir()) == ["model.txt", "training.json", "training.safetensors"]


def test_a_saved_step_is_not_written_again(tmp_path: Path) -> None:
    save(tmp_path, 1, 1.0)
    assert float(save(tmp_path, 1, 2.0).tensors()["a.b"][0, 0]) == 1.0


def test_a_failure_while_saving_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        checkpoint.save(tmp_path, 1, fail, {}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("count", "best", "kept"), [(1, None, [10]), (2, 3, [3, 9, 10]), (2, 9, [9, 10]), (9, None, [1, 3, 9, 10])]
)
def test_the_last_and_the_best_are_kept(tmp_path: Path, count: int, best: int | None, kept: list[int]) -> None:
    for step in (9, 1, 10, 3):
        save(tmp_path, step)
    (tmp_path / ".step-00000007.abc").mkdir()  # what a killed run left
    (tmp_path / "notes").mkdir()
    checkpoint.keep_last(tmp_path, count, best)
    assert steps(tmp_path) == kept
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("step-")) == ["notes"]


def test_a_file_that_cannot_be_removed_yet_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk keeps a file that some process has open, and with it the folder."""
    for step in (1, 2):
        save(tmp_path, step)
    unlink = os.unlink

    def refuse(path: str, **more: Any) -> None:
        if str(path).endswith("training.safetensors"):
            raise OSError(16, "Device or resource busy")
        unlink(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)
        checkpoint.keep_last(tmp_path, 1, None)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".step-00000001.removed", "step-00000002"]
    checkpoint.keep_last(tmp_path, 1, None)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


@pytest.mark.parametrize("name", ["training.json", "training.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_damage_is_one_line_that_says_what_to_remove(tmp_path: Path, name: str, content: bytes | None) -> None:
    saved = save(tmp_path, 1)
    if content is None:
        (saved.path / name).unlink()
    else:
        (saved.path / name).write_bytes(content)
    read = saved.facts if name.endswith("json") else saved.tensors
    with pytest.raises(WeightsError, match=r"step-00000001: a damaged checkpoint \(.*\)\. Remove this folder"):
        read()


@pytest.mark.parametrize("name", ["", "training.json"])
def test_a_file_of_another_user_is_not_called_damaged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be removed."""
    saved = save(tmp_path, 1)
    closed = saved.path / name

    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed)
    with pytest.raises(WeightsError) as error:
        saved.facts()
    assert str(error.value) == f"{closed}: may not be read by this user; change its permissions"
