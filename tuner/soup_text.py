"""A soup as text: the table of methods, the recommendation, and where things are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.console import clock, short
from tuner.columns import cut, plus, table
from tuner.methods import GREEDY


def text_of(soup: Mapping[str, Any], run: Path) -> str:
    """Of what soup.json says."""
    parts = [_head(soup), _methods(soup), _sentence(soup), _places(soup, run)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(soup: Mapping[str, Any]) -> list[str]:
    count, of = len(soup["ingredients"]), soup["candidates"]
    lines = [
        f"soup of {soup['run']} on {soup['tasks']}: {count} of {of} checkpoints fit together; "
        f"{soup['evaluations']:g} evaluations, {clock(soup['seconds'])}"
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
    tasks = list(soup["methods"][0]["tasks"])
    rows = []
    for method in soup["methods"]:
        crossed, score = method["cross_fitted"], method["score"]
        mark = "*" if method["name"] == soup["recommended"] else " "
        rows.append(
            [f"{mark} {method['name']}"]
            + [short(crossed["value"]), plus(crossed["gap"])]
            + [f"{short(score['value'])} [{short(score['low'])}, {short(score['high'])}]"]
            + [_difference(method["difference"])]
            + [str(method["models"]), f"{method['evaluations']:g}"]
            + [short(method["tasks"][task]["value"]) for task in tasks]
        )
    goal = soup["goal"]
    header = ["  method", "cross-fitted", "gap", goal, "against best single", "models", "runs"]
    lines = table([*header, *tasks], rows, {"  method", goal, "against best single"})
    return ["methods, by the score on rows that did not choose", *lines]


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
