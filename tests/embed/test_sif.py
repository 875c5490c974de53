"""Smooth inverse frequency against a few lines of NumPy that were written without looking at ours."""

import copy
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import elmo
from elmo.embed.convert import convert
from elmo.embed.sif import add_sif, statistics
from elmo.errors import ConfigError, DataError, ElmoError, WeightsError
from elmo.text.tokens import words
from embedders import LINES, embedder, fresh, write_model

TEXT = [*LINES, "The dog sat on the cat .", "A mat is not a cat", "On and on and on", "the end"]
SETTINGS: dict[str, Any] = {"a": 0.02, "layers": [0.5, 0.0, 0.5], "components": 2}


def brute_force(text: list[str], sentences: list[str]) -> NDArray[np.float64]:
    """Algorithm 1 of Arora et al., with the vectors of the reference: in double precision, by loops and an eigenvalue
    decomposition."""
    split = [words(line) for line in text if line]
    counts = Counter(word.lower() for sentence in split for word in sentence)

    def mean(sentence: list[str]) -> NDArray[np.float64]:
        layers = fresh(sentence)
        total, norm = np.zeros(layers.shape[-1]), 0.0
        for place, word in enumerate(sentence):
            weight = 0.02 / (0.02 + counts[word.lower()] / sum(counts.values()))
            vector = 0.5 * layers[0, place] + 0.5 * layers[2, place]
            total += weight * vector / np.sqrt((vector**2).sum())
            norm += weight
        return total / norm

    rows = np.array([mean(sentence) for sentence in split])
    centre = rows.mean(axis=0)
    eigenvalues, eigenvectors = np.linalg.eigh(np.cov(rows.T))
    found = []
    for sentence in sentences:
        vector = mean(words(sentence)) - centre
        for k in np.argsort(-eigenvalues)[:2]:
            vector = vector - (vector @ eigenvectors[:, k]) * eigenvectors[:, k]
        found.append(vector)
    return np.array(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sif")
    (place / "text.txt").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    add_sif(write_model(place / "model"), place / "text.txt", **SETTINGS, device="cpu")
    return place / "model"


def test_a_vector_is_that_of_the_algorithm(folder: Path) -> None:
    asked = ["The cat sat.", "naïve unheard words", "x"]
    found = elmo.load(folder, device="cpu").encode(asked, pooling="sif")
    assert np.abs(found - brute_force(TEXT, asked)).max() < 1e-5
    assert np.abs(found).max() > 0.01


def test_an_empty_sentence_has_zeros(folder: Path) -> None:
    assert not elmo.load(folder, device="cpu").encode([""], pooling="sif").any()


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.int8])
def test_copies_of_the_model_have_the_statistics(folder: Path, tmp_path: Path, dtype: torch.dtype | None) -> None:
    model = elmo.load(folder, device="cpu")
    expected = model.encode(["The cat sat."], pooling="sif")
    convert(folder, tmp_path / "converted", dtype=dtype)
    model.save(tmp_path / "saved", dtype)
    for other in (elmo.load(tmp_path / "converted", device="cpu"), elmo.load(tmp_path / "saved", device="cpu")):
        assert np.abs(other.encode(["The cat sat."], pooling="sif") - expected).max() < (1e-6 if dtype is None else 0.1)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(other.encode(["The cat sat."], pooling="sif"), expected)


def test_only_frequent_words_are_kept_and_every_token_is_counted() -> None:
    counts = Counter({"b": 3, "a": 3, "c": 9, "d": 1})
    made = statistics(embedder(), counts, [["a", "b"], ["c"], ["d"]], components=1, words=3)
    assert (made.counts, made.total) == ({"c": 9, "a": 3, "b": 3}, 16)
    assert (made.layers, made.components.shape) == ((1.0, 0.0, 0.0), (1, 10))


def test_of_a_long_text_sentences_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"w{n} x\n" for n in range(400)))
    reported: list[tuple[str, int, int]] = []
    add_sif(
        write_model(tmp_path / "model"), tmp_path / "text.txt",
        sentences=50, components=1, device="cpu", report=lambda *values: reported.append(values),
    )  # fmt: skip
    assert reported[-1] == ("components", 50, 50)
    assert [values for values in reported if values[0] == "words"][-1][1] == (tmp_path / "text.txt").stat().st_size


def test_a_model_without_statistics_refuses() -> None:
    with pytest.raises(WeightsError, match=r"^pooling is 'sif', but this model has no statistics for it; `elmo sif"):
        embedder().encode(["a b"], pooling="sif")


def test_layers_are_those_of_the_statistics(folder: Path) -> None:
    message = "layers is 'top', but pooling 'sif' has its own: leave layers out"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        elmo.load(folder, device="cpu").encode(["a b"], pooling="sif", layers="top")


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("\n \n", {}, "contains no words; expected a text, one sentence per line"),
        ("a\nb\nc\n", {"components": 3}, "components is 3; expected at least 0, and less than the 10 dimensions and"),
        ("a\nb\n", {"components": 1, "layers": "all"}, "layers is 'all'; a sentence has one vector: expected a layer"),
        ("a\nb\n", {"components": 1, "a": 0.0}, "a is 0; expected more than 0"),
        ("a\nb\n", {"components": 1, "a": float("nan")}, "a is nan; expected more than 0, and a finite number"),
        ("a\nb\n", {"components": 1, "a": float("inf")}, "a is inf; expected more than 0, and a finite number"),
    ],
)
def test_what_cannot_be_is_refused(text: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text)
    before = sorted(write_model(tmp_path / "model").iterdir())
    with pytest.raises(ElmoError, match=re.escape(message)):
        add_sif(tmp_path / "model", tmp_path / "text.txt", **settings, device="cpu")
    assert sorted((tmp_path / "model").iterdir()) == before


def test_statistics_are_never_replaced(folder: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{folder / 'sif.safetensors'}: exists already")):
        add_sif(folder, folder.parent / "text.txt", **SETTINGS)


def test_only_a_folder_can_have_them(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a\n")
    with pytest.raises(WeightsError, match=r": not a model folder; `elmo convert` makes one of any model$"):
        add_sif(tmp_path, tmp_path / "text.txt")
