"""`python -m tuner.report`: one page about a search, or about several side by side."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model import __version__
from model.errors import InputError
from model.exit_code import exit_code

if TYPE_CHECKING:
    from tuner.reporting.run import Run
    from tuner.reporting.section import Section
    from tuner.summary import Summary

REPORT = "report.html"
EXAMPLES = """
examples:
  a run       python -m tuner.report runs/default
  two runs    python -m tuner.report runs/default runs/full --out compared.html
  moved data  python -m tuner.report runs/big --data /data/cs224n --tensorboard
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tuner.report",
        description="Write a page about a search: one file that opens offline.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help="folder of a search")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help=f"(default: {REPORT} in the first run's folder)"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the tasks' files, if they have been moved"
    )
    parser.add_argument(
        "--tensorboard", action="store_true", help="write the runs' TensorBoard files anew as well"
    )
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    return exit_code(lambda: run(arguments), "no report")


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    out = write_report(arguments.run, arguments.out, data=arguments.data)
    size = out.stat().st_size / 1e6
    print(f"report  {out}  ({size:.1f} MB, {time.monotonic() - began:.1f} s)")
    if arguments.tensorboard:
        from tuner.tensorboard import rebuild  # type: ignore[import-not-found,unused-ignore]

        for folder in arguments.run:
            rebuild(folder, data=arguments.data)
            print(f"tensorboard --logdir {folder}")
    return 0


def write_report(
    folders: Sequence[Path | str],
    out: Path | str | None = None,
    *,
    data: Path | str | None = None,
    summaries: Mapping[Path, Summary] | None = None,
) -> Path:
    """Write the page and return its path: `report.html` in the first folder if none is given.

    `summaries` are those that the caller has made already; `data` is where the tasks' files are
    now. Raises InputError for a folder that is not a search's, OSError if it cannot be written.
    """
    from model.files import write_whole
    from tuner.reporting.run import load_run

    known = summaries or {}
    places = [Path(folder) for folder in folders]
    if missing := [place for place in places if not place.is_dir()]:
        raise InputError("RUN", [f"no such folder: {place}" for place in missing])
    where = None if data is None else Path(data)
    runs = [load_run(place, summary=known.get(place), data=where) for place in places]
    page = report_of(runs)
    path = places[0] / REPORT if out is None else Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def report_of(runs: Sequence[Run]) -> str:
    """The page as text."""
    from tuner.reporting.compare import told_apart
    from tuner.reporting.compare_section import comparison_section
    from tuner.reporting.page import page

    runs = told_apart(runs)
    if len(runs) == 1:
        one = runs[0]
        return page(f"Search {one.name}", subtitle_of(one), [("", sections_of(one, ""))])
    groups: list[tuple[str, Sequence[Section]]] = [("", [comparison_section(runs)])]
    for place, each in enumerate(runs):
        groups.append((f"Run {each.name}", sections_of(each, f"run{place}-")))
    names = ", ".join(each.name for each in runs)
    return page(f"Searches {names}", f"{len(runs)} runs side by side", groups)


def subtitle_of(run: Run) -> str:
    about = run.tasks.about.rstrip(".")
    tasks = ", ".join(run.tasks.names)
    return f"{run.tasks.name} ({tasks})" + (f": {about}." if about else "")


def sections_of(run: Run, prefix: str) -> list[Section]:
    """A run's six sections; `prefix` keeps their names apart where there are several runs."""
    from tuner.reporting.answer import collect_answer
    from tuner.reporting.answer_section import answer_section
    from tuner.reporting.history import collect_history
    from tuner.reporting.history_section import history_section
    from tuner.reporting.importance import collect_importance
    from tuner.reporting.importance_section import mattered_section
    from tuner.reporting.mistakes import best_trial_of, collect_mistakes
    from tuner.reporting.mistakes_section import mistakes_section
    from tuner.reporting.repeating import collect_repeating
    from tuner.reporting.repeating_section import repeating_section
    from tuner.reporting.soup_section import soup_section
    from tuner.reporting.vectors import collect_clouds

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


if __name__ == "__main__":
    raise SystemExit(main())
