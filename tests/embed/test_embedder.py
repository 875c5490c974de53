"""`Embedder` with every sentence from zeros, against the NumPy reference; tokens, ids, pooling, memory, refusals."""

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sacremoses import MosesTokenizer

import elmo
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.model.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from elmo.weights.folder import Pretrained
from embedders import (
    DIM,
    N_LAYERS,
    OPTIONS,
    REFERENCE,
    WEIGHTS,
    assert_close,
    assert_same_bits,
    embedder,
    environment,
    fresh,
    pretrained,
    write_model,
)
from models import VARIANTS, WORDS, random_sentences, small, write_datasets, write_published
from numpy_reference import Reference, random_weights

WORD_BYTES = 4 * DIM // 2  # of one vector in the cache
SENTENCES = random_sentences(np.random.default_rng(1), 30)
VOCABULARY = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "naïve"]


@cache
def expected(sentence: tuple[str, ...]) -> NDArray[np.float64]:
    return fresh(sentence)


def assert_fresh(arrays: list[NDArray[Any]], sentences: list[list[str]], tolerance: float = 1e-5) -> None:
    assert len(arrays) == len(sentences)
    for array, sentence in zip(arrays, sentences, strict=True):
        assert_close(array, expected(tuple(sentence)), tolerance)


@pytest.fixture(scope="module")
def model() -> elmo.Embedder:
    return embedder()


# What comes out


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "both clips of 3"])  # that one: in float64
def test_every_variant_gives_what_the_reference_gives(variant: str, tmp_path: Path) -> None:
    bilm, reference = small(tmp_path, variant)
    sentences = random_sentences(np.random.default_rng(2), 8, longest=6)
    arrays = list(elmo.Embedder(Pretrained(bilm)).embed(sentences, batch_tokens=20))
    assert len(arrays) == len(sentences)
    for array, sentence in zip(arrays, sentences, strict=True):
        assert array.dtype == np.float32
        assert_close(array, reference.layers(sentence)[0])


def test_words_enter_a_word_table_by_their_row() -> None:
    vocabulary, bilm, reference = word_table()
    model = elmo.Embedder(Pretrained(bilm, vocabulary))
    sentences = [["the", "cat", "xyzzy"], ["<S>", "naïve", "<UNK>", "</S>"], []]
    for array, sentence in zip(model.embed(sentences), sentences, strict=True):
        assert_close(array, reference.layers(sentence)[0])


def word_table() -> tuple[Vocabulary, BiLM, Reference]:
    """The small model, its characters replaced by a table of random vectors."""
    rows = random_weights(OPTIONS, np.random.default_rng(3), vocabulary_size=len(VOCABULARY))["embedding"]
    model = embedder().bilm
    bilm = BiLM(elmo.BiLMConfig(model.config.lstm, None, n_words=len(VOCABULARY)))
    lstms = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("lstms.")}
    no_token = np.zeros((1, DIM // 2), np.float32)
    bilm.load_state_dict({**lstms, "token_encoder.embedding": torch.from_numpy(np.concatenate([no_token, rows]))})
    return Vocabulary(VOCABULARY), bilm, Reference(OPTIONS, {**WEIGHTS, "embedding": rows}, VOCABULARY)


def test_raw_text_is_tokenised_as_moses_does_and_lists_are_taken_as_they_are(model: elmo.Embedder) -> None:
    text = "He can't play (the guitar), \"isn't it?\" U.S. 1,000."
    moses = MosesTokenizer(lang="en").tokenize(text, escape=False)
    assert len(moses) > len(text.split())
    raw, split, tokens = model.embed([text, text.split(), tuple(moses)])
    assert_close(raw, fresh(moses))
    assert_close(split, fresh(text.split()))
    assert_close(raw, tokens)


def test_another_default_device_changes_nothing(model: elmo.Embedder) -> None:
    with torch.device("meta"):  # tensors that are made without a device have no values there
        arrays = list(model.embed([["cat"], [], ["the", "cat"]]))
    assert_fresh(arrays, [["cat"], [], ["the", "cat"]])


def test_an_empty_sentence_has_no_tokens(model: elmo.Embedder) -> None:
    for empty in ([], "", "  \t "):
        (array,) = model.embed([empty])
        assert (array.shape, array.dtype) == ((N_LAYERS, 0, DIM), np.float32)
        (top,) = model.embed([empty], layers="top", dtype="float16")
        assert (top.shape, top.dtype) == ((0, DIM), np.float16)


def test_no_sentences_give_no_arrays(model: elmo.Embedder) -> None:
    assert list(model.embed([])) == []


def test_the_order_is_that_of_the_sentences_whatever_their_lengths(model: elmo.Embedder) -> None:
    for sentences in (SENTENCES, sorted(SENTENCES, key=len), SENTENCES[::-1]):
        assert_fresh(list(model.embed(sentences, batch_tokens=25)), sentences)


def test_a_boundary_in_the_text_has_the_boundarys_characters(model: elmo.Embedder) -> None:
    (array,) = model.embed([["<S>", "</S>", "<s>", "<UNK>"]])
    assert_close(array, fresh(["<S>", "</S>", "<s>", "<UNK>"]))
    assert_close(array[0, 0, : DIM // 2], REFERENCE.encode("<S>"))
    assert np.abs(array[0, 0] - array[0, 2]).max() > 0.1


@pytest.mark.parametrize("layers", ["top", "average", 0, 1, 2, "1", [0.2, -0.5, 1.3]])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layers_are_what_all_of_them_give(model: elmo.Embedder, layers: Any, dtype: str) -> None:
    weights = {"top": [0, 0, 1], "average": [1 / 3] * 3, 0: [1, 0, 0], 1: [0, 1, 0], 2: [0, 0, 1], "1": [0, 1, 0]}
    by = np.array(weights.get(layers) if isinstance(layers, str | int) else layers)
    for array, sentence in zip(model.embed(SENTENCES, layers, dtype=dtype), SENTENCES, strict=True):
        assert array.dtype == dtype
        wanted = np.tensordot(by, expected(tuple(sentence)), axes=1)
        assert_close(array, wanted, 1e-5 if dtype == "float32" else 1e-5 + 2**-11 * np.abs(wanted).max(initial=1))


@pytest.mark.parametrize("kernels", ["packed", "int8", "reference"])
@pytest.mark.parametrize(("layers", "lstms"), [(0, 0), (1, 1), ([0.5, -1.0, 0.0], 1), ("top", 2), ("all", 2)])
def test_lstms_above_the_layers_that_are_asked_for_are_not_run(kernels: str, layers: Any, lstms: int) -> None:
    """Those with NaN in them would give NaN."""
    whole, spoiled = (embedder(precision="int8" if kernels == "int8" else "float32") for _ in range(2))
    for model in (whole, spoiled):
        model.bilm.reference = kernels == "reference"
    for lstm in spoiled.bilm.lstms[lstms:]:
        lstm.weight_hidden.fill_(np.nan)
    for sentences in (SENTENCES, SENTENCES[:1]):  # one sentence is computed in its own way
        assert_same_bits(list(spoiled.embed(sentences, layers)), list(whole.embed(sentences, layers)))
    if lstms < 2:
        assert np.isnan(next(spoiled.embed([["x"]], lstms + 1))).any()


def test_half_precision_rounds_the_single_one(model: elmo.Embedder) -> None:
    single, half = model.embed(SENTENCES), model.embed(SENTENCES, dtype="float16")
    assert_same_bits(list(half), [array.astype(np.float16) for array in single])


@pytest.mark.parametrize("batch_tokens", [1, 2, 7])
def test_a_budget_smaller_than_a_sentence_is_a_batch_of_one(model: elmo.Embedder, batch_tokens: int) -> None:
    assert_fresh(list(model.embed(SENTENCES, batch_tokens=batch_tokens)), SENTENCES)


def test_an_array_may_be_changed_without_harm(model: elmo.Embedder) -> None:
    arrays = model.embed([["the", "cat"]] * 3)
    next(arrays)[...] = 0
    assert_fresh(list(arrays), [["the", "cat"]] * 2)


# A stream


class Counted:
    """An endless stream of sentences of three words, and how many were taken from it."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[list[str]]:
        for sentence in itertools.cycle([["the", "cat", "sat"], ["on", "a", "mat"]]):
            self.taken += 1
            yield sentence


def test_an_endless_stream_is_read_a_window_at_a_time(model: elmo.Embedder) -> None:
    stream = Counted()
    arrays = model.embed(stream, batch_tokens=50)
    assert stream.taken == 0
    first = list(itertools.islice(arrays, 5))
    assert_fresh(first, list(itertools.islice(Counted(), 5)))
    windows = -(-torch.get_num_threads() // 4)  # at once
    for given_back in range(6, 300):
        next(arrays)
        # four batches of 50 tokens, three to a sentence
        assert stream.taken - given_back <= windows * (4 * 50 / 3 + 1)


def test_many_threads_read_no_more_than_two_large_windows(
    model: elmo.Embedder, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(32)
    stream = Counted()
    first = list(itertools.islice(model.embed(stream, batch_tokens=50), 5))
    assert_fresh(first, list(itertools.islice(Counted(), 5)))
    assert stream.taken <= 2 * (4 * 50 / 3 + 1)


def test_an_endless_stream_of_empty_sentences_is_read_a_window_at_a_time(model: elmo.Embedder) -> None:
    taken = itertools.count()

    def stream() -> Iterator[list[str]]:
        while next(taken) < 100_000:
            yield []
        raise AssertionError("a stream without a token was read without end")

    for array in itertools.islice(model.embed(stream(), batch_tokens=50), 5):
        assert array.shape == (N_LAYERS, 0, DIM)


def test_an_endless_stream_is_read_a_batch_at_a_time_where_state_is_carried(model: elmo.Embedder) -> None:
    stream = Counted()
    arrays = model.embed(stream, state="carried", batch_size=4)
    assert stream.taken == 0
    for given_back in range(1, 12):
        next(arrays)
        assert stream.taken == -(-given_back // 4) * 4
    model.reset_state()


# The sentence alone decides


CALL = st.tuples(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), max_size=8), st.integers(1, 60))


@settings(deadline=None, max_examples=60)
@given(
    made=st.lists(CALL, min_size=1, max_size=3),
    capacity=st.sampled_from([0, 1, 3, 6, 1000]),
    random=st.randoms(use_true_random=False),
)
def test_neighbours_order_budget_and_cache_change_nothing(
    model: elmo.Embedder, made: list[tuple[list[list[str]], int]], capacity: int, random: Random
) -> None:
    remembering = elmo.Embedder(Pretrained(model.bilm), cache_bytes=capacity * WORD_BYTES)
    for sentences, budget in made:
        assert_fresh(list(remembering.embed(sentences, batch_tokens=budget)), sentences)
        assert len(remembering.cache) <= capacity
        shuffled = random.sample(sentences, len(sentences))
        assert_fresh(list(remembering.embed(shuffled, batch_tokens=61 - budget)), shuffled)


@pytest.mark.parametrize("cache_bytes", [0, 4 * WORD_BYTES, 1 << 20])
def test_the_same_calls_give_the_same_bits_in_a_fresh_embedder(cache_bytes: int) -> None:
    def arrays() -> list[NDArray[Any]]:
        model = embedder(cache_bytes=cache_bytes)
        return [
            *model.embed(SENTENCES, batch_tokens=40),
            *model.embed(SENTENCES[::-1], "average", batch_tokens=17, dtype="float16"),
            *model.embed(SENTENCES, state="warm"),
            *model.encode(SENTENCES, "max"),
        ]

    assert_same_bits(arrays(), arrays())


def test_the_same_program_gives_the_same_bits_from_run_to_run(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    program = (
        "import hashlib, sys, elmo\n"
        "sentences = [line.split() for line in sys.stdin]\n"
        "model = elmo.load(sys.argv[1], device='cpu', cache_bytes=200)\n"
        "arrays = [*model.embed(sentences, batch_tokens=30), *model.embed(sentences, 'average', dtype='float16')]\n"
        "print(hashlib.sha256(b''.join(array.tobytes() for array in arrays)).hexdigest())"
    )
    text = "\n".join(" ".join(word for word in sentence if word.split()) for sentence in SENTENCES)
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, str(folder)],
            input=text,
            capture_output=True,
            encoding="utf-8",
            env=environment(PYTHONHASHSEED=seed, PYTHONUTF8="1"),
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == len(hashlib.sha256().hexdigest())


# One vector per sentence


def pooled(array: NDArray[Any], pooling: str) -> NDArray[Any]:
    """(T, 2D) ─▶ (2D,), token by token."""
    if not len(array):
        return np.zeros(DIM)
    half = DIM // 2
    return {
        "mean": sum(array) / len(array),
        "max": np.array([max(column) for column in array.T]),
        "first-last": np.array([*array[-1][:half], *array[0][half:]]),
    }[pooling]


@pytest.mark.parametrize("pooling", ["mean", "max", "first-last"])
@pytest.mark.parametrize("layers", ["average", "top", 0, [0.5, 0.25, 0.25]])
def test_padding_is_never_counted(model: elmo.Embedder, pooling: str, layers: Any) -> None:
    vectors = model.encode(SENTENCES, pooling, layers)
    assert (vectors.shape, vectors.dtype) == ((len(SENTENCES), DIM), np.float32)
    weights = {"average": [1 / 3] * 3, "top": [0, 0, 1], 0: [1, 0, 0]}
    by = np.array(weights.get(layers) if isinstance(layers, str | int) else layers)
    for vector, sentence in zip(vectors, SENTENCES, strict=True):
        assert_close(vector, pooled(np.tensordot(by, expected(tuple(sentence)), axes=1), pooling))
        assert_close(vector, model.encode([sentence], pooling, layers)[0])
    assert [] in SENTENCES  # zeros, and counted


def test_normalised_vectors_have_length_one_and_empty_sentences_none(model: elmo.Embedder) -> None:
    plain, normal = model.encode(SENTENCES), model.encode(SENTENCES, normalize=True)
    for before, after, sentence in zip(plain, normal, SENTENCES, strict=True):
        length = sum(float(value) ** 2 for value in before) ** 0.5
        assert_close(after * length, before)
        assert np.isclose(sum(float(value) ** 2 for value in after), 1.0 if sentence else 0.0, atol=1e-5)


def test_encoding_begins_in_the_state_it_is_told(model: elmo.Embedder) -> None:
    warm = [pooled(array, "mean") for array in model.embed(SENTENCES, "average", state="warm")]
    assert_close(model.encode(SENTENCES, state="warm"), np.stack(warm))
    assert np.abs(model.encode(SENTENCES, state="warm") - model.encode(SENTENCES)).max() > 1e-3


def test_nothing_encoded_is_no_rows(model: elmo.Embedder) -> None:
    assert model.encode([]).shape == (0, DIM)
    assert model.encode([], normalize=True).shape == (0, DIM)


def test_several_vectors_a_sentence_are_refused(model: elmo.Embedder) -> None:
    with pytest.raises(ConfigError, match=r"^encode\(\) returns one vector per sentence; layers='all' gives several"):
        model.encode(["x"], layers="all")


def test_an_unknown_pooling_is_refused(model: elmo.Embedder) -> None:
    with pytest.raises(ConfigError, match=r"^pooling is 'cls'; expected one of mean, max, first-last, sif; or a "):
        model.encode(["x"], "cls")


# Tokens, ids, token vectors


def test_tokens_know_where_they_stood(model: elmo.Embedder) -> None:
    text = "  Raw text isn't tokenised; naïve 🙂 (yes). "
    tokens = model.tokens(text)
    assert [token.text for token in tokens] == MosesTokenizer(lang="en").tokenize(text, escape=False)
    assert [text[token.start : token.end] for token in tokens] == [token.text for token in tokens]
    assert [token.start for token in tokens] == sorted({token.start for token in tokens})


def test_ids_make_the_bilm_and_elmo_give_what_embed_gives(model: elmo.Embedder) -> None:
    sentences = [*SENTENCES, "A raw one, isn't it?"]
    words = [*SENTENCES, [token.text for token in model.tokens("A raw one, isn't it?")]]
    assert_ids_give_what_embed_gives(model, sentences, words)


def test_ids_of_a_word_table_do_so_too() -> None:
    vocabulary, bilm, _ = word_table()
    sentences = [["the", "cat", "xyzzy"], [], ["<S>", "naïve", "<UNK>", "</S>"], ["sat"]]
    assert_ids_give_what_embed_gives(elmo.Embedder(Pretrained(bilm, vocabulary)), sentences, sentences)


def assert_ids_give_what_embed_gives(model: elmo.Embedder, sentences: list[Any], words: list[list[str]]) -> None:
    ids = model.ids(sentences)
    assert ids.shape[:2] == (len(words), max(map(len, words)) + 2)
    layers = model.bilm(ids)[0].without_boundaries()
    mixed = elmo.Elmo(model.bilm, mix="average").eval()(ids)
    rows = zip(model.embed(sentences), model.embed(sentences, "average"), words, strict=True)
    for row, (every, average, sentence) in enumerate(rows):
        n = len(sentence)
        assert layers.mask[row].tolist() == mixed.mask[row].tolist() == [k < n for k in range(ids.shape[1] - 2)]
        assert_close(layers.activations[:, row, :n].numpy(), every)
        assert_close(mixed.representations[0][row, :n].detach().numpy(), average)


def test_token_vectors_are_those_of_the_reference(model: elmo.Embedder) -> None:
    vectors = model.token_vectors(WORDS)
    assert_close(vectors, np.stack([REFERENCE.encode(word) for word in WORDS]))
    assert vectors.dtype == np.float32


def test_more_words_than_pass_the_encoder_together_have_their_own_vectors(model: elmo.Embedder) -> None:
    words = [f"w{number}" for number in range(1100)]
    vectors = model.token_vectors(words)
    for number in (0, 1, 1023, 1024, 1025, 1099):
        assert_close(vectors[number], REFERENCE.encode(words[number]))


def test_no_words_have_no_vectors(model: elmo.Embedder) -> None:
    assert model.token_vectors([]).shape == (0, DIM // 2)


# Loading, and what is refused


def test_load_reads_the_options_it_is_told(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    elsewhere = tmp_path / "elsewhere" / "small.json"
    elsewhere.parent.mkdir()
    options.rename(elsewhere)
    with pytest.raises(ElmoError, match="no options beside it"):
        elmo.load(weights)
    assert_fresh(list(elmo.load(weights, options=elsewhere, device="cpu").embed(SENTENCES)), SENTENCES)


def test_load_reads_token_embeddings_and_their_vocabulary(tmp_path: Path) -> None:
    _, bilm, reference = word_table()
    _, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    rows = bilm.token_encoder.embedding[1:].detach().numpy()
    table = write_datasets(tmp_path / "table.hdf5", {"embedding": rows})
    (tmp_path / "words.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    model = elmo.load(weights, token_embeddings=table, vocabulary=tmp_path / "words.txt", device="cpu")
    for sentence in (["the", "cat", "xyzzy"], []):
        assert_close(next(model.embed([sentence])), reference.layers(sentence)[0])


@pytest.mark.parametrize("cache_bytes", [0, 3 * WORD_BYTES])
def test_load_bounds_the_cache(tmp_path: Path, cache_bytes: int) -> None:
    model = elmo.load(write_model(tmp_path / "model"), device="cpu", cache_bytes=cache_bytes)
    assert_fresh(list(model.embed([["<S>"], []] * 3, batch_tokens=1)), [["<S>"], []] * 3)
    assert len(model.cache) == (2 if cache_bytes else 0)


def test_the_model_knows_its_sizes(model: elmo.Embedder) -> None:
    assert (model.n_layers, model.dim) == (N_LAYERS, DIM)
    assert not any(parameter.requires_grad for parameter in model.bilm.parameters())


def test_it_says_what_it_is(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    rest = f"3 layers of {DIM}, 3,614 parameters"
    assert sum(weight.size for weight in WEIGHTS.values()) == 3614
    assert repr(elmo.load(folder, device="cpu")) == f"Embedder({str(folder)!r}, {rest}, float32 on cpu)"
    assert repr(embedder(precision="bfloat16")) == f"Embedder({rest}, bfloat16 on cpu)"
    assert elmo.load(folder, device="cpu").name == str(folder)
    assert embedder().name is None


def test_it_is_moved_to_a_device() -> None:
    model = embedder()
    before = list(model.embed(SENTENCES, state="carried", batch_size=4))
    assert model.to("cpu") is model
    assert model.to(torch.device("cpu")).device == torch.device("cpu")
    assert_fresh(list(model.embed(SENTENCES)), SENTENCES)
    again = embedder()
    assert_same_bits(list(again.embed(SENTENCES, state="carried", batch_size=4)), before)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta"])
def test_it_is_not_moved_to_a_device_that_is_not_there(device: str, model: elmo.Embedder) -> None:
    with pytest.raises(ConfigError) as error:
        model.to(device)
    assert str(error.value).startswith(f"device {device!r} is not available; on this machine: auto, cpu")
    assert_fresh(list(model.embed(SENTENCES)), SENTENCES)


def test_errors_have_public_names() -> None:
    assert (elmo.ElmoError, elmo.ConfigError, elmo.DataError) == (ElmoError, ConfigError, DataError)
    assert issubclass(elmo.WeightsError, elmo.ElmoError)


def test_bfloat16_is_near_single_precision(model: elmo.Embedder) -> None:
    brief = embedder(precision="bfloat16")
    worst = 0.0
    for array, sentence in zip(brief.embed(SENTENCES), SENTENCES, strict=True):
        assert array.dtype == np.float32
        worst = max(worst, float(np.abs(array - expected(tuple(sentence))).max(initial=0)))
    largest = max(float(np.abs(expected(tuple(sentence))).max(initial=0)) for sentence in SENTENCES)
    print(f"largest difference: {worst:.1e} of values up to {largest:.1f}")  # pytest -rP shows it
    assert 1e-4 < worst < 0.02 * largest


def test_one_string_is_not_a_list_of_sentences(model: elmo.Embedder) -> None:
    for take in (model.embed, model.encode):
        with pytest.raises(DataError, match=r"^expected a list of sentences, found one string; write \[text\]$"):
            take("A sentence.")
    with pytest.raises(DataError, match="found one string"):
        model.ids("A sentence.")


def test_mistakes_are_refused_before_a_sentence_is_read(model: elmo.Embedder) -> None:
    stream = Counted()
    for wrong, message in [
        ({"state": "cold"}, "state is 'cold'; expected one of fresh, carried, warm"),
        ({"dtype": "float8"}, "dtype is 'float8'; expected one of float32, float16"),
        ({"layers": 7}, "layers is 7; this model has 3: expected all, top, average, 0 to 2, or a list of 3 weights"),
        ({"batch_tokens": 0}, "batch_tokens is 0; expected 1 or more"),
        ({"state": "carried", "batch_size": 0}, "batch_size is 0; expected 1 or more"),
        ({"max_sentence_tokens": 0}, "max_sentence_tokens is 0; expected 1 or more, or None for no limit"),
    ]:
        with pytest.raises(ConfigError) as error:
            model.embed(stream, **wrong)
        assert str(error.value) == message
    assert stream.taken == 0


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"^precision is 'int3'; expected one of float32, bfloat16"):
        elmo.load(folder, device="cpu", precision="int3")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cpu:x", "", "meta", "hpu"])
def test_a_device_that_is_not_there_is_refused(device: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with pytest.raises(ConfigError) as error:
        elmo.load(folder, device=device)
    assert str(error.value).startswith(f"device {device!r} is not available; on this machine: auto, cpu")


def test_auto_is_a_device_that_works(tmp_path: Path) -> None:
    model = elmo.load(write_model(tmp_path / "model"))
    assert model.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert_fresh(list(model.embed(SENTENCES)), SENTENCES, 1e-5 if model.device.type == "cpu" else 1e-3)


def test_reading_and_writing_files_of_the_same_model_agree(tmp_path: Path) -> None:
    embedder().save(tmp_path / "folder")
    options, weights = write_published(tmp_path, OPTIONS, WEIGHTS)
    published = elmo.Embedder(Pretrained(bilm_tf.read(options, weights)))
    saved = elmo.load(tmp_path / "folder", device="cpu")
    assert_same_bits(list(saved.embed(SENTENCES)), list(published.embed(SENTENCES)))
    with pytest.raises(DataError, match="exists already; give another name, or remove it first"):
        saved.save(tmp_path / "folder")


def test_training_the_bilm_makes_the_embedder_forget_what_it_computed_before() -> None:
    trained = elmo.Embedder(pretrained())
    sentences = [["one", "two", "three"], ["four"]]
    list(trained.embed(sentences, state="warm"))
    before = list(trained.embed(sentences))
    with torch.no_grad():
        for parameter in trained.bilm.parameters():
            parameter.mul_(1.1)
    untouched = elmo.Embedder(Pretrained(trained.bilm))
    for state in ("fresh", "warm"):
        assert_same_bits(
            list(trained.embed(sentences, state=state)), list(untouched.embed(sentences, state=state))
        )
    assert abs(next(trained.embed(sentences)) - before[0]).max() > 0.01


def test_the_fingerprint_does_not_depend_on_the_order_of_sums() -> None:
    """A sum of these values in floating point does: on another device, or with other vector instructions."""
    model = embedder()
    weight = model.bilm.lstms[0].weight_input
    values = torch.from_numpy(10.0 ** np.random.default_rng(0).uniform(-20, 20, weight.shape)).float()
    flipped = values.flip(0, 1, 2)
    assert float(values.sum(dtype=torch.float64)) != float(flipped.sum(dtype=torch.float64))
    found = set()
    for changed in (values, flipped, values * (1 + 2**-23)):
        weight.data = changed.contiguous()
        found.add(model.fingerprint())
    assert len(found) == 2
