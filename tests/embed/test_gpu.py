"""The GPU computes what the CPU computes. Run where there is one: `pytest -m gpu`."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.embed.embedder import Embedder, load
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.lstm import LSTMConfig
from elmo.weights.folder import Pretrained
from embedders import assert_near
from many_langs_reference import SIZES, folder_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SENTENCES = [["It", "is", "what", "it", "is", "."], [], ["Überraschung", "!"], ["word"] * 40, ["a" * 80, "b"]]


def embedder(device: str, precision: str = "float32") -> Embedder:
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(dim=256, projection_dim=64, cell_clip=0.1, proj_clip=0.05)))
    return Embedder(Pretrained(bilm), device=device, precision=precision)


@pytest.mark.parametrize("state", ["fresh", "warm", "carried"])
def test_float32_agrees_with_the_cpu(state: str) -> None:
    ours = list(embedder("cuda").embed(SENTENCES, state=state))
    theirs = list(embedder("cpu").embed(SENTENCES, state=state))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("state", ["fresh", "warm", "carried"])
def test_the_kernels_agree_with_the_reference_path(state: str) -> None:
    kernels, reference = embedder("cuda"), embedder("cuda")
    reference.bilm.reference = True
    for a, b in zip(kernels.embed(SENTENCES, state=state), reference.embed(SENTENCES, state=state), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("char_dim", [5, 50])  # 50, the published models', is too large for the kernel
def test_many_langs_agrees_with_the_cpu(char_dim: int, tmp_path: Path) -> None:
    wide = {"char_dim": char_dim, "filters": [[1, 32], [7, 64]], "max_characters_per_token": 50}
    folder = folder_of(tmp_path, SIZES | {"token_embedder": SIZES["token_embedder"] | wide})
    ours, theirs = (list(load(folder, device=device).embed(SENTENCES)) for device in ("cuda", "cpu"))
    for a, b in zip(ours, theirs, strict=True):  # values up to 1,000
        assert_near(a, b, share=3e-5)


def test_bfloat16_is_near_float32() -> None:
    ours = list(embedder("cuda", "bfloat16").embed(SENTENCES))
    theirs = list(embedder("cpu").embed(SENTENCES))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=0.03)


def test_the_pinned_memory_is_not_what_is_given_back() -> None:
    model = embedder("cuda")
    first = next(model.embed([["one", "two"]]))
    kept = first.copy()
    list(model.embed([["other", "words"]] * 3))
    np.testing.assert_array_equal(first, kept)


def test_a_batch_that_does_not_fit_is_halved(caplog: pytest.LogCaptureFixture) -> None:
    model = embedder("cuda")
    many = [["word", "after", "word"] * 10] * 60000
    expected = next(model.embed(many[:1]))
    torch.cuda.set_per_process_memory_fraction(0.02)
    try:
        results = list(model.embed(many, layers="top", dtype="float16", batch_tokens=10**9))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "is halved" in caplog.text
    assert len(results) == len(many)
    np.testing.assert_allclose(results[-1], expected[-1], atol=1e-3)
