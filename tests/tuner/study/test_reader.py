"""Study files: what they say, and how faults are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.common.errors import InputError
from model.config.parse import Layer, parse_layers
from model.tasks.task_set import load_task_set
from tuner.study.grid import expand
from tuner.study.plan import evaluations_of
from tuner.study.reader import load_study, shipped_studies
from tuner.study.show import list_text, show_text

ROOT = Path(__file__).parents[3]
CS224N = load_task_set("cs224n")
FILES = {"wiki": "/wiki.txt", "wiki256": "/wiki256.txt", "paraphrases": "/paraphrases.csv"}
GOOD = """
about: a try
paper: a paper, table 1
examples: 1000
held: {smart.weight: 0}
rows:
  one: {settings: {smart.weight: 1}, paper: {sst: .5}}
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_every_study_in_the_folder_is_shipped() -> None:
    assert sorted(shipped_studies()) == sorted(p.stem for p in (ROOT / "studies").glob("*"))
    assert len(shipped_studies()) == 30


@pytest.mark.parametrize(
    ("wanted", "length", "scored"),
    [(10, 180_000, 10), (10, 9000, 9), (10, 3999, None), (2, 50, 2), (None, 180_000, None)],
)
def test_a_study_is_scored_as_often_as_it_says_where_there_is_room(
    tmp_path: Path, wanted: int | None, length: int, scored: int | None
) -> None:
    said = "" if wanted is None else f"evaluations: {wanted}\n"
    assert evaluations_of(load_study(written(tmp_path, said + GOOD)), length) == scored


def test_every_study_has_its_row_in_the_page_and_none_says_cannot() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    rows = [line.split("|")[3] for line in page.splitlines() if line.count("|") == 6]
    named = {name for row in rows for name in re.findall(r"(?:run|report of) (\d{3}-[a-z-]+)", row)}
    assert named == set(shipped_studies())
    assert len(rows) > 50 and not any("cannot" in row for row in rows)


@pytest.mark.parametrize("encoder", [None, "minilm"])
@pytest.mark.parametrize("name", shipped_studies())
def test_every_row_of_every_study_is_a_valid_run(name: str, encoder: str | None) -> None:
    study, notes = load_study(name), list[str]()
    layers = 6 if encoder else None
    parts = expand(study, CS224N, encoder, layers, FILES, notes)
    for part in parts:
        for point in part.points():
            config = parse_layers([Layer(part.held), Layer(point)], CS224N)
            assert config.encoder.name == (encoder or "bert-base-uncased")
            if layers:
                used = [*(config.encoder.train_layers or ())]
                used += [n for of in config.optim.layer_scale.layers.values() for n in of]
                assert all(layer < layers for layer in used)
    trained = {training.row for part in parts for training in part.trainings}
    assert trained == {row.label for row in study.rows if row.runs and not row.ensemble}
    assert study.row(study.against).runs


@pytest.mark.parametrize("name", shipped_studies())
def test_the_papers_overall_scores_are_those_of_its_tasks(name: str) -> None:
    for row in load_study(name).rows:
        if {"sst", "para", "sts", "overall"} <= row.paper.keys():
            p = row.paper
            overall = (p["sst"] + p["para"] + (1 + p["sts"]) / 2) / 3
            # To the digit, but for what the papers themselves have rounded or mistaken.
            assert p["overall"] == pytest.approx(overall, abs=0.0025), row.label


def test_list_and_show_tell_of_every_study() -> None:
    lines = list_text().splitlines()
    assert [line.split()[0] for line in lines] == sorted(shipped_studies())
    told = show_text("002-sampling")
    assert "starts from the model of 'Quora alone para'" in told
    assert "paper: sst .518, para .881, sts .900, overall .783" in told
    assert "optim.learning_rate: 1e-05" in told
    assert "mean of greedy 7 models by task the better counting more" in show_text("003-ensembles")
    assert "quoted by the paper: nothing to train" in show_text("000-baselines")
    told = show_text("004-orders")
    assert "examples: sst 85,440, para 2,830,000, sts 60,400" in told
    assert "examples: 2,976,000" in told and "paper also: best epoch 8" in told


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    text = """
about: a try
exampels: 7
rows:
  one: {settings: [], paper: {sst: 51}}
  two: {ensemble: {rule: sum, models: 0}, settings: {smart.weight: 1}}
  three: {}
  four: {apart: 3}
  five: {settings: {}, examples: 0}
  six: {settings: {}, examples: {sst: 9}, paper_also: fast}
"""
    with pytest.raises(InputError) as told:
        load_study(written(tmp_path, text))
    faults = "\n".join(told.value.faults)
    for words in (
        "'exampels' is not a setting; did you mean 'examples'?",
        "'paper' is missing",
        "'examples' must be a whole number above 0",
        "'settings' must be a mapping of settings",
        "'paper' has 51 for sst; scores are from -1 to 1",
        "'rule' is 'sum'",
        "'models' must be a whole number from 1 on, but is 0",
        "is empty; give settings",
        "'apart' must be true, or a list of tasks, but is 3",
        "'examples' must be whole numbers above 0, but is 0",
        "'examples' of each task are for a row that is 'apart'",
        "'paper_also' must be a mapping, but is 'fast'",
    ):
        assert words in faults


def test_an_unknown_study_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean '004-orders'"):
        load_study("004-order")


def test_a_row_that_no_other_can_be_compared_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'against' names no row"):
        load_study(written(tmp_path, GOOD + "against: two\n"))
    bad = GOOD + "  two: {settings: {loss.sst: ordinal_log}}\n  three: {start: nobody}\n"
    with pytest.raises(InputError) as told:
        expand(load_study(written(tmp_path, bad)), CS224N, None, None, {}, [])
    assert "two: 'loss.sst' needs a value in held for the other rows" in told.value.faults
    assert any("three: 'start' names no row" in fault for fault in told.value.faults)
