"""`python -m tuner.soup RUN`: one model out of the best checkpoints, and what that bought."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from model.cli.exit_code import exit_code, of_the_machine
from model.cli.parser import Parser, add_data, add_quiet, command_parser
from model.cli.status import doing
from model.cli.text import say
from model.common.errors import Gathered, InputError, suggest

if TYPE_CHECKING:
    from tuner.ray_backend.resources import Resources
    from tuner.ray_backend.session import Session
    from tuner.search.on_workers import MakeRunner
    from tuner.search.terminal import SearchConsole

EXAMPLES = {
    "after a search": "runs/default",
    "more of it": "runs/big --halvings 3 --folders",
    "over several runs": "runs/all-tasks runs/sst-only --out runs/both",
    "only some": "runs/big --methods 'greedy soup,mean,vote'",
}
NOTE = "Killed half-way, the same command goes on. docs/soup.md says what each method is."


def make_parser() -> Parser:
    about = "Combine the best checkpoints of a run into one model."
    parser = command_parser("soup", about, EXAMPLES, NOTE)
    what = parser.add_argument_group("what to combine")
    text = "Combine the trials of this run; of several, make ensembles over all of them."
    what.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=text)
    text = "Combine the best K trials (default: the search's --keep)."
    what.add_argument("-k", "--keep", type=int, metavar="K", help=text)
    what.add_argument("--methods", metavar="A,B", help="Try only these methods (default: all).")
    add_data(what)
    how = parser.add_argument_group("how to combine")
    text = "Cross-fit averages over N random half-splits of dev (default: 1)."
    how.add_argument("--halvings", type=int, metavar="N", help=text)
    text = (
        "Write the ensembles of several runs to this folder (default: ensembles, beside the first)."
    )
    how.add_argument("--out", type=Path, metavar="DIR", help=text)
    how.add_argument("--folders", action="store_true", help="Write every soup's model folder.")
    text = "Evaluate on this Ray cluster; 'auto' on its head node (default: this machine)."
    how.add_argument("--address", metavar="A", help=text)
    how.add_argument("-v", "--verbose", action="store_true", help="Show all methods.")
    add_quiet(how, "Print only warnings and the table.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(
        lambda: run(make_parser().parse_args(argv)),
        "the soup stopped",
        interrupted="ended; the same command goes on from here",
        mishap=of_the_machine,
    )


def run(arguments: argparse.Namespace) -> int:
    with doing("loading", arguments.quiet):
        from tuner.runs.folder import LOCK
        from tuner.runs.lock import RunLock
        from tuner.runs.open import require_runs
        from tuner.search.terminal import SearchConsole
        from tuner.soup.make import check_counts, make_soup
        from tuner.soup.text import soup_text

    gathered, methods = Gathered("soup"), None
    halvings = 1 if arguments.halvings is None else arguments.halvings
    with gathered:
        refuse_what_does_not_count(arguments)
    with gathered:
        require_runs(arguments.runs)
    with gathered:
        methods = read_methods(arguments.methods)
    with gathered:
        check_counts(keep=arguments.keep, halvings=halvings)
    gathered.tell()
    console = SearchConsole(quiet=arguments.quiet)
    if len(arguments.runs) > 1:
        return run_several(arguments, methods, console)
    folder = arguments.runs[0].absolute()
    with (
        RunLock(folder / LOCK, console.warn),
        workers(arguments.address, console) as runner,
        console.phase("making the soup"),
    ):
        soup = make_soup(
            folder,
            keep=arguments.keep,
            methods=methods,
            data=arguments.data,
            halvings=halvings,
            folders=arguments.folders,
            log=console.log,
            warn=console.warn,
            runner=runner,
        )
    say(soup_text(soup, folder, arguments.verbose))
    return 0


def run_several(
    arguments: argparse.Namespace, methods: list[str] | None, console: SearchConsole
) -> int:
    from tuner.soup.several import ensembles_of, ensembles_text

    out = arguments.out or arguments.runs[0].absolute().parent / "ensembles"
    with console.phase(f"combining the answers of {len(arguments.runs)} runs"):
        found = ensembles_of(
            *(arguments.runs, out.absolute()),
            keep=arguments.keep,
            methods=methods,
            data=arguments.data,
            log=console.log,
            warn=console.warn,
        )
    say(ensembles_text(found, arguments.verbose))
    return 0


def refuse_what_does_not_count(arguments: argparse.Namespace) -> None:
    """Over several runs no average is made and no model runs."""
    own: tuple[str, ...] = ("out",)
    why = "for several runs; one has its soup in its own folder"
    if len(arguments.runs) > 1:
        own = ("halvings", "folders", "address")
        why = "for one run; over several, only kept answers are combined"
    given = [f"--{name}" for name in own if getattr(arguments, name) not in (None, False)]
    if given:
        raise InputError("soup", [f"{', '.join(given)}: {why}"])


@contextmanager
def workers(address: str | None, console: SearchConsole) -> Iterator[MakeRunner | None]:
    """Who evaluates: the workers of a cluster, each with one GPU or CPU, or this process."""
    if address is None:
        yield None
        return
    from tuner.ray_backend.session import ray_session
    from tuner.search.on_workers import on_workers

    with ray_session(address, console.phase) as ray:
        resources = resources_of(ray)
        # The models are sent: nobody has looked whether the workers see this folder.
        with on_workers(resources, warn=console.warn, log=console.log) as there:
            yield there.runner


def resources_of(ray: Session) -> Resources:
    """A worker for each GPU, or else for each CPU, so that every one finds room on a machine."""
    from tuner.ray_backend.resources import share_out

    return share_out(
        ray.cpus,
        ray.gpus,
        concurrent=None,
        cpus=None if ray.gpus else 1.0,
        gpus=1.0 if ray.gpus else 0.0,
        trials=max(1, int(ray.gpus or ray.cpus)),
        nodes=ray.nodes,
        elastic=True,
    )


def read_methods(text: str | None) -> list[str] | None:
    from tuner.soup.methods import METHODS

    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    faults = [
        f"no method is called '{n}'; {suggest(n, METHODS)}" for n in names if n not in METHODS
    ]
    if faults or not names:
        raise InputError("--methods", faults or [f"name some of {', '.join(METHODS)}"])
    return names


if __name__ == "__main__":
    raise SystemExit(main())
