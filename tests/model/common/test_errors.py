from __future__ import annotations

import pickle

from model.common.errors import InputError, suggest


def test_every_fault_stands_on_a_line_of_its_own() -> None:
    error = InputError("space.yaml", ["line 7: no", "line 9: neither"])
    assert str(error) == "space.yaml: 2 problems\n  line 7: no\n  line 9: neither"


def test_one_fault_is_one_problem() -> None:
    assert str(InputError("x", ["y"])) == "x: 1 problem\n  y"


def test_an_error_survives_pickling() -> None:  # as it must to come back from another process
    again = pickle.loads(pickle.dumps(InputError("a.yaml", ["one", "two"])))
    assert isinstance(again, InputError)
    assert (again.where, again.faults) == ("a.yaml", ["one", "two"])


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
