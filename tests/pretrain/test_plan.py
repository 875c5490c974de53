"""The memory that a run needs: estimated near what it uses, and refused before the first step if it will not fit."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from corpora import write_corpus
from elmo.errors import ConfigError
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.loop import Training
from elmo.pretrain.plan import Plan
from elmo.training import memory

GIB = 1 << 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,000 words, so that negatives are sampled, in the usual proportions."""
    rng = np.random.default_rng(0)
    words = [f"w{k:04d}" for k in range(4000)]
    likely = 1 / np.arange(1, 4001)
    drawn = rng.choice(words, size=60_000, p=likely / likely.sum())
    sentences = drawn.reshape(-1, 20).tolist()
    return write_corpus(tmp_path_factory.mktemp("plan") / "corpus", [sentences], sentences[:5], 4003)


def recipe(*changes: str) -> PretrainConfig:
    return PretrainConfig.load("tiny", None, ["steps=2", "device=cpu", "evaluation.every=0", "negatives=512", *changes])


MEASURE = """
import sys
from pathlib import Path
import torch
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.loop import Training
from elmo.training import memory

corpus, out, *changes = sys.argv[1:]
text = Corpus.open(Path(corpus))
text.words, text.vocabulary
torch.set_num_threads(1)
torch.randn(300, 300) @ torch.randn(300, 300)
before = memory.peak(torch.device("cpu"))
config = PretrainConfig.load("tiny", None, ["device=cpu", "evaluation.every=0", "negatives=512", *changes])
training = Training(text, Path(out), config)
for step, batch in zip(range(2), training.batches.from_step(0, 2)):
    training.step(step, batch, 0.1)
print(memory.peak(torch.device("cpu")) - before, training.plan.bytes_needed)
"""


@pytest.mark.parametrize(
    "changes",
    [
        ["batch.size=32"],
        ["batch.size=192", "optimizer.name=adam"],
        ["batch.size=96", "negatives=none", "kernels=reference"],
    ],
    ids=" ".join,
)
def test_the_estimate_is_near_what_a_run_uses(changes: list[str], corpus: Path, tmp_path: Path) -> None:
    """In a process of its own: memory that others freed would be used again, and not be seen."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, corpus, tmp_path / "run", *changes],
        capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    used, estimated = map(int, done.stdout.split())
    assert 0.75 < estimated / used < 1.5, (used / 2**20, estimated / 2**20)


def test_a_run_that_will_not_fit_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.open(corpus)
    needed = Training(text, tmp_path / "fits", recipe()).plan.bytes_needed
    monkeypatch.setattr(memory, "available", lambda device: needed - 1)
    with pytest.raises(ConfigError) as refused:
        Training(text, tmp_path / "run", recipe())
    size = f"{needed / GIB:.1f} GiB"
    assert str(refused.value) == (
        f"the run needs about {size} of memory, and cpu has {(needed - 1) / GIB:.1f} GiB available. Raise "
        "batch.accumulate, lower batch.size, or choose a smaller preset; --ignore-memory trains anyway"
    )
    assert not (tmp_path / "run").exists()
    assert Training(text, tmp_path / "insisted", recipe(), ignore_memory=True).train()
    monkeypatch.setattr(memory, "available", lambda device: needed)
    Training(text, tmp_path / "just", recipe())
    monkeypatch.setattr(memory, "available", lambda device: None)  # a system that does not say
    Training(text, tmp_path / "unknown", recipe())


def test_a_model_that_will_not_fit_is_refused_before_it_is_made(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 × 2 LSTMs of 2 · 200,000 · 800,000 numbers would be some terabytes."""
    with pytest.raises(ConfigError, match=r"^the run needs about [\d.]+ GiB of memory, and cpu has"):
        Training(Corpus.open(corpus), tmp_path, recipe("model.lstm.dim=200000", "model.lstm.projection_dim=200000"))


def test_processes_of_one_machine_share_its_memory(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 8 * GIB)
    training = Training(Corpus.open(corpus), tmp_path, recipe())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    plans = [
        Plan.of(training.config, training.bilm.config, training.streams, torch.device(name), 4)
        for name in ("cpu", "cuda")
    ]
    assert [plan.bytes_available for plan in plans] == [2 * GIB, 8 * GIB]
