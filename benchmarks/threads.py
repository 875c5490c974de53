"""Speed of the CPU path by number of threads, on an idle machine and beside busy processes.

    python benchmarks/threads.py TEXT [--model english] [--threads 1 2 4 8 16] [--busy 0 2] [--precisions float32 int8]

TEXT has one raw sentence per line. `stream` is one call with all sentences, `one a call` a call for each; all words are
in the cache. In each of `--rounds` rounds every row takes its turn; a figure is the median, in tokens/s.
"""

import argparse
import os
import statistics
from functools import partial
from pathlib import Path

import torch
from cpu_speed import neighbours
from embed_speed import exhaust, n_tokens, sentences_of, timed

from elmo.embed.embedder import Embedder, load


def stream(embedder: Embedder, sentences: list[list[str]]) -> None:
    exhaust(embedder.embed(sentences))


def one_a_call(embedder: Embedder, sentences: list[list[str]]) -> None:
    for sentence in sentences:
        exhaust(embedder.embed([sentence]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, torch.get_num_threads()])
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 2], help="busy processes beside it")
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--sentences", type=int, default=1000, help="in a stream; one a call: a tenth of them")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sentences = sentences_of(arguments.text, arguments.sentences)
    some = sentences[: len(sentences) // 10]
    embedders = {name: load(arguments.model, device="cpu", precision=name) for name in arguments.precisions}
    for embedder in embedders.values():
        stream(embedder, sentences)
    print(f"{os.cpu_count()} cores, torch {torch.__version__}; {arguments.model}, {n_tokens(sentences):,} tokens\n")
    print("| busy processes | precision | threads | stream | one a call |\n|---|---|---|---|---|")
    for busy in arguments.busy:
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        with neighbours(busy):
            for _ in range(arguments.rounds):
                for name, embedder in embedders.items():
                    for threads in arguments.threads:
                        torch.set_num_threads(threads)
                        speeds = (
                            n_tokens(sentences) / timed(partial(stream, embedder, sentences)),
                            n_tokens(some) / timed(partial(one_a_call, embedder, some)),
                        )
                        found.setdefault((name, threads), []).append(speeds)
        for (name, threads), rounds in found.items():
            cells = [f"{statistics.median(values):,.0f}" for values in zip(*rounds, strict=True)]
            print(f"| {busy} | {name} | {threads} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
