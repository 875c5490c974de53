"""Differences between the three states: `fresh`, `warm` and `carried` vectors of the same sentences, layer by layer.

    python experiments/state_modes.py MODEL TEXT [--sentences 500]

`carried` reads the sentences one after another (batch 1), as bilm-tf's dump does; `carried, other order` reads them in
reverse order. The distance between these two shows how much the vectors of a sentence depend on the sentences before.
Distances are relative, ‖a − b‖ / ‖b‖ per token, followed by the cosine distance; both are means over tokens.
"""

import argparse
from pathlib import Path

import numpy as np

import elmo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--sentences", type=int, default=500)
    arguments = parser.parse_args()
    model = elmo.load(arguments.model, device="cpu")
    lines = [line for line in arguments.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    lines = lines[: arguments.sentences]

    def carried(sentences: list[str]) -> list[np.ndarray]:
        model.reset_state()
        return list(model.embed(sentences, state="carried", batch_size=1))

    vectors = {
        "fresh": list(model.embed(lines)),
        "warm": list(model.embed(lines, state="warm")),
        "carried": carried(lines),
        "carried, other order": carried(lines[::-1])[::-1],
    }
    print(f"{arguments.model}: {len(lines)} sentences, {sum(array.shape[1] for array in vectors['fresh']):,} tokens")
    header = "".join(f"{f'layer {layer}':>20}" for layer in range(model.n_layers))
    print(f"{'':<32}{header}{'first token':>14}{'tenth':>8}  (top layer)")
    for one, other in [
        ("fresh", "carried"),
        ("warm", "carried"),
        ("carried, other order", "carried"),
        ("fresh", "warm"),
    ]:
        pairs = list(zip(vectors[one], vectors[other], strict=True))
        relative = [np.linalg.norm(a - b, axis=2) / np.linalg.norm(b, axis=2) for a, b in pairs]
        cosine = [1 - (a * b).sum(axis=2) / np.linalg.norm(a, axis=2) / np.linalg.norm(b, axis=2) for a, b in pairs]
        cells = ""
        for layer in range(model.n_layers):
            cells += f"{np.mean(np.concatenate([r[layer] for r in relative])):>11.4f}"
            cells += f" ({np.mean(np.concatenate([c[layer] for c in cosine])):.4f})".rjust(9)
        first = np.mean([r[-1, 0] for r in relative])
        tenth = np.mean([r[-1, 9] for r in relative if r.shape[1] > 19])
        print(f"{one + ' – ' + other:<32}{cells}{first:>14.4f}{tenth:>8.4f}")


if __name__ == "__main__":
    main()
