"""`convert` and `model_info` as calls; their files are tested in tests/cli/test_convert.py."""

from math import prod
from pathlib import Path

import pytest

from elmo.embed.convert import Converted, convert, convert_tokens
from elmo.embed.embedder import load
from elmo.errors import ConfigError, DataError
from elmo.weights import bilm_tf
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


def test_published_files_are_all_written_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, words, table = write_model(tmp_path / "model"), tmp_path / "words.txt", tmp_path / "tokens.hdf5"
    words.write_text("\n".join(WORDS) + "\n")
    convert_tokens(model, table, words)
    convert(model, tmp_path / "weights.hdf5")
    load(tmp_path / "weights.hdf5", token_embeddings=table, vocabulary=words).save(tmp_path / "of-words")
    (tmp_path / "out").mkdir()

    def interrupted(_: object) -> None:
        assert (tmp_path / "out" / "weights.hdf5").is_file()  # the options are written last
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bilm_tf, "options_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(tmp_path / "of-words", tmp_path / "out" / "weights.hdf5")
    assert not list((tmp_path / "out").iterdir())
    convert(tmp_path / "of-words", tmp_path / "out" / "weights.hdf5")
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == ["options.json", "vocabulary.txt", "weights.hdf5"]
    (tmp_path / "out" / "weights.hdf5").unlink()
    (tmp_path / "out" / "options.json").unlink()
    with pytest.raises(DataError, match=r"vocabulary\.txt: exists already"):
        convert(tmp_path / "of-words", tmp_path / "out" / "weights.hdf5")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["vocabulary.txt"]  # the user's is kept


def test_outputs_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert convert("~/model", "~/copy").files == (tmp_path / "copy",)
    assert convert("~/model", "~/weights.hdf5").files == (tmp_path / "weights.hdf5", tmp_path / "options.json")
    assert convert_tokens("~/model", "~/tokens.hdf5", "~/words.txt") == (4, 5)
    assert (tmp_path / "copy").is_dir() and (tmp_path / "weights.hdf5").is_file()
    assert (tmp_path / "tokens.hdf5").is_file()
    assert not list((tmp_path / "elsewhere").iterdir())  # no folder of the name ~


def test_the_facts_of_a_model(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    facts = model_info(model)
    assert (facts.name, facts.n_parameters, facts.vocabulary_size) == (str(model), PARAMETERS, None)
    assert facts.config == load(model).config
    assert not facts.has_warm_state
    assert facts.files == {path: path.stat().st_size for path in model.iterdir()}
