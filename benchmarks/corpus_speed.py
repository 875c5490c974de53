"""Speed and memory of `elmo prepare`, and of preparing the batches that training reads.

    python benchmarks/corpus_speed.py TEXT CORPUS [--jobs 2] [--tokenizer moses]

TEXT is prepared into a temporary folder. CORPUS is a prepared corpus, whose batches are made as for training: two
independent directions, distinct words and their characters, 8,192 negatives in each direction.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from elmo.pretrain.batch import Batches
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.prepare import prepare
from elmo.pretrain.streams import Streams

STEPS = 400


def batches(corpus: Corpus, size: int) -> float:
    """Return the tokens/s of preparing batches, in one thread."""
    streams = Streams(corpus, size, 20)
    made = Batches(corpus, streams, corpus.vocabulary, max_characters=50, negatives=8192)
    steps = min(STEPS, int(streams.windows_per_epoch))
    start = time.perf_counter()
    for _ in made.from_step(0, steps):
        pass
    return steps * size * 20 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tokenizer", default="moses")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for jobs in sorted({1, arguments.jobs}):
            start, cpu = time.perf_counter(), time.process_time()
            out = Path(folder) / f"corpus-{jobs}"
            counts = prepare(arguments.text, out, tokenizer=arguments.tokenizer, jobs=jobs)["counts"]
            speed = counts["tokens"] / (time.perf_counter() - start)
            here = f", {counts['tokens'] / (time.process_time() - cpu):,.0f} per CPU second" if jobs == 1 else ""
            print(f"prepare, {jobs} jobs: {counts['tokens']:,} tokens, {speed:,.0f} tokens/s{here}")
    corpus = Corpus.open(arguments.corpus)
    for size in (128, 512, 2048):
        print(f"batches of {size} × 20: {batches(corpus, size):,.0f} tokens/s")
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"memory of the largest process: {used / 2**10:,.0f} MiB")


if __name__ == "__main__":
    main()
