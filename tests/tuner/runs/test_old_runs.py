"""A run's folder as version 0.1 left it, interrupted: it opens, answers, reports and goes on.

A search on `sample` with the tiny encoder, asked for four trials: two have finished, and the third
was stopped with its state saved after two of three evaluations. Its soups were made afterwards.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tuner.search_runs import curves_of, events, open_study, run_here, state_of

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("old")
    with tarfile.open(FIXTURES / "run-0.1.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place / "v0-1"


@pytest.fixture
def old(unpacked: Path, tmp_path: Path) -> Path:
    """The run by itself, to do anything with."""
    return Path(shutil.copytree(unpacked, tmp_path / "v0-1"))


def soup_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "soup" / "soup.json").read_text())
    return found


def test_its_ledger_and_its_request_are_read(old: Path) -> None:
    from tuner.runs.folder import read_run
    from tuner.runs.request import SearchRequest

    assert "asked" in yaml.safe_load((old / "run.yaml").read_text())
    request = SearchRequest.from_dict(read_run(old)["request"])
    assert (request.encoder, request.num_samples, request.keep) == ("tiny", 4, 2)
    assert request.set == {"budget.eval_rows": 40}
    state = state_of(old)
    assert state.ended == "interrupted"
    assert state.counts() == {"open": 1, "finished": 2, "stopped": 0, "failed": 0}
    assert [trial.id for trial in state.open_trials if trial.paused] == ["t0002"]
    assert [trial.id for trial in state.ranked()] == ["t0001", "t0000"]


def test_its_summary_is_that_of_its_trials(old: Path) -> None:
    from tuner.scoring.summarise import summarise
    from tuner.space.space import load_space

    space = load_space(str(old / "space.yaml"))
    summary = summarise(state_of(old), old, space.task_set)
    assert [row.trial for row in summary.best] == ["t0001", "t0000"]
    assert "search v0-1 on sample" in summary.text()
    assert (summary.places["best model"] / "model.safetensors").is_file()


def test_it_is_reported_with_its_soup(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tuner.report.__main__ import main

    assert main([str(old), "--tensorboard"]) == 0, capsys.readouterr().err
    page = (old / "report.html").read_text(encoding="utf-8")
    for part in ('id="answer"', 'id="history"', 'id="soup"', "greedy soup", "t0001"):
        assert part in page


@pytest.mark.parametrize("model", ["", "soup", "soups/greedy-ensemble", "trials/t0000"])
def test_its_models_answer(old: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    from tuner.predict.__main__ import main

    assert main([str(old / model), "--text", "what a lovely film"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("sentiment: ")
    assert said.err.splitlines()[-1].startswith("answered by ")
    recommended = soup_of(old)["recommended"]
    assert model or f"the {recommended}" in said.err and "the search recommends" in said.err


def test_its_soup_is_made_again_with_the_same_scores(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tuner.soup.__main__ import main

    before = {each["name"]: each for each in soup_of(old)["methods"]}
    shutil.rmtree(old / "soup")
    shutil.rmtree(old / "soups")
    assert main([str(old), "--quiet"]) == 0, capsys.readouterr().err
    after = {each["name"]: each for each in soup_of(old)["methods"]}
    assert set(after) >= set(before)
    for name in ("best single", "greedy soup", "uniform soup"):
        assert after[name]["members"] == before[name]["members"]
        known = before[name]["score"]
        assert after[name]["score"] == pytest.approx(known, abs=1e-6)
    assert (old / "soup" / "model.safetensors").is_file()


@pytest.mark.slow
def test_it_goes_on_by_force_from_where_it_was(old: Path) -> None:
    # The packages are this machine's: only the code is what has changed since.
    from tuner.runs.folder import PACKAGES, _version

    run = yaml.safe_load((old / "run.yaml").read_text())
    run["fingerprints"]["packages"] = {name: _version(name) for name in PACKAGES}
    (old / "run.yaml").write_text(yaml.safe_dump(run))
    ledger, curves = (old / "ledger.jsonl").read_bytes(), curves_of(old)
    since = len(events(old))

    again = ("--resume", "--name", "v0-1", "--no-soup", "--no-report")
    refused = run_here(old.parent, *again)
    assert refused.returncode == 2
    assert "the code changed" in refused.stderr and "--force" in refused.stderr
    assert "problems" not in refused.stderr  # it is the only one
    assert (old / "ledger.jsonl").read_bytes() == ledger

    done = run_here(old.parent, *again, "--force")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 configurations" in done.stdout
    state = state_of(old)
    assert list(state.trials) == ["t0000", "t0001", "t0002", "t0003"]
    assert state.counts()["open"] == 0
    after = curves_of(old)
    assert {name: after[name][: len(of)] for name, of in curves.items()} == curves
    assert (old / "ledger.jsonl").read_bytes().startswith(ledger)
    # The third went on from its checkpoint: one more evaluation, and none of them twice.
    new = [e for e in events(old)[since:] if e.get("trial") == "t0002"]
    assert [e["examples"] for e in new if e["event"] == "evaluated"] == [480]
    assert not {e["trial"] for e in events(old)[since:] if e["event"] == "started"} - {
        "t0002",
        "t0003",
    }
    assert len(open_study(old).trials) == 4
    assert yaml.safe_load((old / "run.yaml").read_text())["request"]["num_samples"] == 4
