"""`elmo info`: its numbers counted a second time from the options."""

from math import prod
from pathlib import Path

import numpy as np
import pytest

import elmo as library
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained, write
from embedders import OPTIONS, WEIGHTS, assert_refused, elmo, embedder, write_model
from models import published, write_published
from numpy_reference import published_shapes


def rows(out: str) -> dict[str, str]:
    """What stands beside each name; lines without a name belong to the one above."""
    found: dict[str, str] = {}
    for line in out.splitlines():
        name, value = line[:12].strip(), line[12:]
        if name:
            found[name] = value
        else:
            found[list(found)[-1]] += "\n" + value
    return found


def test_a_folder_is_described(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    embedder().save(folder)
    ended = elmo("info", folder)
    assert (ended.code, ended.err) == (0, "")
    parameters = sum(prod(shape) for shape in published_shapes(OPTIONS).values())
    files = [folder / name for name in ("config.json", "model.safetensors", "warm_state.safetensors")]
    assert rows(ended.out) == {
        "model": str(folder),
        "tokens": "20 characters of 3, filters 1:4 2:3 4:5 (12), relu, 1 highway",
        "LSTMs": "2 directions × 2, cell 12, clip 3, projection 5, clip 3, skip connections",
        "layers": "3 of 10",
        "parameters": f"{parameters:,}",
        "stored as": "float32",
        "vocabulary": "none: words are read as characters",
        "warm state": "stored",
        "files": "\n".join(f"{file} ({file.stat().st_size:,} bytes)" for file in files),
    }


@pytest.mark.parametrize("variant", ["H == D", "F == D", "no skip", "no clips", "no highway", "three layers", 3, 4])
def test_parameters_and_layers_are_those_of_the_options(variant: str | int, tmp_path: Path) -> None:
    options, weights = published(variant)
    path = write_published(tmp_path, options, weights)[1]
    shown = rows(elmo("info", path).out)
    lstm = options["lstm"]
    assert shown["parameters"] == f"{sum(array.size for array in weights.values()):,}"
    assert shown["layers"] == f"{lstm['n_layers'] + 1} of {2 * lstm['projection_dim']}"
    assert ("projection" in shown["LSTMs"]) == (lstm["dim"] != lstm["projection_dim"])
    assert shown["LSTMs"].endswith("no skip connections") != lstm["use_skip_connections"]
    assert (f"cell {lstm['dim']}, no clip" in shown["LSTMs"]) == (not lstm.get("cell_clip"))
    assert f"{options['char_cnn'].get('n_highway') or 0} highway" in shown["tokens"]
    assert shown["warm state"] == "computed when it is first used"
    assert f"{path} ({path.stat().st_size:,} bytes)" in shown["files"]


def test_the_options_are_one_of_the_files(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    assert f"{options} ({options.stat().st_size:,} bytes)" in rows(elmo("info", weights).out)["files"]


def test_a_word_table_is_described(tmp_path: Path) -> None:
    words = Vocabulary(["<S>", "</S>", "<UNK>", "cat"])
    lstm = embedder().config.lstm
    bilm = library.BiLM(library.BiLMConfig(lstm, None, n_words=4))
    write(Pretrained(bilm, words), tmp_path / "table")
    shown = rows(elmo("info", tmp_path / "table").out)
    lstm_only = published_shapes(OPTIONS, token_mode=True).values()
    assert shown["tokens"] == "a table of 4 words"
    assert shown["vocabulary"] == "4 words"
    assert shown["parameters"] == f"{sum(prod(shape) for shape in lstm_only) + 4 * lstm.projection_dim:,}"


def test_one_mistake_is_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "none.hdf5"
    assert_refused(elmo("info", missing), f"{missing}: no such file or folder, and no model of that name")
    folder = write_model(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(np.arange(100).tobytes())
    assert_refused(elmo("info", folder), f"{folder / 'model.safetensors'}: damaged, or not safetensors")
