"""Exported models give our own layers, for any number of sentences, words and tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.integrations.export import export
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.lstm import LSTMConfig
from elmo.text.vocabulary import Vocabulary
from elmo.weights import folder, source
from elmo.weights.folder import Pretrained
from embedders import elmo
from many_langs_reference import SIZES, folder_of
from models import published, write_published

Run = Callable[[Path, dict[str, NDArray[Any]]], NDArray[np.float32]]
ONE_LAYER = SIZES | {"encoder": SIZES["encoder"] | {"n_layers": 1}}
SENTENCES = [["The", "cat", "sat", "on", "a", "mat", "."], ["naïve"], [], ["long" * 30, "", "日本語", "cat"]]


def run_onnx(path: Path, inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install onnxruntime")
    result: NDArray[np.float32] = runtime.InferenceSession(path).run(None, inputs)[0]
    return result


def run_torch(path: Path, inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    program = torch.export.load(path).module()
    result: NDArray[np.float32] = program(**{name: torch.from_numpy(array) for name, array in inputs.items()}).numpy()
    return result


def assert_gives_our_layers(model: Embedder, files: tuple[Path, Path], run: Run, sentences: list[list[str]]) -> None:
    """Encode the distinct words, put their vectors into a padded batch, and compare every layer with `embed`."""
    encoder, lstms = files
    words = list(dict.fromkeys(["<S>", "</S>", *(word for sentence in sentences for word in sentence)]))
    ids = model.ids([words])[0, 1:-1].numpy()  # without the boundaries of this "sentence"
    vectors = run(encoder, {"ids": ids})
    np.testing.assert_allclose(vectors, model.token_vectors(words), atol=1e-5)
    lengths = np.array([len(sentence) + 2 for sentence in sentences])
    tokens = np.full((len(sentences), lengths.max() + 1, vectors.shape[1]), 7.5, dtype=np.float32)  # also behind all
    for row, sentence in zip(tokens, sentences, strict=True):
        row[: len(sentence) + 2] = vectors[[words.index(word) for word in ["<S>", *sentence, "</S>"]]]
    layers = run(lstms, {"tokens": tokens, "lengths": lengths})
    assert layers.shape == (model.n_layers, *tokens.shape[:2], model.dim)
    for row, (sentence, expected) in enumerate(zip(sentences, model.embed(sentences), strict=True)):
        np.testing.assert_allclose(layers[:, row, 1 : len(sentence) + 1], expected, atol=1e-5)
        assert not layers[:, row, len(sentence) + 2 :].any()


VARIANTS = ["as published", "both clips", "no clips", "no skip", "H == D", "F == D", "tanh", "no highway"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_onnx_gives_our_layers(variant: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'elmo-torch[onnx]'")
    _, weights = write_published(tmp_path, *published(variant))
    files = export(weights, tmp_path / "exported")
    model = Embedder(source.read(weights))
    for sentences in (SENTENCES, SENTENCES[:1], [["cat"]] * 9, [[]]):
        assert_gives_our_layers(model, files, run_onnx, sentences)


def test_torch_export_gives_our_layers(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, *published("as published"))
    files = export(weights, tmp_path / "exported", format="torch-export")
    model = Embedder(source.read(weights))
    for sentences in (SENTENCES, SENTENCES[:1], [["cat"]] * 9):
        assert_gives_our_layers(model, files, run_torch, sentences)


def word_model(place: Path) -> Path:
    """A model that reads words, with one layer in one direction."""
    words = Vocabulary(["<S>", "</S>", "<UNK>", "cat", "sat"])
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(dim=6, projection_dim=4, n_layers=1), None, n_words=5, bidirectional=False))
    folder.write(Pretrained(bilm.eval(), words), place)
    return place


@pytest.mark.parametrize("kind", ["words", "many_langs"])
@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_other_token_encoders(kind: str, format: str, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnx", reason="needs onnx: pip install 'elmo-torch[onnx]'")
    place = word_model(tmp_path / "model") if kind == "words" else folder_of(tmp_path / "model", ONE_LAYER)
    files = export(place, tmp_path / "exported", format=format)
    model = Embedder(source.read(place))
    assert_gives_our_layers(model, files, run_onnx if format == "onnx" else run_torch, SENTENCES)


def test_a_folder_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'elmo-torch[onnx]'")
    _, weights = write_published(tmp_path / "files", *published("as published"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for file in export(weights, "~/exported"):
        assert file.parent == tmp_path / "exported"
        assert file.is_file()


def test_onnx_refuses_more_than_a_file_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx", reason="needs onnx: pip install 'elmo-torch[onnx]'")
    _, weights = write_published(tmp_path, *published("as published"))
    monkeypatch.setattr("elmo.integrations.onnx.MAX_BYTES", 1000)
    with pytest.raises(ElmoError, match=r"token_encoder: has [\d,]+ bytes of weights; an ONNX file has at most 1,000"):
        export(weights, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_is_refused(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, *published("as published"))
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError, match="there: exists already"):
        export(weights, tmp_path / "there", format="torch-export")
    with pytest.raises(ConfigError, match="--format is 'tflite'; expected one of onnx, torch-export"):
        export(weights, tmp_path / "new", format="tflite")
    done = elmo("export", weights, tmp_path / "new", "--format", "keras")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not (tmp_path / "new").exists()
