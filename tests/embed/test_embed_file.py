"""`embed_file` in Python: the arrays of the reference in a file, and errors before the model is read."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from elmo.embed.embed_file import Embedded, embed_file
from elmo.errors import ConfigError, DataError
from embedders import assert_close, fresh, read_arrays, write_model

SENTENCES = [["the", "cat", "sat"], [], ["naïve", "日本"], ["the", "cat", "sat"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in SENTENCES), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".parquet"])
def test_the_file_has_the_arrays_of_the_reference(suffix: str, text: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / f"out{suffix}"
    assert embed_file(text, output, model, tokenized=True, device="cpu") == Embedded(4, 8)
    arrays, index = read_arrays(output)
    for array, sentence in zip(arrays, SENTENCES, strict=True):
        assert_close(array, fresh(sentence))
    assert index == {"the cat sat": "0", "": "1", "naïve 日本": "2"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", output.name]


def test_pooled_sentences_are_the_means_of_their_tokens(text: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    embed_file(text, output, model, tokenized=True, device="cpu", layers="top", pool="mean")
    with h5py.File(output) as file:
        for number, sentence in enumerate(SENTENCES):
            expected = fresh(sentence)[-1].mean(axis=0) if sentence else np.zeros(10)
            assert_close(file[str(number)][:], expected)


def test_a_line_that_cannot_be_read_keeps_those_before_it_for_resume(text: Path, model: Path, tmp_path: Path) -> None:
    whole = text.read_bytes()
    text.write_bytes(whole + b"\xff\n")
    output = tmp_path / "out.npz"
    with pytest.raises(DataError, match=r"line 5 is not UTF-8.*4 sentences are saved in .*out\.npz\.part; use"):
        embed_file(text, output, model, tokenized=True, device="cpu")
    assert not output.exists()
    text.write_bytes(whole + b"on\n")
    embed_file(text, output, model, tokenized=True, device="cpu", resume=True)
    arrays, _ = read_arrays(output)
    for array, sentence in zip(arrays, [*SENTENCES, ["on"]], strict=True):
        assert_close(array, fresh(sentence))


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("-", {}, "embed cannot write arrays to standard output"),
        ("out.txt", {}, r"format is '\.txt'; expected one of hdf5, parquet, npz"),
        ("out.npz", {"pool": "median"}, "pooling is 'median'; expected one of mean, max, first-last, sif"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_model_is_looked_for(
    output: str, options: dict[str, str], message: str, text: Path, tmp_path: Path
) -> None:
    name = output if output == "-" else tmp_path / output
    with pytest.raises(ConfigError, match=message):
        embed_file(text, name, tmp_path / "no-model", **options)  # type: ignore[arg-type]


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b\n")
    (tmp_path / ".x.hdf5.12345.tmp").write_bytes(b"half of a file")
    embed_file(tmp_path / "text.txt", tmp_path / "x.hdf5", write_model(tmp_path / "model"), device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "text.txt", "x.hdf5"]
