"""From one run's folder or several to one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from model.common.files import write_atomic
from tuner.report.answer.collect import collect_answer
from tuner.report.answer.section import answer_section
from tuner.report.compare.collect import told_apart
from tuner.report.compare.section import comparison_section
from tuner.report.history.collect import collect_history
from tuner.report.history.section import history_section
from tuner.report.importance.collect import collect_importance
from tuner.report.importance.section import mattered_section
from tuner.report.mistakes.collect import best_trial_of, collect_mistakes
from tuner.report.mistakes.section import mistakes_section
from tuner.report.mistakes.vectors import collect_clouds
from tuner.report.page import page
from tuner.report.repeating.collect import collect_repeating
from tuner.report.repeating.section import repeating_section
from tuner.report.run import ReportedRun, load_run
from tuner.report.section import Section
from tuner.report.soup.section import soup_section
from tuner.runs.folder import REPORT
from tuner.runs.open import require_runs
from tuner.scoring.summary import Summary


def write_report(
    folders: Sequence[Path | str],
    out: Path | str | None = None,
    *,
    data: Path | str | None = None,
    summaries: Mapping[Path, Summary] | None = None,
    mine: Callable[[], None] = lambda: None,
) -> Path:
    """Write the page and return its path: `report.html` in the first folder if none is given.

    `summaries` are those that the caller has made already; `data` is where the tasks' files are
    now; `mine` is asked before the page is written. Raises InputError for a folder that is not a
    search's, OSError if it cannot be written.
    """
    known = summaries or {}
    places = [Path(folder) for folder in folders]
    require_runs(places)
    where = None if data is None else Path(data)
    runs = [load_run(place, summary=known.get(place), data=where) for place in places]
    page = report_of(runs)
    path = places[0] / REPORT if out is None else Path(out)
    mine()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, page)
    return path


def report_of(runs: Sequence[ReportedRun]) -> str:
    """The page as text."""
    runs = told_apart(runs)
    if len(runs) == 1:
        one = runs[0]
        return page(f"Search {one.name}", subtitle_of(one), [("", sections_of(one, ""))])
    groups: list[tuple[str, Sequence[Section]]] = [("", [comparison_section(runs)])]
    for place, each in enumerate(runs):
        groups.append((f"Run {each.name}", sections_of(each, f"run{place}-")))
    names = ", ".join(each.name for each in runs)
    return page(f"Searches {names}", f"{len(runs)} runs side by side", groups)


def subtitle_of(run: ReportedRun) -> str:
    about = run.tasks.about.rstrip(".")
    tasks = ", ".join(run.tasks.names)
    return f"{run.tasks.name} ({tasks})" + (f": {about}." if about else "")


def sections_of(run: ReportedRun, prefix: str) -> list[Section]:
    """A run's six sections; `prefix` keeps their names apart where there are several runs."""
    mistakes = collect_mistakes(run)
    clouds, no_clouds = collect_clouds(mistakes, best_trial_of(run))
    return [
        answer_section(run, collect_answer(run), prefix),
        mattered_section(collect_importance(run), prefix),
        history_section(run, collect_history(run), prefix),
        soup_section(run, prefix),
        mistakes_section(mistakes, clouds, no_clouds, prefix),
        repeating_section(run, collect_repeating(run), prefix),
    ]
