"""Training on a CUDA device: the numbers of the CPU."""

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
from elmo.pretrain.loop import Training
from elmo.pretrain.step import accumulate
from elmo.pretrain.streams import Streams

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SIZES = ["model.lstm.dim=64", "model.lstm.projection_dim=24", "model.lstm.cell_clip=0.4", "model.lstm.proj_clip=0.2"]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    rng = np.random.default_rng(3)
    sentences = [[f"w{k}" for k in rng.zipf(1.5, size=rng.integers(1, 9)) % 90] for _ in range(300)]
    return Corpus.open(write_corpus(tmp_path / "corpus", [sentences], sentences[:20], 60))


def gradients(corpus: Corpus, device: str, precision: torch.dtype, negatives: int | None) -> dict[str, Tensor]:
    torch.manual_seed(0)
    config = PretrainConfig.of("tiny", None, SIZES).for_vocabulary(len(corpus.vocabulary))
    bilm = BiLM(config.model).to(device)
    batches = Batches(corpus, Streams(corpus, 8, 6), corpus.vocabulary, max_characters=50, negatives=negatives)
    parts = [part.to(torch.device(device)) for part in batches.of_step(0)]
    state = bilm.zero_state(8)
    for _ in range(2):  # the second time with a state carried in
        losses, state = accumulate(bilm, parts, state, dropout=0.0, scale=1.0, world=World(), precision=precision)
    found = {name: p.grad.to_dense().cpu() for name, p in bilm.named_parameters() if p.grad is not None}
    return found | {"losses": losses.cpu(), "h": state.h.float().cpu(), "c": state.c.cpu()}


@pytest.mark.parametrize("negatives", [12, None])
@pytest.mark.parametrize(("precision", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_gradients_are_the_cpus(
    corpus: Corpus, precision: torch.dtype, tolerance: float, negatives: int | None
) -> None:
    expected = gradients(corpus, "cpu", torch.float32, negatives)
    for name, value in gradients(corpus, "cuda", precision, negatives).items():
        # Rounded, a maximum may fall on another position and a ReLU close: the token encoder may differ by more.
        limit = 0.2 if precision == torch.bfloat16 and name.startswith("token_encoder.") else tolerance
        assert (value - expected[name]).norm() <= limit * expected[name].norm() + 1e-7, name


def test_training_runs_and_resumes(corpus: Corpus, tmp_path: Path) -> None:
    def train(out: str, steps: int, resume: bool = False) -> Training:
        sets = [*SIZES, f"steps={steps}", "batch.size=8", "negatives=12", "log_every=2"]
        training = Training(corpus, tmp_path / out, PretrainConfig.of("tiny", None, sets), resume=resume)
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
