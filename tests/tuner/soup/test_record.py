from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from tests.tuner.old_runs import old_run
from tests.tuner.soup_runs import made_up_method, made_up_soup, write_record
from tuner.scoring.crossfit import Difference
from tuner.soup.methods import METHODS
from tuner.soup.record import CrossFittedScore, StepRecord, read_soup, slug


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    assert read_soup(tmp_path) is None
    method = made_up_method(
        "mean",
        "predictions",
        members={"mood": ["t0001/step-1"]},
        weights={"mood": [2.0]},
        difference=Difference(0.1, -0.1, 0.2),
        cross_fitted=CrossFittedScore(0.5, 0.4, 0.6, 0.01, 20),
    )
    soup = made_up_soup(methods=[method], steps=[StepRecord("t0001/step-1", 1, None, True, 0)])
    write_record(tmp_path, soup)
    assert read_soup(tmp_path) == soup
    written = json.loads((tmp_path / "soup/soup.json").read_text())
    assert written["format"] == 1 and written["methods"][0]["difference"]["tie"] is True


@pytest.mark.parametrize(
    ("known", "trial"),
    [
        ({"members": ["t0001/step-1"]}, "t0001"),
        ({"members": ["t0001/step-1", "t0001/step-2"]}, "t0001"),
        ({"members": ["t0001/step-1", "t0002/step-1"]}, None),
        ({"members": {"mood": ["t0001/step-1"], "near": ["t0002/step-1"]}}, None),
        ({"members": ["t0001/step-1"], "heads": {"mood": "t0002/step-1"}}, None),
    ],
)
def test_the_recommended_model_may_be_of_a_single_trial(
    known: dict[str, Any], trial: str | None
) -> None:
    taken, other = made_up_method("taken", "weights", **known), made_up_method("other", "single")
    assert made_up_soup(methods=[other, taken], recommended="taken").single == trial
    assert made_up_soup(methods=[other], recommended="taken").single is None


def test_a_soup_of_version_0_1_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    run = old_run(tmp_path)
    soup = read_soup(run)
    assert soup is not None and {each.name for each in soup.methods} < set(METHODS)
    before = json.loads((run / "soup/soup.json").read_text())
    assert json.loads(soup.to_json()) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time": "noon"}, "noon"),
        ({"candidates": 1.5}, "1.5"),
        ({"groups": [[3]]}, "3"),
        ({"steps": [{"ingredient": "x"}]}, "score"),
        ({"methods": [{}]}, "name"),
        ({"recommended": None}, "None"),
    ],
)
def test_a_soup_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    write_record(tmp_path, made_up_soup(methods=[]))
    path = tmp_path / "soup/soup.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=rf"lacks or garbles .*{said}.*make it again"):
        read_soup(tmp_path)


def test_a_name_from_a_file_cannot_lead_elsewhere() -> None:
    assert slug("../../etc") == "etc" and slug("..") == slug("") == "soup"
    assert slug("best per task") == "best-per-task"
