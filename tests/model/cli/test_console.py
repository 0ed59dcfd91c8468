"""The line that a terminal shows while a run is at work."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest

from model.cli import console as module
from model.cli.console import Console
from model.training.progress import Meter, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def line(self) -> str:
        """What stands there now."""
        return self.getvalue().rsplit("\x1b[K", 1)[-1]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_the_line_fits_the_terminal_and_losses_are_what_is_cut(
    terminal: Terminal, clock: list[float]
) -> None:
    names = ("sentiment", "paraphrase", "similarity")
    meter = Meter(dict.fromkeys(names, 1.0), dict.fromkeys(names, 1), examples=90, seconds=1.0)
    with redirect_stdout(terminal):
        console = Console()
        console.best = 0.5
        for step in (1, 2):
            console.step(Progress("tasks", step=step, meter=meter), 12345)
            clock[0] += 1
    assert len(terminal.line()) == 79  # a full line would wrap, and could not be written over
    assert "step 2/12345" in terminal.line() and "left  loss sentiment" in terminal.line()


def test_the_time_left_starts_anew_with_each_stage(terminal: Terminal, clock: list[float]) -> None:
    moments = [("simcse", 1, 100, 1000), ("simcse", 100, 100, 1), ("tasks", 1, 12, 1)]
    with redirect_stdout(terminal):
        console = Console()
        for stage, step, steps, seconds in [*moments, ("tasks", 2, 12, 1)]:
            console.step(Progress(stage, step=step), steps)
            clock[0] += seconds
    assert terminal.line().endswith("0:10 left")


def test_a_warning_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    for line in ("skipped a row", "skipped another", "skipped a row"):
        console.warn(line)
    assert capsys.readouterr().err == "skipped a row\nskipped another\n"
