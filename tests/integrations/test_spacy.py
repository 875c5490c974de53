"""ELMo in spaCy itself: the component, the architecture with its gradient, training through listeners, files."""

import ast
import importlib.metadata
import pickle
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo.errors import ConfigError, WeightsError
from elmo.model.layers import Layers
from elmo.model.scalar_mix import ScalarMix
from elmo.weights import folder as model_folder
from embedders import DIM, N_LAYERS, REFERENCE, assert_close, embedder, fresh, pretrained, warm_reference, write_model

pytest.importorskip("spacy", reason="needs spaCy: pip install 'elmo-torch[spacy]'")

import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model_from_config, registry
from thinc.api import Config, set_dropout_rate

from elmo.integrations import spacy as adapter
from elmo.integrations.loaded import loaded
from elmo.integrations.spacy import add_hooks

ROOT = Path(__file__).parents[2]
VOCAB = spacy.blank("en").vocab
WORDS = ["The", "cat", "\n\n", "sat", ".", "naïve", "日本語"]
REAL = [0, 1, 3, 4, 5, 6]  # without white space

CONFIG = """
[nlp]
lang = "en"
pipeline = ["tok2vec","tagger","morphologizer"]

[components]

[components.tok2vec]
factory = "tok2vec"

[components.tok2vec.model]
@architectures = "elmo.Tok2Vec.v1"
model = "{model}"

[components.tagger]
factory = "tagger"

[components.tagger.model]
@architectures = "spacy.Tagger.v2"

[components.tagger.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = 10

[components.morphologizer]
factory = "morphologizer"

[components.morphologizer.model]
@architectures = "spacy.Tagger.v2"

[components.morphologizer.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = 10
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("spacy") / "model")


def pipeline(folder: Path, **settings: Any) -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": str(folder), **settings})
    return nlp


def doc(words: list[str] = WORDS, starts: list[bool] | None = None) -> Doc:
    return Doc(VOCAB, words=words, sent_starts=starts)


def layers_of_words() -> Any:
    """The reference's layers of `WORDS`, zeros for white space."""
    expected = np.zeros((N_LAYERS, len(WORDS), DIM))
    expected[:, REAL] = fresh([WORDS[place] for place in REAL])
    return expected


# The component


@pytest.mark.parametrize(
    ("layers", "weights"),
    [("average", [1 / 3] * 3), ("top", [0, 0, 1]), (1, [0, 1, 0]), ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25])],
)
def test_the_tensor_is_the_references_and_zero_for_white_space(folder: Path, layers: Any, weights: Any) -> None:
    component = pipeline(folder, layers=layers).get_pipe("elmo")
    found = component(doc()).tensor
    assert found.dtype == np.float32
    assert_close(found, np.tensordot(weights, layers_of_words(), axes=1))


def test_sentences_are_read_alone(folder: Path) -> None:
    component = pipeline(folder, layers="top").get_pipe("elmo")
    found = component(doc(starts=[True, False, False, False, False, True, False])).tensor
    assert_close(found[[0, 1, 3, 4]], fresh(["The", "cat", "sat", "."])[-1])
    assert_close(found[5:], fresh(["naïve", "日本語"])[-1])
    assert not found[2].any()


def test_the_warm_state(folder: Path) -> None:
    found = pipeline(folder, layers="top", state="warm").get_pipe("elmo")(doc(["The", "cat"])).tensor
    assert_close(found, REFERENCE.layers(["The", "cat"], warm_reference())[0][-1])


def test_vectors_and_similarity(folder: Path) -> None:
    nlp = pipeline(folder)
    one, two, space, empty = nlp.pipe(["The  cat sat on the mat", "naïve 日本語", "  \n", ""])
    vectors = layers = np.mean(fresh(["The", "cat", "sat", "on", "the", "mat"]), axis=0)
    assert_close(one.vector, vectors.mean(axis=0))
    assert_close(one.vector, embedder().encode([["The", "cat", "sat", "on", "the", "mat"]])[0])
    assert_close(one[0:3].vector, layers[:2].mean(axis=0))  # the second token is a space
    assert_close(one[2].vector, layers[1])
    assert one.vector_norm == pytest.approx(np.linalg.norm(vectors.mean(axis=0)), abs=1e-5)
    other = np.mean(fresh(["naïve", "日本語"]), axis=0).mean(axis=0)
    cosine = layers[1] @ other / np.linalg.norm(layers[1]) / np.linalg.norm(other)
    assert one[2].similarity(two) == pytest.approx(cosine, abs=1e-5)
    assert two.similarity(one[2]) == pytest.approx(cosine, abs=1e-5)
    assert two[0:2].similarity(one[2:3]) == pytest.approx(cosine, abs=1e-5)
    assert [each.has_vector for each in (one, one[1], one[2], space, empty)] == [True, False, True, False, False]
    assert not space.vector.any()
    assert (empty.tensor.shape, empty.vector.shape, empty.similarity(one)) == ((0, DIM), (DIM,), 0.0)


@pytest.mark.filterwarnings("ignore:.W109")  # hooks are no part of a Doc's bytes
def test_two_processes_after_use(folder: Path) -> None:
    nlp = pipeline(folder)
    texts = ["The cat sat", "on the mat", "", "naïve"] * 3
    expected = [each.tensor for each in nlp.pipe(texts)]
    found = list(nlp.pipe(texts, n_process=2, batch_size=3))
    for each, tensor in zip(found, expected, strict=True):
        assert_close(each.tensor, tensor)
    assert_close(add_hooks(found[0]).vector, expected[0].mean(axis=0))


def test_a_pipeline_on_disk_has_the_name_of_the_model(folder: Path, tmp_path: Path) -> None:
    nlp = pipeline(folder, layers="top")
    nlp.to_disk(tmp_path / "saved")
    assert sum(file.stat().st_size for file in (tmp_path / "saved" / "elmo").iterdir()) < 100
    for again in (spacy.load(tmp_path / "saved"), pipeline(folder, layers="top").from_bytes(nlp.to_bytes())):
        assert_close(again("The cat").tensor, fresh(["The", "cat"])[-1])


def test_another_model_under_the_same_name_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    plain = pipeline(model)
    plain.to_disk(tmp_path / "plain")
    trained(model).to_disk(tmp_path / "trained")
    shutil.rmtree(model)
    other = pretrained()
    with torch.no_grad():
        other.bilm.weight.add_(0.1)
    model_folder.write(other, model)
    loaded.cache_clear()
    message = r"model '.*model' is not the one that the pipeline was saved with: its fingerprint is \w{16}, expected"
    with pytest.raises(WeightsError, match=message):
        spacy.load(tmp_path / "plain")
    with pytest.raises(WeightsError, match=message):
        spacy.load(tmp_path / "trained")("The cat")
    loaded.cache_clear()


def test_what_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="layers is 'all', which gives several vectors per token"):
        pipeline(folder, layers="all")
    for make in (lambda: pipeline(folder, state="carried"), lambda: adapter.tok2vec(str(folder), state="carried")):
        with pytest.raises(ConfigError, match="state is 'carried'; every Doc is read alone: expected fresh or warm"):
            make()


# The architecture


def set_mix(model: Any, scalars: Any, gamma: float) -> None:
    model.set_param("scalars", np.array(scalars, dtype=np.float32))
    model.set_param("gamma", np.array([gamma], dtype=np.float32))


def test_the_mix_and_its_gradient_are_those_of_scalar_mix_in_pytorch(folder: Path) -> None:
    model = registry.architectures.get("elmo.Tok2Vec.v1")(model=str(folder))
    mix = model.layers[0]
    assert model.get_dim("nO") == DIM
    set_mix(mix, [0.5, -1.0, 1.0], 1.5)
    docs = [doc(), doc(["The", "cat"]), doc([])]
    found, backprop = model(docs, is_train=True)
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=each.shape).astype(np.float32) for each in found]
    backprop(gradients)

    theirs = ScalarMix(N_LAYERS, gamma=1.5)
    theirs.scalars.data = torch.tensor([0.5, -1.0, 1.0])  # type: ignore[union-attr]
    for layers, ours, gradient in zip([layers_of_words(), fresh(["The", "cat"])], found, gradients, strict=False):
        activations = torch.tensor(layers, dtype=torch.float32)[:, None]
        mixed = theirs(Layers(activations, torch.ones(activations.shape[1:3], dtype=torch.bool)))[0]
        assert_close(ours, mixed.detach().numpy())
        (mixed * torch.tensor(gradient)).sum().backward()  # adds to the gradient
    assert found[2].shape == (0, DIM)
    assert theirs.scalars is not None and theirs.scalars.grad is not None and theirs.gamma.grad is not None
    assert_close(mix.get_grad("scalars"), theirs.scalars.grad.numpy(), 1e-4)
    assert_close(mix.get_grad("gamma"), theirs.gamma.grad.reshape(1).numpy(), 1e-4)


def test_the_gradient_is_that_of_finite_differences(folder: Path) -> None:
    mix = adapter.tok2vec(str(folder)).layers[0]
    start = np.array([0.3, -0.2, 0.1, 0.9])  # the scalars, and γ
    weights = np.random.default_rng(1).normal(size=(len(WORDS), DIM)).astype(np.float32)

    def loss(values: Any) -> float:
        set_mix(mix, values[:3], values[3])
        return float((mix.predict([doc()])[0].astype(np.float64) * weights).sum())

    step = 1e-2
    differences = [(loss(start + step * one) - loss(start - step * one)) / (2 * step) for one in np.eye(4)]
    set_mix(mix, start[:3], start[3])
    mix(([doc()]), is_train=True)[1]([weights])
    assert_close(np.concatenate([mix.get_grad("scalars"), mix.get_grad("gamma")]), np.array(differences), 2e-3)


def test_the_dropout_of_spacy_is_applied_in_training_alone(folder: Path) -> None:
    model = adapter.tok2vec(str(folder))
    set_dropout_rate(model, 0.5)
    expected = model.predict([doc()])[0]
    assert_close(expected, layers_of_words().mean(axis=0))
    found = model([doc()], is_train=True)[0][0]
    kept = found != 0
    assert 0 < kept[REAL].sum() < kept[REAL].size
    assert_close(found[kept], 2 * expected[kept])


def trained(folder: Path) -> Language:
    """A tagger and a morphologizer, trained through their listeners."""
    spacy.util.fix_random_seed(0)
    nlp = load_model_from_config(Config().from_str(CONFIG.format(model=folder)), auto_fill=True)
    gold = [("The cat  sat", ["D", "N", "_SP", "V"]), ("a mat .", ["D", "N", "P"]), ("my cat lay", ["D", "N", "V"])]
    examples = [
        Example.from_dict(nlp.make_doc(text), {"tags": tags, "pos": ["SPACE" if tag == "_SP" else "X" for tag in tags]})
        for text, tags in gold
    ]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.05
    losses: list[float] = []
    for _ in range(100):
        found: dict[str, float] = {}
        nlp.update(examples, sgd=optimizer, losses=found)
        losses.append(found["tagger"])
    assert losses[-1] < 0.5 * losses[0]
    return nlp


def test_components_train_the_mix_through_listeners(folder: Path, tmp_path: Path) -> None:
    nlp = trained(folder)
    mix = nlp.get_pipe("tok2vec").model.layers[0]
    assert np.abs(mix.get_param("scalars")).min() > 0.01
    assert abs(mix.get_param("gamma")[0] - 1) > 0.01
    texts = ["The cat  sat", "my mat .", "", " "]
    expected = list(nlp.pipe(texts))
    assert [token.tag_ for token in expected[0]] == ["D", "N", "_SP", "V"]

    nlp.to_disk(tmp_path / "saved")
    assert sum(file.stat().st_size for file in (tmp_path / "saved" / "tok2vec").iterdir()) < 2000
    again = spacy.load(tmp_path / "saved")
    for other in (again, pickle.loads(pickle.dumps(again))):
        for one, two in zip(other.pipe(texts), expected, strict=True):
            assert_close(one.tensor, two.tensor)
            assert [token.tag_ for token in one] == [token.tag_ for token in two]
    for one, two in zip(again.pipe(texts, n_process=2), expected, strict=True):
        assert [token.tag_ for token in one] == [token.tag_ for token in two]


# How spaCy finds it


def test_the_entry_points_name_what_is_registered() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    found = {
        (group, name): importlib.metadata.EntryPoint(name, value, group).load()
        for group in ("spacy_architectures", "spacy_factories")
        for name, value in groups[group].items()
    }
    assert found == {
        ("spacy_architectures", "elmo.Tok2Vec.v1"): adapter.tok2vec,
        ("spacy_factories", "elmo"): adapter.make_elmo,
    }
    assert spacy.blank("en").has_factory("elmo")
    assert Language.get_factory_meta("elmo").assigns == ["doc.tensor"]


def test_pipelines_without_elmo_do_not_load_it() -> None:
    # spaCy imports the file for its factory whenever a pipeline is made.
    tree = ast.parse(Path(adapter.__file__).read_text(encoding="utf-8"))
    names = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {name for name in names if name and name.startswith("elmo")} == {"elmo.errors", "elmo.packaged"}
