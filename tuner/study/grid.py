"""From a study to searches over fixed points: what each row trains, and the space that holds it.

Rows that differ in what they read or start from (`INPUTS`) are in different searches, as a search
has one fingerprint of its data. So are those that differ in length, as all trainings of a search
are as long, and models of one task, as a search keeps the checkpoints that are best by its
objective. All others of a study are in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from model.common.errors import InputError, suggest
from model.config.settings import RunConfig
from model.config.values import SETTINGS, find_setting
from model.modules.encoder_defaults import encoder_defaults
from model.tasks.task_set import TaskSet
from tuner.study.reader import Study, StudyRow

RATES = ("optim.learning_rate", "optim.head_learning_rate", "pretrain.simcse.learning_rate")
BERT_RATE = 2e-5  # what suits BERT-base, which the papers' rates are meant for
INPUTS = ("init_from", "pretrain.simcse.text")
AUGMENT = "augment."
SIMCSE_EPOCHS = "pretrain.simcse.epochs"
ANY = "batch.accumulate"  # where a search has one training, and nothing is said of it


@dataclass(frozen=True)
class Training:
    """One configuration of a row; of a row that is `apart`, that of one task."""

    row: str
    task: str | None
    settings: dict[str, Any]  # over what is held
    examples: int = 1  # at scale 1

    @property
    def label(self) -> str:
        return self.row if self.task is None else f"{self.row} {self.task}"


@dataclass(frozen=True)
class StudySearch:
    """The trainings of one search."""

    name: str  # of its run, after the study's: the same whichever rows are left out
    held: dict[str, Any]
    trainings: tuple[Training, ...]
    examples: int  # of each, at scale 1
    task: str | None = None  # that all of them are for
    start: str | None = None  # the label of the training whose model these start from

    def points(self) -> list[dict[str, Any]]:
        """Each training's values of all that is varied in the search, in order."""
        keys = dict.fromkeys(key for each in self.trainings for key in each.settings)
        return [{key: self._value(key, each) for key in keys} for each in self.trainings]

    def _value(self, key: str, training: Training) -> Any:
        if key in training.settings:
            return training.settings[key]
        return self.held[key] if key in self.held else SETTINGS[key].default

    def space(self, study: Study, tasks: str, init_from: str | None = None) -> dict[str, Any]:
        """As a space file has it. What all trainings agree on is no parameter."""
        points = self.points()
        values: dict[str, list[Any]] = {}
        for point in points:
            for key, value in point.items():
                known, value = values.setdefault(key, []), as_yaml_value(value)
                if not any(_same(value, one) for one in known):
                    known.append(value)
        varied = [key for key, known in values.items() if len(known) > 1]
        if not varied:  # a space has a parameter, if it is one of a single value
            values = values or {ANY: [as_yaml_value(self.held.get(ANY, SETTINGS[ANY].default))]}
            points = points if ANY not in values else [{ANY: values[ANY][0]} for _ in points]
            varied = list(values)[:1]
        agreed = {key: known[0] for key, known in values.items() if key not in varied}
        base = {k: v for k, v in self.held.items() if k not in values} | agreed
        if init_from is not None:
            base["init_from"] = init_from
        return {
            "about": f"{study.paper}: {study.about}",
            "tasks": tasks,
            "listed": True,
            "base": base,
            "parameters": {key: {"choice": values[key]} for key in varied},
            "start_from": [{key: as_yaml_value(point[key]) for key in varied} for point in points],
        }


def _same(a: Any, b: Any) -> bool:
    """False and 0 are not; 0 and 0.0 are."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def as_yaml_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def expand(
    study: Study,
    tasks: TaskSet,
    encoder: str | None,
    layers: int | None,
    files: Mapping[str, str],
    notes: list[str],
    share: float = 1.0,
) -> list[StudySearch]:
    """What the study trains. `notes` are told what is not as in the paper; raises InputError.

    `share` is that of the paper's training; what comes before the tasks is cut alike.
    """
    held, scale = _for_encoder(study, encoder, notes)
    held = _shortened(held, share)
    if study.layers and layers is not None and layers != study.layers:
        notes.append(f"the paper's layers of {study.layers} are brought to {layers} by their depth")
    held = _moved(held, study.layers, layers)
    trainings: list[tuple[StudyRow, Training]] = []
    for row in study.rows:
        if not row.runs or row.ensemble:
            continue
        if missing := [name for name in files_of(row) if name not in files]:
            notes.append(f"'{row.label}' is left out: it needs --file {missing[0]}=PATH")
            continue
        for training in _trainings(row, tasks, files, study.examples):
            settings = _shortened(training.settings, share)
            settings = _moved(settings, study.layers, layers)
            trainings.append((row, _rated(replace(training, settings=settings), held, scale)))
    held = dict(_rated(Training("", None, held), {}, scale).settings)
    if faults := list(_faults(tasks, held, trainings)):
        raise InputError(str(study.path), faults)
    return list(_searches(held, trainings, study.examples))


def _for_encoder(
    study: Study, encoder: str | None, notes: list[str]
) -> tuple[dict[str, Any], float]:
    """What is held with this encoder, and what its learning rates are to be multiplied by."""
    held = dict(study.held)
    own = held.get("encoder.name", RunConfig().encoder.name)
    if encoder is None or encoder == own:
        return held, 1.0
    held["encoder.name"] = encoder
    scale = encoder_defaults(encoder).learning_rate / BERT_RATE
    notes.append(f"{encoder} in place of {own}: learning rates times {scale:g}")
    if not any("encoder.pooling" in row.settings for row in study.rows):
        held["encoder.pooling"] = "auto"
        notes.append("the sentence embedding is what suits the encoder (encoder.pooling auto)")
    return held, scale


def _faults(
    tasks: TaskSet, held: Mapping[str, Any], trainings: Sequence[tuple[StudyRow, Training]]
) -> Iterator[str]:
    labels = [each.label for _, each in trainings]
    for row, each in trainings:
        for key in each.settings:
            alike = all(key in other.settings for _, other in trainings)
            if find_setting(key, tasks) is None:
                yield f"{row.label}: '{key}' is not a setting of {tasks.name}"
            elif not (key in SETTINGS or key in held or alike or key.startswith(AUGMENT)):
                # Only the settings of all tasks have defaults.
                yield f"{row.label}: '{key}' needs a value in held for the other rows"
        if row.start is not None and row.start not in labels:
            yield f"{row.label}: 'start' names no row; {suggest(row.start, labels)}"


def _trainings(
    row: StudyRow, tasks: TaskSet, files: Mapping[str, str], usual: int
) -> Iterator[Training]:
    settings = {
        key: files[value[1:]] if isinstance(value, str) and value.startswith("$") else value
        for key, value in row.settings.items()
    }
    if row.apart is None:
        yield Training(row.label, None, settings, row.length(None) or usual)
        return
    for task in row.apart or tasks.names:
        own = {**settings, "schedule.only": [task]}
        yield Training(row.label, task, own, row.length(task) or usual)


def files_of(row: StudyRow) -> list[str]:
    """The user's files that it needs, by their names."""
    return [v[1:] for v in row.settings.values() if isinstance(v, str) and v.startswith("$")]


def _searches(
    held: dict[str, Any], trainings: Sequence[tuple[StudyRow, Training]], usual: int
) -> Iterator[StudySearch]:
    """Those that start from another come after it. The first has no name of its own."""
    groups: dict[_Group, list[Training]] = {}
    for row, each in trainings:
        inputs = {k: v for k, v in each.settings.items() if k in INPUTS or k.startswith(AUGMENT)}
        rest = replace(each, settings={k: v for k, v in each.settings.items() if k not in inputs})
        files = "".join(f"-{file}" for file in files_of(row))
        key = _Group(row.start, files, each.task, each.examples, tuple(inputs.items()))
        groups.setdefault(key, []).append(rest)
    ordered = sorted(groups, key=lambda group: group.place(usual))
    for group in ordered:
        own = {k: v for k, v in held.items() if k not in INPUTS} | dict(group.inputs)
        name, members = group.name(ordered[0]), tuple(groups[group])
        yield StudySearch(name, own, members, group.examples, group.task, group.start)


class _Group(NamedTuple):
    """What all trainings of a search have in common."""

    start: str | None
    files: str
    task: str | None
    examples: int
    inputs: tuple[tuple[str, Any], ...]

    def place(self, usual: int) -> tuple[bool, bool, bool, bool]:
        late = self.start is not None, bool(self.files), self.task is not None
        return (*late, self.examples != usual)

    def name(self, first: _Group) -> str:
        """Of its run, after the study's: by what it differs in from the first."""
        task = "" if self.task == first.task else f"-{self.task or 'all'}"
        length = "" if self.examples == first.examples else f"-{self.examples}"
        start = "" if self.start is None else f"-from-{self.start.replace(' ', '-').lower()}"
        return f"{self.files}{task}{length}{start}"


def _rated(training: Training, held: Mapping[str, Any], scale: float) -> Training:
    """Rates meant for BERT-base; those of heads over a frozen encoder are nobody's but theirs."""
    settings = training.settings
    if scale == 1 or settings.get("encoder.frozen", held.get("encoder.frozen")) is True:
        return training
    changed = {k: settings[k] * scale for k in RATES if isinstance(settings.get(k), (int, float))}
    return replace(training, settings={**settings, **changed})


def _shortened(settings: Mapping[str, Any], share: float) -> dict[str, Any]:
    epochs = settings.get(SIMCSE_EPOCHS)
    return {**settings, SIMCSE_EPOCHS: epochs * share} if epochs and share != 1 else {**settings}


def _moved(settings: Mapping[str, Any], written: int | None, layers: int | None) -> dict[str, Any]:
    """Numbers of layers at the same depth of another encoder; several may become one."""
    if written is None or layers is None or written == layers:
        return dict(settings)

    def moved(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        return sorted({int(layer) * layers // written for layer in value})

    inside = "optim.layer_scale.layers"
    return {
        key: {task: moved(each) for task, each in value.items()}
        if key == inside and isinstance(value, Mapping)
        else moved(value)
        if key == "encoder.train_layers" or key.startswith(f"{inside}.")
        else value
        for key, value in settings.items()
    }
