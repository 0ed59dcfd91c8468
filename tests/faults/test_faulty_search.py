"""One search in which five trials go wrong in ways of their own, looked at from all sides."""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from model.common.files import read_yaml
from model.config.parse import parse_settings
from model.tasks.task_set import load_task_set
from model.train import train
from model.training.checkpoint import MANIFEST
from tests.faults.faulty_trials import SECRET, DamagedTrial
from tests.tuner.search_runs import events, open_study, settings
from tuner import run_search

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Searched:
    result: Any
    said: str
    listeners: dict[str, set[str]]  # process -> addresses at which it listens
    held: dict[int, int]  # trials that had ended -> those that Ray still had in memory


@pytest.fixture(scope="module")
def searched(ray: None, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    lines: list[str] = []
    found: dict[str, set[str]] = {}
    held: dict[int, int] = {}
    storage = tmp_path_factory.mktemp("faulty")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.ray_backend.trainable.SearchTrial", DamagedTrial)
        patch.setattr(
            "tuner.search.terminal.SearchConsole.warn", lambda self, line: lines.append(line)
        )

        def look(console: Any, engine: Any) -> None:
            note_listeners(found)
            note_trials(held, engine)

        patch.setattr("tuner.search.terminal.SearchConsole.draw", look)
        # The workers have it too: they say it in their errors.
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        result = run_search(
            **settings(storage_path=storage, num_samples=7, keep=7, early_stopping=False)
            | {"max_concurrent_trials": 2},
        )
    return Searched(result, "\n".join(lines), found, held)


def note_listeners(found: dict[str, set[str]]) -> None:
    psutil = pytest.importorskip("psutil")
    if any("DamagedTrial" in name for name in found):  # with the actors, everybody is there
        return
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            name = f"{process.pid} {process.name()}"
            addresses = {c.laddr.ip for c in process.net_connections() if c.status == "LISTEN"}
        except psutil.Error:
            continue  # gone meanwhile
        if addresses:
            found[name] = addresses


def note_trials(held: dict[int, int], engine: Any) -> None:
    from ray.tune.experiment import Trial

    ended = sum(trial.status != "open" for trial in engine.state.trials.values())
    if ended not in held:
        gc.collect()
        held[ended] = sum(issubclass(type(thing), Trial) for thing in gc.get_objects())


def test_the_search_ends_with_every_trial_accounted_for(searched: Searched) -> None:
    assert searched.result.complete
    counts = searched.result.state.counts()
    assert counts == {"open": 0, "finished": 4, "stopped": 0, "failed": 3}


@pytest.mark.parametrize("trial", ["t0001", "t0002"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    searched: Searched, trial: str
) -> None:
    (line,) = [
        part for part in searched.said.splitlines() if part.startswith(f"{trial}: checkpoint")
    ]
    assert "is damaged (sha256 of state/tensors.safetensors differs); using step-" in line
    assert searched.result.state.trials[trial].attempts == 2


@pytest.mark.parametrize("trial", ["t0001", "t0002"])
def test_a_trial_that_fell_back_ends_like_one_that_nothing_happened_to(
    searched: Searched, trial: str, tmp_path: Path
) -> None:
    folder = searched.result.folder / "trials" / trial
    asked = read_yaml(folder / "config.yaml").data
    tasks = load_task_set(asked["tasks"])
    again = [
        record
        for record in train(parse_settings(asked["settings"], tasks), tasks, out=tmp_path / "whole")
    ]
    state = searched.result.state.trials[trial]
    assert [e["score"] for e in state.evaluations] == [record["score"] for record in again]
    best = state.best()["checkpoint"]

    def weights(place: Path) -> dict[str, str]:
        sums = json.loads((place / "checkpoints" / best / MANIFEST).read_text())
        return {name: value for name, value in sums.items() if name.endswith(".safetensors")}

    mine, other = weights(folder), weights(tmp_path / "whole")
    assert {n: v for n, v in mine.items() if n.startswith("model/")} == {
        n: v for n, v in other.items() if n.startswith("model/")
    }


@pytest.mark.parametrize(
    ("trial", "reason"),
    [("t0003", "an evaluation without its score"), ("t0004", "very good")],
)
def test_a_metric_that_is_missing_or_no_number_fails_its_trial_only(
    searched: Searched, trial: str, reason: str
) -> None:
    state = searched.result.state.trials[trial]
    assert state.kind == "metric"
    assert reason in state.reason
    assert not state.evaluations
    states = {
        t.user_attrs["trial"]: t.state.name for t in open_study(searched.result.folder).trials
    }
    assert states[trial] == "FAIL"


def test_no_secret_is_written_anywhere(searched: Searched) -> None:
    failed = searched.result.state.trials["t0005"]
    assert failed.kind == "code"
    assert "s3://***@bucket/runs refused the key ***" in failed.reason
    assert "Traceback" in failed.traceback
    for file in searched.result.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert SECRET.encode() not in content and b"hunter2" not in content, file
    assert SECRET not in searched.said + searched.result.summary.text()


def test_everything_listens_to_this_machine_only(searched: Searched) -> None:
    pytest.importorskip("psutil")
    names = {name.split(maxsplit=1)[1] for name in searched.listeners}
    assert {"gcs_server", "raylet"} <= names
    assert any("DamagedTrial" in name for name in names)
    loopback = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    beyond = {name: found - loopback for name, found in searched.listeners.items()}
    assert not {name: found for name, found in beyond.items() if found}


def test_ray_lets_go_of_trials_that_have_ended(searched: Searched) -> None:
    """Two run and one waits; what ended a moment ago may still be there."""
    late = {ended: count for ended, count in searched.held.items() if ended >= 5}
    assert late and 0 < max(late.values()) <= 4, searched.held


def test_workers_that_died_are_no_failures(searched: Searched) -> None:
    failed = {
        e["trial"]: e["kind"] for e in events(searched.result.folder) if e["event"] == "failed"
    }
    assert failed == {"t0003": "metric", "t0004": "metric", "t0005": "code"}
