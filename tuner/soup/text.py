"""A soup as text: the table of methods for a terminal."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap

from model.cli.invocation import command
from model.cli.text import clock, short, shown_path
from tuner.scoring.tables import WIDTH, cut, plus, table
from tuner.soup.combinations import WEIGHTS
from tuner.soup.methods import BEST, DISTILLED, GREEDY, PREDICTIONS
from tuner.soup.record import MethodRecord, SoupRecord


def soup_text(soup: SoupRecord, run: Path, every: bool = False) -> str:
    """The table has the methods that matter, or `every` one."""
    sentence = [*wrap(soup.recommendation, WIDTH), *(f"caution: {each}" for each in soup.cautions)]
    parts = [_head(soup), sentence, _methods(soup, every), _places(soup, run)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(soup: SoupRecord) -> list[str]:
    known = max(0, round(soup.evaluations - soup.ran, 2))
    lines = [
        f"soup of {soup.run} on {soup.tasks}: {len(soup.ingredients)} of {soup.candidates} "
        f"checkpoints fit together; {soup.ran:g} evaluations in {clock(soup.seconds)}"
        + (f", {known:g} known before" if known else "")
    ]
    lines += [cut(f"  left out {each.name}: {each.reason}") for each in soup.skipped]
    if len(soup.chosen) > 1:
        lines.append(f"  greedy soup: {' + '.join(soup.chosen)}")
    elif soup.chosen:
        lines.append(f"  greedy soup: {soup.chosen[0]} alone; no other made it better")
    return lines


def that_matter(soup: SoupRecord) -> list[MethodRecord]:
    """What is recommended, what it is compared with, and of each kind the best."""
    named = {BEST, GREEDY, DISTILLED, soup.recommended}
    for kind in (WEIGHTS, PREDICTIONS):
        named.update([method.name for method in soup.methods if method.kind == kind][:1])
    return [method for method in soup.methods if method.name in named]


def _methods(soup: SoupRecord, every: bool) -> list[str]:
    # The goal has a column of its own.
    others = [name for name in ("overall", *soup.methods[0].tasks) if name != soup.goal]
    methods = soup.methods if every else that_matter(soup)
    rows = [_method(method, soup.recommended, others) for method in methods]
    more = len(soup.methods) - len(methods)
    rest = f"; {more} more with {command('soup', '-v')}" if more else ""
    header = ["  method", "cross-fit", "gap", soup.goal, "vs best single", "models", "runs"]
    left = {"  method", soup.goal, "vs best single"}
    lines = table([*header, *others], rows, left, indent="")
    return [f"methods, by their cross-fitted score (cross-fit){rest}", *lines]


def _method(method: MethodRecord, recommended: str, others: list[str]) -> list[str]:
    fitted, score, apart = method.cross_fitted, method.score, method.difference
    mark = "*" if method.name == recommended else " "
    scores = {"overall": method.overall, **method.tasks}
    return [
        f"{mark} {method.name}",
        *((short(fitted.value), plus(fitted.gap)) if fitted else "--"),
        f"{short(score.value)} [{short(score.low)}, {short(score.high)}]",
        f"{plus(apart.value)} [{plus(apart.low)}, {plus(apart.high)}]" if apart else "-",
        str(method.models),
        f"{method.evaluations:.3g}",
        *(short(scores[name].value) for name in others),
    ]


def _places(soup: SoupRecord, run: Path) -> list[str]:
    named = [m for m in soup.methods if m.name in (GREEDY, soup.recommended)]
    found = {m.name: run / m.folder for m in named if m.folder}
    width = max(map(len, found), default=0)
    lines = [f"{name:<{width}}  {shown_path(path)}" for name, path in found.items()]
    answers = f"answers with the {soup.recommended}; --model takes another by name"
    return [*lines, f"{command('predict', shown_path(run))} {answers}"]
