"""What is wrong with a search as asked, found before anything is written or started."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.errors import InputError, suggest
from model.secrets import redact
from model.values import show
from tuner.asked import Asked, How
from tuner.ledger import read_events
from tuner.run_folder import LEDGER, changes, read_run
from tuner.run_state import RunState
from tuner.space import Space
from tuner.study import make_sampler

# May be changed on the way without making it another search.
FREE = ("num_samples", "confirm", "keep")
WHOLE = ("seed", "num_samples", "max_examples", "grace_examples", "keep")
MOST_SEED = 2**32 - 1
# The search itself decides these in every trial, so that a value of their own would have no effect.
DECIDED = {
    "seed": "--seed",
    "budget.epochs": "--max-examples",
    "budget.eval_every": "--grace-examples",
}


class Gathered:
    """`with gathered:` around each check, then `tell` raises all that they found as one."""

    def __init__(self) -> None:
        self.errors: list[InputError] = []

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, InputError):
            self.errors.append(error)
        return isinstance(error, InputError)

    def tell(self) -> None:
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise InputError("search", [fault for each in self.errors for fault in told(each)])


def told(error: InputError) -> list[str]:
    before = "" if error.where == "search" else f"{error.where}: "
    return [f"{before}{fault}" for fault in error.faults]


def check_types(asked: Asked, how: How) -> None:
    """Python's callers can give anything."""
    numbers = ("time_budget_s", "cpus_per_trial", "gpus_per_trial")
    faults = type_faults(how, ("max_concurrent_trials",), int, "a whole number")
    faults += type_faults(how, numbers, int | float, "a number")
    faults += type_faults(asked, WHOLE, int, "a whole number")
    faults += type_faults(asked, ("reduction_factor",), int | float, "a number")
    faults += type_faults(asked, ("sampler",), str, "a name")
    faults += type_faults(asked, ("set",), Mapping, "settings by their keys")
    confirm = asked.confirm
    if len(confirm) != 2 or not all(is_a(each, int) and each >= 0 for each in confirm):
        faults.append(f"--confirm is {show(confirm)}; write 3x3, or (3, 3) in Python")
    if not all(is_a(goal, str) for goal in asked.objectives):
        faults.append(f"--objectives is {show(asked.objectives)}; give the names of tasks")
    if faults:
        raise InputError("search", faults)


def type_faults(given: Asked | How, names: Sequence[str], kind: Any, expected: str) -> list[str]:
    return [
        f"{flag(name)} must be {expected}, but is {show(value)}"
        for name in names
        if (value := getattr(given, name)) is not None and not is_a(value, kind)
    ]


def is_a(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_asked(asked: Asked) -> None:
    """As far as can be told without knowing the space."""
    faults = []
    least = {"num_samples": 1, "max_examples": 1, "grace_examples": 1, "keep": 1, "seed": 0}
    for name, low in least.items():
        value = getattr(asked, name)
        if value is not None and value < low:
            faults.append(f"{flag(name)} is {value}; it must be at least {low}")
    most = MOST_SEED - asked.confirm[1]  # repeats count on from it
    if asked.seed > most:
        faults.append(f"--seed is {asked.seed}; it must be at most {most}")
    faults += secret_faults(asked)
    factor = asked.reduction_factor
    if not (math.isfinite(factor) and factor > 1):
        faults.append(f"--reduction-factor is {factor:g}; it must be above 1")
    if faults:
        raise InputError("search", faults)
    make_sampler(asked.sampler, 0, objectives=len(asked.objectives))


def check_against(asked: Asked, space: Space) -> None:
    """What is asked, beside what the space has."""
    known = ["overall", *space.task_set.names]
    faults = [
        f"--objectives: '{goal}' is not one; {suggest(goal, known)}"
        for goal in asked.objectives
        if goal not in known
    ]
    if not asked.objectives or len(set(asked.objectives)) < len(asked.objectives):
        faults.append("--objectives: name each one once, as in sentiment,paraphrase")
    faults += [
        f"{'--set' if key in asked.set else 'base'}: '{key}' is decided by {other}; give that"
        for key, other in DECIDED.items()
        if space.base.get(key) is not None
    ]
    grace, most = asked.grace_examples, asked.max_examples or space.examples
    if grace is not None and grace > most > 0:
        whose = "--max-examples" if asked.max_examples else "a trial's examples in this space,"
        faults.append(f"--grace-examples {grace} is above {whose} {most}; lower it")
    if faults:
        raise InputError("search", faults)


def secret_faults(asked: Asked) -> list[str]:
    """What is asked is written to run.yaml, which people share."""
    given = {flag(name): getattr(asked, name) for name in ("space", "tasks", "data", "encoder")}
    given |= {f"--set {key}": value for key, value in asked.set.items()}
    remedy = "leave it out, and give it through the environment"
    return [
        f"{name} holds a password or a key, which would be written to run.yaml; {remedy}"
        for name, value in given.items()
        if isinstance(value, str) and redact(value) != value
    ]


def check_how(how: How) -> None:
    """As far as can be told without knowing the machine."""
    faults = []
    if how.max_concurrent_trials is not None and how.max_concurrent_trials < 1:
        fault = f"--max-concurrent-trials is {how.max_concurrent_trials}; it must be at least 1"
        faults.append(fault)
    for name, may_be_zero in (
        ("time_budget_s", False),
        ("cpus_per_trial", False),
        ("gpus_per_trial", True),
    ):
        value = getattr(how, name)
        if value is None:
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
            bound = "0 or more" if may_be_zero else "above 0"
            faults.append(f"{flag(name)} is {value:g}; it must be {bound}")
    if how.force and not how.resume:
        faults.append("--force goes with --resume; it never overwrites a run")
    if faults:
        raise InputError("search", faults)


NEGATED = "no_early_stopping"  # the flag of `early_stopping`


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def refuse_or_allow(folder: Path, how: How) -> None:
    there = (folder / LEDGER).exists()
    if there and not how.resume:
        remedy = "go on with the same command and --resume, or give another --name"
        raise InputError(str(folder), [f"holds a search already ({describe(folder)}); {remedy}"])
    if there:
        check_not_emptied(folder)
    if how.resume and not there:
        found = sorted(p.parent.name for p in folder.parent.glob(f"*/{LEDGER}"))
        held = f"there are: {', '.join(found)}" if found else "there are no searches in it"
        fault = f"no search of this name to resume in {folder.parent}; {held}"
        raise InputError(str(folder), [fault])
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), ["is a file; give another --name"])
    if not there and folder.exists():
        strange = sorted(p.name for p in folder.iterdir() if p.name not in OURS)
        if strange:
            fault = f"is not empty and not a run's folder (it has {', '.join(strange[:3])})"
            raise InputError(str(folder), [f"{fault}; give another --name"])


def check_not_emptied(folder: Path) -> None:
    """An empty ledger beside trials is a lost one: never begin again as if nothing had been."""
    if any(read_events(folder / LEDGER, lambda line: None)):
        return
    trials = folder / "trials"
    names = sorted(p.name for p in trials.iterdir()) if trials.is_dir() else []
    if names:
        fault = f"has not one whole line, but there are {len(names)} trials in {trials}"
        remedy = "put back a copy of it, or begin a new run with another --name"
        raise InputError(str(folder / LEDGER), [f"{fault}; {remedy}"])


# What a search that died before its first event may have left.
OURS = ("run.yaml", "space.yaml", "lock")


def describe(folder: Path) -> str:
    state = RunState.from_events(read_events(folder / LEDGER, lambda line: None), lambda line: None)
    counts = state.counts()
    done = sum(counts.values()) - counts["open"]
    return f"{done} of {state.num_samples} trials done, {counts['open']} under way"


def check_unchanged(
    folder: Path,
    asked: Asked,
    prints: Mapping[str, Any],
    *,
    space_changed: bool,
    force: bool,
) -> None:
    """A run goes on as it began. More trials may be asked for; the rest must be the same."""
    before = read_run(folder)
    was, now = Asked.from_dict(before["asked"]).to_dict(), asked.to_dict()
    was, now = ({**each, NEGATED: not each["early_stopping"]} for each in (was, now))
    remedy = "leave it out, or give another --name"
    faults = [
        f"{flag(key)} was {was[key]!r} and is {now[key]!r} now; {remedy}"
        for key in now
        if key not in (*FREE, "early_stopping") and was[key] != now[key]
    ]
    if not force:
        found = changes(before["fingerprints"], prints)
        if space_changed and not faults:
            found.insert(0, "the search space changed since the run began (its copy: space.yaml)")
        faults += [f"{fault}; put it back, or go on in spite of it with --force" for fault in found]
    if faults:
        raise InputError(str(folder), faults)
