"""CHILD PROCESSES: how they behave when the user or the system ends the run."""

import os
import signal
from multiprocessing import parent_process
from threading import Thread


def behave_as_child() -> None:
    """Leave Ctrl-C to the parent, and end when the parent ends, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
