"""Wheels, built here and installed elsewhere: they work without the repository and the network.

The package, the distribution of english-large (with a small model in it), and the one that docs/models.md shows.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from configparser import ConfigParser
from email import message_from_string
from pathlib import Path

import pytest

import elmo
from elmo.weights import installed
from embedders import assert_same_bits, embedder, write_model

REPOSITORY = Path(__file__).parents[1]
LARGE = REPOSITORY / "models" / "english-large"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
ALONE = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index")

# Run by the new environment's Python: the first lines forbid every connection.
EMBED = """
import socket
def refuse(*arguments): raise OSError("the network is off")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import elmo
print(elmo.__file__)
(vectors,) = elmo.load().embed(["It works ."])
print(vectors.shape)
(vectors,) = elmo.load("english-large").embed(["It works ."])
print(vectors.shape)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it knows nothing of this environment's variables."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ELMO"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def built(source: Path, folder: Path) -> Path:
    run(*PIP, "wheel", *ALONE, "--wheel-dir", folder, source, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of english-large, with the files of a small model in place of its own."""
    folder = tmp_path_factory.mktemp("large")
    package = folder / "source" / "elmo_english_large"
    embedder().save(package)
    for name in ("__init__.py", "README.md"):
        shutil.copy(LARGE / "elmo_english_large" / name, package)
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(LARGE / name, folder / "source")
    return built(folder / "source", folder)


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = REPOSITORY / "src"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert "elmo/py.typed" in names
    assert "elmo/packaged/english/model.safetensors" in names


def test_its_entry_points(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        found = ConfigParser()
        found.optionxform = str  # type: ignore[assignment,method-assign]
        found.read_string(archive.read(name).decode())
    assert {group: dict(found[group]) for group in found.sections()} == {
        "console_scripts": {"elmo": "elmo.cli:main"},
        "spacy_architectures": {"elmo.Tok2Vec.v1": "elmo.integrations.spacy:tok2vec"},
        "spacy_factories": {"elmo": "elmo.integrations.spacy:make_elmo"},
    }


def test_the_distribution_of_english_large(large: Path) -> None:
    with zipfile.ZipFile(large) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        facts = message_from_string(archive.read(metadata).decode())
    files = {"__init__.py", "README.md", "config.json", "model.safetensors", "warm_state.safetensors"}
    assert {name for name in names if ".dist-info/" not in name} == {f"elmo_english_large/{file}" for file in files}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert facts["Name"] == installed.KNOWN[installed.MODELS, "english-large"]
    assert facts["License-Expression"] == "CC-BY-SA-4.0"
    assert facts.get_all("Requires-Dist") == ["elmo-torch>=0.1"]
    assert "# english-large: an English ELMo of the original size" in facts.get_payload()


def test_they_embed_without_the_repository_and_the_network(wheel: Path, large: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(*PIP, "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel, large, cwd=tmp_path)
    # What the package depends on comes from this environment; a path file does not bring our own package with it.
    place = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    (Path(place) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    where, *shapes = run(python, "-c", EMBED, cwd=tmp_path).splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert shapes == ["(3, 3, 256)", "(3, 3, 10)"]
    (tmp_path / "sentences.txt").write_text("It works.\n", encoding="utf-8")
    command = tmp_path / "env" / "bin" / "elmo"
    for model in ("english", "english-large"):
        run(command, "embed", "sentences.txt", f"{model}.npz", "--model", model, cwd=tmp_path)
        assert (tmp_path / f"{model}.npz").exists()
    assert re.search(r"\n  english-large +0\.\d MB  en  an English ELMo of the", run(command, "info", cwd=tmp_path))
    assert run(command, "--version", cwd=tmp_path).strip().endswith(elmo.__version__)


def test_a_distribution_as_the_documentation_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (REPOSITORY / "docs" / "models.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    ((name, package),) = tomllib.loads(block)["project"]["entry-points"][installed.MODELS].items()
    source, site = tmp_path / "source", tmp_path / "site"
    model = write_model(source / package)
    (model / "__init__.py").write_text("")
    (source / "pyproject.toml").write_text(block, encoding="utf-8")
    run(*PIP, "install", *ALONE, "--target", site, source, cwd=tmp_path)
    monkeypatch.syspath_prepend(site)
    assert installed.find(installed.MODELS, name) == site / package
    sentences = [["It", "works"]]
    assert_same_bits(list(elmo.load(name).embed(sentences)), list(elmo.load(model).embed(sentences)))


def test_setup_installs_in_place_what_has_its_files(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for name, files in (("with", ("pyproject.toml", "elmo_with/config.json")), ("without", ("pyproject.toml",))):
        for file in files:
            (tmp_path / "models" / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "models" / name / file).touch()
    shown = run("make", "--dry-run", "setup", cwd=tmp_path)
    assert re.findall(r"--editable (\S+)", shown) == ["'.[all,dev]'", "./models/with"]
