"""What a search is asked to do, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What defines a search. On --resume it comes from run.yaml and must not change."""

    space: str = "default"
    tasks: str | None = None
    data: str | None = None
    encoder: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    sampler: str = "tpe"
    objectives: tuple[str, ...] = ("overall",)
    seed: int = 0
    num_samples: int = 8
    max_examples: int | None = None
    grace_examples: int | None = None
    reduction_factor: float = 2.0
    early_stopping: bool = True
    keep: int = 5
    confirm: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        # A run may be resumed from another folder, so what is a path must hold there.
        for name in ("space", "tasks", "data", "encoder"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, settled(name, str(value)))
        if isinstance(self.set, Mapping):
            object.__setattr__(self, "set", settled_settings(self.set))
        if isinstance(self.confirm, str):
            object.__setattr__(self, "confirm", parse_confirm(self.confirm))
        for name in ("objectives", "confirm"):
            value = getattr(self, name)
            many = isinstance(value, list | tuple)
            object.__setattr__(self, name, tuple(value) if many else (value,))

    def grace(self, max_examples: int) -> int:
        """Examples up to the first rung, and from one evaluation of a trial to the next."""
        return self.grace_examples or max(1, -(-max_examples // 3))

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Asked:
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


def settled(name: str, value: str) -> str:
    """A path made absolute; a shipped name or a Hub id as it is."""
    is_path = name == "data" or value.endswith((".yaml", ".yml")) or value.startswith(".")
    if is_path or (name == "encoder" and Path(value).is_dir()):
        return str(Path(value).absolute())
    return value


def settled_settings(given: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """The settings with their paths made absolute, whether dotted or nested."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        key = f"{inside}{name}"
        if isinstance(value, Mapping):
            value = settled_settings(value, f"{key}.")
        elif isinstance(value, str) and value:
            if key in ("init_from", "pretrain.simcse.text") or key.startswith("augment."):
                value = str(Path(value).absolute())
            elif key == "encoder.name":
                value = settled("encoder", value)
        found[name] = value
    return found


def parse_confirm(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError("--confirm", [f"'{text}' is not NxS; write 3x3 for 3 trials, 3 seeds"])
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True, kw_only=True)
class How:
    """Where and on what it runs; may differ from start to start."""

    name: str | None = None
    storage_path: Path = Path("runs")  # or a URL, which becomes `remote`
    local_path: Path = Path("runs")  # with a URL: where the driver keeps its own copy
    remote: str | None = None  # the URL, secrets and all: not for people's eyes
    resume: bool = False
    force: bool = False
    time_budget_s: float | None = None
    max_concurrent_trials: int | None = None
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None
    address: str | None = None
    soup: bool = True
    quiet: bool = False
    verbose: bool = False
    report: bool = True  # write report.html at the end

    def __post_init__(self) -> None:
        given = str(self.storage_path)
        if "://" in given:
            object.__setattr__(self, "remote", given)
            object.__setattr__(self, "storage_path", self.local_path)
        object.__setattr__(self, "storage_path", Path(self.storage_path))
