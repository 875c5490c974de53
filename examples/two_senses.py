"""Two senses of one word: the same spelling, the same token vector, and what the context makes of it, layer by layer.

Run it with a model of your own (`python examples/two_senses.py path/to/folder`) or without: then it makes a tiny biLM
on the spot. That one is untrained, so it knows *that* the contexts differ, not yet what they mean.
"""

import sys

import numpy as np
import torch

import elmo
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.weights.folder import Pretrained

WORD = "bank"
SENTENCES = [
    "She sat on the bank of the river and watched the boats.",
    "They walked along the muddy bank until it got dark.",
    "He opened an account at the bank on Main Street.",
    "The bank raised its interest rates again.",
]


def tiny() -> elmo.Embedder:
    """A biLM with random weights, 83 thousand parameters."""
    torch.manual_seed(0)
    lstm = LSTMConfig(dim=64, projection_dim=16)
    cnn = CharCNNConfig(filters=((1, 4), (2, 8), (3, 16), (4, 32), (5, 64)), n_highway=1)
    return elmo.Embedder(Pretrained(elmo.BiLM(elmo.BiLMConfig(lstm, cnn))))


def main() -> None:
    model = elmo.load(sys.argv[1]) if len(sys.argv) > 1 else tiny()
    parameters = f"{model.bilm.n_parameters():,}"
    kind = sys.argv[1] if len(sys.argv) > 1 else "a tiny biLM made on the spot, untrained"
    print(f"{kind}: {parameters} parameters, {model.n_layers} layers of {model.dim}\n")

    vectors = []
    for number, (sentence, layers) in enumerate(zip(SENTENCES, model.embed(SENTENCES), strict=True), start=1):
        words = [token.text for token in model.tokens(sentence)]
        vectors.append(layers[:, words.index(WORD)])  # (layers, dim)
        print(f"  {number}  {sentence.replace(WORD, WORD.upper())}")

    print(f"\nHow alike are the four {WORD!r}? Cosine, layer by layer:")
    names = ["token"] + [f"LSTM {layer}" for layer in range(1, model.n_layers)]
    print("\n" + " " * 7 + "".join(f"{name:>10}" for name in names))
    for first in range(len(vectors)):
        for second in range(first + 1, len(vectors)):
            a, b = vectors[first], vectors[second]
            cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            print(f"  {first + 1} – {second + 1}" + "".join(f"{cosine:>10.3f}" for cosine in cosines))
    print(f"\nThe token layer spells {WORD!r} the same way everywhere; the LSTMs read what stands around it.")


if __name__ == "__main__":
    main()
