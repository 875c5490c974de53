"""Wherever a model is, the same model comes out; and a pickle is never read."""

import os
import pickle
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distributions import new_site
from elmo.errors import DataError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.lstm import LSTMConfig, State
from elmo.text.vocabulary import Vocabulary
from elmo.weights import archive, bilm_tf, folder, installed, published, source
from elmo.weights.folder import Pretrained
from models import assert_same_datasets, datasets, write_datasets, write_published
from models import published as files_of

OPTIONS, WEIGHTS = files_of("as published")
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat"]


def write_folder(place: Path) -> Path:
    """A model folder with all its files, made from the published ones."""
    bilm = bilm_tf.read(*write_published(place.with_name(f"{place.name}-published"), OPTIONS, WEIGHTS))
    generator = torch.Generator().manual_seed(0)
    state = State(*(torch.randn(part.shape, generator=generator) for part in bilm.zero_state(1)))
    folder.write(Pretrained(bilm, Vocabulary(WORDS), state), place)
    return place


def zipped(place: Path, target: Path, inside: str = "", compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(target, "w", compression) as archive:
        if inside:
            archive.mkdir(inside.rstrip("/"))
        for path in sorted(place.iterdir()):
            archive.write(path, f"{inside}{path.name}")
    return target


def assert_is_the_model(bilm: BiLM, place: Path) -> None:
    bilm_tf.write(bilm, place / "again.json", place / "again.hdf5")
    assert_same_datasets(datasets(place / "again.hdf5"), WEIGHTS)


def assert_is_whole(model: Pretrained, place: Path) -> None:
    assert_is_the_model(model.bilm, place)
    assert model.vocabulary is not None
    assert model.vocabulary.words == WORDS
    assert model.warm_state is not None
    assert model.warm_state.h.shape == (2, 2, 1, OPTIONS["lstm"]["projection_dim"])


# Where a model can be


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder(tmp_path: Path, kind: type) -> None:
    assert_is_whole(source.read(kind(write_folder(tmp_path / "model"))), tmp_path)


@pytest.mark.parametrize("inside", ["", "model/", "a/b/"])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_of_a_folder(tmp_path: Path, inside: str, compression: int) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "model.zip", inside, compression)
    assert_is_whole(source.read(path), tmp_path)


@pytest.mark.parametrize("name", ["", "elmo_2x4096"])
@pytest.mark.parametrize("inside", ["", "model/"])
def test_a_zip_of_published_files(tmp_path: Path, name: str, inside: str) -> None:
    write_published(tmp_path / "model", OPTIONS, WEIGHTS, name)
    (tmp_path / "model" / "readme.txt").write_text("not needed")
    path = zipped(tmp_path / "model", tmp_path / "model.zip", inside)
    assert_is_the_model(source.read(path).bilm, tmp_path)


def test_a_zip_by_any_name(tmp_path: Path) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "download")
    assert_is_whole(source.read(path), tmp_path)


def test_a_zip_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "model.zip")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    source.read(path)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_zip_that_points_out_of_itself_writes_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "model.zip", "../outside/")
    for name in ("temporary", "outside"):  # a place to land in
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary" / "outside").mkdir()
    assert_is_whole(source.read(path), tmp_path)
    assert list((tmp_path / "outside").iterdir()) == []
    assert list((tmp_path / "temporary" / "outside").iterdir()) == []


def test_a_zip_made_on_a_mac(tmp_path: Path) -> None:
    write_published(tmp_path / "model", OPTIONS, WEIGHTS)
    path = zipped(tmp_path / "model", tmp_path / "model.zip", "model/")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/model/._weights.hdf5", b"\x00\x05\x16\x07")
        archive.writestr("__MACOSX/model/._options.json", b"\x00\x05\x16\x07")
    assert_is_the_model(source.read(path).bilm, tmp_path)


def test_an_hdf5_with_its_options_beside_it(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    assert_is_the_model(source.read(weights).bilm, tmp_path)


def test_an_hdf5_with_the_options_of_its_name_beside_it(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS, "elmo_2x4096_512_2048cnn_2xhighway")
    assert options.name == "elmo_2x4096_512_2048cnn_2xhighway_options.json"
    (tmp_path / "options.json").write_text("those of another model")
    assert_is_the_model(source.read(weights).bilm, tmp_path)


def test_an_hdf5_with_options_elsewhere(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    moved = shutil.move(options, tmp_path / "elsewhere.json")
    assert_is_the_model(source.read(weights, options=moved).bilm, tmp_path)


@pytest.mark.parametrize("name", ["", "small"])
def test_a_folder_of_published_files(tmp_path: Path, name: str) -> None:
    write_published(tmp_path / "model", OPTIONS, WEIGHTS, name)
    assert_is_the_model(source.read(tmp_path / "model").bilm, tmp_path)


def test_an_h5_in_a_folder(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path / "model", OPTIONS, WEIGHTS)
    weights.rename(weights.with_suffix(".h5"))
    assert_is_the_model(source.read(tmp_path / "model").bilm, tmp_path)


def test_the_weights_are_found_beside_a_table(tmp_path: Path) -> None:
    write_published(tmp_path / "model", OPTIONS, WEIGHTS)
    write_table(tmp_path / "model" / "embedding.hdf5")
    assert_is_the_model(source.read(tmp_path / "model").bilm, tmp_path)


def test_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source.locate("~/model") == tmp_path / "model"


# Names


@pytest.fixture
def in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for packaged models, and an empty working folder."""
    (tmp_path / "packaged").mkdir()
    monkeypatch.setattr(installed, "PACKAGED", tmp_path / "packaged")
    new_site(tmp_path, monkeypatch)
    return tmp_path / "packaged"


def test_a_packaged_name(tmp_path: Path, in_the_package: Path) -> None:
    write_folder(in_the_package / "tiny")
    (in_the_package / "no-model").mkdir()
    assert list(installed.installed(installed.MODELS)) == ["tiny"]
    assert source.locate("tiny") == in_the_package / "tiny"
    assert_is_whole(source.read("tiny"), tmp_path)


def test_a_packaged_name_means_the_same_in_every_folder(in_the_package: Path) -> None:
    write_folder(in_the_package / "tiny")
    Path("tiny").mkdir()
    assert source.locate("tiny") == in_the_package / "tiny"
    assert source.locate("./tiny") == Path("tiny")
    assert source.locate(Path("tiny").absolute()) == Path("tiny").absolute()


def test_what_is_in_the_package_comes_before_what_must_be_fetched(in_the_package: Path) -> None:
    write_folder(in_the_package / "small")
    assert "small" in published.PUBLISHED
    assert source.locate("small") == in_the_package / "small"


def test_a_published_name_is_that_of_its_downloaded_files(
    tmp_path: Path, in_the_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_published(tmp_path / "cache", OPTIONS, WEIGHTS)
    monkeypatch.setattr(published, "fetch", lambda name: files if name == "small" else None)
    assert_is_the_model(source.read("small").bilm, tmp_path)


def test_a_hub_id_is_that_of_its_downloaded_folder(
    tmp_path: Path, in_the_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_folder(tmp_path / "snapshot")
    monkeypatch.setattr(published, "fetch_hub", lambda name: place if name == "owner/model" else None)
    assert_is_whole(source.read("owner/model"), tmp_path)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the Hub was asked for; it has every model."""
    place = write_folder(tmp_path / "snapshot")
    calls: list[tuple[str, ...]] = []

    def fetch_hub(*name: str) -> Path:
        calls.append(name)
        return place

    monkeypatch.setattr(published, "fetch_hub", fetch_hub)
    return calls


def test_a_prefix_always_means_the_hub(
    asked: list[Any], in_the_package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path("owner").mkdir()
    for name in ("hf:owner/model", "hf:owner/model@v1"):
        source.read(name)
    assert asked == [("owner/model", None), ("owner/model", "v1")]
    assert caplog.messages == []


def test_a_plain_hub_id_is_asked_for_aloud(
    asked: list[Any], in_the_package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.read("owner/model")
    assert asked == [("owner/model",)]
    assert caplog.messages == [
        "owner/model: not found here, asking the Hugging Face Hub; write hf:owner/model to say so"
    ]


@pytest.mark.parametrize(
    "name", ["run/model", "./missing", "../run/model", "~/model", "owner/model.h5", "a/b.safetensors"]
)
def test_a_missing_path_is_never_asked_for_on_the_hub(name: str, asked: list[Any], in_the_package: Path) -> None:
    Path("run").mkdir()
    with pytest.raises(WeightsError, match=rf"^{re.escape(name)}: no such file or folder, and no model of that name; "):
        source.read(name)
    assert asked == []


def test_a_path_is_never_a_hub_id(asked: list[Any], in_the_package: Path) -> None:
    with pytest.raises(WeightsError, match=r"^owner/model: no such file or folder"):
        source.read(Path("owner/model"))
    assert asked == []


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name(name: str, in_the_package: Path) -> None:
    with pytest.raises(WeightsError, match=r"^the name of the model is empty; expected a model folder, a zip of one"):
        source.read(name)


def test_a_folder_that_is_not_a_model(in_the_package: Path) -> None:
    with pytest.raises(WeightsError, match=r"^\.: contains neither config\.json nor an \.hdf5 file; expected config"):
        source.read(".")


def test_a_run_is_not_its_model(tmp_path: Path) -> None:
    write_folder(tmp_path / "run" / "model")
    (tmp_path / "run" / "run.json").write_text("{}")
    message = rf"^{re.escape(str(tmp_path))}/run: is the folder of a training run; its model is .*/run/model$"
    with pytest.raises(WeightsError, match=message):
        source.read(tmp_path / "run")
    source.read(tmp_path / "run" / "model")


def test_every_file_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    options.rename(tmp_path / "elsewhere.json")
    write_table(tmp_path / "table.h5")
    (tmp_path / "words.txt").write_text("\n".join(WORDS))
    monkeypatch.setenv("HOME", str(tmp_path))
    read = source.read(
        f"~/{weights.name}", options="~/elsewhere.json", token_embeddings="~/table.h5", vocabulary="~/words.txt"
    )
    assert read.vocabulary is not None
    assert read.vocabulary.words == WORDS


@pytest.mark.parametrize(
    "name", ["tinny", "missing.hdf5", "models/missing.hdf5", "models/missing.zip", "/no/such/place"]
)
def test_a_name_of_nothing(in_the_package: Path, name: str) -> None:
    write_folder(in_the_package / "tiny")
    message = (
        f"{name}: no such file or folder, and no model of that name; expected a model folder, a zip of one, an .hdf5 "
        "with its options beside it, hf:owner/name on the Hugging Face Hub, nlpl:VERSION/ID of the NLPL repository, or "
        "one of english-large, tiny, small, medium, original,"
    )
    with pytest.raises(WeightsError, match=f"^{re.escape(message)}"):
        source.read(name)


# Vocabularies and tables


def test_a_vocabulary_given_takes_the_place_of_the_folder_s(tmp_path: Path) -> None:
    words = [*WORDS, "dog"]
    Vocabulary(words).write(tmp_path / "words.txt")
    place = write_folder(tmp_path / "model")
    for path in (place, zipped(place, tmp_path / "model.zip")):
        model = source.read(path, vocabulary=tmp_path / "words.txt")
        assert model.vocabulary is not None
        assert model.vocabulary.words == words
        assert model.warm_state is not None


def write_table(path: Path, rows: int = len(WORDS)) -> Path:
    shape = (rows, OPTIONS["lstm"]["projection_dim"])
    table = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    path.parent.mkdir(exist_ok=True)
    return write_datasets(path, {"embedding": table})


def test_a_table_of_words(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    table = write_table(tmp_path / "table" / "table.hdf5")
    Vocabulary(WORDS).write(tmp_path / "words.txt")
    model = source.read(weights, token_embeddings=table, vocabulary=tmp_path / "words.txt")
    assert model.bilm.config.n_words == 5
    assert model.vocabulary is not None
    assert model.vocabulary.words == WORDS
    np.testing.assert_array_equal(
        model.bilm.token_encoder.embedding[1:].detach().numpy(),
        datasets(tmp_path / "table" / "table.hdf5")["embedding"],
    )
    with pytest.raises(WeightsError, match=r"table\.hdf5: this model reads word ids; give the file of its words"):
        source.read(weights, token_embeddings=table)
    Vocabulary(WORDS).write(tmp_path / "table" / "vocabulary.txt")  # beside the table
    assert source.read(weights, token_embeddings=table).vocabulary is not None
    Vocabulary([*WORDS, "dog"]).write(tmp_path / "words.txt")
    message = r"table\.hdf5: has rows for 5 words, the vocabulary 6 words"
    with pytest.raises(WeightsError, match=message):
        source.read(weights, token_embeddings=table, vocabulary=tmp_path / "words.txt")


def test_a_vocabulary_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"words\.txt: cannot be read \(No such file or directory\)"):
        source.read(write_folder(tmp_path / "model"), vocabulary=tmp_path / "words.txt")


def write_model_of_words(place: Path) -> None:
    options = {"lstm": OPTIONS["lstm"], "n_tokens_vocab": len(WORDS)}
    write_published(place, options, WEIGHTS | datasets(write_table(place.with_suffix(".hdf5"))))


def test_a_folder_of_a_model_of_words_needs_all_of_its_words(tmp_path: Path) -> None:
    """A word beyond the table would be looked up in it."""
    place = tmp_path / "model"
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(6, 3), None, n_words=len(WORDS)))
    folder.write(Pretrained(bilm, Vocabulary(WORDS)), place)
    assert source.read(place).vocabulary is not None
    message = rf"^{re.escape(str(place))}/config\.json: has rows for 5 words, the vocabulary 6 words$"
    Vocabulary([*WORDS, "dog"]).write(place / "vocabulary.txt")
    Vocabulary([*WORDS, "dog"]).write(tmp_path / "words.txt")
    for more in ({}, {"vocabulary": tmp_path / "words.txt"}):
        with pytest.raises(WeightsError, match=message):
            source.read(place, **more)
    (place / "vocabulary.txt").unlink()
    with pytest.raises(WeightsError, match=r"config\.json: this model reads word ids; give the file of its words with"):
        source.read(place)
    Vocabulary(WORDS).write(place / "vocab-2016.txt")
    assert source.read(place).vocabulary is not None


def test_a_zip_of_a_model_of_words_with_its_vocabulary_elsewhere(tmp_path: Path) -> None:
    write_model_of_words(tmp_path / "model")
    Vocabulary(WORDS).write(tmp_path / "words.txt")
    path = zipped(tmp_path / "model", tmp_path / "model.zip")
    model = source.read(path, vocabulary=tmp_path / "words.txt")
    assert model.vocabulary is not None
    assert model.vocabulary.words == WORDS


def test_a_zip_of_a_model_of_words_with_its_vocabulary_inside(tmp_path: Path) -> None:
    write_model_of_words(tmp_path / "model")
    Vocabulary(WORDS).write(tmp_path / "model" / "vocabulary.txt")
    model = source.read(zipped(tmp_path / "model", tmp_path / "model.zip"))
    assert model.vocabulary is not None
    assert model.vocabulary.words == WORDS


def test_a_zip_with_options_elsewhere(tmp_path: Path) -> None:
    options, _ = write_published(tmp_path / "model", OPTIONS, WEIGHTS)
    moved = shutil.move(options, tmp_path / "elsewhere.json")
    path = zipped(tmp_path / "model", tmp_path / "model.zip")
    assert_is_the_model(source.read(path, options=moved).bilm, tmp_path)


def test_a_zip_with_a_table_elsewhere(tmp_path: Path) -> None:
    write_published(tmp_path / "model", OPTIONS, WEIGHTS)
    Vocabulary(WORDS).write(tmp_path / "words.txt")
    path = zipped(tmp_path / "model", tmp_path / "model.zip")
    table = write_table(tmp_path / "table.hdf5")
    model = source.read(path, token_embeddings=table, vocabulary=tmp_path / "words.txt")
    assert model.bilm.config.n_words == 5


def test_the_softmax_of_a_zip_is_read_when_asked_for(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "model")
    again = folder.read(place).bilm
    with_softmax = BiLM(type(again.config)(again.config.lstm, again.config.char_cnn, n_softmax=5))
    folder.write(Pretrained(with_softmax), tmp_path / "softmax")
    path = zipped(tmp_path / "softmax", tmp_path / "softmax.zip")
    assert source.read(path).bilm.softmax is None
    whole = source.read(path, softmax=True).bilm
    assert whole.softmax is not None
    assert torch.equal(whole.softmax.weight, with_softmax.softmax.weight)


# Pickles


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


REFUSED = r"a Python pickle, which can run any code when it is read, so it is refused; expected model\.safetensors"


def test_the_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["model.pt", "model.hdf5", "model.zip", "pytorch_model.bin", "model"])
@pytest.mark.parametrize("new_format", [True, False])
def test_what_torch_saved_is_refused_and_not_read(tmp_path: Path, name: str, new_format: bool) -> None:
    write_published(tmp_path, OPTIONS, WEIGHTS)  # options lie beside it
    trap = Trap(tmp_path / "sprung")
    torch.save({"weight": torch.zeros(3), "trap": trap}, tmp_path / name, _use_new_zipfile_serialization=new_format)
    with pytest.raises(WeightsError, match=rf"{re.escape(name)}: {REFUSED}"):
        source.read(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", ["model.pkl", "weights.th", "weights.hdf5"])
def test_a_raw_pickle_is_refused_and_not_read(tmp_path: Path, name: str, protocol: int) -> None:
    write_published(tmp_path, OPTIONS, WEIGHTS)
    (tmp_path / name).write_bytes(pickle.dumps(Trap(tmp_path / "sprung"), protocol))
    # the oldest two have no mark to know them by, and are then no HDF5 either
    message = REFUSED if protocol >= 2 or not name.endswith(".hdf5") else "is not an HDF5 file"
    with pytest.raises(WeightsError, match=rf"{re.escape(name)}: {message}"):
        source.read(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "best.th", "vocabulary.pkl"])
def test_a_folder_with_nothing_but_a_pickle_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model").mkdir()
    torch.save(Trap(tmp_path / "sprung"), tmp_path / "model" / name)
    with pytest.raises(WeightsError, match=rf"{re.escape(name)}: {REFUSED}"):
        source.read(tmp_path / "model")
    assert not (tmp_path / "sprung").exists()


def test_a_folder_or_zip_with_a_config_and_a_pickle_is_refused(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "model")
    (place / "model.safetensors").unlink()
    torch.save(Trap(tmp_path / "sprung"), place / "pytorch_model.bin")
    for path in (place, zipped(place, tmp_path / "model.zip")):
        with pytest.raises(WeightsError, match=r"model\.safetensors: no such file; a model folder contains config"):
            source.read(path)
    assert not (tmp_path / "sprung").exists()


def test_a_pickle_called_safetensors_is_refused_and_not_read(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "model")
    (place / "model.safetensors").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(WeightsError, match=r"model\.safetensors: damaged, or not safetensors"):
        source.read(place)
    assert not (tmp_path / "sprung").exists()


# What else is refused


def test_two_hdf5_in_a_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_published(tmp_path / "model", OPTIONS, WEIGHTS, name)
    message = r"model: contains 2 \.hdf5 files; expected config\.json with model\.safetensors, or one \.hdf5"
    with pytest.raises(WeightsError, match=message):
        source.read(tmp_path / "model")


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(
        WeightsError, match=r"model: contains neither config\.json nor an \.hdf5 file; expected config\.json"
    ):
        source.read(tmp_path / "model")


def test_an_hdf5_without_options(tmp_path: Path) -> None:
    write_datasets(tmp_path / "my_weights.hdf5", WEIGHTS)
    message = r"my_weights\.hdf5: no options beside it; looked for my_options\.json and options\.json"
    with pytest.raises(WeightsError, match=message):
        source.read(tmp_path / "my_weights.hdf5")


def test_a_zip_without_a_model_names_the_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    with pytest.raises(WeightsError, match=rf"^{re.escape(str(tmp_path))}/model\.zip: contains neither config\.json"):
        source.read(tmp_path / "model.zip")


def test_a_zip_of_two_models(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name in ("one", "two"):
            archive.writestr(f"{name}/config.json", "{}")
    message = r"model\.zip: contains more than one config\.json; expected the archive of one model"
    with pytest.raises(WeightsError, match=message):
        source.read(tmp_path / "model.zip")


def test_what_is_wrong_inside_a_zip_is_said_of_the_zip(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "model")
    (place / "config.json").write_text('{"lstn": {}}')
    with pytest.raises(WeightsError, match=r"model\.zip/config\.json: unknown field 'lstn'; did you mean 'lstm'\?"):
        source.read(zipped(place, tmp_path / "model.zip"))


def test_a_wrong_vocabulary_inside_a_zip_is_said_of_the_zip(tmp_path: Path) -> None:
    place = write_folder(tmp_path / "model")
    (place / "vocabulary.txt").write_text("the\n")
    with pytest.raises(DataError, match=r"model\.zip/vocabulary\.txt: <S>, </S>, <UNK> not among its 1 words"):
        source.read(zipped(place, tmp_path / "model.zip"))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_damaged_in_the_middle(tmp_path: Path, compression: int) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "model.zip", compression=compression)
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo("model.safetensors").header_offset + 100
    data = bytearray(path.read_bytes())
    for place in range(begin, begin + 300, 3):  # each time another byte, so that every kind of damage is met
        broken = bytearray(data)
        broken[place] ^= 0xFF
        path.write_bytes(broken)
        with pytest.raises(WeightsError, match=r"model\.zip: model\.safetensors is damaged\. Get the file again"):
            source.read(path)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_zip_cut_short(tmp_path: Path, part: float) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "model.zip")
    data = path.read_bytes()
    path.write_bytes(data[: int(part * len(data))])
    with pytest.raises(WeightsError, match=r"model\.zip: .*(damaged|cut short)"):  # not "a Python pickle"
        source.read(path)


def test_a_zip_whose_directory_is_damaged(tmp_path: Path) -> None:
    path = zipped(write_folder(tmp_path / "model"), tmp_path / "model.zip")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02")] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"model\.zip: .*damaged"):
        source.read(path)


# Zips and configs made to do harm


def bomb(place: Path, name: str, size: int) -> Path:
    """The zip of a model, one of its files replaced by `size` spaces."""
    folder = write_folder(place / "model")
    (folder / name).write_bytes(b" " * size)
    return zipped(folder, place / "model.zip")


@pytest.mark.parametrize(("name", "limit"), [("config.json", 4_194_304), ("vocabulary.txt", 536_870_912)])
def test_a_file_that_is_too_large_is_not_unpacked(
    name: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path, name, 1000)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")  # the directory: the name is 46 bytes after the start of an entry, the size 24
    while data[at + 46 : at + 46 + len(name)] != name.encode():
        at = data.index(b"PK\x01\x02", at + 1)
    path.write_bytes(data[: at + 24] + (limit + 1).to_bytes(4, "little") + data[at + 28 :])
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # it is refused before
    with pytest.raises(WeightsError, match=rf"zip: {name} has {limit + 1:,} bytes; expected at most {limit:,}$"):
        source.read(path)


@pytest.mark.parametrize("name", ["vocabulary.txt", "model.safetensors"])
def test_a_file_that_compresses_too_well_is_not_unpacked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path, name, 1_000_000)
    monkeypatch.setattr(archive, "UNSUSPICIOUS", 999_999)
    with pytest.raises(WeightsError, match=rf"{name} has 1,000,000 bytes, compressed to 9\d\d; no model compresses so"):
        source.read(path)


def test_a_file_that_is_larger_than_the_zip_says_stops_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bomb(tmp_path, "config.json", 3_000_000)
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02")
    assert data[at + 46 : at + 57] == b"config.json"
    path.write_bytes(data[: at + 24] + (1000).to_bytes(4, "little") + data[at + 28 :])
    written: list[int] = []
    copy = shutil.copyfileobj

    def counted(packed: Any, file: Any) -> None:
        try:
            copy(packed, file)
        finally:
            written.append(file.tell())

    monkeypatch.setattr(shutil, "copyfileobj", counted)
    with pytest.raises(WeightsError, match=r"model\.zip: config\.json is damaged"):
        source.read(path)
    assert written[0] <= 1000


@pytest.mark.parametrize("kind", ["folder", "published", "zip"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{" + b" " * (4 << 20) + b"}", "has more than 4,194,304 bytes; expected the config or options of a model"),
        (b'{"lstm": ' + b"[" * 200_000, "is nested too deeply; expected the config or options of a model"),
        (b"[1]", "expected a JSON object, found list"),
    ],
)
def test_a_config_that_is_huge_or_deep_is_refused(content: bytes, message: str, kind: str, tmp_path: Path) -> None:
    if kind == "published":
        options, path = write_published(tmp_path, OPTIONS, WEIGHTS)
        options.write_bytes(content)
    else:
        path = write_folder(tmp_path / "model")
        (path / "config.json").write_bytes(content)
    if kind == "zip":
        path = zipped(path, tmp_path / "model.zip")
        if len(content) > 4 << 20:
            message = "expected at most 4,194,304"
    with pytest.raises(WeightsError, match=message):
        source.read(path)


def test_a_config_without_an_end(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    with pytest.raises(WeightsError, match=r"^/dev/zero: has more than 4,194,304 bytes"):
        source.read(weights, options="/dev/zero")


@pytest.mark.parametrize("given", ["options", "token_embeddings"])
def test_what_a_folder_would_ignore_is_refused(given: str, tmp_path: Path) -> None:
    place = write_folder(tmp_path / "model")
    with pytest.raises(WeightsError, match=r"model: has its own config\.json; options= and token_embeddings= are for"):
        source.read(place, **{given: tmp_path / "other"})
