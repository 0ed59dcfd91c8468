"""A study's numbers against plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import t as student

from model.evaluation.predictions import Predictions, join_tables, predictions_table
from model.evaluation.scores import measure
from model.tasks.task_set import TaskSet, load_task_set
from tuner.scoring.dev_rows import DevRows
from tuner.study.collect import Candidate
from tuner.study.compare import RowComparison, compare
from tuner.study.ensembles import StudyMember, ensemble_of
from tuner.study.reader import Ensemble, Study, StudyRow
from tuner.study.text import study_text

TASKS = load_task_set("cs224n")
ROWS = 200
RNG = np.random.default_rng(0)
LABELS = {
    "sst": RNG.integers(0, 5, ROWS).astype(float),
    "para": RNG.integers(0, 2, ROWS).astype(float),
    "sts": RNG.uniform(0, 5, ROWS),
}


def answers(right: float, seed: int) -> dict[str, Predictions]:
    """Of a model that is right in so many rows of a hundred, and guesses in the others."""
    rng, found = np.random.default_rng(seed), {}
    for task in TASKS:
        keep = rng.random(ROWS) < right
        if task.kind == "regression":
            guess = rng.uniform(0, 5, ROWS)
            found[task.name] = Predictions(np.where(keep, LABELS[task.name], guess), None)
            continue
        values = np.where(keep, LABELS[task.name], rng.integers(0, task.classes, ROWS))
        likely = np.full((ROWS, task.classes), 0.1, np.float32)
        likely[np.arange(ROWS), values.astype(int)] = 0.9
        found[task.name] = Predictions(values, likely / likely.sum(1, keepdims=True))
    return found


@pytest.fixture
def rows(tmp_path: Path) -> DevRows:
    table = join_tables(
        [
            predictions_table(name, [f"{n}" for n in range(ROWS)], LABELS[name], of)
            for name, of in answers(1.0, 0).items()
        ]
    )
    pq.write_table(table, tmp_path / "dev.parquet")
    found = DevRows(TASKS)
    found.read("first", tmp_path / "dev.parquet")
    return found


def study_of(*rows: StudyRow) -> Study:
    return Study(
        name="s",
        about="a try",
        paper="a paper",
        tasks="cs224n",
        held={},
        examples=100,
        rows=rows,
        against=rows[0].label,
    )


def row(label: str, **paper: float) -> StudyRow:
    return StudyRow(label=label, settings={}, paper=paper)


def seeds_of(label: str, right: float, seeds: int) -> list[Candidate]:
    found = []
    for seed in range(seeds):
        entry = {"examples": 4, "seconds": 2.0, "tasks": {"sst": {"train_value": 0.9}}}
        best = {"sst": 0.4 + 0.2 * seed, "para": 0.7}
        of = answers(right, 100 * ord(label) + seed)
        found.append(Candidate(label, seed, of, {"sst": entry}, {"sst": 5}, best))
    return found


def test_a_cell_is_the_mean_over_seeds_and_its_interval_has_both_noises(rows: DevRows) -> None:
    found = [*seeds_of("a", 0.5, 3), *seeds_of("b", 0.9, 3)]
    table = compare(study_of(row("a", sst=0.5), row("b", sst=0.6)), TASKS, found, rows)
    assert table.goals == ("sst",)

    def accuracy(of: Candidate) -> float:
        return measure("accuracy", LABELS["sst"], of.answers["sst"].values, 5)

    values = [[accuracy(one) for one in some] for some in (found[:3], found[3:])]
    cell = table.cells["a", "sst"]
    assert cell.value == pytest.approx(np.mean(values[0]))
    between = sum(np.var(v, ddof=1) for v in values) / 2  # pooled: two degrees each
    # What the rows alone make uncertain, with three models' answers nearly independent.
    p = cell.value
    over_rows = p * (1 - p) / ROWS / 3
    half = student.ppf(0.975, 4) * math.sqrt(over_rows + between / 3)
    assert cell.half == pytest.approx(half, rel=0.35)
    (against,) = table.comparisons
    assert against.ours == pytest.approx(np.mean(values[1]) - np.mean(values[0]))
    assert against.paper == pytest.approx(0.1)
    assert cell.seeds == 3 and not against.tie


def at_full_length(found: list[Candidate]) -> list[Candidate]:
    return [replace(one, lengths={"sst": 100}) for one in found]


def test_at_full_length_the_papers_noise_is_that_of_two_single_runs_like_ours(
    rows: DevRows,
) -> None:
    found = at_full_length([*seeds_of("a", 0.5, 3), *seeds_of("b", 0.9, 3)])
    study = study_of(row("a", sst=0.5), row("b", sst=0.6))
    (one,) = compare(study, TASKS, found, rows).comparisons
    values = [
        [measure("accuracy", LABELS["sst"], each.answers["sst"].values, 5) for each in some]
        for some in (found[:3], found[3:])
    ]
    between = sum(np.var(v, ddof=1) for v in values) / 2  # pooled: two degrees each
    # On the paper's 1,101 rows; the two models' answers are nearly independent.
    alone = (0.5 * 0.5 + 0.6 * 0.4) / 1101 + 2 * between
    assert one.noise == pytest.approx(student.ppf(0.975, 4) * math.sqrt(alone), rel=0.2)
    assert not one.short


def test_models_that_answer_alike_differ_by_less(rows: DevRows) -> None:
    study = study_of(row("a", sst=0.5), row("b", sst=0.6))
    first, other = at_full_length([*seeds_of("a", 0.5, 1), *seeds_of("b", 0.5, 1)])
    twin = replace(first, row="b")
    (apart,) = compare(study, TASKS, [first, other], rows).comparisons
    (alike,) = compare(study, TASKS, [first, twin], rows).comparisons
    assert apart.noise is not None and alike.noise is not None
    assert alike.noise < 0.5 * apart.noise


def test_short_runs_say_nothing_of_how_far_the_papers_seeds_are_apart(rows: DevRows) -> None:
    """Where ours has hardly learned anything, its seeds are far apart."""
    rights = {"mixed": (0.5, 0.9, 0.7), "cross": (0.05, 0.6, 0.3)}
    found = [
        Candidate(label, seed, answers(right, 10 * len(label) + seed), {}, {"sts": 5})
        for label, of in rights.items()
        for seed, right in enumerate(of)
    ]
    study = study_of(row("cross", sts=0.873), row("mixed", sts=0.612))
    table = compare(study, TASKS, found, rows)
    (one,) = table.comparisons
    noise = 1.96 * math.sqrt(((1 - 0.873**2) ** 2 + (1 - 0.612**2) ** 2) / 863)
    assert one.paper == pytest.approx(-0.261) and one.noise == pytest.approx(noise)
    assert not one.paper_is_noise and one.ours > 0.3
    decided = replace(one, half=0.25)  # as with dev rows as many as the course's
    assert decided.verdict == "ours says the opposite, of runs this short"


def test_the_papers_overall_noise_is_that_of_its_tasks(rows: DevRows) -> None:
    found = [*seeds_of("a", 0.5, 1), *seeds_of("b", 0.9, 1)]
    paper = {"sst": 0.5, "para": 0.8, "sts": 0.6, "overall": 0.7}
    whole, other = row("a", **paper), row("b", **paper)
    compared = compare(study_of(whole, other), TASKS, found, rows).comparisons
    (one,) = [each for each in compared if each.goal == "overall"]
    parts = 0.5 * 0.5 / 1101, 0.8 * 0.2 / 40429, (1 - 0.6**2) ** 2 / 863 / 4  # half its scale
    assert one.noise == pytest.approx(1.96 * math.sqrt(2 * sum(parts)) / 3)
    alone = study_of(row("a", overall=0.7), row("b", overall=0.7))
    (unsaid,) = compare(alone, TASKS, found, rows).comparisons
    assert unsaid.noise is not None and unsaid.noise > one.noise


def test_with_one_seed_the_intervals_are_those_of_the_dev_rows(rows: DevRows) -> None:
    found = [*seeds_of("a", 0.5, 1), *seeds_of("b", 0.5, 1)]
    table = compare(study_of(row("a", para=0.5), row("b", para=0.5)), TASKS, found, rows)
    cell = table.cells["a", "para"]
    expected = 1.96 * math.sqrt(cell.value * (1 - cell.value) / ROWS)
    assert cell.half == pytest.approx(expected, rel=0.15)


def test_overall_is_that_of_the_course(rows: DevRows) -> None:
    found = seeds_of("a", 0.7, 1)
    cells = compare(study_of(row("a", overall=0.7)), TASKS, found, rows).cells
    of = {
        task.name: measure(
            task.metric, LABELS[task.name], found[0].answers[task.name].values, task.classes
        )
        for task in TASKS
    }
    expected = (of["sst"] + of["para"] + (1 + of["sts"]) / 2) / 3
    assert cells["a", "overall"].value == pytest.approx(expected)


def test_a_row_of_single_tasks_has_their_scores_and_no_overall_if_one_lacks(rows: DevRows) -> None:
    whole, part = seeds_of("a", 0.7, 1), seeds_of("b", 0.7, 1)
    del part[0].answers["sst"]
    study = study_of(row("a", para=0.7, overall=0.7), row("b", para=0.7))
    cells = compare(study, TASKS, [*whole, *part], rows).cells
    assert set(cells) == {("a", "para"), ("a", "overall"), ("b", "para")}


@pytest.mark.parametrize(
    ("paper", "ours", "said"),
    [
        (0.001, 0.1, "agrees"),
        (0.1, 0.01, "a tie"),
        (0.1, 0.1, "agrees"),
        (-0.1, 0.1, "ours says the opposite"),
        (-0.001, 0.1, "ours says the opposite"),
        (0.0, 0.1, "a tie in the paper only"),
        (None, 0.1, ""),
    ],
)
def test_what_is_said_of_a_difference(paper: float | None, ours: float, said: str) -> None:
    one = RowComparison("b", "sst", ours, 0.02, paper, 0.02)
    assert one.verdict == said and one.paper_is_noise == (paper in (0.001, -0.001, 0.0))
    short = f"{said}, of runs this short" if said else ""
    assert replace(one, short=True).verdict == short


def test_the_table_has_the_papers_figures_beside_ours(rows: DevRows) -> None:
    found = [*seeds_of("a", 0.5, 2), *seeds_of("b", 0.9, 2)]
    study = study_of(row("a", sst=0.5), row("b", sst=0.6), row("c", sst=0.532))
    text = study_text(study, compare(study, TASKS, found, rows), found, ["a note"])
    lines = text.splitlines()
    assert lines[3].split() == ["row", "sst", "paper", "sst", "ours"]
    assert lines[4].startswith("a") and ".500" in lines[4] and "±" in lines[4]
    assert lines[6].split() == ["c", ".532", "-"]
    header, against = next(
        pair for pair in zip(lines, lines[1:], strict=False) if "its noise" in pair[0]
    )
    assert header.split() == ["row,", "score", "ours", "paper", "its", "noise", "so"]
    assert against.startswith("b, sst ") and "+.100" in against
    assert against.endswith("agrees, of runs this short")
    assert "of its seeds short runs tell nothing" in text
    assert "against 'a':" in text and "5 examples a training; 100 at scale 1" in text
    assert lines[-1] == "- a note" and "2 seeds" in text


def test_what_else_the_paper_reports_is_beside_ours(rows: DevRows) -> None:
    found = seeds_of("a", 0.5, 2) + seeds_of("b", 0.9, 2)
    one, two = row("a", sst=0.5), row("b", sst=0.6)
    study = study_of(replace(one, paper_also={"best epoch": "8"}), replace(two, examples=200))
    for each in found[2:]:
        each.lengths.update(sst=10)
    text = study_text(study, compare(study, TASKS, found, rows), found, [])
    header, first, second = next(
        lines for lines in windows(text.splitlines()) if "best at" in lines[0]
    )
    assert header.split("  ")[-1].strip() == "paper also"
    assert first.endswith("best epoch 8") and " sst .500, para .700" in first
    assert " 5 " in first and " 10 " in second
    assert "rows as long as the paper's, times 0.05" in text
    assert "sst train .900" in first and "0:02" in first


def windows(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    return zip(lines, lines[1:], lines[2:], strict=False)


def test_the_papers_own_dev_rows_are_what_its_noise_is_of(rows: DevRows) -> None:
    found = [*seeds_of("a", 0.5, 1), *seeds_of("b", 0.5, 1)]
    study = study_of(row("a", para=0.5), row("b", para=0.5))
    whole = compare(study, TASKS, found, rows).comparisons[0].noise
    half = replace(study, dev_rows={**study.dev_rows, "para": 20212})
    ours = compare(half, TASKS, found, rows).comparisons[0].noise
    assert whole is not None and ours == pytest.approx(whole * math.sqrt(40429 / 20212))
    unsaid = compare(replace(study, dev_rows={}), TASKS, found, rows).comparisons[0].noise
    assert unsaid == pytest.approx(whole * math.sqrt(40429 / ROWS))  # as many as ours


def test_rows_of_fewer_seeds_than_others_are_counted(rows: DevRows) -> None:
    found = [*seeds_of("a", 0.5, 3), *seeds_of("b", 0.9, 1)]
    study = study_of(row("a", sst=0.5), row("b", sst=0.6))
    text = study_text(study, compare(study, TASKS, found, rows), found, [])
    assert "- 1 to 3 seeds; dev rows" in text and "with one seed the noise" not in text


# --- ensembles ----------------------------------------------------------------------------------


def only(tasks: TaskSet, *names: str) -> TaskSet:
    return TaskSet(tasks.name, "", tuple(tasks[name] for name in names), tasks.origin)


def members(*rights: float) -> list[StudyMember]:
    return [StudyMember(f"m{n}", answers(right, n)) for n, right in enumerate(rights)]


def made(how: Ensemble, given: list[StudyMember], **more: Any) -> Any:
    return ensemble_of(how, given, more.get("tasks", TASKS), LABELS)


def test_one_model_by_overall_is_the_best_model() -> None:
    given = members(0.3, 0.9, 0.5)
    found = made(Ensemble(models=1), given)
    assert found.answers == dict(given[1].answers)
    assert found.weights == {name: {"m1": 1.0} for name in TASKS.names}


def test_one_model_for_each_task_is_the_best_of_that_task() -> None:
    given = members(0.3, 0.9, 0.5)
    given[0] = StudyMember("sst alone", {"sst": answers(1.0, 7)["sst"]})
    found = made(Ensemble(models=1, by="task"), given).answers
    assert found["sst"] is given[0].answers["sst"] and found["para"] is given[1].answers["para"]
    found = made(Ensemble(models=1), given).answers  # it has no overall score
    assert found["sst"] is given[1].answers["sst"]


def test_five_models_vote_by_mode_and_median() -> None:
    given = members(0.4, 0.5, 0.6, 0.7, 0.8, 0.1)
    five = made(Ensemble(rule="vote", models=5), given)
    found = five.answers
    assert [sorted(of) for of in five.weights.values()] == [[f"m{n}" for n in range(5)]] * 3
    values = np.stack([m.answers["sts"].values for m in given[:5]])
    np.testing.assert_allclose(found["sts"].values, np.median(values, axis=0))
    votes = np.stack([m.answers["para"].values for m in given[:5]]).sum(0)
    np.testing.assert_array_equal(found["para"].values, (votes > 2).astype(float))


def test_a_greedy_ensemble_keeps_who_helps_and_no_more_than_asked_for() -> None:
    given = members(0.9, 0.8, 0.7, 0.6, 0.5, 0.0)
    for models in (2, 5):
        how = Ensemble(models=models, by="task", greedy=True, prior=True)
        greedy = made(how, given)
        found = greedy.answers
        assert all(1 <= len(of) <= models for of in greedy.weights.values())
        for task in TASKS:
            best = max(
                measure(task.metric, LABELS[task.name], m.answers[task.name].values, task.classes)
                for m in given
            )
            own = measure(task.metric, LABELS[task.name], found[task.name].values, task.classes)
            assert own >= best


def unsure(right: float, seed: int) -> dict[str, Predictions]:
    """The same, surest where it is right, as models are: else a mean is but a vote."""
    found, rng = answers(right, seed), np.random.default_rng(seed)
    for name in ("sst", "para"):
        values = found[name].values.astype(int)
        sure = np.where(
            values == LABELS[name], rng.uniform(0.6, 0.9, ROWS), 0.05 + 1 / TASKS[name].classes
        )
        rest = (1 - sure) / (TASKS[name].classes - 1)
        likely = np.repeat(rest[:, None], TASKS[name].classes, 1)
        likely[np.arange(ROWS), values] = sure
        found[name] = Predictions(values.astype(float), likely)
    return found


def test_a_greedy_vote_has_the_members_and_weights_of_the_greedy_mean() -> None:
    """By votes, the heavier of the first two would have all of them, and nobody else join."""
    given = [StudyMember(f"m{n}", unsure(right, n)) for n, right in enumerate([0.5] * 7)]
    how = Ensemble(rule="vote", models=5, by="task", greedy=True, prior=True)
    voted, averaged = made(how, given), made(replace(how, rule="mean"), given)
    assert voted.weights == averaged.weights
    for name, weights in voted.weights.items():
        assert len(weights) > 2
        heaviest = next(m for m in given if m.name == max(weights, key=weights.__getitem__))
        assert (voted.answers[name].values != heaviest.answers[name].values).any()
        assert (voted.answers[name].values != averaged.answers[name].values).any()


def test_prior_weights_count_the_better_more() -> None:
    given = members(0.9, 0.2)
    how = Ensemble(models=2, by="task", prior=True)
    both = made(how, given, tasks=only(TASKS, "sts"))
    found = both.answers
    assert both.weights == {"sts": {"m0": 2.0, "m1": 1.0}}
    first, second = (m.answers["sts"].values for m in given)
    np.testing.assert_allclose(found["sts"].values, (2 * first + second) / 3)


def test_nobody_who_answers_makes_no_ensemble() -> None:
    assert made(Ensemble(models=1), [StudyMember("a", {"sst": answers(1, 1)["sst"]})]) is None
