"""A process that is forked after a model has computed on several threads computes, too, and does not wait forever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from embedders import environment, write_model

# In a process of its own: this one has one thread, and other tests' modules would be forked with it.
PROGRAM = """
import multiprocessing, sys
import torch
import elmo

torch.set_num_threads(2)
model = elmo.load(sys.argv[1])
big = torch.ones(600, 600)
big @ big + big  # PyTorch's threads have run
sentences = [["The", "cat", "sat"]] * 50

def vectors(_):
    (big @ big).tanh()
    return torch.get_num_threads(), sum(float(array.sum()) for array in model.embed(sentences))

_, expected = vectors(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    for threads, found in pool.map_async(vectors, range(2)).get(timeout=30):
        assert threads == 1, threads
        assert abs(found - expected) < 1e-3
assert torch.get_num_threads() == 2  # only the children's number changes
"""


def run(program: str, folder: Path, threads: int) -> None:
    """Run a program, which loads a small model, in a process of its own; it must end without an error."""
    arguments = [sys.executable, "-c", program, str(write_model(folder / "model"))]
    done = subprocess.run(
        arguments,
        env=environment(OMP_NUM_THREADS=str(threads)),
        capture_output=True,
        timeout=100,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_processes_embed(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, threads=2)


# A thread that is in the middle of a change of the word cache is not there in the other process.
FORKED_MIDWAY = """
import os, signal, sys
import elmo

model = elmo.load(sys.argv[1], device="cpu")
sentence = [["The", "cat", "sat"]]
(expected,) = model.embed(sentence)
with model.cache._lock:
    model.cache._rows["cat"] = 0  # half a change: this is the row of another word
    model.cache._rows["The"] = model.cache._rows["sat"] = 1
    if (child := os.fork()) == 0:
        signal.alarm(60)  # it would wait forever
        (found,) = model.embed(sentence)
        os._exit(0 if abs(found - expected).max() < 1e-6 else 1)
    _, status = os.waitpid(child, 0)
sys.exit(status != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_forked_in_the_middle_of_a_change_of_the_cache(tmp_path: Path) -> None:
    run(FORKED_MIDWAY, tmp_path, threads=1)
