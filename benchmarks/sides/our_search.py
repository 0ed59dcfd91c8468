"""A search of ours, run as a person runs it, and read from the folder that it leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tuner.runs.open import best_model, open_run
from tuner.soup.record import read_soup

from .cell import Cell, Handed


def ours(cell: Cell) -> dict[str, Handed]:
    """Its best single model, and what its soup recommends."""
    folder = cell.work / "run"
    run_program([sys.executable, "-m", "tuner.search", *flags(cell, folder), *cell.search_flags])
    state = open_run(folder).state
    single, soup = best_model(folder, state), read_soup(folder)
    recommended = None if soup is None else soup.method(soup.recommended)
    if single is None or soup is None or recommended is None or recommended.folder is None:
        raise RuntimeError("the search ended without a model or a soup")
    examples, rows = state.examples, sum(event["rows"] for event in state.reports)
    return {
        cell.search_name: Handed(single[1], examples, rows),
        f"{cell.search_name}-recommended": Handed(
            folder / recommended.folder, examples, round(rows + soup.evaluations * cell.rows)
        ),
    }


def flags(cell: Cell, folder: Path) -> list[str]:
    """The search that spends the budget."""
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


def run_program(command: list[str]) -> None:
    """Wait for it. Whatever ends the waiting ends it too, in order."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        try:
            told, _ = program.communicate()
        except BaseException:
            program.terminate()
            program.communicate()
            raise
    if program.returncode:
        last = told.decode(errors="replace").strip()[-2000:]
        raise RuntimeError(f"{' '.join(command)} ended with {program.returncode}:\n{last}")
