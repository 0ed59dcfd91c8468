"""The command line of one run: `python -m model.train`."""

from __future__ import annotations

import argparse
import os
import re
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from model.cli.exit_code import exit_code
from model.cli.invocation import command
from model.cli.parser import Parser, add_data, add_quiet, command_parser
from model.cli.status import doing
from model.common.errors import Gathered, InputError, PartlyRead
from model.common.files import read_yaml
from model.common.hub import require_encoder
from model.common.run_files import CONFIG, SUMMARY
from model.common.untrusted import read_json
from model.config.checks import unread
from model.config.parse import (
    Layer,
    flatten,
    load_preset,
    parse_assignments,
    parse_layers,
    preset_names,
)
from model.config.parse import read_settings as read_layer
from model.config.settings import RunConfig
from model.tasks.task_set import TaskSet, load_task_set, shipped
from model.train import train

if TYPE_CHECKING:
    from model.cli.console import Console

EXAMPLES = {
    "here": "--tasks sample --encoder minilm",
    "a preset": "--tasks cs224n --data ../data --preset paper-001 --out runs/paper-001",
    "own settings": "--tasks cs224n --data ../data --set smart.weight=5 --seed 7",
    "resume": "--resume --out runs/paper-001",
}
NOTE = "Every setting and its default: docs/settings.md"


def make_parser() -> Parser:
    parser = command_parser("train", "Train one multitask model.", EXAMPLES, NOTE)
    what = parser.add_argument_group("what to train")
    text = f"Train on this task set: {', '.join(shipped())} or a YAML file (default: sample)."
    what.add_argument("--tasks", metavar="SET", help=text)
    add_data(what, "none")
    text = "Train this encoder: minilm, tiny, a folder or a Hub id (default: minilm)."
    what.add_argument("--encoder", metavar="NAME", help=text)
    how = parser.add_argument_group("settings (a later one overrides an earlier one)")
    text = f"Take the settings of a published run: {', '.join(preset_names())}."
    how.add_argument("--preset", metavar="NAME", help=text)
    how.add_argument(
        "--config", type=Path, metavar="FILE", help="Read settings from this YAML file."
    )
    how.add_argument(
        "--set", action="append", metavar="K=V", help="Give a setting; may be repeated."
    )
    text = "Seed the run with N, as --set seed=N does (default: 0)."
    how.add_argument("--seed", type=int, metavar="N", help=text)
    run = parser.add_argument_group("the run")
    text = "Write the run to this folder (default: runs/SET-NNN)."
    run.add_argument("--out", type=Path, metavar="DIR", help=text)
    run.add_argument(
        "--resume",
        action="store_true",
        help="Go on with the run in --out, or with the newest unfinished one of the same flags.",
    )
    text = "Train on this device: cpu, cuda or cuda:1 (default: a GPU if there is one)."
    run.add_argument("--device", metavar="D", help=text)
    add_quiet(run)
    parser.check = setting_faults
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(
        lambda: run(make_parser().parse_args(argv)), "the run failed", mishap=is_mishap
    )


def is_mishap(error: Exception) -> bool:
    """A full disk, no memory, a loss that is not a number. Anything else is a bug, and shows."""
    from torch import OutOfMemoryError

    from model.training.step import TrainingDiverged

    if isinstance(error, OSError | MemoryError | OutOfMemoryError | TrainingDiverged):
        return True
    return "can't allocate memory" in str(error)  # torch on the CPU: a plain RuntimeError


def run(arguments: argparse.Namespace) -> int:
    with doing("loading PyTorch", arguments.quiet):
        from model.cli.console import Console
        from model.training.run_lock import check_folder

    console = Console(quiet=arguments.quiet)
    if arguments.resume:
        wanted = resumed(arguments)
        if is_finished(wanted.out):
            print(f"{wanted.out} is already finished; its model is in {wanted.out / 'model'}")
            return 0
        if arguments.out is None:
            console.say(f"the newest unfinished run with these settings is {wanted.out}")
        require_encoder(wanted.config.encoder.name)
    else:
        wanted = requested(arguments, console.warn)
    if arguments.out is not None:
        check_folder(wanted.out, resume=arguments.resume)
        return work(arguments, wanted, console)
    try:
        return work(arguments, wanted, console)
    finally:
        drop_if_empty(wanted.out)  # made here, and the run was refused


def work(arguments: argparse.Namespace, wanted: Wanted, console: Console) -> int:
    from model.modules.encoder_defaults import caution

    tasks, data, config, out = wanted
    go_on = f"go on with: {command('train', '--resume', '--out', out)}"
    stop = StopSignal()
    console.say(f"{tasks.name} on {config.encoder.name} -> {out}")
    records = train(
        config,
        tasks,
        out=out,
        data=data,
        resume=arguments.resume,
        device=arguments.device,
        stop=stop.requested,
        warn=console.warn,
        watch=console.step,
    )
    try:
        with console.working():
            for record in records:
                console.evaluation(record)
    except KeyboardInterrupt:
        if not (out / CONFIG).is_file():  # nothing to go on with
            raise
        console.warn(f"interrupted; {go_on}")
        return 128 + signal.SIGINT
    console.clear()
    if not is_finished(out):
        console.warn(f"stopped; {go_on}")
        return 128 + (stop.number or signal.SIGINT)
    console.result(read_json(out / SUMMARY, finite=False), out)
    if careful := caution(config.encoder.name, tasks):
        console.say(f"caution: {careful}")
    return 0


class Wanted(NamedTuple):
    tasks: TaskSet
    data: Path | None
    config: RunConfig
    out: Path


def layers_of(arguments: argparse.Namespace, gathered: Gathered) -> list[Layer]:
    """What the flags say of the settings, the later winning."""
    layers = list[Layer]()
    with gathered:
        layers += [load_preset(arguments.preset)] if arguments.preset else []
    with gathered:
        layers += [read_layer(arguments.config)] if arguments.config else []
    flags = {"encoder.name": arguments.encoder, "seed": arguments.seed}
    layers.append(Layer({k: v for k, v in flags.items() if v is not None}, "command line"))
    with gathered:
        try:
            given = parse_assignments(arguments.set or [])
        except PartlyRead as partly:
            given = partly.value
            raise
        finally:
            layers.append(Layer(given, "--set"))
    return layers


def settings_of(arguments: argparse.Namespace) -> tuple[TaskSet, RunConfig, list[Layer]]:
    """What the flags describe. All faults in the settings of all places come at once."""
    from model.data.sources import require_data

    gathered = Gathered("settings")
    layers = layers_of(arguments, gathered)
    with gathered:
        tasks = load_task_set(arguments.tasks or last(layer.tasks for layer in layers) or "sample")
        with gathered:
            require_data(tasks, data_of(arguments, layers), ("train", "dev"))
        config = parse_layers(layers, tasks)
        require_encoder(config.encoder.name)
    gathered.tell()
    return tasks, config, layers


def last(values: Iterable[str | None]) -> str | None:
    """The last one that is given."""
    return next((value for value in reversed(list(values)) if value), None)


def setting_faults(arguments: argparse.Namespace) -> list[str]:
    gathered = Gathered("settings")
    with gathered:
        if not arguments.resume:
            settings_of(arguments)
    return gathered.faults


def requested(arguments: argparse.Namespace, warn: Callable[[str], None]) -> Wanted:
    tasks, config, layers = settings_of(arguments)
    own = {key for layer in layers[bool(arguments.preset) :] for key in flatten(layer.settings)}
    for key, why in unread(config, tasks):
        if key in own:
            warn(f"{key} has no effect: {why}")
    out = arguments.out or free_folder(tasks.name)
    return Wanted(tasks, data_of(arguments, layers), config, out)


def data_of(arguments: argparse.Namespace, layers: Sequence[Layer]) -> Path | None:
    found = arguments.data or last(layer.data for layer in layers)
    return Path(found).absolute() if found else None


def resumed(arguments: argparse.Namespace) -> Wanted:
    """What the run's own folder describes; flags may say the same again, or nothing."""
    if arguments.out is None:
        return begun(arguments)
    wanted, layer = read_run(arguments.out)
    refuse_changes(arguments, layer, wanted)
    return wanted


def read_run(out: Path) -> tuple[Wanted, Layer]:
    """What a run's folder says of it, and the settings as a layer."""
    path = out / CONFIG
    document = read_yaml(path)
    if not isinstance(document.data.get("tasks"), str):
        raise InputError(str(path), ["names no task set; is this a run's folder?"])
    tasks = load_task_set(document.data["tasks"])
    layer = Layer(document.data.get("settings") or {}, str(path), document, ("settings",))
    data = document.data.get("data")
    config = parse_layers([layer], tasks)
    return Wanted(tasks, Path(data) if data else None, config, out), layer


def begun(arguments: argparse.Namespace) -> Wanted:
    """The newest unfinished run in `runs/` that the same flags began; or else a finished one."""
    from model.training.prepare import fill_in

    tasks, config, layers = settings_of(arguments)
    asked = Wanted(tasks, data_of(arguments, layers), fill_in(config), Path())
    same, there = list[Wanted](), list[str]()
    for out in numbered_runs(tasks.name):
        with suppress(InputError):  # a run that cannot be read is not the one
            found, _ = read_run(out)
            there.append(f"{out} ({'finished' if is_finished(out) else 'unfinished'})")
            same += [found] if is_same(found, asked) else []
    same.sort(key=lambda run: not is_finished(run.out))  # stable: the newest still come last
    if same:
        return same[-1]
    fault = f"no run of {tasks.name} in runs/ was begun with these settings"
    remedy = f"name one with --out: {', '.join(there[:-4:-1])}" if there else "leave it out"
    raise InputError("--resume", [f"{fault}; {remedy}"])


def is_same(found: Wanted, asked: Wanted) -> bool:
    """Whether one began the other, which has what follows from the data filled in."""
    config = found.config
    if asked.config.budget.eval_every is None:
        config = replace(config, budget=replace(config.budget, eval_every=None))
    if config.schedule.first_epochs < asked.config.schedule.first_epochs:  # cut to fit the budget
        first = asked.config.schedule.first_epochs
        config = replace(config, schedule=replace(config.schedule, first_epochs=first))
    return (found.tasks.origin, found.data, config) == (
        asked.tasks.origin,
        asked.data,
        asked.config,
    )


def is_finished(out: Path) -> bool:
    return (out / SUMMARY).is_file()


def refuse_changes(arguments: argparse.Namespace, began: Layer, wanted: Wanted) -> None:
    """A run goes on as it began: what the flags say must change nothing."""
    from model.training.prepare import fill_in

    gathered, changed = Gathered("--resume"), dict[str, tuple[Any, Any]]()
    layers = layers_of(arguments, gathered)
    if (data := data_of(arguments, layers)) is not None:
        changed["--data"] = (wanted.data, data)
    with gathered:
        named = arguments.tasks or last(layer.tasks for layer in layers)
        origin = load_task_set(named).origin if named else wanted.tasks.origin
        changed["--tasks"] = (wanted.tasks.origin, origin)
        if origin == wanted.tasks.origin:
            was = wanted.config.to_flat()
            now = fill_in(parse_layers([began, *layers], wanted.tasks)).to_flat()
            changed |= {key: (was.get(key), now[key]) for key in now}
    remedy = "leave it out, or start a new run with another --out"
    faults = [
        f"{name} was {old} and is {new} now; {remedy}"
        for name, (old, new) in changed.items()
        if old != new
    ]
    if faults or gathered.errors:
        raise InputError("--resume", [*faults, *gathered.faults])


def numbered_runs(name: str) -> list[Path]:
    """Those in the folders that `free_folder` made, the oldest first."""
    folders = [path.parent for path in Path("runs").glob(f"*/{CONFIG}")]
    ours = [out for out in folders if re.fullmatch(rf"{re.escape(name)}-\d+", out.name)]
    return sorted(ours, key=lambda out: int(out.name.rpartition("-")[2]))


def free_folder(name: str) -> Path:
    """The next number's, made at once: two runs that start together must not both take it."""
    for number in count(1):
        folder = Path("runs") / f"{name}-{number:03d}"
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            if not folder.parent.is_dir():  # a file called runs
                raise
    return folder


def drop_if_empty(folder: Path) -> None:
    for place in (folder, folder.parent):
        try:
            place.rmdir()
        except OSError:  # it is in use
            break


class StopSignal:
    """Ctrl-C and SIGTERM ask for a stop after the current step; a second one insists."""

    def __init__(self) -> None:
        self.number: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        # Not print: the signal may have come in the middle of one.
        start = "\n" if os.isatty(2) else ""  # below the line that updates in place
        os.write(2, f"{start}stopping after this step; Ctrl-C again stops at once\n".encode())

    def requested(self) -> bool:
        return self.number is not None
