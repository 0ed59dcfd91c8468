from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from model.common.errors import InputError
from tuner.ray_backend.resources import (
    MOST_ON_CPUS,
    Resources,
    give_back_memory,
    keep_to_its_gpu,
    share_out,
)
from tuner.ray_backend.workers import Worker


def share(has_cpus: float, has_gpus: float = 0, **asked: Any) -> Resources:
    given = {"concurrent": None, "cpus": None, "gpus": None, "trials": 100, **asked}
    return share_out(has_cpus, has_gpus, **given)


def test_two_cores_are_two_trials_of_one_thread() -> None:
    assert share(2) == Resources(2, 1, 0)
    assert share(2).threads == 1


def test_many_cores_are_a_few_trials_of_several_threads() -> None:
    assert share(32) == Resources(MOST_ON_CPUS, 8, 0)
    assert share(32).threads == 8


def test_a_gpu_is_one_trial_unless_it_is_shared() -> None:
    assert share(16, 2) == Resources(2, 8, 1)
    assert share(16, 2, gpus=0.5) == Resources(4, 4, 0.5)
    assert share(16, 2, gpus=0) == Resources(MOST_ON_CPUS, 4, 0)


def test_thirds_of_a_gpu_make_three() -> None:
    assert share(8, 1, gpus=1 / 3).slots == 3


def test_a_part_lies_on_one_gpu() -> None:
    assert share(16, 4, gpus=0.4).slots == 8  # not ten
    assert share(16, 4, gpus=0.4, nodes=[(8, 3), (8, 1)]).slots == 8
    assert share(16, 4, gpus=0.6, nodes=[(8, 2), (8, 2)]).slots == 4
    assert share(16, 4, gpus=0.4, elastic=True, concurrent=10).slots == 10  # machines will come


def test_cpus_bound_what_fits_beside_a_gpu() -> None:
    assert share(4, 8, cpus=2).slots == 2
    assert share(2, 8).slots * share(2, 8).cpus <= 2


def test_what_is_asked_for_holds() -> None:
    assert share(8, concurrent=2) == Resources(2, 4, 0)
    assert share(8, cpus=2) == Resources(4, 2, 0)
    assert share(8, cpus=0.5, concurrent=3) == Resources(3, 0.5, 0)
    assert share(8, cpus=0.5).threads == 1


def test_there_are_never_more_slots_than_trials() -> None:
    assert share(8, trials=1) == Resources(1, 8, 0)


def test_more_at_once_than_cores_share_them() -> None:
    """Asked for eight on two cores: they fit only if each takes a part of one."""
    found = share(2, concurrent=8)
    assert found.slots * found.cpus <= 2
    assert found.threads == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cpus": 9}, "--cpus-per-trial is 9, but there are 8 CPUs"),
        ({"gpus": 1}, "--gpus-per-trial is 1, but there are 0 GPUs"),
        ({"concurrent": 0}, "it must be at least 1"),
        ({"cpus": 0}, "--cpus-per-trial is 0"),
    ],
)
def test_what_can_never_fit_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        share(8, **asked)


@pytest.mark.parametrize(
    ("share_of_gpu", "limited", "seen"),
    [(0.0, [], ""), (0.5, [0.5 - 1 / 32], "0"), (1.0, [], "0"), (1 / 32, [1 / 64], "0")],
)
def test_a_worker_keeps_to_its_part_of_a_gpu(
    share_of_gpu: float, limited: list[float], seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 GiB, and less what CUDA itself takes of it; without a part it sees none."""
    asked: list[float] = []
    card = SimpleNamespace(total_memory=16 << 30)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: card)
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", asked.append)
    context = SimpleNamespace(get_assigned_resources=lambda: {"GPU": share_of_gpu})
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr("ray.get_gpu_ids", lambda: [0] if share_of_gpu else [])
    keep_to_its_gpu()
    assert asked == limited and os.environ["CUDA_VISIBLE_DEVICES"] == seen
    Worker(lambda: None, threads=torch.get_num_threads())  # of a soup or a teacher
    assert asked == 2 * limited


# --- clusters -----------------------------------------------------------------------------------


def test_a_trial_without_neighbours_asks_for_a_whole_gpu() -> None:
    shared = Resources(slots=2, cpus=1, gpus=0.5)
    assert shared.shared_gpu and not Resources(slots=1, cpus=1, gpus=1).shared_gpu
    assert shared.placement().bundles == [{"CPU": 1, "GPU": 0.5}]
    assert shared.placement(own_gpu=True).bundles == [{"CPU": 1, "GPU": 1}]


def test_a_cluster_that_grows_takes_what_is_asked_for() -> None:
    """Nothing but a head without CPUs is there, and the autoscaler goes by what waits."""
    asked = {"gpus": 0.5, "concurrent": 8}
    assert share(0, 0, elastic=True, **asked) == Resources(8, 1, 0.5)
    assert share(4, 1, elastic=True, **asked) == Resources(8, 1, 0.5)
    assert share(2, 0, elastic=True, concurrent=8) == Resources(8, 1, 0)
    assert share(0, 0, elastic=True, cpus=2) == Resources(MOST_ON_CPUS, 2, 0)
    assert share(0, 0, elastic=True, gpus=1, concurrent=8, trials=3).slots == 3


def test_what_fits_a_cluster_is_shared_out_as_on_a_machine() -> None:
    assert share(8, 2, elastic=True, nodes=[(0, 0), (4, 1), (4, 1)]) == Resources(2, 4, 1)


def test_a_trial_lives_on_one_node() -> None:
    assert share(4, nodes=[(2, 0), (2, 0)], concurrent=1) == Resources(1, 2, 0)
    assert share(6, nodes=[(4, 0), (2, 0)], concurrent=3) == Resources(3, 2, 0)
    assert share(4, nodes=[(2, 0), (2, 0)], cpus=2) == Resources(2, 2, 0)
    assert share(3, nodes=[(1, 0), (2, 0)], cpus=2).slots == 1


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc can give memory back"
)
def test_what_was_freed_in_pieces_goes_back_to_the_system() -> None:
    def taken() -> int:
        """Megabytes of this process that no file stands for."""
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) // 1024

    give_back_memory(device=False)  # what earlier tests left would be taken first
    before = taken()
    pieces = [torch.ones(256) for _ in range(100_000)]  # a kilobyte each
    lives = pieces[::5000]
    assert taken() - before > 90
    del pieces
    give_back_memory(device=False)
    assert taken() - before < 50 and len(lives) == 20
