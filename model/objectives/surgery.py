"""Where tasks' gradients point against each other: how much of each goes into the step.

PCGrad is computed here, on the device; `model.objectives.aggregators` has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Gradients = Sequence["Tensor | None"]
Weigh = Callable[[Tensor, int], Tensor]  # inner products [T, T] and a seed to weights [T]
TINY = torch.finfo(torch.float32).tiny


def surgery(gradients: Sequence[Gradients], weigh: Weigh, *, seed: int) -> list[Tensor | None]:
    """The tasks' gradients of the shared parameters, weighted and summed.

    `gradients[task][parameter]`; None stands for zero. Random choices depend on `seed` alone.
    Every method needs the gradients' inner products only.
    """
    if not gradients:
        raise ValueError("surgery needs the gradients of at least one task")
    if len({len(of_task) for of_task in gradients}) != 1:
        raise ValueError("every task needs one gradient (or None) per shared parameter")
    if len(gradients) == 1:
        return list(gradients[0])
    weights = weigh(_gramian(gradients), seed).unbind()
    return [_weighted_sum(column, weights) for column in zip(*gradients, strict=True)]


def _gramian(gradients: Sequence[Gradients]) -> Tensor:
    """The tasks' inner products, [T, T], one parameter at a time.

    What comes of it is a combination of the tasks' gradients, so these few numbers
    are all that a method needs, and no gradient is copied or joined.
    """
    count = len(gradients)
    some = next((g for of_task in gradients for g in of_task if g is not None), torch.zeros(1))
    zero = some.new_zeros(())
    rows = [[zero] * count for _ in range(count)]
    for i in range(count):
        for j in range(i, count):
            products = [
                torch.dot(a.flatten(), b.flatten())
                for a, b in zip(gradients[i], gradients[j], strict=True)
                if a is not None and b is not None
            ]
            if products:
                rows[i][j] = rows[j][i] = torch.stack(products).sum()
    return torch.stack([torch.stack(row) for row in rows])


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


def _weighted_sum(column: Gradients, weights: Sequence[Tensor]) -> Tensor | None:
    total: Tensor | None = None
    for gradient, weight in zip(column, weights, strict=True):
        if gradient is None:
            continue
        total = gradient * weight if total is None else total.addcmul_(gradient, weight)
    return total
