"""The three records of TensorBoard's HParams: the experiment, a trial's start, a trial's end.

The first record of a kind wins, in each folder and for the experiment in all of them. So there is
one experiment, in the run's root, with every column there can be; and a trial that runs has no
record of its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.plugins.hparams import (  # type: ignore[import-untyped]
    api_pb2,
    metadata,
    plugin_data_pb2,
)

from tuner.export.tensorboard.columns import BoardColumn, Value
from tuner.runs.state import Outcome

# TensorBoard has no status for a pruned trial. Once a search is over, 'unknown' is those alone;
# while it goes on, those that run or wait as well. The column 'outcome' tells them apart.
STATUS: dict[Outcome, Any] = {
    "finished": api_pb2.STATUS_SUCCESS,
    "promoted": api_pb2.STATUS_SUCCESS,
    "failed": api_pb2.STATUS_FAILURE,
    "lost": api_pb2.STATUS_FAILURE,
}
EXAMPLES, SECONDS = "trial/examples", "trial/seconds"


@dataclass(frozen=True)
class BoardMetric:
    tag: str
    name: str
    about: str


def metrics_of(tasks: Iterable[str]) -> list[BoardMetric]:
    """In the order in which the table has them; the first five are shown.

    The scores of the best evaluation stand among the settings, and so come last here.
    """
    names = list(tasks)
    last, best = "of the trial's latest evaluation", "of the trial's best evaluation so far"
    return [
        BoardMetric("score/overall", "last overall", last),
        BoardMetric(EXAMPLES, "examples seen", "at the latest evaluation"),
        BoardMetric(SECONDS, "seconds", "spent in training, at the latest evaluation"),
        *(BoardMetric(f"score/{name}", f"last {name}", f"{name} {last}") for name in names),
        BoardMetric("best/overall", "best overall", best),
        *(BoardMetric(f"best/{name}", f"best {name}", f"{name} {best}") for name in names),
    ]


def experiment(
    name: str,
    about: str,
    when: float,
    columns: Iterable[BoardColumn],
    metrics: Sequence[BoardMetric],
) -> Any:
    """The record of the root: the columns with their domains, and the metrics."""
    found = api_pb2.Experiment(
        name=name,
        description=about,
        time_created_secs=when,
        hparam_infos=[_info(column) for column in columns],
        metric_infos=[
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(tag=metric.tag),
                display_name=metric.name,
                description=metric.about,
                dataset_type=api_pb2.DATASET_VALIDATION,
            )
            for metric in metrics
        ],
    )
    data = plugin_data_pb2.HParamsPluginData(experiment=found)
    return _summary(metadata.EXPERIMENT_TAG, data)


def _info(column: BoardColumn) -> Any:
    info = api_pb2.HParamInfo(
        name=column.name,
        display_name=column.label,
        description=column.about,
        differs=column.shown,
    )
    if column.ends is not None:
        info.type = api_pb2.DATA_TYPE_FLOAT64
        info.domain_interval.min_value, info.domain_interval.max_value = column.ends
        return info
    if all(isinstance(value, bool) for value in column.choices):
        info.type = api_pb2.DATA_TYPE_BOOL
    elif all(isinstance(value, float) for value in column.choices):
        info.type = api_pb2.DATA_TYPE_FLOAT64
    else:
        info.type = api_pb2.DATA_TYPE_STRING
    info.domain_discrete.extend(column.choices)
    return info


def session_start(name: str, cells: Mapping[str, Value], when: float) -> Any:
    """`name` is the trial's in the table and what the table is sorted by.

    Two trials of one name would be averaged.
    """
    info = plugin_data_pb2.SessionStartInfo(group_name=name, start_time_secs=when)
    for key in sorted(cells):
        value = cells[key]
        if isinstance(value, bool):
            info.hparams[key].bool_value = value
        elif isinstance(value, str):
            info.hparams[key].string_value = value
        else:
            info.hparams[key].number_value = value
    data = plugin_data_pb2.HParamsPluginData(session_start_info=info)
    return _summary(metadata.SESSION_START_INFO_TAG, data)


def session_end(outcome: Outcome, when: float) -> Any:
    status = STATUS.get(outcome, api_pb2.STATUS_UNKNOWN)
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=when)
    data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    return _summary(metadata.SESSION_END_INFO_TAG, data)


def _summary(tag: str, data: Any) -> Any:
    about = metadata.create_summary_metadata(data)
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)])
