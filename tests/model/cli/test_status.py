from __future__ import annotations

import io
import sys
import time

import pytest

from model.cli import status as module
from model.cli.status import Status


class Terminal(io.StringIO):
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.patch = patch

    def isatty(self) -> bool:
        return True

    def status(self) -> Status:
        """One that writes here (in a test only: pytest has stderr at other times)."""
        self.patch.setattr(sys, "stderr", self)
        return Status()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(module, "TICK", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal(monkeypatch)


def wait_for(terminal: Terminal, text: str, times: int = 1) -> None:
    while terminal.getvalue().count(text) < times:
        time.sleep(0.01)


def test_the_line_moves_and_goes_with_its_work(terminal: Terminal) -> None:
    status = terminal.status()
    with status.doing("loading"):
        wait_for(terminal, "loading  ", 3)
        with status.doing("starting Ray"):
            wait_for(terminal, "starting Ray")
        wait_for(terminal, "loading", terminal.getvalue().count("loading") + 1)
    assert len({part[:1] for part in terminal.getvalue().split("\r") if "loading" in part}) > 1
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_others_write_without_the_line(terminal: Terminal) -> None:
    status = terminal.status()
    with status.doing("loading"):
        wait_for(terminal, "loading")
        with status.apart():
            terminal.write("a warning\n")
    assert "\r\x1b[Ka warning\n" in terminal.getvalue()


def test_nothing_worth_a_line_has_none(terminal: Terminal) -> None:
    status, asked = terminal.status(), list[bool]()
    with status.doing(lambda: asked.append(True)):
        while len(asked) < 3:
            time.sleep(0.01)
    assert terminal.getvalue() == ""


def test_where_it_is_unwanted_there_is_none(terminal: Terminal) -> None:
    status = terminal.status()
    with status.doing("loading", quiet=True):
        assert status.thread is None
    assert terminal.getvalue() == ""


def test_off_a_terminal_each_phase_is_one_plain_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    status = terminal.status()
    for text in ("loading", lambda: "getting ready", lambda: None):
        with status.doing(text):
            assert status.thread is None
    with status.doing("unwanted", quiet=True):
        pass
    assert terminal.getvalue() == "loading\ngetting ready\n"
