"""Coefficients of an average, learned from what its ingredients answer on some dev rows.

To first order an average of weights answers as the same average of its ingredients' logits does
(Wortsman et al., 2022). So the coefficients are those with the lowest loss there: at most 16
numbers, a convex problem, and no model has to run. Whether they hold for weights, a score tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from model.evaluation.predictions import Predictions
from model.modules.device import one_thread
from tuner.soup.combinations import DevScorer, single

MOST = 16  # ingredients
LEAST = 0.01  # a smaller coefficient is none
UNLIKELY = 1e-6  # a probability below is not told apart from 0


@one_thread()
def coefficients(
    scorer: DevScorer, members: Sequence[int], tasks: Sequence[str]
) -> dict[int, float]:
    """Of the members, those that count and how much: positive, with a sum of 1."""
    members = list(members)[:MOST]
    parts = []
    for task in tasks:
        answers = [scorer.evaluator.answer({task: single(m)})[task] for m in members]
        weight = scorer.tasks[task].weight if len(tasks) > 1 else 1.0
        parts.append((weight, _Loss(scorer, task, answers)))
    free = torch.zeros(len(members), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([free], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        shares = free.softmax(-1)
        total = sum((weight * part(shares) for weight, part in parts), torch.zeros(()).double())
        total.backward()
        return total

    optimizer.step(loss)
    shares = free.detach().softmax(-1)
    if not bool(torch.isfinite(shares).all()):
        shares = torch.full_like(shares, 1 / len(members))
    # Rounded, as the last digits mean nothing and equal averages are run once.
    return {m: round(float(s), 3) for m, s in zip(members, shares, strict=True) if s >= LEAST}


class _Loss:
    """A task's loss as a function of the coefficients, in parts of what guessing would have."""

    def __init__(self, scorer: DevScorer, task: str, answers: Sequence[Predictions]) -> None:
        labels = np.asarray(scorer.evaluator.labels[task], dtype=np.float64)
        rows = np.ones(len(labels), bool) if scorer.rows is None else scorer.rows[task][0] > 0
        self.labels = torch.from_numpy(labels[rows])
        first = answers[0].probabilities
        self.classes = 0 if first is None else first.shape[1]
        given = [a.values if a.probabilities is None else a.probabilities for a in answers]
        stacked = np.stack([np.asarray(each, dtype=np.float64)[rows] for each in given])
        self.given = torch.from_numpy(stacked)
        if self.classes:
            self.given = self.given.clamp_min(UNLIKELY).log()

    def __call__(self, shares: Tensor) -> Tensor:
        answer = torch.tensordot(shares, self.given, dims=1)
        if self.classes:
            loss = torch.nn.functional.cross_entropy(answer, self.labels.long())
            return loss / float(np.log(self.classes))
        spread = self.labels.var(correction=0).clamp_min(1e-12)
        error: Tensor = (answer - self.labels).square().mean()
        return error / spread
