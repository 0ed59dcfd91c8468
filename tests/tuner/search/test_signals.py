from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.search.signals import NUMBERS, signals


class FakeEngine(SimpleNamespace):
    draining: str | None = None

    def drain(self, reason: str) -> None:
        self.draining = reason


@pytest.mark.parametrize("number", NUMBERS)
def test_trials_that_run_drain_first_and_all_else_ends_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    if before == signal.SIG_IGN:
        pytest.skip("whoever runs the tests ignores it, as nohup does")
    engine: Any = FakeEngine()
    with signals() as stop_signals:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        with stop_signals.draining(engine):
            signal.raise_signal(number)
            assert engine.draining == "interrupted"
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):  # the soup
            signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_the_exit_that_ray_takes_while_it_starts_is_an_interruption() -> None:
    with pytest.raises(KeyboardInterrupt), signals():
        raise SystemExit(15)


def test_a_signal_that_went_under_while_ray_started_is_answered_after() -> None:
    with pytest.raises(KeyboardInterrupt), signals() as stop_signals:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            pass  # as Python does with what is raised in a destructor
        stop_signals.hold()
