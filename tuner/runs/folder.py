"""A run's folder: its name, its request, and the fingerprints it must be resumed with.

<storage>/<name>/
  run.yaml         the request, resolved; fingerprints
  space.yaml       the search space as it was
  ledger.jsonl     every event; the only truth
  study.journal    the same as an Optuna study, for others to open
  trials/<id>/     one folder per trial, as `model.train` makes it
  trials.parquet   a row per trial, for notebooks
  teacher/         the best ensemble's answers to training rows and texts, with --distill
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from model import __version__
from model.cli.flags import faults_of
from model.common.errors import InputError
from model.common.files import read_yaml, sha256_of, to_yaml, write_atomic
from model.common.untrusted import unfit
from model.tasks.task_set import TaskSet
from tuner.runs.request import ExecutionOptions, SearchRequest

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
PACKAGES = ("numpy", "optuna", "pyarrow", "ray", "safetensors", "torch", "transformers")
WORDS = {
    "data": "data",
    "tasks": "task set",
    "encoder": "encoder",
    "init_from": "model of init_from",
    "code": "code",
}
RUN, SPACE, LEDGER, LOCK = "run.yaml", "space.yaml", "ledger.jsonl", "lock"
JOURNAL, REPORT, TABLE = "study.journal", "report.html", "trials.parquet"
TRIALS, CHECKPOINTS, MODEL = "trials", "checkpoints", "model"
TEACHER, TEACHER_TEXTS = "teacher/train.parquet", "teacher/texts.parquet"
MOST_NAMED = 5  # strange files of a folder
GONE = (errno.ENOENT, errno.ESTALE, errno.ENOTDIR)  # meanwhile, here or by another machine


def run_folder(storage: Path, name: str) -> Path:
    """The folder of a run of that name, which can lie nowhere but directly in `storage`."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        fault = f"'{name}' cannot name a run; use up to 64 letters, digits, '.', '_' or '-'"
        raise InputError("--name", [f"{fault}, and no '.' at the start"])
    return storage / name


def trial_folder(run: Path, trial: str) -> Path:
    return run / TRIALS / trial


def model_folder(run: Path, trial: str, checkpoint: str) -> Path:
    """The model of one of a trial's checkpoints."""
    return trial_folder(run, trial) / CHECKPOINTS / checkpoint / MODEL


def refuse_strange(folder: Path) -> None:
    """A run consists of folders and regular files. Behind a link could be anything, and a pipe
    would be waited for: InputError names the first few of them."""
    strange: list[str] = []
    places = [str(folder)] if folder.is_dir() else []
    while places and len(strange) < MOST_NAMED:
        try:
            entries = list(os.scandir(places.pop()))
        except OSError as error:
            if error.errno in GONE:
                continue  # a search is at work, and removed a checkpoint
            raise InputError(str(folder), [f"cannot be looked at: {error}"]) from None
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                places.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                strange.append(os.path.relpath(entry.path, folder))
    if strange:
        remedy = "a run has folders and plain files only: move it away, or put back what was there"
        faults = [
            f"{name} is a link, a pipe or a device; {remedy}"
            for name in sorted(strange)[:MOST_NAMED]
        ]
        raise InputError(str(folder), faults)


def name_of(request: SearchRequest, options: ExecutionOptions) -> str:
    """As given, or the space's."""
    return Path(request.space).stem if options.name is None else options.name


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Make the folder, and take it away again if nothing came to be in it."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        fault = f"cannot be made ({reason}); choose another --storage-path"
        raise InputError(str(folder), [fault]) from None
    try:
        yield
    finally:
        for place in missing:
            try:
                place.rmdir()
            except OSError:  # it is in use, as it should be
                break


def fingerprints(
    inputs: str, tasks: TaskSet, encoder: str, init_from: str | None = None
) -> dict[str, Any]:
    """What a run was made with: if any of it changes, going on would mix two experiments."""
    return {
        "data": inputs,
        "tasks": hashlib.sha256(repr(tasks.tasks).encode()).hexdigest(),
        "encoder": encoder_fingerprint(encoder),
        "init_from": init_from and weights_fingerprint(Path(init_from)),
        "code": code_fingerprint(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def encoder_fingerprint(name: str) -> str:
    from model.modules.encoder import TINY, place_of

    if name == TINY:
        return TINY
    folder = Path(place_of(name))
    known = weights_fingerprint(folder) if folder.is_dir() else hub_commit(name)
    return f"{name} {known}" if known else name


def weights_fingerprint(folder: Path) -> str | None:
    files = [folder / "model.safetensors", folder / "heads.safetensors"]
    return " ".join(sha256_of(file) for file in files if file.is_file()) or None


def hub_commit(name: str) -> str | None:
    """Of the snapshot that this machine has, which is what trials load while the Hub is away."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, "config.json")
    except ValueError:  # not a Hub id
        return None
    return Path(found).parent.name if isinstance(found, str) else None


def code_fingerprint() -> str:
    """Of the two packages' own sources."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("model", "tuner"):
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def write_run(
    folder: Path, request: Mapping[str, Any], prints: Mapping[str, Any], epoch: int = 0
) -> None:
    """`epoch`: of the last driver that the ledger knows of, by which an older copy is told."""
    data = {"stockpot": __version__, "request": dict(request), "fingerprints": dict(prints)}
    write_atomic(folder / RUN, to_yaml(data | ({"epoch": epoch} if epoch else {})))


def read_run(folder: Path) -> dict[str, Any]:
    data = dict(read_yaml(folder / RUN, links=False).data)
    if "asked" in data:  # as version 0.1 called it
        data["request"] = data.pop("asked")
    request, prints = data.get("request"), data.get("fingerprints")
    try:
        if not isinstance(request, dict) or not isinstance(prints, dict):
            raise ValueError
        packages = prints.get("packages", {})
        if not isinstance(packages, dict) or any(unfit(data)):
            raise ValueError
        if not all(isinstance(known, str) for known in packages.values()):
            raise ValueError
        if type(data.setdefault("epoch", 0)) is not int:
            raise ValueError
        if faults := faults_of(SearchRequest, request):
            raise InputError(str(folder / RUN), [f"request: {fault}" for fault in faults])
        SearchRequest.from_dict(request)
    except (TypeError, ValueError) as error:  # cut short, or written by somebody else
        if isinstance(error, InputError):
            raise
        fault = "is not what a search writes; is this the folder of a run?"
        raise InputError(str(folder / RUN), [fault]) from None
    return data


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of fingerprints, in words."""
    found = [
        f"the {name} changed since the run began"
        for what, name in WORDS.items()
        if before.get(what) != now.get(what)
    ]
    old, new = before.get("packages") or {}, now.get("packages") or {}
    found += [
        f"{name} was {old.get(name)} and is {new.get(name)} now"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    return found
