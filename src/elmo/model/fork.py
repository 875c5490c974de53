"""A FORKED PROCESS computes on one thread. Otherwise it would wait forever for threads of the other process.

OpenMP keeps its threads between two operations. A child of `os.fork` has none of them, but OpenMP's notes still say
that they are there: the first operation that is shared among threads never ends. This happens with spaCy's
`n_process=2`, with `num_proc=2` of `datasets`, and with `multiprocessing` on Linux. PyTorch sets its own data-loading
workers to one thread for the same reason.

Such a child stays at one thread. Start processes with "spawn" where each of them needs several.
"""

import os
from functools import cache

import torch


@cache
def one_thread_after_fork() -> None:
    """Set PyTorch to one thread in every process that is forked from now on."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
