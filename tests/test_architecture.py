"""The house plan, read from the imports: rooms know only the rooms below them."""

import ast
from pathlib import Path

import elmo

PACKAGE = Path(elmo.__file__).parent

ALLOWED = {
    "errors": set(),
    "files": {"errors"},
    "config": {"errors"},
    "progress": set(),
    "messages": set(),
    "recipes": {"errors", "config", "weights", "pretrain", "tasks", "analysis"},
    "training": {"errors", "files", "config"},
    "packaged": set(),
    "text": {"errors", "files"},
    "model": {"errors"},
    "weights": {"errors", "files", "config", "packaged", "progress", "text", "model"},
    "embed": {"errors", "files", "messages", "packaged", "text", "model", "weights"},
    "pretrain": {"errors", "files", "messages", "config", "training", "text", "model", "weights"},
    "tasks": {"errors", "messages", "files", "config", "packaged", "training", "text", "model", "weights", "embed"},
    "analysis": {
        "errors", "files", "config", "packaged", "training", "text", "model", "weights", "embed", "pretrain", "tasks",
    },
    "integrations": {"errors", "files", "messages", "packaged", "text", "model", "weights", "embed"},
    "serve": {"errors", "messages", "packaged", "training", "text", "weights", "embed", "tasks"},
    "cli": {
        "errors", "messages", "packaged", "progress", "text", "model", "weights", "embed", "training", "pretrain",
        "tasks", "analysis", "recipes", "integrations", "serve",
    },
    "__init__": {"errors", "model", "embed", "tasks"},
    "__main__": {"cli"},
}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The rooms of `elmo` that a file imports, at the top or inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("elmo.")}
    return rooms - {"__version__"}


def test_every_file_imports_only_what_the_plan_allows() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        wrong = imports_of(path) - ALLOWED[room] - {room}
        if wrong:
            found[str(path.relative_to(PACKAGE))] = wrong
    assert found == {}


def test_the_reading_of_imports_finds_them() -> None:
    assert imports_of(PACKAGE / "embed" / "embedder.py") == {"embed", "errors", "model", "packaged", "text", "weights"}
    assert imports_of(PACKAGE / "cli" / "convert.py") == {"cli", "embed", "errors", "messages"}


def test_text_knows_nothing_of_torch() -> None:
    for path in (PACKAGE / "text").glob("*.py"):
        source = path.read_text(encoding="utf-8").replace("PyTorch", "").replace("elmo-torch", "")
        assert "torch" not in source, path


def test_model_opens_no_files() -> None:
    for path in (PACKAGE / "model").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert "open(" not in source and "pathlib" not in source and "h5py" not in source, path


def test_nothing_unpickles_but_the_restricted_reader_of_tensors() -> None:
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if path.name == "many_langs.py":  # files that exist as pickles only; PyTorch reads tensors from them, no more
            assert source.count("torch.load(") == source.count(", weights_only=True)") == 1
            source = source.replace("torch.load(", "")
        assert "torch.load(" not in source and "import pickle" not in source and "pickle.load" not in source, path


def test_files_are_short_enough_to_read() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
