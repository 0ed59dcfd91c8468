"""What every configuration would score in full: a Gaussian process for each task.

The overall score is a sum over tasks, and most settings act on one of them: its pair encoding,
its loss weight, its batch size. So each task has a process of its own, over the settings and the
length of training, and what is said about the overall score is put together from theirs. It can
put the best parts together into a configuration that nobody has tried.

Errors fall with the length of training by a power law, so what is modelled is u = -log(error) of
settings x at a time t, -1 for the shortest training and 0 for one in full:

    u = trend(t) + persistent(x) + t * passing(x) + noise

At the end only what persists is left, and settings that lead early and fall back are seen as such.
`persistent` and `passing` share their kernel: each parameter has an effect of its own, how large is
learned, and two parameters together a smaller one (an ANOVA kernel). So a dozen results say which
value of a parameter is good whatever the others are; a kernel of the distance over all parameters
would need results near each point. A priori a parameter that belongs to another task matters little
to this one. The noise is what of the score's bootstrap interval differs between trials on the same
rows, and the luck of a seed, which is learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from model.modules.device import one_thread
from tuner.engine.points import Points

Array = NDArray[np.float64]

# Priors of the logarithms of all that is learned: mean and standard deviation.
OWN, SHARED, OTHERS = map(math.log, (0.6, 0.3, 0.15))  # a parameter's effect, by whose it is
EFFECT_SD = 0.8
LENGTH = 0.6  # over which an effect changes; the values of a parameter are 1 apart at most
PERSISTENT = (0.0, 0.5)
PASSING = (math.log(0.5), 0.7)
SLOPE = (0.0, 0.7)
SEED_NOISE = (math.log(0.15), 0.7)
EARLIER = (math.log(0.5), 1.0)
GAIN = 1.0  # in log-likelihood, which an earlier run must bring; noise brings up to half of it
BENT = 0.25  # of time: share ** -BENT; 0 would be its logarithm, 1 a floor that is soon reached
LEAST_ERROR = 0.005
BOUND = 4.0  # standard deviations of a prior that the search for the best values may stray
JITTER = 1e-6


@dataclass(frozen=True)
class Observed:
    """Scores of settings after so much training."""

    point: Array
    share: float  # of the whole training, 0..1
    values: Mapping[str, float]  # by task: metrics of which 1 is the best
    variances: Mapping[str, float]


class SurrogateInputs(NamedTuple):
    """Where scores are, or are asked for."""

    x: Tensor  # [n, width]: settings
    t: Tensor  # [n]: time
    known: Tensor  # [n, runs]: what earlier runs would say

    def and_also(self, more: SurrogateInputs) -> SurrogateInputs:
        return SurrogateInputs(*(torch.cat(pair) for pair in zip(self, more, strict=True)))


class Process:
    """One task's scores over settings and length.

    What earlier runs say of it is where the process starts from, each with a weight that is
    learned. A run has none unless every score here is better foretold from the others with it than
    without.
    """

    def __init__(
        self,
        points: Points,
        task: str,
        seen: Sequence[Observed],
        scale: float,
        earlier: Sequence[Process] = (),
    ) -> None:
        self.points, self.task, self.scale = points, task, scale
        error = np.array([1 - each.values[task] for each in seen]).clip(LEAST_ERROR)
        u = -np.log(error)
        self.middle, self.unit = float(u.mean()), float(u.std()) or 1.0
        self.y = torch.tensor((u - self.middle) / self.unit)
        variances = np.array([each.variances[task] for each in seen]) / error**2
        self.noise = torch.tensor(variances / self.unit**2)
        self.seen = np.stack([each.point for each in seen]), [each.share for each in seen]
        self._learn(())
        if earlier:
            least = self._foretold() + GAIN
            self._learn([run for run in earlier if self._learn([run])._foretold() > least])

    def _learn(self, earlier: Sequence[Process]) -> Process:
        self.earlier = earlier
        self.at = self._inputs(*self.seen)
        self.near = self._near(self.at, self.at)
        self.prior = self._prior(self.task)
        self.learned = self._fit()
        self._condition()
        return self

    def _foretold(self) -> float:
        """The log-likelihood of every score given all others (Rasmussen and Williams, 5.4.2)."""
        precision = torch.cholesky_inverse(self.root).diagonal()
        return float((precision.log() - self.weights.pow(2) / precision).sum()) / 2

    def weight_of(self, run: Process) -> float:
        """How much an earlier run counts."""
        if run not in self.earlier:
            return 0.0
        place = len(self.points.columns) + 4 + self.earlier.index(run)
        return float(self.learned[place].exp())

    def _inputs(self, points: Array, shares: Sequence[float]) -> SurrogateInputs:
        x = torch.tensor(points)
        t = torch.tensor([(1 - share**-BENT) / self.scale for share in shares]).double()
        said = [run.standardised(points, shares) for run in self.earlier]
        return SurrogateInputs(x, t, torch.stack(said, 1) if said else x[:, :0])

    def _prior(self, task: str) -> Tensor:
        """[learned, 2]: means and standard deviations; the parameters' effects come first."""
        effects = [
            (SHARED if c.task is None else OWN if c.task == task else OTHERS, EFFECT_SD)
            for c in self.points.columns
        ]
        others = (SEED_NOISE, PERSISTENT, PASSING, SLOPE, *[EARLIER] * len(self.earlier))
        return torch.tensor([*effects, *others]).double()

    def _near(self, one: SurrogateInputs, two: SurrogateInputs) -> Tensor:
        """[parameters, n, m]: how much alike they are in each, from 0 to 1."""
        parts = [column.places for column in self.points.columns]
        if not parts:
            return torch.zeros(0, len(one.x), len(two.x)).double()
        exact = "donot_use_mm_for_euclid_dist"
        apart = [torch.cdist(one.x[:, at], two.x[:, at], compute_mode=exact) for at in parts]
        r = torch.stack(apart) * (math.sqrt(5) / LENGTH)
        return (1 + r + r.pow(2) / 3) * (-r).exp()  # Matérn 5/2

    def _kernel(
        self, learned: Tensor, one: SurrogateInputs, two: SurrogateInputs, near: Tensor
    ) -> Tensor:
        count = len(self.points.columns)
        _, persistent, passing, slope, *_ = learned[count:].exp().pow(2)
        effects = (2 * learned[:count]).exp()[:, None, None]
        alike = (effects * near).log1p().sum(0).expm1()  # of all (1 + effect) the product, less 1
        both = one.t[:, None] * two.t[None]
        kernel: Tensor = alike * (persistent + passing * both) + 1 + slope * both
        return kernel

    def _across(self, one: SurrogateInputs, two: SurrogateInputs) -> Tensor:
        return self._kernel(self.learned, one, two, self._near(one, two))

    def _expected(self, learned: Tensor, at: SurrogateInputs) -> Tensor:
        """By earlier runs alone, each by its weight."""
        return at.known @ learned[len(self.points.columns) + 4 :].exp()

    def _covariance(self, learned: Tensor) -> Tensor:
        luck = learned[len(self.points.columns)].exp().pow(2)
        kernel = self._kernel(learned, self.at, self.at, self.near)
        return kernel + torch.diag(self.noise + luck + JITTER)

    def _fit(self) -> Tensor:
        """The most probable values, given the prior and what was seen."""
        mean, sd = self.prior.T

        def loss(values: Array) -> tuple[float, Array]:
            learned = torch.tensor(values, requires_grad=True)
            root = torch.linalg.cholesky(self._covariance(learned))
            y = self.y - self._expected(learned, self.at)
            solved = torch.cholesky_solve(y[:, None], root)[:, 0]
            fit = 0.5 * y @ solved + root.diagonal().log().sum()
            total = fit + 0.5 * ((learned - mean) / sd).pow(2).sum()
            (gradient,) = torch.autograd.grad(total, learned)
            return total.item(), gradient.numpy()

        low, high = mean - BOUND * sd, mean + BOUND * sd
        bounds = list(zip(low.tolist(), high.tolist(), strict=True))
        found = minimize(
            loss, mean.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 60}
        )
        return torch.tensor(found.x)

    def _condition(self) -> None:
        self.root = torch.linalg.cholesky(self._covariance(self.learned))
        y = self.y - self._expected(self.learned, self.at)
        self.weights = torch.cholesky_solve(y[:, None], self.root)[:, 0]

    def standardised(self, points: Array, shares: Sequence[float]) -> Tensor:
        """The mean of u on the scale of what was seen."""
        new = self._inputs(points, shares)
        across = self._across(new, self.at)
        return self._expected(self.learned, new) + across @ self.weights

    def posterior(self, points: Array) -> tuple[Tensor, Tensor]:
        """Mean and covariance of u in full, without the luck of a seed."""
        new = self._inputs(points, [1.0] * len(points))
        across = self._across(new, self.at)
        half = torch.linalg.solve_triangular(self.root, across.T, upper=False)
        left = self._across(new, new) - half.T @ half
        mean = self._expected(self.learned, new) + across @ self.weights
        return self.middle + self.unit * mean, left * self.unit**2

    def predict(self, points: Array, share: float = 1.0) -> tuple[Array, Array]:
        """Mean and variance of the metric: its error is log-normal."""
        mean, variance, _ = self._beside(points, share)
        error = np.exp(-mean + variance / 2)
        return 1 - error, error**2 * np.expm1(variance)

    def lead(self, points: Array, other: Array) -> tuple[Array, Array]:
        """Mean and variance of what the metric in full has more than that of another point."""
        u, variance, shared = self._beside(np.vstack([points, other[None]]))
        error = np.exp(-u + variance / 2)
        own, its = error**2 * np.expm1(variance), error * error[-1] * np.expm1(shared)
        return error[-1] - error[:-1], (own + own[-1] - 2 * its)[:-1].clip(1e-12)

    def _beside(self, points: Array, share: float = 1.0) -> tuple[Array, Array, Array]:
        """Mean and variance of u, and the covariance with the last of the points."""
        new = self._inputs(points, [share] * len(points))
        last = SurrogateInputs(*(each[-1:] for each in new))
        across = self._across(new, self.at)
        half = torch.linalg.solve_triangular(self.root, across.T, upper=False)
        mean = self._expected(self.learned, new) + across @ self.weights
        alone = self._across(last, last)[0, 0]  # the same for all of one length
        variance = (alone - half.pow(2).sum(0)).clamp_min(1e-12)
        shared = self._across(new, last)[:, 0] - half.T @ half[:, -1]
        u = self.middle + self.unit * mean
        return u.numpy(), (variance * self.unit**2).numpy(), (shared * self.unit**2).numpy()

    def draw(self, points: Array, count: int, rng: np.random.Generator) -> Array:
        """[count, points]: metrics in full as they may be, all of them together."""
        u, covariance = self.posterior(points)
        root = torch.linalg.cholesky(covariance + JITTER * self.unit**2 * torch.eye(len(u)))
        normal = rng.standard_normal((count, len(u)))
        drawn: Array = 1 - np.exp(-(u.numpy() + normal @ root.T.numpy()))
        return drawn

    def believe(self, points: Array, shares: Sequence[float]) -> None:
        """Take what is expected of points that are being tried as if it had been seen."""
        self.y = torch.cat([self.y, self.standardised(points, shares)])
        self.at = self.at.and_also(self._inputs(points, shares))
        self.near = self._near(self.at, self.at)
        self.noise = torch.cat([self.noise, self.noise.mean().expand(len(shares))])
        self._condition()


class Surrogate:
    """All tasks together. `weights` are those of the tasks in what is to be maximised.

    `earlier` has what was seen in earlier runs, each by the tasks of this one that it speaks of.
    """

    @one_thread()
    def __init__(
        self,
        points: Points,
        seen: Sequence[Observed],
        weights: Mapping[str, float],
        earlier: Sequence[Sequence[Observed]] = (),
    ) -> None:
        self.weights = {task: weight for task, weight in weights.items() if weight}
        self.earlier = [
            {
                task: Process(points, task, run, _scale(run))
                for task in self.weights
                if task in run[0].values
            }
            for run in earlier
        ]
        self.processes = {
            task: Process(
                *(points, task, seen, _scale(seen)),
                [run[task] for run in self.earlier if task in run],
            )
            for task in self.weights
        }

    def taken(self) -> list[dict[str, float]]:
        """How much each earlier run counts, by task."""
        return [
            {task: self.processes[task].weight_of(of_task) for task, of_task in run.items()}
            for run in self.earlier
        ]

    @one_thread()
    def predict(self, points: Array, share: float = 1.0) -> tuple[Array, Array]:
        """Mean and standard deviation of the weighted sum; tasks err independently."""
        mean, variance = np.zeros(len(points)), np.zeros(len(points))
        for task, weight in self.weights.items():
            own_mean, own_variance = self.processes[task].predict(points, share)
            mean += weight * own_mean
            variance += weight**2 * own_variance
        return mean, np.sqrt(variance)

    @one_thread()
    def lead(self, points: Array, other: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of what they score more in full than another point does.

        What is unknown of both alike, as how far all of them will climb, is no doubt about it.
        """
        mean, variance = np.zeros(len(points)), np.zeros(len(points))
        for task, weight in self.weights.items():
            own_mean, own_variance = self.processes[task].lead(points, other)
            mean += weight * own_mean
            variance += weight**2 * own_variance
        return mean, np.sqrt(variance)

    @one_thread()
    def draw(self, points: Array, count: int, rng: np.random.Generator) -> Array:
        """[count, points]: what they may score in full."""
        total = np.zeros((count, len(points)))
        for task, weight in self.weights.items():
            total += weight * self.processes[task].draw(points, count, rng)
        return total

    @one_thread()
    def believe(self, points: Array, shares: Sequence[float]) -> None:
        for process in self.processes.values():
            process.believe(points, shares)


def _scale(seen: Sequence[Observed]) -> float:
    """Of time, so that the shortest training is at -1."""
    shortest = min(min(each.share for each in seen), 0.5)
    return float(shortest**-BENT) - 1
