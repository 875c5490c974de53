"""`elmo predict`: an answer for every line, in its place; what it reads, where it writes, what it refuses."""

import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import elmo as library
from elmo.files import locked
from elmo.tasks.ner.model import TASK
from elmo.tasks.predict import Predictor
from elmo.tasks.predict_file import predict_file
from elmo.tasks.train import TaskTraining
from embedders import Finished, assert_refused, command, elmo, environment, nothing_new_in, write_model
from tasks.small_ner import recipe, splits

TEXT = "\n\nAnna left for Lima.\n \t\nBela saw Oslo.\n\n"
ANSWERED = {3: ["Anna", "left", "for", "Lima", "."], 5: ["Bela", "saw", "Oslo", "."]}


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    model = write_model(folder / "bilm")
    config = recipe(f"inputs.elmo.model={model}", "train.epochs=1")
    assert TaskTraining(TASK, config, splits(), folder / "run").train()
    return folder / "run" / "model"


def predict(*arguments: object, stdin: Any = ()) -> Finished:
    return elmo("predict", *arguments, "--device", "cpu", stdin=stdin)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def write(path: Path, data: str | bytes = TEXT) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def check(answers: list[dict[str, Any]]) -> None:
    """One answer for each line of `TEXT`, in its place."""
    assert [next(iter(answer)) for answer in answers] == ["line"] * 6
    assert [answer["line"] for answer in answers] == [1, 2, 3, 4, 5, 6]
    for answer in answers:
        if answer["line"] in ANSWERED:
            assert answer["tokens"] == ANSWERED[answer["line"]]
            assert "blank" not in answer
        else:
            assert answer == {"line": answer["line"], "blank": True}


# Lines and answers


def test_answers_carry_their_line_and_blank_lines_keep_their_place(tagger: Path, tmp_path: Path) -> None:
    check(objects(predict(tagger, write(tmp_path / "in.txt")).out))


@pytest.mark.parametrize("at_once", [1, 2])
def test_lines_stay_in_order_over_many_windows(
    at_once: int, tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmo.tasks.predict.BUFFER_SIZE", at_once)
    lines = [f"word{k} left ." if k % 3 else "" for k in range(20)]
    answers = objects(predict(tagger, write(tmp_path / "in.txt", "\n".join(lines))).out)
    assert [answer["line"] for answer in answers] == list(range(1, 21))
    for line, answer in zip(lines, answers, strict=True):
        assert answer.get("tokens", []) == line.split()


def test_a_line_of_control_characters_is_blank(tagger: Path, tmp_path: Path) -> None:
    text = "\0\nAnna left for Lima.\n\1 \0\x1b\n\x85\0\nBela saw Oslo.\n\x1f"
    answers = objects(predict(tagger, write(tmp_path / "in.txt", text)).out)
    assert [answer.get("tokens") for answer in answers] == [None, ANSWERED[3], None, None, ANSWERED[5], None]
    assert [answer.get("blank") for answer in answers] == [True, None, True, True, None, True]


@pytest.mark.parametrize("text", ["", "\n\n\n"])
def test_a_file_without_items(text: str, tagger: Path, tmp_path: Path) -> None:
    wanted = [{"line": k + 1, "blank": True} for k in range(len(text))]
    assert objects(predict(tagger, write(tmp_path / "in.txt", text)).out) == wanted


def test_the_answers_are_those_of_the_library(tagger: Path, tmp_path: Path) -> None:
    answers = objects(predict(tagger, write(tmp_path / "in.txt")).out)
    wanted = library.load_task(tagger, "cpu").predict(["Anna left for Lima.", "Bela saw Oslo."])
    assert [answers[2], answers[4]] == [{"line": 3, **wanted[0]}, {"line": 5, **wanted[1]}]


# Files


def test_a_byte_order_mark_compression_and_windows_line_ends(tagger: Path, tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + "Anna left.\n\nBela saw Oslo.\n".replace("\n", "\r\n").encode()
    for path in (write(tmp_path / "in.txt", data), write(tmp_path / "in.txt.gz", gzip.compress(data))):
        answers = objects(predict(tagger, path).out)
        assert [answer.get("tokens") for answer in answers] == [["Anna", "left", "."], None, ANSWERED[5]]


def test_compressed_json_lines_are_known_by_their_name(tagger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl.gz", gzip.compress(b'["Anna"]\n'))
    assert objects(predict(tagger, path).out)[0]["tokens"] == ["Anna"]
    assert objects(predict(tagger, path, "--text").out)[0]["tokens"] != ["Anna"]


@pytest.mark.parametrize("name", ["in.json.txt", "of.jsonl.d", "jsonl", ".json"])
def test_only_the_end_of_a_name_says_that_lines_are_json(name: str, tagger: Path, tmp_path: Path) -> None:
    assert objects(predict(tagger, write(tmp_path / name, "Anna left .\n")).out)[0]["tokens"] == ["Anna", "left", "."]


def test_a_dash_is_standard_output(tagger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.txt")
    with nothing_new_in(tmp_path):
        assert predict(tagger, path, "--output", "-").out == predict(tagger, path).out
    assert not Path("-").exists()
    assert predict(tagger, path, "-o", tmp_path / "out.jsonl").out == ""
    check(objects((tmp_path / "out.jsonl").read_text()))


def test_the_library_call_counts_and_reports(tagger: Path, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []
    predictor = library.load_task(tagger, "cpu")
    path = write(tmp_path / "in.txt")
    done = predict_file(predictor, path, tmp_path / "out", progress=lambda *now: shown.append(now))
    assert done == 6
    check(objects((tmp_path / "out").read_text()))
    assert shown == [(1, 1), (2, 2), (3, 22), (4, 25), (5, 40), (6, 41)]


# What is refused


def test_another_process_that_writes_the_output(tagger: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    path = write(tmp_path / "in.txt")
    with locked(output):
        ended = predict(tagger, path, "--output", output)
    assert_refused(ended, f"{output}: another process is writing it. Wait until it ends, or choose another name")
    assert predict(tagger, path, "--output", output).code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n[", "line 2 is not JSON ("),
        ("\n" + "[" * 100_000, "line 2 is not JSON ("),
        ('"Anna"\n\n[]', "line 3: []: expected a sentence, a list of tokens"),
    ],
)
def test_an_item_that_cannot_be_read_names_its_line(text: str, message: str, tagger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", text)
    with nothing_new_in(tmp_path):
        assert_refused(predict(tagger, path, "--output", tmp_path / "out.jsonl"), f"{path}: {message}")


def test_half_of_a_surrogate_pair(tagger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", '["\\ud83d\\ude00"]\n["a", {"b": "\\ude00"}]\n')
    with nothing_new_in(tmp_path):
        ended = predict(tagger, path, "--output", tmp_path / "out.jsonl")
        assert_refused(ended, f"{path}: line 2 has half a surrogate pair, \\ud800 to \\udfff; expected characters of")
    write(path, '["\\ud83d\\ude00", "\\\\ude00"]')  # a pair; and a backslash with letters
    assert objects(predict(tagger, path).out)[0]["tokens"] == ["\U0001f600", "\\ude00"]


def test_a_line_that_is_not_utf8(tagger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.txt", b"Anna\n\nB\xe9la\n")
    assert_refused(predict(tagger, path, "-o", tmp_path / "out"), f"{path}: line 3 is not UTF-8 (byte 2 is 0xe9); ")


def test_interrupted_it_leaves_no_half_file(tagger: Path, tmp_path: Path) -> None:
    def stopping() -> Iterator[bytes]:
        yield b"Anna left .\n"
        raise KeyboardInterrupt

    with nothing_new_in(tmp_path):
        ended = predict(tagger, "-", "--output", tmp_path / "out", stdin=stopping())
    assert ended == Finished(130, "", "elmo: interrupted; nothing was written\n")


def test_standard_output_that_is_full_or_closed(tagger: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "in.txt")
    start = command("predict", tagger, path, "--device", "cpu")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(start, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=120, check=False)
    assert ended.returncode == 2
    assert ended.stderr == b"elmo: standard output: cannot be written (No space left on device)\n"
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(start, stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=120, check=False)
    os.close(writing)
    assert ended.stderr == b""
    assert ended.returncode == 1


# A task about documents


@pytest.fixture
def documents(tagger: Path) -> Predictor:
    """The tagger, as if its items of raw text were whole files."""
    predictor = library.load_task(tagger, "cpu")
    predictor.task = replace(predictor.task, unit="file")
    return predictor


def test_raw_text_is_one_document(documents: Predictor, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = write(tmp_path / "text.txt", "Anna left\nfor Lima.\n\nBela saw Oslo.\n")
    out = tmp_path / "out.jsonl"
    assert predict_file(documents, path, out, progress=lambda *done: seen.append(done)) == 1
    (answer,) = objects(out.read_text())
    assert answer["line"] == 1
    assert answer["tokens"] == ["Anna", "left", "for", "Lima", ".", "Bela", "saw", "Oslo", "."]
    assert seen == [(1, path.stat().st_size)]


def test_an_empty_document(documents: Predictor, tmp_path: Path) -> None:
    predict_file(documents, write(tmp_path / "text.txt", "\n \n"), tmp_path / "out.jsonl")
    assert objects((tmp_path / "out.jsonl").read_text()) == [{"line": 1, "blank": True}]


def test_json_lines_are_documents_of_their_own(documents: Predictor, tmp_path: Path) -> None:
    path = write(tmp_path / "items.jsonl", '["Anna", "left"]\n["Bela"]\n')
    assert predict_file(documents, path, tmp_path / "out.jsonl") == 2
    assert [one["tokens"] for one in objects((tmp_path / "out.jsonl").read_text())] == [["Anna", "left"], ["Bela"]]
