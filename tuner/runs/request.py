"""What a search is asked to do, and how: the one table of its flags, types, bounds and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from model.cli.flags import Flag, settle
from model.common.errors import InputError
from model.common.typed import Above, AtLeast, AtMost

SamplerName = Literal["auto", "task_gp", "tpe", "random", "gp", "cmaes", "nsga2"]
PromotionName = Literal["restart", "continue"]
MOST_SEED = 2**32 - 1
WHAT, HOW, RUN, WHERE = "what to search", "how to search", "the run", "where to run"


def read_confirm(given: Any) -> Any:
    """'3x3' -> (3, 3); '0x0' -> (0, 0), which is none"""
    if not isinstance(given, str):
        return given
    parts = given.lower().split("x")
    sound = len(parts) == 2 and all(re.fullmatch(r"[1-9][0-9]{0,2}", part) for part in parts)
    if not sound and parts != ["0", "0"]:
        shown = given if len(given) < 40 else f"{given[:40]}..."
        fault = f"'{shown}' is not NxS with both from 1 to 999"
        remedy = "write 3x3 for 3 trials, 3 seeds, or 0x0 for none"
        raise InputError("--confirm", [f"{fault}; {remedy}"])
    return tuple(map(int, parts))


def read_names(given: Any) -> Any:
    """'sentiment,paraphrase' -> both"""
    return [part.strip() for part in given.split(",")] if isinstance(given, str) else given


def read_set(given: Any) -> Any:
    """['smart.weight=5'] -> {'smart.weight': 5}"""
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        return given
    from model.config.parse import parse_assignments  # which --help does not need

    return parse_assignments(given)


def write_set(settings: Mapping[str, Any]) -> list[str]:
    from model.config.parse import assignment

    return [assignment(key, value) for key, value in settings.items()]


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What defines a search. On --resume it comes from run.yaml and must not change."""

    space: Annotated[
        str, Flag("Search this space: a shipped one's name or a YAML file.", WHAT, "S")
    ] = "default"
    tasks: Annotated[
        str | None,
        Flag(
            "Train these tasks: a set's name or a YAML file; SET:A,B is only its tasks A and B.",
            WHAT,
            "SET",
            "the space's",
        ),
    ] = None
    data: Annotated[
        str | None, Flag("Read the tasks' files in this folder.", WHAT, "DIR", "none")
    ] = None
    encoder: Annotated[
        str | None,
        Flag(
            "Train this encoder: minilm, tiny, a folder or a Hub id.", WHAT, "NAME", "the space's"
        ),
    ] = None
    set: Annotated[
        dict[str, Any],
        Flag(
            "Fix a setting in all trials. This flag may be repeated.",
            WHAT,
            "K=V",
            "none",
            read=read_set,
            write=write_set,
        ),
    ] = field(default_factory=dict)
    seed: Annotated[
        int,
        AtLeast(0),
        AtMost(MOST_SEED),
        Flag("Seed the sampler and the trials with this number.", WHAT, "N"),
    ] = 0
    budget_examples: Annotated[
        int | None,
        AtLeast(1),
        Flag(
            "Train on B examples in total; the search divides them among the trials.",
            HOW,
            "B",
            "the space's",
        ),
    ] = None
    num_samples: Annotated[
        int | None,
        AtLeast(1),
        Flag("Try N configurations.", HOW, "N", "what the budget allows", free=True),
    ] = None
    sampler: Annotated[
        SamplerName,
        Flag(
            "Propose by this sampler; auto is task_gp, our Gaussian process per task, or tpe "
            "beyond 300 trials.",
            HOW,
        ),
    ] = "auto"
    warm_start: Annotated[
        tuple[str, ...],
        Flag("Learn from the earlier runs in these folders.", HOW, "A,B", "none", read=read_names),
    ] = ()
    objectives: Annotated[
        tuple[str, ...],
        Flag(
            "Maximise these scores. Several tasks give a Pareto front.", HOW, "A,B", read=read_names
        ),
    ] = ("overall",)
    max_examples: Annotated[
        int | None,
        AtLeast(1),
        Flag("Train no trial on more than N examples.", HOW, "N", "what the budget allows"),
    ] = None
    grace_examples: Annotated[
        int | None,
        AtLeast(1),
        Flag(
            "Train each on N examples before it may be pruned.", HOW, "N", "a share of the longest"
        ),
    ] = None
    reduction_factor: Annotated[
        float,
        Above(1),
        Flag("Keep the best 1/X at each rung, and train them X times as long.", HOW, "X"),
    ] = 3.0
    early_stopping: Annotated[bool, Flag("Train every configuration in full.", HOW)] = True
    promotion: Annotated[
        PromotionName,
        Flag(
            "Restart a promoted configuration with its own learning-rate schedule, or continue "
            "from its checkpoint.",
            HOW,
        ),
    ] = "restart"
    finals: Annotated[
        int | None,
        AtLeast(1),
        Flag(
            "Train the best N configurations in full at the end.",
            HOW,
            "N",
            "one, or what --max-examples allows",
        ),
    ] = None
    evaluations: Annotated[
        int | None,
        AtLeast(1),
        Flag("Evaluate a training in full N times.", HOW, "N", "three, or two"),
    ] = None
    confirm: Annotated[
        tuple[int, int] | None,
        AtLeast(0),
        Flag(
            *("Repeat the best N with S further seeds before the finals, as 3x3.", HOW, "NxS"),
            "where the budget pays for it",
            read=read_confirm,
            write=lambda given: ["x".join(map(str, given))],
        ),
    ] = None
    distill: Annotated[
        bool,
        Flag("Distil the best ensemble into one more model.", HOW, free=True),
    ] = False
    distill_text: Annotated[
        str | None,
        Flag(
            "Read unlabelled texts, one per line, which the teacher of --distill labels as well.",
            HOW,
            "FILE",
            "none",
            free=True,
        ),
    ] = None
    keep: Annotated[
        int, AtLeast(1), Flag("Keep the checkpoints of the best K trials.", HOW, "K", free=True)
    ] = 5

    def __post_init__(self) -> None:
        # A run may be resumed from another folder, so what is a path must hold there.
        for name in ("space", "tasks", "data", "encoder", "distill_text"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, settled(name, str(value)))
        settle(self)
        if isinstance(self.warm_start, tuple):
            earlier = tuple(str(Path(folder).absolute()) for folder in self.warm_start)
            object.__setattr__(self, "warm_start", earlier)
        if isinstance(self.set, Mapping):
            object.__setattr__(self, "set", settled_settings(self.set))

    @property
    def overrides(self) -> dict[str, Any]:
        """What --set and --encoder fix in the space."""
        encoder = {} if self.encoder is None else {"encoder.name": self.encoder}
        return {**self.set, **encoder}

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SearchRequest:
        known = {item.name for item in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


def settled(name: str, value: str) -> str:
    """A path made absolute; a shipped name or a Hub id as it is."""
    from model.tasks.task_set import split_origin  # which --help does not need

    whole = split_origin(value)[0] if name == "tasks" else value
    is_path = (
        name in ("data", "distill_text")
        or whole.endswith((".yaml", ".yml"))
        or value.startswith(".")
    )
    if is_path or (name == "encoder" and Path(value).is_dir()):
        return str(Path(value).absolute())
    return value


PATHS = ("init_from", "pretrain.simcse.text", "distill.teacher", "distill.text")


def settled_settings(given: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    """The settings with their paths made absolute, whether dotted or nested."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        key = f"{inside}{name}"
        if isinstance(value, Mapping):
            value = settled_settings(value, f"{key}.")
        elif isinstance(value, str) and value:
            if key in PATHS or key.startswith("augment."):
                value = str(Path(value).absolute())
            elif key == "encoder.name":
                value = settled("encoder", value)
        found[name] = value
    return found


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Where and on what it runs; may differ from start to start."""

    resume: Annotated[bool, Flag("Go on with the run of this name.", RUN)] = False
    force: Annotated[
        bool, Flag("Resume although code or data changed, or the ledger is damaged.", RUN)
    ] = False
    name: Annotated[str | None, Flag("Give the run this name.", RUN, "NAME", "the space's")] = None
    storage_path: Annotated[
        Path, Flag("Keep the runs in this folder, or at a URL as s3://bucket/path.", RUN, "DIR")
    ] = Path("runs")  # a URL becomes `remote`
    local_path: Annotated[
        Path,
        Flag(
            "Keep a local copy of the run in this folder, when --storage-path is a URL.", RUN, "DIR"
        ),
    ] = Path("runs")
    remote: str | None = None  # the URL, secrets and all: not for people's eyes
    address: Annotated[
        str | None,
        Flag(
            "Run on this Ray cluster; 'auto' is the one whose head node this is.",
            WHERE,
            "A",
            "this machine",
        ),
    ] = None
    max_concurrent_trials: Annotated[
        int | None, AtLeast(1), Flag("Run N trials at once.", WHERE, "N", "what fits")
    ] = None
    cpus_per_trial: Annotated[
        float | None,
        Above(0),
        Flag("Give each trial X CPUs, and as many threads.", WHERE, "X", "an equal share"),
    ] = None
    gpus_per_trial: Annotated[
        float | None,
        AtLeast(0),
        AtMost(1),  # a trial trains on one, and others would idle
        Flag("Give each trial one GPU, or a fraction of one.", WHERE, "X", "1 where there are any"),
    ] = None
    time_budget_s: Annotated[
        float | None,
        Above(0),
        Flag(
            "Stop after S seconds; with no budget or number of trials this sets the search's size.",
            WHERE,
            "S",
            "no limit",
        ),
    ] = None
    study_storage: Annotated[
        str | None,
        Flag(
            "Keep the Optuna study in this database too: its URL, or env:NAME.",
            RUN,
            "URL",
            "none",
        ),
    ] = None
    soup: Annotated[bool, Flag("Make no soup at the end.", RUN)] = True
    report: Annotated[bool, Flag("Write no report.html at the end.", RUN)] = True
    verbose: Annotated[bool, Flag("Print a line per evaluation too.", RUN, short="-v")] = False
    quiet: Annotated[bool, Flag("Print only warnings and the summary.", RUN, short="-q")] = False

    def __post_init__(self) -> None:
        if "://" in str(self.storage_path):
            object.__setattr__(self, "remote", str(self.storage_path))
            object.__setattr__(self, "storage_path", self.local_path)
        settle(self)
