"""Our folder: the same bits as the published files, all that belongs to a model, and what is refused."""

import dataclasses
import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from elmo.errors import DataError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig, State
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf, folder, tensor_files
from elmo.weights.folder import Pretrained
from models import VARIANTS, assert_same_datasets, datasets, ids_of, published, random_sentences, small, write_published
from reference_files import BILM_TF, reference
from reference_files import VARIANTS as SHARED_VARIANTS

WORDS = ["<S>", "</S>", "<UNK>", "the", "naïve", "日本"]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder that a test may damage."""
    bilm, _ = small(tmp_path / "published", "two layers")
    folder.write(Pretrained(bilm, Vocabulary(WORDS), warm_state(bilm)), tmp_path / "model")
    return tmp_path / "model"


def warm_state(bilm: BiLM) -> State:
    generator = torch.Generator().manual_seed(0)
    return State(*(torch.randn(part.shape, generator=generator) for part in bilm.zero_state(1)))


def with_softmax() -> BiLM:
    torch.manual_seed(0)
    return BiLM(BiLMConfig(LSTMConfig(9, 4), CharCNNConfig(filters=((1, 3), (2, 4))), n_softmax=11))


def assert_same_state(ours: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor]) -> None:
    assert sorted(ours) == sorted(theirs)
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert ours[name].numpy().tobytes() == tensor.numpy().tobytes(), name


def edited(path: Path, **tensors: torch.Tensor | None) -> None:
    """Replace tensors of a safetensors file (a dot is written as two underscores), or with None leave them out."""
    found = load_file(path)
    for name, tensor in tensors.items():
        found.pop(name.replace("__", "."))
        if tensor is not None:
            found[name.replace("__", ".")] = tensor
    save_file(found, path)


def reconfigured(path: Path, change: Mapping[str, Any]) -> None:
    """Change fields of a config.json; "lstm.dim" is a field inside."""
    values = json.loads(path.read_text())
    for name, value in change.items():
        *section, key = name.split(".")
        (values[section[0]] if section else values)[key] = value
    path.write_text(json.dumps(values))


# There and back


def back_and_forth(options: Path, weights: Path, place: Path) -> None:
    bilm = bilm_tf.read(options, weights)
    folder.write(Pretrained(bilm), place / "model")
    again = folder.read(place / "model")
    assert again.bilm.config == bilm.config
    assert not again.bilm.training
    assert (again.vocabulary, again.warm_state) == (None, None)
    assert_same_state(again.bilm.state_dict(), bilm.state_dict())
    bilm_tf.write(again.bilm, place / "again.json", place / "again.hdf5")
    assert_same_datasets(datasets(place / "again.hdf5"), datasets(weights))
    assert bilm_tf.read_options(place / "again.json") == bilm_tf.read_options(options)


@pytest.mark.parametrize("variant", [*VARIANTS, *range(10)])
def test_published_files_come_back_bit_by_bit(tmp_path: Path, variant: str | int) -> None:
    back_and_forth(*write_published(tmp_path / "published", *published(variant)), tmp_path)


@pytest.mark.parametrize("name", [BILM_TF, *(f"variants/{name}" for name in SHARED_VARIANTS)])
def test_the_fixtures_files_come_back_bit_by_bit(tmp_path: Path, name: str) -> None:
    place, weights = reference(name), "lm_weights.hdf5" if name == "bilm-tf" else "weights.hdf5"
    back_and_forth(place / "options.json", place / weights, tmp_path)


def test_262_characters_come_back(tmp_path: Path) -> None:
    options, weights = published("two layers")
    weights["char_embed"] = np.concatenate([weights["char_embed"], weights["char_embed"][:1]])
    back_and_forth(*write_published(tmp_path / "published", options, weights), tmp_path)


def test_a_model_of_words_comes_back(tmp_path: Path) -> None:
    torch.manual_seed(1)
    bilm = BiLM(BiLMConfig(LSTMConfig(9, 4), None, n_words=len(WORDS)))
    folder.write(Pretrained(bilm, Vocabulary(WORDS)), tmp_path / "model")
    again = folder.read(tmp_path / "model")
    assert again.bilm.config == bilm.config
    assert_same_state(again.bilm.state_dict(), bilm.state_dict())
    assert again.vocabulary is not None
    assert again.vocabulary.words == WORDS


def test_vocabulary_and_warm_state_come_back(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published", "three layers")
    state = warm_state(bilm)
    folder.write(Pretrained(bilm, Vocabulary(WORDS), state), tmp_path / "model")
    again = folder.read(tmp_path / "model")
    assert again.vocabulary is not None
    assert again.vocabulary.words == WORDS
    assert again.warm_state is not None
    assert_same_state(again.warm_state._asdict(), state._asdict())
    names = ["config.json", "model.safetensors", "vocabulary.txt", "warm_state.safetensors"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == names
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "published"]  # nothing else was left


def test_the_config_says_what_the_model_is(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published", "two layers")
    folder.write(Pretrained(bilm), tmp_path / "model")
    values = json.loads((tmp_path / "model" / "config.json").read_text())
    assert values["model_type"] == "elmo"
    assert values["lstm"] == dataclasses.asdict(bilm.config.lstm)
    assert values["char_cnn"]["filters"] == [list(pair) for pair in bilm.config.char_cnn.filters]


def test_the_same_vectors_come_from_both_formats(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published", "skip")
    folder.write(Pretrained(bilm), tmp_path / "a" / "b" / "model")  # folders on the way are made
    again = folder.read(tmp_path / "a" / "b" / "model").bilm
    ids = ids_of(bilm, random_sentences(np.random.default_rng(0), 4))
    with torch.no_grad():
        assert torch.equal(bilm(ids)[0].activations, again(ids)[0].activations)


# The softmax


def test_the_softmax_is_read_only_when_asked_for(tmp_path: Path) -> None:
    bilm = with_softmax()
    folder.write(Pretrained(bilm), tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["n_softmax"] == 11
    whole = folder.read(tmp_path / "model", softmax=True).bilm
    assert whole.config.n_softmax == 11
    assert_same_state(whole.state_dict(), bilm.state_dict())
    plain = folder.read(tmp_path / "model").bilm
    assert plain.config.n_softmax is None
    assert plain.softmax is None
    rest = {name: tensor for name, tensor in bilm.state_dict().items() if not name.startswith("softmax.")}
    assert_same_state(plain.state_dict(), rest)


def test_a_damaged_softmax_matters_only_when_it_is_read(tmp_path: Path) -> None:
    folder.write(Pretrained(with_softmax()), tmp_path / "model")
    edited(tmp_path / "model" / "model.safetensors", softmax__weight=torch.full((11, 4), torch.nan), softmax__bias=None)
    assert folder.read(tmp_path / "model").bilm.softmax is None
    with pytest.raises(WeightsError, match=r"no tensor 'softmax\.bias'; config\.json asks for it"):
        folder.read(tmp_path / "model", softmax=True)


def test_a_softmax_that_is_asked_for_and_not_there(written: Path) -> None:
    assert folder.read(written, softmax=True).bilm.softmax is None


# Other number formats


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_number_formats_are_read_as_float32(written: Path, dtype: torch.dtype) -> None:
    path = written / "model.safetensors"
    stored = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    save_file(stored, path)
    state = folder.read(written).bilm.state_dict()
    assert_same_state(state, {name: tensor.float() for name, tensor in stored.items()})


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize(("file", "name"), [("model", "lstms.0.bias"), ("warm_state", "h")])
def test_integers_are_no_weights(written: Path, file: str, name: str, dtype: torch.dtype) -> None:
    path = written / f"{file}.safetensors"
    tensors = load_file(path)
    save_file({**tensors, name: tensors[name].to(dtype)}, path)
    with pytest.raises(WeightsError) as error:
        folder.read(written)
    kind = str(dtype).removeprefix("torch.")
    assert str(error.value) == (
        f"{path}: {name!r} is of type {kind}; expected one of float16, bfloat16, float32, float64, "
        f"or int8 with its scales"
    )


def test_a_model_in_float16_is_stored_so(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published", "two layers")
    folder.write(Pretrained(bilm.half()), tmp_path / "model")
    assert {tensor.dtype for tensor in load_file(tmp_path / "model" / "model.safetensors").values()} == {torch.float16}
    again = folder.read(tmp_path / "model").bilm.state_dict()
    assert_same_state(again, {name: tensor.float() for name, tensor in bilm.state_dict().items()})


def test_a_model_is_written_in_float16_if_asked_and_stays_as_it_is(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published", "two layers")
    before = {name: tensor.clone() for name, tensor in bilm.state_dict().items()}
    folder.write(Pretrained(bilm), tmp_path / "model", torch.float16)
    assert_same_state(bilm.state_dict(), before)
    again = folder.read(tmp_path / "model").bilm.state_dict()
    assert_same_state(again, {name: tensor.half().float() for name, tensor in before.items()})


def test_a_value_beyond_float16_is_refused(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published")
    with torch.no_grad():
        bilm.lstms[0].bias[0, 3] = 1e5
    with pytest.raises(WeightsError, match=r"'lstms.0.bias' has values outside of the range of torch.float16"):
        folder.write(Pretrained(bilm), tmp_path / "model", torch.float16)
    assert not (tmp_path / "model").exists()


# Writing


def test_a_folder_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "precious.txt").write_text("keep")
    with pytest.raises(DataError, match=r"model: exists already; give another name, or remove it first"):
        folder.write(Pretrained(bilm), tmp_path / "model")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["precious.txt"]


@pytest.mark.parametrize(("withheld", "of_folder", "of_files"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_others_may_read_what_the_umask_lets_them(
    tmp_path: Path, withheld: int, of_folder: int, of_files: int
) -> None:
    before = os.umask(withheld)
    try:
        bilm, _ = small(tmp_path / "published", "two layers")
        folder.write(Pretrained(bilm, Vocabulary(WORDS), warm_state(bilm)), tmp_path / "model")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == of_folder
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "model").iterdir()}
    assert len(modes) == 4
    assert set(modes.values()) == {of_files}, modes


def test_a_file_of_that_name_is_refused_and_left_alone(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published")
    (tmp_path / "model").write_text("keep")
    with pytest.raises(DataError, match=r"model: exists already"):
        folder.write(Pretrained(bilm), tmp_path / "model")
    assert (tmp_path / "model").read_text() == "keep"


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path / "published")
    (tmp_path / "file").write_text("keep")
    with pytest.raises(DataError, match=r"file/model: cannot be written \("):
        folder.write(Pretrained(bilm), tmp_path / "file" / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "published"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "model: the disk is full; nothing was written"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "model: the disk is full; nothing was"),
        (OSError(errno.EIO, "Input/output error"), r"model: cannot be written \(Input/output error\)"),
    ],
)
@pytest.mark.parametrize("fails_at", ["model.safetensors", "warm_state.safetensors"])
def test_nothing_half_written_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str, fails_at: str
) -> None:
    bilm, _ = small(tmp_path / "published")
    (tmp_path / "to").mkdir()

    def save(tensors: dict[str, torch.Tensor], path: Path, **rest: Any) -> None:
        if path.name == fails_at:
            path.write_bytes(b"half")
            raise error
        save_file(tensors, path, **rest)

    monkeypatch.setattr(tensor_files, "save_file", save)
    with pytest.raises(DataError, match=message):
        folder.write(Pretrained(bilm, Vocabulary(WORDS), warm_state(bilm)), tmp_path / "to" / "model")
    assert list((tmp_path / "to").iterdir()) == []


def test_nothing_is_left_when_the_user_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bilm, _ = small(tmp_path / "published")
    (tmp_path / "to").mkdir()

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tensor_files, "save_file", stop)
    with pytest.raises(KeyboardInterrupt):
        folder.write(Pretrained(bilm), tmp_path / "to" / "model")
    assert list((tmp_path / "to").iterdir()) == []


# The config


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("n_sotfmax", "unknown field 'n_sotfmax'; did you mean 'n_softmax'?"),
        ("lstm.cell_clp", "unknown field 'lstm.cell_clp'; did you mean 'lstm.cell_clip'?"),
        ("lstm.projection", "unknown field 'lstm.projection'; did you mean 'lstm.projection_dim'?"),
        ("char_cnn.n_highways", "unknown field 'char_cnn.n_highways'; did you mean 'char_cnn.n_highway'?"),
        ("hidden_size", "unknown field 'hidden_size'; expected one of lstm, char_cnn, n_words, n_softmax"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_name(written: Path, field: str, message: str) -> None:
    reconfigured(written / "config.json", {field: 3})
    with pytest.raises(WeightsError, match=r"config\.json: " + re.escape(message)):
        folder.read(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lstm.dim": 0}, "lstm.dim is 0; expected an integer of at least 1"),
        ({"lstm.cell_clip": -3}, "lstm.cell_clip is -3.0; expected a positive number, or null"),
        ({"char_cnn.activation": "elu"}, "char_cnn.activation is 'elu'; expected one of relu, tanh"),
        ({"n_words": 5}, "a biLM reads characters (char_cnn), words (n_words) or both (many_langs): give one"),
        ({"char_cnn": None}, "a biLM reads characters (char_cnn), words (n_words) or both (many_langs): give one"),
        ({"lstm": None}, "lstm is None; expected a table of its fields"),
        ({"lstm.dim": "64"}, "lstm.dim is '64'; expected an integer"),
        ({"char_cnn.filters": [3]}, "char_cnn.filters[0] is 3; expected a list"),
        ({"char_cnn.filters": None}, "char_cnn.filters is None; expected a list"),
    ],
)
def test_a_config_that_cannot_be(written: Path, change: dict[str, Any], message: str) -> None:
    reconfigured(written / "config.json", change)
    with pytest.raises(WeightsError, match=r"config\.json: " + re.escape(message)):
        folder.read(written)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lstm.dim", 8.5),
        ("lstm.projection_dim", 2.5),
        ("lstm.n_layers", 2.5),
        ("char_cnn.embedding_dim", 0),
        ("char_cnn.embedding_dim", None),
        ("char_cnn.embedding_dim", "four"),
        ("char_cnn.n_highway", None),
        ("char_cnn.n_highway", -1),
        ("char_cnn.n_characters", None),
        ("char_cnn.n_characters", -1),
        ("char_cnn.filters", [[1.5, 2]]),
        ("n_softmax", "many"),
        ("n_softmax", -1),
    ],
)
def test_numbers_that_cannot_be_are_refused_in_one_line(written: Path, field: str, value: Any) -> None:
    reconfigured(written / "config.json", {field: value})
    with pytest.raises(WeightsError, match=rf"config\.json: .*{field.rpartition('.')[2]}"):
        folder.read(written, softmax=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"config\.json: not JSON \("),
        (b"\xff\xfe", r"config\.json: not JSON \("),
        (b"[1]", r"config\.json: expected a JSON object, found list"),
        (b"{}", r"config\.json: not the config of a biLM; expected 'lstm' and 'char_cnn'"),
    ],
)
def test_a_config_that_is_none(written: Path, content: bytes, message: str) -> None:
    (written / "config.json").write_bytes(content)
    with pytest.raises(WeightsError, match=message):
        folder.read(written)


# The tensors


@pytest.mark.parametrize("name", ["token_encoder.embedding", "lstms.1.bias", "lstms.0.weight_hidden"])
def test_a_missing_tensor_is_named(written: Path, name: str) -> None:
    edited(written / "model.safetensors", **{name.replace(".", "__"): None})
    message = (
        rf"model\.safetensors: no tensor '{re.escape(name)}'; config\.json asks for it\. Are they from one model\?"
    )
    with pytest.raises(WeightsError, match=message):
        folder.read(written)


def test_a_wrong_shape_is_named(written: Path) -> None:
    shape = tuple(load_file(written / "model.safetensors")["lstms.1.bias"].shape)
    edited(written / "model.safetensors", lstms__1__bias=torch.zeros(2, 5))
    message = f"'lstms.1.bias' has shape (2, 5); config.json needs {shape}. Are they from one model?"
    with pytest.raises(WeightsError, match=r"model\.safetensors: " + re.escape(message)):
        folder.read(written)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_value_that_is_no_number_is_found(written: Path, value: float) -> None:
    bias = load_file(written / "model.safetensors")["lstms.1.bias"].clone()
    bias[1, 3] = value
    edited(written / "model.safetensors", lstms__1__bias=bias)
    with pytest.raises(WeightsError, match=r"model\.safetensors: 'lstms\.1\.bias' contains NaN or infinity"):
        folder.read(written)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.05, 0.5, 0.999])
@pytest.mark.parametrize("name", ["model.safetensors", "warm_state.safetensors"])
def test_a_file_cut_short(written: Path, name: str, part: float) -> None:
    data = (written / name).read_bytes()
    (written / name).write_bytes(data[: int(part * len(data))])
    message = rf"{re.escape(name)}: damaged, or not safetensors \(.*\)\. Get the file again"
    with pytest.raises(WeightsError, match=message):
        folder.read(written)


@pytest.mark.parametrize("content", [b"hello", b"\x80\x04K\x01.", b"\xff" * 100, b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_not_safetensors(written: Path, content: bytes) -> None:
    (written / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.safetensors: damaged, or not safetensors"):
        folder.read(written)


def test_a_warm_state_of_another_model(written: Path) -> None:
    edited(written / "warm_state.safetensors", h=torch.zeros(2, 2, 1, 99))
    with pytest.raises(
        WeightsError, match=r"warm_state\.safetensors: 'h' has shape \(2, 2, 1, 99\); config\.json needs"
    ):
        folder.read(written)
    edited(written / "warm_state.safetensors", h=None)
    with pytest.raises(WeightsError, match=r"warm_state\.safetensors: no tensor 'h'"):
        folder.read(written)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", r"config\.json: cannot be read \(No such file or directory\)"),
        ("model.safetensors", r"model\.safetensors: no such file; a model folder contains config\.json and model"),
    ],
)
def test_a_missing_file_is_named(written: Path, name: str, message: str) -> None:
    (written / name).unlink()
    with pytest.raises(WeightsError, match=message):
        folder.read(written)


def test_a_vocabulary_that_cannot_be_read(written: Path) -> None:
    (written / "vocabulary.txt").write_text("the\n")
    with pytest.raises(DataError, match=r"vocabulary\.txt: <S>, </S>, <UNK> not among its 1 words"):
        folder.read(written)


# Folders that transformers wrote

BY_TRANSFORMERS = {
    "transformers_version": "5.22.2",
    "dtype": "float32",
    "id2label": {"0": "O", "1": "B-PER"},
    "label2id": {"O": 0, "B-PER": 1},
    "_name_or_path": "somewhere",
}


@pytest.mark.parametrize("max_bytes", [None, 2_000])
def test_a_folder_that_transformers_wrote_is_read(written: Path, max_bytes: int | None) -> None:
    expected = folder.read(written).bilm.state_dict()
    reconfigured(written / "config.json", BY_TRANSFORMERS)
    renamed = {f"bilm.{name}": tensor for name, tensor in load_file(written / "model.safetensors").items()}
    (written / "model.safetensors").unlink()
    more = {"classifier.weight": torch.ones(2, 3), "classifier.bias": torch.ones(2)}
    tensor_files.write_tensors(written / "model.safetensors", renamed | more, max_bytes)
    assert (written / "model.safetensors").exists() == (max_bytes is None)
    assert_same_state(folder.read(written).bilm.state_dict(), expected)


def test_a_prefix_does_not_hide_that_a_tensor_is_missing(written: Path) -> None:
    renamed = {f"bilm.{name}": tensor for name, tensor in load_file(written / "model.safetensors").items()}
    del renamed["bilm.lstms.0.bias"]
    save_file(renamed, written / "model.safetensors")
    with pytest.raises(WeightsError, match=r"model\.safetensors: no tensor 'lstms\.0\.bias'; config\.json asks for it"):
        folder.read(written)
