"""How many threads? The small model's tokens/s with one and with all, alone and beside a busy neighbour.

    python benchmarks/threads.py TEXT

The neighbour is one process that does nothing but compute. Median of three rounds, word cache warm.
"""

import multiprocessing
import statistics
import sys
import time
from pathlib import Path

import torch
from embed_speed import exhaust, n_tokens, sentences_of, timed

from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.weights.folder import Pretrained


def busy() -> None:
    while True:
        pass


def main() -> None:
    sentences = sentences_of(Path(sys.argv[1]), 400)
    torch.manual_seed(0)
    embedder = Embedder(Pretrained(BiLM(BiLMConfig.preset("small"))), device="cpu")
    exhaust(embedder.embed(sentences))
    everything = torch.get_num_threads()
    for neighbours in (0, 1):
        processes = [multiprocessing.Process(target=busy, daemon=True) for _ in range(neighbours)]
        for process in processes:
            process.start()
        time.sleep(1)
        for threads in (1, everything):
            torch.set_num_threads(threads)
            speeds = [n_tokens(sentences) / timed(lambda: exhaust(embedder.embed(sentences))) for _ in range(3)]
            every = " ".join(f"{speed:,.0f}" for speed in speeds)
            print(f"{neighbours} neighbours, {threads} threads: {statistics.median(speeds):,.0f} tokens/s ({every})")
        for process in processes:
            process.kill()


if __name__ == "__main__":
    main()
