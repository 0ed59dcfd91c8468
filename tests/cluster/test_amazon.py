"""cluster.yaml through Ray's AWS provider, against a pretended Amazon."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.lab import play, why_not

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(reason := why_not()), reason=reason or ""),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return play("amazon", tmp_path_factory.mktemp("lab"), seconds=550)


def up(instances: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return sorted((i["kind"], i["type"], i["market"]) for i in instances if i["state"] == "running")


HEAD = ("head", "m5.large", "on demand")
WORKER = ("gpu", "g5.xlarge", "spot")


def test_only_the_head_comes_up(found: dict[str, Any]) -> None:
    assert up(found["after_up"]) == [HEAD]


def test_trials_that_wait_bring_spot_machines(found: dict[str, Any]) -> None:
    """Four trials of half a GPU each. Ray asks for two machines; moto gives the least it may."""
    *workers_up, head = up(found["after_search"])
    assert set(workers_up) == {WORKER} and head == HEAD
    started = [event for event in found["events"] if event["event"] == "started"]
    workers = {i["address"] for i in found["after_search"] if i["kind"] == "gpu"}
    assert {event["address"] for event in started} == workers
    assert all(event["gpus"] == ["0"] for event in started)
    ends = [event["reason"] for event in found["events"] if event["event"] == "end"]
    assert ends == ["complete"]


def test_every_machine_is_in_our_group_with_its_profile(found: dict[str, Any]) -> None:
    groups = {tuple(instance["groups"]) for instance in found["after_search"]}
    assert len(groups) == 1 and len(groups.pop()) == 1
    for instance in found["after_search"]:
        wanted = "stockpot-head" if instance["kind"] == "head" else "stockpot-worker"
        assert instance["profile"].endswith(wanted)


def test_idle_machines_go(found: dict[str, Any]) -> None:
    assert up(found["after_idle"]) == [HEAD]


def test_down_leaves_nothing(found: dict[str, Any]) -> None:
    assert up(found["after_down"]) == []
    assert {i["state"] for i in found["after_down"]} == {"terminated"}
