"""What rounding the weights of a model changes: perplexity, vectors, size on the disk, time and memory of loading.

    python experiments/rounding.py FULL ROUNDED TEXT [--sentences 1000] [--tokens 20000]

FULL is the folder of a model with a softmax, ROUNDED the same as `elmo convert --int8` or `--float16` wrote it; TEXT is
raw text, one sentence per line. Vectors are those of its first sentences, each by itself; perplexity is that of about
its first tokens (0: of all), full softmax, state carried. Each folder is loaded by a process of its own, the best of
three; its memory is the peak of the process above what PyTorch and the library need.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import elmo
from elmo.pretrain.corpus_source import open_or_prepare
from elmo.pretrain.evaluate import perplexity
from elmo.weights import source
from elmo.weights.folder import WEIGHTS
from elmo.weights.tensor_files import stored_dtypes

LOAD = """
import json, sys, time, torch
import elmo.embed.embedder
from elmo.training import memory
from elmo.weights import source
cpu = torch.device("cpu")
before, start = memory.peak(cpu), time.perf_counter()
model = source.read(sys.argv[1], softmax=sys.argv[2] == "softmax")
seconds = time.perf_counter() - start
weights = sum(tensor.nbytes for tensor in model.bilm.state_dict().values())
print(json.dumps({"seconds": seconds, "peak": memory.peak(cpu) - before, "weights": weights}))
"""


def dtype_of(folder: Path) -> str:
    """The type of most of the weights."""
    return stored_dtypes(folder / WEIGHTS)[0]


def loaded(folder: Path, softmax: bool) -> dict[str, float]:
    """Seconds, bytes at the peak and bytes of the weights, of the fastest of three processes."""
    command = [sys.executable, "-c", LOAD, str(folder), "softmax" if softmax else ""]
    runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3)]
    return min(runs, key=lambda run: run["seconds"])


def differences(rounded: Path, full: Path, lines: list[str]) -> list[str]:
    """Of each layer: relative distance of a token's vectors, mean and largest, and their cosine, mean and lowest."""
    ours, exact = (
        np.concatenate(list(elmo.load(path, device="cpu").embed(lines)), axis=1) for path in (rounded, full)
    )
    rows = [
        "| | relative distance, mean | largest | cosine, mean | lowest |",
        "|---|---|---|---|---|",
    ]
    for layer, (a, b) in enumerate(zip(ours, exact, strict=True)):
        distance = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
        cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        rows.append(
            f"| layer {layer} | {distance.mean():.1e} | {distance.max():.1e} | {cosine.mean():.6f} | "
            f"{cosine.min():.6f} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("full", "rounded", "text"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=20_000)
    arguments = parser.parse_args()
    folders = (arguments.full, arguments.rounded)
    columns: list[list[str]] = []
    means = []
    for folder in folders:
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        column = [dtype_of(folder), f"{size / 1e6:.1f}"]
        for softmax in (False, True):
            facts = loaded(folder, softmax)
            column += [f"{facts['seconds']:.2f}", f"{facts['peak'] / 2**20:.0f} ({facts['weights'] / 2**20:.0f})"]
        model = source.read(folder, softmax=True)
        assert model.vocabulary is not None, "the perplexity needs a softmax"
        with tempfile.TemporaryDirectory() as temporary:
            text = open_or_prepare(arguments.text, Path(temporary))
            found = perplexity(model.bilm, model.vocabulary, text, text.train, tokens=arguments.tokens or None)
        means.append(found.mean)
        column += [f"{found.forward:.3f}", f"{found.backward or 0:.3f}", f"{found.mean:.3f}"]
        columns.append(column)
        predictions = found.tokens
    names = [
        *("", "size on the disk, MB", "seconds to load", "memory to load (weights in float32), MiB"),
        *("seconds, with the softmax", "memory, with the softmax, MiB"),
        *("perplexity, forward", "backward", "mean"),
    ]
    for number, row in enumerate(zip(names, *columns, strict=True)):
        print(f"| {' | '.join(row)} |")
        if number == 0:
            print("|---|---|---|")
    print(f"\n{predictions:,} predictions in each direction; the mean changes by {means[1] / means[0] - 1:+.3%}")
    lines = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    print(f"\n{columns[1][0]} against {columns[0][0]}, {len(lines):,} sentences of {arguments.text.name}:")
    print("\n".join(differences(arguments.rounded, arguments.full, lines)))


if __name__ == "__main__":
    main()
