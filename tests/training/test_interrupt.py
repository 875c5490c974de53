"""Signals and time set the event, a second Ctrl-C does not wait, and the handlers of before come back."""

import os
import signal
import threading

import pytest

from elmo.training import interrupt
from elmo.training.interrupt import stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_does_not_wait_but_a_second_sigterm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(interrupt, "monotonic", lambda: now[0])
    with stopping() as stop:
        signal.raise_signal(signal.SIGTERM)
        now[0] += 1.0
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_one_interruption_may_come_as_several_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout -s INT` sends it to its child, and then to the child's group."""
    now = [100.0]
    monkeypatch.setattr(interrupt, "monotonic", lambda: now[0])
    with stopping() as stop:
        for passed in (0.0, 0.0, 0.5, 0.4):
            now[0] += passed
            signal.raise_signal(signal.SIGINT)
            assert stop.is_set()
        now[0] += 0.1  # a second after the first one
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_copy_of_the_signal_does_not_end_what_comes_after_the_run() -> None:
    """A small run ends before it comes, and is to be told by its exit code."""
    late = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with stopping() as stop:
        signal.raise_signal(signal.SIGINT)
        late.start()
    late.join()
    assert stop.is_set()


def test_ctrl_c_after_the_time_is_over_does_not_wait() -> None:
    with stopping(minutes=0.001) as stop:
        assert stop.wait(10)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_keep_their_meaning_if_they_are_not_caught() -> None:
    with stopping(catch_signals=False) as stop:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not stop.is_set()


def test_an_error_inside_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="inside"), stopping():
        raise ValueError("inside")
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_event_is_set_when_the_time_is_over() -> None:
    with stopping(catch_signals=False, minutes=0.001) as stop:
        assert stop.wait(10)
    with stopping(minutes=0.001) as stop:
        pass
    assert not stop.wait(0.2)  # it was left before
