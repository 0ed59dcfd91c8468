"""Soups of a real, small run: what comes out, what is left out, and how it goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import astuple, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from model.common.errors import InputError
from model.common.files import read_yaml, to_yaml
from model.evaluation.model_folder import load_model
from model.evaluation.scores import Score
from model.training.checkpoint import MANIFEST, write_manifest
from tests.forks import Fork
from tests.tuner.search_runs import aim, state_of
from tests.tuner.soup_runs import POINTS, ROWS, made_up_soup, make_run, mean_of, write_toy
from tuner.runs.folder import LOCK
from tuner.runs.lock import Deposed, RunLock
from tuner.runs.request import ExecutionOptions
from tuner.scoring.crossfit import Difference
from tuner.search import finish
from tuner.search.terminal import SearchConsole
from tuner.soup import evaluator, runner
from tuner.soup.__main__ import main
from tuner.soup.combinations import MEAN, WEIGHTS, combine, single
from tuner.soup.folder import heads_of, weights_of
from tuner.soup.make import make_soup
from tuner.soup.methods import BEST, DISTILLED, GREEDY, METHODS
from tuner.soup.record import MethodRecord, SoupRecord, read_soup
from tuner.soup.scores import score_methods
from tuner.soup.text import model_card, soup_text

OTHER = {"head.hidden": 8, "optim.learning_rate": 1e-7}  # fits nobody, and has learned nothing
KEYS = {  # as docs/soup.md has them, and the format
    *("format", "run", "tasks", "task_set", "goal", "data", "time", "seconds", "candidates"),
    *("ingredients", "skipped", "groups", "steps", "methods", "recommended", "recommendation"),
    *("cautions", "evaluations", "ran"),
}
NAMES = ("bad", "fair", "good")  # of mood's classes
MADE = [name for name in METHODS if name != DISTILLED]  # of a run that distilled nothing
KINDS = ("weights", "predictions")
FILES = ("model.safetensors", "heads.safetensors")


def quiet(line: str) -> None:
    pass


def soup_of(folder: Path, **options: Any) -> SoupRecord:
    return make_soup(folder, log=quiet, warn=pytest.fail, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four trials that fit together and one that does not."""
    root = tmp_path_factory.mktemp("soup")
    toy = write_toy(root / "data")
    return make_run(root / "first", [*POINTS, OTHER], tasks=str(toy), data=toy.parent)


@pytest.fixture(scope="module")
def soup(run: Path) -> SoupRecord:
    return soup_of(run, folders=True)


@pytest.fixture
def copy(run: Path, soup: SoupRecord, tmp_path: Path) -> Path:
    """The same run without its soup."""
    leave = shutil.ignore_patterns("soup", "soups")
    return Path(shutil.copytree(run, tmp_path / "copy", ignore=leave))


def method(soup: SoupRecord, name: str) -> MethodRecord:
    found = soup.method(name)
    assert found is not None
    return found


def model_of(run: Path, name: str) -> Path:
    trial, checkpoint = name.split("/")
    return run / "trials" / trial / "checkpoints" / checkpoint / "model"


# --- what comes out -----------------------------------------------------------------------------


def test_every_method_is_scored_and_the_table_is_sorted(run: Path, soup: SoupRecord) -> None:
    assert {each.name for each in soup.methods} == set(MADE)
    cross_fitted = [each.cross_fitted.value for each in soup.methods]
    assert cross_fitted == sorted(cross_fitted, reverse=True)
    for each in soup.methods:
        assert each.score.low <= each.score.value <= each.score.high
        gap = each.score.value - each.cross_fitted.value
        assert each.cross_fitted.gap == pytest.approx(gap)
        assert (each.difference is None) == (each.name == BEST)
        assert (run / each.folder).is_dir() and (run / each.predictions).is_file()
    assert read_soup(run) == soup
    assert json.loads((run / "soup/soup.json").read_text()).keys() == KEYS
    text = soup_text(soup, run, every=True)
    assert all(f" {name}  " in text for name in MADE) and soup.recommendation in " ".join(
        text.split()
    )
    assert max(map(len, text.splitlines())) < 200


def test_the_table_has_the_methods_that_matter(run: Path, soup: SoupRecord) -> None:
    text = soup_text(soup, run)
    start = text.index("\n  method ")
    shown = {name for name in MADE if f" {name}  " in text[start:]}
    first = {kind: [m.name for m in soup.methods if m.kind == kind][0] for kind in KINDS}
    assert shown == {BEST, GREEDY, soup.recommended, *first.values()}
    assert f"{len(MADE) - len(shown)} more with " in text


def test_any_number_of_tasks_fits_a_terminal_under_full_names(run: Path, soup: SoupRecord) -> None:
    names = [f"a-task-with-a-long-name-{number}" for number in range(9)]
    methods = [
        replace(each, tasks=dict.fromkeys(names, next(iter(each.tasks.values()))))
        for each in soup.methods
    ]
    methods[0] = replace(methods[0], difference=Difference(-0.1, -0.2, -0.1), evaluations=12.33)
    text = soup_text(replace(soup, methods=methods), run, every=True)
    table = text[text.index("methods, by") : text.index("\n\n", text.index("methods, by"))]
    assert max(map(len, table.splitlines())) <= 100
    assert all(table.count(name) == 1 for name in names)


def test_one_model_has_one_interval(run: Path, soup: SoupRecord) -> None:
    state = state_of(run)
    best = state.best_trial()
    assert best is not None and (entry := best.chosen(state.objectives)) is not None
    found = method(soup, BEST)
    low, high = entry["interval"]
    assert found.score == found.overall
    assert astuple(found.score) == pytest.approx((entry["score"], low, high))
    for task, of in entry["tasks"].items():
        low, high = of["interval"]
        assert found.tasks[task].low == pytest.approx(low)
        assert found.tasks[task].high == pytest.approx(high)


def test_the_best_has_one_cross_fitted_score_however_few_are_compared(
    copy: Path, soup: SoupRecord
) -> None:
    from tuner.report.run import load_run

    few = soup_of(copy, keep=1, methods=[BEST])
    assert len(few.ingredients) < len(soup.ingredients)
    fitted = load_run(copy).summary.cross_fit
    assert fitted is not None
    for found in (few, soup):
        (value, low, high, gap, _) = astuple(method(found, BEST).cross_fitted)
        assert (value, low, high) == (fitted.cross_fitted, fitted.low, fitted.high)
        assert gap == pytest.approx(fitted.gap)


def test_with_a_task_as_objective_both_scores_are_written(copy: Path) -> None:
    aim(copy, "much")
    found = soup_of(copy, methods=["mean"])
    assert found.goal == "much"
    for each in found.methods:
        task = each.tasks["much"]
        assert each.score == Score(task.value, task.low, task.high)
        units = [each.tasks[name].value for name in ("mood", "said")]
        overall = np.mean([*units, (1 + task.value) / 2])
        assert each.overall.value == pytest.approx(overall) != each.score.value
    table = soup_text(found, copy)
    heads = [line.split() for line in table.splitlines() if line.startswith("  method")]
    head = [word for part in heads for word in part if word != "method"]
    assert head[2] == "much" and head[-3:] == ["overall", "mood", "said"]


def test_the_file_tells_what_every_soup_is_made_of(soup: SoupRecord) -> None:
    evaluator: Any = SimpleNamespace(ingredients=[SimpleNamespace(name=f"t{n}") for n in range(3)])
    trunk = {
        "a": combine(WEIGHTS, [0, 1], head=single(2)),
        "b": combine(WEIGHTS, [0, 1], head=single(0)),
    }
    assert heads_of(evaluator, trunk) == {"a": "t2", "b": "t0"} and weights_of(trunk) is None
    of_one = {
        "a": combine(WEIGHTS, [0], head=single(0)),
        "b": combine(WEIGHTS, [0], head=single(1)),
    }
    assert heads_of(evaluator, of_one) == {"a": "t0", "b": "t1"}
    own = {"a": combine(WEIGHTS, [0, 1], head=combine(WEIGHTS, [1, 2], [0.7, 0.3]))}
    assert heads_of(evaluator, own) == {"a": {"t1": 0.7, "t2": 0.3}}
    weighted = dict.fromkeys("ab", combine(WEIGHTS, [0, 2], [3, 1]))
    assert weights_of(weighted) == [3, 1] and heads_of(evaluator, weighted) is None
    by_task = {"a": combine(MEAN, [0, 1], [2, 1]), "b": combine(MEAN, [0, 1], [1, 2])}
    assert weights_of(by_task) == {"a": [2, 1], "b": [1, 2]}
    known = method(soup, "weighted vote").weights  # by each task's own ranking
    lists = known.values() if isinstance(known, dict) else [known]
    assert all(sorted(each) == [1, 2, 3, 4, 5] for each in lists)


def test_the_greedy_soup_is_not_worse_than_the_best_single(soup: SoupRecord) -> None:
    best, greedy = method(soup, BEST).score.value, method(soup, GREEDY).score.value
    assert greedy >= best == pytest.approx(soup.ingredients[0].score)
    steps = soup.steps
    assert steps[0].best is None and steps[0].distance == 0
    for step in steps[1:]:
        assert step.accepted == (step.score > step.best) and step.distance > 0
    accepted = [step.ingredient for step in steps if step.accepted]
    assert sorted(accepted) == sorted(method(soup, GREEDY).members)
    assert max(step.score for step in steps if step.accepted) == pytest.approx(greedy)


def test_what_does_not_fit_is_named_and_serves_in_ensembles_only(soup: SoupRecord) -> None:
    (left,) = soup.skipped
    assert left.name.startswith("t0004/") and "head_hidden is 8, not 0" in left.reason
    assert [len(group) for group in soup.groups] == [4, 1]
    assert {each.trial for each in soup.ingredients} == {"t0000", "t0001", "t0002", "t0003"}
    assert left.name in str(method(soup, "mean").members)
    assert left.name not in str(method(soup, "uniform soup").members)


def test_the_uniform_soup_is_the_mean_of_all(run: Path, soup: SoupRecord) -> None:
    names = [each.name for each in soup.ingredients]
    mean = mean_of([model_of(run, name) for name in names], [1.0] * len(names))
    written = mean_of([run / "soups/uniform-soup"], [1.0])
    for name, tensor in mean.items():
        assert torch.equal(tensor, written[name])


def test_a_trunk_soup_has_the_heads_of_the_best_at_each_task(run: Path, soup: SoupRecord) -> None:
    folder = run / "soups/trunk-soup"
    trunk = load_file(run / "soup/model.safetensors")
    assert all(torch.equal(t, trunk[n]) for n, t in load_file(folder / FILES[0]).items())
    heads = load_file(folder / FILES[1])
    for task in soup.ingredients[0].tasks:
        best = max(soup.ingredients, key=lambda each: each.tasks[task])
        own = load_file(model_of(run, best.name) / FILES[1])
        name = f"heads.task_{task}.output.weight"
        assert torch.equal(heads[name], own[name])


def test_one_final_alone_has_a_soup_of_its_last_checkpoints(tmp_path: Path, run: Path) -> None:
    data = run.parent / "data"
    final = make_run(
        tmp_path / "final", POINTS[:1], tasks=str(data / "toy.yaml"), data=data, evaluations=4
    )
    soup = soup_of(final, folders=True)
    steps = {each.checkpoint for each in soup.ingredients}
    assert len(soup.ingredients) == soup.candidates >= 3 and {
        each.trial for each in soup.ingredients
    } == {"t0000"}
    assert steps >= {
        entry["checkpoint"] for entry in state_of(final).trials["t0000"].evaluations[-3:]
    }
    found = method(soup, "trajectory soup")
    mean = mean_of([model_of(final, name) for name in found.members], [1.0] * len(found.members))
    saved = load_file(final / found.folder / FILES[1])
    assert len(found.members) >= 3 and all(torch.equal(mean[n], t) for n, t in saved.items())


def test_the_soup_is_an_ordinary_model_folder(run: Path, soup: SoupRecord) -> None:
    from transformers import AutoModel, AutoTokenizer

    encoder = AutoModel.from_pretrained(run / "soup").eval()
    tokenizer = AutoTokenizer.from_pretrained(run / "soup")
    own = load_model(run / "soup")
    inputs = tokenizer(["a film", "a long and slow film"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs = encoder(**inputs).last_hidden_state
        mine = own.model.encoder(**inputs).last_hidden_state
    torch.testing.assert_close(theirs, mine, rtol=0, atol=1e-6)
    assert len(own.predict("mood", ["what a film"])) == 1
    (mood,) = own.predict("mood", ["good good good"])
    assert mood.name == NAMES[int(mood.value)]
    card = (run / "soup/README.md").read_text()
    assert "The classes of mood: 0 bad, 1 fair, 2 good." in card
    assert soup.data in card and "optim.learning_rate" in card and "cross-fitted" in card
    assert all(step.ingredient in card for step in soup.steps if step.accepted)


def test_the_card_counts_checkpoints_and_not_trials(soup: SoupRecord) -> None:
    names = [step.ingredient for step in soup.steps[:2]]
    steps = [replace(step, accepted=place < 2) for place, step in enumerate(soup.steps)]
    card = model_card(replace(soup, steps=steps), {"t0000": {}}, {})  # both of one trial
    assert "the weights of 2 checkpoints of one search" in card
    assert all(name in card for name in names)


@pytest.mark.parametrize("name", [GREEDY, "mean"])
def test_the_card_and_the_table_say_who_answers(run: Path, soup: SoupRecord, name: str) -> None:
    found = replace(soup, recommended=name)
    card = model_card(found, {}, {"mood": ("bad", "good")})
    assert "The classes of mood: 0 bad, 1 good." in card
    assert f"answered by the {name}" in card
    assert ("not this model" in card) == ("--model greedy-soup" in card) == (name != GREEDY)
    assert f"{run} answers with the {name}; --model takes another" in soup_text(found, run)


def test_what_is_recommended_is_always_written(copy: Path) -> None:
    from tuner.predict.predictor import load_predictor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tuner.soup.make.recommend",
            lambda results: (next(r for r in results if r.name == "uniform soup"), "take it"),
        )
        found = soup_of(copy, methods=["uniform soup"])
    assert method(found, "uniform soup").folder == "soups/uniform-soup"
    predictor = load_predictor(copy)
    assert predictor.place == copy / "soups/uniform-soup"
    assert predictor.who == "the uniform soup (1 model), which the search recommends"


@pytest.mark.parametrize("name", MADE)
def test_prediction_agrees_with_the_evaluation_whatever_answers(
    run: Path, soup: SoupRecord, name: str, tmp_path: Path
) -> None:
    from tuner.predict.__main__ import main as predict

    found = method(soup, name)
    folder = str(run / found.folder)
    assert predict([folder, "--split", "dev", "--out", str(tmp_path), "--quiet"]) == 0
    new = {(r["task"], r["id"]): r for r in pq.read_table(tmp_path / "dev.parquet").to_pylist()}
    known = pq.read_table(run / found.predictions).to_pylist()
    assert len(known) == 3 * ROWS["dev"]
    for row in known:
        mine = new[row["task"], row["id"]]
        assert mine["label"] == row["label"]
        assert mine["prediction"] == pytest.approx(row["prediction"], abs=1e-6)
        for what in ("label", "prediction"):
            wanted = NAMES[int(row[what])] if row["task"] == "mood" else None
            assert mine[f"{what}_name"] == wanted
        if row["probabilities"] is not None:
            assert mine["probabilities"] == pytest.approx(row["probabilities"], abs=1e-6)


def test_a_sentence_is_answered_by_the_name_of_its_class(
    run: Path, soup: SoupRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    from tuner.predict.__main__ import main as predict
    from tuner.predict.predictor import load_predictor

    for name in ("best", GREEDY, "mean"):
        assert predict([str(run), "--model", name, "--text", "good good", "--task", "mood"]) == 0
        said = capsys.readouterr().out
        assert re.fullmatch(
            r"mood: (bad|fair|good)   \(bad 0.\d+  fair 0.\d+  good 0.\d+\)\n", said
        )
        answers = load_predictor(run, name).answer_texts({"mood": ["good good"]})
        assert answers["mood"].names == [said.split()[1]]


def test_other_names_than_the_models_are_refused(
    run: Path, soup: SoupRecord, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tuner.predict.__main__ import main as predict

    text = (
        (run.parent / "data/toy.yaml").read_text().replace("[bad, fair, good]", "[good, fair, bad]")
    )
    (tmp_path / "toy.yaml").write_text(text)
    flags = ["--tasks", str(tmp_path / "toy.yaml"), "--out", str(tmp_path / "out")]
    assert predict([str(run), *flags]) == 2
    said = "mood: classes is good, fair, bad here and bad, fair, good in the model"
    assert said in capsys.readouterr().err


def test_the_search_saw_what_the_soup_starts_from(run: Path, soup: SoupRecord) -> None:
    best = soup.ingredients[0]
    trial = run / "trials" / best.trial / "predictions" / f"{best.checkpoint}.parquet"
    kept = pq.read_table(trial).to_pylist()
    assert pq.read_table(run / "soup/predictions/best-single.parquet").to_pylist() == kept


# --- going on -----------------------------------------------------------------------------------


def test_nothing_is_evaluated_twice(run: Path, soup: SoupRecord) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "evaluate", lambda *args, **options: pytest.fail("ran again"))
        again = soup_of(run, folders=True)
    assert again.ran == 0 and soup.ran == soup.evaluations > 0
    assert "; 0 evaluations in" in soup_text(again, run)
    assert f"{soup.evaluations:g} known before" in soup_text(again, run)
    assert replace(again, time=soup.time, seconds=soup.seconds, ran=soup.ran) == soup


def test_killed_half_way_it_goes_on(copy: Path, soup: SoupRecord) -> None:
    ran: list[int] = []
    real = runner.evaluate

    def dying(*args: Any, **options: Any) -> Any:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(1)
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "evaluate", dying)
        with pytest.raises(KeyboardInterrupt):
            soup_of(copy, methods=[GREEDY, "uniform soup"])
    assert not (copy / "soup").exists()
    before = len(list((copy / "soups/evaluations").iterdir()))
    assert before == 9  # three tasks each

    def counted(*args: Any, **options: Any) -> Any:
        ran.append(1)
        return real(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "evaluate", counted)
        found = soup_of(copy, methods=[GREEDY, "uniform soup"])
    assert len(ran) == found.evaluations  # in both goes together, none of them twice
    assert found.ran == found.evaluations - 3
    assert found.steps == soup.steps
    mine, known = method(found, GREEDY), method(soup, GREEDY)
    assert mine.members == known.members and mine.evaluations == known.evaluations
    assert mine.cross_fitted is not None and known.cross_fitted is not None
    assert astuple(mine.score) == pytest.approx(astuple(known.score), abs=1e-9)
    assert astuple(mine.cross_fitted) == pytest.approx(astuple(known.cross_fitted), abs=1e-9)


@pytest.mark.slow
def test_a_real_kill_leaves_nothing_half_written(copy: Path, soup: SoupRecord) -> None:
    def work() -> int:
        left, real = count(1), evaluator.write_predictions

        def dying(*given: Any) -> None:
            if next(left) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            real(*given)

        evaluator.write_predictions = dying  # type: ignore[assignment]
        return main([str(copy), "--methods", GREEDY])

    done = Fork(work)
    said, _ = done.communicate()
    assert done.returncode == -signal.SIGKILL, said
    assert not (copy / "soup").exists()
    assert main([str(copy), "--methods", GREEDY, "--quiet"]) == 0
    found = read_soup(copy)
    assert found is not None and found.steps == soup.steps


def test_an_evaluation_that_cannot_be_read_is_made_again(copy: Path, soup: SoupRecord) -> None:
    soup_of(copy, methods=["uniform soup"])
    some = sorted((copy / "soups/evaluations").iterdir())[0]
    some.write_bytes(b"not a table")
    again = soup_of(copy, methods=["uniform soup"])
    assert method(again, "uniform soup").score == method(soup, "uniform soup").score
    assert some.stat().st_size > 20


# --- what is left out ---------------------------------------------------------------------------


def sign(place: Path) -> None:
    (place / MANIFEST).unlink()
    write_manifest(place)


def corrupt(place: Path) -> None:
    data = bytearray((place / "model" / FILES[0]).read_bytes())
    data[-3] ^= 255
    (place / "model" / FILES[0]).unlink()  # it may be linked to another folder
    (place / "model" / FILES[0]).write_bytes(data)


def missing(place: Path) -> None:
    shutil.rmtree(place)


def not_a_number(place: Path) -> None:
    change(place, lambda heads: heads["heads.task_mood.output.bias"].fill_(float("nan")))


def other_shape(place: Path) -> None:
    def widen(heads: dict[str, torch.Tensor]) -> None:
        heads["heads.task_mood.output.bias"] = torch.zeros(7)

    change(place, widen)


def change(place: Path, rule: Any) -> None:
    path = place / "model" / FILES[1]
    heads = load_file(path)
    rule(heads)
    path.unlink()
    save_file(heads, path)
    sign(place)


def no_predictions(place: Path) -> None:
    (place.parents[1] / "predictions" / f"{place.name}.parquet").write_bytes(b"nothing")


DAMAGE = {
    "sha256 of model/model.safetensors differs": corrupt,
    "its checkpoint is not there any more": missing,
    "'heads.task_mood.output.bias' has values that are no finite numbers": not_a_number,
    "shape of heads.task_mood.output.bias is [7], not [3]": other_shape,
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_damaged_ingredient_is_named_and_skipped(
    copy: Path, soup: SoupRecord, reason: str
) -> None:
    name = soup.ingredients[1].name
    DAMAGE[reason](model_of(copy, name).parent)
    found = soup_of(copy, methods=[BEST])
    said = {each.name: each.reason for each in found.skipped}
    assert reason in said[name]
    assert name not in [each.name for each in found.ingredients]
    assert len(found.ingredients) == 3
    assert name in soup_text(found, copy)


@pytest.mark.parametrize("count", [1, 5])
def test_an_ingredient_without_dev_predictions_is_evaluated_anew(
    copy: Path, soup: SoupRecord, count: int
) -> None:
    every = [*soup.ingredients, *soup.skipped]  # the last fits none of the others
    for ingredient in every[-count:]:
        no_predictions(model_of(copy, ingredient.name).parent)
    told: list[str] = []
    found = make_soup(copy, methods=["mean"], log=told.append, warn=pytest.fail)
    anew = [line for line in told if line.endswith("; evaluated anew")]
    assert len(anew) == count and found.skipped == soup.skipped
    assert found.ingredients == soup.ingredients
    assert method(found, "mean").score == method(soup, "mean").score
    assert found.ran >= count and found.evaluations >= found.ran
    assert soup_of(copy, methods=["mean"]).ran == 0  # it is kept, as an average's is


def test_a_soup_of_one_is_that_model(copy: Path, soup: SoupRecord) -> None:
    names = [each.name for each in soup.ingredients]
    for name in names[1:]:
        missing(model_of(copy, name).parent)
    found = soup_of(copy, methods=["uniform soup"])
    assert method(found, GREEDY).members == names[:1] and found.evaluations == 0
    for file in FILES:
        assert (copy / "soup" / file).read_bytes() == (model_of(copy, names[0]) / file).read_bytes()
    assert method(found, GREEDY).score == method(found, BEST).score


def test_a_soup_of_two_equal_models_is_that_model(copy: Path, soup: SoupRecord) -> None:
    first, second = (each.name for each in soup.ingredients[:2])
    for name in [each.name for each in soup.ingredients[2:]]:
        missing(model_of(copy, name).parent)
    place = model_of(copy, second).parent
    for file in FILES:
        (place / "model" / file).unlink()
        shutil.copy(model_of(copy, first) / file, place / "model" / file)
    sign(place)
    kept = [model_of(copy, n).parents[2] / "predictions" / n.split("/")[1] for n in (first, second)]
    shutil.copy(kept[0].with_suffix(".parquet"), kept[1].with_suffix(".parquet"))
    found = soup_of(copy, methods=["uniform soup"], folders=True)
    assert method(found, GREEDY).members == [first]  # as good is not better
    alone, both = (mean_of([copy / p], [1.0]) for p in ("soup", "soups/uniform-soup"))
    assert all(torch.equal(t, both[n]) for n, t in alone.items())
    assert method(found, "uniform soup").score == method(found, GREEDY).score


def test_where_nothing_is_whole_every_reason_is_told(copy: Path) -> None:
    for place in copy.glob("trials/*/checkpoints/*"):
        missing(place)
    with pytest.raises(InputError) as error:
        soup_of(copy)
    assert str(error.value).count("not there any more") == 5


def test_other_data_than_the_searchs_are_refused(copy: Path) -> None:
    about = read_yaml(copy / "run.yaml").data
    about["fingerprints"]["data"] = "0" * 64
    (copy / "run.yaml").write_text(to_yaml(about))
    with pytest.raises(InputError, match="not those of the search"):
        soup_of(copy)


# --- after a search -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("disk full"), "no soup: OSError: disk full; to try again: python -m tuner.soup"),
        (InputError("x", ["bad data"]), "no soup: bad data; to try again: python -m tuner.soup"),
    ],
)
def test_a_soup_that_fails_is_told_in_a_line(
    run: Path,
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr("tuner.soup.make.make_soup", failing)
    assert finish.attempt_soup(run, SearchConsole()) is None
    assert capsys.readouterr().err == f"{said} {run}\n"


@pytest.mark.parametrize(
    ("wanted", "stopped", "made"),
    [(True, None, True), (True, "time", True), (True, "interrupted", False), (False, None, False)],
)
def test_a_search_makes_its_soup_when_it_is_done_and_before_its_pictures(
    run: Path, wanted: bool, stopped: str | None, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def make_it(*given: Any) -> SoupRecord:
        told.append("made")
        return made_up_soup(methods=[])

    monkeypatch.setattr(finish, "attempt_soup", make_it)
    monkeypatch.setattr(finish, "summarise", lambda *parts, **options: None)
    monkeypatch.setattr(finish, "expected_of", lambda *parts: None)
    tasks = SimpleNamespace(task_set=None)
    options = ExecutionOptions(soup=wanted, report=False)
    plan: Any = SimpleNamespace(folder=run, options=options, space=tasks, max_examples=1)
    board: Any = SimpleNamespace(finish=lambda: told.append("drawn"))
    state = state_of(run)
    result = finish.finish(plan, state, stopped, board, SearchConsole(quiet=True))
    drawn = ["drawn"] if stopped != "interrupted" else []
    assert told == ["made"] * made + drawn
    assert (result.soup is not None) == made


def test_whoever_interrupts_the_soup_does_not_wait_for_the_rest(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.soup.make.make_soup", interrupted)
    monkeypatch.setattr(finish, "summarise", lambda *parts, **options: None)
    tasks = SimpleNamespace(task_set=None)
    plan: Any = SimpleNamespace(folder=run, options=ExecutionOptions(), space=tasks, max_examples=1)
    board: Any = SimpleNamespace(finish=pytest.fail)
    result = finish.finish(plan, state_of(run), None, board, SearchConsole(quiet=True))
    assert result.stopped == "interrupted" and not result.complete
    said = f"no soup: interrupted; to try again: python -m tuner.soup {run}\n"
    assert capsys.readouterr().err == said
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    "moment",
    [
        "tuner.soup.make.score_methods",
        "tuner.search.finish.attempt_soup",
        "tuner.search.finish.summarise",
        "tuner.report.write.report_of",
    ],
)
def test_a_driver_that_slept_at_its_end_writes_nothing_over_its_successors(
    copy: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, successor = RunLock(copy / LOCK), RunLock(copy / LOCK)
    lock.acquire()
    left: dict[Path, bytes] = {}
    went_on = score_methods if moment.endswith("score_methods") else lambda *given, **known: None

    def sleeps(*given: Any, **known: Any) -> Any:
        """And wakes when the run is another driver's."""
        found = went_on(*given, **known)
        (copy / LOCK).rename(copy / "lock-before")
        successor.acquire()
        left.update({file: file.read_bytes() for file in copy.rglob("*") if file.is_file()})
        return found

    monkeypatch.setattr(finish, "summarise", lambda *parts, **options: None)
    monkeypatch.setattr(finish, "expected_of", lambda *parts: None)
    monkeypatch.setattr("tuner.report.write.load_run", lambda *parts, **options: None)
    monkeypatch.setattr(moment, sleeps)
    options = ExecutionOptions(soup="soup" in moment)
    plan: Any = SimpleNamespace(
        folder=copy, options=options, space=SimpleNamespace(task_set=None), max_examples=1
    )
    drawn = pytest.fail if "soup" in moment else lambda: None
    board: Any = SimpleNamespace(finish=drawn)
    with pytest.raises(Deposed, match="another driver has taken this run over"):
        finish.finish(plan, state_of(copy), None, board, SearchConsole(quiet=True), mine=lock.check)
    assert left and left == {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    lock.release()
    successor.release()


def test_a_search_leaves_the_expensive_methods_to_the_command(copy: Path, soup: SoupRecord) -> None:
    found = finish.attempt_soup(copy, SearchConsole(quiet=True))
    assert found is not None and (copy / "soup/soup.json").is_file()
    names = {each.name for each in found.methods}
    assert set(MADE) - names == {"weighted soup", "task soups", "learned heads"}
    assert found.evaluations < soup.evaluations


# --- the command --------------------------------------------------------------------------------


def test_the_command_prints_the_table(
    run: Path, soup: SoupRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--folders", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "greedy soup" in said and "cross-fitted" in said and "take the" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--methods", "gredy soup"], "did you mean 'greedy soup'"),
        (["--methods", ","], "name some of"),
        (["--keep", "0"], "1 or more"),
        (["--halvings", "0"], "1 or more"),
    ],
)
def test_bad_flags_are_refused(
    run: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--keep", "0", "--methods", "gredy soup"]) == 2
    said = capsys.readouterr().err
    assert "run.yaml" in said and "--keep is 0" in said and "'greedy soup'" in said


def test_fewer_ingredients_can_be_asked_for(run: Path, copy: Path, soup: SoupRecord) -> None:
    found = soup_of(copy, keep=1, methods=[BEST])
    assert 1 <= len(found.ingredients) <= len(soup.ingredients)
    assert found.candidates <= 5
    assert np.isfinite(method(found, BEST).score.value)
