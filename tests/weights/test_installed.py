"""Models of other distributions: found by name, never imported, and one line for each thing that can be wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

import elmo
from distributions import install, new_site
from elmo.errors import WeightsError
from elmo.packaged import DEFAULT, FOLDER
from elmo.weights import installed, source
from elmo.weights.installed import MODELS, TASKS
from embedders import assert_refused, assert_same_bits, environment, write_model
from embedders import elmo as command

SENTENCES = [["The", "bank"], ["x"]]
NOT_INSTALLED = "is not installed; pip install elmo-torch-english-huge, or models/english-huge from its repository"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_site(tmp_path, monkeypatch)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def test_a_model_of_a_distribution(site: Path, model: Path) -> None:
    folder = install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny", model)
    assert installed.find(MODELS, "tiny") == folder
    assert installed.installed(MODELS)["tiny"] == folder
    assert installed.installed(MODELS)[DEFAULT] == FOLDER / DEFAULT
    assert installed.installed(TASKS) == {}
    assert_same_bits(list(elmo.load("tiny").embed(SENTENCES)), list(elmo.load(model).embed(SENTENCES)))
    assert "elmo_tiny" not in sys.modules


def test_the_command_line_knows_it(site: Path, model: Path) -> None:
    install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny", model)
    Path("sentences.txt").write_text("It works.\n")
    assert command("embed", "sentences.txt", "vectors.npz", "--model", "tiny").code == 0
    assert "3 of 10" in command("info", "tiny").out


def test_its_name_means_the_same_in_every_folder(site: Path, model: Path) -> None:
    folder = install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny", model)
    Path("tiny").mkdir()
    assert source.locate("tiny") == folder
    assert source.locate("./tiny") == Path("tiny")
    assert source.locate(Path("tiny").absolute()) == Path("tiny").absolute()


def test_it_comes_before_what_must_be_downloaded(site: Path, model: Path) -> None:
    folder = install(site, "elmo-mirror", MODELS, "small", "elmo_mirror", model)
    assert source.locate("small") == folder


def test_it_does_not_take_the_place_of_the_packaged_model(site: Path, model: Path) -> None:
    install(site, "elmo-other", MODELS, DEFAULT, "elmo_other", model)
    assert source.locate(DEFAULT) == FOLDER / DEFAULT


def test_a_package_inside_another(site: Path, model: Path) -> None:
    folder = install(site, "elmo-zoo", MODELS, "tiny", "zoo.tiny", model)
    (site / "zoo" / "__init__.py").write_text("")
    assert installed.find(MODELS, "tiny") == folder


def test_the_same_distribution_twice_is_the_first_one(site: Path, model: Path, tmp_path: Path) -> None:
    """As when one is installed in place and another lies further down the path."""
    folder = install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny", model)
    install(tmp_path / "later", "elmo-tiny", MODELS, "tiny", "elmo_tiny_old", model)
    sys.path.append(str(tmp_path / "later"))
    try:
        assert installed.find(MODELS, "tiny") == folder
    finally:
        sys.path.remove(str(tmp_path / "later"))


def assert_fails(name: str, message: str) -> None:
    with pytest.raises(WeightsError) as error:
        installed.find(MODELS, name)
    assert str(error.value) == message


def test_two_distributions_of_one_name(site: Path, model: Path) -> None:
    for letter in "ab":
        install(site, f"elmo-{letter}", MODELS, "tiny", f"elmo_{letter}", model)
    message = "the packages elmo_a and elmo_b both have a model of this name; uninstall one of them, or give the path"
    assert_fails("tiny", f"tiny: {message} of its folder")
    assert "tiny" not in installed.installed(MODELS)
    assert_refused(command("embed", "-", "x.npz", "--model", "tiny"), f"elmo: tiny: {message}")
    assert installed.find(MODELS, DEFAULT) == FOLDER / DEFAULT  # the others are not disturbed


@pytest.mark.parametrize("package", ["elmo_gone", "elmo_gone.inner", "elmo_gone:attribute", "no such thing"])
def test_a_package_that_is_not_there(site: Path, package: str) -> None:
    install(site, "elmo-tiny", MODELS, "tiny", package)
    with pytest.raises(WeightsError, match=rf"^tiny: .*package {package} .*\. Install it again$"):
        installed.find(MODELS, "tiny")
    assert "tiny" not in installed.installed(MODELS)


@pytest.mark.parametrize("kind", ["folder", "module"])
def test_a_package_that_is_no_model(site: Path, kind: str) -> None:
    install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny")
    if kind == "module":
        (site / "elmo_tiny.py").write_text("")
    else:
        (site / "elmo_tiny").mkdir()
        (site / "elmo_tiny" / "__init__.py").write_text("")
    assert_fails("tiny", "tiny: is installed, but its package elmo_tiny has no config.json. Install it again")


def test_a_package_around_it_that_fails(site: Path, model: Path) -> None:
    install(site, "elmo-aviary", MODELS, "tiny", "aviary.tiny", model)
    (site / "aviary" / "__init__.py").write_text("raise RuntimeError('closed\\nuntil spring')")
    assert_fails("tiny", "tiny: the package aviary.tiny cannot be found (closed until spring). Install it again")


def test_a_model_of_this_project_that_is_not_installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(installed.KNOWN, (MODELS, "english-huge"), "elmo-torch-english-huge")
    message = f"english-huge: {NOT_INSTALLED}"
    assert_fails("english-huge", message)
    assert_refused(command("info", "english-huge"), f"elmo: {message}")
    Path("english-huge").mkdir()
    assert_fails("english-huge", f"{message}, or write ./english-huge for the folder of this name here")
    assert source.locate("./english-huge") == Path("english-huge")


def test_a_path_is_no_name(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the metadata of all distributions are not searched for it."""
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    for name in ("./tiny", "/tmp/tiny", "~/tiny", "owner/tiny", "hf:owner/tiny", "..", ""):
        assert installed.find(MODELS, name) is None
    assert installed.find(MODELS, DEFAULT) == FOLDER / DEFAULT


# elmo info


CARD = "---\nlanguage: {language}\nlicense: cc0-1.0\n---\n# tiny: an ELMo for tests\nIt is small.\n"


@pytest.mark.parametrize(
    ("card", "shown"),
    [
        (CARD.format(language="en"), "en  an ELMo for tests"),
        (CARD.format(language="[en, de]"), "en de  an ELMo for tests"),
        (CARD.format(language="\n- en\n- pt-br"), "en pt-br  an ELMo for tests"),
        ("---\nlicense: cc0-1.0\n---\n# Another title\n", "Another title"),
        ("# tiny: without a head\n", "without a head"),
        ("language: en\n", ""),
        (None, ""),
    ],
)
def test_what_is_installed_is_listed(site: Path, model: Path, card: str | None, shown: str) -> None:
    if card is not None:
        (model / "README.md").write_text(card)
    (model / "config.json").write_bytes((model / "config.json").read_bytes() + b" " * 100_000)
    folder = install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny", model)
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    ended = command("info")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "Models, for elmo.load(NAME) and --model NAME:"
    (line,) = [line for line in lines if line.startswith("  tiny ")]
    assert line.split(maxsplit=1)[1] == f"{size:.1f} MB  {shown}".strip()
    assert line.index(" MB") == next(other for other in lines if "  english " in other).index(" MB")
    (line,) = [line for line in lines if line.startswith("  english ")]
    assert line.endswith(" MB  en  a small English ELMo (the default)")
    tasks = lines.index("Trained tasks, for elmo.load_task(NAME) and elmo predict NAME:")
    assert [line.split()[0] for line in lines[tasks + 1 :]] == ["english-sentence"]  # which is not installed here


def test_what_cannot_be_used_is_listed_with_the_reason(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(installed.KNOWN, (MODELS, "english-huge"), "elmo-torch-english-huge")
    install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny")
    lines = command("info").out.splitlines()
    assert f"  english-huge   {NOT_INSTALLED}" in lines
    assert "  tiny           is installed, but its package elmo_tiny is not there. Install it again" in lines


def test_listing_needs_no_pytorch() -> None:
    code = "import sys; from elmo.cli import app; app(['info'], standalone_mode=False); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.splitlines()[-1] == "False"
