"""Speed of the small model with one thread and with all, on an idle machine and on a busy one.

    python benchmarks/threads.py TEXT

On the busy machine, one other process computes without pause. Median of three rounds, all words in the cache.
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
    for others in (0, 1):
        processes = [multiprocessing.Process(target=busy, daemon=True) for _ in range(others)]
        for process in processes:
            process.start()
        time.sleep(1)
        for threads in (1, everything):
            torch.set_num_threads(threads)
            speeds = [n_tokens(sentences) / timed(lambda: exhaust(embedder.embed(sentences))) for _ in range(3)]
            every = " ".join(f"{speed:,.0f}" for speed in speeds)
            print(f"{others} busy processes, {threads} threads: {statistics.median(speeds):,.0f} tokens/s ({every})")
        for process in processes:
            process.kill()


if __name__ == "__main__":
    main()
