"""`python -m tuner.cluster`: look at a cluster file before it costs anything; fetch a run after."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from model import __version__
from model.errors import InputError
from model.exit_code import exit_code

EXAMPLES = """
examples:
  python -m tuner.cluster check
  python -m tuner.cluster check docs/clusters/gcp.yaml --storage-path gs://bucket/runs
  python -m tuner.cluster fetch s3://bucket/runs big
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tuner.cluster",
        description="Check a cluster file; fetch a run from storage.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="all that is wrong with a cluster file, offline")
    check.add_argument("files", nargs="*", type=Path, metavar="FILE", help="(cluster.yaml)")
    check.add_argument("--storage-path", metavar="P", help="where the search will keep its run")
    check.add_argument(
        "--shared", action="store_true", help="that folder is one that all machines mount"
    )
    fetch = commands.add_parser("fetch", help="a run's folder, its kept models included")
    fetch.add_argument("url", metavar="URL", help="the search's --storage-path")
    fetch.add_argument("name", metavar="NAME", help="the run's")
    fetch.add_argument("--to", type=Path, default=Path("runs"), metavar="DIR", help="(runs)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    work = check if arguments.command == "check" else fetch
    return exit_code(lambda: work(arguments), f"the {arguments.command} failed")


def check(arguments: argparse.Namespace) -> int:
    from tuner.cluster_file import check_file

    bad = 0
    for path in arguments.files or [Path("cluster.yaml")]:
        faults = check_file(path, arguments.storage_path, shared=arguments.shared)
        if faults:
            bad += 1
            print(InputError(str(path), faults), file=sys.stderr)
        else:
            print(f"{path}: nothing wrong that can be seen from here")
    return 2 if bad else 0


def fetch(arguments: argparse.Namespace) -> int:
    from tuner.remote import fetch as fetch_run_folder
    from tuner.run_folder import run_folder

    folder = run_folder(arguments.to.absolute(), arguments.name)
    if folder.exists():
        fault = "is there already; give another folder with --to"
        raise InputError(str(folder), [fault])
    state = fetch_run_folder(arguments.url, arguments.name, folder, warn)
    print(f"{folder}: {len(state.trials)} trials")
    return 0


def warn(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
