"""One word for how a trial ended, from the ledger alone, for all who show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.made_up_runs import begin, close, create, evaluate
from tuner.runs.ledger import Ledger
from tuner.runs.state import RunState
from tuner.runs.trial_table import trial_table

RUNGS = {"rungs": [[100, 3], [300, 1]], "num_samples": 3}


def run(ledger: Ledger, score: float, how: str = "finished", **changes: object) -> str:
    name = create(ledger, **changes)
    evaluate(ledger, name, 100, score)
    close(ledger, name, how)
    return name


def words(state: RunState) -> str:
    return " ".join(state.outcome(trial) for trial in state.trials.values())


@pytest.fixture
def short(tmp_path: Path) -> Ledger:
    """Three short runs, of which one may have a longer one."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    begin(ledger, **RUNGS)
    for score in (0.5, 0.7, 0.6):
        run(ledger, score, length=100)
    return ledger


def longer(ledger: Ledger, of: str = "t0001") -> str:
    return create(ledger, of=of, origin="promoted", number=None, level=1, length=300)


def test_a_short_run_waits_until_it_is_known_who_goes_on(short: Ledger) -> None:
    assert words(short.state) == "waiting waiting waiting"
    name = longer(short)
    assert words(short.state) == "pruned promoted pruned running"
    assert short.state.outcomes_text() == "1 promoted, 2 pruned"
    close(short, name, "failed", "infrastructure")
    assert words(short.state) == "waiting promoted waiting lost"  # its place is another's
    longer(short, "t0002")
    assert words(short.state) == "pruned promoted promoted lost running"


def test_configurations_are_counted_by_their_longest_run(short: Ledger) -> None:
    close(short, longer(short), "finished")
    run(short, 0.5, "failed", number=None, origin="promoted", of="t0002", level=1)
    assert short.state.outcomes_text() == "1 finished, 1 promoted, 1 pruned"
    assert sum(short.state.outcomes().values()) == 3


@pytest.mark.parametrize(
    ("reason", "word"), [("complete", "pruned"), ("time", "pruned"), ("interrupted", "waiting")]
)
def test_nobody_waits_once_the_search_is_over(short: Ledger, reason: str, word: str) -> None:
    short.append("end", reason=reason)
    assert words(short.state) == " ".join([word] * 3)
    begin(short, resumed=True, **RUNGS)
    assert words(short.state) == "waiting waiting waiting"


def test_without_rungs_and_for_repeats_finished_is_finished(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    begin(ledger)
    run(ledger, 0.5)
    run(ledger, 0.4, "stopped")
    run(ledger, 0.4, "failed")
    run(ledger, 0.5, origin="confirm", of="t0000", number=None, seed=4)
    assert words(ledger.state) == "finished pruned failed finished"


def test_what_rests_at_its_rung_waits(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    begin(ledger, promotion="continue", **RUNGS)
    name = create(ledger, length=300)
    ledger.append("started", trial=name, attempt=0)
    evaluate(ledger, name, 100, 0.5)
    ledger.append("frozen", trial=name, examples=100)
    assert words(ledger.state) == "waiting"
    ledger.append("promoted", trial=name, level=1)
    assert words(ledger.state) == "running"


def test_the_frame_says_it_too(short: Ledger) -> None:
    longer(short)
    assert " ".join(trial_table(short.state)["status"].to_pylist()) == words(short.state)
