"""Embedding speed on a CPU, compared with a plain biLM and with the LSTMs' matrix products alone, in one run.

    python benchmarks/embed_speed.py TEXT [--sizes small original] [--simple-elmo PYTHON]

TEXT has one raw sentence per line; 1,000 are drawn so that their mean length is about 20 tokens.
Weights are random: speed does not depend on them. Every figure is the median of `--rounds` rounds, in each of which
all implementations run one after the other, so that other load on the machine affects all of them.
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from plain import PlainBiLM

from elmo.embed.embedder import Embedder, load
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.text.tokens import words
from elmo.training import memory
from elmo.weights import bilm_tf
from elmo.weights.folder import Pretrained


def sentences_of(path: Path, count: int = 1000, mean: float = 20.5) -> list[list[str]]:
    """Draw real sentences; of the longer ones, leave out some at random until the mean length is about 20."""
    chance = random.Random(0)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    chosen = [words(line) for line in chance.sample(lines, min(len(lines), 2 * count))]
    while sum(map(len, chosen)) > mean * len(chosen):
        chosen.remove(chance.choice([tokens for tokens in chosen if len(tokens) > mean]))
    return chosen[:count]


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


def in_calls(embedder: Embedder, sentences: list[list[str]], size: int) -> None:
    """Make one call per `size` sentences, as a user with batches of that size does."""
    for k in range(0, len(sentences), size):
        exhaust(embedder.embed(sentences[k : k + size]))


def n_tokens(sentences: list[list[str]]) -> int:
    return sum(map(len, sentences))


def matmul_speed(rows: int, inner: int, columns: int) -> float:
    """Return the FLOP/s of the product of both directions: the better of one batched and two plain products."""
    a, b = torch.randn(2, rows, inner), torch.randn(2, inner, columns)
    out = torch.empty(2, rows, columns)
    flops = 2 * 2 * rows * inner * columns
    repeats = max(3, int(2e9 / flops))

    def batched() -> None:
        for _ in range(repeats):
            torch.bmm(a, b, out=out)

    def plain() -> None:
        for _ in range(repeats):
            torch.mm(a[0], b[0], out=out[0])
            torch.mm(a[1], b[1], out=out[1])

    batched(), plain()
    return flops * repeats / min(timed(run) for run in (batched, plain) for _ in range(3))


def bound(config: BiLMConfig, rows: int) -> float:
    """Return the tokens/s if only the LSTMs' matrix products took time, with `rows` rows per step."""
    dim, cell, layers = config.lstm.projection_dim, config.lstm.dim, config.lstm.n_layers
    seconds = 0.0
    for inner, columns, at in ((dim, 4 * cell, max(rows, 512)), (dim, 4 * cell, rows), (cell, dim, rows)):
        seconds += 2 * layers * 2 * inner * columns / matmul_speed(at, inner, columns)
    return 1.0 / seconds


def mean_rows(sentences: list[list[str]], budget: int = 4096) -> int:
    """Return the mean number of sentences that are active at a step of the internal batches."""
    from elmo.text.batches import by_length

    lengths = [len(sentence) for sentence in sentences]
    steps = sum(max(lengths[row] for row in batch) for batch in by_length(lengths, budget))
    return round(sum(lengths) / steps)


def compare(size: str, sentences: list[list[str]], rounds: int, peer: str | None) -> tuple[int, dict[str, list[float]]]:
    """Return the rows per step, and the tokens/s of every implementation in every round."""
    torch.manual_seed(0)
    config = BiLMConfig.preset(size)
    bilm = BiLM(config)
    embedder, plain = Embedder(Pretrained(bilm), device="cpu"), PlainBiLM(bilm)
    some = sentences[: 320 if size == "small" else 128]  # for the plain biLM: its speed does not change with more
    few = sentences[: 60 if size == "small" else 20]
    check = max(
        abs(torch.from_numpy(ours) - theirs).max().item()
        for ours, theirs in zip(embedder.embed(some[:32]), plain.embed(some[:32]), strict=True)
    )
    assert check < 1e-4, f"plain and ours differ by {check}"
    half = BiLM(config)
    half.load_state_dict(bilm.state_dict())
    short = Embedder(Pretrained(half), device="cpu", precision="bfloat16")
    error = max(abs(a - b).max() for a, b in zip(embedder.embed(some), short.embed(some), strict=True))
    print(f"\n{size}: largest difference from plain {check:.1e}, of bfloat16 from float32 {error:.1e}")
    found: dict[str, list[float]] = {}

    def note(name: str, tokens: list[list[str]], run: Callable[[], object]) -> None:
        found.setdefault(name, []).append(n_tokens(tokens) / timed(run))

    rows = mean_rows(sentences)
    for _ in range(rounds):
        for batch, tokens in ((32, some), (1, few)) if peer else ():
            speed, seconds = simple_elmo(peer, size, tokens, batch)
            found.setdefault(f"simple_elmo, batch {batch}", []).append(speed)
            found.setdefault("simple_elmo, load", []).append(seconds)
        note("plain, batch 32", some, lambda: [plain.embed(some[k : k + 32]) for k in range(0, len(some), 32)])
        note("plain, batch 1", few, lambda: [plain.embed([sentence]) for sentence in few])
        embedder.cache.clear()
        note("stream, cold", sentences, lambda: exhaust(embedder.embed(sentences)))
        note("stream, warm", sentences, lambda: exhaust(embedder.embed(sentences)))
        note("stream, warm, bf16", sentences, lambda: exhaust(short.embed(sentences)))
        embedder.cache.clear()
        note("calls of 32, cold", sentences, lambda: in_calls(embedder, sentences, 32))
        note("calls of 32, warm", sentences, lambda: in_calls(embedder, sentences, 32))
        note("calls of 1, warm", few, lambda: in_calls(embedder, few, 1))
        embedder.cache.clear()
        note("calls of 1, cold", few, lambda: in_calls(embedder, few, 1))
        found.setdefault("bound", []).append(bound(config, rows))
    return rows, found


def load_and_memory(size: str, sentences: list[list[str]]) -> dict[str, float]:
    """Return the seconds to load the published format, and the peak memory of embedding, in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        weights, options, text = (Path(folder) / name for name in ("weights.hdf5", "options.json", "text.json"))
        bilm_tf.write(BiLM(BiLMConfig.preset(size)), options, weights)
        text.write_text(json.dumps(sentences))
        command = [sys.executable, __file__, "--child", str(weights), "--child-text", str(text)]
        results = [json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)]
        results.append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
        return min(results, key=lambda result: result["load"])


def child(weights: str, text: str) -> None:
    sentences = json.loads(Path(text).read_text())
    start = time.perf_counter()
    embedder = load(weights, device="cpu")
    loaded = time.perf_counter() - start
    after_load = peak_memory()
    exhaust(embedder.embed(sentences))
    print(json.dumps({"load": loaded, "after_load": after_load, "peak": peak_memory()}))


def peak_memory() -> float:
    """Return the peak memory of this process in MiB."""
    peak = memory.peak(torch.device("cpu"))
    return math.nan if peak is None else peak / 2**20


def simple_elmo(python: str, size: str, sentences: list[list[str]], batch: int) -> tuple[float, float]:
    """Return simple_elmo's tokens/s and seconds to load, in its own environment, for the same sentences."""
    with tempfile.TemporaryDirectory() as folder:
        model, text = Path(folder) / "model", Path(folder) / "text.json"
        bilm_tf.write(BiLM(BiLMConfig.preset(size)), model / "options.json", model / "model.hdf5")
        text.write_text(json.dumps(sentences))
        command = [python, str(Path(__file__).with_name("simple_elmo_peer.py")), str(model), str(text), str(batch)]
        environment = os.environ | {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
        found = json.loads(done.stdout.splitlines()[-1])
        return found["speed"], found["load"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--sizes", nargs="+", default=["small", "original"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--simple-elmo", metavar="PYTHON", help="an interpreter that has simple_elmo and TensorFlow")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--child-text", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.child_text)
        return
    sentences = sentences_of(arguments.text)
    distinct = len({word for sentence in sentences for word in sentence})
    padded = sum(32 * (max(map(len, sentences[k : k + 32])) + 2) for k in range(0, len(sentences) - 31, 32))
    share = padded / n_tokens(sentences[: len(sentences) // 32 * 32])
    print(f"{len(sentences)} sentences, {n_tokens(sentences)} tokens, {distinct} distinct words;")
    print(f"in batches of 32, unsorted, {share:.1f} positions per token")
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for size in arguments.sizes:
        rows, found = compare(size, sentences, arguments.rounds, arguments.simple_elmo)
        print(f"  the bound is computed with {rows} rows per step")
        speeds = {name: statistics.median(values) for name, values in found.items()}
        if arguments.simple_elmo:
            print(f"  simple_elmo loads in {speeds.pop('simple_elmo, load'):.1f} s")
        for name, speed in speeds.items():
            peer = speeds["plain, batch 1" if "of 1" in name or name.endswith("batch 1") else "plain, batch 32"]
            share = 100 * speed / speeds["bound"]
            every = " ".join(f"{value:,.0f}" for value in found[name])
            ratio = speed / peer
            print(f"  {name:<22} {speed:>9,.0f} tokens/s {ratio:5.1f} × plain {share:4.0f} % of bound   ({every})")
        usage = load_and_memory(size, sentences)
        loaded, peak = usage["after_load"], usage["peak"]
        print(f"  load {usage['load']:.2f} s; peak memory {loaded:,.0f} MiB after loading, {peak:,.0f} after embedding")


if __name__ == "__main__":
    main()
