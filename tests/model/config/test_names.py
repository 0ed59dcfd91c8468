"""Names that stand in more than one place, by need (a config loads no torch), are the same ones."""

from __future__ import annotations

from typing import get_args

import pytest

from model.config import settings
from model.config.packages import NEEDS
from model.config.values import SETTINGS
from model.data import layout, sources
from model.data.clean import CLEAN
from model.evaluation import scores
from model.modules import heads, pairs
from model.modules.encoder_defaults import Pooling
from model.objectives import aggregators, losses, schedules, smart
from model.tasks import task_set as tasks


def test_task_files_know_every_loss_and_metric() -> None:
    assert tasks.LOSSES.keys() == losses.LOSSES.keys()
    assert tasks.METRICS.keys() == scores.METRICS.keys()


def test_a_metric_fits_classes_or_numbers_in_both_places() -> None:
    for name, kinds in tasks.METRICS.items():
        assert scores.METRICS[name].on_classes == ("regression" not in kinds)


def test_every_format_has_its_reader_and_every_rule_of_cleaning() -> None:
    assert set(tasks.FORMATS) == {*sources.READERS, "hub", "sample"}
    assert len(tasks.FORMATS) == len(set(tasks.FORMATS))
    assert set(tasks.CLEANING) == set(CLEAN)


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (settings.ScheduleName, schedules.SCHEDULES),
        (settings.PairEncoding, pairs.LAYOUTS),
        (tasks.LossName, losses.LOSSES),
        (settings.SurgeryName, ["none", *aggregators.WEIGHTINGS]),
        (settings.Pooling, ["auto", *get_args(Pooling)]),
    ],
)
def test_settings_offer_what_there_is(said: object, known: object) -> None:
    assert sorted(get_args(said)) == sorted(known)  # type: ignore[call-overload]


def test_other_choices_are_those_of_the_parts_they_choose() -> None:
    assert set(SETTINGS["head.activation"].choices) == set(heads.ACTIVATIONS)
    assert set(SETTINGS["smart.variant"].choices) == set(smart.VARIANTS)
    assert set(SETTINGS["smart.norm"].choices) == set(smart.NORMS)


def test_what_torchjd_does_is_known_to_need_it() -> None:
    assert NEEDS["surgery"].keys() == aggregators.TORCHJD.keys()


def test_every_pair_encoding_is_laid_out_in_a_known_way() -> None:
    assert set(pairs.LAYOUTS.values()) | {"single"} == set(layout.LAYOUTS)
    assert set(pairs.WIDTHS) == set(pairs.LAYOUTS)
