"""Where tasks' gradients point against each other: how much of each goes into the step.

PCGrad is computed here, on the device; `model.objectives.aggregators` has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

Gradients = Sequence["Tensor | None"]
Weigh = Callable[[Tensor, int], Tensor]  # inner products [T, T] and a seed to weights [T]
# Numbers that are joined into one vector, at most: on a GPU 64 MB a task, for the fewest launches.
# A CPU launches nothing, and there a large copy takes longer than many small products.
AT_ONCE, AT_ONCE_ON_CPU = 2**24, 2**16
TINY = torch.finfo(torch.float32).tiny


def surgery(gradients: Sequence[Gradients], weigh: Weigh, *, seed: int) -> list[Tensor | None]:
    """The tasks' gradients of the shared parameters, weighted and summed.

    `gradients[task][parameter]`; None stands for zero. Random choices depend on `seed` alone.
    Every method needs the gradients' inner products only. It is done in place, so they are used up.
    """
    if not gradients:
        raise ValueError("surgery needs the gradients of at least one task")
    if len({len(of_task) for of_task in gradients}) != 1:
        raise ValueError("every task needs one gradient (or None) per shared parameter")
    if len(gradients) == 1:
        return list(gradients[0])
    return _weighted_sum(gradients, weigh(_gramian(gradients), seed).unbind())


def _gramian(gradients: Sequence[Gradients]) -> Tensor:
    """The tasks' inner products, [T, T], of many parameters at a time: few and large operations.

    What comes of it is a combination of the tasks' gradients, so these few numbers
    are all that a method needs. Dot products rather than one of matrices, which would be TF32's.
    """
    count = len(gradients)
    pairs = [(i, j) for i in range(count) for j in range(i, count)]
    products = [
        torch.stack([torch.dot(joined[i], joined[j]) for i, j in pairs])
        for joined in _in_groups(gradients)
    ]
    if not products:  # nobody has a gradient
        return torch.zeros(count, count)
    known = dict(zip(pairs, torch.stack(products).sum(dim=0).unbind(), strict=True))
    both_ways = [known[min(i, j), max(i, j)] for i in range(count) for j in range(count)]
    return torch.stack(both_ways).view(count, count)


def _in_groups(gradients: Sequence[Gradients]) -> Iterator[list[Tensor]]:
    """Each task's gradients of some parameters as one vector; a copy of no more than these."""
    group: list[list[Tensor]] = []
    size = 0
    for column in zip(*gradients, strict=True):
        some = next((gradient for gradient in column if gradient is not None), None)
        if some is None:
            continue
        most = AT_ONCE_ON_CPU if some.device.type == "cpu" else AT_ONCE
        if group and size + some.numel() > most:
            yield [_joined(of_task) for of_task in zip(*group, strict=True)]
            group, size = [], 0
        group.append([torch.zeros_like(some) if g is None else g for g in column])
        size += some.numel()
    if group:
        yield [_joined(of_task) for of_task in zip(*group, strict=True)]


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    flat = [tensor.flatten() for tensor in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def pcgrad(gramian: Tensor, seed: int) -> Tensor:
    """How much of each task's gradient is in the sum of all projected ones, [T].

    Each is projected onto the normal plane of every other that it conflicts with, in a random
    order. On the device throughout: asking which tasks are in conflict would hold up the host.
    """
    count = len(gramian)
    order = torch.Generator().manual_seed(seed)
    projected = torch.eye(count, dtype=gramian.dtype, device=gramian.device)
    mine = list(projected.unbind())
    for i in range(count):
        for j in torch.randperm(count, generator=order).tolist():
            if j != i:
                conflict = (gramian[j] @ mine[i]).clamp(max=0.0)
                # A task without a gradient is in nobody's way: its row is 0, and so is this.
                mine[i] = mine[i] - conflict / gramian[j, j].clamp_min(TINY) * projected[j]
    return torch.stack(mine).sum(dim=0)


def _weighted_sum(gradients: Sequence[Gradients], weights: Sequence[Tensor]) -> list[Tensor | None]:
    """Over the tasks, all parameters in one operation, in the first tensor of each."""
    total: dict[int, Tensor] = {}
    for of_task, weight in zip(gradients, weights, strict=True):
        there = {place: gradient for place, gradient in enumerate(of_task) if gradient is not None}
        if there:
            torch._foreach_mul_(list(there.values()), weight)
        if again := there.keys() & total.keys():
            torch._foreach_add_([total[k] for k in again], [there[k] for k in again])
        total = there | total
    return [total.get(place) for place in range(len(gradients[0]))]
