"""PCGrad: where two tasks' gradients point against each other, take the conflict out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Gradients = Sequence["Tensor | None"]


def surgery(gradients: Sequence[Gradients], *, seed: int) -> list[Tensor | None]:
    """The tasks' gradients of the shared parameters, projected and summed.

    `gradients[task][parameter]`; None stands for zero. Each task's gradient is
    projected onto the normal plane of every other that it conflicts with, in a
    random order that depends on `seed` alone, and the results are summed.
    """
    if not gradients:
        raise ValueError("surgery needs the gradients of at least one task")
    if len({len(of_task) for of_task in gradients}) != 1:
        raise ValueError("every task needs one gradient (or None) per shared parameter")
    if len(gradients) == 1:
        return list(gradients[0])
    weights = _weights(_gramian(gradients), seed)
    return [_weighted_sum(column, weights) for column in zip(*gradients, strict=True)]


def _gramian(gradients: Sequence[Gradients]) -> Tensor:
    """The tasks' inner products, [T, T], one parameter at a time.

    Every projected gradient is a combination of the tasks' gradients, so these few
    numbers are all that the projections need, and no gradient is copied or joined.
    """
    count = len(gradients)
    gramian = torch.zeros(count, count, dtype=torch.float64)
    for i in range(count):
        for j in range(i, count):
            products = [
                torch.dot(a.flatten(), b.flatten())
                for a, b in zip(gradients[i], gradients[j], strict=True)
                if a is not None and b is not None
            ]
            if products:
                # Stacked first: one transfer from the device for each pair of tasks.
                total = torch.stack(products).cpu().double().sum()
                gramian[i, j] = gramian[j, i] = total
    return gramian


def _weights(gramian: Tensor, seed: int) -> list[float]:
    # Imported here because it takes half a second and most runs do without surgery.
    from torchjd.aggregation import PCGradWeighting

    # torchjd draws its order from the global CPU generator. Seeding that one alone
    # (torch.manual_seed would reach the GPUs' too) keeps the run's own stream as it was.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        weights: list[float] = PCGradWeighting()(gramian).tolist()
    return weights


def _weighted_sum(column: Gradients, weights: Sequence[float]) -> Tensor | None:
    total: Tensor | None = None
    for gradient, weight in zip(column, weights, strict=True):
        if gradient is None:
            continue
        total = gradient * weight if total is None else total.add_(gradient, alpha=weight)
    return total
