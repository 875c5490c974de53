"""`elmo score`: what it prints, what it writes, what it refuses."""

import gzip
import json
import math
import os
import pty
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sacremoses import MosesTokenizer

import elmo as library
from elmo.embed.score_file import score_file
from elmo.files import locked
from elmo.messages import counted
from elmo.model.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained, write
from embedders import (
    LINES,
    OPTIONS,
    WEIGHTS,
    Finished,
    assert_refused,
    command,
    elmo,
    elmo_process,
    environment,
    needs_small_disks,
    nothing_new_in,
    on_a_disk_of,
    pretrained,
    write_model,
)
from models import write_published

WORDS = ["<S>", "</S>", "<UNK>", "The", "cat", "sat", "on", "the", "mat", ".", "日本語", "x"]
MOSES = MosesTokenizer(lang="en")
TOKENS = [MOSES.tokenize(line, escape=False) for line in LINES]
UNKNOWN = [sum(word not in WORDS for word in tokens) for tokens in TOKENS]


def write_language_model(folder: Path, bidirectional: bool = True) -> Path:
    """A model folder with a softmax."""
    config = pretrained().bilm.config
    torch.manual_seed(3)
    bilm = BiLM(replace(config, n_softmax=len(WORDS), bidirectional=bidirectional))
    torch.nn.init.normal_(bilm.softmax_weight(), std=4)  # far from uniform
    write(Pretrained(bilm, Vocabulary(WORDS)), folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of `LINES`."""
    path = tmp_path / "sentences.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def score(*arguments: object, stdin: Any = ()) -> Finished:
    return elmo("score", *arguments, "--device", "cpu", stdin=stdin)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# What is printed


def test_each_line_is_an_object_with_the_scores_of_the_library(lines: Path, model: Path) -> None:
    ended = score(lines, "--model", model)
    assert ended.code == 0, ended.err
    found = objects(ended.out)
    scored = list(library.load(model, device="cpu", softmax=True).score_all(LINES))
    assert len(found) == len(LINES)
    for number, (row, scores) in enumerate(zip(found, scored, strict=True)):
        assert scores.backward is not None
        assert list(row) == [
            *("sentence", "tokens", "forward", "backward", "forward_end", "backward_end", "perplexity", "unknown")
        ]
        assert row["sentence"] == number + 1
        assert row["tokens"] == TOKENS[number]
        assert row["forward"] == pytest.approx(scores.forward.tolist(), abs=1e-5)
        assert row["backward"] == pytest.approx(scores.backward.tolist(), abs=1e-5)
        assert row["forward_end"] == pytest.approx(scores.forward_end, abs=1e-5)
        assert row["backward_end"] == pytest.approx(scores.backward_end, abs=1e-5)
        both = [[*row[way], row[f"{way}_end"]] for way in ("forward", "backward")]
        each = [math.exp(-sum(log_p) / len(log_p)) for log_p in both]
        assert row["perplexity"] == pytest.approx(sum(each) / 2, abs=1e-4)
        assert row["unknown"] == UNKNOWN[number]
    assert "naïve" in ended.out  # readable


def test_the_last_line_has_the_totals_of_all_predictions(lines: Path, model: Path) -> None:
    ended = score(lines, "-m", model)
    rows = objects(ended.out)
    n = sum(len(row["tokens"]) + 1 for row in rows)
    losses = [-sum(sum(row[way]) + row[f"{way}_end"] for row in rows) / n for way in ("forward", "backward")]
    forward, backward = map(math.exp, losses)
    tokens, unknown = sum(map(len, TOKENS)), sum(UNKNOWN)
    assert ended.err == (
        f"{lines}: 7 sentences, {tokens} tokens, {100 * unknown / tokens:.2f}% unknown; perplexity "
        f"{(forward + backward) / 2:.2f} (forward {forward:.2f}, backward {backward:.2f})\n"
    )


def test_the_perplexity_is_that_of_elmo_perplexity(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES if line.strip()), encoding="utf-8")
    ended = elmo("perplexity", model, text, "--state", "fresh", "--json")
    found = json.loads(ended.out)
    shown = f"{found['mean']:.2f} (forward {found['forward']:.2f}, backward {found['backward']:.2f})"
    assert score(text, "-m", model).err.endswith(f"unknown; perplexity {shown}\n")
    assert f"{found['mean']:.2f}" != f"{found['geometric_mean']:.2f}"  # so that the names matter


def test_a_summary_is_a_row_of_a_table(lines: Path, model: Path) -> None:
    rows = [line.split("\t") for line in score(lines, "-m", model, "--summary").out.splitlines()]
    wanted = objects(score(lines, "-m", model).out)
    assert len(rows) == len(wanted)
    for row, values in zip(rows, wanted, strict=True):
        number, tokens, unknown, forward, backward, perplexity, sentence = row
        assert (int(number), int(tokens)) == (values["sentence"], len(values["tokens"]))
        assert int(unknown) == values["unknown"]
        assert float(forward) == pytest.approx(sum(values["forward"]) + values["forward_end"], abs=1e-4)
        assert float(backward) == pytest.approx(sum(values["backward"]) + values["backward_end"], abs=1e-4)
        assert float(perplexity) == values["perplexity"]
        assert sentence == " ".join(values["tokens"])


def test_a_model_of_one_direction_has_nothing_backward(lines: Path, tmp_path: Path) -> None:
    model = write_language_model(tmp_path / "model", bidirectional=False)
    ended = score(lines, "-m", model)
    rows = objects(ended.out)
    assert {(row["backward"], row["backward_end"]) for row in rows} == {(None, None)}
    n = sum(len(row["tokens"]) + 1 for row in rows)
    total = math.exp(-sum(sum(row["forward"]) + row["forward_end"] for row in rows) / n)
    assert ended.err.endswith(f"unknown; perplexity {total:.2f}\n")
    table = [line.split("\t") for line in score(lines, "-m", model, "--summary").out.splitlines()]
    assert {(len(row), row[4]) for row in table} == {(7, "")}


def test_tokenized_lines_are_split_at_white_space_alone(lines: Path, model: Path) -> None:
    rows = objects(score(lines, "-m", model, "--tokenized").out)
    assert [row["tokens"] for row in rows] == [line.split() for line in LINES]


def test_a_warm_state_gives_other_scores(lines: Path, model: Path) -> None:
    rows = objects(score(lines, "-m", model, "--state", "warm").out)
    scored = list(library.load(model, device="cpu", softmax=True).score_all(LINES, state="warm"))
    assert [row["perplexity"] for row in rows] == pytest.approx([scores.perplexity for scores in scored], abs=1e-4)
    assert rows != objects(score(lines, "-m", model).out)


def test_batches_and_standard_input_change_nothing(lines: Path, model: Path) -> None:
    wanted = objects(score(lines, "-m", model).out)
    given = lines.read_bytes().splitlines(keepends=True)
    for ended in (score("-", "-m", model, stdin=given), score(lines, "-m", model, "--batch-tokens", 3)):
        assert ended.code == 0
        for row, other in zip(objects(ended.out), wanted, strict=True):
            assert row["tokens"] == other["tokens"]
            assert row["perplexity"] == pytest.approx(other["perplexity"], abs=1e-4)


@pytest.mark.parametrize("text", ["", "\n", "\n\n\n"])
def test_nothing_and_blank_lines_are_no_sentences_and_empty_ones(text: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(text)
    ended = score(tmp_path / "in.txt", "-m", model)
    assert [(row["sentence"], row["tokens"]) for row in objects(ended.out)] == [(k + 1, []) for k in range(len(text))]
    size = f"{tmp_path / 'in.txt'}: {counted(len(text), 'sentence')}, 0 tokens"
    assert ended.err.startswith(f"{size}, 0.00% unknown; perplexity " if text else f"{size}\n")


# Where it goes


@pytest.mark.parametrize("more", [[], ["--summary"]])
def test_a_file_holds_what_would_be_printed(more: list[str], lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "scores"
    ended = score(lines, "-m", model, "--output", output, *more)
    assert (ended.code, ended.out) == (0, "")
    printed = score(lines, "-m", model, *more)
    assert output.read_text(encoding="utf-8") == printed.out
    assert ended.err == printed.err.replace(str(lines), str(output))
    assert [path.name for path in output.parent.iterdir()] == ["scores"]


def test_standard_output_is_utf_8_whatever_the_locale(lines: Path, model: Path) -> None:
    ended = subprocess.run(
        command("score", lines, "-m", model),
        capture_output=True,
        env=environment(PYTHONIOENCODING="latin-1"),
        timeout=120,
        check=True,
    )
    assert [row["tokens"] for row in objects(ended.stdout.decode("utf-8"))] == TOKENS


def test_with_a_terminal_for_errors_the_bar_is_there_and_the_scores_are_not(lines: Path, model: Path) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        command("score", lines, "--model", model),
        stdout=subprocess.PIPE,
        stderr=its_end,
        env=environment(TERM="xterm-256color", COLUMNS="120"),
    )
    os.close(its_end)
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read()
    shown = b"".join(pieces(terminal))
    assert process.wait(60) == 0
    assert [row["tokens"] for row in objects(printed.decode())] == TOKENS
    assert f"{sum(map(len, TOKENS))} tokens, ".encode() in shown
    assert b"100%" in shown
    assert b'"sentence"' not in shown


def pieces(terminal: int) -> Iterator[bytes]:
    """What was shown on a terminal whose process has ended."""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        yield piece
    os.close(terminal)


def test_who_reads_only_the_first_lines_gets_them(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("the cat sat on the mat .\n" * 20_000)
    line = f"{' '.join(command('score', tmp_path / 'in.txt', '-m', model, '--tokenized'))} | head -n 2"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, env=environment(), timeout=120, check=True)
    assert len(objects(ended.stdout.decode())) == 2
    assert b"Traceback" not in ended.stderr


def test_a_dash_is_standard_output(lines: Path, model: Path, tmp_path: Path) -> None:
    with nothing_new_in(tmp_path):
        assert score(lines, "-m", model, "--output", "-") == score(lines, "-m", model)
    assert not Path("-").exists()


def test_standard_output_that_is_full_is_one_line(lines: Path, model: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command("score", lines, "-m", model),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=120,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr == b"elmo: standard output: cannot be written (No space left on device)\n"


def test_a_byte_order_mark_and_a_compressed_file(lines: Path, model: Path, tmp_path: Path) -> None:
    packed = tmp_path / "sentences.txt.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + lines.read_bytes()))
    assert score(packed, "-m", model).out == score(lines, "-m", model).out


def test_the_library_call_does_what_the_command_does(lines: Path, model: Path, tmp_path: Path) -> None:
    totals = score_file(lines, tmp_path / "out.jsonl", model, device="cpu")
    ended = score(lines, "-m", model)
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == ended.out
    assert f"{lines}: {totals}\n" == ended.err


# What is refused


def test_another_process_that_writes_the_output(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with locked(output):
        ended = score(lines, "-m", model, "--output", output)
    assert_refused(ended, f"{output}: another process is writing it. Wait until it ends, or choose another name")
    assert score(lines, "-m", model, "--output", output).code == 0


def test_an_output_that_cannot_be_written_is_refused_before_the_model_is_read(lines: Path, tmp_path: Path) -> None:
    ended = score(lines, "-m", tmp_path / "no-model", "--output", lines / "out.jsonl")
    assert_refused(ended, f"{lines / 'out.jsonl'}: cannot be written (File exists)")


def test_a_model_without_softmax_says_where_to_get_one(lines: Path, tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    for model in (weights, write_model(tmp_path / "plain")):
        assert_refused(
            score(lines, "-m", model),
            f"{model}: has no softmax, so it predicts no words; published HDF5 files have none. ",
            "`elmo finetune` trains one\n",
        )


def test_a_file_that_exists_is_left_alone(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "scores.jsonl"
    output.write_text("mine")
    assert_refused(score(lines, "-m", model, "--output", output), f"{output}: exists already; give another name")
    assert output.read_text() == "mine"


def test_a_line_that_is_not_utf_8_is_named_and_no_file_is_left(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"the cat\nna\xefve\n")
    with nothing_new_in(tmp_path):
        ended = score(path, "-m", model, "--output", tmp_path / "out.jsonl")
    assert_refused(ended, f"{path}: line 2 is not UTF-8 (byte 3 is 0xef); convert the file first, e.g. with iconv")


def test_a_line_that_is_too_long_is_named(lines: Path, model: Path) -> None:
    ended = score(lines, "-m", model, "--max-sentence-tokens", 3)
    assert_refused(ended, f"{lines}: line 1 has {len(TOKENS[0])} tokens; expected at most 3. Write one")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--state", "carried"], "state is 'carried'; every sentence is scored alone: expected fresh or warm"),
        (["--precision", "int3"], "precision is 'int3'; expected one of float32, bfloat16"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], message: str, lines: Path, model: Path) -> None:
    assert_refused(score(lines, "-m", model, *arguments), message)


def test_an_input_that_is_not_there_is_one_line(model: Path, tmp_path: Path) -> None:
    assert_refused(score(tmp_path / "none", "-m", model), f"{tmp_path / 'none'}: cannot be read (No such file")


def stopping(after: int) -> Iterator[bytes]:
    yield from [b"the cat sat\n"] * after
    raise KeyboardInterrupt


def test_interrupted_it_leaves_what_was_printed_and_no_half_file(model: Path, tmp_path: Path) -> None:
    printed = score("-", "-m", model, "--batch-tokens", 3, stdin=stopping(9))
    assert printed.code == 130
    done = len(objects(printed.out))
    assert 0 < done <= 9
    assert printed.err == f"elmo: interrupted after {done} sentences\n"
    with nothing_new_in(tmp_path):
        ended = score("-", "-m", model, "--batch-tokens", 3, "--output", tmp_path / "out", stdin=stopping(9))
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == f"elmo: interrupted after {done} sentences; nothing was written\n"


@needs_small_disks
def test_a_full_disk_is_one_line(model: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "in.txt").write_text("the cat sat on the mat .\n" * 2000)
    output = tmp_path / "disk" / "scores.jsonl"
    ended = on_a_disk_of("64k", tmp_path / "disk", "score", tmp_path / "in.txt", "-m", model, "--output", output)
    assert_refused(ended, f"{output}: the disk is full; nothing was written. Free some space first")


def test_in_a_pipe_it_says_one_line(lines: Path, model: Path) -> None:
    ended = elmo_process("score", lines, "--model", model)
    assert ended.code == 0
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(f"{lines}: 7 sentences, ")
