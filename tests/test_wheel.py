"""A wheel, built here and installed into an environment of its own: it works without the repository and the network."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import elmo

REPOSITORY = Path(__file__).parents[1]

# Run by the new environment's Python: the first lines forbid every connection.
EMBED = """
import socket
def refuse(*arguments): raise OSError("the network is off")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import elmo
print(elmo.__file__)
(vectors,) = elmo.load().embed(["It works ."])
print(vectors.shape)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it knows nothing of this environment's variables."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ELMO"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, REPOSITORY, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = REPOSITORY / "src"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert "elmo/py.typed" in names
    assert "elmo/packaged/english/model.safetensors" in names


def test_it_embeds_without_the_repository_and_the_network(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    # What the package depends on comes from this environment; a path file does not bring our own package with it.
    place = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    (Path(place) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    where, shape = run(python, "-c", EMBED, cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert shape == "(3, 3, 256)"
    (tmp_path / "sentences.txt").write_text("It works.\n", encoding="utf-8")
    run(tmp_path / "env" / "bin" / "elmo", "embed", "sentences.txt", "vectors.npz", cwd=tmp_path)
    assert (tmp_path / "vectors.npz").exists()
    assert run(tmp_path / "env" / "bin" / "elmo", "--version", cwd=tmp_path).strip().endswith(elmo.__version__)
