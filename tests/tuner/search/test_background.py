from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from model.common.errors import InputError
from tuner.search.background import in_background


def test_work_goes_on_beside_and_its_result_comes() -> None:
    may_end = threading.Event()

    def work() -> int:
        may_end.wait()
        return 3

    promised = in_background(work)
    assert not promised.done()
    may_end.set()
    assert promised.result(300) == 3


def test_what_it_raises_is_raised_where_the_result_is_asked_for() -> None:
    def work() -> None:
        raise InputError("space.yaml", ["no such encoder"])

    with pytest.raises(InputError, match="no such encoder"):
        in_background(work).result(300)


def test_nobody_has_to_wait_for_it() -> None:
    imports = "import time; from tuner.search.background import in_background"
    program = f"{imports}; in_background(lambda: time.sleep(3600))"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
