"""To csv and parquet, and how the command goes about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.tuner.export.trackers.runs import recorded
from tuner.export.__main__ import TOOLS, main
from tuner.export.trackers.destination import needed


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_two_tables_with_a_row_per_trial_and_per_value(run: Path, kind: str) -> None:
    assert main([str(run), "--to", kind]) == 0
    read = pyarrow.csv.read_csv if kind == "csv" else pyarrow.parquet.read_table
    trials = read(run / "export" / f"trials.{kind}").to_pylist()
    curves = read(run / "export" / f"curves.{kind}").to_pylist()
    assert [row["trial"] for row in trials] == ["t0000", "t0001", "t0002"]
    overall = [row for row in curves if row["name"] == "dev/overall"]
    assert [row["examples"] for row in overall if row["trial"] == "t0000"] == [192, 336, 480]
    assert len(overall) == 9
    before = (run / "export" / f"curves.{kind}").read_bytes()
    assert main([str(run), "--to", kind]) == 0
    assert (run / "export" / f"curves.{kind}").read_bytes() == before


def test_what_it_did_is_said_in_a_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "--to", "csv"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 trials, 9 evaluations in ") and "trials.csv" in said


def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--to", "csv"]) == 2
    assert "give the folder of a search" in capsys.readouterr().err
    assert main([str(tmp_path), "--to", "paper"]) == 2
    said = capsys.readouterr().err
    assert all(tool in said for tool in TOOLS)


def test_a_missing_package_is_a_sentence_with_the_command() -> None:
    with pytest.raises(ValueError, match="is not installed") as refused:
        needed("no_such_tracker", "mlflow")
    assert "pip install '.[mlflow]'" in str(refused.value)


def test_a_search_and_an_export_to_tables_load_no_tracker(run: Path) -> None:
    code = "import sys; from tuner.export.__main__ import main; import tuner.search.driver\n"
    code += f"main([{str(run)!r}, '--to', 'csv', '--quiet'])\n"
    code += "print([m for m in ('mlflow', 'wandb', 'trackio', 'aim') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "[]", done.stderr
