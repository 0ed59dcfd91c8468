"""`python -m tuner.predict MODEL`: answers of a model, a soup, a set or an ensemble alike."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model.cli.exit_code import exit_code, of_the_machine
from model.cli.invocation import command
from model.cli.parser import Parser, add_data, add_quiet, command_parser
from model.cli.status import doing, warn
from model.cli.text import say
from model.common.errors import InputError

if TYPE_CHECKING:
    from model.evaluation.predictions import Predictions
    from model.modules.multitask import TaskSpec
    from tuner.predict.predictor import Predictor

SPLITS = ("dev", "test")
EXAMPLES = {
    "what a run recommends": "runs/default --out predictions",
    "another of its models": "runs/default --model 'greedy soup' --out predictions",
    "an ensemble": "runs/big/soups/mean --data ~/cs224n --out predictions",
    "a teacher for distillation": "runs/big --split train --out teacher",
    "one sentence": 'runs/default --text "never dull, often moving"',
    "one pair": 'runs/default --text "how old is it" "what is its age"',
}


def make_parser() -> Parser:
    about = "Answer the tasks' dev and test rows, or a sentence."
    parser = command_parser("predict", about, EXAMPLES)
    who = parser.add_argument_group("which model")
    text = "Take this folder's model: of a run (the recommended one), trial, checkpoint or soup."
    who.add_argument("place", type=Path, metavar="RUN", help=text)
    text = "Take another of the run's models: a soup's method, a trial as t0003, best or default."
    who.add_argument("--model", metavar="NAME", help=text)
    what = parser.add_argument_group("which inputs")
    add_data(what)
    what.add_argument(
        "--tasks", metavar="SET", help="Read this task set (default: the model's own)."
    )
    text = "Answer these splits (default: dev,test)."
    what.add_argument("--split", default="dev,test", metavar="A,B", help=text)
    what.add_argument(
        "--text", nargs="+", metavar="T", help="Answer this sentence, or two for a pair."
    )
    text = "Answer the texts of this file, one a line; a pair has a tab between its two."
    what.add_argument("--texts", type=Path, metavar="FILE", help=text)
    what.add_argument(
        "--task", metavar="NAME", help="Answer only this task (default: all that fit)."
    )
    where = parser.add_argument_group("where to")
    where.add_argument(
        "--out", type=Path, metavar="DIR", help="Write the predictions to this folder."
    )
    add_quiet(where, "Print only warnings.")
    # A flag without its value is a fault already, and not one that is missing.
    parser.check = lambda found: [] if parser.unread & {"text", "out"} else option_faults(found)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(
        lambda: run(make_parser().parse_args(argv)),
        "the prediction failed",
        mishap=of_the_machine,
    )


def run(arguments: argparse.Namespace) -> int:
    if faults := option_faults(arguments):
        raise InputError(command("predict"), faults)
    if arguments.text:
        return look(arguments)
    return write_texts(arguments) if arguments.texts else write(arguments)


def option_faults(arguments: argparse.Namespace) -> list[str]:
    """What does not go together; told beside flags that cannot be read."""
    faults = []
    if arguments.text and arguments.texts:
        faults.append("--text and --texts are two ways to ask; leave one away")
    if arguments.text and len(arguments.text) > 2:
        faults.append("--text takes a sentence, or two for a pair; put each in quotes")
    if arguments.text and arguments.out:
        faults.append("--text is answered here and now; leave --out away, or --text")
    if not arguments.text and arguments.out is None:
        faults.append("--out is missing; name the folder for the files, or ask with --text")
    splits = [split.strip() for split in arguments.split.split(",")]
    if odd := [split for split in splits if split not in ("train", *SPLITS)]:
        faults.append(f"--split has '{odd[0]}'; known: train, dev, test")
    return faults


def look(arguments: argparse.Namespace) -> int:
    """Answer one sentence or pair, on the terminal."""
    with doing("loading the model", arguments.quiet):
        from tuner.predict.predictor import load_predictor

        predictor = load_predictor(arguments.place, arguments.model)
    pair = len(arguments.text) == 2
    names = [name for name, spec in predictor.tasks.items() if spec.pair == pair]
    if arguments.task is not None:
        names = [predictor.known(arguments.task)]
    if not names:
        kind = "pairs" if pair else "single sentences"
        raise InputError("--text", [f"this model has no task for {kind}"])
    texts = [tuple(arguments.text)] if pair else arguments.text
    with doing("answering", arguments.quiet):
        found = predictor.answer_texts({name: texts for name in names})
    tell_who(predictor, arguments)
    for name, predictions in found.items():
        say(f"{name}: {shown(predictor.tasks[name], predictions)}")
    return 0


def shown(spec: TaskSpec, predictions: Predictions) -> str:
    """The first answer: the class by its name, or by its number where it has none."""
    value = predictions.values[0]
    if predictions.probabilities is None:
        return f"{value:.3f}   (of {spec.low:g} to {spec.high:g})"
    names = predictions.class_names or [str(number) for number in range(spec.classes)]
    pairs = zip(names, predictions.probabilities[0], strict=True)
    return f"{names[int(value)]}   ({'  '.join(f'{name} {each:.3f}' for name, each in pairs)})"


def write(arguments: argparse.Namespace) -> int:
    with doing("loading the model", arguments.quiet):
        from model.tasks.task_set import load_task_set
        from tuner.predict.predictor import load_predictor
        from tuner.predict.splits import answer_splits, write_split

        predictor = load_predictor(arguments.place, arguments.model)
    tasks = load_task_set(arguments.tasks or predictor.task_set)
    data = arguments.data or predictor.data
    names = [predictor.known(arguments.task)] if arguments.task else [t.name for t in tasks]
    splits = [split.strip() for split in arguments.split.split(",")]
    with doing(f"answering {' and '.join(splits)} of {', '.join(names)}", arguments.quiet):
        found = answer_splits(predictor, tasks, names, splits, data, warn)
    tell_who(predictor, arguments)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for split, answers in found.items():
        for path in write_split(tasks, split, answers, arguments.out):
            if not arguments.quiet:
                print(path)
    return 0


def write_texts(arguments: argparse.Namespace) -> int:
    """Answer a file of texts, for every task that they fit, or the one that is named."""
    with doing("loading the model", arguments.quiet):
        from tuner.predict.predictor import load_predictor
        from tuner.predict.texts import answer_file

        predictor = load_predictor(arguments.place, arguments.model)
    task = predictor.known(arguments.task) if arguments.task else None
    with doing(f"answering {arguments.texts}", arguments.quiet):
        written = answer_file(predictor, arguments.texts, task, arguments.out)
    tell_who(predictor, arguments)
    if not arguments.quiet:
        print(written)
    return 0


def tell_who(predictor: Predictor, arguments: argparse.Namespace) -> None:
    """Beside the answers, not among them: these may go on into another program."""
    if not arguments.quiet:
        warn(f"answered by {predictor.who}")


if __name__ == "__main__":
    raise SystemExit(main())
