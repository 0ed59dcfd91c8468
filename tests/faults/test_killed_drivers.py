"""A driver killed while it resumes, and while it makes soup, TensorBoard's files and the report.

The moments are files that it touches, so they are the same on every machine. After the last kill
the same command once more gives the run that nothing happened to.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from model.common.files import is_leftover
from tests.faults.fatal_points import PointsOfFolder, forked
from tests.tuner.search_runs import events, open_study, run_here, state_of, weights_of
from tuner.runs.ledger import Ledger
from tuner.search.driver import ABANDONED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]
FLAGS = (
    *("--encoder", "tiny", "--max-examples", "96", "--set", "budget.eval_rows=40"),
    *("--sampler", "random", "--no-early-stopping", "--num-samples", "3", "--seed", "5"),
)
FIRST, RESUMING, ENDING = "first", "resuming", "ending"  # parts of a driver's life
BOARD_FILE = "events.out.tfevents.#"
IN_RESUME = (
    "read ledger.jsonl 1",
    "write ledger.jsonl 1",  # opened, not yet written
    "os.rename .run.yaml.#.tmp 1",  # the start is in the ledger
    f"os.remove trials/t#/{BOARD_FILE}.history 1",
    f"write trials/t#/{BOARD_FILE}.history 2",
    "os.rename .study.journal.#.tmp 1",
)
IN_THE_END = (
    "os.rename .soup.#.tmp 1",
    "os.rename board/greedy-ensemble/.pictures.#.tmp 1",
    "os.rename board/.embeddings.#.tmp 1",
    "os.rename .report.html.#.tmp 1",
)


def drive(storage: Path, part: str, fatal: str | None = None, last: str | None = None) -> str:
    """The command in a process of its own; '' if it was killed.

    At the moment `fatal` of that part, or once it has written the event `last`.
    """
    first = part == FIRST

    def work(writer: int) -> None:
        points = PointsOfFolder(storage / "default", fatal)
        points.armed = part != ENDING
        append = Ledger.append

        def told(ledger: Ledger, event: str, **fields: Any) -> Any:
            written = append(ledger, event, **fields)
            if event == last:
                os.kill(os.getpid(), signal.SIGKILL)
            if event == "started" and part == RESUMING:
                points.armed = False
            if event == "end" and part == ENDING:
                points.armed = True
            return written

        Ledger.append = told  # type: ignore[method-assign]
        few = pytest.MonkeyPatch()
        few.setattr("tuner.soup.methods.QUICK", ["greedy soup", "greedy ensemble"])
        points.install()
        done = run_here(storage, *FLAGS, *([] if first else ["--resume"]))
        assert done.returncode == 0, done.stderr
        assert fatal is None, f"{fatal} never came, but: {points.names}"
        os.write(writer, f"{done.stdout}{done.stderr}".encode())

    return forked(work).decode()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver that was killed while it drew the pictures of its first trial."""
    storage = tmp_path_factory.mktemp("begun")
    assert not drive(storage, FIRST, "os.rename trials/t#/.pictures.#.tmp 1")
    return storage


@pytest.fixture(scope="module")
def trained(begun: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that was to be trained is, and the driver died then."""
    storage = copy(begun, tmp_path_factory.mktemp("trained"))
    assert not drive(storage, RESUMING, last="end")
    return storage


@pytest.fixture(scope="module")
def undisturbed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = copy(trained, tmp_path_factory.mktemp("undisturbed"))
    assert "report" in drive(storage, ENDING)
    return storage / "default"


def copy(storage: Path, place: Path) -> Path:
    return Path(shutil.copytree(storage, place, dirs_exist_ok=True))


def test_a_driver_killed_while_it_resumes_goes_on_as_if_nothing_had_been(
    begun: Path, undisturbed: Path, tmp_path: Path
) -> None:
    storage = copy(begun, tmp_path / "runs")
    known = events(storage / "default")
    for moment in IN_RESUME:
        assert not drive(storage, RESUMING, moment), moment
        now = events(storage / "default")
        assert [e for e in now if e["event"] != "run"] == [e for e in known if e["event"] != "run"]
    assert drive(storage, ENDING)
    assert_same(storage / "default", undisturbed)


def test_a_driver_killed_in_soup_board_or_report_makes_them_whole_later(
    trained: Path, undisturbed: Path, tmp_path: Path
) -> None:
    storage = copy(trained, tmp_path / "runs")
    known = (storage / "default" / "ledger.jsonl").read_bytes()
    for moment in IN_THE_END:
        assert not drive(storage, ENDING, moment), moment
        assert (storage / "default" / "ledger.jsonl").read_bytes().startswith(known)
    for left in filter(is_leftover, (storage / "default").rglob("*")):
        os.utime(left, (0, time.time() - 2 * ABANDONED))
    assert drive(storage, ENDING)
    assert_same(storage / "default", undisturbed)
    assert not [p for p in (storage / "default").rglob("*") if is_leftover(p)]


def assert_same(folder: Path, other: Path) -> None:
    assert state_of(folder).counts() == {"open": 0, "finished": 3, "stopped": 0, "failed": 0}
    assert history(folder) == history(other)
    assert weights_of(folder) == weights_of(other)
    assert study(folder) == study(other)
    assert report(folder) == report(other)
    assert board(folder) == board(other)
    pictures = {place: len(of) for place, of in board(folder).items() if ".pictures" in place}
    assert len(pictures) == 5 and len(set(pictures.values())) == 1, pictures


def history(folder: Path) -> list[tuple[Any, ...]]:
    told = [e for e in events(folder) if e["event"] not in ("run", "end", "started")]
    kept = ("event", "trial", "params", "examples", "score", "checkpoint", "checkpoints")
    return [tuple(e.get(key) for key in kept) for e in told]


def study(folder: Path) -> list[tuple[Any, ...]]:
    return [
        (t.number, t.state, t.params, t.values, t.intermediate_values)
        for t in open_study(folder).trials
    ]


def report(folder: Path) -> str:
    """The page without its times, and without where it lies."""
    text = (folder / "report.html").read_text(encoding="utf-8").replace(str(folder), "RUN")
    times = r'<section id="history">.*?</section>|\d+ s over \d+ starts|\(\d+ evaluations in .*?\)'
    return re.sub(times + r"| on \d{4}-\d\d-\d\d \d\d:\d\d", "", text, flags=re.DOTALL)


def board(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What TensorBoard reads, by the folder and kind of file."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for file in sorted(folder.rglob("*tfevents*")):
        place = f"{file.parent.relative_to(folder)} {file.suffix}"
        assert place not in found, f"two files: {file}"
        found[place] = [
            (value.tag, record.step, value.simple_value, value.image.encoded_image_string)
            for record in EventFileLoader(str(file)).Load()
            for value in record.summary.value
            if not value.tag.startswith("speed/") and "seconds" not in value.tag
        ]
    return found
