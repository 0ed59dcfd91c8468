from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score

from model.evaluation import scores as module
from model.evaluation.scores import (
    METRICS,
    RESAMPLES,
    Array,
    Confusion,
    Scored,
    further,
    interval,
    majority_baseline,
    measure,
    overall_of,
    replicates,
    score,
)


def floats(values: list[int]) -> Array:
    return np.asarray(values, dtype=np.float64)


@st.composite
def answers(draw: st.DrawFn, most: int = 6) -> tuple[int, Array, Array]:
    classes = draw(st.integers(2, most))
    one = st.integers(0, classes - 1)
    rows = draw(st.lists(st.tuples(one, one), min_size=1, max_size=40))
    return classes, floats([a for a, _ in rows]), floats([b for _, b in rows])


# --- the metrics against those of scikit-learn and SciPy ----------------------------------------


@given(answers())
def test_accuracy_and_macro_f1_are_those_of_scikit_learn(drawn: tuple[int, Array, Array]) -> None:
    classes, labels, predictions = drawn
    assert measure("accuracy", labels, predictions, classes) == pytest.approx(
        accuracy_score(labels, predictions)
    )
    assert measure("macro_f1", labels, predictions, classes) == pytest.approx(
        f1_score(labels, predictions, average="macro", zero_division=0)
    )


@given(answers(most=2))
def test_f1_is_that_of_scikit_learn(drawn: tuple[int, Array, Array]) -> None:
    _, labels, predictions = drawn
    assert measure("f1", labels, predictions, 2) == pytest.approx(
        f1_score(labels, predictions, zero_division=0)
    )


# In steps of a hundredth: no differences so small that rounding alone decides the correlation.
values = st.lists(
    st.tuples(st.integers(0, 500), st.integers(-300, 800)), min_size=2, max_size=40
).map(lambda rows: (floats([a for a, _ in rows]) / 100, floats([b for _, b in rows]) / 100))


@given(values)
def test_correlations_are_those_of_scipy(drawn: tuple[Array, Array]) -> None:
    labels, predictions = drawn
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        assert measure("pearson", labels, predictions, 0) == pytest.approx(0, abs=1e-6)
        assert measure("spearman", labels, predictions, 0) == pytest.approx(0, abs=1e-6)
        return
    pearson = stats.pearsonr(labels, predictions).statistic
    spearman = stats.spearmanr(labels, predictions).statistic
    assert measure("pearson", labels, predictions, 0) == pytest.approx(pearson, abs=1e-9)
    assert measure("spearman", labels, predictions, 0) == pytest.approx(spearman, abs=1e-9)


@given(values)
def test_a_correlation_stays_between_minus_one_and_one(drawn: tuple[Array, Array]) -> None:
    labels, _ = drawn
    for predictions in (labels, -labels, 3 * labels + 0.1, labels / 7):
        assert -1 <= measure("pearson", labels, predictions, 0) <= 1


def test_constant_answers_correlate_with_nothing() -> None:
    labels = np.linspace(0, 5, 11)
    for constant in (0.0, 0.1, 1 / 3, 2.5):
        assert measure("pearson", labels, np.full(11, constant), 0) == pytest.approx(0, abs=1e-12)
        assert measure("spearman", labels, np.full(11, constant), 0) == 0
    assert majority_baseline("pearson", labels, labels, 0) == pytest.approx(0, abs=1e-12)


def test_a_dev_set_of_one_class() -> None:
    ones = np.ones(9)
    assert measure("accuracy", ones, ones, 3) == 1
    assert measure("macro_f1", ones, ones, 3) == 1  # over the classes that occur
    assert measure("f1", ones, ones, 2) == 1
    zeros = np.zeros(9)
    assert measure("f1", zeros, zeros, 2) == 0  # nothing of class 1 to find
    assert set(replicates("accuracy", ones, ones, 3)) == {1.0}


def test_only_occupied_cells_are_kept() -> None:
    found = Confusion.of(floats([0, 0, 2, 1, 0]), floats([0, 1, 2, 2, 1]), 3)
    cells = zip(found.true, found.predicted, found.counts, strict=True)
    assert [tuple(map(int, cell)) for cell in cells] == [
        (0, 0, 1),
        (0, 1, 2),
        (1, 2, 1),
        (2, 2, 1),
    ]


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_works_on_many_resamples_at_once(metric: str) -> None:
    rng = np.random.default_rng(1)
    labels, predictions = rng.integers(2, size=(2, 30)).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = replicates(metric, labels, predictions, 2)
    assert draws.shape == (RESAMPLES,)
    assert np.isfinite(draws).all()
    assert METRICS[metric].unit(draws).min() >= 0
    assert METRICS[metric].unit(draws).max() <= 1
    assert (replicates(metric, labels, predictions, 2) == draws).all()  # the same every time
    assert (replicates(metric, labels, predictions, 2, seed=1) != draws).any()


@pytest.mark.parametrize("metric", METRICS)
def test_two_rows_are_enough(metric: str) -> None:
    draws = replicates(metric, floats([0, 1]), floats([0, 1]), 2)
    assert np.isfinite(draws).all()


# --- the bootstrap ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "f1"])
def test_drawing_cells_is_drawing_rows(metric: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=150).astype(np.float64)
    predictions = np.where(rng.random(150) < 0.7, labels, 1 - labels)
    by_cells = replicates(metric, labels, predictions, 2)
    by_rows = np.array(
        [
            measure(metric, labels[drawn], predictions[drawn], 2)
            for drawn in rng.integers(150, size=(RESAMPLES, 150))
        ]
    )
    spread = by_rows.std()
    assert by_cells.mean() == pytest.approx(by_rows.mean(), abs=0.2 * spread)
    assert by_cells.std() == pytest.approx(spread, rel=0.1)
    for share in (0.025, 0.25, 0.5, 0.75, 0.975):
        at = np.quantile(by_rows, share)
        assert np.quantile(by_cells, share) == pytest.approx(at, abs=0.3 * spread)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "f1"])
def test_blocks_do_not_change_what_is_drawn(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    labels, predictions = rng.integers(2, size=(2, 60)).astype(np.float64)
    whole = replicates(metric, labels, predictions, 2)
    monkeypatch.setattr(module, "BLOCK", 4 * 7)  # seven resamples of four cells at a time
    assert np.array_equal(replicates(metric, labels, predictions, 2), whole)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_many_classes_need_little_memory(metric: str) -> None:
    rng = np.random.default_rng(5)
    labels, others = rng.integers(100_000, size=(2, 500)).astype(np.float64)
    predictions = np.where(rng.random(500) < 0.6, labels, others)
    tracemalloc.start()
    value = measure(metric, labels, predictions, 100_000)
    draws = replicates(metric, labels, predictions, 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6  # the whole matrix would be 80 GB
    if metric == "accuracy":
        assert value == np.mean(labels == predictions)
        share = np.sqrt(value * (1 - value) / 500)  # of a binomial
        assert draws.mean() == pytest.approx(value, abs=share / 5)
        assert draws.std() == pytest.approx(share, rel=0.1)
    else:
        expected = f1_score(labels, predictions, average="macro", zero_division=0)
        assert value == pytest.approx(expected)


def test_blocks_do_not_change_how_a_correlation_is_resampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    labels = rng.normal(size=4001)  # more than one block of the 1000 resamples
    predictions = labels + rng.normal(size=4001)
    draws = replicates("pearson", labels, predictions, 0)
    assert draws.shape == (RESAMPLES,)
    assert draws.std() == pytest.approx((1 - 0.5) / np.sqrt(4001), rel=0.15)  # (1 - r^2) / sqrt n


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for number in range(200):
        labels = rng.integers(5, size=300).astype(np.float64)
        right = rng.random(300) < 0.6  # the true accuracy
        predictions = np.where(right, labels, (labels + 1) % 5)
        low, high = interval(replicates("accuracy", labels, predictions, 5, seed=number))
        covered += low <= 0.6 <= high
    assert 180 <= covered <= 198


# --- the overall score --------------------------------------------------------------------------


def scored(metric: str, weight: float, classes: int, seed: int) -> Scored:
    rng = np.random.default_rng(seed)
    if classes:
        labels = rng.integers(classes, size=200).astype(np.float64)
        return Scored(metric, weight, classes, labels, np.roll(labels, seed))
    labels = rng.uniform(0, 5, size=200)
    return Scored(metric, weight, classes, labels, labels + rng.normal(size=200))


def test_three_tasks_make_the_overall_score_of_the_papers() -> None:
    tasks = {
        "one": scored("accuracy", 1, 5, 1),
        "two": scored("accuracy", 1, 2, 2),
        "three": scored("pearson", 1, 0, 3),
    }
    found = score(tasks)
    first, second, r = (found.tasks[name].value for name in tasks)
    assert r == pytest.approx(
        stats.pearsonr(tasks["three"].labels, tasks["three"].predictions).statistic
    )
    assert found.overall.value == pytest.approx((first + second + (1 + r) / 2) / 3)
    for one in (found.overall, *found.tasks.values()):
        assert one.low < one.value < one.high
    # Three independent parts: the mean is surer than any of its parts.
    widths = [one.high - one.low for one in (found.tasks["one"], found.tasks["two"])]
    assert found.overall.high - found.overall.low < min(widths)


def test_weights_shift_the_overall_score() -> None:
    assert overall_of(["accuracy", "accuracy"], [0.2, 0.8], [1, 3]) == pytest.approx(0.65)
    tasks = {"one": scored("accuracy", 0, 5, 1), "two": scored("accuracy", 2, 2, 2)}
    found = score(tasks)
    assert found.overall.value == pytest.approx(found.tasks["two"].value)
    assert found.overall.low == pytest.approx(found.tasks["two"].low)


def test_two_tasks_are_not_resampled_in_step() -> None:
    one = scored("accuracy", 1, 5, 1)
    found = score({"one": one, "two": one})
    assert found.tasks["one"].value == found.tasks["two"].value
    assert found.overall.high - found.overall.low < found.tasks["one"].high - found.tasks["one"].low


def test_a_score_prints_its_interval() -> None:
    found = score({"one": Scored("accuracy", 1, 2, np.ones(4), np.ones(4))})
    assert str(found.overall) == "1.000 [1.000, 1.000]"


def test_the_baseline_is_the_commonest_training_answer() -> None:
    train, dev = floats([0, 2, 2, 1]), floats([2, 0, 2, 1])
    assert majority_baseline("accuracy", train, dev, 3) == 0.5
    assert majority_baseline("macro_f1", train, dev, 3) == pytest.approx(2 / 3 / 3)


def test_further_metrics_are_measured_on_the_same_answers() -> None:
    rng = np.random.default_rng(0)
    labels, said = rng.integers(0, 3, (2, 200)).astype(np.float64)
    task = Scored("accuracy", 1.0, 3, labels, said)
    found = further(task, ["macro_f1"])["macro_f1"]
    assert found.value == pytest.approx(f1_score(labels, said, average="macro"))
    assert found.low < found.value < found.high
    near = labels + rng.normal(size=200)
    both = further(Scored("pearson", 1.0, 0, labels, near), ["spearman", "pearson"])
    assert both["spearman"].value == pytest.approx(stats.spearmanr(labels, near)[0])
    assert both["pearson"].value == pytest.approx(stats.pearsonr(labels, near)[0])
