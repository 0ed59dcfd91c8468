"""What a task is, and task sets: YAML files that say which tasks a run has.

A new task, or a set of one's own, is a file and no code:

    about: one sentence
    tasks:
      mood:
        classes: [bad, fair, good]  # or  classes: 3,  binary: true,  regression: [0, 5]
        format: glue                # cs224n | glue | parquet | hub | arrow | sample
        files: {train: mood-train.tsv, dev: mood-dev.tsv}     # test may be left out
        columns: {text: sentence, label: label}   # text: [a, b] makes it a pair task
        clean: none                 # none | lower | spaced
        loss: cross_entropy         # optional, as are metric and weight
        metric: accuracy
        also: [macro_f1]            # metrics that are shown beside it, and do not count
        weight: 1                   # share in the overall score
        predictions: {file: "mood-{split}.csv", column: Predicted}   # optional: a file of answers

Format `hub` has `hub: {dataset: glue, config: qqp, splits: {train: train, dev: validation}}`
in place of `files`; format `sample` needs neither. Text files without a header line have
`header: false` and columns by number: `columns: {text: 4, label: 2}`. docs/data.md has it all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from model.common.errors import InputError, suggest
from model.common.files import Document, read_yaml
from model.common.typed import show
from model.tasks.prediction_file import KEY as PREDICTIONS
from model.tasks.prediction_file import PredictionFile, read_prediction_file
from model.tasks.source import CLEANING as CLEANING  # what a task is made of is told here
from model.tasks.source import FORMATS as FORMATS
from model.tasks.source import KEYS as SOURCE_KEYS
from model.tasks.source import SPLITS as SPLITS
from model.tasks.source import Source as Source
from model.tasks.source import read_source
from model.tasks.yaml_reader import YamlSection, as_number, by_line, plain_text

Kind = Literal["classes", "binary", "regression"]
LossName = Literal[
    "cross_entropy",
    "dual_objective",
    "ordinal_log",
    "soft_ordinal",
    "binary_cross_entropy",
    "mse",
    "pearson",
    "cosent",
]

# The first that fits a kind is its default.
LOSSES: dict[str, tuple[Kind, ...]] = {
    "binary_cross_entropy": ("binary",),
    "cross_entropy": ("classes", "binary"),
    "dual_objective": ("classes", "binary"),
    "ordinal_log": ("classes",),
    "soft_ordinal": ("classes",),
    "mse": ("regression",),
    "pearson": ("regression",),
    "cosent": ("regression",),
}
METRICS: dict[str, tuple[Kind, ...]] = {
    "accuracy": ("classes", "binary"),
    "macro_f1": ("classes", "binary"),
    "f1": ("binary",),
    "pearson": ("regression",),
    "spearman": ("regression",),
}
OWN_KEYS = {"classes", "binary", "regression", "loss", "metric", "also", "weight", PREDICTIONS}
KEYS = {*OWN_KEYS, *SOURCE_KEYS}
MOST_CLASSES = 100_000
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
FOLDER = Path(__file__).parent / "task_sets"


@dataclass(frozen=True, kw_only=True)
class Task:
    name: str
    kind: Kind
    classes: int  # N for `classes: N`, 2 for binary, 0 for regression
    low: float  # the label range: 0..N-1, 0..1, or the regression's
    high: float
    pair: bool
    loss: str
    metric: str
    weight: float
    source: Source
    also: tuple[str, ...] = field(
        default=(), repr=False
    )  # metrics that are shown, and do not count
    predictions: PredictionFile | None = None  # how its answers are to be written, beside Parquet


@dataclass(frozen=True)
class TaskSet:
    name: str
    about: str
    tasks: tuple[Task, ...]
    origin: str = ""  # what `load_task_set` finds it by: a shipped name, or the file's full path

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.tasks)

    @property
    def class_names(self) -> dict[str, tuple[str, ...]]:
        """Of the tasks whose classes have names, in the order of their numbers."""
        return {task.name: task.source.labels for task in self.tasks if task.source.labels}

    def index(self, name: str) -> int:
        if name not in self.names:
            fault = f"'{name}' is not one of its tasks; {suggest(name, self.names)}"
            raise InputError(f"task set {self.name}", [fault])
        return self.names.index(name)

    def __getitem__(self, name: str) -> Task:
        return self.tasks[self.index(name)]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


def shipped() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


SOME = re.compile(r"(?P<whole>.+):(?P<tasks>[\w.,-]+)")  # not C:\\tasks.yaml


def split_origin(origin: str) -> tuple[str, str]:
    """The set's own name or file, and ':task,task' where some of its tasks are meant."""
    found = SOME.fullmatch(origin)
    return (found["whole"], f":{found['tasks']}") if found else (origin, "")


def load_task_set(name_or_path: str) -> TaskSet:
    """A task set by its shipped name, or from a YAML file; `set:task,task` has these tasks only."""
    whole, some = split_origin(name_or_path)
    found = _load_whole(whole)
    return take_tasks(found, some[1:].split(",")) if some else found


def take_tasks(found: TaskSet, names: Sequence[str]) -> TaskSet:
    """Some tasks of a set, in the set's order, as a set of its own."""
    wanted = [name.strip() for name in names]
    faults = [
        f"no task is called '{name}' in {found.name}; {suggest(name, found.names)}"
        for name in wanted
        if name not in found.names
    ]
    if faults:
        raise InputError("task set", faults)
    tasks = tuple(task for task in found if task.name in wanted)
    told = ",".join(task.name for task in tasks)
    return replace(found, tasks=tasks, name=f"{found.name}:{told}", origin=f"{found.origin}:{told}")


def _load_whole(name_or_path: str) -> TaskSet:
    if name_or_path in shipped():
        path = FOLDER / f"{name_or_path}.yaml"
    elif re.search(r"\.ya?ml$|[/\\]", name_or_path):
        path = Path(name_or_path)
    else:
        fault = f"'{name_or_path}' is neither a .yaml file nor a set that comes with the package"
        raise InputError("task set", [f"{fault}; {suggest(name_or_path, shipped())}"])
    found = parse_task_set(read_yaml(path))
    if path.parent == FOLDER:
        return replace(found, origin=name_or_path)
    place = path.absolute()
    tasks = [replace(t, source=replace(t.source, folder=place.parent)) for t in found]
    return replace(found, tasks=tuple(tasks), origin=str(place))


def parse_task_set(document: Document) -> TaskSet:
    top = YamlSection(document, (), document.data, [])
    top.refuse_unknown({"about", "tasks"})
    about = top.word("about", default="")
    tasks: list[Task | None] = []
    if (part := top.part("tasks", "a mapping from each task's name to its settings")) is not None:
        if not part.data:
            part.fault("there are no tasks; name at least one")
        tasks = [_task(part, name) for name in part.data]
    good = [task for task in tasks if task]
    if tasks and len(good) == len(tasks) and not any(task.weight for task in good):
        top.fault("every weight is 0; at least one task must count", "tasks")
    if top.faults:
        raise InputError(str(document.path), by_line(top.faults))
    return TaskSet(document.path.stem, about or "", tuple(good))


def describe_task(task: Task) -> dict[str, Any]:
    """All that decides what is trained and scored, beside the rows: plain values, for JSON."""
    return {
        "kind": task.kind,
        "classes": task.classes,
        "range": [task.low, task.high],
        "pair": task.pair,
        "loss": task.loss,
        "metric": task.metric,
        "weight": task.weight,
        "clean": task.source.clean,
    }


def task_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between described tasks, in words; none where nothing was noted before."""
    if not before or list(before.items()) == list(now.items()):
        return []
    found = [f"'{name}' is gone" for name in before if name not in now]
    found += [f"'{name}' is new" for name in now if name not in before]
    found += [
        f"{name}: {key} was {show(old.get(key))} and is {show(value)}"
        for name, old in before.items()
        for key, value in now.get(name, {}).items()
        if old.get(key) != value
    ]
    return found or [f"the tasks stood in another order ({', '.join(before)})"]


def _task(tasks: YamlSection, name: Any) -> Task | None:
    before = len(tasks.faults)
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        rule = "a letter, then letters, digits or _ (32 at most)"
        tasks.fault(f"{show(name)} is not a task name; use {rule}", plain_text(name))
    data = tasks.data[name]
    if not isinstance(data, dict):
        tasks.fault(
            f"{plain_text(name)}: must be a mapping of settings, but is {show(data)}",
            plain_text(name),
        )
        return None
    part = YamlSection(tasks.document, (*tasks.key, plain_text(name)), data, tasks.faults)
    part.refuse_unknown(KEYS)
    kind, classes, low, high = _kind(part)
    loss = _fitting(part, "loss", LOSSES, kind)
    metric = _fitting(part, "metric", METRICS, kind)
    also = _also(part, metric, kind)
    weight = part.number("weight", 1.0)
    source = read_source(part, kind, classes)
    predictions = read_prediction_file(part)
    if len(tasks.faults) > before or source is None or kind is None:
        return None
    return Task(
        name=name,
        kind=kind,
        classes=classes,
        low=low,
        high=high,
        pair=len(source.text) == 2,
        loss=loss,
        metric=metric,
        also=also,
        weight=cast(float, weight),
        source=source,
        predictions=predictions,
    )


def _kind(part: YamlSection) -> tuple[Kind | None, int, float, float]:
    given = [kind for kind in ("classes", "binary", "regression") if kind in part.data]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given together; keep" if given else "has no kind; give"
        part.fault(
            f"{what} one of classes: N or [NAME, ...], binary: true, regression: [low, high]",
            *given[-1:],
        )
        return None, 0, 0.0, 0.0
    value = part.data[given[0]]
    if given == ["binary"]:
        if value is not True:
            part.fault(f"'binary' must be true, but is {show(value)}", "binary")
        return "binary", 2, 0.0, 1.0
    if given == ["classes"]:
        count = len(value) if isinstance(value, list) else value  # names: read as `labels` are
        if type(count) is int and 2 <= count <= MOST_CLASSES:
            return "classes", count, 0.0, float(count - 1)
        rule = f"a whole number from 2 to {MOST_CLASSES:,}, or a list of so many names"
        part.fault(f"'classes' must be {rule}, but is {show(value)}", "classes")
        return "classes", 0, 0.0, 0.0
    ends = [as_number(end) for end in value] if isinstance(value, list) else []
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and ends[0] < ends[1]:
        return "regression", 0, ends[0], ends[1]
    rule = "[low, high], two numbers with low < high"
    part.fault(f"'regression' must be {rule}, but is {show(value)}", "regression")
    return "regression", 0, 0.0, 0.0


def _also(part: YamlSection, metric: str, kind: Kind | None) -> tuple[str, ...]:
    """Further metrics, each once and not the one that counts."""
    given = part.data.get("also") or []
    fits = [name for name, kinds in METRICS.items() if kind in kinds and name != metric]
    if not isinstance(given, list) or any(name not in fits for name in given):
        known = ", ".join(fits) or "nothing, as there is no other metric"
        part.fault(f"'also' must be a list out of {known}, but is {show(given)}", "also")
        return ()
    return tuple(dict.fromkeys(given))


def _fitting(
    part: YamlSection, key: str, table: dict[str, tuple[Kind, ...]], kind: Kind | None
) -> str:
    fits = [name for name, kinds in table.items() if kind in kinds]
    name = part.one_of(key, tuple(table), default=fits[0] if fits else next(iter(table)))
    if name and fits and name not in fits:
        part.fault(f"'{key}: {name}' does not fit {kind}; it can be {', '.join(fits)}", key)
    return name or ""
