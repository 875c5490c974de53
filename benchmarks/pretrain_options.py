"""What each option of training costs or gains: tokens/s and memory, one after another on one device.

    python benchmarks/pretrain_options.py CORPUS [--preset small] [--batch 1024] [--steps 40]

Each row changes one thing from the first; the first steps of each, in which memory is claimed and kernels are built,
are not counted. On a GPU the memory is what PyTorch had allocated at most.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch

from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.loop import Training

CHANGES = {
    "the original's recipe, float32": [],
    "bfloat16 products": ["precision=bfloat16"],
    "bfloat16, both directions read the same text": ["precision=bfloat16", "batch.same_text=true"],
    "bfloat16, in 4 parts": ["precision=bfloat16", "batch.accumulate=4"],
    "bfloat16, Adam": ["precision=bfloat16", "optimizer.name=adam", "optimizer.rate=0.001"],
    "bfloat16, full softmax": ["precision=bfloat16", "negatives=none"],
    "bfloat16, plain step compiled": ["precision=bfloat16", "compile=true"],
}


def measure(corpus: Corpus, arguments: argparse.Namespace, change: list[str]) -> tuple[float, float, float]:
    """Tokens/s, GiB, and GiB foretold."""
    common = [f"batch.size={arguments.batch}", f"steps={arguments.steps}", f"log_every={arguments.steps // 2}"]
    quiet = ["evaluation.every=0", "evaluation.tokens=1000"]
    config = PretrainConfig.of(arguments.preset, None, [*common, *quiet, *change])
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        training = Training(corpus, Path(folder) / "run", config)
        training.train()
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "loss" in line][-1]
    return last["tokens_per_second"], last.get("memory", 0) / 2**30, training.plan.bytes_needed / 2**30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    print(f"{arguments.preset}, batch {arguments.batch}, {len(corpus.vocabulary):,} words")
    print("| | tokens/s | GiB | foretold |\n|---|---|---|---|")
    for name, change in CHANGES.items():
        speed, used, foretold = measure(corpus, arguments, change)
        print(f"| {name} | {speed:,.0f} | {used:.1f} | {foretold:.1f} |", flush=True)


if __name__ == "__main__":
    main()
