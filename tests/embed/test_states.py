"""`state="carried"`: the state goes from batch to batch as in bilm-tf, against its arrays and the reference."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import elmo
from embedders import (
    DIM,
    N_LAYERS,
    REFERENCE,
    assert_all_close,
    assert_close,
    assert_same_bits,
    embedder,
    warm_reference,
)
from embedders import elmo as elmo_command
from models import random_sentences
from reference_files import VARIANTS, needs_shared, reference

TOLERANCE = 5e-6  # against bilm-tf, which computed in float32
SENTENCES = random_sentences(np.random.default_rng(5), 16)


def batched(sentences: list[list[str]], size: int) -> list[list[list[str]]]:
    return [sentences[start : start + size] for start in range(0, len(sentences), size)]


def flat(arrays: Any) -> list[NDArray[np.float64]]:
    return [array for batch in arrays for array in batch]


# Carried


@pytest.mark.parametrize("batch_size", [1, 3, 5, 16, 64])
def test_each_row_goes_on_where_it_ended_also_after_a_smaller_batch(batch_size: int) -> None:
    ours = list(embedder().embed(SENTENCES, state="carried", batch_size=batch_size))
    assert_all_close(ours, flat(REFERENCE.carried(batched(SENTENCES, batch_size))))


def test_state_is_carried_across_calls_of_any_size_until_it_is_reset() -> None:
    model = embedder()
    pieces = [SENTENCES[:5], SENTENCES[5:6], [], SENTENCES[6:13], SENTENCES[13:]]
    sizes = [3, 4, 2, 7, 2]  # the third call is empty, the fourth has more rows than any before
    batches = [batch for piece, size in zip(pieces, sizes, strict=True) for batch in batched(piece, size)]
    assert [len(batch) for batch in batches] == [3, 2, 1, 7, 2, 1]

    def read() -> list[NDArray[Any]]:
        return [
            array
            for piece, size in zip(pieces, sizes, strict=True)
            for array in model.embed(piece, state="carried", batch_size=size)
        ]

    wanted = flat(REFERENCE.carried(batches))
    assert_all_close(read(), wanted)
    twice = flat(REFERENCE.carried(batches * 2))[len(SENTENCES) :]
    assert_all_close(read(), twice)
    assert max(np.abs(one - other).max(initial=0) for one, other in zip(wanted, twice, strict=True)) > 1e-3
    model.reset_state()
    assert_all_close(read(), wanted)


def test_a_carried_state_is_nobody_elses() -> None:
    model = embedder()
    list(model.embed(SENTENCES[:4], state="carried", batch_size=2))
    for state, start in (("fresh", None), ("warm", warm_reference())):
        for array, sentence in zip(model.embed(SENTENCES, state=state), SENTENCES, strict=True):
            assert_close(array, REFERENCE.layers(sentence, start)[0])
    after = list(model.embed(SENTENCES[4:6], state="carried", batch_size=2))
    assert_all_close(after, flat(REFERENCE.carried(batched(SENTENCES[:6], 2)))[4:])


def test_layers_and_types_are_chosen_after_the_state() -> None:
    every = list(embedder().embed(SENTENCES, state="carried", batch_size=3))
    top = list(embedder().embed(SENTENCES, "top", dtype="float16", state="carried", batch_size=3))
    assert_same_bits(top, [array[-1].astype(np.float16) for array in every])


def test_an_empty_sentence_moves_the_state_on_by_its_boundaries() -> None:
    sentences = [["the"], [], ["cat", "sat"]]
    ours = list(embedder().embed(sentences, state="carried", batch_size=1))
    assert ours[1].shape == (N_LAYERS, 0, DIM)
    assert_all_close(ours, flat(REFERENCE.carried(batched(sentences, 1))))


# Carried, against bilm-tf


@needs_shared
def test_the_top_layer_of_ten_batches_of_three_is_that_of_bilm_tf() -> None:
    folder = reference("bilm-tf")
    lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    interleaved = [sentence.split() for batch in zip(*lists, strict=True) for sentence in batch]
    model = elmo.load(folder / "lm_weights.hdf5", device="cpu")
    assert_ten_batches(list(model.embed(interleaved, "top", state="carried", batch_size=3)))


@needs_shared
def test_ten_batches_of_three_are_those_of_bilm_tf_in_token_mode(tmp_path: Path) -> None:
    folder = reference("bilm-tf")
    lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    interleaved = [sentence.split() for batch in zip(*lists, strict=True) for sentence in batch]
    model = in_token_mode(folder / "lm_weights.hdf5", interleaved, tmp_path)
    assert_ten_batches(list(model.embed(interleaved, "top", state="carried", batch_size=3)))


def assert_ten_batches(arrays: list[NDArray[Any]]) -> None:
    assert len(arrays) == 30
    for number, array in enumerate(arrays):
        with h5py.File(reference("bilm-tf") / f"lm_embeddings_{number % 3}.hdf5") as file:
            forward, backward = file[str(number // 3)][:]
        assert_close(array, np.concatenate([forward, backward], axis=-1), TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("mode", ["characters", "tokens"])
def test_every_layer_of_a_variant_is_that_of_bilm_tf(name: str, mode: str, tmp_path: Path) -> None:
    folder = reference(f"variants/{name}")
    batches = json.loads((folder / "batches.json").read_text())
    assert {len(batch) for batch in batches} == {1, 3}
    model = (
        elmo.load(folder / "weights.hdf5", device="cpu")
        if mode == "characters"
        else in_token_mode(folder / "weights.hdf5", [sentence for batch in batches for sentence in batch], tmp_path)
    )
    with h5py.File(folder / "expected.hdf5") as file:
        carried = [[file[f"carried/{n}/{row}"][:] for row in range(len(batch))] for n, batch in enumerate(batches)]
        alone = [file[f"fresh/{n}/{row}"][:] for n, batch in enumerate(batches) for row in range(len(batch))]
    for batch, wanted in zip(batches, carried, strict=True):
        assert_all_close(list(model.embed(batch, state="carried", batch_size=3)), wanted, TOLERANCE)
    assert_all_close(list(model.embed([sentence for batch in batches for sentence in batch])), alone, TOLERANCE)


def in_token_mode(weights: Path, sentences: list[list[str]], folder: Path) -> elmo.Embedder:
    """The model with its words' vectors in a file that the command wrote."""
    distinct = dict.fromkeys(["<S>", "</S>", "<UNK>", *(word for sentence in sentences for word in sentence)])
    words, table = folder / "words.txt", folder / "embeddings.hdf5"
    words.write_text("".join(f"{word}\n" for word in distinct), encoding="utf-8")
    assert elmo_command("convert", weights, table, "--vocabulary", words).code == 0
    model = elmo.load(weights, token_embeddings=table, vocabulary=words, device="cpu")
    assert model.config.char_cnn is None
    assert model.config.n_words == len(distinct)
    return model
