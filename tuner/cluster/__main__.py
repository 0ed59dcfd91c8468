"""`python -m tuner.cluster`: look at a cluster file before it costs anything; fetch a run after."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model.cli.exit_code import exit_code
from model.cli.parser import Parser, add_command, command_parser
from model.cli.status import warn
from model.common.errors import InputError

EXAMPLES = {
    "the file here": "check",
    "another": "check docs/clusters/gcp.yaml --storage-path gs://bucket/runs",
    "several files": "check cluster.yaml docs/clusters/aws.yaml",
    "a Slurm script": "check docs/clusters/slurm.sbatch --shared",
    "a run": "fetch s3://bucket/runs big",
    "is it there?": "has s3://bucket/runs big",
}
NOT_THERE = 3  # as 1 and 2 are what went wrong


def make_parser() -> Parser:
    parser = command_parser("cluster", "Check a cluster file; fetch a run from storage.", EXAMPLES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="check | fetch | has")
    about = "Tell all that is wrong with a cluster file, offline."
    look = add_command(commands, "cluster", "check", about, EXAMPLES)
    text = "Check these files (default: cluster.yaml)."
    look.add_argument("files", nargs="*", type=Path, metavar="FILE", help=text)
    text = "Check for a search that keeps its run there."
    look.add_argument("--storage-path", metavar="P", help=text)
    text = "Take that folder for one that all machines mount."
    look.add_argument("--shared", action="store_true", help=text)
    about = "Fetch a run's folder, its kept models included."
    get = add_command(commands, "cluster", "fetch", about, EXAMPLES)
    get.add_argument("url", metavar="URL", help="Look in this place, the search's --storage-path.")
    get.add_argument("name", metavar="NAME", help="Take the run of this name.")
    text = "Write to this folder of runs (default: runs)."
    get.add_argument("--to", type=Path, default=Path("runs"), metavar="DIR", help=text)
    about = "Tell whether a run is there: exit code 0 if it can be resumed, 3 if there is none."
    there = add_command(commands, "cluster", "has", about, EXAMPLES)
    there.add_argument(
        "url", metavar="PLACE", help="Look in this place, the search's --storage-path."
    )
    there.add_argument("name", metavar="NAME", help="Take the run of this name.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(lambda: run(make_parser().parse_args(argv)), "the command failed")


def run(arguments: argparse.Namespace) -> int:
    return {"check": check, "fetch": fetch, "has": has}[arguments.command](arguments)


def check(arguments: argparse.Namespace) -> int:
    from tuner.cluster.file import check_file

    bad = 0
    for path in arguments.files or [Path("cluster.yaml")]:
        faults = check_file(path, arguments.storage_path, shared=arguments.shared)
        if faults:
            bad += 1
            warn(str(InputError(str(path), faults)))
        else:
            print(f"{path}: nothing wrong that can be seen from here")
    return 2 if bad else 0


def fetch(arguments: argparse.Namespace) -> int:
    from tuner.runs.folder import run_folder
    from tuner.runs.storage.remote import fetch as fetch_run_folder

    folder = run_folder(arguments.to.absolute(), arguments.name)
    if folder.exists():
        fault = "is there already; give another folder with --to"
        raise InputError(str(folder), [fault])
    state = fetch_run_folder(arguments.url, arguments.name, folder, warn)
    print(f"{folder}: {len(state.trials)} trials")
    return 0


def has(arguments: argparse.Namespace) -> int:
    """For scripts that may be started again, on a machine that knows nothing of the last time."""
    from tuner.runs.folder import LEDGER, run_folder
    from tuner.runs.storage.storage import Storage, is_url

    if is_url(arguments.url):
        storage = Storage(arguments.url)
        storage.check()
        there = storage.inside(arguments.name).read(LEDGER) is not None
    else:
        there = (run_folder(Path(arguments.url).absolute(), arguments.name) / LEDGER).exists()
    print(f"{arguments.name}: {'is there' if there else 'is not there yet'}")
    return 0 if there else NOT_THERE


if __name__ == "__main__":
    raise SystemExit(main())
