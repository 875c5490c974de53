"""`convert` and `model_info` as calls; their files are tested in tests/cli/test_convert.py."""

from math import prod
from pathlib import Path

import pytest

from elmo.embed.convert import Converted, convert, convert_tokens
from elmo.embed.embedder import load
from elmo.errors import ConfigError
from elmo.weights.info import model_info
from embedders import OPTIONS, assert_same_bits, write_model
from numpy_reference import published_shapes

PARAMETERS = sum(prod(shape) for shape in published_shapes(OPTIONS).values())
WORDS = ["<S>", "</S>", "<UNK>", "bank"]


def test_to_the_published_format_and_back(tmp_path: Path) -> None:
    model, published, back = write_model(tmp_path / "model"), tmp_path / "p" / "weights.hdf5", tmp_path / "back"
    assert convert(model, published) == Converted((published, tmp_path / "p" / "options.json"), PARAMETERS)
    assert convert(str(published), str(back)) == Converted((back,), PARAMETERS)
    sentences = [["The", "bank"], ["x"]]
    assert_same_bits(list(load(back).embed(sentences)), list(load(model).embed(sentences)))


def test_token_embeddings(tmp_path: Path) -> None:
    model, words = write_model(tmp_path / "model"), tmp_path / "words.txt"
    words.write_text("\n".join(WORDS) + "\n")
    assert convert_tokens(model, tmp_path / "tokens.hdf5", words) == (len(WORDS), OPTIONS["lstm"]["projection_dim"])
    with pytest.raises(ConfigError, match=r"token embeddings are an \.hdf5 file; give a name that ends in \.hdf5$"):
        convert_tokens(model, tmp_path / "folder", words)


def test_the_facts_of_a_model(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    facts = model_info(model)
    assert (facts.name, facts.n_parameters, facts.vocabulary_size) == (str(model), PARAMETERS, None)
    assert facts.config == load(model).config
    assert not facts.has_warm_state
    assert facts.files == {path: path.stat().st_size for path in model.iterdir()}
