"""A task of one's own: the folder in examples/, trained and used through the command line like the others."""

import json
import sys
from pathlib import Path

import pytest

from elmo.tasks.task import task_named
from embedders import assert_refused, elmo
from tasks.small_ner import write_elmo

POS = Path(__file__).parents[2] / "examples" / "pos"
LINES = [("The", "DT"), ("cat", "NN"), ("sees", "VBZ"), ("dogs", "NNS"), ("and", "CC"), ("runs", "VBZ"), (".", ".")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = "".join(f"{n}\t{word}\t_\t_\t{tag}\t_\t_\t_\t_\t_\n" for n, (word, tag) in enumerate(LINES, 1))
    joined = "1-2\tThecat\t_\t_\t_\t_\t_\t_\t_\t_\n1.1\tunwritten\t_\t_\tXX\t_\t_\t_\t_\t_\n"
    text = f"# a comment\n{joined}{rows}\n{rows}"
    for part in ("train", "dev", "test"):
        (tmp_path / f"our-{part}.conllu").write_text(text, encoding="utf-8")
    return tmp_path


def test_it_is_trained_scored_and_used(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    changes = [f"inputs.elmo.model={write_elmo(tmp_path / 'elmo')}", "hidden=16", "train.learning_rate=0.02"]
    changes += ["train.epochs=40", "train.patience=none", "train.device=cpu"]
    sets = [part for change in changes for part in ("--set", change)]
    ended = elmo("train", POS, data, tmp_path / "run", *sets)
    assert ended.code == 0, ended.err
    model = tmp_path / "run" / "model"
    scores = elmo("evaluate", model, data, "--task", POS, "--device", "cpu", "--json")
    assert json.loads(scores.out) == {"accuracy": 100.0}
    given = " ".join(word for word, _ in LINES).encode()
    found = elmo("predict", model, "-", "--task", POS, "--device", "cpu", stdin=[given])
    assert json.loads(found.out) == {
        "line": 1,
        "tokens": [word for word, _ in LINES],
        "tags": [tag for _, tag in LINES],
    }
    assert_refused(elmo("predict", model, "-"), "pos: no such task; expected squad, snli, srl, ")


def test_a_folder_without_a_task(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.py").write_text("nothing = 1\n")
    assert_refused(elmo("train", tmp_path / "mine", tmp_path, tmp_path / "out"), "mine/model.py: has no TASK; expected")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.py": "x = 1\ny = (\n"}, "model.py:2: cannot be imported (SyntaxError: '(' was never closed)"),
        ({"model.py": "x = 1\n\nx.y\n"}, "model.py:3: cannot be imported (AttributeError: 'int' object has no attr"),
        ({"model.py": "import nowhere\n"}, "model.py:1: cannot be imported (ModuleNotFoundError: No module named 'no"),
        (
            {"model.py": "from broken.data import x\n", "data.py": "\nx = 1 / 0\n"},
            "data.py:2: cannot be imported (ZeroDivisionError: division by zero)",
        ),
        ({"model.py": b"x = '\xe9'\n"}, "cannot be imported (SyntaxError: "),
    ],
)
def test_a_folder_that_cannot_be_imported(files: dict[str, str | bytes], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for name in [name for name in sys.modules if name.partition(".")[0] == "broken"]:
        del sys.modules[name]
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_refused(elmo("train", folder, tmp_path, tmp_path / "out"), f"elmo: {folder}/", message)


def test_its_reader_names_the_line(data: Path) -> None:
    (data / "our-dev.conllu").write_text("1\tword\n", encoding="utf-8")
    assert_refused(elmo("train", POS, data, data / "out"), "our-dev.conllu:1: 2 columns; expected the ten of CoNLL-U")


def test_its_name_is_the_folder_s() -> None:
    assert task_named(str(POS)).name == "pos"
