"""RECIPES of any kind, for pretraining, a task or an analysis: read and checked without running them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmo.analysis.analysis import analysis_named, build_config
from elmo.config import read_toml, to_toml
from elmo.errors import ConfigError, ElmoError
from elmo.pretrain.config import PretrainConfig
from elmo.tasks.recipe import recipe
from elmo.weights import installed, published, source


@dataclass(frozen=True)
class Recipe:
    """A complete recipe."""

    kind: str  # "pretraining", the name of a task, or "the analysis …"
    values: dict[str, Any]  # every field, also those that the file does not mention

    def to_toml(self) -> str:
        """Return the recipe as TOML, with every field."""
        return to_toml(self.values)


def check_recipe(file: str | Path) -> Recipe:
    """Read a TOML recipe for `elmo train`, `pretrain` or `analyse`; check its fields and the files that it names."""
    file = Path(file)
    try:
        written = read_toml(file)
        if "analysis" in written:
            analysis = analysis_named(str(written["analysis"]))
            config = build_config(analysis, file)
            return Recipe(f"the analysis {analysis.name}", {"analysis": analysis.name, **asdict(config)})
        if "task" not in written:
            return Recipe("pretraining", PretrainConfig.load(None, file).values())
        task, config = recipe(None, file)
        _check_files(config.inputs)
    except ElmoError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(str(file)) else f"{file}: {message}") from None
    return Recipe(task.name, {"task": written["task"], **asdict(config)})


def _check_files(inputs: Any) -> None:
    """Refuse missing word vectors, and a biLM that is missing or damaged; nothing is downloaded."""
    if inputs.vectors is not None and not Path(inputs.vectors).is_file():
        raise ConfigError(f"inputs.vectors is {inputs.vectors!r}; there is no such file")
    model = inputs.elmo.model
    if inputs.elmo.placement == "none" or model in published.PUBLISHED or model.startswith("hf:"):
        return
    try:
        known = installed.find(installed.MODELS, model) is not None or Path(model).expanduser().exists()
        if known:
            source.read(model)
    except ElmoError as error:
        raise ConfigError(f"inputs.elmo.model: {error}") from None
    if not known:
        raise ConfigError(f"inputs.elmo.model is {model!r}; there is no such file or folder, and no model of that name")
