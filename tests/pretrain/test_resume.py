"""A run that was killed and resumed is the run that was not; two processes are one with the same batch."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from corpora import write_corpus
from elmo_processes import start_elmo

DOCUMENT = Path(__file__).parents[2] / "docs" / "scaling.md"
WORDS = [f"w{k}" for k in range(60)]
RECIPE = {
    "steps": 40,
    "log_every": 5,
    "batch.size": 8,
    "batch.unroll": 6,
    "negatives": 16,
    "model.lstm.dim": 24,
    "model.lstm.projection_dim": 10,
    "model.char_cnn.filters": "[[1, 6], [3, 8]]",
    "evaluation.every": 15,
    "evaluation.tokens": 300,
    "checkpoints.every": 10,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    likely = 1 / np.arange(1, 61)
    sentences = [
        [WORDS[k] for k in rng.choice(60, size=rng.integers(1, 12), p=likely / likely.sum())] for _ in range(260)
    ]
    shards = [sentences[:100], sentences[100:180], sentences[180:240]]
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus", shards, sentences[240:], 50)


def arguments(corpus: Path, out: Path, *more: str, **changes: Any) -> list[str]:
    sets = [f"--set={name}={value}" for name, value in (RECIPE | changes).items()]
    return ["pretrain", str(corpus), str(out), "--preset=tiny", *sets, *more]


def run(corpus: Path, out: Path, *more: str, processes: int = 1, **changes: Any) -> None:
    log = out.with_suffix(".log")
    started = start_elmo(*arguments(corpus, out, *more, **changes), log=log, processes=processes)
    for process in started:
        process.join(240)
    assert [process.exitcode for process in started] == [0] * processes, log.read_text()


def torchrun(corpus: Path, out: Path, processes: int, **changes: Any) -> list[str]:
    """The command line that torchrun is started with."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", "elmo"]
    return [sys.executable, *launch, *arguments(corpus, out, **changes)]


def run_as_documented(corpus: Path, out: Path, *, nodes: int, **changes: Any) -> None:
    """Run the command of docs/scaling.md for `nodes` machines, with two processes in all, on this machine."""
    (shown,) = re.findall(r"^## Pretraining with torchrun\n.*?^```\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    commands = shown.replace("\\\n", " ").splitlines()
    assert [f"--nnodes {number}" in command for number, command in enumerate(commands, start=1)] == [False, True]
    recipe = out.with_suffix(".toml")
    settings = RECIPE | changes | {"model.char_cnn.n_highway": 1}
    values = {name: value if "[" in str(value) else json.dumps(value) for name, value in settings.items()}
    recipe.write_text("".join(f"{name} = {value}\n" for name, value in values.items()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = {"8": str(2 // nodes), "my-corpus": str(corpus), "my-run": str(out), "recipe.toml": str(recipe)}
    here["HOST:29500"] = f"127.0.0.1:{port}"
    program, *words = shlex.split(commands[nodes - 1])
    assert program == "torchrun"
    command = [sys.executable, "-m", "torch.distributed.run", *(here.get(word, word) for word in words)]
    environment = os.environ | {"PET_MASTER_PORT": str(port)}  # the default, 29500, may be in use
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(nodes)
    ]
    for process in started:
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error


def metrics(out: Path) -> list[dict[str, Any]]:
    """The log, without what depends on the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("time", "tokens_per_second")} for line in lines]


def weights(out: Path, step: int = 40) -> dict[str, torch.Tensor]:
    folder = out / "checkpoints" / f"step-{step:08d}"
    return load_file(folder / "model.safetensors") | load_file(folder / "training.safetensors")


def kill_after(checkpoint: Path, processes: list[BaseProcess]) -> None:
    """Kill a run with SIGKILL as soon as a checkpoint is there."""
    wait_for(checkpoint)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    assert checkpoint.exists()


def kill_torchrun_after(checkpoint: Path, command: list[str]) -> None:
    """Start torchrun, and kill it and its workers with SIGKILL as soon as a checkpoint is there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(checkpoint)
    for pid in family(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert checkpoint.exists()


def wait_for(path: Path) -> None:
    until = time.monotonic() + 120
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.001)


def family(pid: int) -> list[int]:
    """Return a process and all that it started: the workers of torchrun have sessions of their own."""
    children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *(other for some in children for child in some for other in family(int(child)))]


@pytest.mark.parametrize(
    ("processes", "optimizer", "with_torchrun"),
    [(1, "adagrad", False), (1, "adamw", False), (2, "adagrad", False), (2, "adamw", True)],
)
def test_killed_and_resumed(
    corpus: Path, tmp_path: Path, processes: int, optimizer: str, with_torchrun: bool
) -> None:
    changes = {"optimizer.name": optimizer, "optimizer.schedule": "linear", "steps": 40}
    run(corpus, tmp_path / "whole", processes=processes, **changes)
    killed = tmp_path / "killed"
    checkpoint = killed / "checkpoints" / "step-00000010"
    if with_torchrun:
        kill_torchrun_after(checkpoint, torchrun(corpus, killed, processes, **changes))
    else:
        started = start_elmo(*arguments(corpus, killed, **changes), log=tmp_path / "killed.log", processes=processes)
        kill_after(checkpoint, started)
    assert not (killed / "model").exists(), "it was too fast to be killed"
    run(corpus, killed, "--resume", processes=processes, **changes)
    assert metrics(killed) == metrics(tmp_path / "whole")
    expected, found = weights(tmp_path / "whole"), weights(killed)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name


@pytest.mark.parametrize(("negatives", "nodes"), [(16, 1), ("none", 2)])
def test_two_processes_are_one_with_the_same_batch(corpus: Path, tmp_path: Path, negatives: Any, nodes: int) -> None:
    """The last ten steps of the two, after a stop, are made by one."""
    changes = {"dropout": 0.0, "negatives": negatives, "model.lstm.cell_clip": 0.3, "model.lstm.proj_clip": 0.2}
    run(corpus, tmp_path / "one", **changes)
    run_as_documented(corpus, tmp_path / "two", nodes=nodes, **changes | {"steps": 30})
    run(corpus, tmp_path / "two", "--resume", **changes)
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for expected, found in zip(one, two, strict=True):
        assert found == pytest.approx(expected, rel=2e-5)
    expected_weights, found_weights = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, value in expected_weights.items():
        torch.testing.assert_close(found_weights[name], value, rtol=1e-4, atol=1e-5)


def test_parts_of_a_batch_are_the_batch(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "one", dropout=0.0)
    run(corpus, tmp_path / "four", dropout=0.0, **{"batch.accumulate": 4})
    for expected, found in zip(metrics(tmp_path / "one"), metrics(tmp_path / "four"), strict=True):
        assert found == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_first(corpus: Path, tmp_path: Path, number: int) -> None:
    changes = {"steps": 100_000, "checkpoints.every": 1_000_000, "evaluation.every": 0}
    out = tmp_path / "run"
    (process,) = start_elmo(*arguments(corpus, out, **changes), log=tmp_path / "log")
    until = time.monotonic() + 60
    while not (out / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 130
    error = (tmp_path / "log").read_text()
    (saved,) = (out / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step-"))
    assert f"elmo: {out}: interrupted after step {step}. Use --resume to continue from there" in error
    assert step >= 5
    run(corpus, out, "--resume", **changes | {"steps": step + 5})
    run(corpus, tmp_path / "whole", **changes | {"steps": step + 5})
    for name, value in weights(tmp_path / "whole", step + 5).items():
        assert torch.equal(value, weights(out, step + 5)[name]), name
