"""`elmo embed --engine ray` with one and more workers on this machine, beside one process with one thread.

    python benchmarks/ray_speed.py TEXT [--workers 1 2] [--rounds 3]

Ray is started before anything is timed. In every round, each takes its turn, so other load on the machine falls on all
of them. Seconds are those of a whole call: starting the workers, loading the model, embedding, writing. Prints their
medians, tokens/s, and the median ratio to one process.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import ray
import torch

from elmo.analysis.tables import markdown
from elmo.embed.embed_file import embed_file
from elmo.integrations.ray import embed_file_on_ray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(include_dashboard=False, num_cpus=max(options.workers), log_to_driver=False, logging_level="error")
    times: dict[str, list[float]] = {}
    tokens = 0
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            tokens = embed_file(options.text, Path(folder) / "alone.parquet", device="cpu").tokens
            times.setdefault("one process", []).append(time.perf_counter() - began)
            for workers in options.workers:
                began = time.perf_counter()
                embed_file_on_ray(options.text, Path(folder) / f"{workers}.parquet", workers=workers)
                times.setdefault(f"Ray, workers: {workers}", []).append(time.perf_counter() - began)
    ray.shutdown()
    alone = times["one process"]
    rows = []
    for name, each in times.items():
        seconds = statistics.median(each)
        ratio = statistics.median(one / other for one, other in zip(alone, each, strict=True))
        rows.append([name, f"{seconds:.0f}", f"{tokens / seconds:,.0f}", f"{ratio:.2f}"])
    print(markdown([f"{tokens:,} tokens", "seconds", "tokens/s", "speed over one process"], rows))


if __name__ == "__main__":
    main()
