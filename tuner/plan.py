"""A search that is checked and can start: everything that can be refused is refused here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.encoder import load_tokenizer
from model.inputs import load_inputs
from model.prepare import fill_in
from tuner.asked import Asked, How
from tuner.checks import (
    Gathered,
    check_against,
    check_asked,
    check_how,
    check_types,
    check_unchanged,
    refuse_or_allow,
)
from tuner.console import SearchConsole
from tuner.lock import RunLock
from tuner.remote import fetch_run, refuse_or_meet
from tuner.run_folder import LOCK, RUN, SPACE, fingerprints, name_of, run_folder
from tuner.rungs import Rungs
from tuner.space import Space, load_space
from tuner.storage import Storage


@dataclass(frozen=True)
class Plan:
    asked: Asked
    how: How
    name: str
    folder: Path
    space: Space
    data: Path | None
    max_examples: int
    prints: dict[str, Any]
    storage: Storage | None = None  # where the folder is mirrored, if anywhere

    @property
    def grace(self) -> int:
        return self.asked.grace(self.max_examples)

    @property
    def rungs(self) -> Rungs | None:
        asked = self.asked
        if not asked.early_stopping:
            return None
        return Rungs(self.grace, self.max_examples, asked.reduction_factor)


def make_plan(asked: Asked, how: How, console: SearchConsole) -> Plan:
    """Check everything that can be checked before anything is written or started."""
    check_types(asked, how)
    gathered = Gathered()
    with gathered:
        check_how(how)
    with gathered:
        check_asked(asked)
    name = name_of(asked, how)
    with gathered:
        folder = run_folder(how.storage_path.absolute(), name)
        RunLock(folder / LOCK, console.warn).look()
        fetch_run(how, name)
        refuse_or_allow(folder, how)
        storage = refuse_or_meet(how, name)
        if how.resume:  # only a run that there is has a space of its own
            space, changed = open_run_space(asked, folder)
            check_against(asked, space)
    with gathered:
        if not how.resume:
            space, changed = open_space(asked), False
            check_against(asked, space)
    gathered.tell()
    max_examples = asked.max_examples or space.examples
    config = fill_in(space.config(space.default_point()))
    data = Path(asked.data).absolute() if asked.data else None
    tokenizer = load_tokenizer(config.encoder.name)
    inputs = load_inputs(config, space.task_set, data, tokenizer, console.warn)
    encoder, start = config.encoder.name, config.init_from
    prints = fingerprints(inputs.fingerprint, space.task_set, encoder, start)
    if how.resume and (folder / RUN).exists():
        check_unchanged(folder, asked, prints, space_changed=changed, force=how.force)
    plan = Plan(asked, how, name, folder, space, data, max_examples, prints, storage)
    _ = plan.rungs  # raises what is wrong with them
    return plan


def open_space(asked: Asked) -> Space:
    overrides = dict(asked.set)
    if asked.encoder is not None:
        overrides["encoder.name"] = asked.encoder
    return load_space(asked.space, asked.tasks, overrides)


def open_run_space(asked: Asked, folder: Path) -> tuple[Space, bool]:
    """The space that the run began with, and whether its file says something else by now."""
    if not (folder / SPACE).exists():
        return open_space(asked), False
    name = Path(asked.space).stem
    own = replace(load_space(str(folder / SPACE)), name=name)
    if name == asked.space or Path(asked.space).is_file():
        return own, open_space(asked).to_dict() != own.to_dict()
    return own, False  # the file has gone, and is not needed
