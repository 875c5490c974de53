"""`elmo check`: a recipe is read and checked, and nothing is run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.errors import ConfigError


def check(
    files: Annotated[list[Path], typer.Argument(help="Recipes: TOML files for `elmo train` or `elmo pretrain`.")],
    show: Annotated[bool, typer.Option("--show", help="Print every field with its value.")] = False,
) -> None:
    """Check recipes without running them: every field, and the files they name.

    \b
    Examples:
      $ elmo check ner.toml
      $ elmo check ner.toml --show
    """
    for file in files:
        kind, config = _read(file)
        print(f"{file}: a recipe for {kind}")
        if show:
            _print(asdict(config))


def _read(file: Path) -> tuple[str, Any]:
    from elmo.config import read_toml
    from elmo.pretrain.config import PretrainConfig
    from elmo.tasks.recipe import recipe

    try:
        if "task" not in read_toml(file):
            return "pretraining", PretrainConfig.of(None, file)
        task, config = recipe(None, file)
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(str(file)) else f"{file}: {message}") from None
    vectors = config.inputs.vectors
    if vectors is not None and not Path(vectors).is_file():
        raise ConfigError(f"{file}: inputs.vectors is {vectors!r}; there is no such file")
    return task.name, config


def _print(values: dict[str, Any], prefix: str = "") -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            _print(value, f"{prefix}{name}.")
        else:
            print(f"  {prefix}{name} = {value}")
