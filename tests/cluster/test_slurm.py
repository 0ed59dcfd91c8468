"""Two nodes of a real Slurm, the shipped batch script, and a job of more weight."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.cluster.lab import play, why_not

TOOLS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
PLACES = "/usr/sbin:/usr/bin:/sbin:/bin"


def why_no_slurm() -> str | None:
    missing = [name for tool, name in TOOLS.items() if not shutil.which(tool, path=PLACES)]
    return f"not installed: {', '.join(missing)}" if missing else why_not()


pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(reason := why_no_slurm()), reason=reason or ""),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play("slurm", tmp_path_factory.mktemp("lab"), 1700)


def of(events: list[dict[str, Any]], name: str, **fields: Any) -> list[dict[str, Any]]:
    chosen = [event for event in events if event["event"] == name]
    return [e for e in chosen if all(e.get(key) == value for key, value in fields.items())]


def test_trials_run_on_all_nodes_of_the_job(found: dict[str, Any]) -> None:
    started = of(found["events"], "started")
    assert {event["node"] for event in started} == {"first", "second"}
    assert "cluster: 2 nodes, all alike" in found["said"]


def test_a_job_that_is_preempted_saves_its_trials_before_its_nodes_go(
    found: dict[str, Any],
) -> None:
    assert of(found["preempted"], "end", reason="interrupted")
    assert of(found["preempted"], "paused")
    assert "stopped (interrupted); nothing is lost" in found["said"]
    assert found["waiting"] == "PENDING"  # in the queue again, by its own word


def test_the_job_goes_on_where_it_was(found: dict[str, Any]) -> None:
    assert found["state"] == "COMPLETED", found["said"][-3000:]
    assert len(of(found["events"], "run")) == 2
    assert of(found["events"], "end", reason="complete")
    assert not of(found["events"], "failed")
    for trial in {event["trial"] for event in of(found["events"], "created")}:
        examples = [event["examples"] for event in of(found["events"], "evaluated", trial=trial)]
        assert examples and examples == sorted(set(examples))  # nothing was done twice
