"""Signals and time set the event, a second Ctrl-C does not wait, and the handlers of before come back."""

import signal

import pytest

from elmo.training.interrupt import stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_does_not_wait_but_a_second_sigterm_does() -> None:
    with stopping() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
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
