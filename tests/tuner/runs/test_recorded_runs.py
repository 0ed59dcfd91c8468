"""A run's folder of each format that there was: opened, read as a table, and gone on with.

`test_old_runs.py` has more about that of version 0.1. That called 0.2 is of its ledger, shortly
before the release: three trials of 480 examples, all finished, the best two kept. Of 0.2.0 it is a
search on `sample` with the tiny encoder: three configurations that went on from rung to rung, two
of them to the end, and a soup; then a fourth, interrupted. Its pictures and two older models of
t0000 were left out.
"""

from __future__ import annotations

import json
import math
import tarfile
from pathlib import Path

import pytest
import yaml

from model.common.errors import InputError
from tests.tuner.made_up_runs import begin, create
from tests.tuner.search_runs import curves_of, run_here, state_of
from tuner.predict.predictor import load_predictor
from tuner.report.write import write_report
from tuner.runs.ledger import Ledger, check_ledger
from tuner.runs.open import best_model, open_run
from tuner.runs.request import ExecutionOptions
from tuner.runs.trial_table import trial_table
from tuner.search.checks import refuse_or_allow

FIXTURES = Path(__file__).parents[2] / "fixtures"
FINISHED = {"0.1": 2, "0.2": 3, "0.2.0": 2}


def fail(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture(params=FINISHED)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    version: str = request.param
    return version, unpack(version, tmp_path)


def unpack(version: str, place: Path) -> Path:
    with tarfile.open(FIXTURES / f"run-{version}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place / f"v{version.replace('.', '-')}"


def test_it_opens_without_a_word_and_goes_on(recorded: tuple[str, Path]) -> None:
    version, folder = recorded
    check_ledger(folder / "ledger.jsonl")
    refuse_or_allow(folder, ExecutionOptions(resume=True))
    run = open_run(folder, fail)
    assert run.state.counts()["finished"] == FINISHED[version]
    assert best_model(folder, run.state) is not None
    table = trial_table(run.state)
    assert table["status"].to_pylist().count("finished") == FINISHED[version]
    before = (folder / "ledger.jsonl").read_bytes()
    epoch, starts = run.state.epoch, run.state.starts
    with Ledger(folder / "ledger.jsonl", fail) as ledger:
        begin(ledger, resumed=True, epoch=epoch + 1)
        create(ledger)
        assert ledger.state.epoch == epoch + 1
    assert (folder / "ledger.jsonl").read_bytes().startswith(before)
    assert open_run(folder, fail).state.starts == starts + 1


def test_the_lines_of_02_are_chained(tmp_path: Path) -> None:
    ledger = unpack("0.2.0", tmp_path) / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    told = [json.loads(line) for line in lines]
    assert [line["line"] for line in told] == list(range(1, len(lines) + 1))
    assert [line["before"] for line in told] == ["0" * 8, *(line["crc"] for line in told[:-1])]
    ledger.write_bytes(b"".join(lines[:5] + lines[6:]))
    with pytest.raises(InputError, match="line 6: does not follow the line before it"):
        check_ledger(ledger)


def test_it_predicts_and_has_a_report(recorded: tuple[str, Path]) -> None:
    _, folder = recorded
    predictor = load_predictor(folder)
    (answer,) = predictor.predict("sentiment", ["never dull, often moving"])
    assert answer.probabilities is not None
    assert math.isclose(sum(answer.probabilities), 1, abs_tol=1e-3)
    page = write_report([folder])
    assert page.stat().st_size > 100_000 and b"</html>" in page.read_bytes()[-200:]


@pytest.mark.slow
def test_a_run_of_02_goes_on_from_where_it_was_interrupted(tmp_path: Path) -> None:
    from tuner.runs.folder import PACKAGES, _version

    folder = unpack("0.2.0", tmp_path)
    run = yaml.safe_load((folder / "run.yaml").read_text())
    run["fingerprints"]["packages"] = {name: _version(name) for name in PACKAGES}
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    before = curves_of(folder)
    assert state_of(folder).ended == "interrupted" and len(state_of(folder).open_trials) == 1
    more = ("--resume", "--force", "--name", "v0-2-0", "--no-soup", "--no-report")
    done = run_here(tmp_path, *more)
    assert done.returncode == 0, done.stderr
    state = state_of(folder)
    assert state.ended == "complete" and not state.open_trials
    after = curves_of(folder)
    assert all(after[name][: len(curve)] == curve for name, curve in before.items())
