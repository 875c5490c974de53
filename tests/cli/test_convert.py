"""`elmo convert`: there and back to the bit, token embeddings, and nothing overwritten."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import elmo as library
from elmo.files import locked
from elmo.weights.folder import Pretrained
from embedders import (
    LINES,
    OPTIONS,
    REFERENCE,
    WEIGHTS,
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
    # The warm state is the one that the rounded weights give.
    rounded = library.Embedder(Pretrained(full.bilm.half().float()))
    for a, b in zip(rounded.warm_state(), half.warm_state(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-7)


def test_float16_has_no_place_in_the_published_format(tmp_path: Path) -> None:
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    result = elmo("convert", weights, tmp_path / "other" / "half.hdf5", "--float16")
    assert_refused(result, str(tmp_path / "other" / "half.hdf5"), "--float16 is for a folder")
    result = elmo("convert", weights, tmp_path / "tokens.hdf5", "--float16", "--vocabulary", tmp_path / "words.txt")
    assert_refused(result, "--float16 is for a folder; token embeddings are float32. Leave out one of the options")


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
