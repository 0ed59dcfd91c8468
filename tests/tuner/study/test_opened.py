"""What is told of a study that was run before, and of what it lacks: seeds, files, its end."""

from __future__ import annotations

import csv
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.model.cs224n_files import write_cs224n
from tests.tuner import without_ray
from tuner.runs.open import open_run
from tuner.runs.request import ExecutionOptions
from tuner.study import plan
from tuner.study.__main__ import main, make_parser
from tuner.study.opened import open_study
from tuner.study.request import StudyRequest
from tuner.study.run import read_study, run_study

pytestmark = pytest.mark.slow
SET = {"encoder.max_length": 32}
STUDY = """
about: Two ways to encode, and a row that reads a file of the user's.
paper: None (999), table 1
preset: paper-004
examples: 48
rows:
  Inputs: {settings: {pair.encoding: concat}, paper: {sst: .5}}
  Embeddings: {settings: {pair.encoding: bi_concat}, paper: {sst: .4}}
  More films: {settings: {augment.sst: $films}}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(STUDY)
    with open(write_cs224n(tmp_path / "data") / "films.csv", "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["", "id", "sentence", "sentiment"])
        writer.writerows([n, f"p{n}", f"another film {n}", n % 5] for n in range(20))
    return path


def request(study: Path, **more: Any) -> StudyRequest:
    given = {"data": str(study.parent / "data"), "encoder": "tiny", "set": SET, "examples": 40}
    return StudyRequest(**(given | more))


def options(study: Path, **more: Any) -> ExecutionOptions:
    given = {"storage_path": study.parent / "runs", "quiet": True, "report": False}
    given |= {"max_concurrent_trials": 1, "cpus_per_trial": 1}
    return ExecutionOptions(**(given | more))


def fail(patch: pytest.MonkeyPatch, *broken: str) -> None:
    """Trials of these names break as they begin."""
    train = without_ray.train

    def begun(engine: Any, worker: Any) -> None:
        if worker.job.trial in broken:
            engine.failed(worker.job.trial, {"kind": "code", "reason": "it broke"})
        else:
            train(engine, worker)

    patch.setattr(without_ray, "train", begun)


def table(study: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["table", str(study), "--storage-path", str(study.parent / "runs")]) == 0
    return capsys.readouterr().out


def test_a_row_that_lacks_seeds_says_which_failed(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(monkeypatch, "t0002", "t0003")
    with without_ray.without_ray():
        result = run_study(str(study), request(study, seeds=3), options(study))
    assert "- 1 to 3 seeds; dev rows" in result.text
    (said,) = [line for line in result.text.splitlines() if " of 3 seeds" in line]
    label = said.split("'")[1]
    assert said == f"- '{label}' has 1 of 3 seeds; seed 1, 2 failed"
    told = table(study, capsys)
    assert said in told and "not all of it is trained" not in told  # nothing is tried again


def test_a_table_without_an_optional_file_is_whole_and_says_what_it_lacks(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_ray.without_ray():
        result = run_study(str(study), request(study), options(study))
    left_out = "- 'More films' is left out: it needs --file films=PATH"
    assert result.complete and left_out in result.text
    told = table(study, capsys)
    assert left_out in told and "not all of it is trained" not in told
    assert told.strip() == result.text.strip()


def test_a_table_of_half_a_study_says_the_command_that_goes_on(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"films": str(study.parent / "data" / "films.csv")}

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with without_ray.without_ray():
        monkeypatch.setattr(without_ray, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_study(str(study), request(study, seeds=2, file=files), options(study))
    told = table(study, capsys)
    (line,) = [line for line in told.splitlines() if line.startswith("not all of it is trained")]
    words = shlex.split(line.partition(": ")[2].removesuffix(" goes on"))
    typed = make_parser().parse_args(words[3:])
    assert typed.resume and typed.storage_path == str(study.parent / "runs")
    of = open_study(str(study), options(study))
    assert of.request == request(study, seeds=2, tasks=None)
    assert StudyRequest(**{k: v for k, v in vars(typed).items() if k in vars(of.request)}) == (
        of.request
    )


def test_a_study_is_scored_as_often_as_its_paper_and_what_has_begun_as_before(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "APART", 40)

    def scored(**more: Any) -> set[int]:
        with without_ray.without_ray():
            result = run_study(str(study), request(study, examples=240), options(study, **more))
        trials = open_run(result.folders[0]).state.trials.values()
        return {len(trial.evaluations) for trial in trials}

    fail(monkeypatch, "t0001")
    assert scored(name="before") == {0, 3}
    study.write_text(STUDY.replace("rows:", "evaluations: 5\nrows:"))
    assert scored(name="before", resume=True) == {0, 3}
    assert scored(name="after") == {0, 5}
    assert scored(name="after", resume=True) == {0, 5}
    of = open_study(str(study), options(study, name="after"))
    assert "--evaluations" not in (of.again(str(study), options(study)) or "")


LENGTHS = """
about: One row, and one that trains a model for each task, longer.
paper: None (999), table 1
preset: paper-004
examples: 48
rows:
  All: {settings: {pair.encoding: concat}, paper: {sst: .5}}
  Alone: {apart: true, examples: {sst: 96, para: 480, sts: 60}, paper: {sst: .4}}
"""


def test_where_its_length_cannot_be_told_no_command_is_made_up(study: Path) -> None:
    """The first search is as long with `--examples 40` as with a scale, the others are not."""
    study.write_text(LENGTHS)
    with without_ray.without_ray():
        run_study(str(study), request(study), options(study))
    whole = open_study(str(study), options(study))
    assert whole.sure and whole.request.examples == 40
    for _, run in whole.done[1:]:
        shutil.rmtree(run.folder)
    of = open_study(str(study), options(study))
    assert not of.sure and of.again(str(study), options(study)) is None
    found = read_study(str(study), options(study))
    assert not found.complete and found.again == "the same command with --resume"


def test_an_encoder_that_was_set_is_named_once(study: Path) -> None:
    given = request(study, encoder=None, set={**SET, "encoder.name": "tiny"})
    with without_ray.without_ray():
        run_study(str(study), given, options(study))
    words = shlex.split(open_study(str(study), options(study)).again("x", options(study)) or "")
    assert "--encoder" not in words and "encoder.name=tiny" in words
