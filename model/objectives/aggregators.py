"""Ways to weigh tasks' gradients, as torchjd has them: from their inner products, [T, T].

They ask their numbers what to do next, so they compute on the host: it waits for the device once in
a step, for a number per pair of tasks. Each is scaled so that tasks that do not conflict, and are
alike in size, give the sum that plain training has. torchjd's CAGrad and Nash-MTL are not here:
both need cvxpy with its solvers, and Nash-MTL has a memory, which a resumed run would have lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from model.objectives.surgery import Weigh, pcgrad

if TYPE_CHECKING:
    from torchjd.linalg import DualConeProjector, PSDMatrix

Method = Callable[[Tensor], Tensor]


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


TORCHJD: dict[str, Callable[[int], Method]] = {
    "upgrad": upgrad,
    "mgda": mgda,
    "imtl_g": imtl_g,
    "aligned_mtl": aligned_mtl,
}


def on_the_host(name: str) -> Weigh:
    """The method on the CPU, in float64."""
    made = cache(TORCHJD[name])

    def weigh(gramian: Tensor, seed: int) -> Tensor:
        known = gramian.detach().to("cpu", torch.float64)
        if not bool(torch.isfinite(known).all()):
            return torch.ones_like(gramian[0])  # diverged, or float16 overflowed: others say so
        return made(len(known))(known).to(gramian)

    return weigh


WEIGHTINGS: dict[str, Weigh] = {
    "pcgrad": pcgrad,
    **{name: on_the_host(name) for name in TORCHJD},
}


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
