"""The recipe of a task: defaults, a file, assignments; and every value that is refused."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from elmo.errors import ConfigError
from elmo.tasks.ner.model import TASK, NerConfig
from elmo.tasks.recipe import recipe
from elmo.tasks.task import TASKS
from elmo.training.run import Request, Run


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_changes_the_defaults_and_assignments_change_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "r.toml", 'task = "ner"\nhidden = 100\n[train]\nepochs = 3\nseed = 5\n')
    default = NerConfig()
    assert recipe("ner") == (TASK, default)
    wanted = replace(default, hidden=100, train=replace(default.train, epochs=3, seed=5))
    assert recipe("ner", file) == recipe(None, file) == (TASK, wanted)
    _, config = recipe("ner", file, ["train.epochs=4", "inputs.characters=none"])
    assert (config.hidden, config.train.epochs, config.train.seed, config.inputs.characters) == (100, 4, 5, None)


def test_a_resumed_run_keeps_its_recipe(tmp_path: Path) -> None:
    config = replace(NerConfig(), hidden=77)
    Run(tmp_path).begin(Request("ner", config, {}))
    assert recipe("ner", None, ["train.epochs=2"], resume=tmp_path)[1] == replace(
        config, train=replace(config.train, epochs=2)
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ner", 'task = "sst"', "r.toml: a recipe for sst, not for ner"),
        (None, "hidden = 3", 'r.toml: does not name its task; expected a line such as task = "ner"'),
        (None, "task = 1", "r.toml: task is 1; expected the name of a task"),
        (None, 'task = "x"', f"x: no such task; expected {', '.join(TASKS)}, or a folder with a model.py of your own"),
    ],
)
def test_a_file_for_no_task_or_another_is_refused(name: str | None, text: str, message: str, tmp_path: Path) -> None:
    file = write(tmp_path / "r.toml", text)
    with pytest.raises(ConfigError) as error:
        recipe(name, file)
    assert str(error.value).removeprefix(f"{tmp_path}/") == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.epochs=0", "train.epochs is 0; expected 1 or more"),
        ("train.train_fraction=1.5", "train.train_fraction is 1.5; expected a number in (0, 1]"),
        ("train.ema=1.0", "train.ema is 1.0; expected a number in (0, 1)"),
        ("train.weight_decay=-1", "train.weight_decay is -1.0; expected 0 or more"),
        ("train.seed=-1", "train.seed is -1; expected 0 or more"),
        ("train.rho=1.0", "train.rho is 1.0; expected a number in [0, 1)"),
        ("inputs.elmo.placement=top", "inputs.elmo.placement is 'top'; expected one of none, input, output, both"),
        ("inputs.elmo.dropout=1.0", "inputs.elmo.dropout is 1.0; expected a number in [0, 1)"),
        ("inputs.elmo.mix_l2=-0.1", "inputs.elmo.mix_l2 is -0.1; expected 0 or more"),
        ("inputs.elmo.learning_rate=0", "inputs.elmo.learning_rate is 0.0; expected more than 0"),
        ("inputs.max_words=-1", "inputs.max_words is -1; expected 0 or more"),
        ("inputs.own_words=0", "inputs.own_words is 0; expected 1 or more"),
        ("inputs.characters.dim=-1", "inputs.characters.dim is -1; expected a number in [1, 65536]"),
        ("inputs.characters.filters=0", "inputs.characters.filters is 0; expected a number in [1, 65536]"),
        ("inputs.characters.width=0", "inputs.characters.width is 0; expected a number in [1, 65536]"),
        (
            "inputs.characters.width=60",
            "inputs.characters.max_characters is 50; expected at least the width of the widest filters, which is 60",
        ),
        ("inputs.characters.max_characters=2", "inputs.characters.max_characters is 2; expected a number in [3, 1000]"),
        ("hidden=0", "hidden is 0; expected a number in [1, 65536]"),
        ("n_layers=0", "n_layers is 0; expected a number in [1, 100]"),
        ("train.epoch=3", "unknown field 'train.epoch'; did you mean 'train.epochs'?"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        recipe("ner", None, [change])
    assert str(error.value) == message


def table() -> list[tuple[str, dict[str, str]]]:
    """The fields of the table in docs/tasks.md, and their defaults by task."""
    lines = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| field |"))
    names = [cell.strip(" `") for cell in lines[start].split("|")[2:-2]]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        _, field, *cells = line.split("|")
        rows.append((field.strip(" `"), dict(zip(names, (cell.strip() for cell in cells[: len(names)]), strict=True))))
    return rows


@pytest.mark.parametrize(("field", "defaults"), table(), ids=[field for field, _ in table()])
def test_the_defaults_in_the_documentation_are_those_of_the_configs(field: str, defaults: dict[str, str]) -> None:
    assert list(defaults) == list(TASKS)
    for name, shown in defaults.items():
        values: Any = asdict(recipe(name)[1])
        for key in field.split("."):
            values = values.get(key, "")
        assert shown == (str(values).lower() if values is None or isinstance(values, bool) else str(values)), name
