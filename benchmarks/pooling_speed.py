"""Speed of sentence vectors on one CPU thread, by pooling: how much is saved where no LSTM is run.

    python benchmarks/pooling_speed.py TEXT

TEXT has one raw sentence per line; 1,000 are drawn, whose mean length is about 20 tokens. The English model, all words
in the cache; the best of three passes, in tokens per CPU second.
"""

import sys
import time
from pathlib import Path

import torch
from embed_speed import n_tokens, sentences_of

from elmo.embed.embedder import load


def main() -> None:
    torch.set_num_threads(1)
    sentences = sentences_of(Path(sys.argv[1]))
    embedder = load("english", device="cpu")
    print("| pooling | tokens per CPU second |\n|---|---|")
    for pooling in ("mean", "sif", "english-sentence"):
        embedder.encode(sentences, pooling=pooling)
        seconds = []
        for _ in range(3):
            start = time.process_time()
            embedder.encode(sentences, pooling=pooling)
            seconds.append(time.process_time() - start)
        print(f"| {pooling} | {n_tokens(sentences) / min(seconds):,.0f} |", flush=True)


if __name__ == "__main__":
    main()
