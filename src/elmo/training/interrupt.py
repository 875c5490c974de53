"""INTERRUPTION: Ctrl-C, SIGTERM as schedulers send it, and a time limit end a run after its current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(catch_signals: bool = True, minutes: float | None = None) -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set, or that is set after `minutes`: the run finishes its step and saves.

    A second SIGINT does not wait. Without `catch_signals` the signals keep their usual meaning.
    """
    stop = threading.Event()
    timer = threading.Timer(60 * (minutes or 0), stop.set)
    timer.daemon = True

    def ask(signum: int, frame: FrameType | None) -> None:
        if stop.is_set() and signum == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    caught = (signal.SIGINT, signal.SIGTERM) if catch_signals else ()
    before = {number: signal.signal(number, ask) for number in caught}
    try:
        if minutes is not None:
            timer.start()
        yield stop
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
