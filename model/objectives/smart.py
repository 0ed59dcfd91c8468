"""SMART: outputs must not change much when the embeddings are perturbed a little.

Three ways to choose the perturbation, all of shape [B, L, width]. Whether the embeddings are
word vectors or the output of the whole embedding layer is the caller's choice (`smart.at`).

published  what the packages in use do. The step is divided by its own norm, so the
           perturbation has size about 1 in every token whatever the other settings;
           `epsilon` only guards that division, and `radius` is not used.
ball       what the formula says: inside a ball of `radius` around every token's
           embedding, found by normalised gradient ascent from a random start.
random     a random direction of size `radius`, without an inner pass.

The caller's `forward` runs the encoder and heads on perturbed embeddings, and reseeds
dropout first where the masks are to be those of the clean pass. All terms are means
over the batch, so their weights do not depend on its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import add

import torch
import torch.nn.functional as F
from torch import Tensor

Forward = Callable[[Tensor], Tensor]

VARIANTS = ("published", "ball", "random")
NORMS = ("inf", "l2")


def divergence(kind: str, a: Tensor, b: Tensor, *, detach: bool = False) -> Tensor:
    """How far two sets of outputs are apart, whichever comes first; mean over the batch.

    Regression: squared error. Classes and binary: symmetric KL, where one logit z
    counts as the two logits [0, z]. With `detach` the target of each KL is held
    constant, which is the published packages' gradient; the value is the same.
    """
    wide = torch.promote_types(a.dtype, torch.float32)
    a, b = a.to(wide), b.to(wide)
    if kind == "regression":
        return F.mse_loss(a, b)
    log_p, log_q = (F.log_softmax(_two_logits(x), dim=-1) for x in (a, b))
    if detach:
        forth = F.kl_div(log_p, log_q.detach(), log_target=True, reduction="batchmean")
        back = F.kl_div(log_q, log_p.detach(), log_target=True, reduction="batchmean")
        return forth + back
    # Both KLs in one product: no difference of large numbers when p and q are close.
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1).mean()


def _two_logits(outputs: Tensor) -> Tensor:
    return F.pad(outputs, (1, 0)) if outputs.shape[-1] == 1 else outputs


# Where `ball` starts and how far it goes, as shares of the radius. With shared masks
# no perturbation at all is a stationary point (the gradient there is exactly 0), and
# float32 rounds away starts below about 1e-8; so the start is a fair part of the ball,
# and grows and shrinks with it. Measured on a small encoder with radii from 1e-6 to 1
# (the embeddings' rms is .06): up to .01 any start from .001 to .5 finds the same
# divergence within 15 %; from .1 on, .5 finds up to twice what .1 does. One step has to
# cross the ball, several should not: with three, .5 finds a third and two thirds more
# than 1 at radii of .1 and 1, and a seventh less at .01.
BALL_START = 0.5
BALL_STEP = 1.0
BALL_STEP_OF_SEVERAL = 0.5


def smart_terms(
    forward: Callable[[Tensor], Sequence[Tensor]],
    embeds: Tensor,
    clean: Sequence[Tensor],
    draw: Tensor,
    *,
    kinds: Sequence[str],
    share: float = 1.0,
    variant: str = "ball",
    radius: float = 0.01,
    epsilon: float = 1e-6,
    noise: float | None = None,
    step_size: float | None = None,
    steps: int = 1,
    norm: str = "inf",
    scale: Tensor | None = None,
) -> list[Tensor]:
    """The smoothness terms of one or more tasks' batches that share their passes.

    `clean` are the outputs of the plain pass, a tensor a task, and `draw` normal numbers for the
    embeddings of all. A row's perturbation is found by its own task's divergence: no other has it.
    `noise` (size of the random start) and `step_size` are absolute for `published`
    (1e-5 and 1e-3 by default) and shares of the radius for `ball`. The perturbation
    itself is constant: gradients reach the parameters through the last pass and
    through `clean`, never through the search for the perturbation. The search climbs the
    mean over a whole batch, of which this is a `share`; its gradient is computed `scale` times
    as large, where float16 would lose it.
    """
    if variant not in VARIANTS:
        raise ValueError(f"no SMART variant is called '{variant}'; known: {', '.join(VARIANTS)}")
    if norm not in NORMS:
        raise ValueError(f"no SMART norm is called '{norm}'; known: {', '.join(NORMS)}")
    published = variant == "published"

    def divergences(outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        return [
            divergence(kind, mine, target, detach=published)
            for kind, mine, target in zip(kinds, outputs, targets, strict=True)
        ]

    def gradient(delta: Tensor) -> Tensor:
        """Of the divergences at embeds + delta, with respect to delta and nothing else."""
        delta = delta.detach().requires_grad_()
        outputs = forward(embeds.detach() + delta)
        apart = reduce(add, divergences(outputs, [target.detach() for target in clean]))
        if scale is None:
            return torch.autograd.grad(apart * share, delta)[0]
        return torch.autograd.grad(apart * share * scale, delta)[0] / scale

    if published:
        noise = 1e-5 if noise is None else noise
        step_size = 1e-3 if step_size is None else step_size
        delta = _published(draw * noise, gradient, step_size, steps, norm, epsilon)
    elif variant == "ball":
        noise = BALL_START if noise is None else noise
        if step_size is None:
            step_size = BALL_STEP if steps == 1 else BALL_STEP_OF_SEVERAL
        start = _project(_unit(draw, norm) * (noise * radius), norm, radius)
        delta = _ball(start, gradient, step_size * radius, steps, norm, radius)
    else:
        delta = _unit(draw, norm) * radius
    return divergences(forward(embeds + delta), clean)


def _published(
    delta: Tensor, gradient: Forward, step: float, steps: int, norm: str, epsilon: float
) -> Tensor:
    for _ in range(steps):
        moved = delta + step * gradient(delta)
        delta = moved / (_size(moved, norm) + epsilon)
    return delta


def _ball(
    delta: Tensor, gradient: Forward, step: float, steps: int, norm: str, radius: float
) -> Tensor:
    for _ in range(steps):
        rise = gradient(delta)
        # Steepest ascent of the norm: of all steps of size 1, the one that rises most.
        direction = rise.sign() if norm == "inf" else _unit(rise, norm)
        delta = _project(delta + step * direction, norm, radius)
    return delta


def _size(delta: Tensor, norm: str) -> Tensor:
    """The norm of every token's perturbation, [B, L, 1]."""
    order = torch.inf if norm == "inf" else 2
    size: Tensor = torch.linalg.vector_norm(delta, ord=order, dim=-1, keepdim=True)
    return size


def _unit(delta: Tensor, norm: str) -> Tensor:
    """Every token's perturbation at size 1; one of size 0 (a padded token) stays 0."""
    return delta / _size(delta, norm).clamp_min(torch.finfo(delta.dtype).tiny)


def _project(delta: Tensor, norm: str, radius: float) -> Tensor:
    if norm == "inf":
        return delta.clamp(-radius, radius)
    return delta * (radius / _size(delta, norm).clamp_min(radius))


@torch.no_grad()
def update_momentum(
    copy: Mapping[str, Tensor], parameters: Iterable[tuple[str, Tensor]], beta: float
) -> None:
    """copy <- beta copy + (1 - beta) parameters, in place."""
    now = dict(parameters)
    if missing := copy.keys() - now.keys():
        raise ValueError(f"the momentum copy holds weights that are gone: {sorted(missing)}")
    if copy:
        torch._foreach_lerp_(list(copy.values()), [now[name].detach() for name in copy], 1 - beta)


def bregman_term(kind: str, outputs: Tensor, copy_outputs: Tensor) -> Tensor:
    """How far the outputs are from those of the momentum copy, which are held constant."""
    return divergence(kind, outputs, copy_outputs.detach())
