from __future__ import annotations

import pickle

import pytest

from model.common.errors import Gathered, InputError, PartlyRead, suggest


def test_every_fault_stands_on_a_line_of_its_own() -> None:
    error = InputError("space.yaml", ["line 7: no", "line 9: neither"])
    assert str(error) == "space.yaml: 2 problems\n  line 7: no\n  line 9: neither"


def test_one_fault_is_one_problem() -> None:
    assert str(InputError("x", ["y"])) == "x: 1 problem\n  y"


def test_a_repeated_fault_is_told_once() -> None:
    assert InputError("x", ["one", "two", "one"]).faults == ["one", "two"]


def test_what_several_checks_find_is_told_as_one() -> None:
    gathered = Gathered("settings")
    gathered.tell()
    for where in ("a.yaml", "settings"):
        with gathered:
            raise InputError(where, ["no"])
    with pytest.raises(InputError) as told:
        gathered.tell()
    assert (told.value.where, told.value.faults) == ("settings", ["a.yaml: no", "no"])
    with pytest.raises(KeyError), gathered:
        raise KeyError  # which nobody can mend by writing something else


def test_an_error_survives_pickling() -> None:  # as it must to come back from another process
    again = pickle.loads(pickle.dumps(InputError("a.yaml", ["one", "two"])))
    assert isinstance(again, InputError)
    assert (again.where, again.faults) == ("a.yaml", ["one", "two"])
    partly = pickle.loads(pickle.dumps(PartlyRead("a.yaml", ["one"], {"rest": 1})))
    assert partly.value == {"rest": 1} and partly.faults == ["one"]


def test_an_error_does_not_change_with_the_list_it_was_made_from() -> None:
    faults = ["one"]
    error = InputError("a", faults)
    faults.append("two")
    assert error.faults == ["one"]


def test_a_near_miss_is_suggested_and_a_far_one_gets_the_list() -> None:
    known = ("weight", "radius", "masks")
    assert suggest("wieght", known) == "did you mean 'weight'?"
    assert suggest("zzz", known) == "known: masks, radius, weight"
    assert suggest("zzz", ()) == "none are known"


def test_names_that_are_equally_near_are_all_told() -> None:
    known = ("paper-000", "paper-001", "sample")
    assert suggest("paper-9", known) == "did you mean 'paper-000' or 'paper-001'?"
