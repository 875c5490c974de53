"""BEING STOPPED: the scheduler's SIGTERM and the user's Ctrl-C are one thing."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does: what is done is saved first."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM let the step end and everything be saved; a second Ctrl-C does not wait."""
    stop = threading.Event()

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
