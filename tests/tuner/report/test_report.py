"""The report says what scikit-learn and SciPy say, of a run whose every text is markup."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, confusion_matrix

from model.cli.flags import given_for
from model.common.errors import InputError
from tests.tuner.report_runs import EVIL, EVIL_IMAGE, add_failure, add_soup, make_run
from tests.tuner.scoring.test_summary import EXPECTED
from tests.tuner.search_runs import aim, state_of
from tests.tuner.soup_runs import write_record
from tuner.engine.stages import Rung, Stages
from tuner.report import figures
from tuner.report.__main__ import main
from tuner.report.answer.collect import BestAnswer, Contender, collect_answer
from tuner.report.answer.draw import draw_scores, draw_tasks
from tuner.report.answer.section import answer_section, expected_in_full, gain_of
from tuner.report.compare.collect import collect_comparison
from tuner.report.history.collect import collect_history, hypervolumes
from tuner.report.history.section import history_section
from tuner.report.importance.collect import collect_importance
from tuner.report.importance.draw import _wide_enough, draw_importance
from tuner.report.importance.section import mattered_section
from tuner.report.mistakes.collect import best_trial_of, collect_mistakes, worst_of
from tuner.report.mistakes.draw import draw_result
from tuner.report.mistakes.section import mistakes_section
from tuner.report.mistakes.vectors import collect_clouds
from tuner.report.numbers import Estimate, short
from tuner.report.repeating.collect import collect_repeating, search_command
from tuner.report.run import load_run
from tuner.report.write import report_of, write_report
from tuner.runs.folder import LEDGER
from tuner.runs.ledger import Ledger, read_events
from tuner.runs.request import SearchRequest
from tuner.runs.state import RunState
from tuner.scoring.crossfit import Difference
from tuner.scoring.summary import Gain
from tuner.search.__main__ import make_parser
from tuner.search.finish import with_report
from tuner.search.terminal import SearchConsole
from tuner.soup.methods import METHODS

pytestmark = pytest.mark.slow  # they look at a real search
SECTIONS = ("answer", "mattered", "history", "soup", "wrong", "repeat")


class Page(HTMLParser):
    """Reads a page strictly: every element is closed in its order, every id is there once."""

    VOID = {"meta", "input", "br", "hr", "link", "img"}

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data: dict[str, Any] = {}
        self.feed(html)
        self.close()
        assert not self.open
        ids = [of["id"] for _, of in self.elements if "id" in of]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            kind = self.elements[-1][1]
            if kind.get("type") == "application/json":
                self.data[str(kind["id"])] = json.loads(data)
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    folder = make_run(place)
    add_failure(folder)
    return folder


@pytest.fixture(scope="module")
def html(run: Path) -> str:
    """Without a soup."""
    return write_report([run]).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def souped(run: Path, html: str, place: Path) -> Iterator[Page]:
    """With one, written elsewhere."""
    add_soup(run)
    yield Page(write_report([run], place / "souped.html").read_text(encoding="utf-8"))
    (run / "soup" / "soup.json").unlink(missing_ok=True)


def predictions_of(run: Path, task: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The best trial's answers, read without this package's help."""
    state = state_of(run)
    best = state.ranked()[0]
    entry = best.chosen(state.objectives)
    assert entry is not None
    rows = pq.read_table(run / "trials" / best.id / entry["predictions"]).to_pylist()
    mine = [row for row in rows if row["task"] == task]
    labels, said = (np.array([row[name] for row in mine]) for name in ("label", "prediction"))
    return labels, said, [row["id"] for row in mine]


# --- figures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "classes"), [("mood", 3), ("same", 2)])
def test_confusion_matrices_are_those_of_scikit_learn(
    run: Path, page: Page, task: str, classes: int
) -> None:
    labels, said, _ = predictions_of(run, task)
    expected = confusion_matrix(labels, said, labels=range(classes))
    (drawn,) = page.data[f"confusion-{task}-data"]["data"]
    assert np.array_equal(drawn["customdata"], expected)
    shares = expected / np.maximum(1, expected.sum(axis=1, keepdims=True))
    assert np.allclose(drawn["z"], shares, atol=1e-5)
    shown = f"{task}: accuracy {accuracy_score(labels, said):.3f}".replace("0.", ".")
    assert shown in page.text


def test_the_scatter_and_its_score_are_those_of_scipy(run: Path, page: Page) -> None:
    labels, said, ids = predictions_of(run, "near")
    dots = page.data["scatter-near-data"]["data"][1]
    assert dots["text"] == ids
    assert np.allclose(dots["x"], labels, rtol=1e-5) and np.allclose(dots["y"], said, rtol=1e-5)
    shown = f"{pearsonr(labels, said).statistic:.3f}".replace("0.", ".", 1)
    off = np.abs(labels - said).mean()
    assert f"near: pearson {shown}, MAE {off:.2f}" in page.text


def test_the_overall_score_is_the_mean_of_scikit_learns_and_scipys(run: Path, page: Page) -> None:
    parts = [accuracy_score(*predictions_of(run, task)[:2]) for task in ("mood", "same")]
    parts.append((1 + pearsonr(*predictions_of(run, "near")[:2]).statistic) / 2)
    shown = f"{np.mean(parts):.3f}".replace("0.", ".", 1)
    best = state_of(run).ranked()[0].id
    assert re.search(rf"Take the best trial \({best}\) ?: it scores {shown} \[", page.text)


def test_the_worst_errors_are_wrong_and_the_surest_come_first(run: Path) -> None:
    mistakes = collect_mistakes(load_run(run))
    for result in mistakes.results:
        worst = worst_of(result, limit=5)
        sizes = [each.size for each in worst]
        assert worst and sizes == sorted(sizes, reverse=True)
        assert all(each.true != each.said for each in worst)
        labels, said, ids = predictions_of(run, result.task.name)
        place = ids.index(worst[0].id)
        if result.confusion is None:
            assert abs(labels - said).argmax() == place
        else:
            assert labels[place] != said[place]


def test_sentences_stand_beside_the_row_they_belong_to(run: Path, place: Path) -> None:
    lines = (place / "data" / "mood-dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    of_row = {line.split("\t")[0]: line.split("\t")[1] for line in lines}
    mood = [each for each in collect_mistakes(load_run(run)).worst if each.task == "mood"]
    assert mood and all(each.sentences == (of_row[each.id],) for each in mood)


def test_every_trial_is_in_the_curves_and_on_a_slot(run: Path, page: Page) -> None:
    trials = state_of(run).trials.values()
    curves = page.data["curves-data"]["data"]
    named = {name for trace in curves for name in trace["text"] if name}
    assert {trial.id for trial in trials if trial.evaluations} <= {n.split(":")[0] for n in named}
    bars = page.data["timeline-data"]["data"]
    assert {name for trace in bars for name in trace["text"]} == {trial.id for trial in trials}


def test_the_sentence_and_the_table_have_one_word_for_how_a_trial_ended(
    run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "short"
    shutil.copytree(run, copy)
    with Ledger(copy / LEDGER) as ledger:  # as if all of them had been short
        ledger.append("planned", rungs=[[1, 3], [10**6, 1]], num_samples=3)
        ledger.append("end", reason="complete")
    read = load_run(copy)
    text = str(history_section(read, collect_history(read), "").body)
    rows = re.findall(r"<td[^>]*>(t\d{4})</td><td[^>]*>(\w+)</td>", text)
    wanted = {trial.id: read.state.outcome(trial) for trial in read.state.trials.values()}
    assert dict(rows) == wanted and set(wanted.values()) == {"pruned", "failed"}
    counted = Counter(wanted.values())
    said = f"configurations: {counted['pruned']} pruned, {counted['failed']} failed; "
    assert f"{said}in {len(wanted)} trials." in text


# --- the page -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("longest", "said"), [(1200, True), (400, False)])
def test_the_gain_is_not_taken_for_that_of_a_model_that_was_trained_for_longer(
    longest: int, said: bool
) -> None:
    gain = Gain(Difference(0.02, 0.01, 0.03), configurations=9, examples=(400, 400))
    best = SimpleNamespace(trial="t0007", examples=longest)
    summary = SimpleNamespace(gain=gain, best=[best])
    text = Page(str(gain_of(SimpleNamespace(summary=summary)))).text  # type: ignore[arg-type]
    assert "Searching paid: after 400 examples each, the best of 9 configurations" in text
    assert ("The best trial, t0007, was trained for 1,200: its own lead" in text) == said


@pytest.mark.parametrize("made", ["page", "souped"])
def test_all_sections_are_there_in_their_order(made: str, request: Any) -> None:
    found = [of["id"] for of in request.getfixturevalue(made).all("section")]
    assert tuple(found) == SECTIONS


@pytest.mark.parametrize("made", ["page", "souped"])
def test_text_that_is_markup_stays_text(made: str, request: Any) -> None:
    whole: Page = request.getfixturevalue(made)
    assert EVIL in whole.text and EVIL_IMAGE in whole.text
    assert not whole.all("img")
    scripts = whole.all("script")
    assert all(of.get("type") == "application/json" for of in scripts[:-2])
    assert not any(key.startswith("on") for _, of in whole.elements for key in of)
    for data in whole.data.values():  # what plotly is given: it draws some tags
        assert not re.search(r"<(?!br>|extra>|/extra>)", json.dumps(data))


def test_only_the_pages_own_two_scripts_may_run_and_nothing_is_loaded(page: Page) -> None:
    (policy,) = [of["content"] for of in page.all("meta") if "http-equiv" in of]
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("sha256-") == 2
    assert not [of for _, of in page.elements if "src" in of or of.get("href", "#")[:1] != "#"]


def test_every_picture_says_how_to_read_it_and_has_titles(page: Page, souped: Page) -> None:
    for whole in (page, souped):
        assert len(whole.data) >= 12
        for name, figure in whole.data.items():
            assert figure["layout"]["xaxis"]["title"]["text"], name
        assert len(whole.all("figcaption")) == len(whole.all("figure")) == len(whole.data)


def test_plotly_knows_every_property_of_every_picture(souped: Page) -> None:
    import plotly.graph_objects as go

    for figure in souped.data.values():
        plain = json.loads(re.sub(r"@[a-z]+@", "#000000", json.dumps(figure)))
        go.Figure(data=plain["data"], layout=plain["layout"])


def test_the_soups_words_and_steps_are_shown(souped: Page) -> None:
    assert "1 of 2 ingredients went into the greedy soup, of 4 candidates" in souped.text
    assert "of 4 candidates (5 evaluations in 3.2 s)" in souped.text
    assert f"Take it {EVIL}." in souped.text  # a sentence begins with a capital
    assert "it scores" not in souped.text  # the plain score beside it would read like a fault
    assert "greedy soup recommended" in souped.text
    assert "t0009/step-1" in souped.text
    assert {"soup-steps-data", "soup-distance-data"} <= set(souped.data)


def test_it_opens_with_the_gain_and_goes_on_with_the_soups_sentence(
    run: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(run, tmp_path / "souped"))
    soup = add_soup(other)
    loaded = load_run(other)
    text = Page(answer_section(loaded, collect_answer(loaded), "").body).text
    gain = Page(str(gain_of(loaded))).text
    assert "default" in gain and text.startswith(gain)
    parts = [f"Take it {EVIL}.", f"answers with the {soup.recommended}", "lead over best single"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.startswith(parts[0], len(gain) + 1)  # nothing between them


def test_without_a_soup_it_says_how_to_make_one(page: Page) -> None:
    assert "This run has no soup yet" in page.text


def test_a_soup_file_that_makes_no_sense_is_a_note(run: Path, html: str) -> None:
    path = run / "soup" / "soup.json"
    path.parent.mkdir(exist_ok=True)
    try:
        for content in ("{", "[]", '{"format": 1, "methods": [{}]}', '{"format": 9}'):
            path.write_text(content)
            loaded = load_run(run)
            assert loaded.soup is None and any("soup.json" in each for each in loaded.notes)
            said = Page(answer_section(loaded, collect_answer(loaded), "").body).text
            assert all(" ".join(each.split()) in said for each in loaded.notes)
    finally:
        path.unlink()


def test_the_best_is_trained_again_with_the_searchs_own_evaluations(run: Path) -> None:
    found = load_run(run)
    assert found.request.grace_examples is None
    settings = dict(collect_repeating(found).settings)
    most = int(settings["budget.examples"].replace(",", ""))
    assert int(settings["budget.eval_every"].replace(",", "")) == -(-most // 3)


def test_the_command_that_repeats_a_search_means_the_same_search(run: Path) -> None:
    found = load_run(run)
    changed = {
        **{"distill": True, "early_stopping": False, "finals": 3, "confirm": (3, 2)},
        **{"warm_start": (str(run), "/a b"), "objectives": ("mood", "near"), "keep": 2},
        **{"reduction_factor": 2.5, "set": {"loss.weights": [1, 2.5, 1], "smart.weight": None}},
    }
    request = SearchRequest(**{**vars(found.request), **changed})
    for each in (found, replace(found, request=request)):
        words = shlex.split(search_command(each).replace("\\\n", " "))
        read = given_for(SearchRequest, vars(make_parser().parse_args(words[3:])))
        assert words[:3] == ["python", "-m", "tuner.search"]
        assert SearchRequest(**read) == each.request


def test_a_search_by_the_clock_is_repeated_at_its_size(run: Path) -> None:
    found = load_run(run)
    stages = Stages((Rung(40, 6), Rung(120, 2), Rung(900, 1)))
    rungs = [(rung.examples, rung.places) for rung in stages.rungs]
    state = replace(found.state, planned=True, rungs=rungs)
    assert f"--budget-examples {stages.cost()}" in search_command(replace(found, state=state))


def test_what_is_expected_in_full_is_named_for_what_it_is() -> None:
    seen: Any = SimpleNamespace(summary=SimpleNamespace(expected=EXPECTED))
    said = Page(str(expected_in_full(seen))).text
    assert "settings, trained in full, score lower than the default: 4 %." in said
    assert "the settings forecast to be best (not tried) .720 ± .030" in said
    assert "pair.encoding.near cosine cross" in said
    assert "Weight of what first says, by task (1: as it is): mood 0.96, near nothing." in said
    seen.summary.expected = None
    assert expected_in_full(seen) is None


def test_failures_are_told_with_their_reason(page: Page) -> None:
    assert f"bad {EVIL}" in page.text and "traceback of" in page.text


def test_without_data_and_model_the_rest_is_still_there(run: Path, place: Path) -> None:
    away = place / "data-away"
    (place / "data").rename(away)
    try:
        evil = away / "evil.yaml"
        (place / "data").mkdir()
        (place / "data" / "evil.yaml").write_text(evil.read_text())
        whole = Page(report_of([load_run(run)]))
        assert "Sentences of mood are not shown" in whole.text
        assert "No picture of the embeddings" in whole.text
        assert "confusion-mood-data" in whole.data
        moved = collect_mistakes(load_run(run, data=away))
        assert all(result.sentences for result in moved.results)
    finally:
        (place / "data" / "evil.yaml").unlink()
        (place / "data").rmdir()
        away.rename(place / "data")


def test_with_a_task_as_objective_its_score_goes_by_its_name(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "aimed"))
    aim(other, "mood")
    for souped in (False, True):
        if souped:
            add_soup(other)
        loaded = load_run(other)
        entry = loaded.state.ranked()[0].chosen(["mood"])
        assert entry is not None and entry["score"] != entry["tasks"]["mood"]["value"]
        value = entry["tasks"]["mood"]["value"]
        answer = collect_answer(loaded)
        part = Page(answer_section(loaded, answer, "").body)
        if not souped:  # with a soup its own sentence comes first
            assert re.search(rf"scores {short(value)} \[.*?\] in mood on dev", part.text)
        columns = ["models", "mood", "overall"]
        assert [name for name in part.texts if name in columns] == columns
        cells = [of["data-key"] for of in part.all("td") if "data-key" in of]
        assert str(value) in cells and str(entry["score"]) in cells
        figure = draw_scores(answer, "")
        assert figure is not None and value in figure.data[0]["x"]
        assert figure.layout["xaxis"]["title"]["text"] == "mood on dev (accuracy)"


def test_an_ensemble_lends_its_vectors_from_the_best_trial(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "blended"))
    soup = add_soup(other)
    best = soup.methods[0]
    together = replace(soup.methods[1], predictions=best.predictions, folder="soups/all")
    (other / "soups/all").mkdir(parents=True)
    (other / "soups/all/ensemble.json").write_text("{}")
    write_record(other, replace(soup, methods=[best, together], recommended=together.name))
    loaded = load_run(other)
    mistakes = collect_mistakes(loaded)
    assert mistakes.subject is not None and mistakes.subject.name == together.name
    clouds, why_not = collect_clouds(mistakes, best_trial_of(loaded))
    assert len(clouds) == 3 and not why_not
    said = Page(mistakes_section(mistakes, clouds, why_not, "").body).text
    owner = f"best trial ({loaded.state.ranked()[0].id})"
    assert f"The vectors are those of {owner} , as {together.name} has none." in said
    said = Page(answer_section(loaded, collect_answer(loaded), "").body).text
    assert f"answers with the {together.name}." in said


def contender(name: str, kind: str, value: float, **more: Any) -> Contender:
    score = Estimate(value, value - 0.1, value + 0.1)
    return Contender(
        name=name, kind=kind, score=score, overall=score, tasks={"mood": score}, **more
    )


def test_the_default_is_in_the_pictures_however_many_methods_there_are() -> None:
    methods = [contender(name, METHODS[name].kind, 0.5) for name in METHODS]
    methods = [m if m.name != "trunk soup" else replace(m, recommended=True) for m in methods]
    every = [*methods, contender("default configuration (t0000)", "default", 0.4)]
    answer = BestAnswer(methods[0], every, "overall", {"mood": "accuracy"}, ())
    scores, tasks = draw_scores(answer, ""), draw_tasks(answer, "")
    assert scores is not None and tasks is not None
    drawn = [name.replace("<br>", " ") for trace in scores.data for name in trace["y"]]
    assert sorted(drawn) == sorted(each.name for each in every)
    assert [trace["name"] for trace in tasks.data] == [
        "trunk soup",
        "best single",
        "greedy soup",
        "mean",
        "default configuration (t0000)",
    ]


def test_every_trial_is_drawn_the_default_and_the_pruned_hollow(run: Path) -> None:
    loaded = load_run(run)
    importance = collect_importance(loaded)
    scored = [t.id for t in loaded.state.search_trials if t.status in ("finished", "stopped")]
    assert [point.trial for point in importance.points] == scored
    assert {point.kind for point in importance.compared} <= {"full", "default"}
    figures = {figure.title: figure for figure in draw_importance(importance, "")}
    for key in importance.ordered:
        drawn = figures[key].data
        marks = {trace["name"]: trace["marker"]["symbol"] for trace in drawn}
        assert marks["trained in full"] == "circle"
        assert all(symbol.endswith("-open") for name, symbol in marks.items() if "full" not in name)
        # Of the tiny encoder nobody knows its own dropout, which the default has; that is said.
        unknown = key == "encoder.dropout"
        assert ("Not drawn: 1 of 8" in figures[key].reading) == unknown
        assert sum(len(trace["x"]) for trace in drawn) == len(importance.points) - unknown
    (effects,) = [each for each in draw_importance(importance, "") if each.id == "effects"]
    tasks = set(loaded.tasks.names)
    assert {effects.layout[f"yaxis{n or ''}"]["title"]["text"] for n in (0, 2, 3)} == tasks
    assert all(math.isfinite(mean) for trace in effects.data for mean in trace["y"])
    said = Page(mattered_section(importance, "").body).text
    assert not importance.tasks or "What mattered for each task" in said


def test_a_default_outside_the_space_is_drawn_at_its_edge_with_its_value(run: Path) -> None:
    loaded = load_run(run)
    importance = collect_importance(loaded)
    (default,) = [point for point in importance.points if point.kind == "default"]
    # The encoder's own rate is inside the space; the space offers no such batches.
    assert default.own["optim.learning_rate"] == 1e-3 and default.own["batch.sizes"] == [16] * 3
    other = importance.points[1]
    key, less = "encoder.dropout", {"optim.learning_rate": other.params["optim.learning_rate"]}
    moved = replace(default, params={}, own={**default.own, key: 0.9})
    points = [moved, replace(other, params=less), *importance.points[2:]]
    drawn = {f.title: f for f in draw_importance(replace(importance, points=points), "")}
    for name, x, told in (
        ("optim.learning_rate", 1e-3, ""),
        ("batch.sizes", "[16, 16, 16]", "[16, 16, 16]"),
        (key, 0.3, "0.9"),
    ):
        mark = drawn[name].data[-1]
        assert (mark["x"], mark["y"], mark["text"]) == ([x], [default.score], [told])
        assert mark["marker"]["symbol"] == "diamond-open"
        said = f"Its value, {told}, is outside the space" in drawn[name].reading
        assert said == bool(told) == ("outside" in mark["name"])
        count = sum(len(trace["x"]) for trace in drawn[name].data)
        assert count == len(points) - (name not in less)
        assert ("Not drawn: 1 of" in drawn[name].reading) == (name not in less)


def test_scores_that_are_alike_do_not_look_far_apart() -> None:
    assert _wide_enough([{"y": [0.5598, 0.56]}]) == {"range": pytest.approx([0.5499, 0.5699])}
    assert _wide_enough([{"y": [0.5]}, {"y": [0.7]}]) == {}


def test_few_trials_have_effects_though_no_importances(run: Path) -> None:
    loaded = load_run(run)
    later = [trial.id for trial in loaded.state.search_trials][4:]
    events = [e for e in read_events(run / LEDGER, print) if e.get("trial") not in later]
    state = RunState.from_events(events)
    importance = collect_importance(replace(loaded, state=state))
    assert 3 <= len(importance.compared) < 6 and not importance.shares and importance.why_not
    assert "effects" in {figure.id for figure in draw_importance(importance, "")}
    said = Page(mattered_section(importance, "").body).text
    assert "takes at least 6 configurations" in said and "What moves which task" in said
    tried = importance.effects[0].configurations
    assert 3 <= tried <= len(importance.points)
    assert f"nothing is seen that the parameter does for that task, in {tried} config" in said


def test_marks_can_be_seen_on_any_paper() -> None:
    from plotly.colors import sample_colorscale

    style = (Path(figures.__file__).parent / "page.css").read_text(encoding="utf-8")
    papers = [tuple(bytes.fromhex(found)) for found in re.findall(r"--paper: #(\w+)", style)]
    assert len(papers) == 3  # light, dark, printed
    for colour in sample_colorscale(figures.SCALE, list(np.linspace(0, 1, 11))):
        mark = tuple(float(part) for part in re.findall(r"[\d.]+", colour))
        for paper in papers:
            low, high = sorted((luminance(mark), luminance(paper)))
            assert (high + 0.05) / (low + 0.05) > 2.3, (colour, paper)


def test_the_digits_of_a_confusion_matrix_can_be_read_on_every_cell(run: Path) -> None:
    style = (Path(figures.__file__).parent / "page.css").read_text(encoding="utf-8")

    def shades_of(name: str) -> list[float]:
        found = re.findall(rf"--{name}: #(\w+)", style)
        return [luminance(tuple(bytes.fromhex(each))) for each in found]

    shades = [shades_of(name) for name in ("ink", "low", "high")]
    assert len(shades[0]) == 3  # light, dark, printed
    for ink, *cells in zip(*shades, strict=True):
        for cell in cells:  # all others lie between these two
            low, high = sorted((ink, cell))
            assert (high + 0.05) / (low + 0.05) > 4.5
    read = load_run(run)
    drawn = [draw_result(result, "") for result in collect_mistakes(read).results]
    traces = [figure.data[0] for figure in drawn if figure is not None]
    first = next(trace for trace in traces if "texttemplate" in trace)
    assert first["textfont"] == {"color": figures.INK}
    assert first["colorscale"] == [[0, "@low@"], [1, "@high@"]]


def luminance(colour: Any) -> float:
    """As the accessibility guidelines for the web have it."""
    parts = np.array(colour) / 255
    parts = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(parts @ [0.2126, 0.7152, 0.0722])


def test_papers_are_shown_for_their_own_tasks_only(page: Page) -> None:
    from tuner.report.published import published_for

    assert "Published scores" not in page.text
    assert [each.preset for each in published_for("cs224n")] == [
        f"paper-00{number}" for number in range(5)
    ]


# --- several runs, and the command --------------------------------------------------------------


def test_two_runs_stand_side_by_side_with_paired_differences(run: Path, place: Path) -> None:
    other = make_run(place, "second", num_samples=3, seed=4, report=True)
    assert (other / "report.html").stat().st_size > 1e6  # written by the search itself
    runs = [load_run(run), load_run(other)]
    (pair,) = collect_comparison(runs).pairs
    assert pair.differences is not None
    scores = [each.summary.best[0].overall for each in runs]
    assert pair.differences.overall.value == pytest.approx(scores[0] - scores[1])
    whole = Page(report_of(runs))
    found = [of["id"] for of in whole.all("section")]
    assert found == ["compare", *(f"run{n}-{name}" for n in (0, 1) for name in SECTIONS)]


def test_runs_of_one_name_are_told_apart_by_their_folders(run: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(run, tmp_path / "again"))
    comparison = collect_comparison([load_run(run), load_run(again)])
    assert [side.name for side in comparison.sides] == [str(run), str(again)]
    (pair,) = comparison.pairs
    assert (pair.first, pair.second) == (str(run), str(again))


def test_moved_data_are_told_to_tensorboard_too(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(
        "tuner.report.write.write_report", lambda *given, **options: run / "ledger.jsonl"
    )
    monkeypatch.setattr(
        "tuner.export.tensorboard.board.rebuild", lambda *given, **more: told.append(more)
    )
    assert main([str(run), "--data", str(tmp_path), "--tensorboard"]) == 0
    assert told == [{"data": tmp_path}]


def test_the_command_writes_the_file_and_says_so(run: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "new" / "page.html"
    assert main([str(run), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"report  {out}  (")
    assert f"trials  {run / 'trials.parquet'}\n" in said and (run / "trials.parquet").is_file()
    assert out.stat().st_size < 12e6


def test_a_run_that_can_only_be_read_has_a_report_all_the_same(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refuse(*given: Any) -> Path:
        raise PermissionError("only to be read")

    monkeypatch.setattr("tuner.report.write.write_report", lambda *given, **more: run / "run.yaml")
    monkeypatch.setattr("tuner.runs.trial_table.write_trials", refuse)
    assert main([str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "loading",
        f"writing the report of {run}",
        f"writing the table of {run}'s trials",
        "no table of trials: only to be read",
    ]


def test_a_report_that_fails_costs_a_search_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    summary = load_run(run).summary

    def broken(*given: Any, **options: Any) -> Path:
        raise ZeroDivisionError("no\nway")

    monkeypatch.setattr("tuner.report.write.write_report", broken)
    assert with_report(run, summary, SearchConsole(quiet=True)) is summary
    said = capsys.readouterr().err
    assert said == f"no report: ZeroDivisionError: no; to try again: python -m tuner.report {run}\n"


def test_the_summary_names_the_report(
    run: Path, html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = load_run(run).summary
    monkeypatch.setattr(
        "tuner.report.write.write_report", lambda *given, **options: run / "report.html"
    )
    console = SearchConsole(quiet=True)
    text = with_report(run, summary, console).text()
    assert re.search(r"^report +.*report\.html$", text, re.MULTILINE)


def test_a_folder_that_is_no_search_is_refused(tmp_path: Path, capsys: Any) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
    with pytest.raises(InputError, match="give the folder of a search"):
        write_report([tmp_path])


def test_the_hypervolume_of_several_objectives_grows() -> None:
    state = RunState(warn=print)
    run = {"version": "1", "name": "x", "num_samples": 3, "seed": 0, "sampler": "random"}
    events: list[dict[str, Any]] = [
        {"event": "run", **run, "resumed": False, "objectives": ["a", "b"]},
    ]
    for number, (a, b) in enumerate([(0.5, 0.5), (0.6, 0.2), (0.4, 0.4)]):
        name, tasks = f"t000{number}", {"a": {"value": a}, "b": {"value": b}}
        point = {"number": number, "params": {}, "settings": {}, "origin": "sampler", "seed": 0}
        events.append({"event": "created", "trial": name, **point})
        scores = {"examples": 1, "score": (a + b) / 2, "tasks": tasks, "values": {"a": a, "b": b}}
        events += [{"event": "evaluated", "trial": name, **scores, "checkpoint": "c"}]
        events += [{"event": "finished", "trial": name}]
    for second, event in enumerate(events):
        state.apply({**event, "time": float(second)})
    finished = sorted(state.ranked(), key=lambda trial: trial.order)
    assert hypervolumes(state, finished) == pytest.approx([0.25, 0.25 + 0.02, 0.27])
