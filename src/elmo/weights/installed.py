"""A NAME ─▶ THE FOLDER OF AN INSTALLED MODEL, of this package or of a distribution that pip installed.

A distribution offers a model through an entry point. Its name is the model's name; its value is a package, and the
folder of the package is the model folder. Nothing of the package is executed. docs/models.md shows such a distribution.

    [project.entry-points."elmo.models"]
    english-large = "elmo_english_large"

An installed name means the same in every working folder: it comes before files and folders (write `./name` for a folder
of that name). Without PyTorch, so that `elmo info` is fast.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import WeightsError
from elmo.packaged import FOLDER as PACKAGED

MODELS, TASKS = "elmo.models", "elmo.task_models"  # groups of entry points: biLMs, and trained tasks
KNOWN = {  # distributions of this project
    (MODELS, "english-large"): "elmo-torch-english-large",
    (TASKS, "english-sentence"): "elmo-torch-english-sentence",
}
CONFIG = "config.json"  # in every model folder, of either group

_NAME = re.compile(r"\w[\w.-]*")
_FRONT_MATTER = re.compile(r"---\n(.*?)^---\n", re.MULTILINE | re.DOTALL)
_LANGUAGE = re.compile(r"^language:(.*(?:\n[ ]*-.*)*)", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def installed(group: str) -> dict[str, Path]:
    """Return the folders of all installed models of a group, by name; without those that cannot be used."""
    return {one.name: one.folder for one in listing(group) if one.folder is not None}


def names(group: str) -> list[str]:
    """Return all names of a group that `find` knows: the installed ones, and those of this project that are not."""
    packaged = [path.parent.name for path in PACKAGED.glob(f"*/{CONFIG}")] if group == MODELS else []
    known = [name for other, name in KNOWN if other == group]
    return sorted({*packaged, *known, *(name for name, _ in _entry_points(group))})


def find(group: str, name: str) -> Path | None:
    """Return the folder of an installed model; None if there is none of this name.

    A model of this package comes before one of another distribution. A name that several packages claim, a package that
    is no model, and a model of this project that is not installed are a WeightsError.
    """
    if not is_name(name):  # a path; the distributions are not searched
        return None
    if group == MODELS and (PACKAGED / name / CONFIG).is_file():
        return PACKAGED / name
    packages = sorted({package for other, package in _entry_points(group) if other == name})
    if len(packages) > 1:
        raise WeightsError(
            f"{name}: the packages {' and '.join(packages)} both have a model of this name; uninstall one of them, or "
            "give the path of its folder"
        )
    if packages:
        return _folder_of(name, packages[0])
    if (distribution := KNOWN.get((group, name))) is not None:
        here = f", or write ./{name} for the folder of this name here" if Path(name).exists() else ""
        raise WeightsError(
            f"{name}: is not installed; pip install {distribution}, or models/{name} from its repository{here}"
        )
    return None


def distribution(group: str, name: str) -> str | None:
    """Return the name of the distribution that a model was installed with; None if this package has it, or nobody."""
    from importlib.metadata import entry_points

    if group == MODELS and (PACKAGED / name / CONFIG).is_file():
        return None
    found = (entry.dist.name for entry in entry_points(group=group, name=name) if entry.dist is not None)
    return next(found, KNOWN.get((group, name)))


def is_name(name: str) -> bool:
    """Return whether a model may have this name; anything else is a path."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Listed:
    """An installed model, or one that could be: what `elmo info` says about it."""

    name: str
    folder: Path | None  # None: it cannot be used
    problem: str | None = None  # the reason
    size: int = 0  # of its files, in bytes
    languages: str | None = None  # what its card says
    description: str | None = None


def listing(group: str) -> list[Listed]:
    """Describe all models of a group that are installed, and those of this project that are not."""
    found = []
    for name in names(group):
        try:
            folder = find(group, name)
            assert folder is not None
        except WeightsError as error:
            found.append(Listed(name, None, str(error).removeprefix(f"{name}: ")))
        else:
            found.append(Listed(name, folder, None, _size(folder), *_card(folder, name)))
    return found


def _entry_points(group: str) -> Iterable[tuple[str, str]]:
    """Yield the name and the package of every entry point of a group."""
    from importlib.metadata import entry_points  # reads the metadata of every installed distribution

    return [(entry.name, entry.value) for entry in entry_points(group=group)]


def _folder_of(name: str, package: str) -> Path:
    """Return the folder of a package, if there is a model in it."""
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except Exception as error:  # of a package around it, which is imported
        what = " ".join(str(error).split())
        raise WeightsError(f"{name}: the package {package} cannot be found ({what}). Install it again") from error
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(place) / CONFIG).is_file():
            return Path(place)
    what = "is not there" if spec is None else f"has no {CONFIG}"
    raise WeightsError(f"{name}: is installed, but its package {package} {what}. Install it again")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")


def _card(folder: Path, name: str) -> tuple[str | None, str | None]:
    """Return the languages and the title of a model's card, README.md in the form of Hugging Face."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None, None
    front = _FRONT_MATTER.match(text)
    language = _LANGUAGE.search(front[1]) if front else None
    title = _TITLE.search(text, front.end() if front else 0)
    return (
        " ".join(re.findall(r"[\w-]*\w", language[1])) or None if language else None,
        title[1].removeprefix(f"{name}: ").strip() if title else None,
    )
