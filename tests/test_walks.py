"""The walks through the code in CONTRIBUTING: every step exists, and a run of the command takes the steps in order."""

import ast
import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import elmo as library
from corpora import write_corpus
from embedders import LINES, elmo, write_model
from tasks.small_ner import splits, write_columns

ROOT, PACKAGE = Path(__file__).parents[1], Path(library.__file__).parent
STEP = re.compile(r"^- `([\w/]+\.py):([\w.]+)`", re.MULTILINE)
Step = tuple[str, str]  # a file inside the package, and a function in it


def walks() -> dict[str, list[Step]]:
    """The steps of each walk, by the verb it starts with."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Three walks\n")[2].partition("\n## ")[0]
    found = [STEP.findall(part) for part in section.split("\n### ")[1:]]
    return {steps[0][1]: steps for steps in found}


def test_there_are_three_walks() -> None:
    assert list(walks()) == ["embed", "pretrain", "train"]
    assert all(len(steps) >= 8 for steps in walks().values())


@pytest.mark.parametrize(("file", "function"), [step for steps in walks().values() for step in steps])
def test_a_step_exists(file: str, function: str) -> None:
    assert function in functions(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))


def functions(tree: ast.Module | ast.ClassDef) -> set[str]:
    """The names of all functions and methods, as in `Class.method`."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for name in functions(node)}
    return found


class Trace:
    """Records the calls of some functions, in all threads."""

    def __init__(self, steps: list[Step]) -> None:
        self._wanted = {(str(PACKAGE / file), function): (file, function) for file, function in steps}
        self.calls: list[Step] = []

    def __enter__(self) -> "Trace":
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            step = self._wanted.get((frame.f_code.co_filename, frame.f_code.co_qualname))
            if step is not None:
                self.calls.append(step)


@pytest.mark.parametrize("verb", ["embed", "pretrain", "train"])
def test_a_run_takes_the_steps_in_order(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    model = write_model(tmp_path / "model")
    if verb == "embed":
        (tmp_path / "in.txt").write_text("\n".join(LINES), encoding="utf-8")
        arguments: list[object] = [tmp_path / "in.txt", tmp_path / "out.hdf5", "--model", model]
    elif verb == "pretrain":
        sentences = [line.split() for line in LINES if line.split()] * 6
        corpus = write_corpus(tmp_path / "corpus", [sentences], sentences[:3], 9)
        settings = ["steps=2", "batch.size=4", "model.lstm.dim=8", "model.lstm.projection_dim=4", "device=cpu"]
        arguments = [corpus, tmp_path / "out", "--preset", "tiny", *(x for s in settings for x in ("--set", s))]
    else:
        write_columns(tmp_path / "entities", splits())
        settings = [f"inputs.elmo.model={model}", "train.epochs=1", "train.device=cpu"]
        arguments = ["ner", tmp_path / "entities", tmp_path / "out", *(x for s in settings for x in ("--set", s))]
    steps = walks()[verb]
    with Trace(steps) as trace:
        ended = elmo(verb, *arguments)
    assert ended.code == 0, ended.err
    calls = iter(trace.calls)  # `in` reads on from where the last step was found
    for step in steps:
        assert step in calls, step
