"""Ray's private parts, as a search on one machine uses them."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tuner.ray_backend import session
from tuner.ray_backend.session import patient, replaced


@pytest.mark.slow
def test_trials_run_at_the_drivers_niceness(ray: None) -> None:
    """Ray would add 15, and a search beside any other program would get 3 % of a core."""
    import ray as library

    look = library.remote(num_cpus=0)(lambda: os.nice(0))
    assert library.get(look.remote()) == os.nice(0)


@pytest.mark.slow
def test_only_what_trials_need_is_started(ray: None) -> None:
    psutil = pytest.importorskip("psutil")
    words = [process.cmdline() for process in psutil.Process().children(recursive=True)]
    files = {word.rpartition("/")[2] for line in words for word in line}
    assert {"gcs_server", "raylet"} <= files
    assert not {"monitor.py", "log_monitor.py", "dashboard.py"} & files


def test_what_was_replaced_is_put_back_whatever_happens() -> None:
    thing = SimpleNamespace(a=1, b=2)
    with pytest.raises(ZeroDivisionError), replaced(thing, a=3, b=4):
        assert (thing.a, thing.b) == (3, 4)
        raise ZeroDivisionError
    assert (thing.a, thing.b) == (1, 2)
    with pytest.raises(AttributeError), replaced(thing, c=5):
        pass  # another Ray has no such thing: said at once, not passed over


def test_a_busy_machine_has_time_to_start_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import services

    answers: list[dict[str, str]] = [{}, {}, {"node": "here"}]

    def look(address: str, node: str) -> dict[str, str]:
        if found := answers.pop(0):
            return found
        raise RuntimeError("no such node yet")

    monkeypatch.setattr(services, "get_node", look)
    with patient():
        assert services.get_node("address", "node") == {"node": "here"}
    assert services.get_node is look and not answers
    monkeypatch.setattr(session, "PATIENCE", 0)
    answers = [{}]
    with patient(), pytest.raises(RuntimeError, match="no such node"):
        services.get_node("address", "node")
