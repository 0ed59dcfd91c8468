"""Trials that the ledger does not know, and ledgers that know nothing any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.common.errors import InputError
from tests.tuner.made_up_runs import begin, create
from tuner.runs.ledger import Ledger
from tuner.runs.request import ExecutionOptions
from tuner.runs.unknown_trials import LOST, set_unknown_trials_aside
from tuner.search.checks import refuse_or_allow


def no_warning(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl", no_warning)
    begin(ledger)
    create(ledger)
    (tmp_path / "trials" / "t0000").mkdir(parents=True)
    return ledger


def test_known_trials_stay_where_they_are(ledger: Ledger, tmp_path: Path) -> None:
    set_unknown_trials_aside(tmp_path, ledger.state, no_warning)
    assert [p.name for p in (tmp_path / "trials").iterdir()] == ["t0000"]
    assert not (tmp_path / LOST).exists()


def test_strays_are_moved_and_named_and_never_replace_one_another(
    ledger: Ledger, tmp_path: Path
) -> None:
    told: list[str] = []
    for content in ("first", "second"):
        (tmp_path / "trials" / "t0001").mkdir()
        (tmp_path / "trials" / "t0001" / "config.yaml").write_text(content)
        set_unknown_trials_aside(tmp_path, ledger.state, told.append)
    assert (tmp_path / LOST / "t0001" / "config.yaml").read_text() == "first"
    assert (tmp_path / LOST / "t0001-1" / "config.yaml").read_text() == "second"
    assert len(told) == 2 and "does not know of t0001" in told[0]


def test_a_run_without_trials_has_no_strays(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", no_warning) as ledger:
        set_unknown_trials_aside(tmp_path, ledger.state, no_warning)
    assert not (tmp_path / LOST).exists()


def test_an_empty_ledger_beside_trials_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    how = ExecutionOptions(resume=True)
    refuse_or_allow(tmp_path, how)
    (tmp_path / "ledger.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match="not one whole line, but there are 1 trials"):
        refuse_or_allow(tmp_path, how)
    (tmp_path / "trials" / "t0000").rmdir()
    refuse_or_allow(tmp_path, how)  # it died before its first trial
