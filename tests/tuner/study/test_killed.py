"""What a study survives: the command in a process of its own, killed in and between searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forks import Fork
from tests.model.cs224n_files import write_cs224n
from tests.tuner.moments import Moment, hold_at
from tests.tuner.search_runs import Started, curves_of, events, state_of, weights_of
from tests.tuner.without_ray import without_ray
from tuner.runs.request import ExecutionOptions
from tuner.study.__main__ import main
from tuner.study.request import StudyRequest
from tuner.study.run import StudyResult, run_study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("scratch")]
NAME, SET = "mine", {"encoder.max_length": 32}
STUDY = """
about: Two searches, as one row is longer than the others.
paper: None (999), table 1
preset: paper-004
examples: 48
rows:
  Inputs: {settings: {pair.encoding: concat}}
  Embeddings: {settings: {pair.encoding: bi_concat}}
  Longer: {settings: {pair.encoding: concat}, examples: 96}
"""


def start(study: Path, data: Path, storage: Path, moment: Moment, *flags: str) -> Started:
    words = ["run", str(study), "--data", str(data), "--encoder", "tiny"]
    words += ["--set", "encoder.max_length=32", "--storage-path", str(storage), "--no-report"]
    words += ["--max-concurrent-trials", "1", "--cpus-per-trial", "1", *flags]

    def work() -> int:
        hold_at(moment)
        with without_ray():
            return main(words)

    return Started(Fork(work), storage / NAME, 0)


def finish(study: Path, data: Path, storage: Path, *, resume: bool) -> StudyResult:
    request = StudyRequest(data=str(data), encoder="tiny", set=SET)
    options = ExecutionOptions(
        storage_path=storage,
        resume=resume,
        quiet=True,
        report=False,
        max_concurrent_trials=1,
        cpus_per_trial=1,
    )
    with without_ray():
        return run_study(str(study), request, options)


def test_a_study_killed_within_and_between_its_searches_ends_like_one_left_alone(
    tmp_path: Path,
) -> None:
    data = write_cs224n(tmp_path / "data")
    study = tmp_path / f"{NAME}.yaml"
    study.write_text(STUDY)
    storage = tmp_path / "killed"
    within, between, second = Moment("evaluated"), Moment("end"), Moment("evaluated")
    for number, moment in enumerate((within, between, second)):
        killed = start(study, data, storage, moment, *(["--resume"] if number else []))
        killed.wait_until_held()
        killed.kill()
        assert len(list(storage.glob("*/ledger.jsonl"))) == (2 if moment is second else 1)
    result = finish(study, data, storage, resume=True)
    undisturbed = finish(study, data, tmp_path / "alone", resume=False)
    assert result.complete and undisturbed.complete
    assert [f.name for f in result.folders] == [f.name for f in undisturbed.folders]
    assert len(result.folders) == 2
    for found, known in zip(result.folders, undisturbed.folders, strict=True):
        closed = [e["trial"] for e in events(found) if e["event"] == "finished"]
        assert sorted(closed) == sorted(state_of(known).trials)
        assert curves_of(found) == curves_of(known) and weights_of(found) == weights_of(known)
