from __future__ import annotations

import sys

import pytest

from model.cli.invocation import command


@pytest.mark.parametrize(
    ("program", "search", "train"),
    [
        ("/usr/bin/stockpot", "stockpot search --name 'a b'", "stockpot train"),
        (
            "/x/tuner/search/__main__.py",
            "python -m tuner.search --name 'a b'",
            "python -m model.train",
        ),
        ("", "python -m tuner.search --name 'a b'", "python -m model.train"),
    ],
)
def test_a_command_to_copy_is_in_the_form_that_was_typed(
    program: str, search: str, train: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert command("search", "--name", "a b") == search
    assert command("train") == train
