"""Where a task's training step spends its time: seconds, operations, the GPU's share, memory, and how they grow.

    python benchmarks/task_steps.py DATA [--tasks squad snli srl coref ner sst] [--model english] [--steps 20]
    python benchmarks/task_steps.py DATA --set train.recorded=false    # on a GPU: without CUDA graphs

DATA is the folder of datasets of `elmo analyse tasks`. Every task has its recipe in experiments/analysis/tasks.toml,
with the given biLM, or without ELMo (`--model none`). Measured are the `--batches` batches with the shortest texts, as
many of middle length, and as many with the longest; and an epoch is estimated from as many random ones. A step is
forward, backward and optimizer: on a CPU the median of `--steps` of them, on a GPU their mean, without waiting between.

"Longest text" is the mean number of tokens of a batch's longest text. Operations are those of PyTorch that call no
other; kernels are what the GPU ran. "GPU busy" is the time in kernels, divided by that of a step without the profiler.
"Python" is the part of a profiled step in which the CPU was in no operation.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from elmo.analysis.analysis import build_config
from elmo.analysis.sweep import TaskSetup
from elmo.analysis.tasks import ANALYSIS
from elmo.model.kernels.products import onednn_products
from elmo.tasks.batches import batches
from elmo.tasks.examples import Example
from elmo.tasks.recipe import recipe
from elmo.tasks.train import TaskTraining
from elmo.training import memory

ROOT = Path(__file__).parents[1]
SETUPS = build_config(ANALYSIS, ROOT / "experiments" / "analysis" / "tasks.toml").tasks
TASKS: dict[str, TaskSetup] = {setup.task: setup for setup in reversed(SETUPS)}  # the first one of each task


def chosen(training: TaskTraining, count: int) -> dict[str, list[list[int]]]:
    """Return some batches of the training part by what they have in common: short, middle, long, random."""
    examples, rng = training.splits["train"], np.random.default_rng(0)
    groups = batches(examples, training.train_config.batch_size, rng)
    by_length = sorted(groups, key=lambda rows: longest([examples[row] for row in rows]))
    middle = max(0, (len(groups) - count) // 2)
    return {
        "short": by_length[:count],
        "middle": by_length[middle : middle + count],
        "long": by_length[-count:],
        "random": groups[:count],
    }


def longest(examples: Sequence[Example]) -> int:
    return max(len(text) for example in examples for text in example.texts)


def seconds(step: Callable[[], object], device: torch.device, count: int) -> float:
    """The time of a step: on a CPU the median, on a GPU the mean of steps that follow each other, as in training."""
    if device.type != "cuda":
        times = []
        for _ in range(count):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        return statistics.median(times)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count


def profiled(step: Callable[[], object], device: torch.device, count: int) -> tuple[float, float, float, float]:
    """Of a step: operations, kernels, seconds in kernels, and seconds in which the CPU computes no operation."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities, acc_events=True) as recorded:
        began = time.perf_counter()
        for _ in range(count):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        wall = time.perf_counter() - began
    events = recorded.events()
    on_cpu = [event for event in events if event.device_type == DeviceType.CPU]
    kernels = [event for event in events if event.device_type == DeviceType.CUDA]
    operations = sum(1 for event in on_cpu if event.name.startswith("aten::") and not event.cpu_children)
    computing = sum(event.cpu_time_total for event in on_cpu if event.cpu_parent is None) / 1e6
    busy = sum(event.device_time_total for event in kernels) / 1e6
    return operations / count, len(kernels) / count, busy / count, max(wall - computing, 0.0) / count


def measure(name: str, data: Path, given: argparse.Namespace) -> None:
    model, count, steps, limit = given.model, given.batches, given.steps, given.examples
    setup = TASKS[name]
    elmo = ["inputs.elmo.placement=none"] if model == "none" else [f"inputs.elmo.model={model}"]
    settings = [f"inputs.vectors={data / str(setup.vectors)}", *elmo, *given.set]
    task, config = recipe(name, ROOT / str(setup.recipe), settings)
    splits = {part: examples[:limit] for part, examples in task.read(data / setup.data).items() if part != "test"}
    with tempfile.TemporaryDirectory() as out:
        training = TaskTraining(task, config, splits, Path(out) / "run", data=str(data / setup.data))
    examples = training.splits["train"]
    per_epoch = -(-len(examples) // config.train.batch_size)
    training.model.train()
    number = 0

    def step(rows: list[int]) -> None:
        nonlocal number
        with onednn_products(training.device):  # as in training
            training.gradients([examples[row] for row in rows])
            training.learner.step(number)
        number += 1

    for kind, groups in chosen(training, count).items():
        for rows in groups:  # not measured: kernels are compiled, memory is reserved
            step(rows)
        if training.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(training.device)
        if kind == "random":
            taken = statistics.mean(
                seconds(lambda rows=rows: step(rows), training.device, max(1, steps // count)) for rows in groups
            )
            print(f"| {name} | an epoch of {per_epoch:,} batches | | {per_epoch * taken:.1f} s | | | | | |", flush=True)
            continue
        stream = cycle(groups)
        taken = seconds(lambda stream=stream: step(next(stream)), training.device, steps)
        used = memory.peak(training.device)
        operations, kernels, busy, python = profiled(
            lambda stream=stream: step(next(stream)), training.device, len(groups)
        )
        tokens = statistics.mean(longest([examples[row] for row in rows]) for rows in groups)
        print(
            f"| {name} | {kind} | {tokens:.0f} | {1000 * taken:.1f} ms | {operations:,.0f} | {kernels:,.0f} | "
            f"{busy / taken:.0%} | {1000 * python:.1f} ms | {(used or 0) / 2**20:,.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--model", default="english")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--examples", type=int, help="read only so many of each part: fewer layers to compute")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of the recipe")
    given = parser.parse_args()
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{where}, torch {torch.__version__}, biLM {given.model}\n")
    print("| task | batches | longest text | step | operations | kernels | GPU busy | Python | memory, MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.tasks:
        measure(name, given.data, given)


if __name__ == "__main__":
    main()
