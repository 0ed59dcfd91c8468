from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.made_up_runs import begin, close, create, evaluate
from tuner.runs.ledger import Ledger
from tuner.search.__main__ import make_parser, read_arguments
from tuner.search.next_steps import next_steps, resume_command


def test_what_to_run_next_follows_from_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "a b"
    folder.mkdir(parents=True)
    with Ledger(folder / "ledger.jsonl") as ledger:
        begin(ledger)
        assert next_steps(ledger.state, folder) == []
        best = create(ledger)
        evaluate(ledger, best, 100, 0.5)
        close(ledger, best, "finished")
        board, predict = next_steps(ledger.state, folder)
        assert board.startswith("tensorboard --logdir 'runs/a b' --host 127.0.0.1")
        assert predict == "python -m tuner.predict 'runs/a b' --out predictions"


def test_the_command_to_go_on_repeats_how_it_ran(tmp_path: Path) -> None:
    flags = ["--storage-path", str(tmp_path), "--max-concurrent-trials", "2", "--cpus-per-trial"]
    flags += ["1", "--no-soup", "--no-report"]
    _, options = read_arguments(make_parser().parse_args(flags))
    start = ["python", "-m", "tuner.search", "--resume", "--name", "mine"]
    assert resume_command(tmp_path / "mine", options).split() == [*start, *flags]
