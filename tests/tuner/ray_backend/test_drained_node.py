"""A machine that Ray was told it will lose, as a cloud tells it of a spot instance."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.moments import Moment
from tests.tuner.search_runs import FIXED, Started, curves_of, run_here, state_of
from tuner.ray_backend.session import only_what_trials_need

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SAME = (*FIXED, "--num-samples", "2", "--seed", "5", "--max-examples", "960")
ATTEMPTS = 3  # to start a cluster
NOTICE = 120  # seconds, as Amazon gives them
# The driver looks at every turn, so that a trial of seconds is still there when it does.
FIRST = "import tuner.ray_backend.adapters as adapters; adapters.LOOK_AROUND = 0.0"


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that trains nothing, and two nodes with room for all trials each."""
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="s", dir="/tmp")  # short, for Ray's sockets
    small = {"object_store_memory": 100_000_000}
    head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": place, **small}
    made = None
    for _ in range(ATTEMPTS):
        made = Cluster()
        try:
            with only_what_trials_need():
                made.add_node(**head)
                for _ in range(2):
                    made.add_node(num_cpus=2, **small)
            break
        except Exception:  # nodes beside each other may draw the same port
            made.shutdown()
            made = None
    if made is not None:
        yield made
        made.shutdown()
    shutil.rmtree(place, ignore_errors=True)
    if made is None:
        pytest.skip(f"Ray's nodes did not start beside each other, {ATTEMPTS} times")


def drain(address: str, node: str) -> None:
    """As `ray drain-node` does it, and Ray's autoscaler."""
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline = int((time.time() + NOTICE) * 1000)
    taken, why = GcsClient(address=address).drain_node(node, reason, "spot", deadline)
    assert taken, why


def test_trials_of_a_machine_that_will_go_move_on_and_lose_nothing(
    cluster: Any, tmp_path: Path
) -> None:
    psutil = pytest.importorskip("psutil")
    raylets = {
        node.all_processes["raylet"][0].process.pid: node.node_id for node in cluster.worker_nodes
    }

    def node_of(started: dict[str, Any]) -> str:
        parents = {process.pid for process in psutil.Process(started["pid"]).parents()}
        (raylet,) = parents & set(raylets)
        return str(raylets[raylet])

    flags = (*SAME, "--address", cluster.address)
    held = [Moment("evaluated"), Moment("started", nth=3)]
    search = Started.start(tmp_path / "noticed", *flags, first=FIRST, hold=held, workers=2)
    search.wait_until_held()
    victim = search.new("evaluated")[0]["trial"]
    (before,) = [e for e in search.new("started") if e["trial"] == victim]
    going = node_of(before)
    drain(cluster.address, going)
    search.go_on()
    search.wait_until_held()
    after = search.new("started")[-1]
    assert node_of(after) != going
    search.go_on()
    code, said = search.finish()
    assert code == 0, said
    assert f"{victim}: its machine is about to go; it is saved and moves on" in said
    assert [e["trial"] for e in search.new("paused")] == [after["trial"]]
    done = run_here(tmp_path / "alone", *SAME)
    assert done.returncode == 0, done.stderr
    state = state_of(search.folder)
    assert state.counts() == {"open": 0, "finished": 2, "stopped": 0, "failed": 0}
    assert curves_of(search.folder) == curves_of(tmp_path / "alone" / "default")
