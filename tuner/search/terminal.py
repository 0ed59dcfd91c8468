"""What a person sees of a search while it runs.

On a terminal a block at the bottom, drawn anew in place, with the events above it; anywhere else
one plain line per event. Nothing that goes wrong with the output may end a search.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any, TextIO

from model.cli.status import apart, doing, on_terminal
from model.cli.text import clock, one_line, settings_text, short, shorten
from tuner.runs.state import (
    OVERALL,
    OVERALL_NAMES,
    Outcome,
    RunState,
    TrialState,
    objective_value,
)

if TYPE_CHECKING:
    from tuner.engine.engine import Engine, Live

REFRESH = 0.25  # seconds between two drawings
STILL = 1.0  # seconds after which the block is drawn although nobody asked for it
WINDOW = 30.0  # seconds over which the speed is measured
KNOWN = 5.0  # seconds of training after which the time that is left is said
BAR = (6, 20)  # the narrowest and the widest; where there is less room, there is none
DOING = len("evaluating")  # the longest of what a trial does
NAME = 5  # letters that a task's name has at least, where there is little room
ENDS: tuple[Outcome, ...] = ("promoted", "waiting", "pruned", "failed", "lost")
HEAD = 60  # letters of the first line where it goes on below; in a narrower window it is cut
SETTINGS = 6  # lines at most, and no more than a quarter of the screen


class SearchConsole:
    def __init__(self, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet, self.verbose = quiet, verbose
        dumb = os.environ.get("TERM", "dumb") == "dumb"
        self.on_terminal = not quiet and not dumb and sys.stdout.isatty()
        self.block: list[str] = []  # as it stands on the screen
        self.drawn = 0.0
        self.told = -1  # reports of the state that were shown or are older than this console
        self.engine: Engine | None = None
        self.view: View | None = None
        self.warned: set[str] = set()
        self.lock = RLock()  # a thread draws too, while Ray waits for a worker
        self.ticking = False

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Something that takes a while and says nothing: a moving line, or one in a log."""
        moves = on_terminal()
        if not (self.on_terminal and moves):
            self._say(what)
        with doing(what, self.quiet or not moves):
            yield

    def log(self, line: str) -> None:
        """An event, above the block."""
        self._tell_evaluations()
        self._say(line)

    def _say(self, line: str) -> None:
        if not self.quiet:
            line = f"{time.strftime('%H:%M:%S')}  {one_line(line)}"
            if self.on_terminal:
                line = textwrap.fill(
                    line,
                    max(40, shutil.get_terminal_size().columns - 1),
                    subsequent_indent=" " * 10,
                    break_on_hyphens=False,
                    break_long_words=False,  # paths are there to be copied
                )
            with self.lock:  # in one piece, so that the block does not flicker
                self._write(sys.stdout, f"{self._erased()}{line}\n" + self._shown(self.block))

    def warn(self, line: str) -> None:
        self.warned.add(line)
        lines = "".join(f"{one_line(part)}\n" for part in line.splitlines())
        with self.lock:
            self._write(sys.stdout, self._erased())
            self._write(sys.stderr, lines)
            self._write(sys.stdout, self._shown(self.block))

    def clear(self) -> None:
        """Take the block away, before something else is printed or at the end."""
        self._tell_evaluations()
        with self.lock:
            self._write(sys.stdout, self._erased())
            self.block, self.ticking = [], False

    def draw(self, engine: Engine) -> None:
        """Called all the time; does something a few times a second."""
        if self.quiet:
            return
        if self.engine is not engine:
            self.engine, self.told = engine, len(engine.state.reports)
            self.view = View(engine)
        self._tell_evaluations()
        if self.on_terminal and time.monotonic() - self.drawn >= REFRESH:
            self._draw()
            if not self.ticking:
                self.ticking = True
                Thread(target=self._tick, args=(sys.stdout,), daemon=True).start()

    def _draw(self) -> None:
        with self.lock:
            now = self.drawn = time.monotonic()
            if self.view is not None:
                width, height = shutil.get_terminal_size()
                lines = self.view.lines(now, height - 1, width)
                lines = [fitting(line, width) for line in lines]
                self._write(sys.stdout, self._erased() + self._shown(lines))

    def _tick(self, terminal: TextIO) -> None:
        """Whatever else stands still, the time moves."""
        while True:
            time.sleep(STILL / 2)
            with self.lock:
                if not self.ticking or sys.stdout is not terminal:
                    return
                if time.monotonic() - self.drawn >= STILL:
                    with suppress(RuntimeError):  # the state changed while it was looked at
                        self._draw()

    def _tell_evaluations(self) -> None:
        if self.engine is None:
            return
        reports = self.engine.state.reports
        new, self.told = reports[self.told :], len(reports)
        for report in new if self.verbose else ():
            self._say(evaluation_line(report))

    def _erased(self) -> str:
        """Back to where the block begins, and everything from there on gone."""
        if not self.block:
            return ""
        # After the window was made narrower, a line may stand on several.
        width = shutil.get_terminal_size().columns
        rows = sum(max(1, -(-len(line) // width)) for line in self.block)
        return f"\r\x1b[{rows}A\x1b[J"

    def _shown(self, lines: list[str]) -> str:
        self.block = lines
        return "".join(f"{line}\n" for line in lines)

    def _write(self, stream: TextIO, text: str) -> None:
        if not text:
            return
        try:
            encoding = stream.encoding or "utf-8"
            with apart():
                stream.write(text.encode(encoding, "replace").decode(encoding))
                stream.flush()
        except (OSError, ValueError):  # a closed pipe, a terminal that has gone
            if stream is sys.stdout:
                self.quiet, self.on_terminal, self.block = True, False, []


class View:
    """The lines of the block. What follows from the ledger is computed only when it grew."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.began = time.monotonic()
        self.events = -1
        self.samples: deque[tuple[float, int]] = deque()
        self.refresh(engine.state)
        self.at_first = self.total()
        self.since = (self.began, self.at_first)  # when training was first seen, and how far it was
        fancy = (sys.stdout.encoding or "").lower().startswith("utf")
        self.full, self.empty = ("━", "─") if fancy else ("#", "-")

    def refresh(self, state: RunState) -> None:
        if state.events == self.events:
            return
        self.events = state.events
        self.counts = state.outcomes()
        self.best = best_line(state)
        self.settings = settings_of(state)

    def lines(self, now: float, height: int, width: int) -> list[str]:
        """At most `height` lines, for what is true at `now`; a usual screen cuts none of them."""
        self.refresh(self.engine.state)
        live = list(self.engine.live.values())
        lines = textwrap.wrap(self.head(now), max(HEAD, width - 1), subsequent_indent="  ")
        lines.append(self.speed(now))
        if self.settings:
            lines += textwrap.wrap(
                self.settings,
                max(40, width - 1),
                initial_indent="  with ",
                subsequent_indent=" " * 7,
                break_on_hyphens=False,
                break_long_words=False,
                max_lines=max(1, min(SETTINGS, height // 4)),
                placeholder=" …",
            )
        if self.engine.draining:
            lines.insert(0, f"stopping ({self.engine.draining}): what runs is being saved")
        names = self.columns() if live else []
        room = max(0, height - len(lines) - bool(names))
        shown = live if len(live) <= room else live[: max(0, room - 1)]
        lines += self.table(shown, names, width)
        if len(shown) < len(live):
            lines.append(f"  and {len(live) - len(shown)} more")
        return lines[: max(1, height)]

    def head(self, now: float) -> str:
        counts, trials = self.counts, self.engine.stages.trials
        done = sum(counts.values()) - counts["running"]
        name = [f"run {self.engine.state.name}"] if self.engine.state.name else []
        live = len(self.engine.live)
        parts = [*name, f"{done} of {trials} configurations"]
        parts.append(f"{live} trial{'s' if live != 1 else ''} running")
        left = self.left(now)
        parts.append(clock(now - self.began) + (f", about {clock(left)} left" if left else ""))
        parts += [f"{counts[end]} {end}" for end in ENDS if counts[end]]
        repeats = len(self.engine.state.repeats)
        parts += [f"{repeats} repeat{'s' if repeats != 1 else ''}"] if repeats else []
        return "  ".join(parts)

    def speed(self, now: float) -> str:
        total = self.total()
        if self.since[1] == self.at_first < total:  # workers take a while to start
            self.since = (now, total)
        self.samples.append((now, total))
        while now - self.samples[0][0] > WINDOW:
            self.samples.popleft()
        then, before = self.samples[0]
        rate = max(0, total - before) / (now - then) if now > then else 0
        return self.best + (f"  {rate:,.0f} training examples/s" if rate else "")

    def columns(self) -> list[str]:
        """What scores are shown of: the goal, then the tasks; nothing before the first scores."""
        state = self.engine.state
        if not state.reports:
            return []
        goal = OVERALL if state.goal in OVERALL_NAMES else state.goal
        return list(dict.fromkeys([goal, *state.reports[-1].get("tasks", {})]))

    def table(self, shown: list[Live], names: list[str], width: int) -> list[str]:
        """A line per trial: what it does, how far it is, and its last scores below the tasks."""
        trials = [self.engine.state.trials[live.trial] for live in shown]
        mosts = [trial.length or self.engine.stages.final.examples for trial in trials]
        pairs = zip(shown, mosts, strict=True)
        counts = [f"{live.examples:,}/{most:,}" for live, most in pairs]
        ident = max(map(len, self.engine.live), default=0)
        # All but the bar and the names: two columns, the name, the state, "100 %" and the count.
        before = 2 + ident + 2 + DOING + len(" 100 %  ")
        if before + max(map(len, counts), default=0) + sum(2 + len(n) for n in names) >= width:
            counts = [f"{live.examples:,}" for live in shown]  # the share says the rest
        count = max(map(len, counts), default=0)
        letters = narrowed(names, width - 1 - before - count)
        room = width - 1 - before - count - sum(2 + n for n in letters) - 2
        bar = min(BAR[1], room) if room >= BAR[0] else 0
        start = before + count + (2 + bar if bar else 0)
        heads = (f"  {shorten(name, n):>{n}}" for name, n in zip(names, letters, strict=True))
        lines = [f"{'':{start}}{''.join(heads)}"] if names else []
        for live, trial, most, told in zip(shown, trials, mosts, counts, strict=True):
            share = min(1.0, live.examples / most) if most else 0.0
            full = int(bar * share)
            drawn = f"  {self.full * full}{self.empty * (bar - full)}" if bar else ""
            doing = "saving" if self.engine.draining else live.doing
            line = f"  {live.trial:<{ident}}  {doing:<{DOING}}{drawn} {100 * share:3.0f} %  "
            lines.append(f"{line}{told:>{count}}{self.scores(trial, names, letters)}")
        return lines

    def scores(self, trial: TrialState, names: list[str], letters: list[int]) -> str:
        if not trial.evaluations:
            return ""
        last = trial.evaluations[-1]
        tasks = {name: of["value"] for name, of in last.get("tasks", {}).items()}
        values = {**tasks, names[0]: objective_value(last, self.engine.state.goal)}
        cells = zip(names, letters, strict=True)
        return "".join(f"  {short(values.get(name)):>{n}}" for name, n in cells)

    def total(self) -> int:
        """Examples trained, those since the last evaluations too."""
        state = self.engine.state
        live = list(self.engine.live.values())
        since = sum(each.examples - state.trials[each.trial].examples for each in live)
        return int(state.examples + since)

    def left(self, now: float) -> float | None:
        """Seconds, at the mean speed of training so far; None before that is known."""
        deadline, total = self.engine.limits.deadline, self.total()
        since, before = self.since
        if now - since < KNOWN or total <= before or self.engine.draining:
            return None
        rate = (total - before) / (now - since)
        seconds = max(0, self.engine.stages.cost() - total) / rate
        return seconds if deadline is None else max(0.0, min(seconds, deadline - now))


def best_line(state: RunState) -> str:
    best = state.best_trial()
    entry = best.chosen(state.objectives) if best is not None else None
    if best is None or entry is None:
        return "none has finished yet"
    name = "" if state.goal in OVERALL_NAMES else f"{state.goal} "
    return f"best finished: {name}{scored(entry, state.goal)} ({best.id})"


def settings_of(state: RunState) -> str:
    """What the best trial was trained with; nothing before there is one."""
    best = state.best_trial()
    if best is None:
        return ""
    first = state.trials.get(best.configuration, best)
    return settings_text(first.params) or "the default configuration"


def scored(entry: dict[str, Any], goal: str = OVERALL) -> str:
    ends = entry.get("tasks", {}).get(goal, entry).get("interval")
    value = short(objective_value(entry, goal))
    return value + (f" [{short(ends[0])}, {short(ends[1])}]" if ends else "")


def evaluation_line(report: dict[str, Any]) -> str:
    tasks = "  ".join(
        f"{name} {short(task['value'])}" for name, task in report.get("tasks", {}).items()
    )
    return f"{report['trial']} {report['examples']:>9,} examples  overall {scored(report)}  {tasks}"


def narrowed(names: list[str], room: int) -> list[int]:
    """The letters of each name, so that all fit beside each other: the longest are cut first."""
    most = max(map(len, names), default=NAME)
    while most > NAME and sum(2 + max(NAME, min(most, len(name))) for name in names) > room:
        most -= 1
    return [max(NAME, min(most, len(name))) for name in names]


def fitting(line: str, width: int) -> str:
    """Cut so that it never wraps: the cursor goes up by lines."""
    line = one_line(line)
    return line if len(line) < width else line[: max(0, width - 2)] + "…"
