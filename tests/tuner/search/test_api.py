from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import pytest

import tuner
from tests.tuner.made_up_runs import begin, close, create, evaluate
from tuner.engine.study import AUTO, SAMPLERS, TASK_GP
from tuner.runs.ledger import Ledger
from tuner.runs.request import ExecutionOptions, SamplerName, SearchRequest
from tuner.search import api
from tuner.search.api import run_search
from tuner.search.finish import SearchResult


def table() -> dict[str, Any]:
    """Every flag's default by its name, in the order of the tables."""
    return {
        item.name: item.default if item.default is not MISSING else {}
        for each in (SearchRequest, ExecutionOptions)
        for item in fields(each)
        if item.name != "remote"
    }


def test_the_parameters_and_their_defaults_are_those_of_the_flags() -> None:
    found = inspect.signature(run_search).parameters
    assert {name: each.default for name, each in found.items()} == table()
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in found.values())


def test_the_docstring_tells_every_parameter() -> None:
    told = [line.split(":")[0].strip() for line in (run_search.__doc__ or "").splitlines()]
    assert sorted(name for name in told if name in table()) == sorted(table())


def test_the_samplers_are_those_that_there_are() -> None:
    assert set(get_args(SamplerName)) == {AUTO, TASK_GP, *SAMPLERS}


def test_on_resume_a_default_that_is_given_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.runs.folder import write_run

    asked: list[SearchRequest] = []
    monkeypatch.setattr(api, "search", lambda request, options: asked.append(request))
    (tmp_path / "mine").mkdir()
    request = SearchRequest(num_samples=4, sampler="random", keep=9)
    write_run(tmp_path / "mine", request.to_dict(), {})
    run_search(storage_path=tmp_path, name="mine", resume=True, num_samples=8)
    run_search(storage_path=tmp_path, name="mine", resume=True)
    run_search(storage_path=tmp_path, name="mine")
    assert [(each.num_samples, each.sampler, each.keep) for each in asked] == [
        (8, "random", 9),
        (4, "random", 9),
        (None, "auto", 5),
    ]


def test_arguments_go_by_name() -> None:
    from model.common.errors import InputError

    with pytest.raises(InputError, match="by its name"):
        run_search("full")  # type: ignore[misc]


def test_the_package_has_its_functions_without_loading_them() -> None:
    code = "import sys, tuner; print(sorted(m for m in ('torch', 'ray', 'numpy', 'tuner.search') "
    code += "if m in sys.modules)); print(*dir(tuner))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", " ".join(tuner.__all__)]
    assert all(callable(getattr(tuner, name)) for name in tuner.__all__)
    assert tuner.__all__ == sorted(tuner.PLACES)
    with pytest.raises(AttributeError, match="no attribute 'run_serach'"):
        tuner.run_serach  # noqa: B018


def test_a_result_is_short_to_read_and_has_a_frame(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger)
        result = SearchResult(tmp_path, ledger.state, None, None)  # type: ignore[arg-type]
        assert repr(result) == f"SearchResult('{tmp_path}': no trials; best: None)"
        for score in (0.5, 0.75):
            trial = create(ledger)
            evaluate(ledger, trial, 100, score)
            close(ledger, trial, "finished")
        create(ledger)
    assert result.best is ledger.state.trials["t0001"]
    best = "TrialState(t0001, score 0.750, 100 examples)"
    assert repr(result) == f"SearchResult('{tmp_path}': 2 finished, 1 running; best: {best})"
    frame = result.dataframe()
    assert list(frame["trial"]) == ["t0000", "t0001", "t0002"]
    assert frame.set_index("trial").loc["t0001", "score_overall"] == 0.75
