"""Fuzz the readers: every case must be read or refused with an ElmoError, within 20 s of CPU time and 512 MiB.

    python benchmarks/fuzz.py                          100,000 cases of every reader: hours on a busy machine
    python benchmarks/fuzz.py --readers hdf5,sst       some of them
    python benchmarks/fuzz.py --readers sst --case 17  one case again, with its traceback; its files are left in ./case

A case is a function of the seed, the reader and its number. The cases are made by tests/fuzzing; a few of each reader
are run by `make test`. FUZZING.md has what was found.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzzing.cases import Sandbox
from fuzzing.data_readers import task_readers, text_readers
from fuzzing.model_readers import model_readers
from fuzzing.run import MEMORY, SECONDS, run
from fuzzing.trained_tasks import task_folder_reader


def main() -> None:
    every = [*text_readers(), *task_readers(), *model_readers(), task_folder_reader()]
    readers = {reader.name: reader for reader in every}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", default=",".join(readers), help=f"of {', '.join(readers)}")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case only, without limits")
    arguments = parser.parse_args()
    names = arguments.readers.split(",")
    if arguments.case is not None:
        print(Sandbox(Path("case")).outcome(readers[names[0]], arguments.seed, arguments.case))
        return
    print(f"seed {arguments.seed}, at most {SECONDS:g} s of CPU time and {MEMORY >> 20} MiB a case\n")
    print("| reader | cases | seconds | slowest case, s | memory grown, MiB | findings |\n|---|---|---|---|---|---|")
    failed = False
    for name in names:
        result = run(readers[name], arguments.first, arguments.first + arguments.cases, arguments.seed)
        print(
            f"| {name} | {result.cases - arguments.first:,} | {result.seconds:.0f} | {result.slowest[0]:.2f} "
            f"| {result.grown >> 20} | {len(result.findings)} |",
            flush=True,
        )
        for case, what in sorted(result.findings.items())[:20]:
            print(f"  {name} case {case}: {what}", file=sys.stderr, flush=True)
        failed |= bool(result.findings)
    sys.exit(failed)


if __name__ == "__main__":
    main()
