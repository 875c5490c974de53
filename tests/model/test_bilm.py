"""The biLM against the NumPy reference, in every variant and on both paths: with a gradient and without one."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.errors import ConfigError
from elmo.model import lstm as lstm_module
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.layers import Layers
from elmo.model.lstm import LSTMConfig, State
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from models import (
    VARIANTS,
    carried,
    ids_of,
    on,
    published,
    random_sentences,
    small,
    state_of,
    write_datasets,
    write_published,
)
from numpy_reference import Reference

ALL = [*VARIANTS, *range(30)]
Read = Callable[[str | int], BiLM]
PATHS = ["training", "inference"]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}  # the reference computes in float64
CHAOTIC = "both clips of 3"  # too chaotic for float32


def precisions(variant: str | int) -> dict[torch.dtype, float]:
    return {torch.float64: 1e-8} if variant == CHAOTIC else TOLERANCE


@cache
def reference_of(variant: str | int) -> Reference:
    return Reference(*published(variant))  # shared, for it remembers the words it has encoded


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Reads a variant's files, written once."""

    @cache
    def files(variant: str | int) -> tuple[Path, Path]:
        return write_published(tmp_path_factory.mktemp("model"), *published(variant))

    return lambda variant: bilm_tf.read(*files(variant))


def largest_difference(layers: Layers, expected: list[NDArray[np.float64]]) -> float:
    """Over the tokens; where there is none, everything must be zero."""
    assert len(expected) == layers.mask.shape[0]
    assert layers.mask.sum(dim=1).tolist() == [array.shape[1] for array in expected]
    assert layers.mask.shape[1] == max(array.shape[1] for array in expected)
    worst = 0.0
    for row, array in enumerate(expected):
        n = array.shape[1]
        ours = layers.activations[:, row].detach().numpy()
        assert ours.shape[::2] == array.shape[::2]
        assert layers.mask[row, :n].all()
        assert not ours[:, n:].any()
        worst = max(worst, float(np.abs(ours[:, :n] - array).max()))
    return worst


# Against the reference


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("variant", ALL)
def test_layers_and_state_from_zero_are_the_reference_s(read: Read, variant: str | int, path: str) -> None:
    reference, bilm = reference_of(variant), read(variant)
    sentences = [*random_sentences(np.random.default_rng(1), 6), []]
    results = [reference.layers(sentence, keep_boundaries=True) for sentence in sentences]
    for dtype, tolerance in precisions(variant).items():
        with on(path, bilm.to(dtype)):
            layers, state = bilm(ids_of(bilm, sentences))
        assert layers.activations.requires_grad == (path == "training")
        assert layers.activations.dtype == dtype
        worst = largest_difference(layers, [array for array, _ in results])
        for ours, theirs in zip(state, state_of([after for _, after in results]), strict=True):
            assert ours.shape == theirs.shape
            worst = max(worst, float(np.abs(ours.detach().numpy() - theirs).max()))
        print(f"largest difference in {dtype}: {worst:.1e}")
        assert worst < tolerance


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("variant", ALL)
def test_layers_with_the_state_carried_are_the_reference_s(read: Read, variant: str | int, path: str) -> None:
    reference, bilm = reference_of(variant), read(variant)
    rng = np.random.default_rng(2)
    batches = [random_sentences(rng, n) for n in (3, 5, 1, 4)]
    expected = list(reference.carried(batches, keep_boundaries=True))
    for dtype, tolerance in precisions(variant).items():
        with on(path, bilm.to(dtype)):
            computed = list(carried(bilm, batches))
        worst = max(largest_difference(ours, theirs) for ours, theirs in zip(computed, expected, strict=True))
        print(f"largest difference in {dtype}: {worst:.1e}")
        assert worst < tolerance


@pytest.mark.parametrize(
    ("variant", "names"),
    [
        ("both clips", ["cell", "projection"]),
        ("both clips of 3", ["cell", "projection"]),
        ("only the cell clipped", ["cell"]),
        ("only the projection clipped", ["projection"]),
    ],
)
def test_the_variants_with_clips_are_clipped(variant: str, names: list[str]) -> None:
    reference = Reference(*published(variant))
    for sentence in random_sentences(np.random.default_rng(1), 6):
        reference.layers(sentence)
    assert [name for name, clipped in reference.clipped.items() if clipped > 20] == names


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("n", "longest"), [(60, 40), (700, 2)])  # long texts; more sentences than are read at a time
def test_large_batches_are_the_reference_s(read: Read, path: str, n: int, longest: int) -> None:
    reference, bilm = reference_of("both clips"), read("both clips")
    sentences = random_sentences(np.random.default_rng(3), n, longest)
    with on(path, bilm.double()):
        layers, _ = bilm(ids_of(bilm, sentences))
    expected = [reference.layers(sentence, keep_boundaries=True)[0] for sentence in sentences]
    assert layers.mask.sum() > 1024
    assert largest_difference(layers, expected) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("path", PATHS)
def test_words_that_enter_by_their_row_are_the_reference_s(tmp_path: Path, path: str) -> None:
    options, weights = published("skip")
    words = ["<S>", "</S>", "<UNK>", "the", "cat", "日本語"]
    dim = options["lstm"]["projection_dim"]
    table = np.random.default_rng(4).standard_normal((len(words), dim)).astype(np.float32)
    embedding = write_datasets(tmp_path / "table.hdf5", {"embedding": table})
    bilm = bilm_tf.read(*write_published(tmp_path, options, weights), embedding)
    reference = Reference(options, weights | {"embedding": table}, words)
    sentences = [["the", "dog", "日本語"], [], ["cat", "<UNK>", "</S>", "the", "the"]]
    with on(path, bilm):
        layers, _ = bilm(ids_of(bilm, sentences, Vocabulary(words)))
    expected = [reference.layers(sentence, keep_boundaries=True)[0] for sentence in sentences]
    assert largest_difference(layers, expected) < TOLERANCE[torch.float32]


def test_the_kernel_runs_where_no_gradient_is_needed_and_only_there(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    bilm, calls = read("two layers"), []
    kernel = lstm_module.lstm_inference
    monkeypatch.setattr(lstm_module, "lstm_inference", lambda *given: calls.append(1) or kernel(*given))
    ids = ids_of(bilm, [["a", "cat"]])
    for trainable, grad, expected in ((True, True, 0), (True, False, 2), (False, True, 2), (False, False, 2)):
        calls.clear()
        bilm.requires_grad_(trainable)
        with torch.set_grad_enabled(grad):
            bilm(ids)
        assert len(calls) == expected
    calls.clear()
    bilm.requires_grad_(False)
    bilm.lstms[0].bias.requires_grad_(True)  # one parameter is enough, and the layer above needs its gradient too
    bilm(ids)
    assert not calls


# Batch and state


@pytest.mark.parametrize("path", PATHS)
def test_a_sentence_does_not_depend_on_the_others_of_its_batch(read: Read, path: str) -> None:
    bilm = read("skip").double()
    sentences = [*random_sentences(np.random.default_rng(5), 7), ["cat"] * 30]
    with on(path, bilm):
        together, state = bilm(ids_of(bilm, sentences))
        for row, sentence in enumerate(sentences):
            alone, after = bilm(ids_of(bilm, [sentence]))
            n = len(sentence) + 2
            torch.testing.assert_close(together.activations[:, row, :n], alone.activations[:, 0], rtol=0, atol=1e-12)
            torch.testing.assert_close(state.h[:, :, row], after.h[:, :, 0], rtol=0, atol=1e-12)
            torch.testing.assert_close(state.c[:, :, row], after.c[:, :, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_two_sentences_with_the_state_carried_are_one_sentence(read: Read, path: str) -> None:
    """Forward, the text is the first then the second; backward, which reads from the end, the second then the first."""
    bilm = read("skip").double()
    dim = bilm.config.lstm.projection_dim
    first, second = ["the", "cat", "sat"], ["on", "a", "日本語", "mat", "."]
    with on(path, bilm):
        a, between = bilm(ids_of(bilm, [first]))
        b, after = bilm(ids_of(bilm, [second]), between)
        forward, end_forward = bilm(ids_of(bilm, [[*first, "</S>", "<S>", *second]]))
        backward, end_backward = bilm(ids_of(bilm, [[*second, "</S>", "<S>", *first]]))
    in_order = torch.cat([a.activations, b.activations], dim=2)
    reversed_order = torch.cat([b.activations, a.activations], dim=2)
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(in_order[..., :dim], forward.activations[..., :dim], **close)
    torch.testing.assert_close(reversed_order[..., dim:], backward.activations[..., dim:], **close)
    for part in ("h", "c"):
        torch.testing.assert_close(getattr(after, part)[:, 0], getattr(end_forward, part)[:, 0], **close)
        torch.testing.assert_close(getattr(after, part)[:, 1], getattr(end_backward, part)[:, 1], **close)
    fresh, _ = bilm(ids_of(bilm, [second]))
    assert (fresh.activations - b.activations).abs()[1:].amax(dim=(1, 2, 3)).min() > 1e-3  # in every LSTM layer
    torch.testing.assert_close(fresh.activations[0], b.activations[0], **close)


@pytest.mark.parametrize("path", PATHS)
def test_a_state_that_is_passed_in_is_not_changed(read: Read, path: str) -> None:
    bilm = read("two layers")
    state = State(*(torch.randn_like(part) for part in bilm.zero_state(2)))
    before = State(*(part.clone() for part in state))
    with on(path, bilm):
        bilm(ids_of(bilm, [["a"], ["cat", "sat"]]), state)
    assert torch.equal(state.h, before.h)
    assert torch.equal(state.c, before.c)


def test_shapes_of_the_state() -> None:
    bilm = BiLM(BiLMConfig(LSTMConfig(9, 4, n_layers=3), CharCNNConfig(filters=((1, 2),))))
    state = bilm.zero_state(5)
    assert state.h.shape == (3, 2, 5, 4)
    assert state.c.shape == (3, 2, 5, 9)
    assert not state.h.any()
    assert not state.c.any()


def test_a_gradient_reaches_every_parameter_but_that_of_no_token(read: Read) -> None:
    bilm = read("skip").requires_grad_(True)
    layers, _ = bilm(ids_of(bilm, random_sentences(np.random.default_rng(6), 6)))
    layers.activations.square().sum().backward()
    assert [name for name, parameter in bilm.named_parameters() if not parameter.grad.any()] == []
    assert not bilm.token_encoder.embedding.grad[0].any()


def test_an_empty_batch_has_empty_layers(read: Read) -> None:
    bilm = read("two layers")
    layers, state = bilm(ids_of(bilm, []))
    assert layers.activations.shape == (3, 0, 2, bilm.config.output_dim)
    assert layers.mask.shape == (0, 2)
    assert state.h.shape[2] == state.c.shape[2] == 0


# Layers


def test_mask_and_zeros_at_padding(read: Read) -> None:
    bilm = read("two layers")
    with torch.no_grad():
        layers, _ = bilm(ids_of(bilm, [["a", "cat"], [], ["sat"]]))
    assert layers.mask.tolist() == [[True] * 4, [True, True, False, False], [True, True, True, False]]
    norms = layers.activations.abs().sum(dim=3)  # (L+1, B, T)
    assert torch.equal(norms > 0, layers.mask.expand(3, -1, -1))


def test_without_boundaries_is_the_reference_s(read: Read) -> None:
    reference, bilm = reference_of("skip"), read("skip")
    sentences = random_sentences(np.random.default_rng(7), 5)
    with torch.no_grad():
        layers = bilm(ids_of(bilm, sentences))[0].without_boundaries()
    expected = [reference.layers(sentence)[0] for sentence in sentences if sentence]
    kept = [row for row, sentence in enumerate(sentences) if sentence]
    assert largest_difference(Layers(layers.activations[:, kept], layers.mask[kept]), expected) < 1e-5


# What is refused


def test_characters_and_words_at_once_or_neither() -> None:
    message = r"reads characters \(char_cnn\), words \(n_words\) or both \(many_langs\): give one"
    with pytest.raises(ConfigError, match=message):
        BiLMConfig(n_words=5)
    with pytest.raises(ConfigError, match=message):
        BiLMConfig(char_cnn=None)


def test_a_preset_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no preset 'large'; expected one of tiny, small, medium, original"):
        BiLMConfig.preset("large")


def test_what_a_config_says_of_the_model(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path, "three layers")
    with torch.no_grad():
        layers, _ = bilm(ids_of(bilm, [["a"]]))
    assert layers.activations.shape == (bilm.config.n_layers, 1, 3, bilm.config.output_dim)
    assert bilm.config.n_layers == 4
