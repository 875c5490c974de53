"""THE TF HUB MODULE'S SIGNATURES: `google/elmo` ─▶ its five outputs as arrays, from any model.

    elmo = HubModule("original")
    elmo(["the cat sat"])["elmo"]                                          (1, 3, 1024)
    elmo({"tokens": [["the", "cat", ""]], "sequence_len": [2]}, signature="tokens")

Every sentence starts from a zero state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmo.embed.embedder import Embedder, load
from elmo.embed.selection import Array
from elmo.errors import ConfigError, DataError

SIGNATURES = ("default", "tokens")


class HubModule:
    """A model, by any name that `elmo.load` takes or an `Embedder`, with the outputs of the TF Hub module.

    `weights` are the shares of the layers in `elmo`, and `gamma` its scale: those that were trained, or the average.
    """

    def __init__(
        self,
        model: str | Path | Embedder,
        *,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        device: str = "auto",
    ) -> None:
        self.embedder = model if isinstance(model, Embedder) else load(model, device=device)
        n_layers = self.embedder.n_layers
        shares = [1.0 / n_layers] * n_layers if weights is None else list(weights)
        if len(shares) != n_layers:
            raise ConfigError(f"weights are {shares}; expected {n_layers}, one per layer")
        self.weights = gamma * np.array(shares, dtype=np.float32)

    def __call__(self, inputs: Any, signature: str = "default") -> dict[str, Array]:
        """Return the outputs of a batch, padded with zeros to the longest sentence.

        "default" takes strings, and splits them at spaces. "tokens" takes `tokens`, lists of words that may be padded
        with "", and `sequence_len`, their lengths.

        `word_emb` (B, T, D) are the token vectors, `lstm_outputs1`, `lstm_outputs2`, … (B, T, 2D) the layers of the
        LSTMs, `elmo` (B, T, 2D) the weighted sum of all layers, and `default` (B, 2D) its mean over the tokens.
        """
        if signature not in SIGNATURES:
            raise ConfigError(f"signature is {signature!r}; expected one of {', '.join(SIGNATURES)}")
        layers = self.embedder.layers(_split(inputs) if signature == "default" else _tokens(inputs))
        activations, mask = layers.activations.float().cpu().numpy(), layers.mask.cpu().numpy()
        elmo = np.tensordot(self.weights, activations, axes=1)
        counts = np.maximum(mask.sum(axis=1, keepdims=True), 1)
        width = self.embedder.config.lstm.projection_dim
        outputs = {f"lstm_outputs{k}": layer for k, layer in enumerate(activations[1:], 1)}
        return {"word_emb": activations[0, ..., :width], **outputs, "elmo": elmo, "default": elmo.sum(axis=1) / counts}


def _split(inputs: Any) -> list[list[str]]:
    if isinstance(inputs, str) or not all(isinstance(text, str) for text in inputs):
        raise DataError("expected a list of strings; for lists of tokens, give signature='tokens'")
    return [text.split() for text in inputs]


def _tokens(inputs: Any) -> list[list[str]]:
    if not isinstance(inputs, Mapping) or set(inputs) != {"tokens", "sequence_len"}:
        raise DataError("expected a dictionary of 'tokens' and 'sequence_len'")
    tokens, lengths = inputs["tokens"], inputs["sequence_len"]
    if len(tokens) != len(lengths):
        raise DataError(f"there are {len(tokens)} sentences, but sequence_len has {len(lengths)} lengths")
    for row, (sentence, n) in enumerate(zip(tokens, lengths, strict=True)):
        if not 0 <= int(n) <= len(sentence):
            raise DataError(f"sentence {row} has {len(sentence)} tokens, but sequence_len says {n}")
    return [list(sentence[: int(n)]) for sentence, n in zip(tokens, lengths, strict=True)]
