"""A row of a study as a folder that answers: a model for each task, or its ensemble."""

from __future__ import annotations

from pathlib import Path

from model.cli.invocation import command
from model.cli.text import shown_path
from model.common.errors import InputError, suggest
from model.common.files import atomic_folder
from model.evaluation.predictions import write_predictions
from tuner.runs.request import ExecutionOptions
from tuner.soup.ensemble_file import EnsembleMember, EnsembleSpec
from tuner.study.collect import Candidate, candidates
from tuner.study.opened import open_study
from tuner.study.pictures import write_pictures


def write_row(name: str, label: str, options: ExecutionOptions, out: Path) -> str:
    """`ensemble.json` of the row in `out`, with its dev answers and pictures; what is said of it.

    Of the first seed, as a search keeps no checkpoints of the others.
    """
    of = open_study(name, options)
    labels = [row.label for row in of.study.rows]
    if label not in labels:
        raise InputError(f"study {name}", [f"no row '{label}'; {suggest(label, labels)}"])
    if out.exists():
        raise InputError(str(out), ["is there already; name another folder with --out"])
    found, rows = candidates(of.study, of.tasks, of.done, of.notes)
    first = min((one.seed for one in found), default=0)
    by_row = {one.row: one for one in found if one.seed == first}
    if label not in by_row:
        raise InputError(f"study {name}", [f"'{label}' has no finished training", *of.notes])
    row = by_row[label]
    ensemble = of.study.row(label).ensemble
    members = {task: row.weights.get(task, {label: 1.0}) for task in row.answers}
    models = {
        task: [by_row[each].models[task] for each in names] for task, names in members.items()
    }
    _require(models, row)
    parts = {
        task: EnsembleMember(
            ensemble.rule if ensemble else "mean", tuple(models[task]), tuple(weights.values())
        )
        for task, weights in members.items()
    }
    data = next((str(run.data) for _, run in of.done if run.data), None)
    place = out.absolute()
    with atomic_folder(place) as folder:
        EnsembleSpec(label, of.tasks.origin, parts, data).write(folder, place)
        write_predictions(folder / "dev.parquet", rows.table(row.answers))
        first_models = {task: places[0] for task, places in models.items()}
        notes = write_pictures(folder, label, of.done[0][1], first_models)
    lines = [f"{task}: {', '.join(names)}" for task, names in members.items()]
    place_shown = shown_path(out)
    lines += [*notes, f"{place_shown}: pictures of its answers, and the worst mistakes"]
    return "\n".join([*lines, f"{command('predict', place_shown)} answers with '{label}'"])


def _require(models: dict[str, list[Path]], row: Candidate) -> None:
    missing = sorted({str(each) for of in models.values() for each in of if not each.is_dir()})
    if missing:
        faults = [f"no model in {each}; the search has not kept it" for each in missing]
        raise InputError(f"'{row.row}'", faults)
