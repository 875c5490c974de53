"""What a task model reads: word vectors, characters and ELMo side by side, in every placement and mix."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.errors import ConfigError, DataError
from elmo.tasks import frozen, word_vectors
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig
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
    x = made(made.texts(SENTENCES))
    assert x.shape == (3, 5, 3)
    expected = {"The": MATRIX[0], "cat": MATRIX[1], "Dogs": MATRIX[2], ".": MATRIX[3]}
    for row, sentence in zip(x, SENTENCES, strict=True):
        for vector, word in zip(row, sentence, strict=False):
            assert torch.equal(vector, expected.get(word, torch.zeros(3))), word
        assert not row[len(sentence) :].any()
    assert made.table is not None
    assert made.table.weight.requires_grad


def test_words_as_they_are_written() -> None:
    made = Inputs(InputsConfig(ElmoConfig(placement="none"), vectors="glove.txt", lowercase=False), WORDS, MATRIX)
    assert made.texts([("The", "the")]).words.tolist() == [[1, 2]]  # type: ignore[union-attr]


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
    texts = made.texts(SENTENCES)
    x, hidden = made(texts), torch.ones(3, 5, 2)
    behind = made.at_output(hidden, texts)
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
    texts = made.texts(SENTENCES[:1])
    layers = fresh(SENTENCES[0])
    x, behind = made(texts)[0, :, 3:], made.at_output(torch.zeros(1, 3, 0), texts)[0]
    assert np.abs(x.detach().numpy() - scalar_mix(layers, [1, 2, 3])).max() < 2e-3
    assert np.abs(behind.detach().numpy() - scalar_mix(layers, [0, -1, 0.5], 2.0)).max() < 4e-3
    assert made.penalty().item() == pytest.approx(0.1 * (1 + 4 + 9 + 1 + 0.25))
    shown = made.mixes()
    assert shown["output"]["gamma"] == 2.0
    assert shown["input"]["weights"] == pytest.approx([0.0900, 0.2447, 0.6652], abs=1e-4)


def test_without_elmo_there_is_nothing_to_pay() -> None:
    made = inputs("none")
    assert made.penalty().item() == 0.0
    assert made.mixes() == {}
    hidden = torch.ones(1, 2, 3)
    assert made.at_output(hidden, made.texts([("a", "b")])) is hidden


def test_characters_see_their_own_word_only() -> None:
    """The maximum over a word's places, computed place by place in NumPy; what other words are beside it is nothing."""
    torch.manual_seed(0)
    config = InputsConfig(ElmoConfig(placement="none"), characters=CharactersConfig(dim=4, filters=5, width=3))
    made = Inputs(config).eval()
    sentences = [("a", "Straße", "internationalisation" * 4), ("bc",)]
    x = made(made.texts(sentences)).detach().numpy()
    assert made.characters is not None
    table = made.characters.embedding.weight.detach().numpy()
    kernel = made.characters.convolution.weight.detach().numpy()
    bias = made.characters.convolution.bias.detach().numpy()  # type: ignore[union-attr]
    for row, sentence in zip(x, sentences, strict=True):
        for vector, word in zip(row, sentence, strict=False):
            ids = [259, *(byte + 1 for byte in word.encode()[:48]), 260]
            characters = table[ids]
            places = [np.einsum("cd,fdc->f", characters[k : k + 3], kernel) + bias for k in range(len(characters) - 2)]
            np.testing.assert_allclose(vector, np.maximum(np.max(places, axis=0), 0), atol=1e-6)
    alone = made(made.texts([("bc",)]))
    assert torch.allclose(alone[0, 0], torch.from_numpy(x[1, 0]), atol=1e-6)


def test_a_word_shorter_than_the_filters_is_read() -> None:
    config = InputsConfig(ElmoConfig(placement="none"), characters=CharactersConfig(dim=4, filters=5, width=7))
    made = Inputs(config).eval()
    assert torch.isfinite(made(made.texts([("a", "bb")]))).all()


def test_a_bilm_in_training_gets_a_gradient() -> None:
    bilm = embedder().bilm.requires_grad_(True)
    config = InputsConfig(ElmoConfig(trainable=True, dropout=0.0))
    made = Inputs(config, bilm=bilm)
    texts = made.texts(SENTENCES)
    assert texts.layers is None
    x = made(texts)
    for row, sentence in zip(x, SENTENCES, strict=True):
        expected = fresh(sentence).mean(axis=0)
        assert np.abs(row[: len(sentence)].detach().numpy() - expected).max() < 1e-5
    torch.autograd.backward(x.square().sum())
    assert all(parameter.grad is not None for parameter in bilm.parameters())
    torch.autograd.backward(made(texts).square().sum())  # a batch may be read again


def test_a_bilm_in_training_runs_once_for_both_places(monkeypatch: pytest.MonkeyPatch) -> None:
    bilm = embedder().bilm.requires_grad_(True)
    config = InputsConfig(ElmoConfig(trainable=True, dropout=0.0, placement="both"))
    made = Inputs(config, bilm=bilm)
    calls = []
    forward = bilm.forward
    monkeypatch.setattr(bilm, "forward", lambda ids: calls.append(1) or forward(ids))
    texts = made.texts(SENTENCES)
    assert torch.equal(made(texts), made.at_output(torch.zeros(3, 5, 0), texts))
    assert len(calls) == 1


def test_dropout_of_elmo_and_of_words_are_two_things() -> None:
    config = InputsConfig(ElmoConfig(dropout=0.9), vectors="glove.txt", dropout=0.0)
    made = Inputs(config, WORDS, MATRIX, FrozenLayers(embedder())).train()
    texts = made.texts([("cat",) * 50])
    x = made(texts)
    assert torch.equal(x[0, :, :3], MATRIX[1].expand(50, 3))
    assert 0.8 < (x[0, :, 3:] == 0).float().mean() < 1.0


def test_a_network_that_would_read_nothing_is_refused() -> None:
    for placement in ("none", "output"):
        with pytest.raises(ConfigError, match=rf"^inputs\.elmo\.placement is '{placement}', and a word has neither "):
            InputsConfig(ElmoConfig(placement=placement))  # type: ignore[arg-type]


# Layers, kept


def test_layers_are_computed_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = FrozenLayers(embedder(), SENTENCES, tmp_path)
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(embedder().fingerprint())
    assert np.load(kept, mmap_mode="r").shape == (9, 3, embedder().dim)
    monkeypatch.setattr(elmo.Embedder, "embed", lambda *_, **__: pytest.fail("computed again"))
    again = FrozenLayers(embedder(), SENTENCES, tmp_path)
    chosen = [SENTENCES[2], SENTENCES[0], SENTENCES[2]]
    ours, theirs = again.layers(chosen), first.layers(chosen)
    assert torch.equal(ours.activations, theirs.activations)
    assert torch.equal(ours.mask, theirs.mask)
    for row, sentence in enumerate(chosen):
        error = np.abs(ours.activations[:, row, : len(sentence)].numpy() - fresh(sentence)).max()
        assert error < 2e-3


def test_how_far_it_is_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    FrozenLayers(embedder(), SENTENCES, tmp_path, lambda done, of: told.append((done, of)))
    assert told == [(3, 9), (8, 9), (9, 9)]


def test_other_texts_and_other_models_have_files_of_their_own(tmp_path: Path) -> None:
    FrozenLayers(embedder(), SENTENCES, tmp_path)
    FrozenLayers(embedder(), SENTENCES[:2], tmp_path)
    other = embedder()
    with torch.no_grad():
        next(other.bilm.parameters()).mul_(2)
    FrozenLayers(other, SENTENCES, tmp_path)
    FrozenLayers(embedder(), [("The cat", "sat"), *SENTENCES], tmp_path)
    FrozenLayers(embedder(), [("The", "cat sat"), *SENTENCES], tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_text_that_was_not_prepared_is_computed(tmp_path: Path) -> None:
    layers = FrozenLayers(embedder(), SENTENCES, tmp_path)
    new = ("Something", "new")
    found = layers.layers([SENTENCES[0], new])
    assert np.abs(found.activations[:, 1, :2].numpy() - fresh(new)).max() < 2e-3
    assert np.abs(found.activations[:, 0, :3].numpy() - fresh(SENTENCES[0])).max() < 2e-3
    assert found.mask.tolist() == [[True, True, True], [True, True, False]]
    assert not found.activations[:, 1, 2].any()


@pytest.mark.parametrize("spoiled", [b"", b"\x93NUMPY nonsense", None])
def test_a_damaged_file_is_named(spoiled: bytes | None, tmp_path: Path) -> None:
    FrozenLayers(embedder(), SENTENCES, tmp_path)
    (kept,) = tmp_path.iterdir()
    if spoiled is None:
        np.save(kept, np.zeros((9, 3, 2), dtype=np.float16))
    else:
        kept.write_bytes(spoiled)
    with pytest.raises(DataError, match=rf"^{kept}: .*; remove it, and it is computed again$"):
        FrozenLayers(embedder(), SENTENCES, tmp_path)


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_what_was_computed_before_an_interruption_is_not_computed_again(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "PART", 3)  # tokens: every sentence of three or more is a part
    whole = FrozenLayers(embedder(), SENTENCES, tmp_path / "whole").layers(SENTENCES)
    embed, computed = elmo.Embedder.embed, []

    def interrupted(self: elmo.Embedder, texts: Sequence[Any], **options: Any) -> Any:
        if len(computed) == first:
            raise KeyboardInterrupt
        computed.extend(texts)
        return embed(self, texts, **options)

    monkeypatch.setattr(elmo.Embedder, "embed", interrupted)
    if first < 3:
        with pytest.raises(KeyboardInterrupt):
            FrozenLayers(embedder(), SENTENCES, tmp_path / "layers")
        assert not list((tmp_path / "layers").glob("*.npy")), "what has the name is whole"
        first = -1
    told: list[tuple[int, int]] = []
    again = FrozenLayers(embedder(), SENTENCES, tmp_path / "layers", lambda *values: told.append(values))
    assert computed == list(SENTENCES)
    assert told[-1] == (9, 9)
    assert [path.suffix for path in (tmp_path / "layers").iterdir()] == [".npy"]
    assert torch.equal(again.layers(SENTENCES).activations, whole.activations)


@pytest.mark.parametrize("when", [1, 2, 3])
def test_two_runs_may_compute_the_same(when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends while the other is at its first, second or last part."""
    monkeypatch.setattr(frozen, "PART", 3)
    embed, calls = elmo.Embedder.embed, []

    def overtaken(self: elmo.Embedder, texts: Sequence[Any], **options: Any) -> Any:
        calls.append(texts)
        if len(calls) == when:
            FrozenLayers(embedder(), SENTENCES, tmp_path)
        return embed(self, texts, **options)

    monkeypatch.setattr(elmo.Embedder, "embed", overtaken)
    found = FrozenLayers(embedder(), SENTENCES, tmp_path).layers(SENTENCES)
    for row, sentence in enumerate(SENTENCES):
        assert np.abs(found.activations[:, row, : len(sentence)].numpy() - fresh(sentence)).max() < 2e-3
    assert len(calls) >= when and [path.suffix for path in tmp_path.iterdir()] == [".npy"]


# Word vectors


def test_vectors_of_the_first_lines_and_of_the_words_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2.5\ncat -3 4e-1\n. 5 6\nrare 7 8\n", encoding="utf-8")
    read = word_vectors.read(path, 2, {"rare", "absent"})
    assert read.words == ["the", "cat", "rare"]
    np.testing.assert_array_equal(read.matrix, np.array([[1, 2.5], [-3, 0.4], [7, 8]], dtype=np.float32))


def test_the_first_line_of_word2vec_is_no_word(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("2 3\na 1 2 3\nb 4 5 6\n", encoding="utf-8")
    assert word_vectors.read(path, 10).words == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2 3\nb 1 2\n", r":2: 2 numbers after 'b'; expected 3$"),
        ("a 1 x\n", r":1: could not convert string to float: 'x'; expected a word and its numbers, as GloVe has$"),
        ("a\n", r":1: 'a'; expected a word and its numbers, as GloVe has$"),
        ("", r": contains no word vectors; expected a word and its numbers on each line$"),
    ],
)
def test_a_file_that_is_no_vectors(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"v\.txt{message}"):
        word_vectors.read(tmp_path / "v.txt", 10)


def test_a_word_may_hold_spaces(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 1 2\n. . . 3 4\nat a@b.org 5 6\n", encoding="utf-8")
    read = word_vectors.read(tmp_path / "v.txt", 10)
    assert read.words == ["the", ". . .", "at a@b.org"]
    assert read.matrix.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"v\.txt: cannot be read \(No such file or directory\); expected a text file"):
        word_vectors.read(tmp_path / "v.txt", 10)


def test_layer_norm_is_the_mix_s(tmp_path: Path) -> None:
    plain, normed = inputs("input", mix="last"), inputs("input", mix="last", layer_norm="token")
    x = normed(normed.texts(SENTENCES[:1]))[0, :, 3:]
    raw = plain(plain.texts(SENTENCES[:1]))[0, :, 3:]
    expected = (raw - raw.mean(dim=-1, keepdim=True)) / raw.std(dim=-1, keepdim=True, unbiased=False)
    assert torch.allclose(x, expected, atol=1e-5)
    assert replace(normed.config.elmo, layer_norm=None) == plain.config.elmo


def test_words_without_a_vector_get_one_that_is_like_the_others() -> None:
    rng = np.random.default_rng(0)
    file = word_vectors.WordVectors(["a", "b"], rng.normal(2, 3, (2, 5000)).astype(np.float32))
    both = word_vectors.with_own(file, ["b", "n't", "--", "n't"], np.random.default_rng(1))
    assert both.words == ["a", "b", "n't", "--"]
    assert np.array_equal(both.matrix[:2], file.matrix) and both.matrix.dtype == np.float32
    assert np.allclose(both.matrix[2:].mean(axis=1), 2, atol=0.2) and np.allclose(
        both.matrix[2:].std(axis=1), 3, atol=0.2
    )
    assert abs(np.corrcoef(both.matrix[2:])[0, 1]) < 0.05
    assert word_vectors.with_own(file, ["a"], rng).words == ["a", "b"]
