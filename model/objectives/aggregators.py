"""Ways to weigh tasks' gradients from their inner products, [T, T].

They ask their numbers what to do next, so they compute on the host: it waits for the device once in
a step, for a number per pair of tasks. Each is scaled so that gradients at right angles, and alike
in size, give the sum that plain training has. Most are torchjd's. Its CAGrad and Nash-MTL need
cvxpy with its solvers, and its Nash-MTL has a memory, which a resumed run would have lost; so these
two are solved here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.objectives.surgery import Weigh, pcgrad

if TYPE_CHECKING:
    from torchjd.linalg import DualConeProjector, PSDMatrix

Method = Callable[[Tensor], Tensor]
Array = npt.NDArray[np.float64]
CAUTION = 0.5  # CAGrad's c; its authors take .4 and .5 where they do not search it
SMALL = 1e-6  # of the gradients' mean square, 1


def upgrad(tasks: int) -> Method:
    """Every gradient projected to where it hurts no task, and summed."""
    from torchjd.aggregation import UPGradWeighting

    return UPGradWeighting(torch.ones(tasks, dtype=torch.float64), _projector())


def mgda(tasks: int) -> Method:
    """The shortest combination: it points along none of the large gradients."""
    from torchjd.aggregation import MGDAWeighting

    weigh = MGDAWeighting()
    return lambda gramian: weigh(gramian) * tasks


def imtl_g(tasks: int) -> Method:
    """The combination with equal projections onto all of them."""
    from torchjd.aggregation import IMTLGWeighting

    weigh = IMTLGWeighting()
    return lambda gramian: weigh(gramian) * tasks


def aligned_mtl(tasks: int) -> Method:
    """Their principal directions made equally long, as long as the shortest."""
    from torchjd.aggregation import AlignedMTLWeighting

    return AlignedMTLWeighting(torch.ones(tasks, dtype=torch.float64))


def cagrad(tasks: int) -> Method:
    """Within a ball around the mean, whose radius is CAUTION of its length: what helps the worst.

    Liu et al., 2021: g_w of the w >= 0 that sum to 1 and have the least g_w.g_0 + c|g_0||g_w| is
    the direction to go from g_0. Divided by 1 + c, so that equal gradients give their sum.
    """
    mean = np.full(tasks, 1 / tasks)

    def weigh(gramian: Tensor) -> Tensor:
        from scipy.optimize import minimize

        g = _of_size_one(gramian)

        def length(w: Array) -> float:
            return math.sqrt(max(float(w @ g @ w), 0.0))

        def slope(w: Array) -> Array:
            rise: Array = g @ mean + radius * (g @ w) / max(length(w), SMALL)
            return rise

        radius = CAUTION * length(mean)

        found = minimize(
            lambda w: w @ g @ mean + radius * length(w),
            mean,
            jac=slope,
            method="SLSQP",
            bounds=[(0, 1)] * tasks,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14, "maxiter": 200},
        ).x.clip(0)
        found /= found.sum()
        if length(found) < SMALL:  # no direction is better for the worst: the mean is as good
            return torch.ones_like(gramian[0])
        weights = (mean + radius / length(found) * found) * tasks / (1 + CAUTION)
        return torch.from_numpy(weights)

    return weigh


def nash_mtl(tasks: int) -> Method:
    """What the tasks would agree on if each bargained for itself: Ga = 1/a.

    Navon et al., 2022. It is where a'Ga/2 - sum(log a) is least, which Newton's method finds from
    anywhere with steps divided by 1 + their own length.
    """

    def weigh(gramian: Tensor) -> Tensor:
        # A little more on the diagonal, for a task without a gradient, and two that are opposed.
        g = _of_size_one(gramian) + SMALL * np.eye(tasks)
        a = 1 / np.sqrt(g.diagonal())
        for _ in range(100):
            rise = g @ a - 1 / a
            step = np.linalg.solve(g + np.diag(a**-2), -rise)
            length = math.sqrt(max(float(-rise @ step), 0.0))
            a = a + step / (1 + length if length > 0.25 else 1)
            if length < 1e-10:
                break
        return torch.from_numpy(a)

    return weigh


TORCHJD: dict[str, Callable[[int], Method]] = {
    "upgrad": upgrad,
    "mgda": mgda,
    "imtl_g": imtl_g,
    "aligned_mtl": aligned_mtl,
}
ON_THE_HOST = {**TORCHJD, "cagrad": cagrad, "nash_mtl": nash_mtl}


def on_the_host(name: str) -> Weigh:
    """The method on the CPU, in float64."""
    made = cache(ON_THE_HOST[name])

    def weigh(gramian: Tensor, seed: int) -> Tensor:
        known = gramian.detach().to("cpu", torch.float64)
        if not bool(torch.isfinite(known).all()):
            return torch.ones_like(gramian[0])  # diverged, or float16 overflowed: others say so
        return made(len(known))(known).to(gramian)

    return weigh


WEIGHTINGS: dict[str, Weigh] = {
    "pcgrad": pcgrad,
    **{name: on_the_host(name) for name in ON_THE_HOST},
}


def _of_size_one(gramian: Tensor) -> Array:
    """As if the gradients' mean square were 1: a step is as large as they are."""
    found: Array = gramian.numpy()
    return found / max(float(found.diagonal().mean()), float(np.finfo(np.float64).tiny))


def _projector() -> DualConeProjector:
    """torchjd's own asks for quadprog, whose licence is the GPL; scipy is here already."""
    from scipy.optimize import nnls
    from torchjd.linalg import DualConeProjector

    class NonNegativeLeastSquares(DualConeProjector):
        """min v'Gv over v >= u: with v = u + x and G = R'R, min |Rx + Ru| over x >= 0."""

        def __call__(self, U: Tensor, G: PSDMatrix) -> Tensor:
            values, vectors = np.linalg.eigh(G.numpy())
            root = np.sqrt(values.clip(0))[:, None] * vectors.T
            each = [u + nnls(root, -root @ u)[0] for u in U.numpy()]
            return torch.from_numpy(np.stack(each))

    return NonNegativeLeastSquares()
