from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from model.cli.text import one_line
from tuner.engine.engine import Limits, Live
from tuner.engine.stages import Rung, Stages, in_full
from tuner.runs.state import RunState
from tuner.search import terminal as module
from tuner.search.terminal import SearchConsole, View, best_line, fitting

MOST = 1200
TIME = r"\d\d:\d\d:\d\d  "


class FakeEngine:
    """What the console looks at of an engine."""

    def __init__(
        self, trials: int = 0, live: int = 0, stages: Stages | None = None, **limits: Any
    ) -> None:
        self.state = RunState(warn=pytest.fail)
        self.limits = Limits(slots=2, threads=1, **limits)
        self.stages = stages or in_full(6, MOST)
        self.live: dict[str, Live] = {}
        self.draining: str | None = None
        run = {"version": "1", "name": "x", "objectives": ["overall"], "seed": 0}
        self.add("run", num_samples=self.stages.trials, sampler="tpe", resumed=False, **run)
        for _ in range(trials):
            self.end(self.begin())
        for _ in range(live):
            self.begin()

    def add(self, event: str, **fields: Any) -> None:
        self.state.apply({"event": event, "time": time.time(), **fields})

    def begin(self, **changes: Any) -> str:
        name = self.state.next_id
        shared = {"params": {}, "settings": {}, "origin": "sampler", "seed": 0}
        fields = {"number": self.state.next_number, **shared, **changes}
        self.add("created", trial=name, **fields)
        self.live[name] = Live(name, time.monotonic())
        return name

    def evaluate(self, name: str, examples: int, score: float = 0.72) -> None:
        self.live[name].examples = examples
        tasks = {"mood": {"value": 0.5}}
        ends = [score - 0.02, score + 0.02]
        self.add(
            "evaluated", trial=name, examples=examples, score=score, interval=ends, tasks=tasks
        )

    def end(self, name: str, how: str = "finished", **fields: Any) -> None:
        self.evaluate(name, MOST)
        self.add(how, trial=name, **fields)
        del self.live[name]


class Terminal(io.StringIO):
    """Says it is one, and shows what would be on its screen."""

    encoding = "utf-8"

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.patch = patch
        self.resize(80, 24)

    def console(self) -> SearchConsole:
        """One that has this for its output (in a test only: pytest has it at other times)."""
        self.patch.setattr(sys, "stdout", self)
        return SearchConsole()

    def resize(self, columns: int, lines: int) -> None:
        self.columns = columns
        self.patch.setenv("COLUMNS", str(columns))
        self.patch.setenv("LINES", str(lines))

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        return screen(self.getvalue(), self.columns)


def screen(text: str, columns: int) -> list[str]:
    """What a terminal shows of a text with the few codes that are used."""
    lines, row, column = [""], 0, 0

    def down() -> None:
        nonlocal row
        row += 1
        if row == len(lines):
            lines.append("")

    parts = re.findall(r"\x1b\[\d*[AJ]|[\r\n]|[^\x1b\r\n]", text)
    assert "".join(parts) == text
    for part in parts:
        if part == "\r":
            column = 0
        elif part == "\n":
            down()
            column = 0
        elif part.endswith("A") and len(part) > 1:
            row -= int(part[2:-1])
            assert row >= 0
        elif part == "\x1b[J":
            lines[row] = lines[row][:column]
            del lines[row + 1 :]
        else:
            if column == columns:
                down()
                column = 0
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + 1 :]
            column += 1
    return [line for line in lines if line]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(module, "REFRESH", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal(monkeypatch)


# --- in a log file ------------------------------------------------------------------------------


def test_a_log_has_one_plain_line_per_event(capsys: pytest.CaptureFixture[str]) -> None:
    console, engine = SearchConsole(), FakeEngine(live=1)
    for _ in range(5):
        console.draw(engine)
        console.log("t0000 failed: a\nb\t\x1b[31mred\x1b[0m " + "x" * 200)
    engine.evaluate("t0000", 300)
    console.draw(engine)
    console.clear()
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"({TIME}t0000 failed: a b red x{{200}}\n){{5}}", out) and not err


def test_warnings_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        SearchConsole(quiet=quiet).warn("two\x07\nlines")
    assert capsys.readouterr() == ("", "two \nlines\ntwo \nlines\n")


def test_quiet_says_nothing_but_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    console, engine = SearchConsole(quiet=True, verbose=True), FakeEngine(live=1)
    console.draw(engine)
    engine.evaluate("t0000", 300)
    console.draw(engine)
    console.log("t0000 finished")
    console.clear()
    assert capsys.readouterr() == ("", "")


def test_verbose_tells_each_new_evaluation_once_and_before_what_follows_from_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console, engine = SearchConsole(verbose=True), FakeEngine(trials=1, live=1)
    console.draw(engine)  # what was evaluated before a resume is not news
    engine.evaluate("t0001", 300)
    console.log("t0001 stopped early")
    console.draw(engine)
    engine.evaluate("t0001", 600)
    console.clear()
    lines = [line[10:] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "t0001       300 examples  overall .720 [.700, .740]  mood .500",
        "t0001 stopped early",
        "t0001       600 examples  overall .720 [.700, .740]  mood .500",
    ]


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_dumb_terminal_gets_plain_lines(
    terminal: Terminal, term: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TERM") if term is None else monkeypatch.setenv("TERM", term)
    console = terminal.console()
    console.draw(FakeEngine(live=2))
    console.log("an event")
    assert re.fullmatch(rf"{TIME}an event\n", terminal.getvalue())


def test_a_closed_pipe_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Broken())
    console, engine = SearchConsole(verbose=True), FakeEngine(live=1)
    for _ in range(3):
        console.log("an event")
        engine.evaluate("t0000", 300)
        console.draw(engine)
    console.clear()


def test_letters_that_the_output_cannot_show_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    SearchConsole().log("caf\u00e9")
    assert raw.getvalue().endswith(b"caf?\n")


# --- on a terminal ------------------------------------------------------------------------------


def test_the_block_is_drawn_in_place_below_the_events(terminal: Terminal) -> None:
    console, engine = terminal.console(), FakeEngine(trials=1, live=2)
    for step in range(1, 6):
        engine.live["t0001"].examples, engine.live["t0001"].doing = 100 * step, "training"
        console.draw(engine)
        console.log(f"event {step}")
    console.draw(engine)
    shown = terminal.screen()
    assert [line[10:] for line in shown[:5]] == [f"event {step}" for step in range(1, 6)]
    assert shown[5].startswith("run x  1 of 6 configurations  2 trials running  0:00")
    assert shown[6].startswith("best finished: .720 [.700, .740] (t0000)")
    assert shown[7] == "  with the default configuration"
    assert shown[8].split() == ["overall", "mood"]
    assert shown[9] == "  t0001  training    " + "━" * 8 + "─" * 12 + "  42 %  500/1,200"
    assert shown[10] == "  t0002  starting    " + "─" * 20 + "   0 %    0/1,200"
    assert len(shown) == 11
    console.clear()
    assert len(terminal.screen()) == 5


def test_what_a_trial_does_is_seen_after_its_first_scores_too(terminal: Terminal) -> None:
    engine = FakeEngine(live=1)
    live, view = engine.live["t0000"], View(engine)  # type: ignore[arg-type]
    seen = []
    for live.doing in ("starting", "training", "evaluating", "training"):
        seen.append(view.lines(time.monotonic(), 20, 80)[-1].split()[1])
        if live.doing == "evaluating":
            engine.evaluate("t0000", 300)
    engine.draining = "interrupted"
    seen.append(view.lines(time.monotonic(), 20, 80)[-1].split()[1])
    assert seen == ["starting", "training", "evaluating", "training", "saving"]
    assert view.lines(time.monotonic(), 20, 80)[-1].endswith("300/1,200     .720   .500")


def test_the_block_may_shrink_and_grow(terminal: Terminal) -> None:
    console, engine = terminal.console(), FakeEngine(live=2)
    console.draw(engine)
    engine.end("t0000")
    console.draw(engine)
    assert len(terminal.screen()) == 5
    engine.begin()
    engine.begin()
    console.draw(engine)
    assert len(terminal.screen()) == 7


def test_a_warning_leaves_the_block_whole(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)  # one screen, two streams
    console, engine = terminal.console(), FakeEngine(live=1)
    console.draw(engine)
    console.warn("careful")
    console.draw(engine)
    assert terminal.screen()[0] == "careful" and len(terminal.screen()) == 4


@pytest.mark.parametrize("columns", [12, 40])
def test_lines_never_wrap(terminal: Terminal, columns: int) -> None:
    terminal.resize(columns, 24)
    console, engine = terminal.console(), FakeEngine(trials=1, live=2)
    for _ in range(3):
        console.draw(engine)
    assert len(terminal.screen()) == 6
    assert max(map(len, terminal.screen())) < columns


def test_a_window_made_narrower_is_cleaned_up(terminal: Terminal) -> None:
    """As terminals do that wrap anew what they show."""
    console, engine = terminal.console(), FakeEngine(trials=1, live=2)
    console.draw(engine)
    terminal.resize(30, 24)
    for _ in range(2):
        console.draw(engine)
    assert len(terminal.screen()) == 6


def test_a_low_window_says_how_many_trials_it_leaves_out(terminal: Terminal) -> None:
    terminal.resize(80, 6)
    console, engine = terminal.console(), FakeEngine(live=9)
    console.draw(engine)
    assert len(terminal.screen()) == 5 and terminal.screen()[-1] == "  and 7 more"


def test_long_events_are_indented_and_paths_in_them_are_not_broken(terminal: Terminal) -> None:
    path = "/" + "long-name/" * 9
    terminal.console().log("words " * 20 + path)
    lines = terminal.getvalue().splitlines()
    assert all(line.startswith(" " * 10) for line in lines[1:]) and lines[-1].strip() == path


def test_drawing_happens_a_few_times_a_second_and_costs_little(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.25)
    console, engine = terminal.console(), FakeEngine(trials=200, live=8, stages=in_full(300, MOST))
    console.draw(engine)
    began, wall = time.process_time(), time.monotonic()
    for _ in range(5000):
        console.draw(engine)
    assert time.process_time() - began < 1  # 10 calls a second would take 2 ms of it
    drawings = terminal.getvalue().count("\x1b[J")
    assert drawings <= (time.monotonic() - wall) / 0.25 + 1


def test_stopped_failed_and_repeated_trials_are_counted(terminal: Terminal) -> None:
    console, engine = terminal.console(), FakeEngine(live=3)
    engine.end("t0000", "stopped", examples=1, rung=1, reason="low")
    engine.end("t0001", "failed", kind="code", reason="broke")
    shared = {"params": {}, "settings": {}, "number": None, "of": "t0000", "seed": 1}
    engine.add("created", trial="t0003", origin="confirm", **shared)
    engine.draining = "time"
    console.draw(engine)
    stopping, head, more, best = terminal.screen()[:4]
    assert stopping == "stopping (time): what runs is being saved"
    assert head.startswith("run x  2 of 6 configurations  1 trial running  0:0")
    assert f"{head} {more}".split()[-6:] == ["1", "pruned", "1", "failed", "1", "repeat"]
    assert best == "none has finished yet"


# --- the running trials as a table --------------------------------------------------------------


def lines_of(engine: FakeEngine, width: int = 100, height: int = 24) -> list[str]:
    view: Any = View(engine)  # type: ignore[arg-type]
    return [fitting(line, width) for line in view.lines(view.began, height, width)]


def with_tasks(names: list[str], params: dict[str, Any]) -> FakeEngine:
    """One trial that has finished, and one in the middle of a long training."""
    engine = FakeEngine(stages=in_full(2, 10_000))
    tasks = {name: {"value": 0.5} for name in names}
    for examples in (10_000, 5_000):
        name = engine.begin(params=params)
        engine.live[name].examples = examples
        shared = {"score": 0.72, "interval": [0.7, 0.74], "tasks": tasks}
        engine.add("evaluated", trial=name, examples=examples, **shared)
    engine.add("finished", trial="t0000")
    del engine.live["t0000"]
    return engine


@pytest.mark.parametrize("width", [80, 100, 140])
def test_all_scores_and_settings_of_the_usual_tasks_are_seen(width: int) -> None:
    names = ["sentiment", "paraphrase", "similarity"]
    params = {f"{kind}.{name}": 8 for kind in ("loss.weights", "batch.sizes") for name in names}
    params |= {"optim.learning_rate": 1e-4, "optim.layer_decay": 0.95, "smart.weight": 0.08}
    lines = lines_of(with_tasks(names, params), width)
    assert max(map(len, lines)) < width and "…" not in "".join(lines)
    assert " ".join(lines[2:-2]).split() == ["with", *(f"{k}={v}" for k, v in params.items())]
    assert lines[-2].split() == ["overall", *names]
    assert lines[-1].split()[-4:] == [".720", ".500", ".500", ".500"]
    assert len(lines[-1]) == len(lines[-2])  # figures stand below their names


def test_many_tasks_have_shorter_names_before_a_score_is_lost() -> None:
    names = [f"task_with_a_long_name_{number}" for number in range(6)]
    head, line = lines_of(with_tasks(names, {}))[-2:]
    assert line.split()[-7:] == [".720", *[".500"] * 6] and len(head.split()) == 7


# --- speed and time left ------------------------------------------------------------------------


def test_with_a_task_as_objective_its_value_is_shown() -> None:
    engine = FakeEngine()
    engine.state.objectives = ["mood"]
    task = {"value": 0.5, "interval": [0.4, 0.6]}
    name = engine.begin()
    ends = {"score": 0.72, "interval": [0.7, 0.74]}
    engine.add("evaluated", trial=name, examples=MOST, tasks={"mood": task}, **ends)
    head, line = lines_of(engine)[-2:]
    assert head.split() == ["mood"] and line.endswith("  .500")
    engine.add("finished", trial=name)
    assert best_line(engine.state) == "best finished: mood .500 [.400, .600] (t0000)"


def view_after(engine: FakeEngine, seconds: float, examples: int) -> tuple[View, float]:
    """A view that has seen the first live trial make this progress."""
    view: Any = View(engine)  # type: ignore[arg-type]
    now = view.began
    view.lines(now, 20, 100)
    next(iter(engine.live.values())).examples += examples
    return view, now + seconds


def test_the_speed_is_that_of_all_trials_together() -> None:
    engine = FakeEngine(trials=1, live=2)
    engine.live["t0002"].examples = 50  # before the search was watched
    view, now = view_after(engine, 10, 400)
    engine.live["t0002"].examples += 100
    assert view.lines(now, 20, 100)[1].endswith("  50 training examples/s")
    assert view.lines(now + module.WINDOW + 1, 20, 100)[1].endswith("(t0000)")


def test_the_time_left_is_for_what_runs_and_what_is_to_come() -> None:
    engine = FakeEngine(live=1, stages=in_full(3, MOST))
    view, now = view_after(engine, 10, 200)  # 20 a second; 1000 to go, and 2 trials of 1200
    assert view.left(now) == pytest.approx(3400 / 20)
    assert "0:10, about 2:50 left" in view.lines(now, 20, 100)[0]


def test_repeats_and_the_time_budget_count_too() -> None:
    engine = FakeEngine(live=1, stages=in_full(1, MOST, (2, 2)))
    view, now = view_after(engine, 10, 200)
    assert view.left(now) == pytest.approx((1000 + 4 * 1200) / 20)
    deadline = time.monotonic() + 30
    engine = FakeEngine(live=1, stages=in_full(1, MOST), deadline=deadline)
    view, now = view_after(engine, 10, 200)
    assert view.left(now) == pytest.approx(deadline - now)
    assert view.left(deadline + 1) == 0


def test_a_trial_is_measured_by_its_own_length_and_the_time_left_by_all_rungs() -> None:
    stages = Stages((Rung(300, 3), Rung(MOST, 1)))
    engine = FakeEngine(stages=stages)
    engine.begin(length=300)
    view, now = view_after(engine, 10, 150)
    assert view.left(now) == pytest.approx((150 + 2 * 300 + MOST) / 15)
    assert view.lines(now, 20, 100)[-1].endswith(" 50 %  150/300")


def test_there_is_no_estimate_without_progress_or_while_stopping() -> None:
    engine = FakeEngine(live=1)
    view, now = view_after(engine, 10, 0)
    assert view.left(now) is None
    view, now = view_after(engine, 1, 100)
    assert view.left(now) is None  # too early to say
    view, now = view_after(engine, 10, 100)
    assert view.left(now)
    engine.draining = "interrupted"
    assert view.left(now) is None


def test_the_block_moves_while_nobody_asks_for_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STILL", 0.01)
    console, engine = terminal.console(), FakeEngine(live=1)
    console.draw(engine)
    drawn = terminal.getvalue().count("t0000")
    while terminal.getvalue().count("t0000") < drawn + 3:
        time.sleep(0.01)
    console.clear()
    assert terminal.screen() == []


def test_what_takes_long_is_a_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchConsole().phase("starting Ray"):
        pass
    assert re.fullmatch(rf"{TIME}starting Ray\n", capsys.readouterr().out)


# --- small things -------------------------------------------------------------------------------


def test_one_line_keeps_letters_and_drops_controls() -> None:
    assert one_line("a\r\nb\x00c\x1b[1;31md\x1b[0m\u2028é") == "a b cd é"


def test_fitting_leaves_the_last_column_free() -> None:
    assert fitting("abcdef", 7) == "abcdef"
    assert fitting("abcdef", 6) == "abcd…"
    assert fitting("abcdef", 1) == "…"


def test_on_a_real_terminal(tmp_path: Path) -> None:
    """In a process of its own, with a pseudo-terminal of 70 columns for all three streams."""
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    script = tmp_path / "watch.py"
    script.write_text(
        "import time\n"
        "from tests.tuner.search.test_terminal import FakeEngine\n"
        "from tuner.search.terminal import SearchConsole\n"
        "console, engine = SearchConsole(), FakeEngine(live=2)\n"
        "for step in range(1, 13):\n"
        "    engine.live['t0000'].examples = 100 * step\n"
        "    console.draw(engine)\n"
        "    time.sleep(0.05)\n"
        "    if step % 4 == 0:\n"
        "        console.log(f'event {step}')\n"
        "console.warn('careful')\n"
        "print('the end')\n"
    )
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    root = str(Path(__file__).parents[3])
    environment |= {"TERM": "xterm", "PYTHONPATH": root, "PYTHONIOENCODING": "utf-8"}
    child = subprocess.Popen(
        [sys.executable, str(script)], stdin=inner, stdout=inner, stderr=inner, env=environment
    )
    os.close(inner)
    received = b""
    try:
        while block := os.read(outer, 65536):
            received += block
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(outer)
    text = received.decode().replace("\r\n", "\n")
    assert child.wait() == 0, text
    shown = screen(text, 70)
    assert [line[10:] for line in shown[:3]] == ["event 4", "event 8", "event 12"]
    assert shown[3] == "careful" and shown[-1] == "the end"
    assert len(shown) == 9 and shown[4].startswith("run x  0 of 6 configurations  2 trials running")
    assert re.fullmatch(r"  t0000  starting    [━─]{20} +\d+ %  [\d,]+/1,200", shown[6])
    assert max(map(len, shown)) < 70
