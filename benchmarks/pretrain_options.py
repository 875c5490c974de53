"""Speed and memory of training with different options, on one GPU.

    python benchmarks/pretrain_options.py CORPUS [--preset small] [--batch 1024] [--steps 40]

Each row differs from the second one in one option. Memory is the peak that PyTorch reserved, and the estimate before
the first step.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from pretrain_speed import seconds_per_step, training_of

from elmo.pretrain.corpus import Corpus

CHANGES = {
    "the original's recipe, float32": ["precision=float32"],
    "bfloat16 products": [],
    "reference implementation, float32": ["precision=float32", "kernels=reference"],
    "reference implementation, bfloat16": ["kernels=reference"],
    "both directions read the same text": ["batch.same_text=true"],
    "in 4 parts": ["batch.accumulate=4"],
    "Adam": ["optimizer.name=adam", "optimizer.learning_rate=0.001"],
    "full softmax": ["negatives=none"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    print(f"{arguments.preset}, batch {arguments.batch}, {len(corpus.vocabulary):,} words")
    print("| | tokens/s | GiB | estimated |\n|---|---|---|---|")
    for name, change in CHANGES.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            training = training_of(corpus, Path(folder), arguments.preset, arguments.batch, change)
            speed = training.plan.tokens_per_step / seconds_per_step(training, arguments.steps, first=10)
        used, estimated = torch.cuda.max_memory_reserved() / 2**30, training.plan.bytes_needed / 2**30
        print(f"| {name} | {speed:,.0f} | {used:.1f} | {estimated:.1f} |", flush=True)
        del training


if __name__ == "__main__":
    main()
