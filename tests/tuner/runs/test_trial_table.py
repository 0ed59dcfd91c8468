from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests.tuner.made_up_runs import begin, close, create, evaluate
from tuner.runs.ledger import Ledger, read_events
from tuner.runs.state import RunState
from tuner.runs.trial_table import trial_table, write_trials

OLD = Path(__file__).parents[2] / "fixtures" / "run-0.1.tar.gz"


def lived(folder: Path) -> RunState:
    """One trial of each end, a repeat, and one that has only begun."""
    folder.mkdir(exist_ok=True)
    with Ledger(folder / "ledger.jsonl") as ledger:
        begin(ledger)
        for how in ("finished", "stopped", "failed"):
            trial = create(ledger, origin="sampler")
            if how != "failed":
                evaluate(ledger, trial, 100, 0.5, mood=0.6, near=0.4)
                evaluate(ledger, trial, 200, 0.4, mood=0.5, near=0.3)
            close(ledger, trial, how)
        create(ledger, params={"rate": "auto", "deep": True}, settings={})
        ledger.append("removed", trial="t0001", checkpoints=["c000100"])
        create(ledger, number=None, origin="confirm", of="t0000", seed=7)
    return ledger.state


def rows(state: RunState) -> dict[str, dict[str, Any]]:
    return {row["trial"]: row for row in trial_table(state).to_pylist()}


def test_every_trial_has_a_row_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    found = rows(lived(tmp_path))
    assert list(found) == ["t0000", "t0001", "t0002", "t0003", "t0004"]
    first = found["t0000"]
    assert (first["status"], first["examples"], first["scored_at"]) == ("finished", 200, 100)
    assert (first["score_overall"], first["low_overall"], first["high_overall"]) == (0.5, 0.4, 0.6)
    assert (first["score_mood"], first["score_near"], first["low_mood"]) == (0.6, 0.4, None)
    assert first["checkpoint"] == "trials/t0000/checkpoints/c000100"
    assert found["t0001"]["checkpoint"] is None  # deleted
    assert (found["t0001"]["status"], found["t0001"]["reason"]) == ("pruned", "too low")
    assert (found["t0002"]["status"], found["t0002"]["reason"]) == ("failed", "broke")
    assert found["t0002"]["score_overall"] is None and found["t0002"]["examples"] == 0
    repeat = found["t0004"]
    assert (repeat["number"], repeat["origin"], repeat["of"]) == (4, "confirm", "t0000")
    assert (repeat["seed"], repeat["status"], repeat["reason"]) == (7, "running", None)


def test_a_column_has_one_type_whatever_its_parameter_takes(tmp_path: Path) -> None:
    state = lived(tmp_path)
    found, types = rows(state), trial_table(state).schema
    assert found["t0000"]["params_rate"] == "0.001" and found["t0003"]["params_rate"] == "auto"
    assert found["t0000"]["params_weight"] == 1.0 and found["t0003"]["params_weight"] is None
    assert found["t0003"]["params_deep"] is True
    assert types.field("params_weight").type == pa.float64()
    # A label beside what it stands for; what is the same is there once.
    assert found["t0000"]["params_sizes"] == "4-4-4"
    assert found["t0000"]["settings_sizes"] == "[4, 4, 4]"
    assert "settings_rate" not in types.names


def test_a_run_without_trials_has_a_table_with_the_same_types(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger)
    empty, full = trial_table(ledger.state), trial_table(lived(tmp_path / "other"))
    assert len(empty) == 0
    assert all(full.schema.field(field.name) == field for field in empty.schema)


def test_the_file_has_the_same_rows_and_is_written_whole(tmp_path: Path) -> None:
    state = lived(tmp_path)
    path = write_trials(tmp_path, state)
    assert path.name == "trials.parquet"
    assert parquet.read_table(path).equals(trial_table(state))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ledger.jsonl", "trials.parquet"]


def test_a_run_of_version_0_1_has_a_table(tmp_path: Path) -> None:
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    (ledger,) = tmp_path.rglob("ledger.jsonl")
    found = rows(RunState.from_events(read_events(ledger)))
    assert [row["origin"] for row in found.values()] == ["default", "start_from", "start_from"]
    assert found["t0001"]["params_pair.encoding"] == "cosine"
    assert found["t0001"]["settings_batch.sizes"] == "[8, 4, 4]"
    assert found["t0001"]["low_similarity"] < found["t0001"]["score_similarity"]
    assert found["t0002"]["status"] == "running" and found["t0002"]["seconds"] > 0
    for row in found.values():
        assert (ledger.parent / row["checkpoint"]).is_dir()
