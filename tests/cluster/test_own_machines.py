"""Three machines, `ray up`, a search on a shared folder, one on S3 that loses a machine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.lab import play, why_not

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(reason := why_not()), reason=reason or ""),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play("own_machines", tmp_path_factory.mktemp("lab"))


def of(events: list[dict[str, Any]], name: str, **fields: Any) -> list[dict[str, Any]]:
    chosen = [event for event in events if event["event"] == name]
    return [e for e in chosen if all(e.get(key) == value for key, value in fields.items())]


def test_trials_run_on_the_workers_and_not_on_the_head(found: dict[str, Any]) -> None:
    started = of(found["shared_events"], "started")
    assert {event["address"] for event in started} == {"10.77.0.2", "10.77.0.3"}
    assert {event["node"] for event in started} == {"first", "second"}
    assert of(found["shared_events"], "end", reason="complete")
    assert "soup/soup.json" in found["shared_files"]
    assert "workers' niceness: 0\n" in found["shared_said"].replace("\r", "")


def test_a_job_that_is_stopped_saves_its_trials_and_another_goes_on(found: dict[str, Any]) -> None:
    assert of(found["stopped"], "end", reason="interrupted")
    assert of(found["stopped"], "paused")
    assert not of(found["shared_events"], "failed")
    assert len(of(found["shared_events"], "run")) == 2


def test_two_machines_find_what_one_finds(found: dict[str, Any]) -> None:
    """Pre-drawn configurations and the same seeds: identical scores, to the last digit."""
    assert len(found["alone"]) == 3
    assert found["shared"] == found["alone"]


def test_averages_are_evaluated_on_the_workers_and_make_the_same_soup(
    found: dict[str, Any],
) -> None:
    assert "averages were evaluated on 10.77.0." in found["shared_said"]
    assert "averages were evaluated on 10.77.0.2, 10.77.0.3" in found["soup_said"]
    assert found["shared_sums"] == found["soup_sums"] == found["alone_sums"]
    # On S3 nobody shares a folder: the worker fetches the models. And one machine is gone, so the
    # other does the work of both.
    assert "averages were evaluated on 10.77.0." in found["lossy_said"]
    assert "could not fetch a model" not in found["lossy_said"]
    assert found["lossy_sums"] == found["alone_sums"]


def test_a_node_that_is_killed_costs_no_soup(found: dict[str, Any]) -> None:
    """While a worker on it evaluates."""
    assert found["killed_code"] == 0, found["killed_said"]
    assert "a worker was lost (" in found["killed_said"]
    assert "another does its work" in found["killed_said"]
    assert "10.77.0.2" in found["killed_said"].rpartition("averages were evaluated on")[2]
    assert found["killed_sums"] == found["alone_sums"]


def test_a_folder_that_is_not_shared_is_refused(found: dict[str, Any]) -> None:
    assert "the cluster of 3 nodes: " in found["refused"]
    assert "does not see what the driver wrote" in found["refused"]
    assert "or s3://bucket/path" in found["refused"]


def test_trials_of_a_lost_machine_go_on_elsewhere(found: dict[str, Any]) -> None:
    assert found["lossy_code"] == 0, found["lossy_said"]
    events, victim = found["lossy_events"], found["victim"]
    first, *later = of(events, "started", trial=victim)
    assert first["address"] == found["lost"]
    assert later and later[-1]["address"] != found["lost"]
    # It went on from storage's last checkpoint: no evaluation came twice.
    examples = [event["examples"] for event in of(events, "evaluated", trial=victim)]
    assert examples == sorted(set(examples))
    before = [e for e in of(events, "evaluated", trial=victim) if e["time"] < later[-1]["time"]]
    assert len(before) >= 2


def test_the_result_is_complete_and_the_same(found: dict[str, Any]) -> None:
    assert of(found["lossy_events"], "end", reason="complete")
    assert not of(found["lossy_events"], "failed")
    assert found["lossy"] == found["alone"]


def test_storage_has_the_run_and_the_driver_what_is_read_later(found: dict[str, Any]) -> None:
    stored = {key.removeprefix("searches/lossy/"): size for key, size in found["stored"].items()}
    for name in ("run.yaml", "space.yaml", "ledger.jsonl", "study.journal"):
        assert stored[name] > 0
    for trial in found["lossy"]:
        assert f"trials/{trial}/metrics.jsonl" in found["lossy_files"]
        assert any(name.startswith(f"trials/{trial}/predictions/") for name in found["lossy_files"])
        models = [n for n in found["lossy_files"] if n.startswith(f"trials/{trial}/checkpoints/")]
        assert any(name.endswith("model/model.safetensors") for name in models)
        assert set(models) <= set(stored)
    for name in ("soup/soup.json", "soup/model.safetensors", "report.html"):
        assert name in found["lossy_files"] and name in stored
    # A folder's own mark may stay behind, its files may not.
    assert not any("/state/" in name and not name.endswith("/") for name in stored)


def test_a_secret_in_the_url_is_nowhere(found: dict[str, Any]) -> None:
    assert found["secret_in"] == []


def test_down_leaves_nothing(found: dict[str, Any]) -> None:
    assert set(found["left"]) == {"head", "first", "second"} - {
        {"10.77.0.2": "first", "10.77.0.3": "second"}[found["lost"]]
    }
    assert not any(found["left"].values()), found["left"]
