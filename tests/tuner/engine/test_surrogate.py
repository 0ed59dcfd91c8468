"""The model of the results: against plain arithmetic, and on curves that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.engine.points import Points
from tuner.engine.surrogate import Observed, Process, Surrogate
from tuner.space.space import load_space

POINTS = Points(load_space("default"))
TASKS = ("sentiment", "paraphrase", "similarity")


def seen(values: list[float], shares: list[float], seed: int = 0) -> list[Observed]:
    rng = np.random.default_rng(seed)
    return [
        Observed(
            POINTS.encode(POINTS.space.draw(rng)),
            share,
            dict.fromkeys(TASKS, value),
            dict.fromkeys(TASKS, 1e-4),
        )
        for value, share in zip(values, shares, strict=True)
    ]


def test_it_is_the_textbook_posterior_of_its_kernel() -> None:
    shares = [0.1, 0.1, 0.3, 1.0]
    observed = seen([0.4, 0.5, 0.55, 0.7], shares)
    scale = 0.1**-0.25 - 1
    process = Process(POINTS, "sentiment", observed, scale)
    x = np.stack([each.point for each in observed])
    new = np.stack([POINTS.encode(POINTS.space.draw(np.random.default_rng(9)))])
    learned = np.exp(process.learned.numpy())
    count = len(POINTS.columns)
    effects, (luck, persistent, passing, slope) = learned[:count], learned[count:]

    def kernel(a: np.ndarray, s: list[float], b: np.ndarray, r: list[float]) -> np.ndarray:
        found = np.empty((len(a), len(b)))
        for i in range(len(a)):
            for j in range(len(b)):
                t, u = (1 - s[i] ** -0.25) / scale, (1 - r[j] ** -0.25) / scale
                alike = 1.0
                for effect, column in zip(effects, POINTS.columns, strict=True):
                    apart = a[i][column.places] - b[j][column.places]
                    d = math.sqrt(5 * (apart @ apart)) / 0.6
                    alike *= 1 + effect**2 * (1 + d + d * d / 3) * math.exp(-d)
                found[i, j] = (
                    (alike - 1) * (persistent**2 + passing**2 * t * u) + 1 + slope**2 * t * u
                )
        return found

    errors = 1 - np.array([0.4, 0.5, 0.55, 0.7])
    y = -np.log(errors)
    unit = y.std()
    noise = np.diag(1e-4 / errors**2 / unit**2 + luck**2 + 1e-6)
    inverse = np.linalg.inv(kernel(x, shares, x, shares) + noise)
    across = kernel(new, [1.0], x, shares)
    mean = y.mean() + unit * across @ inverse @ ((y - y.mean()) / unit)
    variance = unit**2 * (kernel(new, [1.0], new, [1.0]) - across @ inverse @ across.T)
    found_mean, found_variance = process.posterior(new)
    assert found_mean.numpy() == pytest.approx(mean, abs=1e-5)
    assert found_variance.numpy() == pytest.approx(variance, abs=1e-6)


def test_the_metric_has_the_mean_and_the_spread_of_what_is_drawn() -> None:
    model = Surrogate(POINTS, seen([0.4, 0.5, 0.6], [0.1, 0.3, 1.0]), {"sentiment": 1.0})
    at = np.stack([POINTS.encode(POINTS.space.draw(np.random.default_rng(n))) for n in (5, 6)])
    mean, sd = model.predict(at)
    drawn = model.draw(at, 40_000, np.random.default_rng(0))
    assert drawn.mean(0) == pytest.approx(mean, abs=3e-3)
    assert drawn.std(0) == pytest.approx(sd, rel=0.05)


def test_the_whole_is_the_weighted_sum_of_the_tasks() -> None:
    observed = seen([0.4, 0.5, 0.55, 0.7], [0.1, 0.1, 0.3, 1.0])
    both = Surrogate(POINTS, observed, {"sentiment": 0.5, "paraphrase": 0.25, "similarity": 0.0})
    assert set(both.processes) == {"sentiment", "paraphrase"}
    at = np.stack([each.point for each in observed])
    mean, sd = both.predict(at)
    one, two = (both.processes[name].predict(at) for name in ("sentiment", "paraphrase"))
    assert mean == pytest.approx(0.5 * one[0] + 0.25 * two[0])
    assert sd == pytest.approx(np.sqrt(0.25 * one[1] + 0.0625 * two[1]))


def test_it_sees_that_what_leads_early_falls_behind() -> None:
    """Two pair encodings: one is ahead at first and stands still, the other climbs."""
    rng, observed = np.random.default_rng(1), []
    key = "pair.encoding.similarity"

    def score(settings: dict[str, object], share: float) -> float:
        steps = math.log(share) / math.log(3)  # thirds of the training to go, below 0
        if settings[key] == "cosine":
            return 0.72 + 0.003 * steps
        return 0.86 + 0.06 * steps

    for share in (1 / 27, 1 / 27, 1 / 9, 1 / 9, 1 / 3) * 4:
        for encoding in ("cosine", "cross"):
            settings = POINTS.space.draw(rng, {key: encoding})
            value = score(settings, share) + rng.normal(0, 0.01)
            own = {"sentiment": 0.5, "paraphrase": 0.7, "similarity": value}
            point = POINTS.encode(settings)
            observed.append(Observed(point, share, own, dict.fromkeys(TASKS, 1e-4)))
    model = Surrogate(POINTS, observed, {"similarity": 1.0})
    draws = [POINTS.space.draw(rng, {key: each}) for each in ("cosine", "cross")]
    at = np.stack([POINTS.encode(each) for each in draws])
    early, _ = model.predict(at, 1 / 27)
    late, _ = model.predict(at, 1.0)
    assert early[0] > early[1] + 0.01 and late[1] > late[0] + 0.05


def test_what_is_being_tried_is_taken_as_expected_and_less_uncertain() -> None:
    model = Surrogate(POINTS, seen([0.4, 0.5, 0.6], [0.3, 0.3, 1.0]), {"sentiment": 1.0})
    new = np.stack([POINTS.encode(POINTS.space.draw(np.random.default_rng(5)))])
    (before,), (doubt,) = model.predict(new)
    model.believe(new, [1.0])
    (after,), (less,) = model.predict(new)
    assert after == pytest.approx(before, abs=0.02) and less < 0.9 * doubt


def test_the_same_results_give_the_same_model_to_the_bit() -> None:
    observed = seen([0.4, 0.5, 0.55, 0.7, 0.6], [0.1, 0.1, 0.3, 1.0, 0.3])
    at = np.stack([each.point for each in observed])
    first = Surrogate(POINTS, observed, {"sentiment": 1.0}).predict(at)
    again = Surrogate(POINTS, observed, {"sentiment": 1.0}).predict(at)
    assert (first[0] == again[0]).all() and (first[1] == again[1]).all()


# --- earlier runs -------------------------------------------------------------------------------


def results(count: int, seed: int, kind: str = "same") -> list[Observed]:
    """What a run says of similarity: the truth, its opposite, or nothing."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        settings = POINTS.space.draw(rng)
        rate = math.log2(settings["optim.learning_rate"] / 2e-4)
        encoding = {"cosine": 0.1, "bi_difference": 0.0, "cross": -0.1}
        true = encoding[settings["pair.encoding.similarity"]] + 0.04 * rate
        says = {"same": true, "opposite": -true, "noise": rng.normal(0, 0.1)}[kind]
        value = {"similarity": 0.5 + says + rng.normal(0, 0.015)}
        found.append(Observed(POINTS.encode(settings), 1 / 9, value, {"similarity": 2e-4}))
    return found


@pytest.mark.parametrize("count", [3, 8, 15])
def test_an_earlier_run_counts_if_it_foretells_the_results_here(count: int) -> None:
    runs = [results(30, seed, kind) for seed, kind in enumerate(("same", "noise", "opposite"), 1)]
    taken = Surrogate(POINTS, results(count, 100), {"similarity": 1.0}, runs).taken()
    same, noise, opposite = (each["similarity"] for each in taken)
    assert same > 0.5 and noise == 0 and opposite == 0


def test_a_run_that_foretells_nothing_leaves_the_model_as_it_is_without() -> None:
    here, at = results(8, 100), np.stack([each.point for each in results(5, 7)])
    alone = Surrogate(POINTS, here, {"similarity": 1.0})
    beside = Surrogate(POINTS, here, {"similarity": 1.0}, [results(30, 3, "opposite")])
    assert (alone.predict(at)[0] == beside.predict(at)[0]).all()


def test_what_is_left_out_is_foretold_as_by_a_process_without_it() -> None:
    observed = seen([0.4, 0.5, 0.55, 0.7], [0.1, 0.1, 0.3, 1.0])
    process = Process(POINTS, "sentiment", observed, 0.1**-0.25 - 1)
    covariance = process._covariance(process.learned).numpy()
    y, total = process.y.numpy(), 0.0
    for n in range(4):
        rest = [m for m in range(4) if m != n]
        weights = np.linalg.solve(covariance[np.ix_(rest, rest)], covariance[rest, n])
        variance = covariance[n, n] - weights @ covariance[rest, n]
        total -= ((y[n] - weights @ y[rest]) ** 2 / variance + math.log(variance)) / 2
    assert process._foretold() == pytest.approx(total)


def test_a_lead_has_the_mean_and_the_spread_of_what_is_drawn() -> None:
    model = Surrogate(POINTS, seen([0.4, 0.5, 0.6], [0.1, 0.3, 0.3]), {"sentiment": 1.0})
    at = np.stack([POINTS.encode(POINTS.space.draw(np.random.default_rng(n))) for n in (5, 6, 7)])
    mean, sd = model.lead(at[:2], at[2])
    drawn = model.draw(at, 40_000, np.random.default_rng(0))
    leads = drawn[:, :2] - drawn[:, 2:]
    assert leads.mean(0) == pytest.approx(mean, abs=3e-3)
    assert leads.std(0) == pytest.approx(sd, rel=0.05)
