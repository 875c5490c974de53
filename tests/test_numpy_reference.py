"""The reference itself, against arrays that bilm-tf computed and against sums done by hand."""

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from numpy_reference import (
    N_CHARACTERS,
    Options,
    Reference,
    character_ids,
    l2,
    layer_norm_per_token,
    layer_norm_whole_batch,
    published_shapes,
    random_options,
    random_weights,
    scalar_mix,
)
from reference_files import REFERENCE, VARIANTS, needs_shared
from reference_files import reference as reference_folder

TOLERANCE = 5e-6  # bilm-tf computed in float32
SENTENCE = ["The", "cat", "sat", "on", "the", "mat", "and", "then", "it", "slept", "for", "days"]


def load(folder: Path, weights: str) -> Reference:
    with h5py.File(folder / weights) as file:
        return Reference(json.loads((folder / "options.json").read_text()), file)


def largest_difference(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> float:
    assert ours.shape == theirs.shape  # broadcasting would hide a missing axis
    return float(np.abs(ours - theirs).max())


# Against bilm-tf


@needs_shared
def test_top_layer_of_ten_batches_is_that_of_bilm_tf() -> None:
    folder = reference_folder("bilm-tf")
    reference = load(folder, "lm_weights.hdf5")
    lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    batches = [[sentence.split() for sentence in batch] for batch in zip(*lists, strict=True)]
    assert [len(batch) for batch in batches] == [3] * 10
    worst = 0.0
    for number, arrays in enumerate(reference.carried(batches)):
        for row, array in enumerate(arrays):
            with h5py.File(folder / f"lm_embeddings_{row}.hdf5") as file:
                expected = file[str(number)][:]  # (2, T, D), forward and backward
            ours = np.stack(np.split(array[-1], 2, axis=-1))
            worst = max(worst, largest_difference(ours, expected))
    print(f"largest difference: {worst:.1e}")  # pytest -rP shows it
    assert worst < TOLERANCE


def test_every_variant_is_tested() -> None:
    assert sorted(folder.name for folder in (REFERENCE / "variants").iterdir()) == VARIANTS


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("kind", ["carried", "fresh"])
def test_all_layers_of_a_variant_are_those_of_bilm_tf(name: str, kind: str) -> None:
    folder = reference_folder(f"variants/{name}")
    reference = load(folder, "weights.hdf5")
    batches = json.loads((folder / "batches.json").read_text())
    if kind == "carried":
        computed = list(reference.carried(batches))
    else:
        computed = [[reference.layers(sentence)[0] for sentence in batch] for batch in batches]
    with h5py.File(folder / "expected.hdf5") as file:
        assert sum(len(rows) for rows in file[kind].values()) == sum(len(batch) for batch in batches)
        worst = max(
            largest_difference(array, file[f"{kind}/{number}/{row}"][:])
            for number, arrays in enumerate(computed)
            for row, array in enumerate(arrays)
        )
    print(f"largest difference: {worst:.1e}")
    assert worst < TOLERANCE
    if name == "skip_relu_clips":
        assert min(reference.clipped.values()) > 0


# By hand


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cat", [258, 99, 97, 116, 259, 260, 260, 260]),
        ("é", [258, 0xC3, 0xA9, 259, 260, 260, 260, 260]),
        ("abcdef", [258, 97, 98, 99, 100, 101, 102, 259]),
        ("abcdefgh", [258, 97, 98, 99, 100, 101, 102, 259]),
        ("abcdeé", [258, 97, 98, 99, 100, 101, 0xC3, 259]),  # cut inside the character
        ("", [258, 259, 260, 260, 260, 260, 260, 260]),
        ("<S>", [258, 256, 259, 260, 260, 260, 260, 260]),
        ("</S>", [258, 257, 259, 260, 260, 260, 260, 260]),
        ("<UNK>", [258, 60, 85, 78, 75, 62, 259, 260]),
        ("<s>", [258, 60, 115, 62, 259, 260, 260, 260]),
    ],
)
def test_character_ids(word: str, expected: list[int]) -> None:
    assert character_ids(word, 8) == expected


def test_boundaries_fit_where_their_spelling_would_not() -> None:
    assert character_ids("</S>", 3) == [258, 257, 259]


def options_of(h: int, d: int, highway: int, filters: list[list[int]], dim: int, **lstm: object) -> Options:
    return {
        "lstm": {"dim": h, "projection_dim": d, "n_layers": 2, "cell_clip": 3, "proj_clip": 3} | lstm,
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": dim},
            "filters": filters,
            "max_characters_per_token": 6,
            "n_highway": highway,
        },
    }


@pytest.mark.parametrize(
    ("filter_weights", "expected"),
    [
        ([1.0, -10.0], 10.35),  # end-word and one padding: 0.25 + 10, and the bias
        ([-1.0, 0.0], 1.1),  # padding alone
        ([1.0, 10.0], 20.6),  # begin-word and the letter: 0.5 + 20
        ([0.0, 0.0], 0.1),
    ],
)
def test_padding_takes_part_in_the_convolution_and_in_the_max(filter_weights: list[float], expected: float) -> None:
    options = options_of(1, 1, 0, [[2, 1]], 1)
    weights = random_weights(options, np.random.default_rng(0))
    weights["char_embed"] = np.zeros((N_CHARACTERS, 1), dtype=np.float32)
    weights["char_embed"][[258, 97, 259, 260], 0] = 0.5, 2.0, 0.25, -1.0
    weights["CNN/W_cnn_0"] = np.array(filter_weights, dtype=np.float32).reshape(1, 2, 1, 1)
    weights["CNN/b_cnn_0"] = np.array([0.1], dtype=np.float32)
    np.testing.assert_allclose(Reference(options, weights).encode("a"), [expected], rtol=1e-6)


def test_two_steps_of_a_one_cell_lstm() -> None:
    def sigma(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    options = options_of(1, 1, 0, [], 1, n_layers=1)
    weights = {"embedding": np.array([[0.3], [-0.7], [0.2]])}
    for direction in (0, 1):
        cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell0/LSTMCell"
        weights[f"{cell}/W_0"] = np.array([[0.5, -1.0, 0.25, 2.0], [1.5, 0.75, -0.5, 1.0]])  # x then h; i, j, f, o
        weights[f"{cell}/B"] = np.array([0.1, 0.2, 0.3, 0.4])
    c, h, expected = 0.0, 0.0, []
    for x in (0.3, -0.7):
        i, j = 0.5 * x + 1.5 * h + 0.1, -1.0 * x + 0.75 * h + 0.2
        f, o = 0.25 * x - 0.5 * h + 0.3, 2.0 * x + 1.0 * h + 0.4
        c = sigma(f + 1) * c + sigma(i) * math.tanh(j)
        h = sigma(o) * math.tanh(c)
        expected.append(h)
    reference = Reference(options, weights, vocabulary=["<S>", "</S>", "<UNK>"])
    layers, state = reference.layers([], keep_boundaries=True)
    np.testing.assert_allclose(layers[0], [[0.3, 0.3], [-0.7, -0.7]])
    np.testing.assert_allclose(layers[1, :, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate(state[0][0]), [c, h], rtol=1e-12)


@pytest.mark.parametrize(
    ("h", "d", "highway", "parameters"),
    [(1024, 128, 1, 13_593_296), (2048, 256, 1, 28_027_728), (4096, 512, 2, 93_600_848)],
)
def test_published_shapes_add_up_to_the_published_sizes(h: int, d: int, highway: int, parameters: int) -> None:
    filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
    shapes = published_shapes(options_of(h, d, highway, filters, 16))
    assert sum(math.prod(shape) for shape in shapes.values()) == parameters


def test_mixing_and_its_penalty() -> None:
    layers = np.array([[[1.0, 2.0]], [[3.0, 5.0]]])
    np.testing.assert_allclose(scalar_mix(layers, [0, 0]), [[2.0, 3.5]])
    np.testing.assert_allclose(scalar_mix(layers, [math.log(3), 0], gamma=2.0), [[3.0, 5.5]])
    assert l2([1, -2, 3], 0.5) == 7.0


def test_layer_norms() -> None:
    x = np.array([[[1.0, 3.0], [5.0, 7.0], [100.0, -100.0]]])
    np.testing.assert_allclose(layer_norm_per_token(x), [[[-1, 1], [-1, 1], [1, -1]]])
    normal = layer_norm_whole_batch(x, [[1, 1, 0]])  # mean 4, variance 5
    np.testing.assert_allclose(normal[0, :2] * math.sqrt(5), [[-3, -1], [1, 3]])
    assert np.all(layer_norm_per_token(np.full((2, 3), 7.0)) == 0)


# Properties


def test_both_clips_bite_at_scale_four() -> None:
    rng = np.random.default_rng(4)
    sizes = {"n_layers": 2, "projection_dim": 8, "dim": 32, "use_skip_connections": True}
    options = random_options(rng, lstm={**sizes, "cell_clip": 3, "proj_clip": 3})
    weights = random_weights(options, rng, scale=4.0)
    reference = Reference(options, weights)
    layers, state = reference.layers(SENTENCE)
    assert reference.clipped["cell"] > 100
    assert reference.clipped["projection"] > 20
    assert np.abs(layers[1]).max() == 3  # layer 1 has no residual
    assert 3 < np.abs(layers[2]).max() <= 6  # layer 2 has
    assert max(np.abs(h).max() for direction in state for _, h in direction) <= 3

    for free in ({}, {"cell_clip": None, "proj_clip": None}):  # absent and null
        unclipped = Reference(options | {"lstm": {**sizes, **free}}, weights)
        assert np.abs(unclipped.layers(SENTENCE)[0][1:] - layers[1:]).max() > 0.1
        assert unclipped.clipped == {"cell": 0, "projection": 0}


def test_token_mode_is_character_mode_with_a_table() -> None:
    rng = np.random.default_rng(5)
    options = random_options(rng)
    weights = random_weights(options, rng)
    by_characters = Reference(options, weights)
    vocabulary = ["<S>", "</S>", "<UNK>", *sorted(set(SENTENCE))]
    table = np.stack([by_characters.encode(word) for word in vocabulary])
    by_table = Reference({"lstm": options["lstm"]}, weights | {"embedding": table}, vocabulary)
    np.testing.assert_array_equal(by_table.layers(SENTENCE)[0], by_characters.layers(SENTENCE)[0])
    np.testing.assert_array_equal(by_table.encode("unheard"), by_characters.encode("<UNK>"))


def test_a_smaller_batch_leaves_the_other_rows_state_alone() -> None:
    rng = np.random.default_rng(6)
    options = random_options(rng)
    reference = Reference(options, random_weights(options, rng))
    a, b, c = SENTENCE[:3], SENTENCE[3:], SENTENCE[:1]
    first, _, third = reference.carried([[a, b], [c], [b, a]])
    _, state = reference.layers(b)
    np.testing.assert_array_equal(third[1], reference.layers(a, state)[0])
    assert np.abs(third[1] - first[0])[1:].max() > 1e-3  # the state matters
    np.testing.assert_array_equal(third[1][0], first[0][0])  # but not to the tokens


def test_random_options_reach_every_variant() -> None:
    seen = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        options = random_options(rng)
        lstm, cnn = options["lstm"], options["char_cnn"]
        layers, _ = Reference(options, random_weights(options, rng)).layers(["a", "naïve", ""])
        assert layers.shape == (lstm["n_layers"] + 1, 3, 2 * lstm["projection_dim"])
        assert np.isfinite(layers).all()
        seen |= {
            ("layers", lstm["n_layers"]),
            ("skip", lstm["use_skip_connections"]),
            ("cell_clip", lstm.get("cell_clip", "absent")),
            ("proj_clip", lstm.get("proj_clip", "absent")),
            ("H == D", lstm["dim"] == lstm["projection_dim"]),
            ("F == D", sum(n for _, n in cnn["filters"]) == lstm["projection_dim"]),
            ("highway", cnn.get("n_highway", "absent")),
            ("activation", cnn["activation"]),
            ("C", cnn["max_characters_per_token"]),
            ("n_characters", cnn["n_characters"]),
        }
    assert len(seen) == 3 + 2 + 4 + 4 + 2 + 2 + 4 + 2 + 3 + 2


def test_random_options_keep_what_is_given() -> None:
    given = {"n_layers": 4, "projection_dim": 5, "dim": 9, "cell_clip": None}
    for seed in range(20):
        options = random_options(np.random.default_rng(seed), lstm=given, char_cnn={"n_highway": 0})
        assert {key: options["lstm"][key] for key in given} == given
        assert options["char_cnn"]["n_highway"] == 0


def test_random_weights_have_the_published_layout() -> None:
    options = random_options(np.random.default_rng(7), lstm={"projection_dim": 4})
    by_characters = random_weights(options, np.random.default_rng(8))
    assert {path: array.shape for path, array in by_characters.items()} == published_shapes(options)
    assert {array.dtype for array in by_characters.values()} == {np.dtype(np.float32)}
    by_table = random_weights(options, np.random.default_rng(8), vocabulary_size=10)
    assert by_table["embedding"].shape == (10, 4)
    assert "char_embed" not in by_table


def test_a_wrong_shape_is_refused() -> None:
    options = random_options(np.random.default_rng(9))
    weights = random_weights(options, np.random.default_rng(9))
    weights["char_embed"] = weights["char_embed"][:-1]
    with pytest.raises(ValueError, match="char_embed has shape"):
        Reference(options, weights)
