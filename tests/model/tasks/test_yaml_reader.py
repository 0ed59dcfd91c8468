from __future__ import annotations

import datetime
from typing import Any

import pytest

from model.common.typed import show
from model.tasks.yaml_reader import as_number, plain_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (0.5, "0.5"),
        ("word", "'word'"),
        ("", "''"),
        (["a", None, True], "['a', null, true]"),
        ({"a": None}, "{'a': null}"),
        (datetime.date(2020, 1, 1), "2020-01-01"),
        (datetime.datetime(2020, 1, 1, 8), "2020-01-01 08:00:00"),
    ],
)
def test_a_value_is_shown_as_it_might_have_been_written(value: Any, shown: str) -> None:
    assert show(value) == shown


def test_long_values_are_cut_short() -> None:
    many = {number: number for number in range(99)}
    for value in ("x" * 5000, ["x" * 100] * 100, 10**5000, many):
        assert len(show(value)) < 600
        assert len(plain_text(value)) <= 60


def test_a_list_that_holds_itself_is_shown() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert show(loop).startswith("[[")


@pytest.mark.parametrize("value", [True, None, "1", float("nan"), float("inf"), 10**400, [1]])
def test_what_is_no_number_is_none(value: Any) -> None:
    assert as_number(value) is None


def test_numbers_are_floats() -> None:
    assert as_number(3) == 3.0 and isinstance(as_number(3), float)
