"""ELMo inside a network that is trained in mixed precision, and biLMs whose weights are not float32."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import elmo
from elmo.model.bilm import BiLM
from elmo.model.packing import Packing
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained
from embedders import assert_same_bits, embedder, pretrained
from models import ids_of, small

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_CUDA])]
LOW = [torch.bfloat16, torch.float16]
SENTENCES = [["the", "naïve", "cat"], [], ["日本語", "x", "the", "mat", "."]]
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "mat"]

pytestmark = [pytest.mark.parametrize("device", DEVICES)]


@pytest.fixture(params=[False, True], ids=["kernels", "reference"])
def reference(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def model(device: str, reference: bool = False) -> elmo.Embedder:
    """The small model with a softmax."""
    bilm = pretrained().bilm
    torch.manual_seed(0)
    predicting = BiLM(replace(bilm.config, n_softmax=len(WORDS)))
    predicting.load_state_dict({**predicting.state_dict(), **bilm.state_dict()})
    predicting.reference = reference
    return elmo.Embedder(Pretrained(predicting, Vocabulary(WORDS)), device=device)


def everything(of: elmo.Embedder) -> Iterator[Any]:
    """Whatever an Embedder computes, as arrays."""
    for state in ("fresh", "warm", "carried"):
        yield from of.embed(SENTENCES, state=state)
    yield of.encode(SENTENCES, state="warm")
    for scores in of.score_all(SENTENCES):
        yield from (scores.forward, scores.backward)
    yield torch.tensor([value for _, value in of.substitutes(SENTENCES[0], 1, 3)]).numpy()
    yield of.token_vectors(["the", "cat"])
    yield from (part.cpu().numpy() for part in of.warm_state())


@pytest.mark.parametrize("low", LOW)
def test_an_embedder_gives_the_same_bits_under_autocast(low: torch.dtype, device: str, reference: bool) -> None:
    wanted = list(everything(model(device, reference)))
    with torch.autocast(device, low):
        found = list(everything(model(device, reference)))
    assert_same_bits(found, wanted)


def run(
    make: Callable[[], BiLM], device: str, trainable: bool, around: AbstractContextManager[Any], inside: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """What an `Elmo` gives, and its gradients, the biLM's among them if it is trained; `around` is around it."""
    bilm = make()
    torch.manual_seed(0)
    model = elmo.Elmo(bilm, 2, dropout=0.0, trainable=trainable, weights=[0.1, 0.2, 0.3, 0.4]).to(device)
    head = nn.Linear(bilm.config.output_dim, 3).to(device)
    with around:
        representations, _ = model(ids_of(bilm, SENTENCES).to(device))
        loss = head(representations[0] + representations[1]).float().square().sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert [name for name, gradient in named.items() if gradient is None] == []
    return representations[0], {name: gradient for name, gradient in named.items() if gradient is not None}


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_elmo_is_trained_in_mixed_precision(
    low: torch.dtype, trainable: bool, inside: bool, device: str, reference: bool, tmp_path: Path
) -> None:
    def make() -> BiLM:
        bilm, _ = small(tmp_path / str(len(list(tmp_path.iterdir()))), "skip")
        bilm.reference = reference
        return bilm.to(device)

    wanted, exact = run(make, device, trainable, torch.autocast(device, enabled=False))
    found, gradients = run(make, device, trainable, torch.autocast(device, low), inside)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert gradients.keys() == exact.keys()
    assert any(name.startswith("bilm.") for name in gradients) == trainable
    for name, gradient in gradients.items():  # the head's product and its gradient are in low precision
        torch.testing.assert_close(gradient, exact[name], rtol=0, atol=0.05 * float(exact[name].abs().max()), msg=name)


@pytest.mark.parametrize("low", LOW)
def test_vectors_made_in_low_precision_are_read(low: torch.dtype, device: str, tmp_path: Path) -> None:
    """As where the token encoder, which follows autocast, was called by hand."""
    bilm = small(tmp_path, "skip")[0].to(device)
    ids = ids_of(bilm, [["the", "cat"]]).to(device)[0]
    with torch.no_grad():
        wanted, _ = bilm.contextualize(bilm.token_encoder(ids), Packing.of([4]))
        with torch.autocast(device, low):
            found, _ = bilm.contextualize(bilm.token_encoder(ids), Packing.of([4]))
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.05)


@pytest.mark.parametrize("low", LOW)
def test_what_pretraining_calls_follows_autocast(low: torch.dtype, device: str, tmp_path: Path) -> None:
    bilm = small(tmp_path, "skip")[0].to(device)
    with torch.autocast(device, low):
        assert bilm.token_encoder(ids_of(bilm, [["the"]]).to(device)[0]).dtype == low


OTHERS = [(torch.float16, 0.02), (torch.bfloat16, 0.15), (torch.float64, 1e-5)]


@pytest.mark.parametrize(("dtype", "tolerance"), OTHERS)
@pytest.mark.parametrize("trainable", [False, True])
def test_weights_of_another_dtype_compute_in_it(
    dtype: torch.dtype, tolerance: float, trainable: bool, device: str, reference: bool, tmp_path: Path
) -> None:
    (bilm, _), (exact, _) = small(tmp_path / "a", "skip"), small(tmp_path / "b", "skip")
    bilm.reference = reference
    ids = ids_of(bilm, SENTENCES).to(device)
    wanted = elmo.Elmo(exact.to(device), mix="average", dropout=0.0).to(device)(ids).representations[0]
    model = elmo.Elmo(bilm, mix="average", dropout=0.0, trainable=trainable).to(device, dtype)
    found = model(ids).representations[0]
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), wanted, rtol=0, atol=tolerance)
    found.float().square().sum().backward()
    for name, parameter in bilm.named_parameters():
        assert (parameter.grad is not None) == trainable, name
        assert parameter.grad is None or (parameter.grad.dtype == dtype and parameter.grad.isfinite().all()), name
    _, state = bilm(ids)
    assert state.h.dtype == dtype
    assert state.c.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize(("dtype", "tolerance"), OTHERS)
def test_an_embedder_whose_weights_are_cast_computes_in_their_dtype(
    dtype: torch.dtype, tolerance: float, device: str
) -> None:
    wanted, using = embedder(device=device), embedder(device=device)
    list(using.embed(SENTENCES, state="carried"))
    using.encode(SENTENCES, state="warm")  # what it remembers is float32
    using.bilm.to(dtype)
    list(wanted.embed(SENTENCES, state="carried"))
    for state in ("fresh", "warm", "carried"):
        pairs = zip(using.embed(SENTENCES, state=state), wanted.embed(SENTENCES, state=state), strict=True)
        for ours, theirs in pairs:
            assert ours.dtype == theirs.dtype
            assert abs(ours - theirs).max(initial=0) < tolerance
