"""Steps whose rows go through the model side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.config.settings import RDropSettings, SmartSettings
from model.cpu.dropout import Dropout
from model.data.batches import Batch
from model.modules.encoder import checkpoint_gradients
from model.modules.multitask import MultitaskModel
from model.training.microbatches import MicroBatch, cut_in_two
from model.training.replicas import Replicas, fits_replicas, replica_of
from model.training.step import TrainingDiverged

from ..stepping import gradients, stepper

Models = Callable[..., MultitaskModel]


@pytest.fixture
def batches(tiny: MultitaskModel, batch_of: Any) -> list[tuple[str, Batch]]:
    return [(task.name, batch_of(task, 7)) for task in tiny.spec.tasks]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many microbatches were shared out each time."""
    seen: list[int] = []

    def watched(parts: Any, share: float) -> Any:
        seen.append(len(parts))
        return cut_in_two(parts, share)

    monkeypatch.setattr("model.training.replicas.cut_in_two", watched)
    return seen


def threads_to_come() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def part_of(batches: list[tuple[str, Batch]]) -> MicroBatch:
    task, batch = batches[0]
    return MicroBatch(task, batch, share=1.0, seed=0, of=len(batch.labels))


def distance(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Relative to the size of the others."""
    assert some.keys() == others.keys()
    apart = torch.cat([(some[name] - others[name]).flatten() for name in some])
    return float(apart.norm() / torch.cat([other.flatten() for other in others.values()]).norm())


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"accumulate": 3},
    "published": {"smart": SmartSettings(weight=3, variant="published", steps=2)},
    "ball": {"smart": SmartSettings(weight=3, variant="ball", bregman=1.0)},
    "random, masks anew": {"smart": SmartSettings(weight=3, variant="random", masks="anew")},
    "surgery": {"surgery": "pcgrad", "accumulate": 2},
    "r-drop": {"rdrop": RDropSettings(weight=2)},
}


@pytest.mark.usefixtures("two_replicas")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [2, 3])
def test_a_step_by_replicas_is_the_step(
    calm: Models,
    batches: list[tuple[str, Batch]],
    way: str,
    number: int,
    threads: Callable[[int], None],
    runs: list[int],
) -> None:
    """With dropout: the masks are the same ones, too."""
    apart, alone = calm(dropout=0.3), calm(dropout=0.3)
    by_two, by_one = stepper(apart, **WAYS[way]), stepper(alone, **WAYS[way])
    for step in range(3):
        threads(number)
        mine = by_two.take(step, batches, 0.1)
        assert torch.get_num_threads() == threads_to_come() == number
        threads(1)
        known = by_one.take(step, batches, 0.1)
        assert mine.losses == pytest.approx(known.losses, rel=1e-4)
        assert mine.smart == (known.smart and pytest.approx(known.smart, rel=1e-3))
        assert distance(gradients(apart), gradients(alone)) < 1e-5
    each = {"accumulated": [9], "surgery": [2, 2, 2]}.get(way, [3])
    assert runs == 3 * each
    assert all(w.grad is None for w in by_two.replicas.replica.parameters())


@pytest.mark.usefixtures("two_replicas")
def test_replicas_give_the_same_digits_every_time(
    calm: Models, batches: list[tuple[str, Batch]]
) -> None:
    def once() -> dict[str, Tensor]:
        model = calm(dropout=0.2)
        work = stepper(model, smart=SmartSettings(weight=1))
        for step in range(2):
            work.take(step, batches, 1.0)
        return {name: weights.detach().clone() for name, weights in model.named_parameters()}

    first = once()
    for _ in range(3):
        again = once()
        assert all(torch.equal(again[name], first[name]) for name in first)


@pytest.mark.usefixtures("two_replicas")
def test_what_fails_in_a_replica_fails_the_step(
    calm: Models, batches: list[tuple[str, Batch]]
) -> None:
    work = stepper(calm())
    work.take(0, batches, 1.0)
    *others, (task, last) = batches
    broken = Batch(
        last.input_ids,
        last.attention_mask,
        last.token_type_ids,
        torch.full_like(last.labels, np.nan),
        last.rows,
        last.parts,
    )
    with pytest.raises(TrainingDiverged, match=f"step 1: the loss of '{task}' is nan"):
        work.take(1, [*others, (task, broken)], 1.0)
    assert threads_to_come() == 2
    assert all(w.grad is None for w in work.replicas.replica.parameters())


@pytest.mark.usefixtures("two_replicas")
def test_nobody_leaves_while_a_replica_is_at_work(
    calm: Models, batches: list[tuple[str, Batch]]
) -> None:
    replicas, done = Replicas(calm()), []

    def work(model: MultitaskModel, part: MicroBatch) -> None:
        if model is replicas.model:
            raise RuntimeError("the first")
        time.sleep(0.3)
        done.append(part)

    with pytest.raises(RuntimeError, match="the first"):
        replicas.run([part_of(batches)] * 2, work)
    assert len(done) == 1


def test_a_replica_has_the_weights_and_its_own_gradients(tiny: MultitaskModel) -> None:
    tiny.encoder.embeddings.requires_grad_(False)  # type: ignore[union-attr,operator]
    other = replica_of(tiny)
    pairs = list(zip(tiny.named_parameters(), other.named_parameters(), strict=True))
    for (name, mine), (same, yours) in pairs:
        assert name == same and mine is not yours
        assert mine.data_ptr() == yours.data_ptr() and mine.requires_grad == yours.requires_grad
    sum(w.sum() for w in other.parameters() if w.requires_grad).backward()
    assert all(mine.grad is None for (_, mine), _ in pairs)


@pytest.mark.usefixtures("two_replicas")
def test_each_replica_has_its_threads_from_the_first(
    calm: Models, batches: list[tuple[str, Batch]], threads: Callable[[int], None]
) -> None:
    threads(3)
    both_told = Barrier(2)

    def count(model: MultitaskModel, part: MicroBatch) -> int:
        both_told.wait(timeout=60)
        return torch.get_num_threads()

    two_to_one = part_of(batches).cut(3)[0].cut(2)
    counts = Replicas(calm()).run(two_to_one, count)
    assert counts == [2, 1]


@pytest.mark.usefixtures("two_replicas")
def test_a_replica_takes_over_what_is_in_evaluation(
    calm: Models, batches: list[tuple[str, Batch]]
) -> None:
    model = calm(dropout=0.3)
    model.encoder.eval()
    work = stepper(model)
    work.take(0, batches, 1.0)
    replica = work.replicas.replica
    assert replica.training and not replica.encoder.training


class SecondIsTheBatch(nn.Module):
    """Dropout of what has its rows elsewhere, as XLNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = Dropout(0.5)

    def forward(self, values: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(values.transpose(0, 1))
        return dropped.transpose(0, 1)


@pytest.mark.usefixtures("two_replicas")
def test_a_model_with_masks_of_its_own_has_no_replica(
    calm: Models, batches: list[tuple[str, Batch]], runs: list[int]
) -> None:
    foreign, turned = calm(dropout=0.3), calm(dropout=0.3)
    foreign.encoder.embeddings.dropout = nn.Dropout(0.3)  # type: ignore[union-attr]
    turned.encoder.embeddings.dropout = SecondIsTheBatch()  # type: ignore[union-attr]
    again = calm(dropout=0.3)
    checkpoint_gradients(again.encoder)
    for model in (foreign, turned, again, calm(dropout=0.3, adapter="pals")):
        before = torch.default_generator.get_state()
        assert not fits_replicas(model, part_of(batches))
        assert torch.equal(torch.default_generator.get_state(), before)
        stepper(model).take(0, batches, 1.0)
    assert runs == []
    assert fits_replicas(calm(dropout=0.3), part_of(batches))
    assert fits_replicas(calm(dropout=0.3), part_of(batches).cut(1)[0])  # of a single row
    assert not fits_replicas(calm(dropout=0.0, adapter="pals"), part_of(batches))


@pytest.mark.usefixtures("two_replicas")
def test_little_work_has_no_replica(
    calm: Models, batches: list[tuple[str, Batch]], runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = stepper(calm())
    work.take(0, batches[:1], 1.0)
    assert runs == []
    work.take(1, batches, 1.0)
    assert runs == [3]
    monkeypatch.setattr("model.training.replicas.WORTH", 1_000_000_000)
    work.take(2, batches, 1.0)
    assert runs == [3]
