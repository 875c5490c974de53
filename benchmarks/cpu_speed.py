"""The CPU path beside an older version of itself, plain PyTorch, AllenNLP and simple_elmo: speed, memory, load.

    git worktree add --detach ../before f0e2c33
    python benchmarks/cpu_speed.py TEXT --before ../before [--sizes english original] [--threads 1 2] [--busy 2]
    pip install --no-deps --target FOLDER allennlp==2.10.1     # for --allennlp FOLDER

TEXT has one raw sentence per line. Every contestant is a process of its own that waits for its turn; in each of
`--rounds` rounds they take turns at every task, so that a busy moment of the machine falls on all of them. A figure is
the median of the rounds, in tokens/s. Prints Markdown tables.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
TASKS = ["stream, cold", "stream, warm", "one a call, cold", "one a call, warm"]
N_SENTENCES = {"english": (1000, 60), "original": (320, 16)}  # of a stream, and one a call


class Contestant:
    """A child process that has a model loaded, and computes a task when it is asked to."""

    def __init__(self, name: str, source: Path, **settings: Any) -> None:
        self.name = name
        environment = os.environ | {"PYTHONPATH": f"{source}:{HERE.parent}"}
        command = [sys.executable, str(HERE), "--child", json.dumps(settings)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, task: str) -> float:
        """Return tokens/s."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(task, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


def child(
    model: str, text: str, threads: int | None, precision: str, plain: bool, save: str, cpu_time: bool,
    allennlp: list[str] | None = None,
) -> None:
    """Answer tasks from standard input with tokens/s."""
    clock = time.process_time if cpu_time else time.perf_counter
    import numpy as np
    import torch

    from elmo.embed.embedder import load

    if threads is not None:
        torch.set_num_threads(threads)
    sentences = json.loads(Path(text).read_text())
    embedder = load(model, device="cpu", precision=precision)
    other = None
    if plain:
        from plain import PlainBiLM

        other = PlainBiLM(embedder.bilm)
    if allennlp is not None:
        from allennlp_peer import AllenNLP

        other = AllenNLP(*map(Path, allennlp))

    def stream() -> None:
        if other is None:
            for _ in embedder.embed(sentences["stream"]):
                pass
        else:
            for k in range(0, len(sentences["stream"]), 32):
                other.embed(sentences["stream"][k : k + 32])

    def one() -> None:
        for sentence in sentences["one"]:
            list(embedder.embed([sentence])) if other is None else other.embed([sentence])

    for line in sys.stdin:
        task = line.strip()
        if task == "save":
            some = sentences["stream"][:64]
            np.savez(save, *(embedder.embed(some) if other is None else other.embed(some)))
            print(0, flush=True)
            continue
        run, part = (stream, "stream") if task.startswith("stream") else (one, "one")
        if task.endswith("cold"):
            embedder.cache.clear()
        else:
            run()
        start = clock()
        run()
        print(sum(map(len, sentences[part])) / (clock() - start), flush=True)


def fresh_process(model: str, text: str, precision: str) -> None:
    """Print seconds to import PyTorch, to load, and to embed the first sentence; MiB at the end of a stream."""
    start = time.perf_counter()
    import torch  # noqa: F401

    imported = time.perf_counter()
    from elmo.embed.embedder import load

    embedder = load(model, device="cpu", precision=precision)
    loaded = time.perf_counter()
    sentences = json.loads(Path(text).read_text())
    list(embedder.embed(sentences["one"][:1]))
    first = time.perf_counter()
    for _ in embedder.embed(sentences["stream"]):
        pass
    status = Path("/proc/self/status").read_text().split()  # Linux; the older version has no function for it
    peak = int(status[status.index("VmHWM:") + 1]) / 2**10
    print(json.dumps([imported - start, loaded - imported, first - loaded, peak]))


def products_alone(size: str, rows: int) -> float:
    """Return tokens/s of one thread if nothing but the LSTMs' products took time, with the best kernel for each."""
    import torch

    from elmo.model.bilm import BiLMConfig
    from elmo.model.kernels.products import PackedProduct

    torch.set_num_threads(1)
    config = BiLMConfig.preset("small" if size == "english" else size).lstm
    seconds = 0.0
    shapes = (config.projection_dim, 4 * config.dim, max(rows, 512)), (config.projection_dim, 4 * config.dim, rows)
    for inner, columns, at in (*shapes, (config.dim, config.projection_dim, rows)):
        x, matrix = torch.randn(at, inner), torch.randn(inner, columns)
        packed = PackedProduct(matrix)
        best = math.inf
        for _ in range(20):
            for run in (lambda: packed(x), lambda: torch.mm(x, matrix)):  # noqa: B023
                start = time.perf_counter()
                run()
                best = min(best, time.perf_counter() - start)
        seconds += 2 * config.n_layers * best / at
    return 1 / seconds


def busy() -> None:
    while True:
        pass


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep so many processes busy."""
    processes = [multiprocessing.Process(target=busy, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def compare(contestants: list[Contestant], tasks: list[str], rounds: int) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for task in tasks:
            for contestant in contestants:
                found.setdefault((contestant.name, task), []).append(contestant.ask(task))
    return found


def table(
    found: dict[tuple[str, str], list[float]], names: list[str], tasks: list[str], against: str, bound: float | None
) -> None:
    print(f"| | {' | '.join(tasks)} |")
    print("|---" * (len(tasks) + 1) + "|")
    for name in names:
        cells = []
        for task in tasks:
            speed = statistics.median(found[name, task])
            ratio = speed / statistics.median(found[against, task])
            share = f", {100 * speed / bound:.0f} % of bound" if bound and task.startswith("stream") else ""
            rounds = " ".join(f"{value:,.0f}" for value in found[name, task])
            cells.append(f"{speed:,.0f} ({ratio:.2f} ×{share}; {rounds})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def errors(wanted: Path, found: Path) -> str:
    """Describe the differences of two files of arrays: the largest, and the mean cosine of each layer."""
    import numpy as np

    largest, cosines = 0.0, []
    with np.load(wanted) as ours, np.load(found) as theirs:
        for name in ours:
            a, b = ours[name], theirs[name]
            largest = max(largest, float(np.abs(a - b).max(initial=0)))
            cosines.append((a * b).sum(2) / np.maximum(np.linalg.norm(a, axis=2) * np.linalg.norm(b, axis=2), 1e-9))
    means = " ".join(f"{value:.5f}" for value in np.concatenate(cosines, axis=1).mean(axis=1))
    return f"largest difference {largest:.1e}; mean cosine of each layer {means}"


def measure(size: str, arguments: argparse.Namespace, folder: Path) -> None:
    from embed_speed import mean_rows, sentences_of, simple_elmo

    from elmo.embed.embedder import load
    from elmo.model.bilm import BiLM, BiLMConfig
    from elmo.weights import bilm_tf

    stream, one = N_SENTENCES[size]
    sentences = sentences_of(arguments.text, min(stream, arguments.sentences or stream))
    text = folder / f"{size}.json"
    alone = [sentence for sentence in sentences if 15 <= len(sentence) <= 25][:one]
    text.write_text(json.dumps({"stream": sentences, "one": alone}))
    model = size
    if size != "english":
        model = str(folder / "weights.hdf5")
        bilm_tf.write(BiLM(BiLMConfig.preset(size)), folder / "options.json", Path(model))
    if arguments.allennlp and size == "english":
        bilm_tf.write(load(size, device="cpu").bilm, folder / "options.json", folder / "weights.hdf5")
    here, before = HERE.parent.parent / "src", arguments.before / "src"
    kinds = [("before", before, "float32"), ("float32", here, "float32"), ("int8", here, "int8")]

    def contestants(threads: int | None, others: bool) -> list[Contestant]:
        common = {"model": model, "text": str(text), "threads": threads, "cpu_time": arguments.cpu_time}
        them = [
            Contestant(name, source, **common, precision=precision, plain=False, save=str(folder / f"{name}.npz"))
            for name, source, precision in kinds
        ]
        if others:
            them.append(Contestant("plain", here, **common, precision="float32", plain=True, save=""))
        if others and arguments.allennlp:
            files = [str(path) for path in (arguments.allennlp, folder / "options.json", folder / "weights.hdf5")]
            save = str(folder / "AllenNLP.npz")
            peer = Contestant("AllenNLP", here, **common, precision="float32", plain=False, save=save, allennlp=files)
            them.append(peer)
        return them

    tokens = sum(map(len, sentences))
    print(f"\n## {size}: {len(sentences)} sentences, {tokens} tokens; one a call: {len(alone)} sentences")
    rows = mean_rows(sentences, 2048)
    bound = products_alone(size, rows)
    print(f"Bound, one thread, at {rows} rows a step: {bound:,.0f} tokens/s")
    names = ["before", "float32", "int8"]
    for threads in arguments.threads:
        them = contestants(threads, others=True)
        found = compare(them[:3], TASKS, arguments.rounds)
        found |= compare(them[3:], [TASKS[1], TASKS[3]], 1)
        others = [contestant.name for contestant in them[3:]]
        for name in others:  # they have no cache
            for cold, warm in ((TASKS[0], TASKS[1]), (TASKS[2], TASKS[3])):
                found[name, cold] = found[name, warm]
        if threads == arguments.threads[0]:
            saving = [contestant for contestant in them if contestant.name != "plain"]
            for contestant in saving:
                contestant.ask("save")
            for name in (contestant.name for contestant in saving[1:]):
                print(f"{name}: {errors(folder / 'before.npz', folder / f'{name}.npz')}")
        for contestant in them:
            contestant.end()
        print(f"\n{threads} threads; in brackets, against before:\n")
        table(found, [*names, *others], TASKS, "before", threads * bound)
    if arguments.simple_elmo:
        like = "small" if size == "english" else size
        for batch, some in ((32, sentences[:128]), (1, alone[:16])):
            speed, _ = simple_elmo(arguments.simple_elmo, like, some, batch)
            print(f"simple_elmo, batch {batch}: {speed:,.0f} tokens/s")
    if arguments.busy:
        tasks = [TASKS[1], TASKS[3]]
        with neighbours(arguments.busy):
            them = contestants(None, others=False)
            alone_there = contestants(1, others=False)
            for contestant in alone_there:
                contestant.name += ", one thread"
            found = compare([*alone_there, *them], tasks, arguments.rounds)
            for contestant in [*them, *alone_there]:
                contestant.end()
        print(f"\nBeside {arguments.busy} busy processes; in brackets, against one thread of float32 there:\n")
        table(found, [f"{n}{t}" for n in names for t in (", one thread", "")], tasks, "float32, one thread", None)
    print("\n| in a new process | import torch, s | load, s | first sentence, s | peak memory, MiB |")
    print("|---|---|---|---|---|")
    for name, source, precision in kinds:
        settings = json.dumps({"model": model, "text": str(text), "precision": precision})
        command = [sys.executable, str(HERE), "--fresh", settings]
        environment = os.environ | {"PYTHONPATH": str(source)}
        runs = [
            json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(arguments.rounds)
        ]
        *seconds, peak = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in seconds) + f" | {peak:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--before", type=Path, help="a worktree of the older version")
    parser.add_argument("--sizes", nargs="+", default=["english", "original"], choices=N_SENTENCES)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside it, for a table of its own; 0: none")
    parser.add_argument(
        "--cpu-time", action="store_true", help="count CPU seconds: for one thread on a machine that others use, too"
    )
    parser.add_argument("--simple-elmo", metavar="PYTHON", help="an interpreter that has simple_elmo and TensorFlow")
    parser.add_argument("--allennlp", type=Path, metavar="FOLDER", help="where AllenNLP 2.10.1 is installed")
    parser.add_argument("--sentences", type=int, help="at most so many sentences of a stream, for a quick look")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(**json.loads(arguments.child))
    elif arguments.fresh:
        fresh_process(**json.loads(arguments.fresh))
    elif arguments.text is None or arguments.before is None:
        parser.error("TEXT and --before are needed")
    else:
        import torch

        if arguments.allennlp is None or not (arguments.allennlp / "allennlp").is_dir():
            print("AllenNLP is left out: give --allennlp the folder in which it is installed")
            arguments.allennlp = None
        print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
        with tempfile.TemporaryDirectory() as folder:
            for size in arguments.sizes:
                measure(size, arguments, Path(folder))


if __name__ == "__main__":
    main()
