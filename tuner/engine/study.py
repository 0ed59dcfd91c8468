"""Optuna, made from the ledger: samplers by name, and the study at any moment.

`tuner.engine.sampling` asks a sampler for the next point.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as S

from model.common.errors import InputError, suggest
from tuner.runs.state import RunState, TrialState, objective_score, objective_value


class SearchSpace(Protocol):
    """What is needed of `tuner.space.space.Space`."""

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]: ...

    def draw(
        self, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]: ...

    def every(
        self, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]: ...

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any]: ...

    def params(self, settings: Mapping[str, Any]) -> dict[str, Any]: ...

    def default_point(self) -> dict[str, Any]: ...

    def missing(self, settings: Mapping[str, Any]) -> tuple[str, ...]: ...

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]: ...

    def default_params(self) -> tuple[dict[str, Any], dict[str, Any]]: ...


# --- samplers -----------------------------------------------------------------------------------

STARTUP = 5  # trials at random before a model is fitted to them; a search may have ten in all
POPULATION = 10  # of NSGA-II; Optuna's 50 would be one random generation of most searches


def _tpe(seed: int) -> BaseSampler:
    return optuna.samplers.TPESampler(
        n_startup_trials=STARTUP, multivariate=True, group=True, constant_liar=True, seed=seed
    )


def _gp(seed: int) -> BaseSampler:
    return optuna.samplers.GPSampler(
        n_startup_trials=STARTUP, warn_independent_sampling=False, seed=seed
    )


def _cmaes(seed: int) -> BaseSampler:
    return optuna.samplers.CmaEsSampler(warn_independent_sampling=False, seed=seed)


def _nsga2(seed: int) -> BaseSampler:
    return optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=seed)


def _random(seed: int) -> BaseSampler:
    return optuna.samplers.RandomSampler(seed=seed)


# Ours: Gaussian processes, one for each task (`tuner.engine.task_gp`).
TASK_GP = "task_gp"
AUTO = "auto"
FEW = 300  # trials, up to which it is taken: beyond, TPE has enough to go by, and is quicker

SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": _tpe,
    "random": _random,
    "gp": _gp,
    "cmaes": _cmaes,
    "nsga2": _nsga2,
}
NEEDS = {"gp": ("torch", "scipy"), "cmaes": ("cmaes",)}
ONE_OBJECTIVE = ("cmaes",)
# These leave notes in the study at each ask, so they are asked again for every past trial.
STATEFUL = ("cmaes", "nsga2")
# Closed trials that the others are shown at most: an ask takes time in proportion to them, and
# with the Gaussian process to their cube. `tuner.engine.sampling` says which.
SHOWN = {"tpe": 300, "gp": 200, "random": 0}


def choose_sampler(name: str, trials: int) -> str:
    """What `auto` means for so many trials."""
    if name != AUTO:
        return name
    return TASK_GP if trials <= FEW else "tpe"


def check_sampler(name: str, *, objectives: int) -> None:
    if name not in (AUTO, TASK_GP):
        make_sampler(name, 0, objectives=objectives)


def make_sampler(name: str, seed: int, *, objectives: int = 1) -> BaseSampler:
    """One of Optuna's by name, or InputError if it is not to be had."""
    if name not in SAMPLERS:
        known = [AUTO, TASK_GP, *SAMPLERS]
        raise InputError("--sampler", [f"'{name}' is not a sampler; {suggest(name, known)}"])
    if missing := [package for package in NEEDS.get(name, ()) if find_spec(package) is None]:
        fault = f"'{name}' needs the package {' and '.join(missing)}: pip install "
        raise InputError("--sampler", [fault + " ".join(missing)])
    if objectives > 1 and name in ONE_OBJECTIVE:
        others = ", ".join(sorted(set(SAMPLERS) - set(ONE_OBJECTIVE)))
        fault = f"'{name}' takes one objective, but there are {objectives}; choose one of {others}"
        raise InputError("--sampler", [fault])
    with quiet():
        return SAMPLERS[name](seed)


def seed_for(seed: int, number: int, attempt: int = 0) -> int:
    """The seed of the sampler that is asked for trial `number`, and once more for each attempt."""
    entropy = [seed, number, attempt] if attempt else [seed, number]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna without its line per study and its notes on what may change or could be faster."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


# --- the study ----------------------------------------------------------------------------------

# A point that does not fit into memory, or whose loss explodes, is bad news about the point.
# Optuna's samplers do not see FAIL, so they are shown it as pruned before its first report,
# which ranks below every other.
INFEASIBLE = ("memory", "diverged")


def rebuild_study(
    state: RunState,
    space: SearchSpace,
    storage: BaseStorage | None = None,
    *,
    for_sampler: bool = False,
) -> optuna.Study:
    """The study of a run. To people it shows every trial, under the number that its name has.

    To samplers it shows the configurations, under the numbers that they were asked for with: the
    default, which may lie outside the space, and further runs would mislead them.
    """
    if for_sampler:
        places = {trial.number: trial for trial in state.search_trials}
        size = state.next_number
    else:
        places = {place_of(trial): trial for trial in state.trials.values()}
        size = max((place for place in places if place is not None), default=-1) + 1
    with quiet():
        study = new_study(state, storage)
        for place in range(size):
            trial = places.get(place)
            frozen = freeze(trial, space, state, for_sampler=for_sampler) if trial else lost()
            study.add_trial(frozen)
    return study


def place_of(trial: TrialState) -> int | None:
    """Its number in the study that people see: t0012 is Optuna's trial 12."""
    return int(trial.id[1:]) if trial.id[1:].isdigit() else None


def new_study(state: RunState, storage: BaseStorage | None = None) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name=state.name or None,
        directions=["maximize"] * len(state.objectives),
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.NopPruner(),
    )
    study.set_metric_names(list(state.objectives))
    return study


def freeze(
    trial: TrialState, space: SearchSpace, state: RunState, *, for_sampler: bool = False
) -> FrozenTrial:
    """A trial of the ledger as one of Optuna's; for samplers a configuration with its longer runs.

    One that was trained in full has the values of the evaluation that stands for it. The others
    are PRUNED with their curves, and with the last value as Optuna has it; as long as one may
    still go on it is RUNNING, though samplers are shown what it has. A repeat with another seed
    is PRUNED too: it is no rival for the best. With several objectives there is no such curve in
    Optuna (TPE would break on one), so it goes into an attribute.
    """
    objectives = state.objectives
    runs = state.runs_of(trial.id) if for_sampler else [trial]
    last = next((run for run in reversed(runs) if run.evaluations), trial)
    result, values = _result(runs, last, state, for_sampler)
    curve = {
        int(entry["examples"]): objective_score(entry, objectives)
        for run in runs
        for entry in (run.evaluations if run is last else run.evaluations[-1:])
    }
    single = len(objectives) == 1
    if for_sampler and trial.status == "failed" and trial.kind in INFEASIBLE:
        result, curve = S.PRUNED, {}
    params, outside = _params(trial, space, state)
    attributes = _attributes(trial, last, objectives) | outside
    if state.has_another_seed(trial):
        attributes["seed"] = trial.seed
    if not single and curve:
        attributes["curve"] = [list(point) for point in curve.items()]
    try:
        frozen = optuna.trial.create_trial(
            state=result,
            values=values,
            params=params,
            distributions=space.distributions(params),
            user_attrs=attributes,
            intermediate_values=curve if single else {},
        )
    except (ValueError, KeyError):  # the space is not the one that the trial came from
        return lost(attributes | {"reason": "its point does not fit the search space"})
    frozen.datetime_start = datetime.fromtimestamp(trial.created)
    if result.is_finished():
        frozen.datetime_complete = datetime.fromtimestamp(last.closed or trial.created)
    return frozen


def _params(
    trial: TrialState, space: SearchSpace, state: RunState
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was tried, so far as the space has it; and as attributes what lies outside of it."""
    if state.is_default(trial):
        params, outside = space.default_params()
        return params, {"outside the space": outside} if outside else {}
    return dict(state.trials.get(trial.configuration, trial).params), {}


def _result(
    runs: Sequence[TrialState], last: TrialState, state: RunState, for_sampler: bool
) -> tuple[S, list[float] | None]:
    """`last` is the longest of the runs that was scored."""
    objectives = state.objectives
    if any(run.status == "open" and not run.frozen for run in runs):
        return S.RUNNING, None
    if last.frozen and not (for_sampler or state.ended):
        return S.RUNNING, None  # it may go on
    short = last.status == "finished" and last.level < len(state.rungs) - 1
    again = last.status == "finished" and last.is_repeat
    if short or again or last.frozen or last.status == "stopped":
        single = len(objectives) == 1 and last.evaluations
        return S.PRUNED, [objective_score(last.evaluations[-1], objectives)] if single else None
    if last.status == "finished" and (chosen := last.chosen(objectives)) is not None:
        values = [objective_value(chosen, name) for name in objectives]
        if all(map(math.isfinite, values)):
            return S.COMPLETE, values
    return S.FAIL, None


def _attributes(trial: TrialState, last: TrialState, objectives: Sequence[str]) -> dict[str, Any]:
    chosen = last.chosen(objectives) or {}
    found = {
        "trial": last.id,
        "origin": trial.origin,
        "of": trial.of,
        "examples": last.examples,
        "checkpoint": chosen.get("checkpoint"),
        "interval": chosen.get("interval"),
        "kind": trial.kind,
        "reason": trial.reason,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def bring_up(storage: BaseStorage, key: int, there: FrozenTrial, wanted: FrozenTrial) -> bool:
    """Make a trial in a storage what it shall be; False for one that has ended, which stays.

    The state comes last: until then a trial can be changed.
    """
    if there.state.is_finished():
        return False
    for step, value in wanted.intermediate_values.items():
        if there.intermediate_values.get(step) != value:
            storage.set_trial_intermediate_value(key, step, value)
    for name, note in wanted.user_attrs.items():
        if there.user_attrs.get(name) != note:
            storage.set_trial_user_attr(key, name, note)
    if wanted.state != S.RUNNING:
        storage.set_trial_state_values(key, wanted.state, wanted.values)
    return True


def lost(attributes: Mapping[str, Any] | None = None) -> FrozenTrial:
    """Holds the place of a number about which nothing useful is known."""
    why = attributes or {"reason": "the ledger lacks the trial's creation"}
    return optuna.trial.create_trial(state=S.FAIL, user_attrs=dict(why))
