"""Standard streams that the caller has closed, as `elmo … >&-` in a shell, or that have another encoding."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from embedders import LINES, Finished, command, environment, finished, fresh, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


def closed(streams: str, *arguments: object) -> Finished:
    """Run `elmo` without these streams."""
    return finished(["bash", "-c", f'"$@" {streams}', "bash", *command(*arguments)])


def test_without_standard_output_files_are_written(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a cat\n")
    output = tmp_path / "out.npz"
    ended = closed(">&-", "embed", tmp_path / "in.txt", output, "--model", model, "--device", "cpu")
    assert ended == Finished(0, "", f"{output}: 1 sentence, 2 tokens\n")
    with np.load(output) as arrays:
        np.testing.assert_allclose(arrays["0"], fresh(["a", "cat"]), atol=1e-5)


def test_without_standard_output_results_are_an_error(model: Path) -> None:
    ended = closed(">&-", "info", model)
    assert ended == Finished(2, "", "elmo: standard output: cannot be written (Bad file descriptor)\n")


def test_without_standard_input_it_cannot_be_read(model: Path, tmp_path: Path) -> None:
    ended = closed("<&-", "embed", "-", tmp_path / "out.npz", "--model", model)
    assert ended == Finished(2, "", "elmo: standard input: cannot be read (Bad file descriptor)\n")
    assert not list(tmp_path.iterdir())


def test_without_standard_error_no_message_is_among_the_results(tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    ended = closed("2>&-", "score", text)
    assert ended.code == 0
    assert [json.loads(line)["sentence"] for line in ended.out.splitlines()] == list(range(1, len(LINES) + 1))


def test_characters_that_the_encoding_lacks_are_escaped_but_not_in_results(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("日本 ×\n", encoding="utf-8")
    for arguments, part in (
        (("embed", "--help"), b"cuda:1, \\u2026"),
        (("info", "english"), b"2 directions \xd7 2"),
        (("score", tmp_path / "in.txt"), '"日", "本", "×"'.encode()),
    ):
        start = command(*arguments)
        ended = subprocess.run(
            start, capture_output=True, env=environment(PYTHONIOENCODING="latin-1"), timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert part in ended.stdout
