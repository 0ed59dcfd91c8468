from __future__ import annotations

from pathlib import Path

import pytest

from tuner.cluster.__main__ import main
from tuner.cluster.file import check_file

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "docs" / "clusters" / "slurm.sbatch"


def filled_in() -> str:
    text = SHIPPED.read_text(encoding="utf-8")
    return text.replace("=PARTITION", "=gpu").replace("/path/to/shared", "/nfs/us")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.sbatch"
    path.write_text(filled_in(), encoding="utf-8")
    return path


def test_the_shipped_script_is_clean_once_it_is_filled_in(mine: Path) -> None:
    assert check_file(mine, shared=True) == []
    assert main(["check", str(mine), "--shared"]) == 0


def test_what_must_be_changed_is_a_fault_with_its_line() -> None:
    faults = check_file(SHIPPED, shared=True)
    lines = SHIPPED.read_text().splitlines()
    marked = [n for n, line in enumerate(lines, 1) if line.startswith("# CHANGE")]
    assert [int(fault.split()[1].rstrip(":")) for fault in faults] == [n + 1 for n in marked]


# what is written instead of what, and what is said about it
BAD = {
    "a misspelt option": ("--cpus-per-task", "--cpu-per-task", "did you mean 'cpus-per-task'?"),
    "an option without its value": ("--nodes=2", "--nodes", "'--nodes' needs a value"),
    "a directive that sbatch does not read": (
        "NAME=big\n",
        "NAME=big\n#SBATCH --nice=5\n",
        "line 26: sbatch reads no '#SBATCH' after the first command",
    ),
    "several Rays on a node": ("ntasks-per-node=1", "ntasks-per-node=4", "once on each node"),
    "a node with others": ("#SBATCH --exclusive\n", "", "write #SBATCH --exclusive"),
    "the site's memory": ("#SBATCH --mem=0\n", "", "write #SBATCH --mem=0 for all"),
    "several heads": ('--min-nodes "$SLURM_JOB_NUM_NODES"', "", "may take itself for the head"),
    "one node alone": ("srun --wait=30 ", "env ", "begin it with srun"),
    "one core": (' --cpus-per-task="$SLURM_CPUS_PER_TASK"', "", "so Ray may have one core"),
    "a trap that waits": ("wait", "true", "when the command in the foreground has ended"),
    "a quote": ("--job-name=stockpot", "--job-name=it's", "line 5: a quote that does not end"),
    "no Ray": ("symmetric-run", "status", "nothing starts Ray on them"),
    "a signal for all": ("B:USR1@300", "USR1@300", "write --signal=B:USR1@300"),
    "no signal": ("#SBATCH --signal=B:USR1@300\n", "", "its last steps are lost"),
    "no trap": ("trap 'again=yes; stop' USR1\n", "", "no trap takes USR1"),
    "a run begun again": ("SEARCH+=(--resume)", "true", "add --resume where the run is there"),
    "a log written over": ("--open-mode=append", "--open-mode=truncate", "writes over its log"),
    "no token": ("RAY_AUTH_MODE=token", "RAY_AUTH_MODE=disabled", "starts without a token"),
    "an open dashboard": ("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0", "is open on"),
    "a disk of its own": ("SHARED=/nfs/us", "SHARED=/tmp/us", "'/tmp/us/runs' is on each node's"),
    "another version": ("again=\n", "pip install ray==2.9.0\nagain=\n", "'ray==2.9.0' is not"),
    "bad shell": ('exit "$code"', 'exit "$code', "line 5"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(name: str, mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, message = BAD[name]
    text = mine.read_text()
    assert old in text
    mine.write_text(text.replace(old, new))
    assert main(["check", str(mine), "--shared"]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_must_be_said_to_be_shared_where_there_are_several_nodes(mine: Path) -> None:
    (fault,) = check_file(mine)
    assert "storage '/nfs/us/runs' may be a folder of its own on each node" in fault
    mine.write_text(mine.read_text().replace("--nodes=2", "--nodes=1"))
    assert check_file(mine) == []
    mine.write_text(filled_in().replace('"$SHARED/runs" --name', "s3://ours/runs --name"))
    assert check_file(mine) == []
    (fault,) = check_file(mine, "/dev/shm/runs", shared=True)
    assert "'/dev/shm/runs' is on each node's own disk" in fault


def test_a_signal_may_be_given_by_its_number(mine: Path) -> None:
    mine.write_text(mine.read_text().replace("B:USR1@300", "B:10@300"))
    assert check_file(mine, shared=True) == []


def test_short_options_are_known_by_their_long_names(mine: Path) -> None:
    text = mine.read_text().replace("--nodes=2", "-N 2 -c8").replace("--cpus-per-task=8", "-t 1:0")
    mine.write_text(text)
    assert check_file(mine, shared=True) == []
    assert len(check_file(mine)) == 1  # so it has seen that there are two
