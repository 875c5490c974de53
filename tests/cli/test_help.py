"""Every example of `--help` is run; asking for help costs no torch."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

import elmo as library
from command_lines import run_line
from corpora import write_corpus
from elmo.analysis.quick_data import write_data
from elmo.cli import app
from elmo.model.bilm import BiLM
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.loop import Training
from elmo.tasks.ner.model import TASK
from elmo.tasks.train import TaskTraining
from elmo.weights import folder as model_folder
from elmo.weights.folder import Pretrained
from embedders import LINES, OPTIONS, WEIGHTS, assert_refused, elmo, embedder, environment
from models import write_published
from tasks.small_ner import recipe, splits, write_columns

VERBS = sorted(command.callback.__name__ for command in app.registered_commands if command.callback is not None)


def examples() -> Iterator[str]:
    with patch.dict("os.environ", {"COLUMNS": "200"}):
        for verb in VERBS:
            for line in elmo(verb, "--help").out.splitlines():
                if line.strip().startswith("$ "):
                    yield line.strip().removeprefix("$ ")


def test_every_verb_has_examples() -> None:
    language_model = ["embed", "finetune", "info", "perplexity", "plot", "prepare", "pretrain", "score", "sif"]
    files, tasks = ["convert", "export"], ["check", "evaluate", "package", "predict", "train"]
    assert sorted([*language_model, *files, *tasks, "analyse", "reproduce", "serve"]) == VERBS
    found = list(examples())
    for verb in VERBS:
        assert any(f"elmo {verb} " in f"{line} " for line in found)
    assert len(found) >= 8


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model, a corpus, a run that was interrupted, entities and a tagger of them, and a recipe."""
    folder = tmp_path_factory.mktemp("files")
    sentences = [line.split() for line in LINES if line.split()] * 12
    corpus = write_corpus(folder / "corpus", [sentences], sentences[:3], 9)
    vocabulary = Corpus.open(corpus).vocabulary
    bilm = BiLM(replace(embedder().config, n_softmax=len(vocabulary)))
    model_folder.write(Pretrained(bilm, vocabulary), folder / "model")
    write_columns(folder / "entities", splits())
    write_data(folder / "datasets", sentences=12)
    tagger = TaskTraining(TASK, recipe(f"inputs.elmo.model={folder / 'model'}"), splits(), folder / "trained")
    assert tagger.train()
    (folder / "trained" / "model").rename(folder / "tagger")
    shutil.copy(folder / "entities" / "test.txt", folder / "predictions.txt")
    (folder / "ner.toml").write_text('task = "ner"\nhidden = 100\n')
    small = ["steps=2", "batch.size=4", "model.lstm.dim=8", "model.lstm.projection_dim=4", "device=cpu"]
    config = PretrainConfig.load("tiny", None, small)
    stop = threading.Event()
    stop.set()
    assert not Training(Corpus.open(corpus), folder / "interrupted", config).train(stop)
    return folder


@pytest.mark.parametrize("line", list(examples()))
def test_an_example_succeeds(line: str, tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if line == "elmo export model exported":
        pytest.importorskip("onnx", reason="needs onnx: pip install 'elmo-torch[onnx]'")
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    write_published(tmp_path, OPTIONS, WEIGHTS)
    (tmp_path / "sentences.txt").write_text("\n".join(LINES), encoding="utf-8")
    (tmp_path / "text.txt").write_text("".join(f"Dogs bark. Cat {k} sat, dog {k} ran.\n" for k in range(40)))
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nbank\nthe\n", encoding="utf-8")
    for name in ("run-a", "run-b"):
        write_run(tmp_path / name)
    if "elmo prepare" in line:
        shutil.rmtree(tmp_path / "corpus")
    before = set(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    ended = run_line(line)
    assert ended.code == 0, ended.err
    prints = any(f"elmo {verb}" in line for verb in ("info", "perplexity", "check", "serve")) or (
        any(f"elmo {verb} " in line for verb in ("score", "predict", "evaluate"))
        and "--output" not in line
        and ">" not in line
    )
    assert (set(tmp_path.rglob("*")) == before) == prints


def write_run(folder: Path) -> None:
    """What a training leaves for `elmo plot`."""
    folder.mkdir()
    (folder / "run.json").write_text('{"negatives": 8192}')
    loss = '{"step": 100, "tokens": 2000, "loss": 5.5, "forward_loss": 6.0, "backward_loss": 5.0}\n'
    (folder / "metrics.jsonl").write_text(loss + '{"step": 100, "tokens": 2000, "perplexity": 200.0}\n')


def test_every_verb_and_every_option_is_explained() -> None:
    root = elmo("--help")
    assert root.code == 0
    for verb in VERBS:
        (line,) = [line for line in root.out.splitlines() if line.startswith(f"  {verb} ")]
        assert re.search(r"  [A-Z][^.]+\.$", line), line  # a sentence that is not cut off
    shown = elmo("embed", "--help").out
    for option in (
        *("--model", "--layers", "--pool", "--format", "--dtype", "--tokenized", "--raw", "--state"),
        *("--batch-tokens", "--device", "--resume", "--forget-sentences"),
    ):
        assert option in shown


@pytest.mark.parametrize("verb", VERBS)
def test_help_screens_are_plain(verb: str) -> None:
    shown = elmo(verb, "-h")
    assert shown.code == 0
    assert shown == elmo(verb, "--help")
    screen = shown.out
    usage, options = screen.splitlines()[0], screen.partition("\nOptions:")[2]
    arguments = screen.partition("\nArguments:")[2].partition("\nOptions:")[0]
    assert re.fullmatch(r"Usage: .+ \w+ \[OPTIONS\]( \[?[A-Z]+(\.\.\.)?\]?)*", usage), usage
    for line in arguments.splitlines():
        assert re.match(r"(  \[?[A-Z]+(\.\.\.)?( OUTPUT)?\]?  )|    |$", line), line
    for line in options.splitlines():
        name = re.match(r"  (-\S.*?)(  |$)", line)
        assert name is None or re.fullmatch(r"(-\w, )?--[\w-]+( / --[\w-]+)?( [A-Z][A-Z.=:]*)?", name[1]), line
    assert "x>=" not in screen
    assert "[]" not in screen


def test_a_missing_argument_is_named() -> None:
    for arguments, missing in (
        (["prepare", "one.txt"], "Missing argument 'OUTPUT'"),
        (["prepare"], "Missing argument 'TEXTS... OUTPUT'"),
        (["embed", "one.txt"], "Missing argument 'OUTPUT'"),
        (["convert"], "Missing argument 'MODEL'"),
    ):
        ended = elmo(*arguments)
        assert (ended.code, ended.out) == (2, "")
        assert missing in ended.err


def test_the_shell_completes_verbs_and_options() -> None:
    completed = {}
    for words, number in (("elmo em", "1"), ("elmo embed --tok", "2")):
        ended = subprocess.run(
            ["elmo"],
            env=environment(_ELMO_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=number),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        completed[words] = ended.stdout.split()
    assert completed == {"elmo em": ["embed"], "elmo embed --tok": ["--tokenized"]}


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_published(tmp_path, OPTIONS, WEIGHTS)
    assert elmo("info", "~/weights.hdf5").code == 0
    (tmp_path / "in.txt").write_text("one\n")
    assert elmo("embed", "~/in.txt", "~/out.npz", "--model=~/weights.hdf5").code == 0
    assert (tmp_path / "out.npz").exists()
    assert elmo("convert", "~/weights.hdf5", "~/new").code == 0
    assert (tmp_path / "new").is_dir()


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    text, name = tmp_path / "in.txt", "n" * 300
    text.write_text("one\n")
    for arguments in (("predict", name, text), ("evaluate", name, tmp_path), ("package", name, tmp_path / "out")):
        assert_refused(elmo(*arguments), "nnn", "File name too long)")


def test_standard_output_that_is_full_or_closed() -> None:
    start = [sys.executable, "-m", "elmo", "embed", "--help"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(start, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr == b"elmo: standard output: cannot be written (No space left on device)\n"
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(start, stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_the_version_is_that_of_the_package() -> None:
    assert elmo("--version") == (0, f"elmo-torch {library.__version__}\n", "")


def test_help_and_the_import_wait_for_no_heavy_library() -> None:
    program = (
        "import sys, contextlib, io\n"
        "heavy = {'torch', 'h5py', 'sacremoses', 'numpy', 'safetensors', 'pyarrow', 'matplotlib', 'fastapi'}\n"
        "import elmo\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "from elmo.cli import main\n"
        f"verbs = {VERBS}\n"
        "for arguments in ('--help', '--version', *(f'{verb} --help' for verb in verbs)):\n"
        "    sys.argv = ['elmo', *arguments.split()]\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main()\n"
        "    print(sorted(heavy & set(sys.modules)))\n"
        "elmo.Embedder\n"
        "print('torch' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n" * (3 + len(VERBS)) + "True\n"


def test_the_public_names_are_there_when_asked_for() -> None:
    for name in library.__all__:
        assert getattr(library, name) is not None
    assert sorted(dir(library)) == sorted(library.__all__)
    with pytest.raises(AttributeError, match="module 'elmo' has no attribute 'nothing'"):
        library.nothing  # noqa: B018


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["embed"], ["embed", "a"], ["info", "--unknown"]])
def test_a_command_that_is_none_shows_how_to_write_one(arguments: list[str]) -> None:
    ended = elmo(*arguments)
    assert ended.code == 2
    assert "Usage: " in ended.out + ended.err
    assert "Traceback" not in ended.err
