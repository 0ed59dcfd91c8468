"""A search that learns from an earlier one, and what it says of its sampler."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tuner.search_runs import ROOT, SMALL, run_here, state_of
from tuner.engine.study import AUTO, choose_sampler
from tuner.ray_backend.resources import Resources
from tuner.runs.open import open_run
from tuner.search.disk import Need
from tuner.search.driver import announce

SHORT = (*SMALL, "--num-samples", "5", "--max-examples", "160", "--no-early-stopping", "-v")


def test_it_tries_the_best_of_the_earlier_run_after_its_own_first(tmp_path: Path) -> None:
    space = (ROOT / "search_spaces" / "default.yaml").read_text().partition("start_from:")[0]
    (tmp_path / "bare.yaml").write_text(space)
    bare = ("--space", str(tmp_path / "bare.yaml"), "--sampler", "random")
    first = run_here(tmp_path, *SHORT, *bare, "--name", "first")
    assert first.returncode == 0, first.stdout + first.stderr
    done = run_here(tmp_path, *SHORT, "--name", "second", "--warm-start", str(tmp_path / "first"))
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "warm start by first: 2 start points and 5 results; sentiment from sentiment" in said
    assert "sampler: task_gp, as 5 trials are few" in said
    trials = state_of(tmp_path / "second").search_trials
    origins = ["default", "start_from", "warm_start", "start_from", "sampler"]
    assert [trial.origin for trial in trials] == origins
    own = open_run(tmp_path / "second").space
    assert trials[1].settings.items() >= own.start_from[0].items()
    ranked = [trial for trial in state_of(tmp_path / "first").ranked() if trial.params]
    assert trials[2].params == ranked[0].params  # the space is the same
    assert all(trial.status == "finished" for trial in trials)


@pytest.mark.parametrize(
    ("trials", "timed", "line"),
    [
        (300, False, "sampler: task_gp, as 300 trials are few"),
        (1301, False, "sampler: tpe, as 1,301 trials are many"),
        (64, True, "sampler: task_gp, as what fits into the time is few"),
    ],
)
def test_auto_says_what_it_took_and_why(trials: int, timed: bool, line: str) -> None:
    told: list[str] = []
    state = SimpleNamespace(sampler=choose_sampler(AUTO, trials), earlier=(), planned=False)
    space = SimpleNamespace(name="default", notes=())
    engine: Any = SimpleNamespace(state=state, space=space, tasks=SimpleNamespace(name="sample"))
    plan: Any = SimpleNamespace(
        request=SimpleNamespace(sampler=AUTO),
        options=SimpleNamespace(resume=False),
        stages=SimpleNamespace(trials=trials, text=lambda: ""),
        timed_text="ten minutes" if timed else None,
        folder=Path("runs"),
        storage=None,
    )
    console: Any = SimpleNamespace(log=told.append)
    announce(console, engine, plan, Resources(1, 1, 0), Need(1, 1, 1))
    assert [each for each in told if each.startswith("sampler:")] == [line]
    plan.request.sampler = "tpe"
    told.clear()
    announce(console, engine, plan, Resources(1, 1, 0), Need(1, 1, 1))
    assert not any(each.startswith("sampler:") for each in told)
