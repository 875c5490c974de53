"""Weights that change in any way at all: nothing that was computed from the old ones is given out again."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import elmo
from elmo.embed.snapshot import Snapshot
from elmo.embed.warm_up import TEXT
from elmo.weights.folder import Pretrained
from embedders import assert_close, embedder, fresh, pretrained

SENTENCES = [["one", "two", "three"], ["four"], []]


def in_place(bilm: elmo.BiLM) -> None:
    with torch.no_grad():
        for parameter in bilm.parameters():
            parameter.mul_(1.1)


def data_replaced(bilm: elmo.BiLM) -> None:
    for parameter in bilm.parameters():
        parameter.data = 1.1 * parameter.data


def data_in_place(bilm: elmo.BiLM) -> None:
    for parameter in bilm.parameters():
        parameter.data.mul_(1.1)


def one_set_to_zero(bilm: elmo.BiLM) -> None:
    bilm.lstms[1].weight_hidden.data.zero_()


def assigned(bilm: elmo.BiLM) -> None:
    bilm.load_state_dict({name: 1.1 * tensor for name, tensor in bilm.state_dict().items()}, assign=True)


def from_a_vector(bilm: elmo.BiLM) -> None:
    vector = nn.utils.parameters_to_vector(bilm.parameters())
    nn.utils.vector_to_parameters(1.1 * vector, bilm.parameters())


def through_numpy(bilm: elmo.BiLM) -> None:
    for parameter in bilm.parameters():
        parameter.detach().numpy()[...] *= 1.1


def module_replaced(bilm: elmo.BiLM) -> None:
    other = embedder().bilm
    in_place(other)
    bilm.lstms[0] = other.lstms[0]


def halved(bilm: elmo.BiLM) -> None:
    bilm.half()


def doubled(bilm: elmo.BiLM) -> None:
    bilm.double()


CHANGES = [
    in_place, data_replaced, data_in_place, one_set_to_zero, assigned, from_a_vector, through_numpy, module_replaced,
    halved, doubled,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("inference", [False, True], ids=["", "loaded in inference mode"])
def test_vectors_are_those_of_the_weights_as_they_are(change: Callable[[Any], None], inference: bool) -> None:
    with torch.inference_mode(inference):
        model = embedder()
    before = {state: model.encode(SENTENCES, state=state) for state in ("fresh", "warm")}
    with torch.inference_mode(inference):  # where such weights may be changed
        change(model.bilm)
    for state in ("fresh", "warm"):
        after = model.encode(SENTENCES, state=state)
        # Not through an Embedder: it would bring the weights back to float32.
        start = model.bilm.zero_state(1) if state == "fresh" else _after_the_text(model)
        for vector, sentence in zip(after, SENTENCES[:2], strict=False):
            layers = model.bilm(model.ids([sentence]), start)[0].without_boundaries().activations[:, 0]
            assert_close(vector, layers.float().mean(dim=(0, 1)).detach().numpy(), 2e-3 if change is halved else 1e-5)
        if change not in (halved, doubled):
            assert abs(after - before[state]).max() > 1e-3


def _after_the_text(model: elmo.Embedder) -> Any:
    state = None
    for line in TEXT:
        state = model.bilm(model.ids([line.split()]), state)[1]
    return state


def test_a_stream_continues_with_the_new_weights() -> None:
    model, sentence = embedder(), ["one", "two"]
    arrays = model.embed([sentence] * 20, batch_tokens=2, state="warm")  # four sentences are computed ahead
    next(arrays)
    data_in_place(model.bilm)
    (wanted,) = elmo.Embedder(Pretrained(model.bilm)).embed([sentence], state="warm")
    assert_close(list(arrays)[-1], wanted)


def test_the_softmax_is_no_part_of_the_vectors() -> None:
    """Training it alone leaves the cache as it is."""
    bilm = pretrained().bilm
    config = elmo.BiLMConfig(bilm.config.lstm, bilm.config.char_cnn, n_softmax=7)
    predicting = elmo.BiLM(config)
    model = elmo.Embedder(Pretrained(predicting))
    model.encode(SENTENCES)
    with torch.no_grad():
        predicting.softmax.bias.add_(1.0)
    model.encode(SENTENCES[:1])
    assert len(model.cache) == 6  # four words and two boundaries


def test_without_a_change_nothing_is_forgotten() -> None:
    model = embedder()
    model.encode(SENTENCES)
    model.bilm.requires_grad_(True)
    model.bilm.train()
    model.encode([["one"]])
    assert len(model.cache) == 6


def test_a_change_of_any_one_parameter_is_seen() -> None:
    bilm = embedder().bilm
    for parameter in bilm.parameters():
        snapshot = Snapshot([bilm])
        assert snapshot.holds()
        parameter.data.add_(1.0)
        assert not snapshot.holds()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0, 3),
        torch.zeros(()),
        torch.zeros(5),
        torch.zeros(8, 8).t(),
        torch.zeros(1).expand(9),
        torch.zeros(40)[3:],
        torch.zeros(10)[::2],
        torch.zeros(6, 7, dtype=torch.bfloat16),
    ],
)
def test_tensors_of_any_shape_and_layout(tensor: torch.Tensor) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(tensor)
    snapshot = Snapshot([module])
    assert snapshot.holds()
    if tensor.numel():
        module.weight.data.untyped_storage().fill_(1)
        assert not snapshot.holds()


def test_loaded_in_inference_mode_it_gives_the_same() -> None:
    with torch.inference_mode():
        model = embedder()
    for array, sentence in zip(model.embed(SENTENCES), SENTENCES, strict=True):
        assert_close(array, fresh(sentence))
    output = elmo.Elmo(model, mix="average", dropout=0.0)(model.ids(SENTENCES))
    output.representations[0].sum().backward()  # the mix is trained, if not the biLM
    assert_close(output.representations[0][0].detach().numpy(), fresh(SENTENCES[0]).mean(axis=0))
