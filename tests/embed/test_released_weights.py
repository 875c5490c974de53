"""A loaded model has its weights once: packed. Whoever asks for them gets them back, equal to the bit."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder, load
from elmo.model.elmo import Elmo
from elmo.model.kernels.products import can_pack
from elmo.weights import source
from embedders import assert_same_bits, embedder, fresh, write_model

pytestmark = pytest.mark.skipif(not can_pack(), reason="this PyTorch cannot pack matrices for oneDNN")

SENTENCES = [["one", "two", "three"], ["four"], ["one", "five"]]


@pytest.fixture
def model(tmp_path: Path) -> Embedder:
    """A loaded model that was used: its matrices are released."""
    model = load(write_model(tmp_path / "model"), device="cpu")
    list(model.embed(SENTENCES))
    assert is_released(model)
    return model


def is_released(model: Embedder) -> bool:
    return not model.runner.module.weight.numel()


def assert_weights(found: dict[str, Tensor], folder: Path) -> None:
    wanted = source.read(write_model(folder / "again")).bilm.state_dict()
    assert list(found) == list(wanted)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def saved(model: Embedder, folder: Path) -> dict[str, Tensor]:
    model.save(folder / "saved")
    return source.read(folder / "saved").bilm.state_dict()


READERS: dict[str, Callable[[Embedder, Path], dict[str, Tensor]]] = {
    "bilm": lambda model, _: model.bilm.state_dict(),
    "save": saved,
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)).bilm.state_dict(),
    "to": lambda model, _: model.to("cpu").runner.module.state_dict(),
    "Elmo": lambda model, _: Elmo(model).bilm.state_dict(),
}


@pytest.mark.parametrize("reader", READERS)
def test_weights_are_given_back(reader: str, model: Embedder, tmp_path: Path) -> None:
    before = list(model.embed(SENTENCES))
    assert_weights(READERS[reader](model, tmp_path), tmp_path)
    assert_same_bits(list(model.embed(SENTENCES)), before)
    assert not is_released(model)  # somebody may have a reference to them


def test_what_reads_no_weights_leaves_them_released(model: Embedder) -> None:
    assert repr(model).endswith(", float32 on cpu)")
    assert model.fingerprint() == embedder().fingerprint()
    assert is_released(model)
    assert len(model.cache) == 5 + 2  # words and boundaries: nothing was forgotten
    assert_same_bits(list(model.embed(SENTENCES)), list(embedder().embed(SENTENCES)))
    assert_same_bits(list(model.embed(SENTENCES, state="warm")), list(embedder().embed(SENTENCES, state="warm")))
    assert is_released(model)


def test_a_model_of_somebody_else_is_never_released() -> None:
    model = embedder()
    list(model.embed(SENTENCES))
    assert not is_released(model)


def test_a_change_is_seen_after_they_were_given_back(model: Embedder) -> None:
    (before,) = model.embed([["one", "two"]])
    with torch.no_grad():
        model.bilm.lstms[0].weight_input.mul_(0.5)
    (after,) = model.embed([["one", "two"]])
    assert abs(after - before).max() > 1e-4
    with torch.no_grad():
        model.bilm.lstms[0].weight_input.mul_(2)
    assert_same_bits(list(model.embed([["one", "two"]])), [before])


def test_training_goes_on_from_the_weights(model: Embedder) -> None:
    bilm = model.bilm.requires_grad_(True)
    layers, _ = bilm(model.ids([["one", "two"]]))
    layers.activations.sum().backward()
    assert all(parameter.grad is not None for parameter in bilm.lstms.parameters())


def test_threads_may_read_and_embed_at_once(tmp_path: Path) -> None:
    wanted = [next(embedder().embed([sentence])) for sentence in SENTENCES]
    for k in range(5):
        model = load(write_model(tmp_path / str(k)), device="cpu")

        def use(number: int, model: Embedder = model) -> object:
            if number == 3:
                return model.bilm.state_dict()
            if number % 2:
                return model.fingerprint()
            return [next(model.embed([sentence])) for sentence in SENTENCES]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(use, range(8)))
        assert found[1] == found[5] == found[7] == embedder().fingerprint()
        for arrays in found[::2]:
            assert_same_bits(arrays, wanted)
        assert all(values.numel() for values in found[3].values())
        assert abs(wanted[0] - fresh(SENTENCES[0])).max() < 1e-5
