"""The right words for the right fault, and a last line that nobody can hear."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from model.cli.text import say
from model.common.errors import InputError
from tests.tuner.made_up_runs import begin, create
from tuner.runs.ledger import Ledger, read_events
from tuner.search.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--confirm", "99999999999x9"), "--confirm: '99999999999x9' is not NxS with both from 1"),
        (("--confirm", "9" * 5000 + "x3"), "is not NxS with both from 1 to 999"),
        (("--time-budget-s", "inf"), "--time-budget-s must be a number > 0, but is 'inf', which"),
        (("--time-budget-s", "nan"), "which is no finite number"),
    ],
)
def test_the_flag_that_is_wrong_is_the_one_that_is_named(
    flags: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--storage-path", str(tmp_path), "--dry-run", *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_start_that_is_no_model_is_named_before_anything_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "tasks: sample\nbase: {encoder.name: tiny}\n"
        f"parameters:\n  init_from: {{choice: [{tmp_path}/a, {tmp_path}/b]}}\n"
    )
    assert main(["--space", str(space), "--storage-path", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/a is not the folder of a model" in said and f"{tmp_path}/b is not" in said


def test_zeros_over_the_end_of_a_ledger_are_called_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        begin(ledger)
        for _ in range(30):
            create(ledger)
    content = path.read_bytes()
    path.write_bytes(content[:-3000] + bytes(3000))
    told: list[str] = []
    with Ledger(path, told.append) as ledger:
        left = len(ledger.state.trials)
    assert 0 < left < 30 and len(read_events(path)) == 1 + left
    assert len(told) == 1 and "its end is zeros, as a crash of the machine leaves" in told[0]


def test_a_last_line_that_nobody_hears_costs_nothing() -> None:
    class Gone(io.StringIO):
        encoding = "ascii"

        def write(self, text: str) -> int:
            raise BrokenPipeError

    say("done \u2713", Gone())
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    say("done \u2713", plain)
    assert plain.buffer.getvalue() == b"done ?\n"  # type: ignore[attr-defined]


def test_what_a_file_says_does_not_command_the_terminal() -> None:
    """As the name of a task, or a key of YAML, that sets the window's title or clears it."""
    heard = io.StringIO()
    say("task '\x1b]0;mine\x07\x1b[2J\x9b2J\r'\nis \x1b[31mnone", heard)
    assert heard.getvalue() == "task ' ]0;mine  2J '\nis none\n"


def test_a_closed_output_is_no_traceback() -> None:
    """As `stockpot search ... | head -0`, in a language of ASCII only."""
    code = "from model.cli.text import say; say(chr(10003) * 100_000)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_an_input_error_of_any_letters_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    from model.cli.exit_code import exit_code

    def refuse() -> int:
        raise InputError("\ud800", ["half of a letter"])

    assert exit_code(refuse, "failed") == 2
    assert "half of a letter" in capsys.readouterr().err
