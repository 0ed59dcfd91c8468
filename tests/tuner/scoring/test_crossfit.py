from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from model.common.errors import InputError
from model.evaluation.predictions import PREDICTIONS, write_predictions
from model.evaluation.scores import METRICS, Scored, measure, score
from model.tasks.task_set import TaskSet, load_task_set
from tuner.scoring.crossfit import best_by, cross_fit, paired_differences
from tuner.scoring.dev_predictions import Answers, DevPredictions, Grid
from tuner.scoring.weighted import WEIGHTED

TASKS = load_task_set("sample")  # five classes, two classes, a regression
CLASSES, PAIRS, DEGREES = TASKS.names


def drawn(
    rng: np.random.Generator, rights: Sequence[float], rows: int = 150, alike: float = 0.7
) -> DevPredictions:
    """Candidates that are right this often on the class tasks, err alike, and are all as good
    in the regression (a correlation of the root of a half)."""
    count = len(rights)

    def errors() -> Any:
        own, common = rng.normal(size=(count, rows)), rng.normal(size=(1, rows))
        return np.sqrt(alike) * common + np.sqrt(1 - alike) * own

    levels = norm.ppf(np.asarray(rights))[:, None]
    five, two = rng.integers(0, 5, rows), rng.integers(0, 2, rows)
    degrees = rng.normal(size=rows)
    return DevPredictions(
        [f"c{number}" for number in range(count)],
        {
            CLASSES: Answers(five * 1.0, np.where(errors() < levels, five, (five + 1) % 5) * 1.0),
            PAIRS: Answers(two * 1.0, np.where(errors() < levels, two, 1 - two) * 1.0),
            DEGREES: Answers(degrees, degrees + errors()),
        },
    )


def true_score(right: float) -> float:
    return (right + right + (1 + 0.5**0.5) / 2) / 3


# --- metrics of weighted rows -------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("masked", [True, False])
def test_a_row_that_counts_twice_is_a_row_that_is_there_twice(name: str, masked: bool) -> None:
    rng = np.random.default_rng(1)
    classes = 2 if name == "f1" else 4
    labels = rng.integers(0, classes, 40).astype(float)
    predictions = rng.integers(0, classes, (3, 40)).astype(float)
    inside = rng.integers(0, 2, (3, 40)) * 1.0 if masked else np.ones((1, 40))
    weights = rng.integers(0, 3, (5, 40)) * 1.0
    values = WEIGHTED[name](labels, predictions, inside, weights)
    assert values.shape == (3, 5)
    for c in range(3):
        for w in range(5):
            times = (inside[c if masked else 0] * weights[w]).astype(int)
            rows = np.repeat(np.arange(40), times)
            plain = measure(name, labels[rows], predictions[c][rows], classes)
            assert values[c, w] == pytest.approx(plain, abs=1e-9)


def test_a_class_for_every_row_is_no_burden() -> None:
    labels = np.arange(5000.0)
    answers = np.where(labels % 4 > 0, labels, labels + 1)[None]
    began = time.process_time()
    (value,) = WEIGHTED["macro_f1"](labels, answers, np.ones((1, 5000)), np.ones((20, 5000)))[:, 0]
    assert time.process_time() - began < 2
    assert value == pytest.approx(measure("macro_f1", labels, answers[0], 5001))


def test_every_metric_can_be_weighted() -> None:
    assert set(WEIGHTED) == set(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_without_rows_or_spread_is_a_number(name: str) -> None:
    constant, ones = np.ones(6), np.ones((1, 6))
    for weights in (np.zeros((1, 6)), np.ones((1, 6))):
        assert np.isfinite(WEIGHTED[name](constant, constant[None], ones, weights)).all()
    if not METRICS[name].on_classes:
        far = np.full((1, 6), 1e6 + 0.1)
        assert WEIGHTED[name](np.arange(6.0), far, ones, ones)[0, 0] == 0


def test_the_grid_of_all_rows_is_what_the_trainer_scores() -> None:
    dev = drawn(np.random.default_rng(2), [0.6, 0.7])
    weighted = replace(TASKS, tasks=tuple(replace(t, weight=i + 1.0) for i, t in enumerate(TASKS)))
    grid = dev.grid(weighted).at(0)
    for number in range(2):
        scored = {
            t.name: Scored(t.metric, t.weight, t.classes, of.labels, of.predictions[number])
            for t in weighted
            for of in [dev.answers[t.name]]
        }
        known = score(scored)
        assert grid.overall[number] == pytest.approx(known.overall.value, abs=1e-9)
        for name, value in known.tasks.items():
            assert grid.tasks[name][number] == pytest.approx(value.value, abs=1e-9)


# --- reading ------------------------------------------------------------------------------------


def write(
    folder: Path, trial: str, seed: int = 0, rows: int = 20, order: Any = None, **changes: Any
) -> dict[str, Any]:
    """An evaluation of a trial with its file; `order` shuffles the rows."""
    rng = np.random.default_rng(seed)
    names = [name for name in TASKS.names for _ in range(rows)]
    ids = [f"r{number}" for _ in TASKS.names for number in range(rows)]
    labels = np.tile(np.arange(rows) % 2, 3).astype(float)
    columns = {
        "task": pa.array(names).dictionary_encode(),
        "id": pa.array(ids),
        "label": pa.array(labels),
        "prediction": pa.array(np.round(labels + rng.normal(0, 0.5, 3 * rows)).clip(0, 1)),
        "probabilities": pa.nulls(3 * rows, pa.list_(pa.float32())),
    } | changes
    table = pa.table(columns)
    table = table.cast(PREDICTIONS) if set(table.column_names) == set(PREDICTIONS.names) else table
    file = f"predictions/{seed:06d}.parquet"
    place = folder / "trials" / trial
    place.mkdir(parents=True, exist_ok=True)
    write_predictions(place / file, table if order is None else table.take(order))
    return {"predictions": file, "examples": 100}


def test_predictions_are_aligned_by_task_and_id(tmp_path: Path) -> None:
    one = write(tmp_path, "t0000", seed=3)
    same = write(tmp_path, "t0001", seed=3, order=np.random.default_rng(0).permutation(60))
    dev = DevPredictions.load(tmp_path, [("t0000", one), ("t0001", same)], TASKS)
    assert len(dev) == 2 and dev.names[1] == "t0001 after 100 examples"
    for of in dev.answers.values():
        assert of.labels.tolist() == [0, 1] * 10
        assert (of.predictions[0] == of.predictions[1]).all()
        assert 0 < (of.predictions[0] != of.labels).sum() < 20


def test_ids_that_occur_twice_are_matched_in_their_order(tmp_path: Path) -> None:
    ids = pa.array(["same"] * 60)
    one, two = write(tmp_path, "t0000", seed=1, id=ids), write(tmp_path, "t0001", seed=1, id=ids)
    dev = DevPredictions.load(tmp_path, [("t0000", one), ("t0001", two)], TASKS)
    assert all((of.predictions[0] == of.predictions[1]).all() for of in dev.answers.values())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": pa.array([f"x{n}" for n in range(60)])}, "rows are not those of trial t0000"),
        ({"rows": 30}, "rows are not those of trial t0000 (30 differ"),
        ({"label": pa.array(np.zeros(60))}, "labels are not those of trial t0000"),
        ({"prediction": pa.array(np.full(60, np.nan))}, "no numbers"),
    ],
)
def test_a_trial_with_other_rows_is_named(tmp_path: Path, changes: Any, said: str) -> None:
    one, two = write(tmp_path, "t0000"), write(tmp_path, "t0001", **changes)
    with pytest.raises(InputError) as error:
        DevPredictions.load(tmp_path, [("t0000", one), ("t0001", two)], TASKS)
    assert "trial t0001" in str(error.value) and said in str(error.value)


def test_files_that_are_gone_or_damaged_are_all_named(tmp_path: Path) -> None:
    one = write(tmp_path, "t0000")
    broken = write(tmp_path, "t0002")
    (tmp_path / "trials/t0002" / broken["predictions"]).write_bytes(b"PAR1 and no more")
    pairs = [("t0000", one), ("t0001", one), ("t0002", broken)]
    with pytest.raises(InputError) as error:
        DevPredictions.load(tmp_path, pairs, TASKS)
    assert [fault[:11] for fault in error.value.faults] == ["trial t0001", "trial t0002"]


def test_predictions_of_another_task_set_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path, "t0000")
    with pytest.raises(InputError, match="has no rows of sst, para, sts"):
        DevPredictions.load(tmp_path, [("t0000", one)], load_task_set("cs224n"))
    with pytest.raises(InputError, match="no candidates"):
        DevPredictions.load(tmp_path, [], TASKS)


# --- the cross-fitted score ---------------------------------------------------------------------


@pytest.mark.parametrize("alike", [0.0, 0.7])
def test_among_equals_the_plain_best_flatters_and_the_cross_fitted_score_does_not(
    alike: float,
) -> None:
    rng = np.random.default_rng(4)
    fits = [
        cross_fit(drawn(rng, [0.7] * 20, alike=alike), None, TASKS, seed=n, resamples=100)
        for n in range(200)
    ]
    truth = true_score(0.7)
    plain = np.array([fit.plain for fit in fits])
    cross_fitted = np.array([fit.cross_fitted for fit in fits])
    error = cross_fitted.std() / len(fits) ** 0.5
    assert abs(cross_fitted.mean() - truth) < 3 * error
    assert plain.mean() - truth > 0.02 and plain.mean() - truth > 10 * error
    assert np.mean([fit.low <= truth <= fit.high for fit in fits]) >= 0.93


def test_a_clear_winner_is_chosen_by_every_half_and_leaves_no_gap() -> None:
    dev = drawn(np.random.default_rng(5), [0.6, 0.95, 0.6], rows=400)
    fit = cross_fit(dev, None, TASKS)
    assert set(fit.chosen) == {1} and len(fit.chosen) == 40
    assert fit.plain == pytest.approx(dev.grid(TASKS).overall[1, 0])
    assert abs(fit.gap) < 0.001 and fit.gap == fit.plain - fit.cross_fitted
    assert fit.low < fit.cross_fitted < fit.high
    # With one choice throughout, the interval is that of the model's own score.
    of = {
        t.name: Scored(t.metric, 1, t.classes, a.labels, a.predictions[1])
        for t in TASKS
        for a in [dev.answers[t.name]]
    }
    known = score(of).overall
    assert fit.high - fit.low == pytest.approx(known.high - known.low, rel=0.15)


def test_chosen_and_scored_are_never_the_same_rows() -> None:
    """Candidate k is right on row k alone: whoever is chosen is wrong on all other rows."""
    labels = np.zeros(10)
    answers = Answers(labels, 1 - np.eye(10))
    one = replace(TASKS, tasks=(TASKS[PAIRS],))
    dev = DevPredictions([str(n) for n in range(10)], {PAIRS: answers})
    fit = cross_fit(dev, None, one, splits=5)
    assert (fit.plain, fit.cross_fitted) == (pytest.approx(0.1), 0)


def test_the_same_seed_gives_the_same_numbers() -> None:
    dev = drawn(np.random.default_rng(6), [0.7] * 5)
    assert cross_fit(dev, None, TASKS, seed=1) == cross_fit(dev, None, TASKS, seed=1)
    assert cross_fit(dev, None, TASKS, seed=1) != cross_fit(dev, None, TASKS, seed=2)


def test_the_choice_can_be_anybodys() -> None:
    dev = drawn(np.random.default_rng(7), [0.7, 0.9, 0.8])
    seen: list[Grid] = []

    def worst(grid: Grid) -> int:
        seen.append(grid)
        return int(grid.overall.argmin())

    fit = cross_fit(dev, worst, TASKS, splits=3)
    assert set(fit.chosen) == {0} and len(seen) == 7
    assert seen[0].overall.shape == (3,) and set(seen[0].tasks) == set(TASKS.names)


def test_a_goal_is_chosen_by_and_scored() -> None:
    dev = drawn(np.random.default_rng(8), [0.9, 0.5])
    better = dev.answers[DEGREES].labels + np.array([[3.0], [0.1]]) * np.sin(np.arange(150))
    dev.answers[DEGREES] = Answers(dev.answers[DEGREES].labels, better)
    fit = cross_fit(dev, None, TASKS, goal=DEGREES)
    assert set(fit.chosen) == {1} and fit.cross_fitted > 0.98
    assert best_by(CLASSES)(dev.grid(TASKS).at(0)) == 0


def test_the_lead_over_one_of_the_candidates_does_not_flatter() -> None:
    rng = np.random.default_rng(9)
    leads = []
    for number in range(60):
        dev = drawn(rng, [0.7] * 10)
        fit = cross_fit(dev, None, TASKS, seed=number, against=0, resamples=100)
        assert fit.lead is not None
        leads.append(fit.lead)
    values = np.array([lead.value for lead in leads])
    assert abs(values.mean()) < 3 * values.std() / 60**0.5
    assert np.mean([lead.tie for lead in leads]) > 0.9
    better = cross_fit(drawn(rng, [0.6, 0.9], rows=300), None, TASKS, against=0).lead
    assert better is not None and better.low > 0


def test_a_task_with_one_row_cannot_be_halved() -> None:
    dev = drawn(np.random.default_rng(0), [0.5, 0.5], rows=1)
    with pytest.raises(InputError, match=f"{CLASSES} has too few rows"):
        cross_fit(dev, None, TASKS)


def test_two_hundred_candidates_take_a_couple_of_seconds() -> None:
    dev = drawn(np.random.default_rng(10), [0.7] * 200, rows=3000)
    began = time.process_time()
    cross_fit(dev, None, TASKS, against=0)
    assert time.process_time() - began < 4  # about 0.5 on an idle core


# --- two candidates -----------------------------------------------------------------------------


def test_the_paired_interval_is_that_of_a_bootstrap_written_out() -> None:
    rng = np.random.default_rng(11)
    dev = drawn(rng, [0.75, 0.7])
    value, low, high = paired_differences(dev[0], dev[1], TASKS, resamples=2000).overall
    draws = []
    for _ in range(2000):
        total = np.zeros(2)
        for task in TASKS:
            of = dev.answers[task.name]
            rows = rng.integers(len(of.labels), size=len(of.labels))
            for number in range(2):
                found = measure(
                    task.metric, of.labels[rows], of.predictions[number][rows], task.classes
                )
                total[number] += (1 + found) / 2 if task.metric == "pearson" else found
        draws.append((total[0] - total[1]) / 3)
    grid = dev.grid(TASKS).overall[:, 0]
    assert value == pytest.approx(grid[0] - grid[1])
    assert [low, high] == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.004)


def test_the_paired_difference_is_also_told_per_task() -> None:
    dev = drawn(np.random.default_rng(12), [0.95, 0.6], rows=300)
    found = paired_differences(dev[0], dev[1], TASKS, resamples=200)
    grid = dev.grid(TASKS).at(0)
    for name in TASKS.names:
        assert found.tasks[name].value == pytest.approx(grid.tasks[name][0] - grid.tasks[name][1])
    assert not found.tasks[CLASSES].tie and found.by(CLASSES) == found.tasks[CLASSES]
    assert found.by("overall") == found.overall


def test_a_candidate_does_not_differ_from_itself() -> None:
    dev = drawn(np.random.default_rng(13), [0.7, 0.7])
    same = paired_differences(dev[1], dev[1], TASKS).overall
    assert same == (0, 0, 0) and same.tie


def test_pairing_is_narrower_than_not_pairing() -> None:
    dev = drawn(np.random.default_rng(14), [0.7, 0.7], alike=0.95)
    paired = paired_differences(dev[0], dev[1], TASKS).overall
    apart = dev[0].resampled(TASKS, 1000, 1).overall - dev[1].resampled(TASKS, 1000, 2).overall
    low, high = np.quantile(apart, [0.025, 0.975])
    assert paired.high - paired.low < 0.7 * (high - low)


def test_resampling_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dev = drawn(np.random.default_rng(15), [0.7, 0.6])
    whole = dev.resampled(TASKS, 50, 0).overall
    monkeypatch.setattr("tuner.scoring.dev_predictions.CELLS", 150 * 7)
    assert np.allclose(dev.resampled(TASKS, 50, 0).overall, whole, rtol=0, atol=1e-12)


def test_task_sets_of_one_task_work() -> None:
    dev = drawn(np.random.default_rng(16), [0.9, 0.6])
    one = TaskSet("one", "", (TASKS[CLASSES],))
    assert cross_fit(dev, None, one).plain == pytest.approx(dev.grid(one).tasks[CLASSES][0, 0])
