"""The published format: the numbers bilm-tf computed from it, the same bits written again, and what is refused."""

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.errors import DataError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.layers import Layers
from elmo.text.characters import word_ids
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from models import (
    VARIANTS,
    assert_same_datasets,
    carried,
    datasets,
    ids_of,
    published,
    random_sentences,
    write_datasets,
    write_published,
)
from reference_files import BILM_TF, REFERENCE, needs_shared, reference
from reference_files import VARIANTS as SHARED_VARIANTS

TOLERANCE = 5e-6  # bilm-tf computed in float32
OPTIONS, WEIGHTS = published("as published")


def table_of(bilm: BiLM, words: set[str], path: Path) -> Vocabulary:
    """Write the token-embedding file of these words, as the model's own encoder computes them."""
    assert bilm.config.char_cnn is not None
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", *sorted(words - {"<S>", "</S>", "<UNK>"})])
    ids = word_ids(vocabulary.words, bilm.config.char_cnn.max_characters_per_token)
    with torch.no_grad():
        bilm_tf.write_token_embeddings(bilm.token_encoder(torch.from_numpy(ids)).numpy(), path)
    return vocabulary


def read_in(mode: str, options: Path, weights: Path, words: set[str], folder: Path) -> tuple[BiLM, Vocabulary | None]:
    """The model by its characters, or by the rows of a table made from them."""
    bilm = bilm_tf.read(options, weights)
    if mode == "characters":
        return bilm, None
    vocabulary = table_of(bilm, words, folder / "table.hdf5")
    return bilm_tf.read(options, weights, embedding=folder / "table.hdf5"), vocabulary


def rows_of(layers: Layers) -> list[NDArray[np.float32]]:
    """Per sentence (L+1, T, 2D), boundaries left out."""
    inner = layers.without_boundaries()
    return [inner.activations[:, row, mask].numpy() for row, mask in enumerate(inner.mask)]


def largest_difference(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())


# Against bilm-tf


@needs_shared
@pytest.mark.parametrize("mode", ["characters", "words"])
def test_the_top_layer_of_ten_batches_is_that_of_bilm_tf(tmp_path: Path, mode: str) -> None:
    folder = reference("bilm-tf")
    lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    batches = [[sentence.split() for sentence in batch] for batch in zip(*lists, strict=True)]
    assert [len(batch) for batch in batches] == [3] * 10
    words = {word for batch in batches for sentence in batch for word in sentence}
    bilm, vocabulary = read_in(mode, folder / "options.json", folder / "lm_weights.hdf5", words, tmp_path)
    worst = 0.0
    with torch.no_grad():
        for number, layers in enumerate(carried(bilm, batches, vocabulary)):
            for row, array in enumerate(rows_of(layers)):
                with h5py.File(folder / f"lm_embeddings_{row}.hdf5") as file:
                    expected = file[str(number)][...]  # (2, T, D), forward and backward
                ours = np.stack(np.split(array[-1], 2, axis=-1))
                worst = max(worst, largest_difference(ours, expected))
    print(f"largest difference: {worst:.1e}")  # pytest -rP shows it
    assert worst < TOLERANCE


def test_every_variant_of_the_reference_is_tested() -> None:
    assert sorted(folder.name for folder in (REFERENCE / "variants").iterdir()) == SHARED_VARIANTS


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("mode", ["characters", "words"])
@pytest.mark.parametrize("kind", ["carried", "fresh"])
@pytest.mark.parametrize("name", SHARED_VARIANTS)
def test_all_layers_of_a_variant_are_those_of_bilm_tf(
    tmp_path: Path, name: str, kind: str, mode: str, gradient: bool
) -> None:
    folder = reference(f"variants/{name}")
    batches = json.loads((folder / "batches.json").read_text())
    words = {word for batch in batches for sentence in batch for word in sentence}
    bilm, vocabulary = read_in(mode, folder / "options.json", folder / "weights.hdf5", words, tmp_path)
    bilm.requires_grad_(gradient)
    if kind == "carried":
        computed = list(carried(bilm, batches, vocabulary))
    else:
        computed = [bilm(ids_of(bilm, batch, vocabulary))[0] for batch in batches]
    assert computed[0].activations.requires_grad == gradient
    with h5py.File(folder / "expected.hdf5") as file:
        assert sum(len(rows) for rows in file[kind].values()) == sum(len(batch) for batch in batches)
        worst = max(
            largest_difference(array, file[f"{kind}/{number}/{row}"][...])
            for number, layers in enumerate(computed)
            for row, array in enumerate(rows_of(Layers(layers.activations.detach(), layers.mask)))
        )
    print(f"largest difference: {worst:.1e}")
    assert worst < TOLERANCE


# There and back


@pytest.mark.parametrize("variant", [*VARIANTS, *range(15)])
def test_files_come_back_bit_by_bit(tmp_path: Path, variant: str | int) -> None:
    options, weights = published(variant)
    weights["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/B"][:2] = -0.0, np.float32(1e-42)  # signs and denormals too
    bilm = bilm_tf.read(*write_published(tmp_path, options, weights))
    bilm_tf.write(bilm, tmp_path / "again.json", tmp_path / "again.hdf5")
    assert_same_datasets(datasets(tmp_path / "again.hdf5"), weights)
    assert bilm_tf.read_options(tmp_path / "again.json") == bilm_tf.read_options(tmp_path / "options.json")


@pytest.mark.parametrize("name", [BILM_TF, *(f"variants/{name}" for name in SHARED_VARIANTS)])
def test_the_fixtures_files_come_back_bit_by_bit(tmp_path: Path, name: str) -> None:
    folder = reference(name)
    weights = folder / ("lm_weights.hdf5" if name == "bilm-tf" else "weights.hdf5")
    bilm = bilm_tf.read(folder / "options.json", weights)
    bilm_tf.write(bilm, tmp_path / "options.json", tmp_path / "weights.hdf5")
    assert_same_datasets(datasets(tmp_path / "weights.hdf5"), datasets(weights))
    ours, theirs = (json.loads(path.read_text()) for path in (tmp_path / "options.json", folder / "options.json"))
    assert ours == theirs


def test_an_embedding_of_262_rows_comes_back_and_its_last_row_is_never_read(tmp_path: Path) -> None:
    row = np.full((1, WEIGHTS["char_embed"].shape[1]), 1e3, dtype=np.float32)
    longer = WEIGHTS | {"char_embed": np.concatenate([WEIGHTS["char_embed"], row])}
    bilm = bilm_tf.read(*write_published(tmp_path / "longer", OPTIONS, longer))
    bilm_tf.write(bilm, tmp_path / "again.json", tmp_path / "again.hdf5")
    assert_same_datasets(datasets(tmp_path / "again.hdf5"), longer)
    plain = bilm_tf.read(*write_published(tmp_path / "plain", OPTIONS, WEIGHTS))
    sentences = random_sentences(np.random.default_rng(0), 5)
    with torch.no_grad():
        ours, theirs = (model(ids_of(model, sentences))[0].activations for model in (bilm, plain))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("n_characters", [261, 262, None])
def test_n_characters_of_the_options_decides_nothing(tmp_path: Path, n_characters: int | None) -> None:
    char_cnn = {name: value for name, value in OPTIONS["char_cnn"].items() if name != "n_characters"}
    if n_characters is not None:
        char_cnn["n_characters"] = n_characters
    bilm = bilm_tf.read(*write_published(tmp_path, OPTIONS | {"char_cnn": char_cnn}, WEIGHTS))
    np.testing.assert_array_equal(bilm.token_encoder.embedding[1:].detach().numpy(), WEIGHTS["char_embed"])
    assert not bilm.token_encoder.embedding[0].any()


@pytest.mark.parametrize(
    "training", [{}, {"bidirectional": True, "n_train_tokens": 5, "dropout": 0.1, "lstm_extra": 1}]
)
def test_what_else_a_training_file_says_decides_nothing(tmp_path: Path, training: dict[str, Any]) -> None:
    options, _ = write_published(tmp_path, OPTIONS | training, WEIGHTS)
    plain, _ = write_published(tmp_path / "plain", OPTIONS, WEIGHTS)
    assert bilm_tf.read_options(options) == bilm_tf.read_options(plain)


def test_options_that_are_written_are_those_bilm_tf_reads(tmp_path: Path) -> None:
    options, weights = published("no highway")
    bilm_tf.write(bilm_tf.read(*write_published(tmp_path, options, weights)), tmp_path / "o.json", tmp_path / "w.hdf5")
    written = json.loads((tmp_path / "o.json").read_text())
    assert written["char_cnn"]["n_characters"] == 262  # bilm-tf refuses any other number
    assert "n_highway" not in written["char_cnn"]  # and reads its presence
    assert written["lstm"] == {"cell_clip": None, "proj_clip": None} | options["lstm"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_other_number_formats_are_read_as_float32(tmp_path: Path, dtype: Any) -> None:
    stored = {name: array.astype(dtype) for name, array in WEIGHTS.items()}
    bilm = bilm_tf.read(*write_published(tmp_path, OPTIONS, stored))
    assert {parameter.dtype for parameter in bilm.parameters()} == {torch.float32}
    bilm_tf.write(bilm, tmp_path / "again.json", tmp_path / "again.hdf5")
    assert_same_datasets(
        datasets(tmp_path / "again.hdf5"), {name: array.astype(np.float32) for name, array in stored.items()}
    )


def test_a_model_of_words_comes_back_bit_by_bit(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    by_characters = bilm_tf.read(options, weights)
    table_of(by_characters, {"the", "cat"}, tmp_path / "table.hdf5")
    by_words = bilm_tf.read(options, weights, embedding=tmp_path / "table.hdf5")
    assert by_words.config == BiLMConfig(by_characters.config.lstm, None, n_words=5)
    bilm_tf.write(by_words, tmp_path / "words.json", tmp_path / "words.hdf5")
    expected = {name: array for name, array in WEIGHTS.items() if name.startswith("RNN_")}
    assert_same_datasets(datasets(tmp_path / "words.hdf5"), expected | datasets(tmp_path / "table.hdf5"))
    again = bilm_tf.read(tmp_path / "words.json", tmp_path / "words.hdf5")
    assert again.config == by_words.config
    for name, tensor in by_words.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)


def test_a_model_that_was_read_is_ready_to_use(tmp_path: Path) -> None:
    bilm = bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS))
    assert not bilm.training
    assert all(parameter.is_contiguous() and not parameter.is_meta for parameter in bilm.parameters())


# Files that do not belong together


def differing(section: str, **values: Any) -> dict[str, Any]:
    return OPTIONS | {section: OPTIONS[section] | values}


def mismatches() -> dict[str, tuple[dict[str, Any], str]]:
    lstm, cnn = OPTIONS["lstm"], OPTIONS["char_cnn"]
    d, h, dim = lstm["projection_dim"], lstm["dim"], cnn["embedding"]["dim"]
    *others, (width, count) = cnn["filters"]
    last = len(others)
    return {
        "filter of another count": (
            differing("char_cnn", filters=[*others, [width, count + 1]]),
            f"'CNN/W_cnn_{last}' has shape {(1, width, dim, count)}; options.json filters[{last}] needs "
            f"{(1, width, dim, count + 1)}. Are the two files from the same model?",
        ),
        "one filter more": (
            differing("char_cnn", filters=[*cnn["filters"], [2, 3]]),
            f"no dataset 'CNN/W_cnn_{last + 1}'; options.json asks for it. Are the two files from the same model?",
        ),
        "characters of another width": (
            differing("char_cnn", embedding={"dim": dim + 1}),
            f"'char_embed' has shape {(261, dim)}; options.json needs {(261, dim + 1)}.",
        ),
        "another cell": (
            differing("lstm", dim=h + 1),
            f"Cell0/LSTMCell/W_0' has shape {(2 * d, 4 * h)}; options.json lstm needs {(2 * d, 4 * (h + 1))}.",
        ),
        "another projection": (
            differing("lstm", projection_dim=d + 1),
            f"'CNN_proj/W_proj' has shape {(7, d)}; options.json needs {(7, d + 1)}.",
        ),
        "one layer more": (
            differing("lstm", n_layers=3),
            "no dataset 'RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0'; options.json asks for it.",
        ),
        "one layer less": (differing("lstm", n_layers=1), "Cell1"),
        "one highway more": (
            differing("char_cnn", n_highway=(cnn.get("n_highway") or 0) + 1),
            f"no dataset 'CNN_high_{cnn.get('n_highway') or 0}/W_carry'; options.json asks for it.",
        ),
    }


@pytest.mark.parametrize("name", mismatches())
def test_options_of_another_model(tmp_path: Path, name: str) -> None:
    options, message = mismatches()[name]
    with pytest.raises(WeightsError, match=r"weights\.hdf5: .*" + re.escape(message)):
        bilm_tf.read(*write_published(tmp_path, options, WEIGHTS))


def test_a_highway_that_the_options_do_not_mention(tmp_path: Path) -> None:
    options, weights = published("two highways")
    options["char_cnn"]["n_highway"] = 1
    with pytest.raises(WeightsError, match=r"weights\.hdf5: .*CNN_high_1"):
        bilm_tf.read(*write_published(tmp_path, options, weights))


@pytest.mark.parametrize("rows", [1, 260, 263, 1000])
def test_characters_of_another_number(tmp_path: Path, rows: int) -> None:
    array = np.zeros((rows, WEIGHTS["char_embed"].shape[1]), dtype=np.float32)
    message = rf"weights\.hdf5: 'char_embed' has {rows} rows; expected 261 \(256 bytes and 5 marks\)"
    with pytest.raises(WeightsError, match=message):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS | {"char_embed": array}))


# Damaged weights


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_missing_dataset_is_named(tmp_path: Path, name: str) -> None:
    rest = {other: array for other, array in WEIGHTS.items() if other != name}
    with pytest.raises(WeightsError, match=rf"weights\.hdf5: no dataset '{name}'; options\.json asks for it"):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, rest))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", WEIGHTS)
def test_a_value_that_is_no_number_is_found_wherever_it_is(tmp_path: Path, name: str, value: float) -> None:
    damaged = WEIGHTS[name].copy()
    damaged.flat[damaged.size // 2] = value
    with pytest.raises(WeightsError, match=rf"weights\.hdf5: '{name}' contains NaN or infinity; the weights"):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS | {name: damaged}))


def test_infinities_of_both_signs_do_not_cancel(tmp_path: Path) -> None:
    damaged = WEIGHTS["char_embed"].copy()
    damaged.flat[:2] = np.inf, -np.inf
    with pytest.raises(WeightsError, match="'char_embed' contains NaN or infinity"):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS | {"char_embed": damaged}))


@pytest.mark.parametrize("part", [0.0, 0.001, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_file_cut_short(tmp_path: Path, part: float) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    data = weights.read_bytes()
    weights.write_bytes(data[: int(part * len(data))])
    message = r"weights\.hdf5: is (cut short|not an HDF5 file); expected a biLM's weights. Get the file again"
    with pytest.raises(WeightsError, match=message) as caught:
        bilm_tf.read(options, weights)
    assert part < 0.01 or "is cut short" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"<html>404</html>" * 100, b"\x80\x04K\x01."])
def test_a_file_that_is_not_hdf5(tmp_path: Path, content: bytes) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    weights.write_bytes(content)
    with pytest.raises(WeightsError, match=r"weights\.hdf5: is not an HDF5 file; expected a biLM's weights"):
        bilm_tf.read(options, weights)


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    options, _ = write_published(tmp_path, OPTIONS, WEIGHTS)
    with pytest.raises(WeightsError, match=r"missing\.hdf5: no such file"):
        bilm_tf.read(options, tmp_path / "missing.hdf5")


@pytest.mark.parametrize("stored", [np.float32(1.0), np.array([[b"text"]]), np.zeros((0,), dtype=np.float32)])
def test_a_dataset_of_something_else(tmp_path: Path, stored: Any) -> None:
    for name in ("char_embed", "CNN/b_cnn_0"):
        with pytest.raises(WeightsError, match=rf"weights\.hdf5: '{name}'"):
            bilm_tf.read(*write_published(tmp_path / name.replace("/", "_"), OPTIONS, WEIGHTS | {name: stored}))


def test_text_where_numbers_belong(tmp_path: Path) -> None:
    stored = np.full(WEIGHTS["CNN/b_cnn_0"].shape, b"0.5")
    with pytest.raises(WeightsError, match=r"weights\.hdf5: 'CNN/b_cnn_0'"):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS | {"CNN/b_cnn_0": stored}))


def test_a_group_where_a_dataset_belongs(tmp_path: Path) -> None:
    rest = {name: array for name, array in WEIGHTS.items() if name != "char_embed"}
    with pytest.raises(WeightsError, match=r"weights\.hdf5: no dataset 'char_embed'"):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, rest | {"char_embed/inside": np.zeros(3)}))


# Token embeddings


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"vectors": np.zeros((3, 4))}, "table.hdf5: no dataset 'embedding'"),
        ({"embedding": np.zeros((3, 99))}, "table.hdf5: 'embedding' has shape (3, 99); options.json lstm needs (3, "),
        ({"embedding": np.full((3, OPTIONS["lstm"]["projection_dim"]), np.nan)}, "'embedding' contains NaN"),
        ({"embedding": np.float32(1.0)}, "table.hdf5: 'embedding'"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, datasets: dict[str, Any], message: str) -> None:
    files = write_published(tmp_path, OPTIONS, WEIGHTS)
    with pytest.raises(WeightsError, match=re.escape(message)):
        bilm_tf.read(*files, embedding=write_datasets(tmp_path / "table.hdf5", datasets))


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"table\.hdf5: no such file"):
        bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS), embedding=tmp_path / "table.hdf5")


# Options


def without(section: str, key: str) -> dict[str, Any]:
    return OPTIONS | {section: {name: value for name, value in OPTIONS[section].items() if name != key}}


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"char_cnn": OPTIONS["char_cnn"]}, "lstm"),
        (without("lstm", "dim"), "dim"),
        (without("char_cnn", "activation"), "activation"),
        (without("char_cnn", "filters"), "filters"),
        (without("char_cnn", "embedding"), "embedding"),
        (differing("char_cnn", embedding={}), "dim"),
        (without("char_cnn", "max_characters_per_token"), "max_characters_per_token"),
        ({"lstm": OPTIONS["lstm"]}, "n_tokens_vocab"),
    ],
)
def test_a_missing_option_is_named(tmp_path: Path, options: dict[str, Any], missing: str) -> None:
    message = (
        rf"options\.json: '{missing}' is missing; expected the options\.json of a biLM, with 'lstm' and 'char_cnn'"
    )
    with pytest.raises(WeightsError, match=message):
        bilm_tf.read(*write_published(tmp_path, options, WEIGHTS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (differing("char_cnn", activation="elu"), "char_cnn.activation is 'elu'; expected one of relu, tanh"),
        (differing("char_cnn", filters=[]), "char_cnn.filters is empty"),
        (
            differing("char_cnn", max_characters_per_token=6, filters=[[7, 4]]),
            "char_cnn.max_characters_per_token is 6; expected at least",
        ),
        (differing("char_cnn", filters=[3]), "unexpected form"),
        (differing("char_cnn", filters=[[1, 2, 3]]), "unexpected form"),
        (differing("lstm", cell_clip=-1), "lstm.cell_clip is -1"),
        (differing("lstm", n_layers=0), "lstm.n_layers is 0"),
        (differing("lstm", dim="64"), "lstm.dim is '64'; expected an integer"),
        (differing("lstm", dim=None), "lstm.dim is None; expected an integer"),
        ([OPTIONS], "expected a JSON object, found list"),
        (None, "expected a JSON object, found NoneType"),
        ({"lstm": 3}, "unexpected form"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(WeightsError, match=r"options\.json: " + re.escape(message)):
        bilm_tf.read(*write_published(tmp_path, options, WEIGHTS))


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("lstm", "dim", float(OPTIONS["lstm"]["dim"])),
        ("lstm", "n_layers", 2.0),
        ("lstm", "n_layers", 2.5),
        ("char_cnn", "n_highway", 1.5),
        ("char_cnn", "n_highway", "two"),
        ("char_cnn", "n_highway", -1),
    ],
)
def test_numbers_that_are_not_whole_are_refused_in_one_line(tmp_path: Path, section: str, key: str, value: Any) -> None:
    with pytest.raises(WeightsError, match=rf"options\.json: .*{key}"):
        bilm_tf.read(*write_published(tmp_path, differing(section, **{key: value}), WEIGHTS))


@pytest.mark.parametrize("content", [b"", b"{", b"lstm: 3", b"\xff\xfe{}", b"\x89HDF\r\n\x1a\n"])
def test_options_that_are_not_json(tmp_path: Path, content: bytes) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    options.write_bytes(content)
    with pytest.raises(WeightsError, match=r"options\.json: not JSON \("):
        bilm_tf.read(options, weights)


def test_options_that_are_not_there(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    with pytest.raises(WeightsError, match=r"missing\.json: cannot be read \(No such file or directory\); expected"):
        bilm_tf.read(tmp_path / "missing.json", weights)


# Writing


def failing(number: int) -> Callable[..., None]:
    def create_dataset(*_: object, **__: object) -> None:
        raise OSError(number, "Can't write data (No space left on device)" if number == errno.ENOSPC else "broken")

    return create_dataset


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"weights\.hdf5: the disk is full; nothing was written. Free some space"),
        (errno.EIO, r"weights\.hdf5: cannot be written \(broken\)"),
    ],
)
def test_nothing_half_written_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    bilm = bilm_tf.read(*write_published(tmp_path / "from", OPTIONS, WEIGHTS))
    target = tmp_path / "to"
    target.mkdir()
    (target / "weights.hdf5").write_bytes(b"what was there before")
    monkeypatch.setattr(h5py.File, "create_dataset", failing(number))
    with pytest.raises(DataError, match=message):
        bilm_tf.write(bilm, target / "options.json", target / "weights.hdf5")
    assert [path.name for path in target.iterdir()] == ["weights.hdf5"]
    assert (target / "weights.hdf5").read_bytes() == b"what was there before"


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    bilm = bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=r"weights\.hdf5: cannot be written"):
        bilm_tf.write(bilm, tmp_path / "file" / "options.json", tmp_path / "file" / "weights.hdf5")


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    bilm = bilm_tf.read(*write_published(tmp_path, OPTIONS, WEIGHTS))
    bilm_tf.write(bilm, tmp_path / "a" / "b" / "options.json", tmp_path / "a" / "c" / "weights.hdf5")
    assert_same_datasets(datasets(tmp_path / "a" / "c" / "weights.hdf5"), WEIGHTS)
