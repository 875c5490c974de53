"""Tokens per CPU second of `Embedder.score_all`: the probability of every token by both language models.

    python benchmarks/score_speed.py TEXT [--model english] [--sentences 300] [--rounds 3] [--threads 1]

TEXT has a tokenized sentence in each line. The best of several rounds counts. Another version of the code is measured
by the same script with PYTHONPATH=THAT/src.
"""

import argparse
import time
from itertools import islice
from pathlib import Path

import torch

import elmo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with options.text.open(encoding="utf-8") as lines:
        sentences = list(islice(filter(None, map(str.split, lines)), options.sentences))
    tokens = sum(map(len, sentences))
    model = elmo.load(options.model, softmax=True)
    list(model.score_all(sentences))  # fills the cache of word vectors
    seconds = []
    for _ in range(options.rounds):
        began = time.process_time()
        list(model.score_all(sentences))
        seconds.append(time.process_time() - began)
    print(f"{elmo.__file__}: {tokens:,} tokens, {tokens / min(seconds):,.0f} per CPU second")


if __name__ == "__main__":
    main()
