"""A search of ours, run as a person runs it, and read from the folder that it leaves."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tuner.runs.open import best_model, open_run
from tuner.soup.record import read_soup

from .cell import Cell, Handed
from .outcome_table import ERROR
from .program import run_program
from .soup_methods import score_methods, write_methods

# What `--ours-without` leaves out: a search's flags, and what its driver does first.
PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "finals": (("--no-early-stopping",), ""),
    "promotion": (("--grace-examples", "{twenty_fourth}"), ""),  # six at one rung, and a final
    "race": (("--confirm", "0x0"), ""),
    "model": (("--sampler", "tpe"), ""),  # of the results: neither proposals nor finals by it
    "fallback": ((), "from tuner.engine import ladder; ladder.MARGIN = ladder.STAYS = -1.0"),
}
SEARCH = "import sys; from tuner.search.__main__ import main; sys.exit(main(sys.argv[1:]))"


def ours(cell: Cell) -> dict[str, Handed]:
    """Its best single model, what its soup recommends, and every method of the soup."""
    folder, began = cell.work / "run", time.monotonic()
    run_program(program(cell, folder))
    state = open_run(folder).state
    single, soup = best_model(folder, state), read_soup(folder)
    recommended = None if soup is None else soup.method(soup.recommended)
    if single is None or soup is None or recommended is None or recommended.folder is None:
        raise RuntimeError("the search ended without a model or a soup")
    seconds = time.monotonic() - began  # what comes now is for the table alone
    examples, rows = state.examples, sum(event["rows"] for event in state.reports)

    def handed(model: Path, evaluations: float, **known: Any) -> Handed:
        evaluated = round(rows + evaluations * cell.rows)
        return Handed(model, examples, evaluated, seconds=seconds, **known)

    every = write_methods(folder)
    scored = score_methods(folder, every, cell.material)
    error = {ERROR: scored[recommended.name][ERROR]}
    found = {
        cell.search_name: handed(single[1], 0),
        f"{cell.search_name}-recommended": handed(
            folder / recommended.folder, soup.evaluations, more=error
        ),
    }
    return found | {
        f"{cell.search_name}:{method.name}": handed(
            folder, method.evaluations, scores=scored[method.name]
        )
        for method in every.methods
    }


def program(cell: Cell, folder: Path) -> list[str]:
    """The search that spends the budget."""
    more, first = PARTS[cell.without] if cell.without else ((), "")
    start = ["-c", f"{first}\n{SEARCH}"] if first else ["-m", "tuner.search"]
    left_out = [flag.format(twenty_fourth=cell.budget // 24) for flag in more]
    return [sys.executable, *start, *flags(cell, folder), *left_out, *cell.search_flags]


def flags(cell: Cell, folder: Path) -> list[str]:
    data = cell.material.data
    given = {
        "--space": "default",
        "--tasks": cell.material.tasks.origin,
        **({} if data is None else {"--data": data}),
        "--encoder": cell.encoder,
        "--set": f"budget.eval_rows={cell.dev_rows}",
        "--seed": cell.seed,
        "--budget-examples": cell.budget,
        "--storage-path": folder.parent,
        "--name": folder.name,
    }
    named = [str(part) for pair in given.items() for part in pair]
    return [*named, "--no-report", "--quiet"]
