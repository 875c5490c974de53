"""INTERRUPTION: Ctrl-C, SIGTERM as schedulers send it, and a time limit end a run after its current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType

AT_ONCE = 1.0  # seconds: `timeout -s INT`, and programs that pass Ctrl-C on, send one interruption as two signals


@contextmanager
def stopping(catch_signals: bool = True, minutes: float | None = None) -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set, or that is set after `minutes`: the run finishes its step and saves.

    A second SIGINT, at least `AT_ONCE` after the first signal, does not wait. Without `catch_signals` the signals keep
    their usual meaning.
    """
    stop = threading.Event()
    timer = threading.Timer(60 * (minutes or 0), stop.set)
    timer.daemon = True
    first: float | None = None  # when the first signal came

    def ask(signum: int, frame: FrameType | None) -> None:
        nonlocal first
        now = monotonic()
        if stop.is_set() and signum == signal.SIGINT and (first is None or now - first >= AT_ONCE):
            raise KeyboardInterrupt
        first = now if first is None else first
        stop.set()

    caught = (signal.SIGINT, signal.SIGTERM) if catch_signals else ()
    before = {number: signal.signal(number, ask) for number in caught}
    try:
        if minutes is not None:
            timer.start()
        yield stop
    finally:
        timer.cancel()
        if first is not None:
            sleep(max(first + AT_ONCE - monotonic(), 0.0))  # the last copy of the signal must not meet another handler
        for number, handler in before.items():
            signal.signal(number, handler)
