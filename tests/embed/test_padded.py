"""A batch of sentences as one padded tensor: the reference's numbers, zeros elsewhere, and the word cache in use."""

import numpy as np
import pytest
import torch

from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError, DataError
from elmo.model.scalar_mix import ScalarMix
from embedders import DIM, N_LAYERS, REFERENCE, WEIGHTS, assert_close, embedder, fresh, warm_reference

SENTENCES = [["The", "cat", "sat"], [], ["naïve"], ["The", "cat", "sat", "on", "the", "mat", "."]]


@pytest.fixture
def model() -> Embedder:
    return embedder()


def test_every_layer_is_the_references_and_the_rest_is_zero(model: Embedder) -> None:
    layers = model.layers(SENTENCES)
    assert layers.activations.shape == (N_LAYERS, 4, 7, DIM)
    assert layers.mask.dtype == torch.bool
    assert layers.mask.sum(dim=1).tolist() == [3, 0, 1, 7]
    for row, sentence in enumerate(SENTENCES):
        found = layers.activations[:, row].numpy()
        assert_close(found[:, : len(sentence)], fresh(sentence))
        assert not found[:, len(sentence) :].any()


def test_boundaries_are_kept_if_asked(model: Embedder) -> None:
    layers = model.layers(SENTENCES, boundaries=True)
    expected, _ = model.bilm(model.ids(SENTENCES))
    assert torch.equal(layers.mask, expected.mask)
    assert_close(layers.activations.numpy(), expected.activations.numpy())


def test_it_starts_from_the_state_that_is_asked_for(model: Embedder) -> None:
    expected, _ = REFERENCE.layers(SENTENCES[0], warm_reference())
    for boundaries in (False, True):
        found = model.layers([SENTENCES[0]], state="warm", boundaries=boundaries).activations[:, 0].numpy()
        assert_close(found[:, 1:-1] if boundaries else found, expected)


def test_a_carried_state_goes_from_call_to_call_row_by_row(model: Embedder) -> None:
    other = embedder()
    for boundaries in (False, True, False):
        layers = model.layers(SENTENCES, state="carried", boundaries=boundaries)
        for row, array in enumerate(other.embed(SENTENCES, state="carried", batch_size=len(SENTENCES))):
            found = layers.activations[:, row].numpy()[:, boundaries : boundaries + len(SENTENCES[row])]
            assert_close(found, array)
    assert np.abs(found - fresh(SENTENCES[3])).max() > 1e-3


def test_small_batches_give_the_same_and_the_cache_is_used(model: Embedder) -> None:
    whole = model.layers(SENTENCES)
    words = len(model.cache)
    assert {"The", "cat", "naïve"} <= set(model.cache._rows)
    assert_close(model.layers(SENTENCES, batch_tokens=3).activations.numpy(), whole.activations.numpy())
    assert len(model.cache) == words


def test_raw_text_is_tokenized_and_nothing_gives_nothing(model: Embedder) -> None:
    found = model.layers(["The cat sat."]).activations[:, 0].numpy()
    assert_close(found, fresh(["The", "cat", "sat", "."]))
    for state in ("fresh", "carried"):
        none = model.layers([], state=state)
        assert (none.activations.shape, none.mask.shape) == ((N_LAYERS, 0, 0, DIM), (0, 0))
        assert model.layers([[]], state=state).activations.shape == (N_LAYERS, 1, 0, DIM)


@pytest.mark.parametrize("inference", [False, True])
def test_a_mix_can_be_trained_on_it(model: Embedder, inference: bool) -> None:
    with torch.inference_mode(inference):
        layers = model.layers(SENTENCES)
    mix = ScalarMix(N_LAYERS)
    mix(layers).sum().backward()
    assert mix.gamma.grad is not None
    # the mix is the mean of the layers, and γ multiplies it
    assert mix.gamma.grad.item() == pytest.approx(layers.activations.sum().item() / N_LAYERS, rel=1e-4)


def test_what_is_refused(model: Embedder) -> None:
    with pytest.raises(ConfigError, match="state is 'hot'; expected one of fresh, carried, warm"):
        model.layers(SENTENCES, state="hot")
    with pytest.raises(DataError, match="sentence 1 is None"):
        model.layers([["a"], None])  # type: ignore[list-item]
    with pytest.raises(DataError, match="sentence 0 has 2 tokens; expected at most 1"):
        model.layers([["a", "b"]], max_sentence_tokens=1)


def test_weights_of_another_dtype_keep_it() -> None:
    assert WEIGHTS["char_embed"].dtype == np.float32
    assert embedder(precision="bfloat16").layers(SENTENCES).activations.dtype == torch.bfloat16
