"""`elmo embed --engine ray` with one and more workers on this machine, beside one process with one thread.

    python benchmarks/ray_speed.py TEXT [--workers 1 2] [--rounds 3]

Ray is started before anything is timed. In every round, each takes its turn, so other load on the machine falls on all
of them. Seconds are those of a whole call: starting the workers, loading the model, embedding, writing. CPU seconds are
those of all processes together, Ray's own among them, read from /proc five times a second. Prints medians, tokens/s,
and the median ratios to one process. Seconds say something on a quiet machine only. CPU seconds say what Ray costs on
any: n workers on n free CPUs take at least their n-th part.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: beside other load, workers would hardly run

import ray
import torch

from elmo.analysis.tables import markdown
from elmo.embed.embed_file import embed_file
from elmo.integrations.ray import embed_file_on_ray


class Timed:
    """The seconds, and the CPU seconds of this process and all that descend from it, of what is done in a `with`."""

    def __enter__(self) -> "Timed":
        self._before = dict(cpu_times(os.getpid()))
        self._last = dict(self._before)
        self._began = time.perf_counter()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def _look(self) -> None:
        """Look again and again: what an ended process has used cannot be asked for."""
        while not self._ended.wait(0.2):
            self._last.update(cpu_times(os.getpid()))

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self._ended.set()
        self._watch.join()
        self._last.update(cpu_times(os.getpid()))
        self.cpu = sum(used - self._before.get(pid, 0) for pid, used in self._last.items())


def cpu_times(pid: int) -> Iterator[tuple[int, float]]:
    """Yield the CPU seconds of a process and of all that descend from it."""
    try:
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        children = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        return
    yield pid, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    for child in (child for some in children for child in some):
        yield from cpu_times(int(child))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(include_dashboard=False, num_cpus=max(options.workers), log_to_driver=False, logging_level="error")
    times: dict[str, list[Timed]] = {}
    tokens = 0
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            with Timed() as timed:
                tokens = embed_file(options.text, Path(folder) / "alone.parquet", device="cpu").tokens
            times.setdefault("one process", []).append(timed)
            for workers in options.workers:
                with Timed() as timed:
                    embed_file_on_ray(options.text, Path(folder) / f"{workers}.parquet", workers=workers)
                times.setdefault(f"Ray, workers: {workers}", []).append(timed)
    ray.shutdown()
    alone = times["one process"]
    rows = []
    for name, each in times.items():
        seconds, cpu = statistics.median(run.seconds for run in each), statistics.median(run.cpu for run in each)
        pairs = list(zip(alone, each, strict=True))
        speed = statistics.median(one.seconds / other.seconds for one, other in pairs)
        cost = statistics.median(other.cpu / one.cpu for one, other in pairs)
        rows.append([name, f"{seconds:.0f}", f"{tokens / seconds:,.0f}", f"{speed:.2f}", f"{cpu:.0f}", f"{cost:.2f}"])
    print(markdown([f"{tokens:,} tokens", "seconds", "tokens/s", "speed", "CPU seconds", "CPU over one process"], rows))


if __name__ == "__main__":
    main()
