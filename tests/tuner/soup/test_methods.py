from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array, Score
from model.tasks.task_set import TaskSet, load_task_set
from tuner.scoring.crossfit import HeldOut
from tuner.scoring.ensemble import blend
from tuner.soup.combinations import (
    AVERAGES,
    MEAN,
    STOCK,
    VOTE,
    WEIGHTS,
    Combination,
    DevScorer,
    combine,
    single,
)
from tuner.soup.learned import MOST, coefficients
from tuner.soup.methods import BEST, GREEDY, METHODS, PICKS, PREDICTIONS, greedy_steps, prior
from tuner.soup.scores import Halves, MethodResult, models_of, recommend, score_methods

TASKS = load_task_set("sample")
RIGHT = 0.6  # how often anything is right, whatever it is made of


class NoiseEvaluator:
    """Whatever it answers is right at random: no checkpoint and no average is truly better."""

    def __init__(self, seed: int, count: int = 5, rows: int = 200, tasks: TaskSet = TASKS) -> None:
        self.tasks, self.seed = tasks, seed
        self.group: Sequence[int] = range(count)
        self.members: Sequence[int] = range(count)
        self.singles: Sequence[int] = range(count)
        self.at_once, self.distilled = 1, 0
        self.trials: Sequence[str] = [f"t{number // 2}" for number in range(count)]
        self.wanted: set[tuple[str, Combination]] = set()
        self.predictions: dict[tuple[str, Combination], Predictions] = {}
        self.labels: Mapping[str, Array] = {
            task.name: np.linspace(task.low, task.high, rows)
            if task.kind == "regression"
            else np.arange(rows) % task.classes * 1.0
            for task in tasks
        }

    def answer(self, combinations: Mapping[str, Combination]) -> dict[str, Predictions]:
        return {name: self._answered(name, of) for name, of in combinations.items()}

    def _answered(self, name: str, of: Combination) -> Predictions:
        if of.rule not in AVERAGES:
            return blend(of.rule, [self._answered(name, single(m)) for m in of.members], of.weights)
        if of.single is None:
            self.wanted.add((name, of))
        if (name, of) not in self.predictions:
            key = zlib.crc32(f"{name} {of}".encode())
            self.predictions[name, of] = self._noise(name, np.random.default_rng([self.seed, key]))
        return self.predictions[name, of]

    def _noise(self, name: str, rng: np.random.Generator) -> Predictions:
        labels, task = self.labels[name], self.tasks[name]
        if task.kind == "regression":
            return Predictions(labels + rng.normal(size=len(labels)), None)
        values = np.where(rng.random(len(labels)) < RIGHT, labels, (labels + 1) % task.classes)
        probabilities = np.full((len(labels), task.classes), 0.1)
        probabilities[np.arange(len(labels)), values.astype(int)] = 0.9
        return Predictions(values, probabilities)

    def able(self, task: str) -> Sequence[int]:
        return self.members

    def cost(self, wanted: set[tuple[str, Combination]]) -> float:
        return len(wanted) / len(self.tasks)


def teach(
    evaluator: NoiseEvaluator, name: str, rng: np.random.Generator, good: Sequence[float]
) -> None:
    """Members that are the surer the righter they are: each label's logit is so much higher."""
    labels, classes = evaluator.labels[name].astype(int), evaluator.tasks[name].classes
    for member, lead in enumerate(good):
        logits = rng.normal(size=(len(labels), classes))
        logits[np.arange(len(labels)), labels] += lead
        likely = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        evaluator.predictions[name, single(member)] = Predictions(likely.argmax(-1) * 1.0, likely)


ONE_TASK = replace(TASKS, tasks=TASKS.tasks[:1])  # so that the truth is known: RIGHT


@pytest.mark.parametrize("name", [BEST, GREEDY, "weighted soup", "task soups"])
def test_of_pure_noise_the_plain_score_flatters_and_the_cross_fitted_does_not(name: str) -> None:
    plain, cross_fitted = [], []
    for seed in range(200):
        evaluator = NoiseEvaluator(seed, tasks=ONE_TASK)
        scorer = DevScorer(evaluator, "overall")
        plain.append(scorer.score(METHODS[name].choose(scorer)))
        cross_fitted.append(
            Halves(evaluator, "overall", splits=1).cross_fit(name, 1, resamples=2).value
        )
    error = np.std(cross_fitted) / len(cross_fitted) ** 0.5
    assert abs(np.mean(cross_fitted) - RIGHT) < 3 * error
    assert np.mean(plain) - RIGHT > 8 * error


@pytest.mark.parametrize("name", METHODS)
def test_every_method_answers_every_task_and_can_be_cross_fitted(name: str) -> None:
    evaluator = NoiseEvaluator(0, rows=40)
    combinations = METHODS[name].choose(DevScorer(evaluator, "overall"))
    assert set(combinations) == set(TASKS.names)
    for of in combinations.values():
        assert of.members == tuple(sorted(set(of.members)))
        assert len(of.weights) == len(of.members) and min(of.weights) > 0
    names = list(dict.fromkeys([BEST, name]))
    found = {r.name: r for r in score_methods(evaluator, names, "overall", halvings=1)}
    best, result = found[BEST], found[name]
    assert 0 < result.held_out.value < 1 and np.isfinite(result.gap)
    assert result.score.low <= result.score.value <= result.score.high
    assert (result.difference is None) == (name == BEST)
    assert best.models == 1


def test_side_by_side_the_methods_come_to_the_same() -> None:
    names = [name for name, method in METHODS.items() if method.kind in ("single", WEIGHTS)]
    alone, many = NoiseEvaluator(5, rows=60), NoiseEvaluator(5, rows=60)
    many.at_once = 4
    one, other = (score_methods(k, names, "overall", halvings=2) for k in (alone, many))
    assert [r.name for r in one] == [r.name for r in other]
    for a, b in zip(one, other, strict=True):
        assert (a.combinations, a.score, a.evaluations) == (b.combinations, b.score, b.evaluations)
        assert a.held_out.value == b.held_out.value


@pytest.mark.parametrize("name", [GREEDY, "weighted soup", "learned soup", "learned heads"])
@pytest.mark.parametrize("seed", range(5))
def test_a_greedy_soup_is_never_worse_than_the_best_where_it_was_chosen(
    name: str, seed: int
) -> None:
    evaluator = NoiseEvaluator(seed, rows=60)
    scorer = DevScorer(evaluator, "overall")
    assert scorer.score(METHODS[name].choose(scorer)) >= scorer.score(METHODS[BEST].choose(scorer))


@pytest.mark.parametrize(
    "name",
    [
        *("task soups", "greedy ensemble", "best per task", "picked ensemble"),
        "prior ensemble",
    ],
)
def test_what_is_chosen_for_a_task_is_never_worse_at_it(name: str) -> None:
    evaluator = NoiseEvaluator(3, rows=60)
    scorer = DevScorer(evaluator, "overall")
    combinations, best = METHODS[name].choose(scorer), METHODS[BEST].choose(scorer)
    assert all(
        scorer.task(task, combinations[task]) >= scorer.task(task, best[task])
        for task in combinations
    )


def test_the_prior_vote_is_that_of_the_prior_ensembles_members() -> None:
    evaluator = NoiseEvaluator(3, tasks=ONE_TASK)
    (name,) = ONE_TASK.names
    teach(evaluator, name, np.random.default_rng(0), [1.0] * 5)
    scorer = DevScorer(evaluator, "overall")
    averaged, voted = (METHODS[f"prior {n}"].choose(scorer)[name] for n in ("ensemble", "vote"))
    assert voted == replace(averaged, rule=VOTE) and averaged.rule == MEAN
    assert len(voted.members) > 2  # or it would be the vote of the heaviest


def test_learned_coefficients_are_the_best_of_all_averages() -> None:
    """On the rows that teach, no other coefficients have a lower loss; the useless have none."""
    evaluator = NoiseEvaluator(4, count=3, tasks=ONE_TASK)
    (name,) = ONE_TASK.names
    labels = evaluator.labels[name].astype(int)
    teach(evaluator, name, np.random.default_rng(0), (1.0, 1.0, -1.0))
    half = np.arange(len(labels)) % 2 * 1.0
    scorer = DevScorer(evaluator, "overall", {name: half})
    found = coefficients(scorer, [0, 1, 2], [name])
    assert sum(found.values()) == pytest.approx(1, abs=2e-3) and set(found) == {0, 1}

    def loss(shares: Mapping[int, float]) -> float:
        logits = sum(
            share * np.log(evaluator.predictions[name, single(m)].probabilities)
            for m, share in shares.items()
        )
        rows = logits[half > 0] - np.log(np.exp(logits[half > 0]).sum(-1, keepdims=True))
        return -float(rows[np.arange(len(rows)), labels[half > 0]].mean())

    for share in np.linspace(0, 1, 21):
        assert loss(found) <= loss({0: share, 1: 1 - share}) + 1e-4


def test_an_ensemble_is_selected_with_replacement() -> None:
    """By hand, pick after pick, with the best of all prefixes."""
    evaluator = NoiseEvaluator(0, count=4, rows=80, tasks=replace(TASKS, tasks=TASKS.tasks[2:]))
    (name,) = evaluator.tasks.names
    scorer = DevScorer(evaluator, "overall")
    order = scorer.order(range(4), name)
    bag, prefixes = order[:1], [(scorer.task(name, single(order[0])), order[:1])]
    for _ in range(PICKS - 1):
        tries = [[*bag, member] for member in order]
        counts = [{m: each.count(m) for m in each} for each in tries]
        values = [scorer.task(name, combine(MEAN, list(c), list(c.values()))) for c in counts]
        bag = tries[int(np.argmax(values))]
        prefixes.append((max(values), bag))
    best = max(prefixes, key=lambda pair: pair[0])[1]  # the first of equals
    expected = combine(MEAN, sorted(set(best)), [best.count(m) for m in sorted(set(best))])
    assert METHODS["picked ensemble"].choose(scorer)[name] == expected
    assert max(expected.weights) > 1  # else it shows nothing about replacement


def test_a_greedy_soup_takes_no_more_evaluations_than_it_has_ingredients() -> None:
    evaluator = NoiseEvaluator(1, count=8)
    steps = greedy_steps(DevScorer(evaluator, "overall"))
    assert len(steps) == 8 and evaluator.cost(evaluator.wanted) <= 7
    assert [step.candidate for step in steps] == DevScorer(evaluator, "overall").order(
        evaluator.group
    )


@pytest.mark.parametrize(
    ("name", "halvings", "in_all"),
    [("uniform soup", 3, 1), ("model stock", 3, 1), ("learned soup", 1, 3), ("learned soup", 3, 7)],
)
def test_an_average_that_is_not_sought_takes_one_evaluation_and_a_learned_one_another_on_each_half(
    name: str, halvings: int, in_all: int
) -> None:
    evaluator = NoiseEvaluator(4, count=3)  # where what is learned is better than the best alone
    evaluator.answer(METHODS[name].choose(DevScorer(evaluator, "overall")))
    assert evaluator.cost(evaluator.wanted) == 1
    found = score_methods(evaluator, [BEST, name], "overall", halvings=halvings)
    assert {result.name: result.evaluations for result in found}[name] == in_all


def documented(count: int) -> dict[str, int]:
    """The most evaluations of each method that averages, from the documentation's table."""
    page = Path(__file__).parents[3].joinpath("docs", "soup.md").read_text(encoding="utf-8")
    table = page.partition("| methods | evaluations, at most |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    values = {"K - 1": count - 1, "K": count, "2": 2, "1": 1}
    return {name.strip(): values[most.strip()] for names, most in rows for name in names.split(",")}


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.kind == "weights"])
def test_a_method_takes_no_more_evaluations_than_documented(name: str, count: int) -> None:
    most, method, reached = documented(count), METHODS[name], 0.0
    assert set(most) == {n for n, m in METHODS.items() if m.kind == "weights"}
    for seed in range(4):
        evaluator = NoiseEvaluator(seed, count=count, rows=60)
        evaluator.answer(method.choose(DevScorer(evaluator, "overall")))
        taken = evaluator.cost(evaluator.wanted)
        assert taken <= most[name] + 1e-9
        reached = max(reached, taken)
        result = score_methods(evaluator, [BEST, name], "overall", halvings=2)
        halves = 0 if method.fixed else 2 * 2
        assert {r.name: r.evaluations for r in result}[name] <= (1 + halves) * most[name] + 1e-9
    assert reached == pytest.approx(most[name])  # else the page says too much


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.kind != "weights"])
def test_what_combines_answers_takes_no_evaluations(name: str) -> None:
    evaluator = NoiseEvaluator(0, rows=60)
    evaluator.answer(METHODS[name].choose(DevScorer(evaluator, "overall")))
    assert not evaluator.wanted


def test_of_many_ingredients_the_first_sixteen_have_learned_coefficients() -> None:
    class OneKnows(NoiseEvaluator):
        """The last of them is always right, and sure of it."""

        def _answered(self, name: str, of: Combination) -> Predictions:
            if of.single != MOST:
                return super()._answered(name, of)
            labels, classes = self.labels[name], self.tasks[name].classes
            sure = np.eye(classes)[labels.astype(int)] if classes else None
            return Predictions(labels, sure)

    scorer = DevScorer(OneKnows(0, count=MOST + 1, rows=60), "overall")
    assert MOST == 16
    found = coefficients(scorer, range(MOST + 1), TASKS.names)
    assert found == coefficients(scorer, range(MOST), TASKS.names) and MOST not in found
    assert coefficients(scorer, [MOST, *range(MOST)], TASKS.names)[MOST] > 0.9


def test_a_goal_may_be_a_task() -> None:
    evaluator = NoiseEvaluator(2)
    task = TASKS.names[1]
    chosen = METHODS[BEST].choose(DevScorer(evaluator, task))
    values = [DevScorer(evaluator, task).task(task, single(member)) for member in evaluator.members]
    assert chosen[task] == single(int(np.argmax(values)))


def test_the_best_single_is_one_of_those_that_may_be_it() -> None:
    evaluator = NoiseEvaluator(2)
    scorer = DevScorer(evaluator, "overall")
    best, second = scorer.order(evaluator.members)[:2]
    assert METHODS[BEST].choose(scorer)[TASKS.names[0]] == single(best)
    evaluator.singles = [member for member in evaluator.members if member != best]
    assert METHODS[BEST].choose(scorer)[TASKS.names[0]] == single(second)
    assert greedy_steps(scorer)[0].candidate == best  # as an ingredient it comes first all the same


def test_the_prior_counts_down_from_the_best() -> None:
    assert prior([4, 2, 7]) == {4: 3.0, 2: 2.0, 7: 1.0}


def test_equal_combinations_are_equal_whatever_the_order_they_were_named_in() -> None:
    assert combine(WEIGHTS, [3, 1], [2, 1]) == combine(WEIGHTS, [1, 3], [1, 2])
    assert (
        combine(MEAN, [2])
        == combine(VOTE, [2])
        == combine(WEIGHTS, [2], [7], head=single(2))
        == single(2)
    )
    assert combine(WEIGHTS, [2], head=single(1)).single is None
    assert combine(WEIGHTS, [1, 2], head=combine(WEIGHTS, [2, 1])) == combine(WEIGHTS, [1, 2])
    assert combine(STOCK, [1, 2]).must_run and combine(STOCK, [1, 2]) != combine(WEIGHTS, [1, 2])


def test_models_that_have_to_run_are_counted_once() -> None:
    trunk = {
        "a": combine(WEIGHTS, [0, 1], head=single(0)),
        "b": combine(WEIGHTS, [0, 1], head=single(1)),
    }
    assert len(models_of(trunk)) == 1
    assert len(models_of({"a": combine(MEAN, [0, 1, 2]), "b": combine(VOTE, [1, 4])})) == 4
    assert len(models_of({"a": single(1), "b": single(1), "c": single(2)})) == 2
    assert len(models_of({"a": combine(WEIGHTS, [0, 1]), "b": single(1)})) == 2


def test_of_those_that_cannot_be_told_apart_the_one_with_fewest_models_is_recommended() -> None:
    names = [BEST, GREEDY, "task soups", "best per task"]
    results = score_methods(NoiseEvaluator(0), names, "overall", halvings=1)
    taken, sentence = recommend(results)
    assert taken.models == 1 and f"take the {taken.name} (1 model)" in sentence
    assert max(result.models for result in results) > 1


def test_a_clear_gain_is_recommended_whatever_it_costs() -> None:
    class Wise(NoiseEvaluator):
        """Averages of predictions are right by far more often than anything alone."""

        def _answered(self, name: str, of: Combination) -> Predictions:
            if of.rule == MEAN:
                labels = self.labels[name]
                classes = self.tasks[name].classes
                probabilities = np.eye(classes)[labels.astype(int)] if classes else None
                return Predictions(labels, probabilities)
            return super()._answered(name, of)

    results = score_methods(Wise(0), [BEST, GREEDY, "mean"], "overall", halvings=1)
    assert [r.name for r in results][0] == "mean"
    taken, sentence = recommend(results)
    assert taken.name == "mean" and "5 models" in sentence and "a tie" not in sentence


# --- scores over other numbers of halvings ------------------------------------------------------


def held_out(halvings: Sequence[float], seed: int = 0) -> HeldOut:
    """Of so many halvings, with the noise of the rows that all share."""
    shared = np.random.default_rng(0).normal(0, 0.01, (20, 400))
    own = np.random.default_rng(seed).normal(0, 0.001, (20, 400))
    return HeldOut(float(np.mean(halvings)), np.array(halvings), (shared + own)[: len(halvings)])


def result(name: str, held: HeldOut, count: int = 1) -> MethodResult:
    combinations = {
        "a": combine(MEAN, range(count)) if METHODS[name].kind == PREDICTIONS else single(0)
    }
    score = Score(held.value, 0, 1)
    return MethodResult(name, combinations, score, score, {}, None, held, len(held.halvings), 0)


SOUP = {"a": combine(WEIGHTS, [0, 1])}
EASY_FIRST = [0.75] + [0.70] * 19  # the first halving is easy, for everyone


def test_a_score_over_one_halving_is_set_beside_the_best_over_twenty() -> None:
    best = held_out(EASY_FIRST)
    assert held_out([0.75], 1).beside(best).value == pytest.approx(best.value)
    assert held_out([0.71], 1).beside(best).value == pytest.approx(best.value - 0.04)
    other = held_out([value + 0.01 for value in EASY_FIRST], 2)
    assert other.beside(best).value == pytest.approx(other.value)  # of as many it is its own


def test_what_equals_the_best_on_its_halvings_ranks_with_it() -> None:
    class Alike(NoiseEvaluator):
        """No average is ever better, so the greedy soup is the best model alone."""

        def _answered(self, name: str, of: Combination) -> Predictions:
            predictions = super()._answered(name, of)
            if not of.must_run:
                return predictions
            labels = self.labels[name]
            return Predictions(labels[::-1].copy(), predictions.probabilities)

    found = score_methods(Alike(0), [BEST, GREEDY, "uniform soup"], "overall", halvings=1)
    by_name = {each.name: each for each in found}
    best, greedy = by_name[BEST].held_out, by_name[GREEDY].held_out
    assert greedy == best  # one model has one score
    assert by_name["uniform soup"].halvings == 20  # it chooses nothing, so they are free
    assert [each.held_out.value for each in found] == sorted(
        (each.held_out.value for each in found), reverse=True
    )


def test_what_is_clearly_worse_is_not_recommended_for_an_easy_halving() -> None:
    best = held_out(EASY_FIRST)
    worse = result(GREEDY, held_out([0.71], 1).beside(best))
    taken, sentence = recommend([worse, result(BEST, best)])  # whatever their order
    assert taken.name == BEST and sentence.endswith("No other method scores higher")


def test_the_best_single_has_the_score_that_the_search_gives_it() -> None:
    names = [BEST, "mean", "best per task"]
    known = held_out([0.5] * 20)
    alone = {r.name: r for r in score_methods(NoiseEvaluator(0), names, "overall", halvings=1)}
    found = {
        r.name: r
        for r in score_methods(NoiseEvaluator(0), names, "overall", halvings=1, best=known)
    }
    assert found[BEST].held_out is known
    for name in names:  # as far from the best single as without it
        apart = alone[name].held_out.value - alone[BEST].held_out.value
        assert found[name].held_out.value == pytest.approx(0.5 + apart)


def test_the_sentence_says_what_to_take_why_and_how_sure_that_is() -> None:
    best = result(BEST, held_out([0.655] * 20))
    best = replace(best, score=Score(0.671, 0.6, 0.7))
    soup = replace(result("uniform soup", held_out([0.66] * 20, 1)), combinations=SOUP)
    soup = replace(soup, score=Score(0.666, 0.6, 0.7))
    many = result("mean", held_out([0.661] * 20, 2), count=3)
    taken, sentence = recommend([many, soup, best])
    assert taken is soup
    assert re.fullmatch(
        r"take the uniform soup \(1 model\): \.660 \[.*?\] on rows that did not choose it "
        r"\(cross-fitted\)\. The highest, the mean \(3 models\), is ahead by \+\.001 \[.*?\], "
        r"which may be chance\. The uniform soup leads the best single \(1 model, \.655\) by "
        r"\+\.005 \[.*?\], not counting that 3 methods were tried",
        sentence,
    )
    _, sentence = recommend([soup, best])
    assert (
        "No other method scores higher. The uniform soup leads the best single (1 mod" in sentence
    )
    taken, sentence = recommend([replace(soup, held_out=held_out([0.657] * 20, 3)), best])
    assert taken.name == soup.name
    assert "(1 model, .655) may be as good: the difference is +.002 [" in sentence
    taken, sentence = recommend([replace(soup, held_out=held_out([0.6551] * 20, 3)), best])
    assert taken is best  # a lead of less than a standard error may be luck
    assert "the uniform soup (1 model), is ahead by .000 [" in sentence


def test_where_the_best_single_is_clearly_behind_a_soup_that_may_lead_it_is_taken() -> None:
    noise = np.tile(np.random.default_rng(1).normal(0, 0.01, 400), (20, 1))
    shaky = held_out([0.692] * 20, 1)
    shaky = replace(shaky, off=shaky.off + noise)
    soup = replace(result("uniform soup", shaky), combinations=SOUP)
    best, many = result(BEST, held_out([0.69] * 20)), result("mean", held_out([0.7] * 20, 2), 3)
    assert (soup.held_out - best.held_out).value < (soup.held_out - best.held_out).standard_error
    assert (many.held_out - best.held_out).low > 0 > (many.held_out - soup.held_out).low
    taken, sentence = recommend([many, soup, best])
    assert taken is soup and "the mean (3 models), is ahead by" in sentence
