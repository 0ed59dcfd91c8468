"""`python -m tuner.export RUN --to TOOL`: a run in the tools that people have already."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from model.cli.exit_code import exit_code
from model.cli.invocation import command
from model.cli.parser import Parser, add_quiet, command_parser
from model.cli.status import doing, warn
from model.common.errors import InputError
from model.common.private import private_folder
from model.common.secrets import brief

if TYPE_CHECKING:
    from tuner.export.trackers.destination import Destination
    from tuner.export.trackers.records import Snapshot
    from tuner.export.trackers.source import RunSource

TOOLS = ("mlflow", "wandb", "trackio", "aim", "optuna", "csv", "parquet")
TAKE_FILES = ("mlflow", "wandb", "trackio")
EXAMPLES = {
    "MLflow": "runs/default --to mlflow --out http://localhost:5000",
    "W&B": "runs/default --to wandb --project films",
    "W&B, offline": "runs/default --to wandb --out sent",
    "while it runs": "runs/default --to mlflow --follow",
    "an Optuna study": "runs/default --to optuna --out postgresql://me@host/studies",
    "two tables": "runs/default --to csv",
    "with the soup": "runs/default --to mlflow --soup",
    "of a run on S3": "s3://bucket/runs/big --to mlflow --follow",
}


def make_parser() -> Parser:
    about = (
        "Copy a search into MLflow, W&B, Trackio, Aim, Optuna or tables; again, only what is new."
    )
    parser = command_parser("export", about, EXAMPLES)
    parser.add_argument(
        "run", metavar="RUN", help="Read this search: its folder, or its URL in storage."
    )
    text = f"Copy it into this tool: {', '.join(TOOLS)}."
    parser.add_argument("--to", choices=TOOLS, required=True, metavar="TOOL", help=text)
    text = (
        "Write there: MLflow's tracking URI, a folder of W&B's offline runs, of Trackio or Aim, "
        "the URL of Optuna's database or env:NAME, the tables' folder "
        "(default: the tool's own; of tables, RUN/export)."
    )
    parser.add_argument("--out", metavar="PLACE", help=text)
    text = "Use this project or experiment in the tool (default: stockpot)."
    parser.add_argument("--project", default="stockpot", metavar="NAME", help=text)
    text = "Send the soup's model folder along, to MLflow, W&B or Trackio; --follow waits for it."
    parser.add_argument("--soup", action="store_true", help=text)
    text = "Go on until the search has ended."
    parser.add_argument("--follow", action="store_true", help=text)
    add_quiet(parser, "Print only warnings.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(
        lambda: run(make_parser().parse_args(argv)),
        "the export failed",
        interrupted="interrupted; the same command goes on",
    )


def run(arguments: argparse.Namespace) -> int:
    with doing("loading", arguments.quiet):
        from model.common.locks import file_lock
        from tuner.export.trackers.follow import Exporter, follow
        from tuner.export.trackers.source import source_of

    began = time.monotonic()
    with source_of(arguments.run) as source, ExitStack() as stack:
        source.refresh()
        model = soup_of(arguments, source, stack) if arguments.soup else None
        exporter = Exporter(source, lambda: destination(arguments, source), warn, model)
        with file_lock(lock_of(arguments.to, source)) as mine:
            if mine is False:
                fault = f"another export of it to {arguments.to} is at work; wait for it, or end it"
                raise InputError(source.shown, [fault])
            try:
                with doing(f"copying {source.shown} to {arguments.to}", arguments.quiet):
                    now = follow(exporter) if arguments.follow else exporter.once()
            except (InputError, OSError):
                raise
            except Exception as error:  # each tool has errors of its own
                raise OSError(brief(f"{type(error).__name__}: {error}")) from error
    if arguments.soup and not now.model:
        warn(f"{source.shown} has no soup to send; {command('soup', Path(arguments.run))} makes it")
    if not arguments.quiet and exporter.destination is not None:
        print(told(now, exporter.destination, time.monotonic() - began))
    return 0


def soup_of(
    arguments: argparse.Namespace, source: RunSource, stack: ExitStack
) -> Callable[[], dict[str, Path]]:
    """The files of the soup's model, checked, and without paths of this machine."""
    from tuner.export.hub.folder import check_folder, gather
    from tuner.runs.storage.storage import is_url
    from tuner.soup.record import SOUP

    if arguments.to not in TAKE_FILES:
        fault = f"--to {arguments.to} takes no files; {', '.join(TAKE_FILES)} do"
        raise InputError("--soup", [fault])
    if is_url(arguments.run):
        fault = "a run in storage is read without its models; fetch it: stockpot cluster fetch"
        raise InputError("--soup", [fault])

    found: dict[tuple[int, int], dict[str, Path]] = {}  # a model is large: gathered once each

    def gathered() -> dict[str, Path]:
        place = source.folder / SOUP
        if not place.is_dir():  # the driver makes it after the last event
            return {}
        status = place.stat()
        seen = status.st_ino, status.st_mtime_ns
        if seen not in found:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="stockpot-export-")))
            names = check_folder(place)
            gather(place, names, folder)
            found[seen] = {f"{SOUP}/{name}": folder / name for name in names}
        return found[seen]

    return gathered


def told(now: Snapshot, destination: Destination, seconds: float) -> str:
    points = sum(len(record.points) for record in now.trials.values())
    what = f"{len(now.trials)} trials, {points} evaluations"
    what += f", {len(now.files) + len(now.model)} files" if destination.takes_files else ""
    return f"{what} in {seconds:.1f} s -> {destination.place()}"


def destination(arguments: argparse.Namespace, source: RunSource) -> Destination:
    """Each tool's package is loaded here and nowhere else."""
    out, project = arguments.out, arguments.project
    if arguments.to == "mlflow":
        from tuner.export.trackers.mlflow import Mlflow

        return Mlflow(out, project)
    if arguments.to == "wandb":
        from tuner.export.trackers.wandb import Wandb

        return Wandb(Path(out) if out else None, project)
    if arguments.to == "trackio":
        from tuner.export.trackers.trackio import Trackio

        return Trackio(Path(out) if out else None, project)
    if arguments.to == "aim":
        from tuner.export.trackers.aim import Aim

        return Aim(Path(out) if out else None, project)
    if arguments.to == "optuna":
        from tuner.export.trackers.optuna_study import OptunaStudy

        return OptunaStudy(out, source.folder)
    from tuner.export.trackers.tables import TableFiles
    from tuner.runs.storage.storage import is_url

    if out is None and is_url(arguments.run):
        raise InputError(f"--to {arguments.to}", ["a run in storage needs --out FOLDER"])
    return TableFiles(Path(out) if out else source.folder / "export", arguments.to)


def lock_of(tool: str, source: RunSource) -> Path:
    """Of this run and tool, on this machine: the run's own folder may allow no writing."""
    return private_folder("stockpot-export") / f"{tool}-{source.identity()}.lock"


if __name__ == "__main__":
    raise SystemExit(main())
