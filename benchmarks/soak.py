"""Embed a million tokens and print the memory of the process as it goes: it must stay flat.

    python benchmarks/soak.py [--tokens 1000000] [--model MODEL] [--distinct 200000]

Sentences of 1 to 60 words are drawn at random, from more distinct words than the word cache keeps, so that it is full
and replaces its rows most of the time; 500 sentences a call. The memory after the first tenth is compared with that at
the end. Without --model, the model is a small one with random weights: what may leak does not depend on its size.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import elmo
from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.weights.folder import Pretrained

POINTS = 20  # of the curve
CALL = 500  # sentences


def resident() -> float:
    """Return the memory of this process now, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def sentences(total: int, distinct: int) -> Iterator[list[str]]:
    """Draw sentences with this many tokens together; the frequency of a word falls with its rank."""
    rng = np.random.default_rng(0)
    left = total
    while left:
        ranks = np.minimum(np.exp(rng.uniform(0, np.log(distinct), min(int(rng.integers(1, 61)), left))), distinct)
        left -= len(ranks)
        yield [f"word{int(rank)}" for rank in ranks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--model")
    parser.add_argument("--distinct", type=int, default=200_000, help="number of distinct words")
    parser.add_argument("--limit", type=float, default=5, help="allowed growth in percent")
    arguments = parser.parse_args()
    if arguments.model is not None:
        model = elmo.load(arguments.model, device="cpu")
    else:
        small = BiLM(BiLMConfig(LSTMConfig(dim=64, projection_dim=16), CharCNNConfig(filters=((1, 8), (3, 16)))))
        model = Embedder(Pretrained(small.eval()), device="cpu", cache_bytes=1 << 20)
    step = arguments.tokens // POINTS
    curve: list[float] = []
    tokens, began = 0, time.monotonic()
    print("| tokens | MiB | tokens/s |\n|---|---|---|")
    drawn = sentences(arguments.tokens, arguments.distinct)
    while call := list(islice(drawn, CALL)):
        tokens += sum(len(array) for array in model.embed(call, layers="top"))
        if tokens >= step * (len(curve) + 1):
            curve.append(resident())
            print(f"| {tokens:,} | {curve[-1]:.0f} | {tokens / (time.monotonic() - began):.0f} |", flush=True)
    early, late = curve[len(curve) // 10], max(curve[-3:])
    grown = 100 * (late - early) / early
    print(f"\n{early:.0f} MiB after a tenth, {late:.0f} MiB at the end: {grown:+.1f} %")
    sys.exit(grown > arguments.limit)


if __name__ == "__main__":
    main()
