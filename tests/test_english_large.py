"""english-large, a distribution of its own: its files, and if its weights are here, what they are."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

import elmo
from elmo.model.bilm import BiLMConfig
from elmo.packaged import DEFAULT, FOLDER
from elmo.text.vocabulary import Vocabulary
from elmo.weights import folder, installed, sif, source
from elmo.weights.folder import Pretrained
from elmo.weights.tensor_files import stored_dtypes

NAME = "english-large"
DISTRIBUTION = Path(__file__).parents[1] / "models" / NAME
LARGE = DISTRIBUTION / "elmo_english_large"

needs_weights = pytest.mark.skipif(not (LARGE / folder.CONFIG).exists(), reason=f"the weights of {NAME} are not here")


def sections() -> dict[str, str]:
    """The parts of the card that commands fill in."""
    card = (LARGE / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end -->", card, re.DOTALL))


def test_the_distribution_is_the_one_that_the_error_names() -> None:
    project = tomllib.loads((DISTRIBUTION / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == installed.KNOWN[installed.MODELS, NAME]
    assert project["entry-points"] == {installed.MODELS: {NAME: LARGE.name}}
    card = (LARGE / "README.md").read_text(encoding="utf-8")
    assert f"\nlicense: {project['license'].lower()}\n" in card
    assert "CC BY-SA 4.0" in (DISTRIBUTION / "LICENSE").read_text(encoding="utf-8")


def test_the_card_has_its_sections() -> None:
    assert list(sections()) == ["training", "perplexity", "rounding", "layers", "tasks", "domains", "speed"]


@needs_weights
def test_no_section_of_the_card_is_empty() -> None:
    assert [name for name, text in sections().items() if not text.strip()] == []


@needs_weights
def test_its_files() -> None:
    sizes = {path.name: path.stat().st_size for path in LARGE.iterdir() if path.is_file()}
    shards = {name for name in sizes if re.fullmatch(r"model-\d{5}-of-\d{5}\.safetensors", name)}
    statistics = {folder.WARM_STATE, sif.STATISTICS, sif.WORDS}
    others = {"__init__.py", "README.md", folder.CONFIG, folder.VOCABULARY, f"{folder.WEIGHTS}.index.json"}
    assert set(sizes) == shards | others | statistics
    assert max(sizes.values()) <= 48_000_000
    assert sum(sizes.values()) <= 130_000_000
    assert stored_dtypes(LARGE / folder.WEIGHTS) == ["int8", "float32"]


@pytest.fixture(scope="module")
def model() -> elmo.Embedder:
    return elmo.load(LARGE, softmax=True, device="cpu")


@needs_weights
def test_it_is_the_published_original_architecture(model: elmo.Embedder) -> None:
    original = BiLMConfig.preset("original")
    assert (model.config.lstm, model.config.char_cnn) == (original.lstm, original.char_cnn)
    assert model.bilm.n_parameters() == 93_600_848  # as of the published original model
    assert model.vocabulary is not None
    assert model.vocabulary.words == Vocabulary.read(FOLDER / DEFAULT / folder.VOCABULARY).words


@needs_weights
def test_the_stored_warm_state_is_that_of_its_weights() -> None:
    read = source.read(LARGE)
    assert read.warm_state is not None
    computed = elmo.Embedder(Pretrained(read.bilm)).warm_state()
    for stored, ours in zip(read.warm_state, computed, strict=True):
        assert torch.allclose(stored, ours, atol=1e-4)


@needs_weights
def test_its_sif_vectors_know_what_is_similar(model: elmo.Embedder) -> None:
    first, second, third = model.encode(
        ["A man is playing a guitar on the stage.", "Someone on a stage plays the guitar.", "The law on taxes is new."],
        pooling="sif",
        normalize=True,
    )
    assert first @ second > 0.5 > 0.2 > first @ third


@needs_weights
@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("The dogs are barking .", "The dogs is barking ."),
        ("The keys to the cabinet are on the table .", "The keys to the cabinet is on the table ."),
        ("She has written a letter .", "She has wrote a letter ."),
        ("He went to the station by train .", "He went station the to train by ."),
        ("The capital of France is Paris .", "The capital of France is spoon ."),
    ],
)
def test_it_prefers_english(model: elmo.Embedder, good: str, bad: str) -> None:
    assert model.score(good.split()).perplexity < model.score(bad.split()).perplexity
