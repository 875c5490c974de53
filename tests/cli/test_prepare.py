"""`elmo prepare`: its options, its one-line refusals, and that stopping it anywhere changes nothing in the end."""

import bz2
import gzip
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elmo.messages import counted
from elmo.pretrain.corpus import Corpus
from embedders import Finished, assert_refused, elmo, environment, needs_small_disks, nothing_new_in, on_a_disk_of

LINES = [f"Sentence {k % 150} isn't long. The cat number {k} sat on mat {k % 7}." for k in range(300)]
# A sentence may be made to take its time: enough to be stopped.
SLOW = """
import os, time

def words(text):
    time.sleep(float(os.environ.get("SECONDS", "0")))
    return text.split()
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def done(ended: Finished) -> Finished:
    assert ended.code == 0, ended.err
    assert ended.out == ""
    return ended


# What is written


def test_raw_text_becomes_a_corpus(text: Path, tmp_path: Path) -> None:
    ended = done(elmo("prepare", text, tmp_path / "out", "--jobs", 1))
    corpus = Corpus.open(tmp_path / "out")
    counts = corpus.manifest["counts"]
    assert counts["sentences"] == 150 + 300
    assert counts["duplicates"] == 150
    assert counts["tokens"] == 150 * 6 + 300 * 9  # Sentence 1 isn 't long . The cat number 1 sat on mat 1 .
    held = corpus.heldout[0].sentences
    assert ended.err == (
        f"{tmp_path / 'out'}: 450 sentences, {counts['tokens']:,} tokens in 1 shard; "
        f"{counted(held, 'sentence')} held out, 150 duplicates left out; "
        f"{len(corpus.vocabulary):,} of {len(corpus.words):,} words predicted\n"
    )
    assert {"isn", "'t", "."} <= set(corpus.words)


def test_every_option_arrives(tmp_path: Path) -> None:
    rows = [json.dumps({"body": f"same a{k % 9}. Not split"}) for k in range(200)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    arguments = ["--tokenizer", "whitespace", "--lines", "--keep-duplicates", "--heldout", "25%", "--vocab-size", 6]
    arguments += ["--shards", 2, "--seed", 3, "--field", "body", "--longest-line", 99, "--jobs", 1]
    done(elmo("prepare", tmp_path / "a.jsonl", tmp_path / "out", *arguments))
    corpus = Corpus.open(tmp_path / "out")
    manifest = corpus.manifest
    assert (manifest["tokenizer"], manifest["sentences"], manifest["deduplicated"], manifest["seed"]) == (
        *("whitespace", "lines", False, 3),
    )
    assert manifest["counts"]["sentences"] == 200
    assert manifest["counts"]["tokens"] == 800
    assert corpus.vocabulary.words == ["<S>", "</S>", "<UNK>", "Not", "same", "split"]
    assert len(corpus.train) == 2
    assert_refused(
        elmo("prepare", tmp_path / "a.jsonl", tmp_path / "other", "--longest-line", 20, "--field", "body", "--jobs", 1),
        "a.jsonl: line 1 has 30 bytes, more than 20; is it text? Use --longest-line 30 to accept it",
    )


def test_several_texts_and_standard_input(text: Path, tmp_path: Path) -> None:
    done(elmo("prepare", text, tmp_path / "whole", "--jobs", 1))
    third = len(LINES) // 3
    parts = ["".join(f"{line}\n" for line in LINES[k : k + third]).encode() for k in range(0, len(LINES), third)]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.gz").write_bytes(gzip.compress(parts[0]))
    (tmp_path / "folder" / "b.bz2").write_bytes(bz2.compress(parts[1]))
    done(elmo("prepare", tmp_path / "folder", "-", tmp_path / "out", "--jobs", 1, stdin=io.BytesIO(parts[2])))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_shards_and_vocabulary_of_bilm_tf_are_used_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for k in range(3):
        (tmp_path / "shards" / f"news.en-{k}").write_text("the cat sat , the dog sat .\nthe end .\n" * 5)
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\nsat\n.\ncat\n")
    plain = ["--tokenizer", "whitespace", "--lines", "--keep-duplicates", "--heldout", 0]
    ended = elmo("prepare", tmp_path / "shards", tmp_path / "out", *plain, "--vocabulary", tmp_path / "vocab.txt")
    done(ended)
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.vocabulary.words == ["<S>", "</S>", "<UNK>", "the", "sat", ".", "cat"]
    assert list(corpus.words)[7:] == [",", "dog", "end"]
    found = corpus.manifest["counts"]
    assert found == {"sentences": 30, "tokens": 15 * 11, "duplicates": 0, "unknown": 15 * 3, "truncated": 0}
    assert corpus.heldout == ()


def test_a_held_out_text_that_is_known_in_part_is_told_of(text: Path, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text(f"{LINES[0]}\nNever seen.\n")
    command = [sys.executable, "-m", "elmo", "prepare", text, tmp_path / "out", "--heldout", tmp_path / "held.txt"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=False)
    assert ended.returncode == 0
    assert f"{tmp_path / 'held.txt'}: 2 of its 3 sentences are in the training text too\n" in ended.stderr


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokenizer", "spacy"], "tokenizer is 'spacy'; expected moses, whitespace, or PATH:FUNC"),
        (["--vocab-size", 9, "--min-count", 2], "vocab_size and min_count both define the vocabulary"),
        (["--heldout", "2"], "heldout is 2; expected a share below 1, such as 0.5%, or a text file"),
        (["--heldout", "none.txt"], "none.txt: not found; expected a text file"),
        (["--vocabulary", "none.txt"], "none.txt: cannot be read (No such file or directory)"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    arguments: list[object], message: str, text: Path, tmp_path: Path
) -> None:
    with nothing_new_in(tmp_path):
        assert_refused(elmo("prepare", text, tmp_path / "out", *arguments), message)


def test_texts_that_are_not_there_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with nothing_new_in(tmp_path):
        assert_refused(elmo("prepare", tmp_path / "none.txt", tmp_path / "out"), "none.txt: not found")
        ended = elmo("prepare", tmp_path / "empty.txt", tmp_path / "out", "--jobs", 1)
        assert_refused(ended, f"{tmp_path / 'empty.txt'}: no sentence in it; expected text")
    assert elmo("prepare", tmp_path / "out").code == 2  # no text at all


@needs_small_disks
def test_a_disk_that_is_really_full_is_one_line(text: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    ended = on_a_disk_of("16k", disk, "prepare", text, disk / "out", "--jobs", 1)
    assert "out\n" not in ended.out.splitlines(keepends=True)
    assert_refused(Finished(ended.code, "", ended.err), "out.part/parts/000000.", ": the disk is full; nothing was wr")


# Being stopped


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, a slow tokenizer, and the corpus that they make."""
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.py").write_text(SLOW)
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    name = f"{folder / 'slow.py'}:words"
    done(elmo("prepare", folder / "text.txt", folder / "whole", "--tokenizer", name, "--jobs", 1, "--shards", 2))
    return folder


def slow_command(folder: Path, out: Path, jobs: int) -> list[str]:
    """The command, with small blocks."""
    start = (
        "import elmo.pretrain.prepare as module; module.prepare.__kwdefaults__['block_bytes'] = 1500; "
        "from elmo.cli import main; main()"
    )
    arguments = ["prepare", folder / "text.txt", out, "--tokenizer", f"{folder / 'slow.py'}:words", "--shards", 2]
    return [sys.executable, "-c", start, *map(str, arguments), "--jobs", str(jobs)]


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_run_goes_on_and_ends_in_the_same_files(
    jobs: int, sent: signal.Signals, slow: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        slow_command(slow, out, jobs), stderr=subprocess.PIPE, env=environment(SECONDS="0.005"), text=True
    )
    notes = tmp_path / "out.part" / "parts"
    while len(list(notes.glob("*.json"))) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) >= jobs - 1
    process.send_signal(sent)
    _, err = process.communicate(timeout=30)
    if sent == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert err == "elmo: interrupted; run the same command again to continue\n"
    deadline = time.monotonic() + 20
    while any(map(running, workers)):
        assert time.monotonic() < deadline, "a worker outlives the run"
        time.sleep(0.05)
    assert not out.exists()
    assert 3 <= len(list(notes.glob("*.json"))) < 12
    command = slow_command(slow, out, 3 - jobs)  # another number of processes
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert contents(out) == contents(slow / "whole")
    assert not (tmp_path / "out.part").exists()


# The bar


def test_a_terminal_sees_a_bar_and_a_pipe_does_not(text: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elmo", "prepare", str(text)]
    piped = subprocess.run([*command, str(tmp_path / "a")], capture_output=True, env=environment(), check=True)
    assert piped.stderr.count(b"\n") == 1
    main, terminal = pty.openpty()
    with subprocess.Popen([*command, str(tmp_path / "b")], stderr=terminal, env=environment(TERM="xterm")) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(main, 4096)
            except OSError:  # the other side is closed
                break
    os.close(main)
    assert process.returncode == 0
    for part in (b"reading", b"merging", b"writing", b"100%", b" tokens, ", b"/s"):
        assert part in shown
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
