"""ELMoForManyLangs a second time: plain NumPy, float64, one sentence, one word and one time step at a time.

It reads the program's own names and layouts, and shares no code with the package. `folder_of` writes such a model.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
State = dict[str, tuple[Array, Array]]  # layer name -> (c, h)

SIZES: dict[str, Any] = {
    "encoder": {"name": "elmo", "projection_dim": 4, "cell_clip": 3, "proj_clip": 0.4, "dim": 9, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 3], [3, 4]],
        "n_highway": 2,
        "word_dim": 3,
        "char_dim": 5,
        "max_characters_per_token": 10,
    },
}
WORDS = ["<pad>", "<oov>", "<eos>", "<bos>", "the", "cat", "straight"]
CHARACTERS = [*"thecasg", "<bow>", "<oov>", "<eow>", "語", "<eos>", "<pad>", "<bos>", "🙂", "r", "i"]


def shapes(sizes: Mapping[str, Any], n_words: int, n_characters: int) -> dict[str, dict[str, tuple[int, ...]]]:
    """File -> tensor -> shape."""
    lstm, encoder = sizes["encoder"], sizes["token_embedder"]
    d, h = lstm["projection_dim"], lstm["dim"]
    tokens: dict[str, tuple[int, ...]] = {}
    width = 0
    if encoder["word_dim"]:
        tokens["word_emb_layer.embedding.weight"] = (n_words, encoder["word_dim"])
        width += encoder["word_dim"]
    if encoder["char_dim"]:
        tokens["char_emb_layer.embedding.weight"] = (n_characters, encoder["char_dim"])
        f = sum(n for _, n in encoder["filters"])
        for k, (size, n) in enumerate(encoder["filters"]):
            tokens |= {f"convolutions.{k}.weight": (n, encoder["char_dim"], size), f"convolutions.{k}.bias": (n,)}
        for k in range(encoder["n_highway"]):
            tokens |= {f"highways._layers.{k}.weight": (2 * f, f), f"highways._layers.{k}.bias": (2 * f,)}
        width += f
    tokens |= {"projection.weight": (d, width), "projection.bias": (d,)}
    lstms: dict[str, tuple[int, ...]] = {}
    for layer in range(lstm["n_layers"]):
        for direction in ("forward", "backward"):
            name = f"{direction}_layer_{layer}"
            lstms |= {f"{name}.input_linearity.weight": (4 * h, d), f"{name}.state_linearity.weight": (4 * h, d)}
            lstms |= {f"{name}.state_linearity.bias": (4 * h,), f"{name}.state_projection.weight": (d, h)}
    return {"token_embedder.pkl": tokens, "encoder.pkl": lstms}


def folder_of(
    folder: Path, sizes: Mapping[str, Any] = SIZES, seed: int = 0, words: Sequence[str] = WORDS
) -> Path:
    """Write a model with random weights, as the program saves it, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for file, tensors in shapes(sizes, len(words), len(CHARACTERS)).items():
        values = {name: torch.from_numpy(rng.normal(0.0, 0.6, shape)).float() for name, shape in tensors.items()}
        torch.save(values, folder / file)
    (folder / "config.json").write_text(json.dumps({"config_path": "sizes.json"}))
    (folder / "sizes.json").write_text(json.dumps(sizes))
    for name, entries in (("word.dic", words), ("char.dic", CHARACTERS)):
        (folder / name).write_text("".join(f"{entry}\t{k}\n" for k, entry in enumerate(entries)), encoding="utf-8")
    return folder


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


class ManyLangsReference:
    """A model from its folder."""

    def __init__(self, folder: Path) -> None:
        self.sizes = json.loads((folder / "sizes.json").read_text())
        self.w: dict[str, Array] = {}
        for file in ("token_embedder.pkl", "encoder.pkl"):
            for name, tensor in torch.load(folder / file, weights_only=True).items():
                self.w[name] = tensor.double().numpy()
        self.rows = {}
        for name in ("word.dic", "char.dic"):
            lines = (folder / name).read_text(encoding="utf-8").splitlines() if (folder / name).exists() else []
            self.rows[name] = {line.split("\t")[0]: int(line.split("\t")[1]) for line in lines}

    def encode(self, word: str) -> Array:
        """The context-independent vector of a word."""
        sizes, w = self.sizes["token_embedder"], self.w
        length = sizes["max_characters_per_token"]
        word = word[: length - 2]
        parts = []
        if sizes["word_dim"]:
            rows = self.rows["word.dic"]
            parts.append(w["word_emb_layer.embedding.weight"][rows.get(word, rows["<oov>"])])
        if sizes["char_dim"]:
            rows = self.rows["char.dic"]
            inside = [rows[word]] if word in ("<bos>", "<eos>") else [rows.get(c, rows["<oov>"]) for c in word]
            ids = [rows["<eow>"], *inside, rows["<bow>"]]  # this way round
            ids += [rows["<pad>"]] * (length - len(ids))
            parts.append(self._from_characters(w["char_emb_layer.embedding.weight"][ids]))
        vector: Array = w["projection.weight"] @ np.concatenate(parts) + w["projection.bias"]
        return vector

    def _from_characters(self, characters: Array) -> Array:
        sizes, w = self.sizes["token_embedder"], self.w
        pieces = []
        for k, (size, _) in enumerate(sizes["filters"]):
            windows = [characters[at : at + size] for at in range(len(characters) - size + 1)]  # (size, dim) each
            scores = [np.einsum("ntd,td->n", w[f"convolutions.{k}.weight"].transpose(0, 2, 1), x) for x in windows]
            best = np.max(scores, axis=0) + w[f"convolutions.{k}.bias"]
            pieces.append(np.maximum(best, 0.0) if sizes["activation"] == "relu" else np.tanh(best))
        x = np.concatenate(pieces)
        for k in range(sizes["n_highway"]):
            both = w[f"highways._layers.{k}.weight"] @ x + w[f"highways._layers.{k}.bias"]
            new, gate = np.maximum(both[: len(x)], 0.0), sigmoid(both[len(x) :])
            x = gate * x + (1.0 - gate) * new
        return x

    def _step(self, name: str, x: Array, c: Array, h: Array) -> tuple[Array, Array]:
        lstm, w = self.sizes["encoder"], self.w
        gates = w[f"{name}.input_linearity.weight"] @ x + w[f"{name}.state_linearity.weight"] @ h
        i, f, candidate, o = np.split(gates + w[f"{name}.state_linearity.bias"], 4)
        c = sigmoid(i) * np.tanh(candidate) + sigmoid(f) * c
        if lstm["cell_clip"]:
            c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
        h = w[f"{name}.state_projection.weight"] @ (sigmoid(o) * np.tanh(c))
        if lstm["proj_clip"]:
            h = np.clip(h, -lstm["proj_clip"], lstm["proj_clip"])
        return c, h

    def layers(self, sentence: Sequence[str], state: State | None = None) -> tuple[Array, State]:
        """All layers of one sentence without its boundaries, (L + 1, T, 2D), and the state at its end."""
        lstm = self.sizes["encoder"]
        tokens = np.stack([self.encode(word) for word in ["<bos>", *sentence, "<eos>"]])
        after: State = {}
        halves = []
        for direction in ("forward", "backward"):
            inputs = tokens if direction == "forward" else tokens[::-1]
            outputs = [inputs]
            for layer in range(lstm["n_layers"]):
                name = f"{direction}_layer_{layer}"
                c, h = (state or {}).get(name, (np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])))
                steps = []
                for x in inputs:
                    c, h = self._step(name, x, c, h)
                    steps.append(h + x if layer > 0 else h)
                after[name] = c, h
                inputs = np.stack(steps)
                outputs.append(inputs)
            halves.append(np.stack(outputs) if direction == "forward" else np.stack(outputs)[:, ::-1])
        return np.concatenate(halves, axis=2)[:, 1:-1], after
