"""cluster.yaml through Ray's AWS provider, against a pretended Amazon."""

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
    return play("amazon", tmp_path_factory.mktemp("lab"))


def up(instances: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted((i["kind"], i["type"], i["market"]) for i in instances if i["state"] == "running")


def of(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [event for event in found["events"] if event["event"] == name]


HEAD = ("head", "m5.large", "on demand")
WORKER = ("gpu", "g5.xlarge", "spot")


def test_only_the_head_comes_up(found: dict[str, Any]) -> None:
    assert up(found["after_up"]) == [HEAD]


def test_trials_that_wait_bring_spot_machines(found: dict[str, Any]) -> None:
    """Four trials of half a GPU each."""
    assert up(found["came"]) == [WORKER, WORKER, HEAD]
    workers = {i["address"] for i in found["came"] if i["kind"] == "gpu"}
    assert {event["address"] for event in of(found, "started")} <= workers
    assert [event["reason"] for event in of(found, "end")] == ["complete"]


def test_two_trials_share_a_gpu(found: dict[str, Any]) -> None:
    ends = {event["trial"]: event["time"] for event in of(found, "finished")}
    started = of(found, "started")
    assert all(event["gpus"] == ["0"] for event in started)
    together = [
        sum(
            other["address"] == event["address"]
            and other["time"] <= event["time"] < ends[other["trial"]]
            for other in started
        )
        for event in started
    ]
    assert max(together) == 2


def test_the_search_says_that_it_waits_for_machines(found: dict[str, Any]) -> None:
    assert "cluster: 1 node, all alike, with 0 CPUs and 0 GPUs" in found["said"]
    assert "that is less than is asked for; trials wait until machines come" in found["said"]
    assert "torch sees no GPU on" in found["said"]  # as these are none


def test_every_machine_is_in_our_group_with_its_profile(found: dict[str, Any]) -> None:
    groups = {tuple(instance["groups"]) for instance in found["came"]}
    assert len(groups) == 1 and len(groups.pop()) == 1
    for instance in found["came"]:
        wanted = "stockpot-head" if instance["kind"] == "head" else "stockpot-worker"
        assert instance["profile"].endswith(wanted)


def test_idle_machines_go(found: dict[str, Any]) -> None:
    assert up(found["after_idle"]) == [HEAD]


def test_down_leaves_nothing(found: dict[str, Any]) -> None:
    assert up(found["after_down"]) == []
    assert {i["state"] for i in found["after_down"]} == {"terminated"}
