from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from model.common.errors import InputError
from tests.tuner.old_runs import old_run
from tuner.__main__ import main
from tuner.runs.folder import LEDGER, RUN, SPACE, model_folder
from tuner.runs.open import best_model, open_run, require_runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return old_run(tmp_path)


def test_a_run_of_version_0_1_is_opened(run: Path, tmp_path: Path) -> None:
    found = open_run(run, pytest.fail)
    assert (found.name, found.version, found.space.name) == ("v0-1", "0.1.0", "default")
    assert found.request.encoder == "tiny" and found.request.keep == 2
    assert found.fingerprints["encoder"] == "tiny"
    assert found.tasks.name == "sample" and found.goal == "overall" and found.data is None
    assert found.state.events == len(found.events) and found.state.ranked() and not found.notes
    assert open_run(run, data=tmp_path).data == tmp_path


def test_what_can_be_done_without_is_a_note(run: Path) -> None:
    with open(run / LEDGER, "a") as ledger:
        ledger.write('{"event":"crea')
    told: list[str] = []
    found = open_run(run, told.append)
    assert found.notes == told and "the last line is not whole" in told[0]


@pytest.mark.parametrize("file", [RUN, SPACE, LEDGER])
def test_a_folder_that_lacks_a_file_is_no_run(run: Path, file: str) -> None:
    (run / file).unlink()
    with pytest.raises(InputError, match=file):
        open_run(run)


def test_every_folder_that_is_no_run_is_told_at_once(run: Path, tmp_path: Path) -> None:
    require_runs([run])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError) as found:
        require_runs([tmp_path / "nowhere", run, tmp_path / "empty"])
    first, second = found.value.faults
    assert first.startswith(f"{tmp_path}/nowhere: no such folder; give the folder of a search")
    assert second.startswith(f"{tmp_path}/empty: no {LEDGER}, {RUN}, {SPACE} in it; give the")


@pytest.mark.parametrize(
    "command",
    [
        ["soup", "EMPTY"],
        ["report", "EMPTY"],
        ["export", "EMPTY", "--to", "csv"],
        ["push", "EMPTY", "me/films"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_says_the_same_of_a_folder_that_is_no_run(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.replace("EMPTY", str(tmp_path)) for word in command]) == 2
    told = f"no {LEDGER}, {RUN}, {SPACE} in it; give the folder of a search, as runs/default"
    assert capsys.readouterr().err.endswith(f"\n{tmp_path}: 1 problem\n  {told}\n")
    assert not list(tmp_path.iterdir())  # no lock either


def test_the_best_model_is_that_of_the_best_trial_that_still_has_one(run: Path) -> None:
    state = open_run(run).state
    best, second = (trial.id for trial in state.ranked()[:2])
    found = best_model(run, state)
    assert found is not None and found[0] == best
    checkpoint = state.trials[best].chosen(state.objectives)
    assert checkpoint is not None
    assert found[1] == model_folder(run, best, checkpoint["checkpoint"])
    shutil.rmtree(found[1])
    found = best_model(run, state)
    assert found is not None and found[0] == second
    shutil.rmtree(run / "trials")
    assert best_model(run, state) is None
