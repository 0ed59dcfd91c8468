"""A run's folder of each format that there was: opened, read as a table, and gone on with.

`test_old_runs.py` has more about that of version 0.1. Of 0.2 it is a search on `sample` with the
tiny encoder: three trials of 480 examples, all finished, the best two kept.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from model.common.errors import InputError
from tests.tuner.made_up_runs import begin, create
from tests.tuner.search_runs import curves_of, run_here, state_of
from tuner.runs.ledger import Ledger, check_ledger
from tuner.runs.open import best_model, open_run
from tuner.runs.request import ExecutionOptions
from tuner.runs.trial_table import trial_table
from tuner.search.checks import refuse_or_allow

FIXTURES = Path(__file__).parents[2] / "fixtures"
FINISHED = {"0.1": 2, "0.2": 3}


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
    with Ledger(folder / "ledger.jsonl", fail) as ledger:
        begin(ledger, resumed=True, epoch=ledger.state.epoch + 1)
        create(ledger)
        assert ledger.state.epoch == 2
    assert (folder / "ledger.jsonl").read_bytes().startswith(before)
    assert open_run(folder, fail).state.starts == 2


def test_the_lines_of_02_are_chained(tmp_path: Path) -> None:
    ledger = unpack("0.2", tmp_path) / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    told = [json.loads(line) for line in lines]
    assert [line["line"] for line in told] == list(range(1, len(lines) + 1))
    assert [line["before"] for line in told] == ["0" * 8, *(line["crc"] for line in told[:-1])]
    ledger.write_bytes(b"".join(lines[:5] + lines[6:]))
    with pytest.raises(InputError, match="line 6: does not follow the line before it"):
        check_ledger(ledger)


@pytest.mark.slow
def test_a_run_of_02_is_extended(tmp_path: Path) -> None:
    from tuner.runs.folder import PACKAGES, _version

    folder = unpack("0.2", tmp_path)
    run = yaml.safe_load((folder / "run.yaml").read_text())
    run["fingerprints"]["packages"] = {name: _version(name) for name in PACKAGES}
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    before = curves_of(folder)
    more = ("--resume", "--force", "--name", "v0-2", "--num-samples", "4", "--no-soup")
    done = run_here(tmp_path, *more, "--no-report")
    assert done.returncode == 0, done.stderr
    assert state_of(folder).counts() == {"open": 0, "finished": 4, "stopped": 0, "failed": 0}
    assert {name: curves_of(folder)[name] for name in before} == before
