"""A run as a table with a row per trial, for notebooks: `trials.parquet` and `dataframe()`.

| column | what it is |
|---|---|
| trial, number, origin, of, seed | its id, the study's number, who proposed it, what it repeats |
| status, reason | finished, promoted, waiting, pruned, failed, lost or running, and why |
| examples, seconds | what it was trained on, and for how long |
| scored_at, checkpoint | the evaluation that stands for it: its examples and its folder, if kept |
| score_X, low_X, high_X | its score with 95 % interval, for X overall and every task |
| params_X | its parameters |
| settings_X | what was set, where the parameter's value is only a name for it |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.common.files import write_atomic
from tuner.runs.folder import TABLE, TRIALS
from tuner.runs.state import RunState, TrialState

if TYPE_CHECKING:
    import pyarrow as pa

# Of a type that is known, whatever the run has: the others take theirs from its values.
FIXED = {
    **dict.fromkeys(("trial", "origin", "of", "status", "reason", "checkpoint"), "string"),
    **dict.fromkeys(("number", "seed", "examples", "scored_at"), "int64"),
    **dict.fromkeys(("seconds", "score_overall", "low_overall", "high_overall"), "float64"),
}
FIRST = ("trial", "number", "origin", "of", "seed", "status", "reason", "examples", "seconds")
ORDER = (("score_", "low_", "high_"), ("params_",), ("settings_",))
PLAIN = (bool, int, float, str, type(None))


def trial_table(state: RunState) -> pa.Table:
    import pyarrow as pa

    rows = [_row(trial, state) for trial in state.trials.values()]
    names = dict.fromkeys([*FIRST, "scored_at", "checkpoint", *_scores({"score": None})])
    for start in ORDER:
        names.update(dict.fromkeys(n for row in rows for n in row if n.startswith(start)))
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in names})


def write_trials(folder: Path, state: RunState) -> Path:
    """`trials.parquet` in the run's folder."""
    import pyarrow as pa
    from pyarrow import parquet

    buffer = pa.BufferOutputStream()
    parquet.write_table(trial_table(state), buffer)
    write_atomic(folder / TABLE, buffer.getvalue().to_pybytes())
    return folder / TABLE


def _row(trial: TrialState, state: RunState) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.id,
        "number": int(trial.id[1:]) if trial.id[1:].isdigit() else None,
        "origin": trial.origin,
        "of": trial.of,
        "seed": trial.seed,
        "status": state.outcome(trial),
        "reason": trial.reason or None,
        "examples": trial.examples,
    }
    row |= {f"params_{key}": value for key, value in trial.params.items()}
    row |= {
        f"settings_{key}": value
        for key, value in trial.settings.items()
        if key in trial.params and value != trial.params[key]
    }
    if (entry := trial.chosen(state.objectives)) is None:
        return row
    row["seconds"] = trial.evaluations[-1].get("seconds")
    row["scored_at"] = entry["examples"]
    if (name := entry.get("checkpoint")) and name not in trial.removed:
        row["checkpoint"] = f"{TRIALS}/{trial.id}/checkpoints/{name}"
    return row | _scores(entry)


def _scores(entry: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    overall = {"value": entry["score"], "interval": entry.get("interval")}
    for name, of in {"overall": overall, **entry.get("tasks", {})}.items():
        low, high = of.get("interval") or (None, None)
        found |= {f"score_{name}": of["value"], f"low_{name}": low, f"high_{name}": high}
    return found


def _column(name: str, values: list[Any]) -> pa.Array:
    """Of one type: text where a parameter takes values of several, or a list."""
    import pyarrow as pa

    if name in FIXED:
        return pa.array(values, FIXED[name])
    if all(isinstance(value, PLAIN) for value in values):
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError):
            pass
    return pa.array([v if isinstance(v, str | None) else json.dumps(v) for v in values], "string")
