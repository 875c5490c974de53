"""`elmo check`: read and check recipes, without running them."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from elmo.errors import ConfigError, ElmoError


def check(
    files: Annotated[list[Path], typer.Argument(help="Recipes: TOML files for `elmo train` or `elmo pretrain`.")],
    show: Annotated[
        bool, typer.Option("--show", help="Print the complete recipe, with every field, as TOML.")
    ] = False,
) -> None:
    """Check recipes without running them: every field, and the files they name.

    \b
    Examples:
      $ elmo check ner.toml
      $ elmo check ner.toml --show
    """
    from elmo.config import to_toml

    for file in files:
        kind, values = _read(file)
        print(f"# {file}: a recipe for {kind}" if show else f"{file}: a recipe for {kind}")
        if show:
            print(to_toml(values), end="")


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    """What a recipe is for, and all its fields."""
    from elmo.config import read_toml
    from elmo.pretrain.config import PretrainConfig
    from elmo.tasks.recipe import recipe

    try:
        written = read_toml(file)
        if "task" not in written:
            return "pretraining", PretrainConfig.load(None, file).values()
        task, config = recipe(None, file)
        _check_files(config.inputs)
    except ElmoError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(str(file)) else f"{file}: {message}") from None
    return task.name, {"task": written["task"], **asdict(config)}


def _check_files(inputs: Any) -> None:
    """Refuse word vectors that are not there, and a biLM that is not there or cannot be read; nothing is downloaded."""
    from elmo.weights import published, source

    if inputs.vectors is not None and not Path(inputs.vectors).is_file():
        raise ConfigError(f"inputs.vectors is {inputs.vectors!r}; there is no such file")
    model = inputs.elmo.model
    if inputs.elmo.placement == "none" or model in published.PUBLISHED or model.startswith("hf:"):
        return
    if model not in source.packaged() and not Path(model).expanduser().exists():
        raise ConfigError(f"inputs.elmo.model is {model!r}; there is no such file or folder, and no model of that name")
    try:
        source.read(model)
    except ElmoError as error:
        raise ConfigError(f"inputs.elmo.model: {error}") from None
