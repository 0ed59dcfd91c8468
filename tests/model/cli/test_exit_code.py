from __future__ import annotations

import subprocess
import sys

import pytest

from model.cli.exit_code import exit_code, of_the_machine
from model.common.errors import InputError


def raising(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("a.yaml", ["no"]), 2, "a.yaml: 1 problem\n  no\n"),
        (KeyboardInterrupt(), 130, "come back\n"),
        (OSError("the disk is full"), 1, "no dinner: the disk is full\nmake room\n"),
    ],
)
def test_what_is_no_fault_of_the_program_is_a_line_and_a_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = exit_code(
        lambda: raising(error), "no dinner", interrupted="come back", remedy="make room"
    )
    assert (found, capsys.readouterr().err) == (code, said)


def test_the_work_has_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: 7, "no dinner") == 7
    assert capsys.readouterr().err == ""


def test_a_fault_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError):
        exit_code(lambda: raising(RuntimeError("odd")), "no dinner")
    assert exit_code(lambda: raising(RuntimeError("odd")), "no", mishap=of_the_machine) == 1
    with pytest.raises(TypeError):
        exit_code(lambda: raising(TypeError("odd")), "no dinner", mishap=of_the_machine)


def test_python_does_not_look_through_its_memory_before_it_ends() -> None:
    code = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 1000))  # the first is the last to be called
from model.cli.exit_code import exit_code
raise SystemExit(exit_code(lambda: print("done") or 3, "no"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "done\nTrue\n", "")
