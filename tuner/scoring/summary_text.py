"""A summary as text: numbers as people read them, in columns, no control characters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from model.cli.text import clock, one_line, short, shown_path
from tuner.runs.state import OVERALL_NAMES
from tuner.scoring.summary import Expected, Summary
from tuner.scoring.tables import cut, difference_text, plus, table


def summary_text(summary: Summary) -> str:
    parts = [_head(summary), _best(summary), _settings(summary), _holds(summary)]
    parts += [_repeats(summary), _front(summary), _places(summary), _next(summary)]
    return "\n\n".join("\n".join(map(one_line, part)) for part in parts if part)


def _head(summary: Summary) -> list[str]:
    counts = summary.counts
    done = sum(counts.values()) - counts["running"]
    ends = ", ".join(f"{n} {end}" for end, n in counts.items() if n and end != "running")
    going = f", {counts['running']} not ended" if counts["running"] else ""
    of = f"search {summary.name} on {summary.tasks}" if summary.name else "search"
    ended = f" ({ends}{going})" if done else going
    lines = [f"{of}: {done} of {summary.num_samples} configurations{ended}"]
    starts = f" over {summary.starts} starts" if summary.starts > 1 else ""
    trials = f"{summary.trials} trial{'s' if summary.trials != 1 else ''}"
    line = f"  {trials}, {summary.examples:,} examples trained in {clock(summary.seconds)}{starts}"
    if summary.evaluation_share is not None:
        line += f"; evaluating took {100 * summary.evaluation_share:.0f} % of the time"
    lines.append(line)
    if len(summary.spent) > 1:
        told = [
            f"{each.trials} × {each.length:,} ({100 * each.examples / summary.examples:.0f} %)"
            for each in summary.spent
        ]
        lines.append(cut(f"  trials by planned examples, and their share: {', '.join(told)}"))
    for failures in summary.failures:
        head = f"  {len(failures.trials)} failed ({failures.kind}), {_some(failures.trials)}: "
        lines.append(cut(head + failures.reason))
    if summary.lost:
        lines.append(cut(f"  {len(summary.lost)} lost with the machine, {_some(summary.lost)}"))
    return lines


def _best(summary: Summary) -> list[str]:
    if not summary.best:
        return ["no trial has finished, so there is no best one yet"]
    tasks = list(dict.fromkeys(name for row in summary.best for name in row.tasks))
    rows = list(summary.best)
    if summary.default is not None and summary.default not in rows:
        rows.append(summary.default)
    cells = [
        [row.trial, f"{short(row.overall)}{_ends(row.interval)}"]
        + [short(row.tasks.get(name)) for name in tasks]
        + [f"{row.examples:,}", row.origin]
        for row in rows
    ]
    header = ["trial", "overall", *tasks, "examples", "origin"]
    by = "" if summary.goal in OVERALL_NAMES else f", by {summary.goal}"
    return [f"best trials{by}", *table(header, cells, left={"trial", "overall", "origin"})]


def _settings(summary: Summary) -> list[str]:
    rows = [row for row in summary.best if row.params]
    keys = list(dict.fromkeys(key for row in rows for key in row.params))
    cells = [[key, *(_value(row.params.get(key)) for row in rows)] for key in keys]
    if not cells:
        return []
    return ["their settings", *table(["", *(row.trial for row in rows)], cells, left={""})]


def _holds(summary: Summary) -> list[str]:
    lines = []
    if (gain := summary.gain) is not None:
        first = summary.best[0] if summary.best else None
        longer = ""
        if first and first.examples > max(gain.examples):
            longer = (
                f"; {first.trial} was trained for {first.examples:,}: its own lead is not known"
            )
        lines += [
            f"{gain.verdict}: {difference_text(gain.difference)}",
            f"  best of {gain.configurations} configurations against the default, on rows that did "
            "not choose it,",
            f"  {trained_text(gain.examples)}{longer}",
        ]
    if summary.best and summary.default is None:
        lines.append("no run of the default configuration has finished to compare with")
    elif summary.best and summary.best[0] == summary.default:
        lines.append("nothing beat the default configuration")
    elif summary.lead is not None and summary.default is not None:
        lead = difference_text(summary.lead)
        lines.append(
            f"best against the default, {trained_text(summary.lead_at)}, on all rows: {lead}"
        )
    if (fitted := summary.cross_fit) is not None:
        score = f"{short(fitted.cross_fitted)} [{short(fitted.low)}, {short(fitted.high)}]"
        lines.append(
            f"cross-fitted (chosen on one half, scored on the other): {score} "
            f"(optimism gap {plus(fitted.gap)})"
        )
    if (full := summary.expected) is not None:
        chance = "less than 1 %" if full.worse < 0.01 else f"{100 * full.worse:.0f} %"
        best = f"{full.trial}'s settings {short(full.best)} ± {short(full.best_sd)}"
        default = f"the default {short(full.default)} ± {short(full.default_sd)}"
        lines.append(f"forecast in full, {full.examples:,} examples: {best}, {default}")
        lines.append(f"chance that the default is better in full than {full.whose}: {chance}")
        lines += _top(full)
        lines += [cut(f"taken from {name}: {taken_text(of)}") for name, of in full.earlier]
    return lines + [cut(note) for note in summary.notes]


def _top(full: Expected) -> list[str]:
    """Beside the best that was seen, the best that is forecast."""
    score = f"{short(full.top)} ± {short(full.top_sd)}"
    if not full.top_changes:
        return [f"of all settings {full.trial}'s are forecast to be best: {score}"]
    tried = f"tried as {full.top_trial}" if full.top_trial else "not tried"
    cells = [[key, _value(old), _value(new)] for key, (old, new) in full.top_changes.items()]
    return [
        f"of all settings these are forecast to be best ({tried}): {score}",
        *table(["", full.trial, "forecast best"], cells, left={""}),
    ]


def trained_text(examples: Collection[int]) -> str:
    """after 4,000 examples each; after 460 to 480 examples"""
    low, high = min(examples), max(examples)
    return f"after {low:,} examples each" if low == high else f"after {low:,} to {high:,} examples"


def taken_text(weights: Mapping[str, float]) -> str:
    """sentiment 0.96, paraphrase nothing"""
    return ", ".join(f"{name} {w:.2f}" if w else f"{name} nothing" for name, w in weights.items())


def _repeats(summary: Summary) -> list[str]:
    if not summary.repeats:
        return []
    first = summary.repeats[0].trial
    said = {None: "", True: f"tie with {first}", False: f"below {first}"}
    cells = [
        [r.trial, short(r.search), short(r.mean), short(r.spread), str(len(r.scores)), said[r.tie]]
        for r in summary.repeats
    ]
    header = ["trial", "search", "mean", "spread", "seeds", "difference"]
    lines = ["run again with other seeds", *table(header, cells, left={"trial", "difference"})]
    if all(r.spread is None for r in summary.repeats):
        lines.append("one seed more does not show the noise; --confirm with more tells ties apart")
    return lines


def _front(summary: Summary) -> list[str]:
    if not summary.front:
        return []
    header = ["trial", *summary.front[0][1]]
    cells = [[name, *map(short, values.values())] for name, values in summary.front]
    return ["Pareto front: nothing is better in all of these", *table(header, cells, {"trial"})]


def _places(summary: Summary) -> list[str]:
    width = max(map(len, summary.places))
    lines = [f"{what:<{width}}  {shown_path(path)}" for what, path in summary.places.items()]
    if summary.best and "best model" not in summary.places:
        lines.append(f"the checkpoint of {summary.best[0].trial} is not there any more")
    return lines


def _next(summary: Summary) -> list[str]:
    return ["next", *(f"  {line}" for line in summary.next_steps)] if summary.next_steps else []


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return "-" if value is None else str(value)


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{short(interval[0])}, {short(interval[1])}]"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
