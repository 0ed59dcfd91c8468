"""Section 3, how it went: curves, timeline, failures, cost."""

from __future__ import annotations

from typing import Any

from tuner.report.history.collect import History
from tuner.report.history.draw import draw_history
from tuner.report.markup import Cell, Html, code, facts, folded, join, paragraph, table, tag
from tuner.report.numbers import Estimate, count, duration, percent, short, short_value
from tuner.report.pieces import pictures
from tuner.report.run import ReportedRun
from tuner.report.section import Section, scored
from tuner.runs.state import objective_value


def history_section(run: ReportedRun, history: History, prefix: str) -> Section:
    counts = run.summary.counts
    done = sum(counts.values()) - counts["running"]
    how = [f"{number} {outcome}" for outcome, number in counts.items() if number]
    parts: list[Any] = [
        paragraph(
            f"{done} of {run.summary.num_samples} configurations: {', '.join(how)}; in "
            f"{run.summary.trials} trials."
            if how
            else "No trial has ended."
        ),
        _cost(run, history),
        pictures(draw_history(history, prefix)),
        _failures(run, history),
        tag("h3", "Every trial"),
        _trials(run),
    ]
    return Section(f"{prefix}history", "How it went", join(parts))


def _cost(run: ReportedRun, history: History) -> Html:
    cost, starts = history.cost, run.summary.starts
    speed = cost.examples / cost.work if cost.work else 0.0
    pairs = [
        ("time", duration(cost.wall) + (f" over {starts} starts" if starts > 1 else "")),
        ("slots", f"{cost.slots}, busy {percent(cost.busy)} of the time" if cost.slots else "-"),
        ("time in trials", duration(cost.work) if cost.work else "-"),
        ("examples", count(cost.examples)),
        ("speed", f"{count(speed)} training examples/s per trial" if speed else "-"),
        ("evaluations", count(cost.evaluations)),
        *(
            (
                f"trials planned for {count(each.length)} examples",
                f"{each.trials}, trained on {count(each.examples)} together",
            )
            for each in run.summary.spent
        ),
    ]
    if cost.wasted:
        pairs.append(("in failed trials", f"{count(cost.wasted)} examples"))
    return facts(pairs)


def _failures(run: ReportedRun, history: History) -> Html | None:
    summary = run.summary
    if not summary.failures and not summary.lost:
        return None
    rows = [
        [
            len(each.trials),
            each.kind,
            ", ".join(each.trials[:6]) + (" …" if len(each.trials) > 6 else ""),
            each.reason,
        ]
        for each in summary.failures
    ]
    if summary.lost:
        rows.append(
            [
                len(summary.lost),
                "machine",
                ", ".join(summary.lost[:6]),
                "its worker or its machine went away",
            ]
        )
    header = ["trials", "kind", "which", "reason of the first"]
    shown = table(header, rows, left={"kind", "which"}, texts={"reason of the first"})
    traces = [folded(f"traceback of {name}", code(trace)) for name, trace in history.tracebacks]
    return join([tag("h3", "Failures"), shown, *traces])


def _trials(run: ReportedRun) -> Html:
    state, tasks = run.state, run.tasks.names
    keys = list(dict.fromkeys(key for trial in state.trials.values() for key in trial.params))
    rows = []
    for trial in state.trials.values():
        entry = trial.chosen(state.objectives)
        values = {name: _task_value(entry, name) for name in tasks}
        seconds = trial.closed - trial.created if trial.closed else None
        rows.append(
            [
                trial.id,
                state.outcome(trial),
                trial.origin + (f" of {trial.of}" if trial.of else ""),
                Cell(scored(Estimate.of(entry["score"], entry.get("interval"))), entry["score"])
                if entry
                else Cell("-", -1),
                *(Cell(short(values[name]), values[name]) for name in tasks),
                Cell(count(trial.examples), trial.examples),
                Cell(duration(seconds) if seconds is not None else "-", seconds),
                *(
                    Cell(short_value(trial.params.get(key)), _sort_key(trial.params.get(key)))
                    for key in keys
                ),
            ]
        )
    header = ["trial", "status", "origin", "overall", *tasks, "examples", "time", *keys]
    left = {"trial", "status", "origin", "overall"}
    return table(header, rows, left=left, search="trials", settings=keys)


def _task_value(entry: Any, name: str) -> float | None:
    return objective_value(entry, name) if entry and name in entry.get("tasks", {}) else None


def _sort_key(value: Any) -> float | str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else str(value if value is not None else "")
