"""A search that is checked and can start: everything that can be refused is refused here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.encoder import load_tokenizer
from model.inputs import load_inputs
from model.prepare import fill_in
from tuner.asked import Asked, How
from tuner.checks import check_asked, check_how, check_unchanged, refuse_or_allow
from tuner.console import SearchConsole
from tuner.remote import fetch_run, refuse_or_meet
from tuner.run_folder import RUN, SPACE, fingerprints, run_folder
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
    grace: int
    prints: dict[str, Any]
    storage: Storage | None = None  # where the folder is mirrored, if anywhere

    @property
    def rungs(self) -> Rungs | None:
        asked = self.asked
        if not asked.early_stopping:
            return None
        return Rungs(self.grace, self.max_examples, asked.reduction_factor)


def make_plan(asked: Asked, how: How, console: SearchConsole) -> Plan:
    """Check everything that can be checked before anything is written or started."""
    check_how(how)
    name = how.name or Path(asked.space).stem
    folder = run_folder(how.storage_path.absolute(), name)
    fetch_run(how, name)
    refuse_or_allow(folder, how)
    storage = refuse_or_meet(how, name)
    space, changed = open_run_space(asked, folder) if how.resume else (open_space(asked), False)
    check_asked(asked, space)
    max_examples = asked.max_examples or space.examples
    grace = asked.grace_examples or max(1, -(-max_examples // 3))
    config = fill_in(space.config(space.default_point()))
    data = Path(asked.data).absolute() if asked.data else None
    tokenizer = load_tokenizer(config.encoder.name)
    inputs = load_inputs(config, space.task_set, data, tokenizer, console.warn)
    prints = fingerprints(inputs.fingerprint, space.task_set, config.encoder.name)
    if how.resume and (folder / RUN).exists():
        check_unchanged(folder, asked, prints, space_changed=changed, force=how.force)
    plan = Plan(asked, how, name, folder, space, data, max_examples, grace, prints, storage)
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
