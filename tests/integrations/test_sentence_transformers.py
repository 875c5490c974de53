"""ELMo in sentence-transformers itself: the vectors of `encode`, a loss of theirs, files, and plain model folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.errors import ConfigError
from elmo.text.tokens import words
from embedders import DIM, assert_close, embedder, fresh, write_model
from many_langs_reference import folder_of

pytest.importorskip(
    "sentence_transformers", reason="needs sentence-transformers: pip install 'elmo-torch[sentence-transformers]'"
)

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, CosineSimilarityLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from elmo.integrations.sentence_transformers import ElmoSentences

TEXTS = ["The cat sat on the mat.", "", "naïve 日本語", "an unquestionably-overlong-word isn't cut elsewhere"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("sentences") / "model")


def sentences(folder: Path, *more: Any, **settings: Any) -> SentenceTransformer:
    return SentenceTransformer(modules=[ElmoSentences(folder, **settings), *more], device="cpu")


@pytest.mark.parametrize("pooling", ["mean", "max", "first-last"])
@pytest.mark.parametrize(("mix", "layers"), [("average", "average"), ("last", "top"), ("layer:1", 1)])
def test_vectors_are_those_of_encode(folder: Path, pooling: str, mix: str, layers: Any) -> None:
    model = sentences(folder, mix=mix, pooling=pooling)
    found = model.encode(TEXTS, batch_size=3)
    assert found.dtype == np.float32
    assert_close(found, embedder().encode(TEXTS, pooling, layers), 1e-6)
    assert not model.encode([""]).any()
    assert model.get_embedding_dimension() == DIM


def test_vectors_are_the_references(folder: Path) -> None:
    weights = [0.5, 0.2, 0.3]
    found = sentences(folder, mix="learned", weights=weights, gamma=2.0).encode(TEXTS[0])
    assert_close(found, 2 * np.tensordot(weights, fresh(words(TEXTS[0])), axes=1).mean(axis=0))


def test_a_model_of_words_and_characters(tmp_path: Path) -> None:
    place = folder_of(tmp_path / "many")
    model = sentences(place)
    expected = elmo.load(place, device="cpu").encode(TEXTS)
    assert_close(model.encode(TEXTS), expected, 1e-6)
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert_close(again.encode(TEXTS), expected, 1e-6)


def test_tokens_and_their_own_modules(folder: Path) -> None:
    model = sentences(folder, mix="last")
    for vectors, text in zip(model.encode(TEXTS[:1], output_value="token_embeddings"), TEXTS, strict=False):
        assert_close(vectors.numpy(), fresh(words(text))[-1])
    pooled = sentences(folder, Pooling(DIM, "mean"), mix="last").encode(TEXTS)
    assert_close(pooled, model.encode(TEXTS), 1e-6)
    lengths = np.linalg.norm(model.encode(TEXTS, normalize_embeddings=True), axis=1)
    assert_close(lengths, np.array([1.0, 0.0, 1.0, 1.0]))


def test_long_texts_and_prompts(folder: Path) -> None:
    model = sentences(folder)
    cat, the_cat = model.encode(["cat", "The cat"])
    assert_close(model.encode(["cat"], prompt="The ")[0], the_cat)
    model.max_seq_length = 1
    assert_close(model.encode(["cat sat on"])[0], cat)


@pytest.mark.parametrize("loss", [CosineSimilarityLoss, CachedMultipleNegativesRankingLoss])
def test_their_losses_train_the_mix_and_not_the_bilm(folder: Path, loss: Any) -> None:
    model = sentences(folder, mix="learned").train()
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert sorted(name.split("mixes.0.")[1] for name in trained) == ["gamma", "scalars"]
    features = [model.preprocess(["the cat", "a mat", "naïve"]), model.preprocess(["a cat", "the mat on", "x"])]
    labels = torch.tensor([1.0, 0.5, 0.0])
    objective = loss(model)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    before = [parameter.clone() for parameter in model[0].elmo.bilm.parameters()]
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        value = objective([dict(each) for each in features], labels)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < losses[0]
    assert model[0].elmo.mixes[0].scalars.abs().min() > 0.01
    assert all(torch.equal(*pair) for pair in zip(before, model[0].elmo.bilm.parameters(), strict=True))


def test_the_gradient_is_that_of_the_formula(folder: Path) -> None:
    model = sentences(folder, mix="learned", trainable=True)
    model(model.preprocess([TEXTS[0]]))["sentence_embedding"].sum().backward()
    mix = model[0].elmo.mixes[0]
    sums = fresh(words(TEXTS[0])).mean(axis=1).sum(axis=1)  # of each layer
    assert_close(mix.gamma.grad.numpy(), np.array(sums.mean()))
    assert_close(mix.scalars.grad.numpy(), (sums - sums.mean()) / 3)
    assert all(parameter.grad is not None for parameter in model[0].elmo.bilm.lstms.parameters())


def test_it_is_saved_with_its_mix_and_read_by_elmo_load(folder: Path, tmp_path: Path) -> None:
    model = sentences(folder, mix="learned", weights=[0.5, 0.2, 0.3], pooling="max", max_seq_length=5)
    with torch.no_grad():
        model[0].elmo.mixes[0].gamma.fill_(1.5)
    model.save(str(tmp_path / "saved"))
    settings = json.loads((tmp_path / "saved" / "elmo_sentences.json").read_text())
    assert (settings["mix"], settings["pooling"], settings["gamma"], settings["trainable"]) == (
        *("learned", "max", 1.5, False),
    )
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert_close(again.encode(TEXTS), model.encode(TEXTS), 1e-6)
    assert again.max_seq_length == 5
    again.save(str(tmp_path / "saved"))  # over the files that it was read from
    third = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert_close(third.encode(TEXTS), model.encode(TEXTS), 1e-6)
    assert_close(next(elmo.load(tmp_path / "saved", device="cpu").embed([TEXTS[0]])), fresh(words(TEXTS[0])))


def test_a_layer_that_training_has_turned_off(folder: Path, tmp_path: Path) -> None:
    model = sentences(folder, mix="learned")
    with torch.no_grad():
        model[0].elmo.mixes[0].scalars.copy_(torch.tensor([0.0, 0.0, -200.0]))
    assert model[0].elmo.mixes[0].weights[2] == 0
    model.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert_close(again.encode(TEXTS), embedder().encode(TEXTS, layers=[0.5, 0.5, 0]), 1e-6)


def test_a_model_folder_as_it_is(folder: Path) -> None:
    import elmo.integrations.transformers  # noqa: F401

    found = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    layers = embedder().layers(TEXTS, boundaries=True)
    expected = layers.activations[-1].sum(dim=1) / layers.mask.sum(dim=1)[:, None]
    assert_close(found, expected.numpy())


def test_settings_are_checked(folder: Path) -> None:
    with pytest.raises(ConfigError, match="pooling is 'cls'; expected one of mean, max, first-last"):
        ElmoSentences(folder, pooling="cls")
    with pytest.raises(ConfigError, match="mix is 'top'; expected learned, last, average or layer:0 to layer:2"):
        ElmoSentences(folder, mix="top")
