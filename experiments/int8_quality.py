"""What int8 costs: perplexity, and the vectors beside those of float32.

    python experiments/int8_quality.py TEXT [--model english] [--sentences 400]

TEXT has one sentence per line, which the model has not been trained on. The model needs its softmax.
"""

import argparse
from pathlib import Path

import numpy as np

import elmo
from elmo.text.tokens import words


def perplexities(model: elmo.Embedder, sentences: list[list[str]]) -> tuple[float, float]:
    """Return the forward and the backward perplexity of all sentences together."""
    forward = backward = predictions = 0.0
    for scores in model.score_all(sentences):
        forward += scores.forward_total
        backward += scores.backward_total or 0.0
        predictions += len(scores.tokens) + 1
    return float(np.exp(-forward / predictions)), float(np.exp(-backward / predictions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--sentences", type=int, default=400)
    arguments = parser.parse_args()
    lines = [line for line in arguments.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    sentences = [words(line) for line in lines[: arguments.sentences]]
    exact, rounded = (
        elmo.load(arguments.model, device="cpu", precision=precision, softmax=True) for precision in ("float32", "int8")
    )
    cosines, errors, squares = [], [], []
    for a, b in zip(exact.embed(sentences), rounded.embed(sentences), strict=True):
        cosines.append((a * b).sum(2) / (np.linalg.norm(a, axis=2) * np.linalg.norm(b, axis=2)))
        errors.append(((a - b) ** 2).sum((1, 2)))
        squares.append((a**2).sum((1, 2)))
    cosine = np.concatenate(cosines, axis=1)  # (L + 1, tokens)
    relative = np.sqrt(np.sum(errors, axis=0) / np.sum(squares, axis=0))
    print(f"{len(sentences)} sentences, {cosine.shape[1]} tokens")
    print("| layer | mean cosine | least of 99 % | least | relative error |\n|---|---|---|---|---|")
    for layer, values in enumerate(cosine):
        low = np.quantile(values, 0.01)
        print(f"| {layer} | {values.mean():.5f} | {low:.5f} | {values.min():.4f} | {100 * relative[layer]:.1f} % |")
    for name, model in (("float32", exact), ("int8", rounded)):
        forward, backward = perplexities(model, sentences)
        print(f"{name}: perplexity forward {forward:.2f}, backward {backward:.2f}")


if __name__ == "__main__":
    main()
