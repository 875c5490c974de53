"""Distributions with models, as pip leaves them: a package, and a .dist-info folder with its entry points."""

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import pytest


def install(site: Path, name: str, group: str, model: str, package: str, files: Path | None = None) -> Path:
    """Put a distribution into a folder of sys.path; `files` is the model folder that its package becomes."""
    facts = site / f"{name.replace('-', '_')}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{model} = {package}\n")
    folder = site.joinpath(*package.split("."))
    if files is not None:
        shutil.copytree(files, folder)
        (folder / "__init__.py").write_text("raise RuntimeError('a model is data: its package is not imported')\n")
    return folder


def new_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of sys.path, and an empty working folder; return the first.

    Models of other folders, such as those that `make setup` installs, are not found.
    """
    for name in ("site", "working"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "working")
    every = importlib.metadata.entry_points

    def entry_points(**wanted: Any) -> Any:
        found = every(**wanted)
        if not wanted.get("group", "").startswith("elmo."):
            return found
        return [entry for entry in found if Path(str(entry.dist.locate_file(""))) == tmp_path / "site"]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return tmp_path / "site"
