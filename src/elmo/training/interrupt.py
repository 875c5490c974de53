"""INTERRUPTION: Ctrl-C, and SIGTERM as schedulers send it, end a run after its current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(catch_signals: bool = True) -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set: the run then finishes its step and saves.

    A second SIGINT does not wait. Without `catch_signals` the signals keep their usual meaning, and the event is never
    set.
    """
    stop = threading.Event()
    if not catch_signals:
        yield stop
        return

    def ask(signum: int, frame: FrameType | None) -> None:
        if stop.is_set() and signum == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
