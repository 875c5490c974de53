"""A TRAINED TASK ─▶ A DISTRIBUTION THAT PIP INSTALLS: `elmo package` as a function (docs/models.md, "Ship a model").

OUT/pyproject.toml        with the entry point; it depends on the distribution of the biLM
OUT/LICENSE               if a licence is given
OUT/elmo_NAME/            the model folder, its weights in float16, without a biLM that is installed
OUT/elmo_NAME/README.md   the card: what it is, its scores, its recipe
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from elmo import __version__
from elmo.config import to_toml
from elmo.errors import ConfigError
from elmo.files import locked, new_folder, refuse_existing
from elmo.tasks import folder
from elmo.tasks.folder import TrainedTask
from elmo.tasks.inputs import BILM, UNKNOWN_WORD
from elmo.tasks.predict import Predictor
from elmo.tasks.task import Task
from elmo.weights import installed, sentence_head

PARTS = ("dev", "test")
NONE = "–"  # the score of what a part does not have, such as a rare role


@dataclass(frozen=True)
class Distribution:
    """What was written."""

    folder: Path
    name: str  # of the trained task
    distribution: str  # for pip
    size: int  # of all files, in bytes
    scores: Mapping[str, Any]  # by part


def write_distribution(
    model: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    title: str | None = None,
    license: str | None = None,
    language: str | None = None,
    notes: str = "",
    data: str | Path | None = None,
    max_words: int | None = None,
    device: str = "auto",
    task: Task | None = None,
) -> Distribution:
    """Write a trained task as a distribution whose entry point is `name`, by default that of the folder OUT.

    `license` is an SPDX identifier, such as CC-BY-4.0. `title` and `notes` (Markdown) are for the card. With `data`,
    the weights are scored as they are stored; otherwise the card has the scores of the run. `max_words` keeps the
    first vectors of the table only: those of the words of the training part, then those of the frequent words of the
    file. `task` is needed if it is one of your own.
    """
    out = Path(out).expanduser()
    name = name or out.resolve().name
    package = f"elmo_{name.replace('-', '_').lower()}"
    if not installed.is_name(name) or not package.isidentifier():
        raise ConfigError(
            f"{name!r} cannot be the name of a model; expected letters, digits, - and _, such as my-tagger"
        )
    refuse_existing(out)
    with locked(out):
        refuse_existing(out)
        trained = _movable(folder.load(model, device, task), max_words)
        with new_folder(out) as temporary:
            inside = temporary / package
            inside.mkdir()
            folder.save(inside, trained, torch.float16)
            measured = data is not None
            if data is not None:
                trained = replace(trained, scores=_scored(inside, data, device, trained.task))
                _write_scores(inside / folder.CONFIG, trained.scores)
            bilm = _bilm(inside)
            found_by = f'elmo.load_task("{name}")'
            texts = {
                inside / "__init__.py": f'"""The files of a trained task, found by its name: `{found_by}`."""\n',
                inside / "README.md": _card(trained, name, title, license, language, notes, bilm, measured),
                temporary / "pyproject.toml": _project(name, package, title, license, bilm),
            }
            if license is not None:
                covered = f"{name}: the weights, the vectors and the card."
                texts[temporary / "LICENSE"] = f"{covered}\nLicensed under {license}.\n"
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Distribution(out, name, _distribution(name), size, trained.scores)


def _movable(trained: TrainedTask, max_words: int | None) -> TrainedTask:
    """Leave out the paths of this machine, and the vectors behind the first `max_words`."""
    inputs = trained.config.inputs
    name = inputs.elmo.model
    elmo = replace(inputs.elmo, model=name if installed.is_name(name) else f"./{Path(name).name}")
    vectors = Path(inputs.vectors).name if inputs.vectors is not None else None
    config = replace(trained.config, inputs=replace(inputs, elmo=elmo, vectors=vectors))
    table = trained.model.inputs.table
    if table is not None and max_words is not None and max_words < len(trained.words):
        kept = table.weight.detach()[: UNKNOWN_WORD + 1 + max_words].clone()
        table.weight = torch.nn.Parameter(kept, requires_grad=table.weight.requires_grad)
        trained = replace(trained, words=trained.words[:max_words])
    return replace(trained, config=config)


def _scored(model: Path, data: str | Path, device: str, task: Task) -> dict[str, Any]:
    predictor = Predictor(folder.load(model, device, task))
    there = task.read(Path(data).expanduser())
    return {part: predictor.evaluate(data, part) for part in PARTS if there.get(part)}


def _write_scores(path: Path, scores: Mapping[str, Any]) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**record, "scores": scores}, indent=1) + "\n", encoding="utf-8")


def _bilm(model: Path) -> str | None:
    """Return the name of the installed biLM that a model folder needs; None if it has its own, or none."""
    facts = json.loads((model / folder.CONFIG).read_text(encoding="utf-8"))["elmo"]
    return None if facts is None or "folder" in facts else str(facts["name"])


def _distribution(name: str) -> str:
    return f"elmo-torch-{name}"


def _project(name: str, package: str, title: str | None, license: str | None, bilm: str | None) -> str:
    needed = [f"elmo-torch>={'.'.join(__version__.split('.')[:2])}"]
    if bilm is not None and (of_bilm := installed.distribution(installed.MODELS, bilm)) is not None:
        needed.append(of_bilm)
    project = {
        "name": _distribution(name),
        "version": __version__,
        "description": f"{name}: {title or 'a trained task'}, for elmo-torch",
        "readme": f"{package}/README.md",
        **({} if license is None else {"license": license, "license-files": ["LICENSE"]}),
        "requires-python": ">=3.11",
        "dependencies": needed,
    }
    return (
        '[build-system]\nrequires = ["hatchling>=1.25"]\nbuild-backend = "hatchling.build"\n\n'
        f"[project]\n{to_toml(project)}\n"
        f'[project.entry-points."{installed.TASKS}"]\n{to_toml({name: package})}\n'
        f"[tool.hatch.build.targets.wheel]\n{to_toml({'packages': [package]})}"
    )


def _card(
    trained: TrainedTask,
    name: str,
    title: str | None,
    license: str | None,
    language: str | None,
    notes: str,
    bilm: str | None,
    measured: bool,
) -> str:
    """Return the card: Markdown, with a head as on the Hugging Face Hub."""
    head = {"language": language, "license": license.lower() if license else None, "library_name": "elmo-torch"}
    lines = [f"{key}: {_in_yaml(value)}" for key, value in head.items() if value is not None]
    state = {key: value for key, value in trained.model.state_dict().items() if not key.startswith(BILM)}
    rows = {
        "task": trained.task.name,
        "biLM": _about_bilm(trained, bilm),
        "weights": f"{sum(tensor.numel() for tensor in state.values()):,}, stored in float16",
    }
    if trained.words:
        table = trained.model.inputs.table
        assert table is not None
        rows["word vectors"] = f"{len(trained.words):,} of {table.embedding_dim} dimensions, among these weights"
    if trained.labels:
        rows["labels"] = ", ".join(f"`{label}`" for label in trained.labels)
    parts = [part for part in PARTS if part in trained.scores]
    names = dict.fromkeys(key for part in parts for key in trained.scores[part])
    scores = [[key, *(_score(trained.scores[part].get(key)) for part in parts)] for key in names]
    of = "these weights, as they are stored" if measured else "the run, before its weights were rounded"
    return "\n".join(
        [
            "---", *lines, f"tags: [elmo, {trained.task.name}]", "---",
            f"# {name}: {title or 'a trained task'}",
            f"`pip install {_distribution(name)}`, then `elmo predict {name} FILE`, `elmo evaluate {name} DATA` or",
            f'`elmo.load_task("{name}")`; no network is needed.',
            *([_about_sentences(name, bilm)] if trained.task.name == sentence_head.TASK else []),
            "",
            *_rows(["", ""], [[key, value] for key, value in rows.items()]),
            *([notes.strip(), ""] if notes.strip() else []),
            "## Scores",
            f"Of {of}.",
            "",
            *_rows(["", *parts], scores),
            "## Recipe",
            f"```toml\ntask = {json.dumps(trained.task.name)}\n{to_toml(asdict(trained.config))}```",
            "",
        ]
    )  # fmt: skip


def _score(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _in_yaml(text: str) -> str:
    """Quote what YAML would read as true or false, such as no, the code of Norwegian."""
    return f'"{text}"' if text.lower() in ("no", "off", "false", "yes", "on", "true", "n", "y") else text


def _about_sentences(name: str, bilm: str | None) -> str:
    model = f'elmo.load("{bilm}")' if bilm is not None else "model"
    which = "" if bilm is not None else "; the model is the biLM in `elmo/`"
    return f'Sentence vectors: `{model}.encode(sentences, pooling="{name}")`, or `elmo embed --pool {name}`{which}.'


def _about_bilm(trained: TrainedTask, bilm: str | None) -> str:
    if trained.config.inputs.elmo.placement == "none":
        return "none"
    return "its own, in `elmo/`" if bilm is None else f"`{bilm}`, which must be installed; it is not contained here"


def _rows(header: list[str], rows: list[list[str]]) -> list[str]:
    return [*(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)), ""]
