"""`elmo convert`: there and back to the bit, token embeddings, and nothing overwritten."""

import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import elmo as library
from elmo.files import locked
from elmo.model.char_cnn import CharCNNConfig
from elmo.text.vocabulary import Vocabulary
from elmo.weights import source
from elmo.weights.folder import Pretrained
from embedders import (
    LINES,
    OPTIONS,
    REFERENCE,
    WEIGHTS,
    assert_all_close,
    assert_close,
    assert_refused,
    assert_same_bits,
    elmo,
    needs_small_disks,
    nothing_new_in,
    on_a_disk_of,
    write_model,
)
from models import VARIANTS, assert_same_datasets, datasets, published, write_published

CNN = CharCNNConfig(filters=((1, 16), (2, 32), (3, 64)))
WORDS = ["<S>", "</S>", "<UNK>", "cat", "naïve", "日本語", "unquestionably-overlong-word", "the"]


@pytest.mark.parametrize("variant", [*VARIANTS, *range(4)])
def test_hdf5_to_folder_to_hdf5_is_the_same_to_the_bit(variant: str | int, tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, *published(variant))
    there = elmo("convert", weights, tmp_path / "folder")
    assert (there.code, there.out) == (0, "")
    back = elmo("convert", tmp_path / "folder", tmp_path / "back" / "weights.hdf5")
    assert (back.code, back.out) == (0, "")
    assert_same_datasets(datasets(tmp_path / "back" / "weights.hdf5"), datasets(weights))
    parameters = f"{sum(array.size for array in datasets(weights).values()):,} parameters"
    assert there.err == f"{tmp_path / 'folder'}: {parameters}\n"
    assert back.err == f"{tmp_path / 'back' / 'weights.hdf5'} and options.json: {parameters}\n"
    before, after = (json.loads(path.read_text()) for path in (options, tmp_path / "back" / "options.json"))
    for section, optional in (("lstm", ("cell_clip", "proj_clip")), ("char_cnn", ("n_highway", "n_characters"))):
        for name in before[section].keys() - set(optional):
            assert after[section][name] == before[section][name]
        for name in set(optional) - {"n_characters"}:
            assert (after[section].get(name) or None) == (before[section].get(name) or None)


def test_half_the_size_and_nearly_the_same_vectors(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    assert elmo("convert", weights, tmp_path / "full").code == 0
    assert elmo("convert", tmp_path / "full", tmp_path / "half", "--float16").code == 0
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    full, half = (library.load(tmp_path / name, device="cpu") for name in ("full", "half"))
    for state in ("fresh", "warm"):
        for a, b in zip(full.embed(LINES, state=state), half.embed(LINES, state=state), strict=True):
            assert np.abs(a - b).max(initial=0.0) <= 2e-3 * np.abs(a).max(initial=1.0)


def a_language_model(place: Path) -> Path:
    """A folder with a softmax, and matrices large enough for int8 to pay."""
    torch.manual_seed(0)
    lstm = library.BiLMConfig.preset("small").lstm
    config = library.BiLMConfig(replace(lstm, dim=96, projection_dim=32), CNN, n_softmax=len(WORDS))
    library.Embedder(Pretrained(library.BiLM(config), Vocabulary(WORDS))).save(place)
    return place


def test_a_quarter_of_the_size_and_nearly_the_same_vectors(tmp_path: Path) -> None:
    model = a_language_model(tmp_path / "full")
    ended = elmo("convert", model, tmp_path / "int8", "--int8")
    assert (ended.code, ended.out) == (0, "")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "int8")]
    assert sizes[1] < 0.35 * sizes[0]
    full, int8 = (library.load(tmp_path / name, device="cpu", softmax=True) for name in ("full", "int8"))
    for state in ("fresh", "warm"):
        for a, b in zip(full.embed(LINES, state=state), int8.embed(LINES, state=state), strict=True):
            cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
            assert cosine.min(initial=1.0) > 0.999
    sentence = ["the", "cat", "xyzzy"]  # the softmax and the vocabulary came along
    np.testing.assert_allclose(int8.score(sentence).forward, full.score(sentence).forward, atol=0.02)
    assert [one.word for one in int8.substitutes(sentence, 1, n=1)]


@pytest.mark.parametrize("flag", ["--float16", "--int8"])
def test_the_warm_state_is_that_of_the_rounded_weights(flag: str, tmp_path: Path) -> None:
    """Not the one of the model before, which its folder has."""
    model = a_language_model(tmp_path / "full")
    assert elmo("convert", model, tmp_path / "small", flag).code == 0
    stored = source.read(tmp_path / "small")
    assert stored.warm_state is not None
    computed = library.Embedder(Pretrained(stored.bilm)).warm_state()
    exact = library.load(model, device="cpu").warm_state()
    for ours, again, before in zip(stored.warm_state, computed, exact, strict=True):
        np.testing.assert_allclose(ours.numpy(), again.numpy(), rtol=1e-6, atol=1e-7)
        assert not np.allclose(ours.numpy(), before.numpy(), rtol=1e-6, atol=1e-6)


def test_an_int8_folder_is_a_model_like_any_other(tmp_path: Path) -> None:
    """It can be converted to the published format, and to int8 again."""
    model = a_language_model(tmp_path / "full")
    for source_, output, *flag in (("full", "int8", "--int8"), ("int8", "p/weights.hdf5"), ("int8", "again", "--int8")):
        assert elmo("convert", tmp_path / source_, tmp_path / output, *flag).code == 0
    ours, published_, again = (
        list(library.load(tmp_path / name, device="cpu").embed(LINES)) for name in ("int8", "p/weights.hdf5", "again")
    )
    assert_same_bits(published_, ours)
    assert_all_close(again, ours)
    assert elmo("info", tmp_path / "int8").out.splitlines()[5] == "stored as   int8 and float32"
    assert elmo("info", tmp_path / "p" / "weights.hdf5").out.splitlines()[5] == "stored as   float32"
    assert model.exists()


@pytest.mark.parametrize("flag", ["--float16", "--int8"])
def test_rounding_has_no_place_in_the_published_format(flag: str, tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    output = tmp_path / "other" / "half.hdf5"
    with nothing_new_in(tmp_path):
        ended = elmo("convert", weights, output, flag)
    assert_refused(ended, f"{output}: the published format is float32; {flag.removeprefix('--')} is for a folder")
    with nothing_new_in(tmp_path):
        ended = elmo("convert", weights, tmp_path / "tokens.hdf5", flag, "--vocabulary", tmp_path / "words.txt")
    assert_refused(ended, f"{flag} is for a folder; token embeddings are float32. Leave out one of the options")


def test_one_type_at_a_time(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    with nothing_new_in(tmp_path):
        ended = elmo("convert", model, tmp_path / "small", "--float16", "--int8")
    assert_refused(ended, "--float16 and --int8 exclude each other; leave out one of them")


def test_a_converted_model_embeds_alike(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    elmo("convert", weights, tmp_path / "folder")
    elmo("convert", tmp_path / "folder", tmp_path / "small_weights.hdf5")
    assert (tmp_path / "small_options.json").exists()
    models = [weights, tmp_path / "folder", tmp_path / "small_weights.hdf5"]
    first, *others = ([*library.load(path, device="cpu").embed(LINES)] for path in models)
    for other in others:
        assert_same_bits(other, first)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("weights.hdf5", "options.json"),
        ("x_weights.hdf5", "x_options.json"),
        ("x.hdf5", "options.json"),
        ("weights.h5", "options.json"),
    ],
)
def test_the_options_lie_where_load_looks_for_them(name: str, options: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    assert elmo("convert", folder, tmp_path / name).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["model", name, options])
    assert library.load(tmp_path / name, device="cpu").dim == 10


def test_a_vocabulary_is_written_as_a_token_embedding_file(tmp_path: Path) -> None:
    folder, output = write_model(tmp_path / "model"), tmp_path / "embeddings.hdf5"
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    ended = elmo("convert", folder, output, "--vocabulary", tmp_path / "words.txt")
    assert ended == (0, "", f"{output}: 8 words of 5\n")
    with h5py.File(output) as file:
        assert list(file) == ["embedding"]
        assert file["embedding"].dtype == np.float32
        assert_close(file["embedding"][:], np.stack([REFERENCE.encode(word) for word in WORDS]))
    assert not (tmp_path / "options.json").exists()


def test_nothing_is_lost_of_a_word_table_either(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path / "published", OPTIONS, WEIGHTS)
    words, table = tmp_path / "words.txt", tmp_path / "table.hdf5"
    words.write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    assert elmo("convert", weights, table, "--vocabulary", words).code == 0
    model = library.load(weights, token_embeddings=table, vocabulary=words, device="cpu")
    model.save(tmp_path / "folder")
    assert elmo("convert", tmp_path / "folder", tmp_path / "back" / "weights.hdf5").code == 0
    sentences = [["the", "cat", "xyzzy"], ["naïve"]]
    wanted = list(model.embed(sentences))
    for path in (tmp_path / "folder", tmp_path / "back" / "weights.hdf5"):
        assert_same_bits(list(library.load(path, device="cpu").embed(sentences)), wanted)


def test_a_folder_that_exists_is_kept(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    (tmp_path / "taken").mkdir()
    with nothing_new_in(tmp_path):
        ended = elmo("convert", weights, tmp_path / "taken")
    assert_refused(ended, f"{tmp_path / 'taken'}: exists already; give another name, or remove it first")


@pytest.mark.parametrize("taken", ["weights.hdf5", "options.json"])
def test_published_files_that_exist_are_kept(taken: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (tmp_path / taken).write_text("mine")
    with nothing_new_in(tmp_path):
        ended = elmo("convert", folder, tmp_path / "weights.hdf5")
    assert_refused(ended, f"{tmp_path / taken}: exists already; give another name, or remove it first")
    assert (tmp_path / taken).read_text() == "mine"


def test_token_embeddings_that_exist_are_kept(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (tmp_path / "table.hdf5").write_text("mine")
    with nothing_new_in(tmp_path):
        ended = elmo("convert", folder, tmp_path / "table.hdf5", "--vocabulary", tmp_path / "words.txt")
    assert_refused(ended, f"{tmp_path / 'table.hdf5'}: exists already; give another name, or remove it first")


def test_token_embeddings_are_a_file(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    with nothing_new_in(tmp_path):
        ended = elmo("convert", folder, tmp_path / "table", "--vocabulary", tmp_path / "words.txt")
    assert_refused(ended, f"{tmp_path / 'table'}: token embeddings are an .hdf5 file; give a name that ends in .hdf5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"cat\n", "<S>, </S>, <UNK> not among its 1 words; a vocabulary begins with the lines <S>, </S>, <UNK>"),
        (b"<S>\n</S>\n<UNK>\ncat\ncat\n", "'cat' occurs more than once; expected one line per word"),
        (b"<S>\n</S>\n<UNK>\nna\xefve\n", "line 4 is not UTF-8 (byte 3 is 0xef); convert the file first"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(words: bytes | None, message: str, tmp_path: Path) -> None:
    folder, path = write_model(tmp_path / "model"), tmp_path / "words.txt"
    if words is not None:
        path.write_bytes(words)
    with nothing_new_in(tmp_path):
        ended = elmo("convert", folder, tmp_path / "table.hdf5", "--vocabulary", path)
    assert_refused(ended, f"{path}: {message}")


def test_options_and_weights_of_two_models_are_refused(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    wider = {**OPTIONS, "char_cnn": {**OPTIONS["char_cnn"], "filters": [[1, 4], [2, 3], [4, 6]]}}
    options.write_text(json.dumps(wider))
    with nothing_new_in(tmp_path):
        ended = elmo("convert", weights, tmp_path / "folder")
    assert_refused(
        ended,
        f"{weights}: 'CNN/W_cnn_2' has shape (1, 4, 3, 5); options.json filters[2] needs (1, 4, 3, 6). "
        "Are the two files from the same model?",
    )


@needs_small_disks
@pytest.mark.parametrize("output", ["folder", "weights.hdf5"])
def test_a_disk_that_is_really_full_is_one_line(output: str, tmp_path: Path) -> None:
    folder, disk = write_model(tmp_path / "model"), tmp_path / "disk"
    disk.mkdir()
    ended = on_a_disk_of("12k", disk, "convert", folder, disk / output)  # of 14 kB
    assert ended.out == ""
    assert_refused(ended, f"{disk / output}: the disk is full; nothing was written.")


@pytest.mark.parametrize("name", ["folder", "new.hdf5"])
def test_another_process_that_writes_the_output(name: str, tmp_path: Path) -> None:
    model, output = write_model(tmp_path / "model"), tmp_path / name
    with locked(output), nothing_new_in(tmp_path):
        ended = elmo("convert", model, output)
    assert_refused(ended, f"{output}: another process is writing it. Wait until it ends, or choose another name")
    assert elmo("convert", model, output).code == 0
