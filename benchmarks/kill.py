"""Kill `elmo prepare`, `pretrain`, `embed` and `train` at random moments (kill -9), continue them, compare the results.

    python benchmarks/kill.py [--kills 20] [--seed 0] [--commands prepare,train]

Of each command, one run is left alone. Others are killed after a random part of its time and started again, until one
ends; then the next one begins, until there were enough kills. Every result must have the bytes of the run that was left
alone, and no other files. A run that is killed after its result is complete leaves the empty lock file beside it; the
next command for this output must refuse the result that is there, and remove that file.

Small models: a run takes seconds. The processes are forked from one that has imported PyTorch, so that most kills hit
the work, not the imports.
"""

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import h5py
import numpy as np

from elmo.training.run import RECORD
from elmo_processes import start_elmo
from pretrain.test_resume import RECIPE
from tasks.small_ner import sentences, write_columns, write_elmo

CHANGING = ("time", "tokens_per_second", "train_seconds", "dev_seconds", "memory")  # differ between equal runs


class Command(NamedTuple):
    """A command: its arguments before the output, those after it, and the bytes of its result by file."""

    before: list[str]
    after: list[str]
    result: Callable[[Path], dict[str, bytes]]
    resume: bool = True  # with --resume if it has begun; else the same command again
    complete_when_there: bool = False  # the output is there when it is complete, not before


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a result, without what differs between equal runs."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: _content(path) for name, path in found.items() if name != RECORD}


def _content(path: Path) -> bytes:
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes()
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return json.dumps([_timeless(json.loads(line)) for line in lines]).encode()


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if name not in CHANGING}
    return value


def arrays(path: Path) -> dict[str, bytes]:
    """Return the arrays of an HDF5 file, whose own bytes depend on the order of writing."""
    with h5py.File(path) as file:
        text = json.loads(file["sentence_to_index"][0])
        found = {name: file[name][...].tobytes() for name in file if name != "sentence_to_index"}
    return found | {"sentences": json.dumps(text, sort_keys=True).encode()}


def commands(folder: Path) -> dict[str, Command]:
    """Write the input of every command."""
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(2000)]
    likely = 1 / np.arange(1, len(words) + 1)
    drawn = rng.choice(words, size=(8000, 12), p=likely / likely.sum())
    (folder / "text.txt").write_text("\n".join(map(" ".join, drawn)) + "\n")
    (folder / "short.txt").write_text("\n".join(map(" ".join, drawn[:4000])) + "\n")
    (folder / "few.txt").write_text("\n".join(map(" ".join, drawn[:600])) + "\n")
    model = write_elmo(folder / "elmo")
    write_columns(folder / "ner", {"train": sentences(60, 0), "dev": sentences(20, 1)})
    sizes = RECIPE | {"steps": 120, "checkpoints.every": 10}
    ner = {"hidden": 8, "n_layers": 1, "inputs.characters.filters": 6, "inputs.characters.dim": 4}
    ner |= {"inputs.vectors": "none", "inputs.elmo.model": model, "train.epochs": 8, "train.patience": "none"}
    ner |= {"train.batch_size": 5, "train.device": "cpu"}
    return {
        "prepare": Command(
            ["prepare", str(folder / "text.txt")],
            ["--jobs=2", "--lines"],
            files,
            resume=False,
            complete_when_there=True,
        ),
        "pretrain": Command(["pretrain", str(folder / "few.txt")], ["--preset=tiny", *_sets(sizes)], files),
        "embed": Command(
            ["embed", str(folder / "short.txt")], [f"--model={model}", "--device=cpu"], arrays, complete_when_there=True
        ),
        "train": Command(["train", "ner", str(folder / "ner")], _sets(ner), files),
    }


def _sets(values: dict[str, object]) -> list[str]:
    return [f"--set={name}={value}" for name, value in values.items()]


def attempt(command: Command, place: Path, limit: float | None = None) -> bool:
    """Run a command, or kill it after `limit` seconds; return whether it has ended by itself."""
    output = place / ("output.hdf5" if command.result is arrays else "output")
    complete = command.complete_when_there and output.exists()  # written under another name, and renamed
    begun = any(path.name.startswith("output") for path in place.iterdir())
    resume = ["--resume"] if command.resume and begun else []
    log = place.with_suffix(".log")
    (process,) = start_elmo(*command.before, output, *command.after, *resume, log=log)
    process.join(None if complete else limit)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    if complete:
        return _refused(process.exitcode, output, log)
    if process.exitcode:
        raise SystemExit(f"{command.before[0]}: exit code {process.exitcode}\n{log.read_text()}")
    return True


def _refused(exitcode: int | None, output: Path, log: Path) -> bool:
    """Return True if a command has refused its output, which is complete already."""
    if exitcode != 2 or f"{output}: exists already" not in log.read_text():
        raise SystemExit(f"{output}: exit code {exitcode} instead of 2\n{log.read_text()}")
    return True


def outcome(command: Command, place: Path) -> dict[str, bytes]:
    """Return the result, and the names of all files beside it: locks and temporary files must be gone."""
    output = place / ("output.hdf5" if command.result is arrays else "output")
    return command.result(output) | {f"beside: {path.name}": b"" for path in place.iterdir()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default="prepare,pretrain,embed,train")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print("| command | a run, s | kills | in runs | results equal | seconds |\n|---|---|---|---|---|---|")
    failed = False
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["ELMO_CACHE"] = str(folder / "cache")
        every = commands(folder)
        for name in arguments.commands.split(","):
            failed |= not compare(name, every[name], folder, arguments.kills, random.Random(f"{arguments.seed} {name}"))
    sys.exit(failed)


def compare(name: str, command: Command, folder: Path, kills: int, rng: random.Random) -> bool:
    """Kill a command so often, print a row, and return whether all results are equal."""
    began = time.monotonic()
    for _ in range(2):  # the first one also imports what is not imported yet
        place = folder / "alone"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        started = time.monotonic()
        attempt(command, place)
        whole = time.monotonic() - started
    expected = outcome(command, place)
    done = runs = equal = 0
    while done < kills:
        place = folder / f"run{runs}"
        place.mkdir()
        while not attempt(command, place, rng.uniform(0, whole) if done < kills else None):
            done += 1
        found = outcome(command, place)
        runs, equal = runs + 1, equal + (found == expected)
        for file in sorted(found.keys() | expected.keys()):
            if found.get(file) != expected.get(file):
                print(f"  {name}, run {runs}: {file} differs", file=sys.stderr)
        shutil.rmtree(place)
    shutil.rmtree(folder / "alone")
    print(
        f"| {name} | {whole:.1f} | {done} | {runs} | {equal} of {runs} | {time.monotonic() - began:.0f} |", flush=True
    )
    return equal == runs


if __name__ == "__main__":
    main()
