"""The English model that comes with the package: whole, exact, small, and English."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import elmo
from elmo.model.bilm import BiLMConfig
from elmo.packaged import DEFAULT, FOLDER
from elmo.pretrain.corpus_source import open_or_prepare
from elmo.pretrain.evaluate import perplexity
from elmo.weights import bilm_tf, folder, sif, source
from elmo.weights.folder import Pretrained
from embedders import assert_close, read_arrays
from embedders import elmo as command
from models import datasets
from numpy_reference import Reference
from reference_files import needs_shared, unpacked

ENGLISH = FOLDER / DEFAULT
SENTENCE = ["The", "bank", "raised", "its", "interest", "rates", ",", "said", "Dr.", "Müller", "."]


@pytest.fixture(scope="module")
def model() -> elmo.Embedder:
    return elmo.load(softmax=True)


def test_its_files() -> None:
    sizes = {path.name: path.stat().st_size for path in ENGLISH.iterdir()}
    of_the_model = {folder.CONFIG, folder.WEIGHTS, folder.VOCABULARY, folder.WARM_STATE}
    assert set(sizes) == {"README.md", *of_the_model, sif.STATISTICS, sif.WORDS}
    assert sizes[sif.STATISTICS] + sizes[sif.WORDS] < 300_000
    assert sum(sizes.values()) <= 48e6
    with safe_open(ENGLISH / folder.WEIGHTS, framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


def test_it_is_the_published_small_architecture(model: elmo.Embedder) -> None:
    small = BiLMConfig.preset("small")
    assert (model.config.lstm, model.config.char_cnn) == (small.lstm, small.char_cnn)
    assert model.bilm.n_parameters() == 13_593_296  # as of the published small model
    assert model.vocabulary is not None
    assert len(model.vocabulary) == model.config.n_softmax == 65_000


def test_its_vectors_are_those_of_the_numpy_reference(model: elmo.Embedder, tmp_path: Path) -> None:
    bilm_tf.write(model.bilm, tmp_path / "options.json", tmp_path / "weights.hdf5")
    options = json.loads((tmp_path / "options.json").read_text())
    expected = Reference(options, datasets(tmp_path / "weights.hdf5")).layers(SENTENCE)[0]
    (found,) = model.embed([SENTENCE])
    assert_close(found, expected)


def test_the_stored_warm_state_is_that_of_its_weights(model: elmo.Embedder) -> None:
    read = source.read(DEFAULT)
    assert read.warm_state is not None
    computed = elmo.Embedder(Pretrained(read.bilm)).warm_state()
    for stored, ours in zip(read.warm_state, computed, strict=True):
        assert torch.allclose(stored, ours, atol=2e-3)  # stored by the model before it was rounded to float16


def test_embed_needs_no_name(tmp_path: Path) -> None:
    (tmp_path / "sentences.txt").write_text(" ".join(SENTENCE) + "\n", encoding="utf-8")
    assert command("embed", tmp_path / "sentences.txt", tmp_path / "vectors.hdf5", "--tokenized").code == 0
    (array,), _ = read_arrays(tmp_path / "vectors.hdf5")
    (expected,) = elmo.load().embed([SENTENCE])
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("The dogs are barking .", "The dogs is barking ."),
        ("She has written a letter .", "She has wrote a letter ."),
        ("They live in a small house .", "They live in an small house ."),
        ("He went to the station by train .", "He went station the to train by ."),
        ("The capital of France is Paris .", "The capital of France is spoon ."),
        ("I do not know what to do .", "I do not know what to the ."),
    ],
)
def test_it_prefers_english(model: elmo.Embedder, good: str, bad: str) -> None:
    assert model.score(good.split()).perplexity < model.score(bad.split()).perplexity


def test_its_layers_tell_senses_apart(model: elmo.Embedder) -> None:
    sentences = [
        "They walked along the bank of the river .",
        "The boat lay on the muddy bank of the lake .",
        "The bank raised its interest rates .",
        "He borrowed the money from a bank in London .",
    ]
    vectors = [
        array[:, sentence.split().index("bank")]
        for sentence, array in zip(sentences, model.embed(s.split() for s in sentences), strict=True)
    ]

    def cosine(a: int, b: int, layer: int) -> float:
        x, y = vectors[a][layer], vectors[b][layer]
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    assert cosine(0, 2, layer=0) == pytest.approx(1.0)
    for layer in (1, 2):
        across = [cosine(a, b, layer) for a in (0, 1) for b in (2, 3)]
        assert min(cosine(0, 1, layer), cosine(2, 3, layer)) > max(across)


@needs_shared
def test_its_perplexity_is_what_it_was(tmp_path: Path) -> None:
    """Full softmax, state carried, the first 20,000 tokens of text it never saw: as on the day it was packaged."""
    text = open_or_prepare(unpacked("english-heldout", tmp_path) / "test.txt", tmp_path)
    read = source.read(DEFAULT, softmax=True)
    assert read.vocabulary is not None
    found = perplexity(read.bilm, read.vocabulary, text, text.train, tokens=20_000)
    assert found.tokens == 19_307
    assert math.isclose(found.forward, 63.193, rel_tol=1e-3)
    assert math.isclose(found.backward or 0.0, 62.706, rel_tol=1e-3)


def test_its_sif_vectors_know_what_is_similar(model: elmo.Embedder) -> None:
    said, similar, other = model.encode(
        [
            "A man is playing a guitar on the stage.",
            "Someone on a stage plays the guitar.",
            "The parliament passed a new law on taxes.",
        ],
        pooling="sif",
        normalize=True,
    )
    assert said @ similar > 0.5 > 0.2 > said @ other
