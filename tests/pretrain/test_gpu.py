"""Training on a CUDA device: the numbers of the CPU; by kernels and by a graph of them, those of the reference path."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from corpora import write_corpus
from elmo.model.bilm import BiLM
from elmo.pretrain.batch import Batches
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.evaluate import perplexity
from elmo.pretrain.graph import ROUND_TO, RecordedPasses
from elmo.pretrain.loop import Training
from elmo.pretrain.step import Pass, accumulate
from elmo.pretrain.streams import Streams

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SIZES = ["model.lstm.dim=64", "model.lstm.projection_dim=24", "model.lstm.cell_clip=0.4", "model.lstm.proj_clip=0.2"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    rng = np.random.default_rng(3)
    sentences = [[f"w{k}" for k in rng.zipf(1.5, size=rng.integers(1, 9)) % 90] for _ in range(300)]
    return Corpus.open(write_corpus(tmp_path / "corpus", [sentences], sentences[:20], 60))


def small(corpus: Corpus, device: str = "cuda") -> BiLM:
    torch.manual_seed(0)
    architecture = PretrainConfig.load("tiny", None, SIZES).model
    return BiLM(architecture.for_vocabulary(len(corpus.vocabulary))).to(device)


def batches_of(corpus: Corpus, negatives: int | None, round_to: int = 1) -> Batches:
    streams = Streams(corpus, 8, 6)
    return Batches(corpus, streams, corpus.vocabulary, max_characters=50, negatives=negatives, round_to=round_to)


def gradients(
    corpus: Corpus,
    device: str,
    precision: torch.dtype,
    negatives: int | None,
    reference: bool = False,
    dropout: float = 0.0,
) -> dict[str, Tensor]:
    bilm = small(corpus, device)
    bilm.reference = reference
    parts = [part.to(torch.device(device)) for part in batches_of(corpus, negatives).of_step(0)]
    state = bilm.zero_state(8)
    for _ in range(2):  # the second time with a state carried in
        losses, state = accumulate(bilm, parts, state, dropout=dropout, scale=1.0, world=World(), precision=precision)
    found = {name: p.grad.to_dense().cpu() for name, p in bilm.named_parameters() if p.grad is not None}
    return found | {"losses": losses.cpu(), "h": state.h.float().cpu(), "c": state.c.cpu()}


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], precision: torch.dtype) -> None:
    assert found.keys() == expected.keys()
    for name, value in found.items():
        limit = 1e-4 if precision == torch.float32 else 2e-2
        if precision == torch.bfloat16 and name.startswith("token_encoder."):
            limit = 0.2  # rounded, a maximum may fall on another position and a ReLU close
        assert (value - expected[name]).norm() <= limit * expected[name].norm() + 1e-7, name


PRECISIONS = pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
NEGATIVES = pytest.mark.parametrize("negatives", [12, None])


@NEGATIVES
@PRECISIONS
def test_gradients_are_the_cpus(corpus: Corpus, precision: torch.dtype, negatives: int | None) -> None:
    expected = gradients(corpus, "cpu", torch.float32, negatives)
    assert_near(gradients(corpus, "cuda", precision, negatives), expected, precision)


class FixedDropout:
    """In place of PyTorch's: what is dropped depends on the call's number and on the place alone."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, p: float) -> Tensor:
        kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.calls)) >= p
        self.calls += 1
        return x * (kept / (1.0 - p)).to(x)


@NEGATIVES
@PRECISIONS
def test_gradients_by_kernels_are_the_reference_ones(
    corpus: Corpus, precision: torch.dtype, negatives: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for reference, its_precision in ((True, torch.float32), (False, precision)):
        dropout = FixedDropout()
        monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
        found.append(gradients(corpus, "cuda", its_precision, negatives, reference, 0.1))
        assert dropout.calls == 6  # in each of two windows: what two LSTMs read, and the softmax
    assert_near(found[1], found[0], precision)


# Graphs


@NEGATIVES
@pytest.mark.parametrize("round_to", [4, ROUND_TO])
@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_what_is_replayed_is_what_is_computed(
    corpus: Corpus, precision: torch.dtype, tolerance: float, round_to: int, negatives: int | None
) -> None:
    """Windows that follow each other, of several sizes or of one; between them the weights change where they are."""
    found = []
    graphs = RecordedPasses()
    for run_pass in (graphs, Pass.__call__):
        bilm, batches = small(corpus), batches_of(corpus, negatives, round_to)
        state, windows = bilm.zero_state(8), []
        for step in range(6):
            parts = [part.to(torch.device("cuda")) for part in batches.of_step(step)]
            losses, state = accumulate(
                bilm, parts, state, dropout=0.0, scale=1.0, world=World(), precision=precision, run_pass=run_pass
            )
            values = {name: p.grad.to_dense() for name, p in bilm.named_parameters() if p.grad is not None}
            values |= {"losses": losses, "h": state.h, "c": state.c}
            windows.append({name: value.float().clone() for name, value in values.items()})
            with torch.no_grad():
                for parameter in bilm.parameters():
                    parameter.mul_(0.97)
        found.append(windows)
    assert len(graphs._graphs) == 1 if round_to == ROUND_TO else 1 < len(graphs._graphs) < 6
    for ours, theirs in zip(*found, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert (ours[name] - value).norm() <= tolerance * value.norm() + 1e-7, name


def test_a_replay_draws_its_dropout_anew(corpus: Corpus) -> None:
    bilm, recorded, found = small(corpus), RecordedPasses(), []
    parts = [part.to(torch.device("cuda")) for part in batches_of(corpus, 12, ROUND_TO).of_step(0)]
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        accumulate(bilm, parts, bilm.zero_state(8), dropout=0.5, scale=1.0, world=World(), run_pass=recorded)
        found.append(bilm.lstms[0].bias.grad.clone())
    assert len(recorded._graphs) == 1
    torch.testing.assert_close(found[0], found[2], rtol=1e-4, atol=1e-7)
    assert (found[0] - found[1]).norm() > 0.1 * found[0].norm()


def test_training_by_kernels_is_reference_training(corpus: Corpus, tmp_path: Path) -> None:
    losses, recorded = {}, {}
    for kernels in ("auto", "reference"):
        sets = [*SIZES, "steps=8", "batch.size=8", "negatives=12", "dropout=0.0", "log_every=1", f"kernels={kernels}"]
        training = Training(corpus, tmp_path / kernels, PretrainConfig.load("tiny", None, sets))
        assert training.train()
        lines = [json.loads(line) for line in (tmp_path / kernels / "metrics.jsonl").read_text().splitlines()]
        losses[kernels] = [line["loss"] for line in lines if "loss" in line]
        recorded[kernels] = training._recorded is not None
    assert recorded == {"auto": True, "reference": False}
    assert len(losses["auto"]) == 8
    assert losses["auto"] == pytest.approx(losses["reference"], rel=1e-3)


def test_training_runs_and_resumes(corpus: Corpus, tmp_path: Path) -> None:
    def train(out: str, steps: int, resume: bool = False) -> Training:
        sets = [*SIZES, f"steps={steps}", "batch.size=8", "negatives=12", "log_every=2"]
        training = Training(corpus, tmp_path / out, PretrainConfig.load("tiny", None, sets), resume=resume)
        assert training.train()
        return training

    whole = train("whole", 8)
    train("parts", 4)
    resumed = train("parts", 8, resume=True)
    for (name, one), two in zip(whole.bilm.named_parameters(), resumed.bilm.parameters(), strict=True):
        # Sums of a GPU's threads come in any order: close, where a CPU's are equal.
        assert (one - two).norm() <= 1e-3 * one.norm() + 1e-6, name
    on_gpu = whole.heldout().mean
    on_cpu = perplexity(whole.bilm.cpu(), corpus.vocabulary, corpus, corpus.heldout).mean
    assert on_gpu == pytest.approx(on_cpu, rel=1e-3)
