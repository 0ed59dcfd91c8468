"""A run's study in a database of Optuna's, read back by Optuna."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.export.trackers import read_back
from tests.tuner.export.trackers.runs import lines_of, recorded, until
from tuner.engine.study import rebuild_study
from tuner.export.__main__ import main
from tuner.runs.open import open_run


def read(url: str) -> list[Any]:
    return read_back.optuna(url, "v0-2")


def export(run: Path, url: str, *more: str) -> int:
    return main([str(run), "--to", "optuna", "--out", url, *more])


def test_a_run_in_parts_and_again_is_there_once(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path)
    whole = lines_of(run)
    for count in (len(whole) // 3, len(whole) // 2, len(whole), len(whole)):
        until(run, count, whole)
        assert export(run, url) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("3 trials, 9 evaluations") and "study 'v0-2' in " in said
    assert "sesame" not in said
    opened = open_run(run)
    own, there = rebuild_study(opened.state, opened.space).trials, read(url)
    assert len(own) == len(there) > 2
    for one, other in zip(own, there, strict=True):
        assert one.number == other.number and one.state == other.state
        assert one.values == other.values and one.params == other.params
        assert one.intermediate_values == other.intermediate_values
        assert one.user_attrs == other.user_attrs
        assert one.datetime_start == other.datetime_start


def test_a_run_that_has_ended_is_followed_to_its_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    assert export(recorded(tmp_path), url, "--follow", "--quiet") == 0
    assert len(read(url)) > 2


def test_a_place_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path)
    assert main([str(run), "--to", "optuna"]) == 2
    assert "needs --out URL, as postgresql://" in capsys.readouterr().err
    assert export(run, "env:NOT_SET") == 2
    assert "--out" in capsys.readouterr().err
