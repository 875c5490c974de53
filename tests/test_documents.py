"""The code in README and docs is run: the output of Python blocks is compared, commands must succeed.

The README is run in a folder with `examples` and nothing else, as in a new clone; so is the tutorial, with a few
sentences in the place of its treebank. The other documents name files of the reader, so they are run in a folder with
these files: the published small model with random weights, in the cache, as `weights.hdf5` and `options.json`, and as
the folder `model`; `words.txt`, and copies of the files in `examples`. test_site.py checks links with their anchors.
"""

import contextlib
import io
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from command_lines import run_line
from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.weights import bilm_tf
from elmo.weights.folder import Pretrained

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def blocks(path: Path) -> list[tuple[str, str, str | None]]:
    """The language and the content of every block, and the text block that directly follows it."""
    return blocks_of(path.read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[tuple[str, str, str | None]]:
    found = list(BLOCK.finditer(text))
    result = []
    for block, following in zip(found, [*found[1:], None], strict=False):
        shown = following and following[1] == "text" and not text[block.end() : following.start()].strip()
        result.append((block[1], block[2], following[2] if shown and following else None))
    return result


def section(path: Path, title: str) -> list[tuple[str, str, str | None]]:
    """The blocks of one section."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return blocks_of(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig.preset("small"))
    cached = folder / "cache" / "published" / "small"
    for where in (folder, cached):
        bilm_tf.write(bilm, where / "options.json", where / "weights.hdf5")
    Embedder(Pretrained(bilm)).save(folder / "model")
    shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True)
    (folder / "words.txt").write_text("<S>\n</S>\n<UNK>\nbank\nthe\n", encoding="utf-8")
    return folder


def test_the_readme_works_in_a_fresh_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    run(ROOT / "README.md", tmp_path, monkeypatch)


def test_the_tutorial_works_in_miniature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    write_treebank(tmp_path / "ud-english-ewt")
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    smaller = TUTORIAL.read_text(encoding="utf-8").replace("web.txt tuned\n", "web.txt tuned --set batch.size=2\n")
    (tmp_path / "tutorial.md").write_text(smaller, encoding="utf-8")  # its text does not fill a batch of 128
    run(tmp_path / "tutorial.md", tmp_path, monkeypatch)
    for name in ("plain", "with-elmo", "with-tuned-elmo"):
        assert (tmp_path / name / "model" / "config.json").exists()


def write_treebank(folder: Path) -> None:
    """A few sentences in the format of Universal Dependencies, in three files."""
    folder.mkdir()
    sentence = "# text = {0} ran.\n1\t{0}\t_\t_\tNNS\t_\t_\t_\t_\t_\n2\tran\t_\t_\tVBD\t_\t_\t_\t_\t_\n\n"
    for part, words in (("train", range(40)), ("dev", range(40, 44)), ("test", range(44, 48))):
        text = "".join(sentence.format(f"Dogs{k}") for k in words)
        (folder / f"en_ewt-ud-{part}.conllu").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path != TUTORIAL], ids=lambda path: path.name)
def test_what_is_shown_works(path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.name == "integrations.md":
        for package in ("onnx", "onnxruntime", "spacy", "sentence_transformers", "datasets", "polars"):
            pytest.importorskip(package, reason=f"needs {package}: pip install {package}")
        import_module("elmo.integrations.spacy")  # so that spaCy knows its names before the package is installed again
    monkeypatch.setenv("ELMO_CACHE", str(place / "cache"))
    run(path, place, monkeypatch)


def run(path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a document from top to bottom: what a command makes, the next block may use."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    program = ModuleType("document")  # a real module: other processes must find its functions
    monkeypatch.setitem(sys.modules, program.__name__, program)
    names = vars(program)
    for language, code, expected in blocks(path):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, str(path), "exec"), names)
            if expected is not None:
                assert printed.getvalue() == expected
        elif language == "console":
            for line in code.splitlines():
                if line.startswith("$ elmo "):
                    done = run_line(line[2:])
                    assert done.code == 0, f"{line}\n{done.err}"


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCUMENTS, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_claim_of_the_comparison_has_a_proof() -> None:
    """The last cell of a row links to a test or to measurements, names a command, or says that it is not there yet."""
    text = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    features = text[text.index("## Features") :]
    rows = [line.split(" | ") for line in features.splitlines() if line.startswith("| ") and "---" not in line]
    claims = [row[-1] for row in rows if row[-1] != "here |"]
    assert len(claims) > 80
    for claim in claims:
        links = [target.removeprefix("../") for target in LINK.findall(claim)]
        proved = any(target.startswith("tests/") or target.endswith("/RESULTS.md") for target in links)
        assert proved or "`elmo " in claim or "not yet" in claim, claim


def test_every_complaint_is_answered() -> None:
    """Facts about the others were collected in a list of 53 complaints; each has a row."""
    text = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    complaints = text[text.index("## What users of the others complained about") :]
    assert len(re.findall(r"^\| •+ \| ", complaints, re.MULTILINE)) == 53


def test_the_readme_has_blocks_to_run() -> None:
    readme = ROOT / "README.md"
    assert sum(language == "python" and expected is not None for language, _, expected in blocks(readme)) >= 1
    commands = [line for language, code, _ in blocks(readme) if language == "console" for line in code.splitlines()]
    assert sum(line.startswith("$ elmo ") for line in commands) >= 10
    for line in commands:  # what is not run here is tested elsewhere: make and pip
        assert line.startswith(("$ elmo ", "$ make ", "$ pip ")), line


def test_every_adapter_has_a_row() -> None:
    table, _, _ = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8").partition("\n## ")
    parts = {"__init__", "loaded", "transformers_tokenizer", "onnx", "torch_export", "ray_shards", "ray_tasks"}
    modules = {path.stem for path in (ROOT / "src" / "elmo" / "integrations").glob("*.py")}
    assert set(re.findall(r"\(\.\./src/elmo/integrations/(\w+)\.py\)", table)) == modules - parts


def test_the_examples_are_small() -> None:
    files = [path for path in (ROOT / "examples").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 100_000


def test_the_architecture_names_every_file() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (listed,) = [block for _, block, _ in blocks_of(text) if block.startswith("src/elmo/")]
    entries = dict(re.findall(r"^  (\w+)/(.*?)(?=^  \w|^\w|\Z)", listed, re.MULTILINE | re.DOTALL))
    package = ROOT / "src" / "elmo"
    modules = [path.relative_to(package) for path in package.rglob("*.py") if not path.stem.startswith("__")]
    assert len(modules) > 80
    for module in modules:
        where = entries[module.parts[0]] if len(module.parts) > 1 else listed
        assert re.search(rf"\b{module.stem}\b", where), module
