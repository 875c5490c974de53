"""`elmo embed`: what it writes, what it refuses, and that stopping it anywhere changes nothing in the end."""

import errno
import gzip
import itertools
import json
import os
import pickle
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from sacremoses import MosesTokenizer

import elmo as library
from elmo.embed import store
from elmo.embed.embed_file import embed_file
from elmo.messages import counted
from elmo.weights.folder import write
from embedders import (
    DIM,
    LINES,
    N_LAYERS,
    REFERENCE,
    Finished,
    assert_close,
    assert_refused,
    assert_same_bits,
    command,
    elmo,
    elmo_process,
    environment,
    fresh,
    needs_small_disks,
    nothing_new_in,
    on_a_disk_of,
    pretrained,
    read_arrays,
    write_model,
)
from models import random_sentences

FORMATS = ["hdf5", "npz", "parquet"]
MOSES = MosesTokenizer(lang="en")
SENTENCES = [
    [word for word in sentence if word.strip("\x00")] for sentence in random_sentences(np.random.default_rng(8), 60)
]
TEXT = [" ".join(sentence).encode() + b"\n" for sentence in SENTENCES]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A file of `LINES`."""
    path = tmp_path / "sentences.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture
def one_thread() -> Iterator[None]:
    """`--threads` lasts longer than the run where the command runs in this process."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def written(ended: Finished, output: Path) -> tuple[list[Any], dict[str, str] | None]:
    assert ended.code == 0, ended.err
    assert ended.out == ""
    assert not output.with_name(output.name + ".part").exists()
    return read_arrays(output)


# What is written


@pytest.mark.parametrize("form", FORMATS)
def test_each_line_is_an_array_under_its_number(form: str, lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / f"out.{form}"
    arrays, sentences = written(elmo("embed", lines, output, "--model", model, "--device", "cpu"), output)
    tokens = [MOSES.tokenize(line, escape=False) for line in LINES]
    assert len(arrays) == len(LINES)
    for array, words in zip(arrays, tokens, strict=True):
        assert array.dtype == np.float32
        assert_close(array, fresh(words))
    keys = [" ".join(words) for words in tokens]
    assert sentences == {key: str(keys.index(key)) for key in keys}


def test_tokenized_lines_are_split_at_white_space_alone(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    arrays, sentences = written(elmo("embed", lines, output, "-m", model, "--tokenized", "--device", "cpu"), output)
    for array, line in zip(arrays, LINES, strict=True):
        assert_close(array, fresh(line.split()))
    assert sentences == {line: str(LINES.index(line)) for line in LINES}
    raw = tmp_path / "raw.hdf5"
    shapes = [array.shape[1] for array in written(elmo("embed", lines, raw, "-m", model, "--raw"), raw)[0]]
    assert shapes == [len(MOSES.tokenize(line, escape=False)) for line in LINES]
    assert shapes != [array.shape[1] for array in arrays]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("layers", ["top", "average", "0", "1"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layers_and_dtype_are_those_of_embed(
    form: str, layers: str, dtype: str, lines: Path, model: Path, tmp_path: Path
) -> None:
    output = tmp_path / f"out.{form}"
    ended = elmo("embed", lines, output, "-m", model, "--layers", layers, "--dtype", dtype, "--device", "cpu")
    wanted = list(library.load(model, device="cpu").embed(LINES, layers, dtype=dtype))
    assert_same_bits(written(ended, output)[0], wanted)
    assert wanted[0].shape == (7, DIM)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("pool", ["mean", "max", "first-last"])
def test_pooled_lines_are_those_of_encode(form: str, pool: str, lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / f"out.{form}"
    ended = elmo("embed", lines, output, "-m", model, "--pool", pool, "--layers", "average", "--device", "cpu")
    vectors = library.load(model, device="cpu").encode(LINES, pool)
    assert_same_bits(written(ended, output)[0], list(vectors))


def test_every_layer_may_be_pooled(lines: Path, model: Path, tmp_path: Path) -> None:
    ended = elmo("embed", lines, tmp_path / "out.npz", "-m", model, "--pool", "mean", "--device", "cpu")
    for array, line in zip(written(ended, tmp_path / "out.npz")[0], LINES, strict=True):
        layers = fresh(MOSES.tokenize(line, escape=False))
        assert_close(array, layers.mean(axis=1) if line else np.zeros((N_LAYERS, DIM)))


@pytest.mark.parametrize("form", FORMATS)
def test_forgotten_sentences_are_not_in_the_file(form: str, lines: Path, model: Path, tmp_path: Path) -> None:
    output, known = tmp_path / f"out.{form}", tmp_path / f"known.{form}"
    arrays, sentences = written(elmo("embed", lines, output, "-m", model, "--forget-sentences"), output)
    assert sentences is None
    assert_same_bits(arrays, written(elmo("embed", lines, known, "-m", model), known)[0])


@pytest.mark.parametrize("state", ["carried", "warm"])
def test_the_state_is_that_of_embed(state: str, lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    ended = elmo("embed", lines, output, "-m", model, "--state", state, "--batch-size", 2, "--device", "cpu")
    arrays, _ = written(ended, output)
    wanted = list(library.load(model, device="cpu").embed(LINES, state=state, batch_size=2))
    assert_same_bits(arrays, wanted)
    if state == "carried":
        tokens = [MOSES.tokenize(line, escape=False) for line in LINES]
        batches = [tokens[start : start + 2] for start in range(0, len(tokens), 2)]
        wanted = [other for batch in REFERENCE.carried(batches) for other in batch]
        for array, other in zip(arrays, wanted, strict=True):
            assert_close(array, other)


@pytest.mark.parametrize("form", FORMATS)
def test_standard_input_is_a_file_like_another(form: str, lines: Path, model: Path, tmp_path: Path) -> None:
    output, known = tmp_path / f"out.{form}", tmp_path / f"known.{form}"
    given = lines.read_bytes().splitlines(keepends=True)
    assert elmo("embed", "-", output, "-m", model, stdin=given).code == 0
    assert elmo("embed", lines, known, "-m", model).code == 0
    assert output.read_bytes() == known.read_bytes()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("text", ["", "\n", "\n\n\n"])
def test_nothing_and_blank_lines_are_no_sentences_and_empty_ones(
    form: str, text: str, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text(text)
    output = tmp_path / f"out.{form}"
    ended = elmo("embed", tmp_path / "in.txt", output, "-m", model)
    arrays, sentences = written(ended, output)
    assert [array.shape for array in arrays] == [(N_LAYERS, 0, DIM)] * len(text)
    assert sentences == ({"": "0"} if text else {})
    assert ended.err == f"{output}: {counted(len(text), 'sentence')}, 0 tokens\n"


def test_only_a_line_feed_ends_a_line(model: Path, tmp_path: Path) -> None:
    text = "one\r\ntwo\u2028still two\x0bstill two\x0c\nthree"
    (tmp_path / "in.txt").write_bytes(text.encode())
    output = tmp_path / "out.hdf5"
    arrays, sentences = written(elmo("embed", tmp_path / "in.txt", output, "-m", model, "--tokenized"), output)
    assert sentences == {"one": "0", "two still two still two": "1", "three": "2"}
    assert len(arrays) == 3


def test_format_overrules_the_ending(lines: Path, model: Path, tmp_path: Path) -> None:
    assert elmo("embed", lines, tmp_path / "vectors", "-m", model, "--format", "npz").code == 0
    with np.load(tmp_path / "vectors") as file:
        assert sorted(file) == [*"0123456", "sentence_to_index"]


@pytest.mark.usefixtures("one_thread")
def test_threads_and_budget_change_only_the_time(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.npz"
    ended = elmo("embed", lines, output, "-m", model, "--batch-tokens", 3, "--threads", 1, "--device", "cpu")
    assert torch.get_num_threads() == 1
    for array, line in zip(written(ended, output)[0], LINES, strict=True):
        assert_close(array, fresh(MOSES.tokenize(line, escape=False)))


def test_in_a_pipe_it_is_quiet_but_for_one_line(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    ended = elmo_process("embed", lines, output, "--model", model)
    tokens = sum(len(MOSES.tokenize(line, escape=False)) for line in LINES)
    assert ended == Finished(0, "", f"{output}: {len(LINES)} sentences, {tokens} tokens\n")


def test_on_a_terminal_a_bar_shows_tokens_and_their_speed(lines: Path, model: Path, tmp_path: Path) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        command("embed", lines, tmp_path / "out.hdf5", "--model", model),
        stdout=subprocess.PIPE,
        stderr=its_end,
        env=environment(TERM="xterm-256color", COLUMNS="120"),
    )
    os.close(its_end)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the process has ended
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    assert process.wait(60) == 0
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read() == b""
    tokens = sum(len(MOSES.tokenize(line, escape=False)) for line in LINES)
    assert f"{tokens} tokens, ".encode() in shown
    assert b"/s" in shown
    assert b"100%" in shown


# Stopped, and resumed


class Killed(BaseException):
    """What ends a run without asking it."""


def stopping_after(count: int, error: BaseException) -> Iterator[bytes]:
    """The text, until something happens."""
    yield from TEXT[:count]
    raise error


SETTINGS = {
    "fresh": [],
    "warm": ["--state", "warm"],
    "carried": ["--state", "carried", "--batch-size", "7"],
    "pooled": ["--pool", "max", "--dtype", "float16"],
}


def embed(output: Path, model: Path, *more: object, stdin: Any = TEXT) -> Finished:
    """Embed the text in windows of about 48 tokens, one thread."""
    fixed = ["-m", model, "--tokenized", "--batch-tokens", 12, "--device", "cpu", "--threads", 1]
    return elmo("embed", "-", output, *fixed, *more, stdin=stdin)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setattr(store, "SEGMENT_BYTES", 3000)


def segments(output: Path) -> list[int]:
    """Where the finished segments of an unfinished run begin."""
    part = output.with_name(output.name + ".part")
    return sorted(int(path.stem) for path in part.glob("*.json") if path.stem.isdecimal())


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_killed_and_resumed_it_ends_in_the_same_file(form: str, settings: str, model: Path, tmp_path: Path) -> None:
    output, whole = tmp_path / f"out.{form}", tmp_path / f"whole.{form}"
    assert embed(whole, model, *SETTINGS[settings]).code == 0
    counts = []
    for number, count in enumerate((25, 50)):  # killed twice
        with pytest.raises(Killed):
            embed(output, model, *SETTINGS[settings], *["--resume"] * number, stdin=stopping_after(count, Killed()))
        assert not output.exists()
        counts.append(len(segments(output)))
    if settings != "pooled":  # whose arrays are few
        assert 0 < counts[0] < counts[1]
    assert embed(output, model, *SETTINGS[settings], "--resume").code == 0
    assert output.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out.{form}", f"whole.{form}"]


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_interrupted_it_saves_what_is_done_and_resumes_there(
    form: str, settings: str, model: Path, tmp_path: Path
) -> None:
    output, whole = tmp_path / f"out.{form}", tmp_path / f"whole.{form}"
    assert embed(whole, model, *SETTINGS[settings]).code == 0
    ended = embed(output, model, *SETTINGS[settings], stdin=stopping_after(40, KeyboardInterrupt()))
    assert (ended.code, ended.out) == (130, "")
    part = output.with_name(output.name + ".part")
    saved = sum(len(json.loads((part / f"{first}.json").read_text())) for first in segments(output))
    assert 20 < saved < 40
    assert ended.err == (
        f"elmo: interrupted; {saved} sentences are saved in {part}; use --resume and the same input to continue\n"
    )
    assert embed(output, model, *SETTINGS[settings], "--resume").code == 0
    (arrays, sentences), (other, known) = read_arrays(output), read_arrays(whole)
    assert_same_bits(arrays, other)
    assert sentences == known


def test_interrupted_while_the_file_is_made_it_is_made_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    output = tmp_path / "out.hdf5"

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(h5py.Group, "create_dataset", interrupted)
        ended = embed(output, model)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.startswith("elmo: interrupted; 60 sentences are saved in ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.hdf5.part"]
    assert len(written(embed(output, model, "--resume"), output)[0]) == 60


def test_interrupted_before_anything_is_done_it_leaves_nothing(model: Path, tmp_path: Path, one_thread: None) -> None:
    with nothing_new_in(tmp_path):
        ended = embed(tmp_path / "out.hdf5", model, stdin=stopping_after(0, KeyboardInterrupt()))
    assert ended == Finished(130, "", "elmo: interrupted\n")


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("count", [0, 1, 59, 60])
def test_it_may_be_killed_before_the_first_and_after_the_last_line(count: int, model: Path, tmp_path: Path) -> None:
    output, whole = tmp_path / "out.hdf5", tmp_path / "whole.hdf5"
    assert embed(whole, model).code == 0
    with pytest.raises(Killed):
        embed(output, model, stdin=stopping_after(count, Killed()))
    assert embed(output, model, "--resume").code == 0
    assert output.read_bytes() == whole.read_bytes()


def start(output: Path, model: Path) -> subprocess.Popen[bytes]:
    """The same run as `embed` in a process of its own, when it has finished three segments and waits for more text."""
    process = subprocess.Popen(
        command(
            *("embed", "-", output, "-m", model, "--tokenized", "--batch-tokens", 12, "--device", "cpu"),
            *("--threads", 1),
            segment_bytes=3000,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    process.stdin.write(b"".join(TEXT[:45]))
    process.stdin.flush()
    for _ in range(600):
        if len(segments(output)) >= 3:
            return process
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    raise AssertionError("no three segments within a minute")


@pytest.mark.usefixtures("small_segments")
def test_a_process_that_was_killed_is_resumed(model: Path, tmp_path: Path) -> None:
    output, whole = tmp_path / "out.hdf5", tmp_path / "whole.hdf5"
    process = start(output, model)
    process.kill()
    assert process.communicate() == (b"", b"")
    assert process.returncode == -signal.SIGKILL
    assert not output.exists()
    assert embed(output, model, "--resume").code == 0
    assert embed(whole, model).code == 0
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("small_segments")
def test_a_process_that_was_terminated_saves_first(model: Path, tmp_path: Path) -> None:
    output, whole = tmp_path / "out.hdf5", tmp_path / "whole.hdf5"
    process = start(output, model)
    process.terminate()
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.startswith(b"elmo: interrupted; ")
    assert err.endswith(b"; use --resume and the same input to continue\n")
    assert embed(output, model, "--resume").code == 0
    assert embed(whole, model).code == 0
    assert output.read_bytes() == whole.read_bytes()


def test_a_finished_run_leaves_the_signals_as_they_were(lines: Path, model: Path, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert elmo("embed", lines, tmp_path / "out.npz", "-m", model).code == 0
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture
def unfinished(model: Path, tmp_path: Path, small_segments: None) -> Path:
    """The output of a run that was killed."""
    output = tmp_path / "out.hdf5"
    with pytest.raises(Killed):
        embed(output, model, stdin=stopping_after(45, Killed()))
    assert len(segments(output)) >= 3
    return output


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (["--layers", "top"], "layers is 'top', but the run to resume has 'all'"),
        (["--dtype", "float16"], "dtype is 'float16', but the run to resume has 'float32'"),
        (["--pool", "mean"], "pool is 'mean', but the run to resume has None"),
        (["--raw"], "tokenized is False, but the run to resume has True"),
        (["--state", "warm"], "state is 'warm', but the run to resume has 'fresh'"),
        (["--precision", "bfloat16"], "precision is 'bfloat16', but the run to resume has 'float32'"),
    ],
)
def test_other_settings_are_not_resumed(other: list[str], name: str, unfinished: Path, model: Path) -> None:
    with nothing_new_in(unfinished.parent):
        assert_refused(embed(unfinished, model, *other, "--resume"), f"{unfinished}.part: {name}")


def test_another_model_does_not_go_on(unfinished: Path, tmp_path: Path) -> None:
    changed = pretrained()
    with torch.no_grad():
        changed.bilm.lstms[0].bias[0, 0] += 0.001
    write(changed, tmp_path / "another")
    with nothing_new_in(tmp_path):
        ended = embed(unfinished, tmp_path / "another", "--resume")
    assert_refused(ended, "model is '", "but the run to resume has ")


def test_the_same_model_in_another_place_goes_on(unfinished: Path, model: Path, tmp_path: Path) -> None:
    whole = unfinished.with_name("whole.hdf5")
    assert embed(whole, model).code == 0
    assert embed(unfinished, write_model(tmp_path / "moved"), "--resume").code == 0
    assert_same_bits(read_arrays(unfinished)[0], read_arrays(whole)[0])


def test_another_budget_is_refused_or_ends_in_the_same_file(unfinished: Path, model: Path) -> None:
    whole = unfinished.with_name("whole.hdf5")
    assert embed(whole, model).code == 0
    ended = embed(unfinished, model, "--batch-tokens", 100, "--resume")
    if ended.code == 0:
        assert_same_bits(read_arrays(unfinished)[0], read_arrays(whole)[0])
    else:
        assert_refused(ended, "batch_tokens is 100, but the run to resume has 12")


def test_a_line_that_has_changed_is_not_passed_over(unfinished: Path, model: Path) -> None:
    changed = [*TEXT[:4], b"changed\n", *TEXT[5:]]
    with nothing_new_in(unfinished.parent):
        ended = embed(unfinished, model, "--resume", stdin=changed)
    assert_refused(
        ended, f"standard input: line 5 has changed since the run to resume; restore it, or remove {unfinished}.part"
    )


def test_a_text_that_has_become_shorter_is_not_passed_over(unfinished: Path, model: Path) -> None:
    done = embed(unfinished, model, "--resume", stdin=TEXT[:2])
    assert_refused(done, "standard input: has 2 lines, but the run to resume has read ", f"remove {unfinished}.part")
    assert not unfinished.exists()


def test_an_unfinished_run_is_not_overwritten(unfinished: Path, model: Path) -> None:
    with nothing_new_in(unfinished.parent):
        ended = embed(unfinished, model)
    found = f"{unfinished}.part: contains an unfinished run. Use --resume to continue it, or remove it to start over"
    assert_refused(ended, found)


def test_resuming_what_was_never_started_starts_it(model: Path, tmp_path: Path, one_thread: None) -> None:
    assert embed(tmp_path / "out.hdf5", model, "--resume").code == 0
    assert len(read_arrays(tmp_path / "out.hdf5")[0]) == len(TEXT)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("pool", [[], ["--pool", "mean"]])
def test_kill_9_loses_seconds_however_small_the_arrays(
    pool: list[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SEGMENT_SECONDS", 0.0)
    output, on_disk = tmp_path / "out.hdf5", []

    def watched() -> Iterator[bytes]:
        for number, line in enumerate(TEXT):
            part = output.with_name("out.hdf5.part")
            on_disk.append(sum(len(json.loads((part / f"{first}.json").read_text())) for first in segments(output)))
            assert on_disk[-1] <= number
            yield line

    assert embed(output, model, *pool, stdin=watched()).code == 0
    assert on_disk[-1] > 40  # windows have about 48 tokens: what is missing is the one being read
    late = [number - done for number, done in enumerate(on_disk)]
    assert max(late) < 20


@pytest.mark.usefixtures("one_thread")
def test_segments_are_not_written_for_every_line(model: Path, tmp_path: Path) -> None:
    output, counts = tmp_path / "out.hdf5", []

    def watched() -> Iterator[bytes]:
        for line in TEXT:
            counts.append(len(segments(output)))
            yield line

    assert embed(output, model, stdin=watched()).code == 0
    assert max(counts) == 0  # the run takes less than five seconds and 32 MB


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("state", ["fresh", "carried"])
def test_a_bad_byte_keeps_the_lines_before_it(state: str, model: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "in.txt", tmp_path / "out.hdf5"
    options = ["-m", model, "--pool", "mean", "--tokenized", "--state", state, "--device", "cpu", "--threads", 1]
    good = b"the cat sat on the mat .\n"
    path.write_bytes(good * 500 + b"b\xe4d\n" + good * 9)
    ended = elmo("embed", path, output, *options)
    part = f"{output}.part"
    assert_refused(
        ended,
        f"elmo: {path}: line 501 is not UTF-8 (byte 2 is 0xe4); convert the file first, e.g. with iconv. ",
        f"500 sentences are saved in {part}; use --resume to continue\n",
    )
    path.write_bytes(good * 500 + b"good\n" + good * 9)
    assert len(written(elmo("embed", path, output, *options, "--resume"), output)[0]) == 510


@pytest.mark.usefixtures("one_thread")
def test_whatever_ends_a_run_keeps_what_is_done(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, whole = tmp_path / "out.hdf5", tmp_path / "whole.hdf5"
    calls = itertools.count()
    add = store.Store.add

    def failing(self: store.Store, *arguments: Any) -> None:
        if next(calls) == 30:
            raise RuntimeError("the graphics card fell out")
        add(self, *arguments)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="fell out") as error:
        patched.setattr(store.Store, "add", failing)
        embed(output, model)
    assert error.value.__notes__ == [
        f"30 sentences are saved in {output}.part; use --resume and the same input to continue"
    ]
    assert embed(output, model, "--resume").code == 0
    assert embed(whole, model).code == 0
    assert output.read_bytes() == whole.read_bytes()


DAMAGE = {
    "settings": ("settings.json", b"{"),
    "settings of another kind": ("settings.json", b"[1, 2]"),
    "tokens": ("{}.json", b'[["a"'),
    "no tokens": ("{}.json", b"3"),
    "fewer tokens": ("{}.json", b'[["a"], ["b"]]'),
    "deep tokens": ("{}.json", b"[" * 100_000),
    "truncated": ("{}.npy", None),
    "garbage": ("{}.npy", b"garbage" * 50),
    "empty": ("{}.npy", b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("at", [0, 1])
def test_a_damaged_unfinished_run_is_one_line(at: int, damage: str, unfinished: Path, model: Path) -> None:
    name, content = DAMAGE[damage]
    first = segments(unfinished)[at]
    path = unfinished.with_name("out.hdf5.part") / name.format(first)
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with nothing_new_in(unfinished.parent):
        ended = embed(unfinished, model, "--resume")
    where = path.with_suffix(".npy") if damage == "fewer tokens" else path
    assert_refused(ended, f"{where}: is damaged (", f"emove {path.parent} to start over")
    if damage.startswith("settings"):
        return
    assert f"Remove {first}.json and all higher numbers to resume before it" in ended.err
    for number in segments(unfinished)[at:]:
        (path.parent / f"{number}.json").unlink()
    assert len(written(embed(unfinished, model, "--resume"), unfinished)[0]) == 60


def test_a_segment_that_is_missing_is_noticed(unfinished: Path, model: Path) -> None:
    _, second, third, *_ = segments(unfinished)
    part = unfinished.with_name("out.hdf5.part")
    (part / f"{second}.json").unlink()
    ended = embed(unfinished, model, "--resume")
    assert_refused(ended, f"{part / str(third)}.json: is damaged (the segment before it is missing).")


def test_a_folder_of_that_name_with_other_files_is_left_alone(lines: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "out.hdf5.part").mkdir()
    (tmp_path / "out.hdf5.part" / "thesis.txt").write_text("mine")
    with nothing_new_in(tmp_path):
        ended = elmo("embed", lines, tmp_path / "out.hdf5", "-m", model)
    assert_refused(ended, f"{tmp_path / 'out.hdf5.part'}: contains thesis.txt, so it is not an unfinished run; move it")


def test_the_library_call_does_what_the_command_does(lines: Path, model: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "out.hdf5", tmp_path / "other.hdf5"
    assert elmo("embed", lines, output, "-m", model, "--layers", "top", "--device", "cpu").code == 0
    shown: list[tuple[int, int]] = []
    done = embed_file(lines, other, model, layers="top", device="cpu", progress=lambda *now: shown.append(now))
    tokens = [len(MOSES.tokenize(line, escape=False)) for line in LINES]
    assert (done.sentences, done.tokens) == (len(LINES), sum(tokens))
    assert other.read_bytes() == output.read_bytes()
    ends = list(itertools.accumulate(len(f"{line}\n".encode()) for line in LINES))
    assert shown == list(zip(itertools.accumulate(tokens), ends, strict=True))


def test_progress_of_a_resumed_run_counts_its_own_tokens(unfinished: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"".join(TEXT))
    part = unfinished.with_name("out.hdf5.part")
    done = sum(len(json.loads((part / f"{first}.json").read_text())) for first in segments(unfinished))
    shown: list[int] = []
    embed_file(
        tmp_path / "in.txt",
        unfinished,
        model,
        tokenized=True,
        batch_tokens=12,
        device="cpu",
        resume=True,
        progress=lambda tokens, _: shown.append(tokens),
    )
    assert shown == list(itertools.accumulate(map(len, SENTENCES[done:])))


# What is read


def test_a_byte_order_mark_is_not_a_token(lines: Path, model: Path, tmp_path: Path) -> None:
    marked = tmp_path / "marked.txt"
    marked.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes())
    for path in (lines, marked):
        assert elmo("embed", path, tmp_path / f"{path.stem}.npz", "-m", model, "--tokenized").code == 0
    assert (tmp_path / "marked.npz").read_bytes() == (tmp_path / "sentences.npz").read_bytes()


def test_a_compressed_file_is_read(lines: Path, model: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    for path in (lines, packed):
        assert elmo("embed", path, tmp_path / f"{path.stem}.npz", "-m", model).code == 0
    assert (tmp_path / "packed.txt.npz").read_bytes() == (tmp_path / "sentences.npz").read_bytes()
    packed.rename(tmp_path / "misnamed.txt")
    ended = elmo("embed", tmp_path / "misnamed.txt", tmp_path / "out.npz", "-m", model)
    assert_refused(ended, "misnamed.txt: is compressed with gzip, not UTF-8 text; decompress the file first, or ")


# What is refused


def test_an_output_that_exists_is_kept(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    output.write_text("mine")
    for resume in ([], ["--resume"]):
        with nothing_new_in(tmp_path):
            ended = elmo("embed", lines, output, "-m", model, *resume)
        assert_refused(ended, f"{output}: exists already; give another name, or remove it first")
    assert output.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--layers", "7"],
            "layers is 7; this model has 3: expected all, top, average, 0 to 2, or a list of 3 weights",
        ),
        (["--layers", "last"], "layers is 'last'; this model has 3: expected all, top, average, 0 to 2, or "),
        (["--device", "tpu9"], "device 'tpu9' is not available; on this machine: auto, cpu"),
        (["--device", "meta"], "device 'meta' is not available; on this machine: auto, cpu"),
        (["--format", "csv"], "out.hdf5: format is 'csv'; expected one of hdf5, parquet, npz"),
        (["--dtype", "float64"], "dtype is 'float64'; expected one of float32, float16"),
        (["--pool", "sum"], "pooling is 'sum'; expected one of mean, max, first-last, sif"),
        (["--precision", "int3"], "precision is 'int3'; expected one of float32, bfloat16"),
        (["--state", "cold"], "state is 'cold'; expected one of fresh, carried, warm"),
    ],
)
def test_a_mistaken_option_is_one_line_and_leaves_no_file(
    arguments: list[str], message: str, lines: Path, model: Path, tmp_path: Path
) -> None:
    with nothing_new_in(tmp_path):
        assert_refused(elmo("embed", lines, tmp_path / "out.hdf5", "-m", model, *arguments), message)


def test_an_ending_that_is_no_format_is_refused(lines: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    with nothing_new_in(tmp_path):
        ended = elmo("embed", lines, output, "-m", model)
    assert_refused(ended, f"{output}: format is '.txt'; expected one of hdf5, parquet, npz")


def test_an_input_that_is_not_there_is_refused(model: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.txt"
    with nothing_new_in(tmp_path):
        ended = elmo("embed", missing, tmp_path / "out.hdf5", "-m", model)
        folder = elmo("embed", tmp_path, tmp_path / "out.hdf5", "-m", model)
    assert_refused(ended, f"{missing}: cannot be read (No such file or directory); expected a text file")
    assert_refused(folder, f"{tmp_path}: cannot be read (Is a directory); expected a text file")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"good\nna\xefve text\n", "line 2 is not UTF-8 (byte 3 is 0xef)"),
        (b"\xffa\x00", "line 1 is not UTF-8 (byte 1 is 0xff)"),
        ("x\n\nünd".encode()[:-2] + b"\xc3\n", "line 3 is not UTF-8 (byte 3 is 0xc3)"),
    ],
)
def test_text_that_is_not_utf8_names_its_line_and_byte(text: bytes, where: str, model: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "in.txt", tmp_path / "out.hdf5"
    path.write_bytes(text)
    assert_refused(elmo("embed", path, output, "-m", model), f"elmo: {path}: {where}; convert the file first, e.g. ")
    assert not output.exists()


@pytest.mark.parametrize("tokenized", ["--tokenized", "--raw"])
def test_a_line_that_is_too_long_is_named_and_the_lines_before_it_are_kept(
    tokenized: str, model: Path, tmp_path: Path
) -> None:
    path, output = tmp_path / "in.txt", tmp_path / "out.hdf5"
    path.write_text("one two\none two three\n" + "four " * 6 + "\n")
    options = [path, output, "-m", model, tokenized, "--max-sentence-tokens"]
    ended = elmo("embed", *options, 5)
    assert_refused(
        ended,
        f"{path}: line 3 has 6 tokens; expected at most 5. Write one sentence per line, or raise --max-sentence-tokens",
        "2 sentences are saved",
    )
    assert [array.shape[1] for array in written(elmo("embed", *options, 6, "--resume"), output)[0]] == [2, 3, 6]


def test_a_line_may_be_longer_than_the_default_if_asked_for(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a " * 100_001)
    ended = elmo("embed", tmp_path / "in.txt", tmp_path / "out.npz", "-m", model, "--pool", "mean", "--tokenized")
    assert_refused(ended, "line 1 has 100,001 tokens; expected at most 100,000. ")


def test_standard_input_that_is_not_utf8_is_refused_alike(model: Path, tmp_path: Path) -> None:
    ended = elmo("embed", "-", tmp_path / "out.hdf5", "-m", model, stdin=[b"good\n", b"b\xe4d\n"])
    assert_refused(ended, "elmo: standard input: line 2 is not UTF-8 (byte 2 is 0xe4); convert the file first, e.g. ")


def test_a_text_that_was_mended_is_embedded_by_the_same_command(model: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "in.txt", tmp_path / "out.hdf5"
    path.write_bytes(b"na\xefve\n")
    with nothing_new_in(tmp_path):
        assert elmo("embed", path, output, "-m", model).code == 2
    path.write_text("naïve\n", encoding="utf-8")
    assert written(elmo("embed", path, output, "-m", model), output)[1] == {"naïve": "0"}


def test_an_output_that_cannot_be_written_is_refused_before_the_model_is_read(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.hdf5").mkdir()
    for output, why in (
        (lines / "out.hdf5", "cannot be written (File exists)"),
        (Path("/sys/out.hdf5"), "cannot be written (Permission denied)"),  # not even by root
        (tmp_path / ("x" * 300 + ".hdf5"), "cannot be written (File name too long)"),
        (tmp_path / "folder.hdf5", "exists already"),
    ):
        with nothing_new_in(tmp_path):
            assert_refused(elmo("embed", lines, output, "-m", tmp_path / "no-model"), f"{output}: {why}")


def test_arrays_do_not_go_to_standard_output(lines: Path, model: Path) -> None:
    ended = elmo("embed", lines, "-", "-m", model)
    assert_refused(ended, "embed cannot write arrays to standard output; give the name of a file")


def test_a_second_run_into_the_same_file_is_refused_and_the_first_ends_well(model: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "out.hdf5", []

    def meanwhile() -> Iterator[bytes]:
        yield from TEXT[:30]
        other.append(elmo_process("embed", "-", output, "-m", model, stdin=b"".join(TEXT)))
        yield from TEXT[30:]

    first = elmo("embed", "-", output, "-m", model, "--tokenized", stdin=meanwhile())
    assert_refused(other[0], f"{output}: another process is writing it. Wait until it ends, or choose another name")
    assert len(written(first, output)[0]) == 60
    assert [path.name for path in tmp_path.iterdir()] == ["out.hdf5"]


def test_a_model_that_is_not_there_is_refused(lines: Path, tmp_path: Path) -> None:
    missing = tmp_path / "models" / "none.hdf5"
    with nothing_new_in(tmp_path):
        ended = elmo("embed", lines, tmp_path / "out.hdf5", "-m", missing)
    assert_refused(ended, f"{missing}: no such file or folder, and no model of that name; expected a model folder")


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("name", ["model.pt", "weights.hdf5", "folder/pytorch_model.bin"])
@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_pickle_is_refused_and_never_opened(name: str, how: str, lines: Path, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    trap = Trap(tmp_path / "trace")
    if how == "torch":
        torch.save(trap, path)
    else:
        path.write_bytes(pickle.dumps(trap))
    (path.parent / "options.json").write_text("{}")
    model = path.parent if "/" in name else path
    with nothing_new_in(tmp_path):
        ended = elmo("embed", lines, tmp_path / "out.hdf5", "-m", model)
    assert_refused(ended, f"{path}: a Python pickle, which can run any code when it is read, so it is refused; ")


# A full disk


@pytest.mark.usefixtures("small_segments")
def test_a_full_disk_tells_what_to_do_and_that_helps(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.hdf5"

    files = itertools.count()

    def full(*_: Any) -> None:
        if next(files) >= 3:  # the settings of the run and a segment of two files still fit
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        ended = embed(output, model)
    assert_refused(ended, "the disk is full; nothing was written. Free some space first. ", "; use --resume")
    assert not output.exists()
    again = embed(output, model, "--resume")
    assert again.code == 0, again.err


@needs_small_disks
@pytest.mark.parametrize(
    ("form", "size", "full"),
    [
        ("hdf5", "4k,nr_inodes=2", "out.hdf5.part/settings.json"),  # before anything is computed
        ("hdf5", "100k", "out.hdf5.part/0.npy"),  # of 250 kB
        ("hdf5", "400k", "out.hdf5"),
        ("npz", "400k", "out.npz"),
        ("parquet", "400k", "out.parquet"),
    ],
)
def test_a_disk_that_is_really_full_is_one_line(form: str, size: str, full: str, model: Path, tmp_path: Path) -> None:
    disk, text = tmp_path / "disk", tmp_path / "in.txt"
    disk.mkdir()
    text.write_text("".join(" ".join(f"w{line * 10 + k}" for k in range(10)) + "\n" for line in range(210)))
    ended = on_a_disk_of(size, disk, "embed", text, disk / f"out.{form}", "-m", model, "--tokenized")
    assert set(ended.out.split()) <= {f"out.{form}.part"}
    assert_refused(ended._replace(out=""), f"{disk / full}: the disk is full; nothing was written.")
