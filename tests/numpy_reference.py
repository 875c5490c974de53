"""The biLM a second time: plain NumPy, float64, one sentence and one time step at a time.

Tests compare the package with it, so it shares no code with the package and prefers the obvious to the fast.
Letters: T tokens, C characters per token, F filters, D projection, H cell, L LSTM layers, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Options = dict[str, Any]
State = list[list[tuple[Array, Array]]]  # [forward, backward][layer] -> (c (H,), h (D,))

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
N_CHARACTERS = 261  # rows of `char_embed`; `n_characters` of the options says 261 or 262 and decides nothing


def character_ids(word: str, max_characters: int) -> list[int]:
    """The `max_characters` ids of a word, 0 to 260, without the shift by one that prediction adds."""
    special = {"<S>": [BEGIN_SENTENCE], "</S>": [END_SENTENCE]}
    inside = special.get(word) or list(word.encode("utf-8"))[: max_characters - 2]
    ids = [BEGIN_WORD, *inside, END_WORD]
    return ids + [PADDING] * (max_characters - len(ids))


def published_shapes(options: Options, token_mode: bool = False) -> dict[str, tuple[int, ...]]:
    """Dataset path -> shape of a weights file; in token mode without the character encoder."""
    lstm = options["lstm"]
    d, h = lstm["projection_dim"], lstm["dim"]
    shapes: dict[str, tuple[int, ...]] = {}
    if not token_mode:
        cnn = options["char_cnn"]
        dim = cnn["embedding"]["dim"]
        f = sum(n for _, n in cnn["filters"])
        shapes["char_embed"] = (N_CHARACTERS, dim)
        for i, (width, n) in enumerate(cnn["filters"]):
            shapes[f"CNN/W_cnn_{i}"], shapes[f"CNN/b_cnn_{i}"] = (1, width, dim, n), (n,)
        for i in range(cnn.get("n_highway") or 0):
            for gate in ("carry", "transform"):
                shapes[f"CNN_high_{i}/W_{gate}"], shapes[f"CNN_high_{i}/b_{gate}"] = (f, f), (f,)
        if f != d:
            shapes["CNN_proj/W_proj"], shapes["CNN_proj/b_proj"] = (f, d), (d,)
    for direction in (0, 1):
        for layer in range(lstm["n_layers"]):
            cell = cell_path(direction, layer)
            shapes[f"{cell}/W_0"], shapes[f"{cell}/B"] = (d + d, 4 * h), (4 * h,)
            if h != d:
                shapes[f"{cell}/W_P_0"] = (h, d)
    return shapes


def cell_path(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # the same function as 1 / (1 + exp(-x)), without its overflow


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


class Reference:
    """A biLM from options and weights; `weights` maps dataset paths to arrays (an open `h5py.File` does).

    With a `vocabulary` it is in token mode: `weights["embedding"]` (V, D) replaces the character encoder.
    `clipped` counts the values that each of the two clips has changed so far.
    """

    def __init__(self, options: Options, weights: Mapping[str, Any], vocabulary: Sequence[str] | None = None) -> None:
        self.options = options
        self.clipped = {"cell": 0, "projection": 0}
        self.weights: dict[str, Array] = {}
        shapes = published_shapes(options, token_mode=vocabulary is not None)
        self.rows = None if vocabulary is None else {word: row for row, word in enumerate(vocabulary)}
        if vocabulary is not None:
            shapes["embedding"] = (len(vocabulary), options["lstm"]["projection_dim"])
        for path, shape in shapes.items():
            self.weights[path] = np.asarray(weights[path], dtype=np.float64)
            if self.weights[path].shape != shape:
                raise ValueError(f"{path} has shape {self.weights[path].shape}, expected {shape}")
        self._encoded: dict[str, Array] = {}

    def encode(self, word: str) -> Array:
        """The context-independent vector of a word, (D,), always over all C characters."""
        if word not in self._encoded:  # the vector depends on the word alone
            self._encoded[word] = self._from_characters(word) if self.rows is None else self._from_table(word)
        return self._encoded[word]

    def _from_table(self, word: str) -> Array:
        assert self.rows is not None
        vector: Array = self.weights["embedding"][self.rows.get(word, self.rows["<UNK>"])]
        return vector

    def _from_characters(self, word: str) -> Array:
        w, cnn = self.weights, self.options["char_cnn"]
        characters = w["char_embed"][character_ids(word, cnn["max_characters_per_token"])]  # (C, dim)
        activation: Callable[[Array], Array] = {"relu": relu, "tanh": np.tanh}[cnn["activation"]]
        pieces = []
        for i, (width, n) in enumerate(cnn["filters"]):
            best = np.full(n, -np.inf)
            for start in range(len(characters) - width + 1):
                window = characters[start : start + width]  # (width, dim)
                value = np.tensordot(window, w[f"CNN/W_cnn_{i}"][0], axes=2) + w[f"CNN/b_cnn_{i}"]
                best = np.maximum(best, value)
            pieces.append(activation(best))
        x = np.concatenate(pieces)  # (F,)
        for i in range(cnn.get("n_highway") or 0):
            layer = f"CNN_high_{i}"
            carry = sigmoid(x @ w[f"{layer}/W_carry"] + w[f"{layer}/b_carry"])
            transform = relu(x @ w[f"{layer}/W_transform"] + w[f"{layer}/b_transform"])
            x = carry * transform + (1.0 - carry) * x
        return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"] if "CNN_proj/W_proj" in w else x

    def _clip(self, x: Array, name: str, limit: float | None) -> Array:
        if limit is None:
            return x
        self.clipped[name] += int(np.count_nonzero(np.abs(x) > limit))
        return np.clip(x, -limit, limit)

    def _step(self, cell: str, x: Array, c: Array, h: Array) -> tuple[Array, Array]:
        w, lstm = self.weights, self.options["lstm"]
        i, j, f, o = np.split(np.concatenate([x, h]) @ w[f"{cell}/W_0"] + w[f"{cell}/B"], 4)
        # the forget bias of 1 is not in the files
        c = self._clip(sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j), "cell", lstm.get("cell_clip"))
        h = sigmoid(o) * np.tanh(c)
        if f"{cell}/W_P_0" in w:
            # TensorFlow's LSTMCell clips what it projects; without W_P there is nothing to clip
            h = self._clip(h @ w[f"{cell}/W_P_0"], "projection", lstm.get("proj_clip"))
        return c, h

    def zero_state(self) -> State:
        lstm = self.options["lstm"]
        c, h = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])
        return [[(c, h) for _ in range(lstm["n_layers"])] for _ in (0, 1)]

    def layers(
        self, sentence: Sequence[str], state: State | None = None, keep_boundaries: bool = False
    ) -> tuple[Array, State]:
        """All layers of one sentence, (L + 1, T, 2D), or T + 2 with the boundaries, and the state at its end."""
        lstm = self.options["lstm"]
        old, new = state or self.zero_state(), self.zero_state()
        tokens = np.stack([self.encode(word) for word in ["<S>", *sentence, "</S>"]])  # (T + 2, D)
        halves = []
        for direction in (0, 1):
            inputs = tokens if direction == 0 else tokens[::-1]
            outputs = [inputs]
            for layer in range(lstm["n_layers"]):
                c, h = old[direction][layer]
                steps = []
                for x in inputs:
                    c, h = self._step(cell_path(direction, layer), x, c, h)
                    # the residual is added to what leaves the layer, never to the h that recurs
                    steps.append(h + x if lstm.get("use_skip_connections") and layer > 0 else h)
                new[direction][layer] = c, h
                inputs = np.stack(steps)
                outputs.append(inputs)
            stack = np.stack(outputs)  # (L + 1, T + 2, D)
            halves.append(stack if direction == 0 else stack[:, ::-1])
        both = np.concatenate(halves, axis=-1)
        return (both if keep_boundaries else both[:, 1:-1]), new

    def carried(
        self, batches: Sequence[Sequence[Sequence[str]]], keep_boundaries: bool = False
    ) -> Iterator[list[Array]]:
        """Per batch the layers of its sentences, each row starting from the state where that row last ended."""
        states: dict[int, State] = {}
        for batch in batches:
            arrays = []
            for row, sentence in enumerate(batch):
                array, states[row] = self.layers(sentence, states.get(row), keep_boundaries)
                arrays.append(array)
            yield arrays


def scalar_mix(layers: ArrayLike, w: ArrayLike, gamma: float = 1.0) -> Array:
    """gamma · Σ softmax(w)_j · layers[j]; the first axis of `layers` counts the layers."""
    layers, w = np.asarray(layers, dtype=np.float64), np.asarray(w, dtype=np.float64)
    exponentials = np.exp(w - w.max())
    mixed = np.zeros(layers.shape[1:])
    for weight, layer in zip(exponentials / exponentials.sum(), layers, strict=True):
        mixed += weight * layer
    return gamma * mixed


def l2(w: ArrayLike, coefficient: float) -> float:
    return coefficient * float(np.sum(np.square(np.asarray(w, dtype=np.float64))))


def layer_norm_per_token(x: ArrayLike, eps: float = 1e-12) -> Array:
    x = np.asarray(x, dtype=np.float64)
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)


def layer_norm_whole_batch(x: ArrayLike, mask: ArrayLike, eps: float = 1e-12) -> Array:
    """One layer (B, T, dim) by one mean and variance over the positions in `mask` (B, T); the others are scaled too."""
    x = np.asarray(x, dtype=np.float64)
    seen = x[np.asarray(mask, dtype=bool)]  # (positions, dim)
    return (x - seen.mean()) / np.sqrt(seen.var() + eps)


def random_options(rng: np.random.Generator, lstm: Options | None = None, char_cnn: Options | None = None) -> Options:
    """Options of a small biLM, every choice of the format at random except those given."""
    widths = rng.permutation(np.arange(1, 8))[: rng.integers(1, 4)]
    cnn: Options = {
        "activation": str(rng.choice(["relu", "tanh"])),
        "embedding": {"dim": int(rng.integers(2, 6))},
        "filters": [[int(width), int(rng.integers(2, 7))] for width in sorted(widths)],
        "max_characters_per_token": int(rng.choice([10, 20, 50])),
        "n_characters": int(rng.choice([261, 262])),
        "n_highway": int(rng.integers(0, 3)),
    } | (char_cnn or {})
    f = sum(n for _, n in cnn["filters"])
    d = (lstm or {}).get("projection_dim", f if rng.random() < 0.25 else int(rng.integers(2, 9)))
    cell: Options = {
        "cell_clip": [3, 0.5, None][rng.integers(3)],
        "dim": d if rng.random() < 0.25 else d + int(rng.integers(1, 17)),
        "n_layers": int(rng.integers(1, 4)),
        "proj_clip": [3, 0.5, None][rng.integers(3)],
        "projection_dim": d,
        "use_skip_connections": bool(rng.integers(2)),
    } | (lstm or {})
    # null and absent mean the same, and files have both
    for optional, section in (("cell_clip", cell), ("proj_clip", cell), ("n_highway", cnn)):
        given = optional in (lstm or {}) or optional in (char_cnn or {})
        if not given and not section[optional] and rng.random() < 0.5:
            del section[optional]
    return {"lstm": cell, "char_cnn": cnn}


def random_weights(
    options: Options, rng: np.random.Generator, scale: float = 1.0, vocabulary_size: int | None = None
) -> dict[str, NDArray[np.float32]]:
    """Normal weights in the published layout, of deviation 1 / √fan-in; with a vocabulary size, those of token mode.

    `scale` multiplies the LSTMs' alone: at 4 both clips of 3 bite, and layer 0 stays of a size that float32 can hold.
    """
    shapes = published_shapes(options, token_mode=vocabulary_size is not None)
    if vocabulary_size is not None:
        shapes["embedding"] = (vocabulary_size, options["lstm"]["projection_dim"])
    weights = {}
    for path, shape in shapes.items():
        # looked up and added, not multiplied by an input: tables and biases have no fan-in
        fan_in = 1 if len(shape) == 1 or path in ("char_embed", "embedding") else int(np.prod(shape[:-1]))
        deviation = (scale if path.startswith("RNN_") else 1.0) / np.sqrt(fan_in)
        weights[path] = (deviation * rng.standard_normal(shape)).astype(np.float32)
    return weights
