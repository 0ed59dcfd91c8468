from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from model.config.parse import (
    describe_settings,
    parse_assignment,
    parse_layers,
    parse_settings,
    read_settings,
)
from model.config.settings import PairEncoding, RunConfig, ScheduleName
from model.config.values import SETTINGS, Setting, find_setting, known_keys
from model.modules import pairs
from model.objectives import losses, schedules
from model.tasks.task_set import LOSSES, LossName, load_task_set

CS224N = load_task_set("cs224n")


def test_every_setting_has_a_default_that_fits_it_and_a_line_of_help() -> None:
    table = describe_settings()
    for key, setting in SETTINGS.items():
        assert f"| `{key}` |" in table and setting.help
        if not key.endswith("<task>"):
            assert setting.fit(setting.default) == setting.default
    assert set(RunConfig().to_flat()) == {key for key in SETTINGS if not key.endswith("<task>")}


def test_every_key_of_the_tasks_is_found() -> None:
    keys = known_keys(CS224N)
    assert {"loss.sst", "augment.sts", "pair.encoding.para", "smart.weight"} <= set(keys)
    assert all(find_setting(key, CS224N) for key in keys)
    assert find_setting("loss.foo", CS224N) is None
    assert find_setting("loss.<task>", CS224N) is None  # stands for names, and is none


def test_names_are_those_of_the_parts_they_choose() -> None:
    assert set(get_args(LossName)) == set(losses.LOSSES) == set(LOSSES)
    assert set(get_args(ScheduleName)) == set(schedules.SCHEDULES)
    assert all(pairs.layout_of(encoding) for encoding in get_args(PairEncoding))


# Any settings


def valid(setting: Setting) -> st.SearchStrategy[Any]:
    """Values that fit, written as a user might; drawn from the bounds themselves."""
    low = max((b.limit for b in setting.bounds if b.sign[0] == ">"), default=0)
    high = min((b.limit for b in setting.bounds if b.sign[0] == "<"), default=low + 1000)

    def of(kind: Any) -> st.SearchStrategy[Any]:
        if get_origin(kind) is Literal:
            return st.sampled_from(get_args(kind))
        if get_origin(kind) is tuple:
            size = 2 if get_args(kind)[-1] is float else 3
            return st.lists(of(get_args(kind)[0]), min_size=size, max_size=size)
        if args := get_args(kind):
            return st.one_of([of(option) for option in args])
        if kind is int:
            return st.integers(int(low) + 1, int(high))
        if kind is float:
            return st.floats(low, high, exclude_min=True, exclude_max=True)
        if kind is str:
            return st.text("abc/._- é", min_size=1).filter(str.strip)
        return st.booleans() if kind is bool else st.none()

    return of(setting.kind)


# Keys whose values have to agree with others are drawn together.
TOGETHER: list[dict[str, Any]] = [
    {},
    {"surgery": "pcgrad", "schedule.name": "simultaneous", "schedule.anchor": "sts"},
    {"schedule.name": "sequential", "schedule.order": ["para", "sts", "sst"]},
    {"head.binary_logits": 2, "loss.para": "dual_objective", "pair.encoding": {"sts": "cosine"}},
    {"loss.sst": "ordinal_log", "smart.tasks": ["sst"], "schedule.first": "para"},
    {"encoder.adapter": "pals", "encoder.adapter_heads": 4, "encoder.dropout": 0.2},
    {"encoder.adapter": "lora", "average.share": 0, "compile": True},
    {"encoder.train_layers": [1, 2], "optim.layer_scale.layers.sts": [0, 3]},
    {"optim.layer_scale": {"alpha": 0.5, "beta": 2, "layers": {"sst": [0, 1]}}},
]
ALONE = {
    key: setting
    for key in known_keys(CS224N)
    if (setting := find_setting(key, CS224N)) and not setting.names_tasks
    if not key.startswith(
        ("loss.s", "loss.para", "pair", "surgery", "schedule.name", "encoder.", "optim.layer_scale")
    )
    if key not in ("head.binary_logits", "batch.accumulate", "budget.epochs", "compile")
}


@given(
    st.sampled_from(TOGETHER),
    st.fixed_dictionaries({}, optional={key: valid(setting) for key, setting in ALONE.items()}),
)
@settings(max_examples=100, deadline=None)
def test_a_config_comes_back_the_same_from_its_flat_form(
    together: dict[str, Any], alone: dict[str, Any]
) -> None:
    config = parse_settings({**alone, **together}, CS224N)
    flat = config.to_flat()
    assert parse_settings(flat, CS224N) == config
    assert parse_settings(yaml.safe_load(yaml.safe_dump(flat)), CS224N) == config
    assert parse_settings(json.loads(json.dumps(flat, allow_nan=False)), CS224N) == config


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.binary(),
)
KEYS = st.one_of(
    st.sampled_from([*known_keys(CS224N), *RunConfig.__dataclass_fields__, "weights", "layers"]),
    st.text(max_size=8),
    st.integers(),
    st.none(),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)


@given(st.one_of(ANYTHING, st.dictionaries(KEYS, ANYTHING, max_size=8)))
@settings(max_examples=200, deadline=None)
def test_any_content_gives_a_config_or_faults(content: Any) -> None:
    try:
        config = parse_settings(content, CS224N)
    except InputError as error:
        assert error.faults and str(error)
    else:
        assert parse_settings(config.to_flat(), CS224N) == config


@given(st.one_of(st.text(), st.text(alphabet="a=[]{}!&*:'\"-? \n#|>%@`,0.e~")))
@settings(max_examples=200, deadline=None)
def test_any_assignment_gives_a_key_and_a_value_or_a_fault(text: str) -> None:
    try:
        key, value = parse_assignment(text)
        parse_settings({key: value}, CS224N)
    except InputError as error:
        assert error.faults and str(error)


@pytest.mark.parametrize("text", ["smart: &a {weight: *a}", "loss: &a {weights: &b [*b], sst: *a}"])
def test_yaml_that_holds_itself_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        parse_layers([read_settings(path)], CS224N)
