"""The module a task holds: its mixes, what is trained, and what it leaves out."""

from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM
from elmo.model.elmo import Elmo
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from elmo.weights.folder import Pretrained
from models import ids_of, published, small, write_datasets, write_published
from numpy_reference import Reference, l2, layer_norm_whole_batch, scalar_mix

SENTENCES = [["the", "naïve", "cat"], [], ["日本語", "x", "the", "mat", "."]]


@pytest.fixture
def model(tmp_path: Path) -> tuple[BiLM, Reference]:
    return small(tmp_path, "skip")


def layers_of(reference: Reference, keep_boundaries: bool = False) -> list[np.ndarray]:
    return [reference.layers(sentence, keep_boundaries=keep_boundaries)[0] for sentence in SENTENCES]


def test_every_mix_has_its_own_weights(model: tuple[BiLM, Reference]) -> None:
    bilm, reference = model
    elmo = Elmo(bilm, 3, dropout=0.0)
    scalars, gammas = np.random.default_rng(0).standard_normal((3, 4)), [1.0, 0.5, -2.0]
    with torch.no_grad():
        for mix, s, gamma in zip(elmo.mixes, scalars, gammas, strict=True):
            mix.scalars.copy_(torch.from_numpy(s))
            mix.gamma.fill_(gamma)
    output = elmo(ids_of(bilm, SENTENCES))
    assert len(output.representations) == 3
    assert output.mask.tolist() == [[True] * 3 + [False] * 2, [False] * 5, [True] * 5]
    for representation, s, gamma in zip(output.representations, scalars, gammas, strict=True):
        assert representation.shape == (3, 5, bilm.config.output_dim)
        for row, layers in enumerate(layers_of(reference)):
            n = layers.shape[1]
            np.testing.assert_allclose(representation[row, :n].detach(), scalar_mix(layers, s, gamma), atol=1e-5)
            assert not representation[row, n:].any()


def test_boundaries_are_left_in_where_asked_for(model: tuple[BiLM, Reference]) -> None:
    bilm, reference = model
    elmo = Elmo(bilm, dropout=0.0, keep_boundaries=True)
    (representation,), mask = elmo(ids_of(bilm, SENTENCES))
    assert mask.sum(dim=1).tolist() == [5, 2, 7]
    for row, layers in enumerate(layers_of(reference, keep_boundaries=True)):
        n = layers.shape[1]
        np.testing.assert_allclose(representation[row, :n].detach(), layers.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize(("mix", "layer"), [("last", 3), ("layer:0", 0), ("layer:1", 1)])
def test_one_layer_alone(model: tuple[BiLM, Reference], mix: str, layer: int) -> None:
    bilm, reference = model
    (representation,), _ = Elmo(bilm, mix=mix, dropout=0.0, gamma=2.0)(ids_of(bilm, SENTENCES))
    np.testing.assert_allclose(representation[2].detach(), 2.0 * layers_of(reference)[2][layer], atol=1e-5)


def test_bilm_tf_s_layer_norm_leaves_the_boundaries_out(model: tuple[BiLM, Reference]) -> None:
    bilm, reference = model
    (representation,), mask = Elmo(bilm, dropout=0.0, layer_norm="bilm-tf")(ids_of(bilm, SENTENCES))
    padded = np.zeros((4, 3, 5, bilm.config.output_dim))
    for row, layers in enumerate(layers_of(reference)):
        padded[:, row, : layers.shape[1]] = layers
    normal = np.stack([layer_norm_whole_batch(layer, mask.numpy()) for layer in padded])
    expected = scalar_mix(normal, [0] * 4)
    np.testing.assert_allclose(representation.detach()[mask], expected[mask.numpy()], atol=2e-5)


def test_every_sentence_starts_from_zero(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    elmo = Elmo(bilm, dropout=0.0)
    ids = ids_of(bilm, SENTENCES)
    first, second = elmo(ids), elmo(ids)
    assert torch.equal(first.representations[0], second.representations[0])


# What is trained


def test_a_frozen_bilm_has_no_gradients_and_its_mixes_do(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    bilm.requires_grad_(True)
    elmo = Elmo(bilm, 2, projection_dim=3)
    assert not any(parameter.requires_grad for parameter in bilm.parameters())
    output = elmo(ids_of(bilm, SENTENCES))
    sum(representation.square().sum() for representation in output.representations).backward()
    assert all(parameter.grad is None for parameter in bilm.parameters())
    trained = {name: parameter for name, parameter in elmo.named_parameters() if not name.startswith("bilm.")}
    assert sorted(trained) == sorted(
        [f"mixes.{k}.{name}" for k in range(2) for name in ("gamma", "scalars")]
        + ["projection.weight", "projection.bias"]
    )
    assert [name for name, parameter in trained.items() if not parameter.grad.any()] == []


def test_a_trainable_bilm_has_gradients_down_to_the_characters(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    elmo = Elmo(bilm, dropout=0.0, trainable=True)
    elmo(ids_of(bilm, SENTENCES)).representations[0].square().sum().backward()
    assert [name for name, parameter in bilm.named_parameters() if parameter.grad is None] == []
    used = set(bilm.token_encoder.embedding.grad.any(dim=1).nonzero()[:, 0].tolist())
    in_the_text = {byte + 1 for sentence in SENTENCES for word in sentence for byte in word.encode()}
    assert used <= in_the_text | {257, 258, 259, 260, 261}  # the boundaries are read, and the text around them
    assert len(used & in_the_text) > 5


@pytest.mark.parametrize("order", ["trainable first", "frozen first"])
def test_frozen_and_trainable_ones_share_a_bilm_and_each_does_as_it_was_asked(
    model: tuple[BiLM, Reference], order: str
) -> None:
    bilm, _ = model
    made = {trainable: Elmo(bilm, dropout=0.0, trainable=trainable) for trainable in (True, False)[:: _step(order)]}
    Embedder(Pretrained(bilm))  # nor does this one freeze it
    ids = ids_of(bilm, SENTENCES)
    made[False](ids).representations[0].square().sum().backward()
    assert all(parameter.grad is None for parameter in bilm.parameters())
    made[True](ids).representations[0].square().sum().backward()
    assert [name for name, parameter in bilm.named_parameters() if parameter.grad is None] == []


def _step(order: str) -> int:
    return 1 if order == "trainable first" else -1


def test_parameters_that_a_user_freezes_stay_frozen(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    elmo = Elmo(bilm, trainable=True)
    bilm.token_encoder.requires_grad_(False)
    elmo(ids_of(bilm, SENTENCES)).representations[0].square().sum().backward()
    assert all(parameter.grad is None for parameter in bilm.token_encoder.parameters())
    assert all(parameter.grad is not None for parameter in bilm.lstms.parameters())


@pytest.mark.parametrize("trainable", [False, True])
def test_an_embedder_is_taken_for_its_bilm(model: tuple[BiLM, Reference], trainable: bool) -> None:
    bilm, reference = model
    elmo = Elmo(Embedder(Pretrained(bilm)), dropout=0.0, trainable=trainable)
    assert elmo.bilm is bilm
    representation = elmo(ids_of(bilm, SENTENCES)).representations[0]
    np.testing.assert_allclose(representation[2].detach(), layers_of(reference)[2].mean(axis=0), atol=1e-5)
    representation.sum().backward()
    assert any(parameter.grad is not None for parameter in bilm.parameters()) == trainable


@pytest.mark.parametrize(
    ("given", "found"), [("english", "str"), (torch.nn.Linear(2, 2), "Linear"), (None, "NoneType")]
)
def test_what_has_no_bilm_is_refused(given: object, found: str) -> None:
    message = rf"^Elmo\(\) was given a {found}; expected a BiLM, or the Embedder that elmo.load\(\) returns$"
    with pytest.raises(ConfigError, match=message):
        Elmo(given)


def test_weights_made_in_inference_mode_are_not_trained(tmp_path: Path) -> None:
    with torch.inference_mode():
        bilm, _ = small(tmp_path, "skip")
    with pytest.raises(ConfigError, match=r"^the biLM was loaded inside torch\.inference_mode\(\), where nothing can"):
        Elmo(bilm, trainable=True)


def test_frozen_and_trainable_give_the_same(tmp_path: Path) -> None:
    (frozen, _), (trainable, _) = small(tmp_path / "a", "both clips"), small(tmp_path / "b", "both clips")
    ids = ids_of(frozen, SENTENCES)
    ours = Elmo(frozen, dropout=0.0)(ids).representations[0]
    theirs = Elmo(trainable, dropout=0.0, trainable=True)(ids).representations[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_a_trainable_bilm_without_gradients_makes_none(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    with torch.no_grad():
        assert not Elmo(bilm, trainable=True)(ids_of(bilm, SENTENCES)).representations[0].requires_grad


def test_an_optimiser_lowers_a_loss_and_leaves_a_frozen_bilm_alone(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    before = {name: tensor.clone() for name, tensor in bilm.state_dict().items()}
    elmo = Elmo(bilm, dropout=0.0)
    ids = ids_of(bilm, SENTENCES)
    with torch.no_grad():
        target = bilm(ids)[0].without_boundaries().activations[1] * 3.0  # one layer, times a gamma
    optimizer = torch.optim.Adam([p for p in elmo.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(120):
        loss = (elmo(ids).representations[0] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    assert elmo.mixes[0].weights.argmax() == 1
    assert all(torch.equal(before[name], tensor) for name, tensor in bilm.state_dict().items())


# Dropout, projection, start


def test_dropout_only_in_training(model: tuple[BiLM, Reference]) -> None:
    bilm, _ = model
    elmo = Elmo(bilm, dropout=0.5)
    ids = ids_of(bilm, [["cat"] * 200])
    expected = Elmo(bilm, dropout=0.0)(ids).representations[0]
    elmo.eval()
    assert torch.equal(elmo(ids).representations[0], expected)
    elmo.train()
    dropped = elmo(ids).representations[0]
    gone = (dropped == 0) & (expected != 0)
    assert 0.4 < gone.float().mean() < 0.6
    torch.testing.assert_close(dropped[~gone], 2.0 * expected[~gone])


def test_the_projection_is_shared_by_the_mixes(model: tuple[BiLM, Reference]) -> None:
    bilm, reference = model
    elmo = Elmo(bilm, 2, dropout=0.0, projection_dim=7)
    first, second = elmo(ids_of(bilm, SENTENCES)).representations
    assert first.shape == (3, 5, 7)
    weight, bias = (parameter.detach().numpy() for parameter in elmo.projection.parameters())
    expected = layers_of(reference)[2].mean(axis=0) @ weight.T + bias
    np.testing.assert_allclose(first[2].detach(), expected, atol=1e-5)
    assert torch.equal(first, second)


def test_mixes_start_at_the_shares_given(model: tuple[BiLM, Reference]) -> None:
    bilm, reference = model
    shares = [0.1, 0.2, 0.3, 0.4]
    elmo = Elmo(bilm, 2, dropout=0.0, weights=shares, gamma=1.5)
    expected = 1.5 * np.einsum("l,ltd->td", shares, layers_of(reference)[2])
    for representation in elmo(ids_of(bilm, SENTENCES)).representations:
        np.testing.assert_allclose(representation[2].detach(), expected, atol=1e-5)


def test_the_penalty_is_that_of_all_mixes(model: tuple[BiLM, Reference]) -> None:
    elmo = Elmo(model[0], 2, l2=0.5)
    with torch.no_grad():
        elmo.mixes[0].scalars.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        elmo.mixes[1].scalars.copy_(torch.tensor([0.0, -1.0, 0.0, 2.0]))
    assert elmo.penalty().item() == pytest.approx(l2([1, 2, 3, 4], 0.5) + l2([0, -1, 0, 2], 0.5))


def test_words_that_enter_by_their_row(tmp_path: Path) -> None:
    options, weights = published("skip")
    words = ["<S>", "</S>", "<UNK>", "the", "cat"]
    table = np.random.default_rng(1).standard_normal((5, options["lstm"]["projection_dim"])).astype(np.float32)
    embedding = write_datasets(tmp_path / "table.hdf5", {"embedding": table})
    bilm = bilm_tf.read(*write_published(tmp_path, options, weights), embedding)
    ids = torch.from_numpy(Vocabulary(words).ids(["<S>", "the", "dog", "</S>"]))[None]
    (representation,), mask = Elmo(bilm, dropout=0.0)(ids)
    expected = Reference(options, weights | {"embedding": table}, words).layers(["the", "dog"])[0].mean(axis=0)
    np.testing.assert_allclose(representation[0].detach(), expected, atol=1e-5)
    assert mask.tolist() == [[True, True]]


def test_the_shares_are_printed(model: tuple[BiLM, Reference]) -> None:
    printed = repr(Elmo(model[0], 2, weights=[0.1, 0.2, 0.3, 0.4], gamma=0.5, projection_dim=7))
    assert "2 x ScalarMix(learned: [0.100, 0.200, 0.300, 0.400] × 0.500, dropout 0.5)" in printed
    assert "out_features=7" in printed
