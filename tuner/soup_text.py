"""A soup as text: the table of methods, the recommendation, and where things are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.console import clock, short
from tuner.columns import cut, plus, table
from tuner.methods import GREEDY

LETTERS = 5  # of a task's name, where there is no room: as wide as its scores


def text_of(soup: Mapping[str, Any], run: Path) -> str:
    """Of what soup.json says."""
    parts = [_head(soup), _methods(soup), _sentence(soup), _places(soup, run)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(soup: Mapping[str, Any]) -> list[str]:
    count, of = len(soup["ingredients"]), soup["candidates"]
    known = round(soup["evaluations"] - soup["ran"], 2)
    lines = [
        f"soup of {soup['run']} on {soup['tasks']}: {count} of {of} checkpoints fit together; "
        f"{soup['ran']:g} evaluations in {clock(soup['seconds'])}"
        + (f", {known:g} known before" if known else "")
    ]
    lines += [cut(f"  left out {each['name']}: {each['reason']}") for each in soup["skipped"]]
    steps = [step for step in soup["steps"] if step["accepted"]]
    if len(steps) > 1:
        names = " + ".join(step["ingredient"] for step in steps)
        lines.append(f"  greedy soup: {names}")
    elif steps:
        lines.append(f"  greedy soup: {steps[0]['ingredient']} alone; no other made it better")
    return lines


def _methods(soup: Mapping[str, Any]) -> list[str]:
    goal = soup["goal"]
    # The goal has a column of its own.
    others = [name for name in ("overall", *soup["methods"][0]["tasks"]) if name != goal]
    rows = []
    for method in soup["methods"]:
        crossed, score = method["cross_fitted"], method["score"]
        mark = "*" if method["name"] == soup["recommended"] else " "
        rows.append(
            [f"{mark} {method['name']}"]
            + [short(crossed["value"]), plus(crossed["gap"])]
            + [f"{short(score['value'])} [{short(score['low'])}, {short(score['high'])}]"]
            + [_difference(method["difference"])]
            + [str(method["models"]), f"{method['evaluations']:.3g}"]
            + [short({"overall": method["overall"], **method["tasks"]}[o]["value"]) for o in others]
        )
    header = ["  method", "crossed", "gap", goal, "against best single", "models", "runs"]
    left = {"  method", goal, "against best single"}
    lines = table([*header, *others], rows, left, indent="")
    shorter = [name[:LETTERS] for name in others]
    if len(lines) > len(rows) + 1 and len(set(shorter)) == len(shorter):  # it does not fit
        lines = table([*header, *shorter], rows, left, indent="")
    return ["methods, by the score on rows that did not choose (crossed)", *lines]


def _difference(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    ends = f"[{plus(found['low'])}, {plus(found['high'])}]"
    return f"{plus(found['value'])} {ends}"


def _sentence(soup: Mapping[str, Any]) -> list[str]:
    return [soup["recommendation"], *(f"caution: {each}" for each in soup["cautions"])]


def _places(soup: Mapping[str, Any], run: Path) -> list[str]:
    named = [m for m in soup["methods"] if m["name"] in (GREEDY, soup["recommended"])]
    found = {m["name"]: run / m["folder"] for m in named if m["folder"]}
    width = max(map(len, found), default=0)
    return [f"{name:<{width}}  {_path(path)}" for name, path in found.items()]


def _path(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)
