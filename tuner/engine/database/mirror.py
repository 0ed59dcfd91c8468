"""The study in a database: a mirror of the ledger, for any of Optuna's storage URLs.

    study = optuna.load_study(study_name="<name>", storage="postgresql://...")

Trials have the numbers, states, values, parameters and curves of `study.journal`. What is there is
read only to find out what is missing, so it can be written again at any time: nothing comes twice.
Optuna does not change trials that have ended. Where the ledger says something else of one (a run
that was cut back, or that goes on after its end), the study is removed and made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from model.common.errors import InputError
from tuner.engine.database.place import StudyPlace
from tuner.engine.study import SearchSpace, bring_up, freeze, lost, place_of
from tuner.runs.state import RunState

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

OWNER = "stockpot:run"  # the study's attribute that says whose mirror it is
METRIC_NAMES = "study:metric_names"  # as `Study.set_metric_names` has it


def check_place(place: StudyPlace, name: str, key: str | None) -> None:
    """That it can be reached, and that a study of this name there is this run's: `key` is that of
    a run that goes on. Nothing is written."""
    from sqlalchemy import create_engine, inspect

    if place.file is not None and not place.file.exists():
        return
    try:
        engine = create_engine(place.url, **place.options())
        try:
            begun = inspect(engine).has_table("studies")
        finally:
            engine.dispose()
        if begun:
            storage = place.open()
            try:
                find_study(storage, place, name, key)
            finally:
                close(storage)
    except InputError:
        raise
    except Exception as error:  # each driver has errors of its own
        fault = f"{place.shown} cannot be used ({place.told(error)})"
        remedy = "mend that, or leave the flag out: the study can be written later"
        raise place.fault(f"{fault}; {remedy}") from None


def find_study(storage: RDBStorage, place: StudyPlace, name: str, key: str | None) -> int | None:
    """The run's study, if it has one. One of the same name that is not the run's is left alone."""
    try:
        study = storage.get_study_id_from_name(name)
    except KeyError:
        return None
    owner = storage.get_study_user_attrs(study).get(OWNER)
    begun = owner is None and storage.get_n_trials(study) == 0  # and its maker was killed there
    if begun or (owner is not None and owner == key):
        return study
    whose = "belongs to no run" if owner is None else "belongs to another run"
    fault = f"{place.shown} has a study '{name}' already, which {whose}"
    raise place.fault(f"{fault}; give the run another --name, or remove that study")


def close(storage: RDBStorage) -> None:
    storage.remove_session()
    storage.engine.dispose()


class StudyMirror:
    """Not for several threads. After an error the next `write` looks anew at what is there."""

    def __init__(self, place: StudyPlace, space: SearchSpace, key: str) -> None:
        self.place, self.space, self.key = place, space, key
        self._storage: RDBStorage | None = None
        self._there: list[tuple[int, FrozenTrial]] = []  # by number: Optuna's id, and what it has

    def write(self, state: RunState, changed: Iterable[str] | None = None) -> None:
        """Bring the study to what the ledger says. `changed`: trials that may differ from what the
        last call wrote; None: all."""
        try:
            if self._storage is None:
                self._storage = self.place.open()
                self._find(self._storage, state)
                changed = None
            self._write(self._storage, state, changed)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        storage, self._storage = self._storage, None
        if storage is not None:
            close(storage)

    def _find(self, storage: RDBStorage, state: RunState) -> None:
        found = find_study(storage, self.place, self._name(state), self.key)
        self._study = self._create(storage, state) if found is None else found
        if storage.get_study_user_attrs(self._study).get(OWNER) is None:
            self._claim(storage, state)
        trials = storage.get_all_trials(self._study, deepcopy=False)
        self._there = [(trial._trial_id, trial) for trial in trials]

    def _name(self, state: RunState) -> str:
        return state.name or self.key

    def _create(self, storage: RDBStorage, state: RunState) -> int:
        directions = [StudyDirection.MAXIMIZE] * len(state.objectives)
        return storage.create_new_study(directions, self._name(state))

    def _claim(self, storage: RDBStorage, state: RunState) -> None:
        storage.set_study_system_attr(self._study, METRIC_NAMES, list(state.objectives))
        storage.set_study_user_attr(self._study, OWNER, self.key)

    def _write(self, storage: RDBStorage, state: RunState, changed: Iterable[str] | None) -> None:
        wanted = self._wanted(state, changed)
        whole = changed is None and len(self._there) > max(wanted, default=-1) + 1
        if whole or any(
            not can_become(self._there[number][1], trial)
            for number, trial in wanted.items()
            if number < len(self._there)
        ):
            storage.delete_study(self._study)
            self._study, self._there = self._create(storage, state), []
            self._claim(storage, state)
            wanted = self._wanted(state, None)
        for number in sorted(wanted):
            if number < len(self._there):
                self._update(storage, number, wanted[number])
            else:
                for _ in range(len(self._there), number):
                    self._add(storage, lost())
                self._add(storage, wanted[number])

    def _wanted(self, state: RunState, changed: Iterable[str] | None) -> dict[int, FrozenTrial]:
        names = state.trials if changed is None else changed
        trials = [state.trials[name] for name in names]
        return {
            number: self._clean(freeze(trial, self.space, state))
            for trial in trials
            if (number := place_of(trial)) is not None
        }

    def _clean(self, trial: FrozenTrial) -> FrozenTrial:
        """As a database gives it back, and without secrets: a reason may quote one."""
        notes = json.loads(json.dumps(trial.user_attrs))
        trial.user_attrs = {
            name: self.place.hide(note) if name == "reason" and isinstance(note, str) else note
            for name, note in notes.items()
        }
        return trial

    def _add(self, storage: RDBStorage, trial: FrozenTrial) -> None:
        """In one transaction: it is there whole or not at all."""
        key = storage.create_new_trial(self._study, trial)
        number = storage.get_trial(key).number
        if number != len(self._there):  # the next look sets it right
            raise RuntimeError(f"another process writes to the study in {self.place.shown}")
        self._there.append((key, trial))

    def _update(self, storage: RDBStorage, number: int, wanted: FrozenTrial) -> None:
        key, there = self._there[number]
        if bring_up(storage, key, there, wanted):
            self._there[number] = (key, wanted)


def can_become(there: FrozenTrial, wanted: FrozenTrial) -> bool:
    """Whether Optuna lets one be made the other. Attributes that others have added may stay."""
    if there.params != wanted.params:
        return False
    if not there.state.is_finished():
        return there.intermediate_values.keys() <= wanted.intermediate_values.keys()
    return (
        there.state == wanted.state
        and there.values == wanted.values
        and there.intermediate_values == wanted.intermediate_values
        and wanted.user_attrs.items() <= there.user_attrs.items()
    )
