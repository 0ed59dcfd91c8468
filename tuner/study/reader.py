"""A study: one table of a paper as a file. What is varied, what is held, what the paper reports.

    about: one sentence
    paper: Triple Threat (004), table 1
    tasks: cs224n
    preset: paper-004                # what is held, unless `held` says otherwise
    held: {pair.encoding: bi_concat}
    examples: 180000                 # of a training at scale 1, where its row has no other number
    evaluations: 10                  # of a training, where curves or best epochs are reported
    dev_rows: {para: 20212}          # of the paper, where they are not those of the course
    against: Sequential              # what the other rows are compared with; else the first
    rows:
      Sequential:
        settings: {schedule.name: sequential}
        paper: {sst: .411, para: .691, sts: .361, overall: .594}
        paper_also: {peak epoch: 8, time: 1:21 h}    # shown beside ours, as they are written
      Single-task:                   # a model for each task, scored on that task; or of a list
        apart: true
        examples: {sst: 85000, sts: 60000}           # or one number, for the whole row
        paper: {sst: .511, para: .763, sts: .345}
      From Quora:                    # starts from another row's model
        settings: {schedule.name: uniform}
        start: Single-task para
      Five models:                   # of the rows' own answers; nothing is trained
        ensemble: {rule: vote, models: 5}
      Published elsewhere:           # nothing to run: shown for the eye
        paper: {overall: .788}

A value `$NAME` is a file of the user's (`--file NAME=PATH`); without it the row is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.common.errors import InputError, suggest
from model.common.files import Document, read_yaml
from model.common.typed import show
from model.config.parse import flatten, load_preset, preset_names
from model.config.values import SETTINGS
from model.tasks.yaml_reader import YamlSection, as_number

FOLDERS = (
    Path(__file__).parents[1] / "studies",  # inside the package when installed
    Path(__file__).parents[2] / "studies",  # beside it in a checkout
)
KEYS = {"about", "paper", "tasks", "preset", "held", "layers", "against", "rows"}
KEYS |= {"examples", "evaluations", "dev_rows"}
ROW_KEYS = {"settings", "examples", "paper", "paper_also", "apart", "start", "ensemble"}
DEV_ROWS = {"sst": 1101, "para": 40429, "sts": 863}  # of the course
OVERALL = "overall"


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """What is made of the rows' answers, task by task."""

    rule: str = "mean"  # mean | vote
    models: int = 5  # at most
    by: str = OVERALL  # what ranks the models: the overall score, or each task's own
    greedy: bool = False  # each is kept only if it helps
    prior: bool = False  # the better counts more


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    label: str
    settings: dict[str, Any]
    paper: dict[str, float]
    paper_also: dict[str, str] = field(default_factory=dict)  # what else it reports
    examples: int | dict[str, int] | None = None  # None, or a task without: the study's
    apart: tuple[str, ...] | None = None  # a model for each of these tasks; (): of all
    start: str | None = None
    ensemble: Ensemble | None = None
    runs: bool = True  # False: the paper quotes it, there is nothing to train

    def length(self, task: str | None) -> int | None:
        """Examples at scale 1, if they are the row's own."""
        return self.examples.get(task or "") if isinstance(self.examples, dict) else self.examples


@dataclass(frozen=True, kw_only=True)
class Study:
    name: str
    about: str
    paper: str
    tasks: str
    held: dict[str, Any]
    examples: int
    rows: tuple[StudyRow, ...]
    against: str
    dev_rows: dict[str, int] = field(default_factory=lambda: dict(DEV_ROWS))  # of the paper
    evaluations: int | None = None  # of a training; None: as a search has it
    layers: int | None = None  # of the encoder that numbers of layers are meant for
    path: Path = field(default=Path(), compare=False)

    def row(self, label: str) -> StudyRow:
        return next(row for row in self.rows if row.label == label)


def shipped_studies() -> dict[str, Path]:
    found = {path.stem: path for folder in FOLDERS for path in folder.glob("*.yaml")}
    return dict(sorted(found.items()))


def load_study(name_or_path: str) -> Study:
    """A study by its shipped name, or from a YAML file; every fault at once."""
    shipped = shipped_studies()
    if name_or_path in shipped:
        return parse_study(read_yaml(shipped[name_or_path]))
    if re.search(r"\.ya?ml$|[/\\]", name_or_path):
        return parse_study(read_yaml(Path(name_or_path)))
    fault = f"'{name_or_path}' is neither a .yaml file nor a study that comes with the package"
    raise InputError("study", [f"{fault}; {suggest(name_or_path, shipped)}"])


def parse_study(document: Document) -> Study:
    top = YamlSection(document, (), document.data, [])
    top.refuse_unknown(KEYS)
    about, paper = top.word("about") or "", top.word("paper") or ""
    tasks = top.word("tasks", "cs224n") or "cs224n"
    examples = _whole(top.data.get("examples"))
    if examples is None:
        top.fault("'examples' must be a whole number above 0: those of a training in full")
    evaluations = _whole(top.data.get("evaluations"))
    if evaluations is None and top.data.get("evaluations") is not None:
        top.fault("'evaluations' must be a whole number above 0", "evaluations")
    dev_rows = _counts(top, "dev_rows")
    layers = top.number("layers", 0.0)
    held = _settings(top, "held")
    if "preset" in top.data:
        preset = top.one_of("preset", tuple(preset_names()))
        before = flatten(load_preset(preset).settings) if preset else {}
        before.pop("budget.epochs", None)  # how long a training is, the study says
        held = {key: value for key, value in before.items() if key not in held} | held
    part = top.part("rows", "a mapping from each row's label to what it is")
    labels = [str(label) for label in part.data] if part else []
    rows = [_row(part, label) for label in part.data] if part else []
    good = [row for row in rows if row is not None]
    against = top.data.get("against", next((r.label for r in good if r.runs), None))
    if against not in labels and not top.faults:
        top.fault(f"'against' names no row; {suggest(str(against), labels)}", "against")
    if top.faults:
        raise InputError(str(document.path), top.faults)
    return Study(
        name=document.path.stem,
        about=about,
        paper=paper,
        tasks=tasks,
        held=held,
        examples=examples or 1,
        evaluations=evaluations,
        rows=tuple(good),
        dev_rows=DEV_ROWS | dev_rows,
        against=str(against),
        layers=int(layers) if layers else None,
        path=document.path,
    )


def _settings(section: YamlSection, key: str) -> dict[str, Any]:
    given = {} if section.data.get(key) is None else section.data[key]
    if not isinstance(given, Mapping):
        section.fault(f"'{key}' must be a mapping of settings, but is {show(given)}", key)
        return {}
    # What differs from task to task is one value of the whole setting, as a choice of a space is.
    whole = {k: v for k, v in given.items() if k in SETTINGS and isinstance(v, Mapping)}
    try:
        return flatten({k: v for k, v in given.items() if k not in whole}) | whole
    except InputError as error:
        for fault in error.faults:
            section.fault(fault, key)
        return {}


def _row(rows: YamlSection, label: Any) -> StudyRow | None:
    data = rows.data[label]
    if not isinstance(label, str) or not isinstance(data, dict):
        rows.fault(f"{show(label)} must be a label, with a mapping of what the row is", str(label))
        return None
    before = len(rows.faults)
    row = YamlSection(rows.document, (*rows.key, label), data, rows.faults)
    row.refuse_unknown(ROW_KEYS)
    settings, paper = _settings(row, "settings"), _paper(row)
    examples = _whole(data.get("examples")) or _counts(row, "examples") or None
    paper_also = _also(row)
    given = data.get("apart", False)
    apart = () if given is True else tuple(given) if isinstance(given, list) else None
    if (apart is None and given is not False) or not all(isinstance(n, str) for n in apart or ()):
        row.fault(f"'apart' must be true, or a list of tasks, but is {show(given)}", "apart")
    start = data.get("start")
    if start is not None and not isinstance(start, str):
        row.fault(f"'start' must be another row's label, but is {show(start)}", "start")
    ensemble = _ensemble(row) if "ensemble" in data else None
    if ensemble and (settings or apart is not None or start or examples):
        row.fault("an ensemble trains nothing: leave out settings, examples, apart and start")
    if isinstance(examples, dict) and apart is None:
        row.fault("'examples' of each task are for a row that is 'apart'", "examples")
    runs = bool(ensemble) or "settings" in data or apart is not None or start is not None
    if not runs and not paper:
        row.fault("is empty; give settings, apart, ensemble, or the paper's figures alone")
    if len(rows.faults) > before:
        return None
    return StudyRow(
        label=label,
        settings=settings,
        paper=paper,
        paper_also=paper_also,
        examples=examples,
        apart=apart,
        start=start,
        ensemble=ensemble,
        runs=runs,
    )


def _paper(row: YamlSection) -> dict[str, float]:
    given = row.data.get("paper") or {}
    values = {}
    for name, value in given.items() if isinstance(given, dict) else [("paper", given)]:
        number = as_number(value)
        if number is None or not -1 <= number <= 1:
            row.fault(f"'paper' has {show(value)} for {name}; scores are from -1 to 1", "paper")
            continue
        values[str(name)] = number
    return values


def _also(row: YamlSection) -> dict[str, str]:
    given = row.data.get("paper_also") or {}
    if not isinstance(given, dict):
        row.fault(f"'paper_also' must be a mapping, but is {show(given)}", "paper_also")
        return {}
    return {str(name): str(value) for name, value in given.items()}


def _whole(value: Any) -> int | None:
    number = as_number(value)
    return int(number) if number is not None and number >= 1 and number == int(number) else None


def _counts(section: YamlSection, key: str) -> dict[str, int]:
    """Whole numbers by task."""
    given = {} if section.data.get(key) is None else section.data[key]
    found = {str(name): _whole(n) for name, n in given.items()} if isinstance(given, dict) else {}
    if None in found.values() or not isinstance(given, dict):
        section.fault(f"'{key}' must be whole numbers above 0, but is {show(given)}", key)
    return {name: number for name, number in found.items() if number is not None}


def _ensemble(row: YamlSection) -> Ensemble | None:
    given = row.data["ensemble"]
    if not isinstance(given, dict):
        row.fault(f"'ensemble' must be a mapping, but is {show(given)}", "ensemble")
        return None
    part = YamlSection(row.document, (*row.key, "ensemble"), given, row.faults)
    part.refuse_unknown({"rule", "models", "by", "greedy", "prior"})
    models = given.get("models", 5)
    if type(models) is not int or models < 1:
        part.fault(f"'models' must be a whole number from 1 on, but is {show(models)}", "models")
    flags: dict[str, Any] = {}
    for key in ("greedy", "prior"):
        flags[key] = given.get(key, False)
        if not isinstance(flags[key], bool):
            part.fault(f"'{key}' must be true or false, but is {show(flags[key])}", key)
    rule = part.one_of("rule", ("mean", "vote"), "mean") or "mean"
    by = part.one_of("by", (OVERALL, "task"), OVERALL) or OVERALL
    return Ensemble(rule=rule, models=models, by=by, **flags)
