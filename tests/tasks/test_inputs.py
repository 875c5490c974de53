"""What a task model reads: word vectors, characters and ELMo side by side, in every placement and mix."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from elmo.errors import ConfigError
from elmo.model.elmo import Elmo
from elmo.model.scalar_mix import ScalarMix
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import CharacterEncoder, CharactersConfig, ElmoConfig, Inputs, InputsConfig
from elmo.text.characters import sentence_ids
from embedders import embedder, fresh
from numpy_reference import scalar_mix

SENTENCES = [("The", "cat", "sat"), ("Dogs", "bark", "at", "night", "."), ("Naïve",)]
MATRIX = torch.arange(12.0).view(4, 3)  # of "the", "cat", "dogs", "."
WORDS = ["the", "cat", "dogs", "."]


def inputs(placement: str = "input", **changes: Any) -> Inputs:
    elmo_config = ElmoConfig(placement=placement, dropout=0.0, **changes)  # type: ignore[arg-type]
    config = InputsConfig(elmo_config, vectors="glove.txt")
    return Inputs(config, WORDS, MATRIX, FrozenLayers(embedder())).eval()


def test_words_are_looked_up_in_lower_case_and_unknown_ones_share_a_row() -> None:
    made = inputs("none")
    read = made(SENTENCES)
    x = read.vectors
    assert x.shape == (3, 5, 3)
    assert read.lengths == (3, 5, 1)
    assert read.mask.sum(dim=1).tolist() == [3, 5, 1]
    assert read.layers is None
    expected = {"The": MATRIX[0], "cat": MATRIX[1], "Dogs": MATRIX[2], ".": MATRIX[3]}
    for row, sentence in zip(x, SENTENCES, strict=True):
        for vector, word in zip(row, sentence, strict=False):
            assert torch.equal(vector, expected.get(word, torch.zeros(3))), word
        assert not row[len(sentence) :].any()
    assert made.table is not None
    assert made.table.weight.requires_grad


def test_words_as_they_are_written() -> None:
    made = Inputs(InputsConfig(ElmoConfig(placement="none"), vectors="glove.txt", lowercase=False), WORDS, MATRIX)
    x = made([("The", "the")]).vectors
    assert torch.equal(x[0], torch.stack([torch.zeros(3), MATRIX[0]]))


@pytest.mark.parametrize(
    ("mix", "shares"),
    [
        ("learned", [1, 1, 1]),
        ("average", [1, 1, 1]),
        ("last", [0, 0, 3]),
        ("layer:1", [0, 3, 0]),
        ("layer:0", [3, 0, 0]),
    ],
)
@pytest.mark.parametrize("placement", ["input", "output", "both"])
def test_elmo_is_the_reference_mixed(placement: str, mix: str, shares: list[int]) -> None:
    made = inputs(placement, mix=mix)
    read, hidden = made(SENTENCES), torch.ones(3, 5, 2)
    x, behind = read.vectors, made.at_output(hidden, read.layers)
    dim = embedder().dim
    assert (made.dim, made.output_dim) == (3 + dim * (placement != "output"), dim * (placement != "input"))
    assert x.shape[-1] == made.dim
    assert torch.equal(behind[..., :2], hidden)
    assert behind.shape[-1] == 2 + made.output_dim
    found = [x[..., 3:]] if placement != "output" else []
    found += [behind[..., 2:]] if placement != "input" else []
    for tensor in found:
        for row, sentence in zip(tensor, SENTENCES, strict=True):
            expected = np.einsum("l,ltd->td", np.array(shares) / 3, fresh(sentence))
            error = np.abs(row[: len(sentence)].detach().numpy() - expected).max()
            assert error < 2e-3  # stored in float16
            assert not row[len(sentence) :].any()


def test_each_place_has_a_mix_of_its_own() -> None:
    made = inputs("both", mix_l2=0.1)
    assert made.mix_input is not None and made.mix_output is not None
    with torch.no_grad():
        made.mix_input.scalars[:] = torch.tensor([1.0, 2.0, 3.0])  # type: ignore[index]
        made.mix_output.scalars[:] = torch.tensor([0.0, -1.0, 0.5])  # type: ignore[index]
        made.mix_output.gamma.fill_(2.0)
    read = made(SENTENCES[:1])
    layers = fresh(SENTENCES[0])
    x, behind = read.vectors[0, :, 3:], made.at_output(torch.zeros(1, 3, 0), read.layers)[0]
    assert np.abs(x.detach().numpy() - scalar_mix(layers, [1, 2, 3])).max() < 2e-3
    assert np.abs(behind.detach().numpy() - scalar_mix(layers, [0, -1, 0.5], 2.0)).max() < 4e-3
    assert made.penalty().item() == pytest.approx(0.1 * (1 + 4 + 9 + 1 + 0.25))
    shown = made.mixes()
    assert shown["output"]["gamma"] == 2.0
    assert shown["input"]["weights"] == pytest.approx([0.0900, 0.2447, 0.6652], abs=1e-4)


def test_a_penalty_of_zero_is_not_computed() -> None:
    made = inputs("both", mix_l2=0.0)
    assert made.penalty().item() == 0.0
    assert not made.penalty().requires_grad


@pytest.mark.parametrize("placement", ["none", "input"])
def test_vectors_are_zero_where_there_is_no_token(placement: str) -> None:
    elmo_config = ElmoConfig(placement=placement, dropout=0.0)  # type: ignore[arg-type]
    config = InputsConfig(elmo_config, vectors="glove.txt", characters=CharactersConfig(dim=4, filters=5))
    made = Inputs(config, WORDS, MATRIX, FrozenLayers(embedder()))
    assert made.characters is not None
    torch.nn.init.ones_(made.characters.convolution.bias)  # type: ignore[arg-type]
    read = made(SENTENCES)
    assert not read.vectors[~read.mask].any()
    assert read.vectors[read.mask].any(dim=1).all()


def test_without_elmo_there_is_no_penalty() -> None:
    made = inputs("none")
    assert made.penalty().item() == 0.0
    assert made.mixes() == {}
    hidden = torch.ones(1, 2, 3)
    assert made.at_output(hidden, made([("a", "b")]).layers) is hidden


def test_characters_see_their_own_word_only() -> None:
    """The maximum over a word's places, computed place by place in NumPy; what other words are beside it is nothing."""
    torch.manual_seed(0)
    config = InputsConfig(ElmoConfig(placement="none"), characters=CharactersConfig(dim=4, filters=5, width=3))
    made = Inputs(config).eval()
    sentences = [("a", "Straße", "internationalisation" * 4), ("bc",)]
    x = made(sentences).vectors.detach().numpy()
    assert made.characters is not None
    table = made.characters.embedding.weight.detach().numpy()
    kernel = made.characters.convolution.weight.detach().numpy()
    bias = made.characters.convolution.bias.detach().numpy()  # type: ignore[union-attr]
    for row, sentence in zip(x, sentences, strict=True):
        for vector, word in zip(row, sentence, strict=False):
            ids = [259, *(byte + 1 for byte in word.encode()[:48]), 260]
            characters = table[ids]
            places = [np.einsum("cd,fdc->f", characters[k : k + 3], kernel) + bias for k in range(len(characters) - 2)]
            np.testing.assert_allclose(vector, np.maximum(np.max(places, axis=0), 0), atol=1e-5)
    alone = made([("bc",)]).vectors
    assert torch.allclose(alone[0, 0], torch.from_numpy(x[1, 0]), atol=1e-5)


def test_filters_of_several_widths_are_those_of_each_width_side_by_side() -> None:
    torch.manual_seed(0)
    several = CharacterEncoder(CharactersConfig(dim=4, filters=5, width=2, n_widths=3, max_characters=12))
    texts = [("a", "Straße", "internationalisation"), ("bc",)]
    inside = np.array([[True, True, True], [True, False, False]])
    found = several(several.prepare(texts, inside, recorded=False))
    assert found.shape == (2, 3, 15) and several.config.output_dim == 15
    for number, convolution in enumerate([several.convolution, *several.wider]):
        one = CharacterEncoder(CharactersConfig(dim=4, filters=5, width=2 + number, max_characters=12))
        one.embedding, one.convolution = several.embedding, convolution  # type: ignore[assignment]
        assert torch.equal(found[..., 5 * number : 5 * number + 5], one(one.prepare(texts, inside, recorded=False)))


def test_columns_behind_the_longest_word_are_not_computed() -> None:
    one, inside = CharacterEncoder(CharactersConfig(width=3)), np.array([[True, True]])
    for recorded, shape in ((False, (2, 9)), (True, (2, 50))):
        assert one.prepare([("a", "Straße")], inside, recorded).ids.shape == shape, "7 bytes and two ends"
    assert one.prepare([("a", "")], inside, recorded=False).ids.shape == (2, 3)


def test_a_word_shorter_than_the_filters_is_read() -> None:
    config = InputsConfig(ElmoConfig(placement="none"), characters=CharactersConfig(dim=4, filters=5, width=7))
    made = Inputs(config).eval()
    assert torch.isfinite(made([("a", "bb")]).vectors).all()


def test_a_bilm_in_training_gets_a_gradient() -> None:
    bilm = embedder().bilm.requires_grad_(True)
    config = InputsConfig(ElmoConfig(trainable=True, dropout=0.0))
    made = Inputs(config, bilm=bilm)
    x = made(SENTENCES).vectors
    for row, sentence in zip(x, SENTENCES, strict=True):
        expected = fresh(sentence).mean(axis=0)
        assert np.abs(row[: len(sentence)].detach().numpy() - expected).max() < 1e-5
    torch.autograd.backward(x.square().sum())
    assert all(parameter.grad is not None for parameter in bilm.parameters())


def test_a_bilm_in_training_runs_once_for_both_places(monkeypatch: pytest.MonkeyPatch) -> None:
    bilm = embedder().bilm.requires_grad_(True)
    config = InputsConfig(ElmoConfig(trainable=True, dropout=0.0, placement="both"))
    made = Inputs(config, bilm=bilm)
    calls = []
    forward = bilm.forward
    monkeypatch.setattr(bilm, "forward", lambda ids: calls.append(1) or forward(ids))
    read = made(SENTENCES)
    assert torch.equal(read.vectors, made.at_output(torch.zeros(3, 5, 0), read.layers))
    assert len(calls) == 1


def test_two_batches_do_not_disturb_each_other() -> None:
    """What is added at the output belongs to the batch whose vectors were read, also if another was read since."""
    made = Inputs(InputsConfig(ElmoConfig(trainable=True, dropout=0.0, placement="both")), bilm=embedder().bilm)
    first, second = made(SENTENCES[:1]), made(SENTENCES[1:2])
    for read in (second, first):
        assert torch.equal(made.at_output(torch.zeros(1, read.lengths[0], 0), read.layers), read.vectors)


def test_dropout_of_elmo_and_of_words_are_two_things() -> None:
    config = InputsConfig(ElmoConfig(dropout=0.9), vectors="glove.txt", dropout=0.0)
    made = Inputs(config, WORDS, MATRIX, FrozenLayers(embedder())).train()
    x = made([("cat",) * 50]).vectors
    assert torch.equal(x[0, :, :3], MATRIX[1].expand(50, 3))
    assert 0.8 < (x[0, :, 3:] == 0).float().mean() < 1.0


def test_a_state_is_of_a_frozen_bilm() -> None:
    with pytest.raises(ConfigError, match=r"inputs\.elmo\.state is 'warm'; a biLM that is trained with the task reads"):
        ElmoConfig(state="warm", trainable=True)


def test_a_network_that_would_read_nothing_is_refused() -> None:
    for placement in ("none", "output"):
        with pytest.raises(ConfigError, match=rf"^inputs\.elmo\.placement is '{placement}', and a word has neither "):
            InputsConfig(ElmoConfig(placement=placement))  # type: ignore[arg-type]


def test_layer_norm_is_that_of_the_mix() -> None:
    plain, normed = inputs("input", mix="last"), inputs("input", mix="last", layer_norm="token")
    x = normed(SENTENCES[:1]).vectors[0, :, 3:]
    raw = plain(SENTENCES[:1]).vectors[0, :, 3:]
    expected = (raw - raw.mean(dim=-1, keepdim=True)) / raw.std(dim=-1, keepdim=True, unbiased=False)
    assert torch.allclose(x, expected, atol=1e-5)
    assert replace(normed.config.elmo, layer_norm=None) == plain.config.elmo


@pytest.mark.parametrize("placement", ["none", "input", "output", "both"])
@pytest.mark.parametrize("trainable", [False, True])
def test_dropout_and_penalty_are_those_of_elmo(placement: str, trainable: bool) -> None:
    """`Elmo` with as many mixes gives the same vectors, drop for drop, and the same penalty."""
    of = embedder()
    config = ElmoConfig(placement=placement, trainable=trainable, mix_l2=0.2, dropout=0.5)  # type: ignore[arg-type]
    bilm = of.bilm if trainable else None
    made = Inputs(InputsConfig(config, vectors="glove.txt"), WORDS, MATRIX, FrozenLayers(of), bilm).train()
    if placement == "none":
        assert made.penalty().item() == 0.0
        return
    n_mixes = 2 if placement == "both" else 1
    assert of.bilm.config.char_cnn is not None
    theirs = Elmo(of.bilm, n_mixes, dropout=0.5, l2=0.2, trainable=trainable).train()
    ids = torch.from_numpy(sentence_ids(SENTENCES, of.bilm.config.char_cnn.max_characters_per_token))
    with torch.no_grad():
        for mix in (made.mix_input, made.mix_output, *theirs.mixes):
            if isinstance(mix, ScalarMix) and mix.scalars is not None:
                mix.scalars.copy_(torch.tensor([0.5, -1.0, 2.0]))
    assert made.penalty().item() == theirs.penalty().item() == pytest.approx(n_mixes * 0.2 * (0.25 + 1 + 4))
    torch.manual_seed(5)
    read = made(SENTENCES)
    found = [read.vectors[..., 3:]] if placement != "output" else []
    found += [made.at_output(torch.zeros(3, 5, 0), read.layers)] if placement != "input" else []
    torch.manual_seed(5)
    for ours, wanted in zip(found, theirs(ids).representations, strict=True):
        np.testing.assert_allclose(ours.detach(), wanted.detach(), atol=1e-5 if trainable else 4e-3)
