"""`python -m tuner.predict MODEL`: answers of a model, a soup, a set or an ensemble alike."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from model import __version__
from model.errors import InputError
from model.exit_code import exit_code, of_the_machine

SPLITS = ("dev", "test")
EXAMPLES = """
examples:
  a run's soup     python -m tuner.predict runs/default --out predictions
  an ensemble      python -m tuner.predict runs/big/soups/mean --data ~/cs224n --out predictions
  a quick look     python -m tuner.predict runs/default --text "never dull, often moving"
  at a pair        python -m tuner.predict runs/default --text "how old is it" "what is its age"
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tuner.predict",
        description="Answer the tasks' dev and test rows, or a sentence.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    who = parser.add_argument_group("who answers")
    who.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a run (its soup, or its best model), a trial, a checkpoint, soup/, soups/NAME",
    )
    what = parser.add_argument_group("what to answer")
    what.add_argument(
        "--data", type=Path, metavar="DIR", help="the tasks' files (default: the run's)"
    )
    what.add_argument("--tasks", metavar="SET", help="task set (default: the model's own)")
    what.add_argument("--split", default="dev,test", metavar="A,B", help="(default: dev,test)")
    what.add_argument("--text", nargs="+", metavar="T", help="a sentence, or two for a pair")
    what.add_argument("--task", metavar="NAME", help="only this one (default: all that fit)")
    where = parser.add_argument_group("where to")
    where.add_argument("--out", type=Path, metavar="DIR", help="folder of the prediction files")
    where.add_argument("-q", "--quiet", action="store_true", help="only warnings")
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    return exit_code(lambda: run(arguments), "the prediction failed", mishap=of_the_machine)


def run(arguments: argparse.Namespace) -> int:
    check(arguments)
    return look(arguments) if arguments.text else write(arguments)


def check(arguments: argparse.Namespace) -> None:
    faults = []
    if arguments.text and len(arguments.text) > 2:
        faults.append("--text takes a sentence, or two for a pair; put each in quotes")
    if arguments.text and arguments.out:
        faults.append("--text is answered here and now; leave --out away, or --text")
    if not arguments.text and arguments.out is None:
        faults.append("--out is missing; name the folder for the files, or ask with --text")
    splits = [split.strip() for split in arguments.split.split(",")]
    if odd := [split for split in splits if split not in ("train", *SPLITS)]:
        faults.append(f"--split has '{odd[0]}'; known: train, dev, test")
    if faults:
        raise InputError("tuner.predict", faults)


def look(arguments: argparse.Namespace) -> int:
    """Answer one sentence or pair, on the terminal."""
    from tuner.cooked import open_cooked

    cooked = open_cooked(arguments.model)
    pair = len(arguments.text) == 2
    names = [name for name, spec in cooked.tasks.items() if spec.pair == pair]
    if arguments.task is not None:
        names = [cooked.known(arguments.task)]
    if not names:
        kind = "pairs" if pair else "single sentences"
        raise InputError("--text", [f"this model has no task for {kind}"])
    texts = [tuple(arguments.text)] if pair else arguments.text
    for name, served in cooked.answer_texts({name: texts for name in names}).items():
        spec, value = cooked.tasks[name], float(served.values[0])
        line = f"{name}: {value:.3f}" if served.shares is None else f"{name}: {int(value)}"
        if served.shares is not None:
            shares = "  ".join(f"{n} {share:.3f}" for n, share in enumerate(served.shares[0]))
            line += f"   ({shares})"
        else:
            line += f"   (of {spec.low:g} to {spec.high:g})"
        print(line)
    return 0


def write(arguments: argparse.Namespace) -> int:
    from model.tasks import load_task_set
    from tuner.cooked import open_cooked
    from tuner.prediction import answer_splits, write_split

    cooked = open_cooked(arguments.model)
    tasks = load_task_set(arguments.tasks or cooked.task_set)
    data = arguments.data or cooked.data
    names = [cooked.known(arguments.task)] if arguments.task else [t.name for t in tasks]
    splits = [split.strip() for split in arguments.split.split(",")]
    found = answer_splits(cooked, tasks, names, splits, data, warn)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for split, answers in found.items():
        for path in write_split(tasks, split, answers, arguments.out):
            if not arguments.quiet:
                print(path)
    return 0


def warn(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
