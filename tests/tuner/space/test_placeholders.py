"""Keys that stand for kinds of tasks, and the shipped spaces on task sets of all sorts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from model.common.errors import InputError
from model.common.files import to_yaml
from tuner.export.tensorboard.columns import Columns
from tuner.space.domains import Choice, Fixed
from tuner.space.space import Space, load_space, shipped_spaces

optuna.logging.set_verbosity(optuna.logging.WARNING)

KIND: dict[str, dict[str, Any]] = {
    "three": {"classes": 3},
    "four": {"classes": 4},
    "binary": {"binary": True},
    "regression": {"regression": [0, 5]},
}
# What each task is; `pair` makes it one on pairs.
SETS: dict[str, dict[str, str]] = {
    "mixed": {"nli": "three pair", "near": "regression pair", "fine": "binary", "topic": "four"},
    "singles": {"fine": "binary", "topic": "four"},
    "numbers": {"only": "regression"},
    "ten": {
        **{"a": "three pair", "b": "regression pair", "c": "binary", "d": "four"},
        **{"e": "binary pair", "f": "regression", "g": "four pair", "h": "binary pair"},
        **{"i": "binary", "j": "three"},
    },
}
TASK_SETS = ("sample", "cs224n", *SETS)
FITTING = ("default", "full")
Load = Callable[..., Space]


def task_set(name: str, folder: Path) -> str:
    """A shipped one by its name, another as a file."""
    if name not in SETS:
        return name
    tasks = {}
    for task, words in SETS[name].items():
        kind, *pair = words.split()
        text = ["sentence1", "sentence2"] if pair else "sentence1"
        files, columns = {"train": "a", "dev": "b"}, {"text": text, "label": "label"}
        tasks[task] = {**KIND[kind], "format": "arrow", "files": files, "columns": columns}
    path = folder / f"{name}.yaml"
    path.write_text(to_yaml({"tasks": tasks}))
    return str(path)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """A space from its text, for one of the task sets; `tasks:` is line 1."""

    def space(text: str, tasks: str = "mixed", **arguments: Any) -> Space:
        path = tmp_path / "space.yaml"
        path.write_text(f"tasks: {task_set(tasks, tmp_path)}\n{text}")
        return load_space(str(path), **arguments)

    return space


@pytest.fixture
def faults_of(load: Load) -> Callable[..., list[str]]:
    def faults(text: str, **arguments: Any) -> list[str]:
        with pytest.raises(InputError) as caught:
            load(text, **arguments)
        return caught.value.faults

    return faults


def again(space: Space, folder: Path) -> Space:
    """The space as a run's folder has it, read."""
    path = folder / f"{space.name}.yaml"
    path.write_text(to_yaml(space.to_dict()))
    return load_space(str(path))


def domains(space: Space) -> dict[str, Any]:
    return {p.key: list(getattr(p.domain, "values", [p.domain])) for p in space.parameters}


# The shipped spaces


TASK_NAME = re.compile(r"\b(?:sst|para|sts|sentiment|paraphrase|similarity)\b")


def test_no_space_but_the_papers_names_a_task() -> None:
    for name, path in shipped_spaces().items():
        if not name.startswith("paper-"):
            assert TASK_NAME.findall(path.read_text()) == [], name
    for line in ("batch.sizes.sst: {int: [8, 32]}", "smart.tasks: [sst, para]", "{loss.para: x}"):
        assert TASK_NAME.search(line)
    assert not TASK_NAME.search("batch.sizes.<task>: parameters")


@pytest.mark.parametrize("tasks", TASK_SETS)
@pytest.mark.parametrize("name", FITTING)
def test_a_shipped_space_fits_any_task_set(name: str, tasks: str, tmp_path: Path) -> None:
    space, rng = load_space(name, task_set(tasks, tmp_path)), np.random.default_rng(1)
    assert len(space.start_from) == len(load_space(name).start_from)
    for point in (*space.start_from, space.default_point(), space.most_expensive()):
        space.config(point)
        assert space.settings(space.params(point)).items() >= point.items()
    for _ in range(100):
        point = space.draw(rng)
        space.config(point)
        assert not space.missing(point)
    keys = {parameter.key for parameter in space.parameters}
    for task in space.task_set:
        assert keys >= {f"batch.sizes.{task.name}", f"loss.weights.{task.name}"}
        assert (f"pair.encoding.{task.name}" in keys) == task.pair


@pytest.mark.parametrize("tasks", TASK_SETS)
def test_the_default_points_of_the_default_space_say_all_of_each_task(
    tasks: str, tmp_path: Path
) -> None:
    space = load_space("default", task_set(tasks, tmp_path))
    default = space.default_point()
    for task in space.task_set:
        assert default[f"batch.sizes.{task.name}"] == 16
        assert default[f"loss.weights.{task.name}"] == 1
    for point in space.start_from:
        assert not space.missing(point)


@pytest.mark.parametrize("name", FITTING)
def test_a_space_in_a_run_has_the_names_of_its_tasks(name: str, tmp_path: Path) -> None:
    space = load_space(name, task_set("ten", tmp_path))
    assert "<" not in to_yaml(space.to_dict())
    assert again(space, tmp_path) == space and not again(space, tmp_path).notes


def test_importance_and_tensorboard_take_the_parameters_of_ten_tasks(tmp_path: Path) -> None:
    space, rng = load_space("default", task_set("ten", tmp_path)), np.random.default_rng(0)
    study = optuna.create_study(direction="maximize")
    for _ in range(40):
        point = space.draw(rng)
        params = space.params(point)
        study.add_trial(
            optuna.trial.create_trial(
                params=params,
                distributions=space.distributions(params),
                value=float(point["batch.sizes.j"] == 4) + rng.random() / 10,
            )
        )
    found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(n_trees=16, seed=0))
    assert len(found) == len(space.parameters) == 31
    assert max(found, key=lambda key: found[key]) == "batch.sizes.j"
    columns = {column.name for column in Columns.of(space).columns}
    assert columns >= {parameter.key for parameter in space.parameters}


# What a placeholder stands for


@pytest.mark.parametrize(
    ("kind", "tasks"),
    {
        "task": "abcdefghij",
        "classes": "adgj",
        "binary": "cehi",
        "regression": "bf",
        "single": "cdfij",
        "pair": "abegh",
        "binary pair": "eh",
        "pair  binary": "eh",
        "classes single": "dj",
        "task pair": "abegh",
    }.items(),
)
def test_a_placeholder_stands_for_every_task_of_its_kind(kind: str, tasks: str, load: Load) -> None:
    space = load(f"parameters: {{batch.sizes.<{kind}>: {{choice: [4, 8]}}}}", "ten")
    assert domains(space) == {f"batch.sizes.{task}": [4, 8] for task in tasks}
    assert not space.notes


def test_the_closest_key_counts_wherever_it_stands(load: Load) -> None:
    space = load("""
base:
  loss: {weights: {<pair>: 3, <task>: 2, nli: 4}}
parameters:
  batch.sizes.topic: {choice: [1, 2]}
  batch.sizes.<pair>: {choice: [3, 4]}
  batch.sizes.<task>: {choice: [5, 6]}
  batch.sizes.<regression pair>: {choice: [7, 8]}
start_from:
  - {batch.sizes.<regression>: 8, batch.sizes.<task>: 5, batch.sizes.nli: 4, batch.sizes.topic: 1}
""")
    assert space.config({}).loss_weights(space.task_set) == (4, 3, 2, 2)
    assert domains(space) == {
        "batch.sizes.topic": [1, 2],
        "batch.sizes.nli": [3, 4],
        "batch.sizes.fine": [5, 6],
        "batch.sizes.near": [7, 8],
    }
    point = {"near": 8, "fine": 5, "nli": 4, "topic": 1}
    assert space.start_from == ({f"batch.sizes.{task}": size for task, size in point.items()},)


def test_a_placeholder_without_a_task_is_left_out_and_noted(load: Load) -> None:
    space = load(
        """
base: {pair.encoding.<pair>: cosine}
parameters: {loss.<regression>: {choice: [mse]}, optim.clip: {choice: [1, 2]}}
start_from: [{loss.<regression>: mse, optim.clip: 2}]
""",
        "singles",
    )
    assert (space.base, domains(space)) == ({}, {"optim.clip": [1, 2]})
    assert space.start_from == ({"optim.clip": 2},)
    assert space.notes == (
        "pair.encoding.<pair> stands for no task of singles",
        "loss.<regression> stands for no task of singles",
    )


def test_a_list_of_tasks_can_hold_placeholders(load: Load) -> None:
    text = """
base: {schedule.order: [<pair>, fine, <single>]}
parameters:
  smart.tasks: {choice: [null, [<classes>], [<classes>, <pair>], [<four>, topic]]}
start_from: [{smart.tasks: [<classes>]}]
""".replace("<four>", "<classes single>")
    space = load(text)
    assert space.config({}).schedule.order == ("nli", "near", "fine", "topic")
    lists = [None, ["nli", "topic"], ["nli", "topic", "near"], ["topic"]]
    assert domains(space) == {"smart.tasks": lists}
    assert space.start_from == ({"smart.tasks": ["nli", "topic"]},)
    same = load("parameters: {smart.tasks: {choice: [null, [<binary>], [<pair>]]}}", "cs224n")
    assert domains(same) == {"smart.tasks": [None, ["para"], ["para", "sts"]]}
    none = load("parameters: {smart.tasks: {choice: [null, [<pair>], [fine]]}}", "singles")
    assert domains(none) == {"smart.tasks": [None, ["fine"]]}


# What a task cannot have


def test_a_choice_that_a_task_cannot_have_is_left_out_for_it(load: Load) -> None:
    space = load("""
parameters:
  pair.encoding.<task>: {choice: [cross, bi_concat, cosine]}
  loss.<task>: {choice: [mse, dual_objective, ordinal_log]}
start_from: [{pair.encoding.<pair>: cosine, loss.<classes>: ordinal_log, loss.<binary>: mse}]
""")
    assert domains(space) == {
        "pair.encoding.nli": ["cross", "bi_concat"],
        "pair.encoding.near": ["cross", "bi_concat", "cosine"],
        "loss.nli": ["dual_objective", "ordinal_log"],
        "loss.near": ["mse"],
        "loss.fine": ["dual_objective"],
        "loss.topic": ["dual_objective", "ordinal_log"],
    }
    fixed = {p.key for p in space.parameters if isinstance(p.domain, Fixed)}
    assert fixed == {"loss.near", "loss.fine"}
    assert space.start_from == (
        {"pair.encoding.near": "cosine", "loss.nli": "ordinal_log", "loss.topic": "ordinal_log"},
    )
    notes = "\n".join(space.notes)
    assert "pair.encoding.nli is never cosine: 'pair.encoding' is cosine, but nli has 3" in notes
    assert "loss.fine is never ordinal_log: 'loss.fine' is ordinal_log, which does not" in notes
    assert (
        "pair.encoding.fine is not searched: 'pair.encoding.fine': fine has one sentence" in notes
    )


def test_what_is_held_decides_what_a_task_can_have(load: Load) -> None:
    text = "parameters: {pair.encoding.<binary pair>: {choice: [cross, cosine]}, optim.clip: "
    text += "{choice: [1, 2]}}"
    assert domains(load(text, "cs224n"))["pair.encoding.para"] == ["cross", "cosine"]
    two_logits = load(f"base: {{loss.para: cross_entropy}}\n{text}", "cs224n")
    assert domains(two_logits)["pair.encoding.para"] == ["cross"]
    given = load(text, "cs224n", overrides={"loss.para": "cross_entropy"})
    assert domains(given)["pair.encoding.para"] == ["cross"]


def test_a_value_of_base_that_a_task_cannot_have_is_left_out_for_it(load: Load) -> None:
    space = load("base: {pair.encoding.<pair>: cosine}\nparameters: {optim.clip: {choice: [1, 2]}}")
    assert space.base == {"pair.encoding.near": "cosine"}
    assert space.notes[0].startswith("pair.encoding.nli is not set to cosine: ")
    space.config({})


def test_what_is_set_from_outside_can_have_placeholders(load: Load) -> None:
    text = "parameters: {batch.sizes.<task>: {choice: [4, 8]}}"
    space = load(text, overrides={"batch.sizes.<pair>": 2, "batch.sizes.topic": 3})
    assert domains(space) == {"batch.sizes.fine": [4, 8]}
    assert space.config({}).batch_sizes(space.task_set) == (2, 2, 16, 3)


# Conditions


def test_the_same_placeholder_in_a_condition_is_the_same_task(load: Load) -> None:
    space = load(
        """
parameters:
  pair.encoding.<pair>: {choice: [cross, cosine]}
  loss.<binary pair>:
    choice: [binary_cross_entropy, cross_entropy]
    when: {pair.encoding.<binary pair>: "!= cosine"}
""",
        "ten",
    )
    rng = np.random.default_rng(0)
    for _ in range(100):
        point = space.draw(rng)
        for task in "eh":
            assert (f"loss.{task}" in point) == (point[f"pair.encoding.{task}"] != "cosine")


ALPHA = """
parameters:
  loss.<task>: {choice: [cross_entropy, ordinal_log, mse]}
  loss.alpha:  {float: [1, 2], when: {loss.<task>: ordinal_log}}
"""


def test_another_placeholder_in_a_condition_is_any_of_its_tasks(load: Load, tmp_path: Path) -> None:
    space = load(ALPHA)
    alpha = next(p for p in space.parameters if p.key == "loss.alpha")
    assert list(map(str, alpha.when)) == ["loss.nli or loss.topic is ordinal_log"]
    assert alpha.written["when"] == {"loss.nli or loss.topic": "ordinal_log"}
    rng = np.random.default_rng(0)
    points = [space.draw(rng) for _ in range(200)]
    for point in points:
        any_of_them = "ordinal_log" in (point["loss.nli"], point["loss.topic"])
        assert ("loss.alpha" in point) == any_of_them
    assert again(space, tmp_path) == space


def test_a_condition_that_no_task_can_meet_leaves_its_parameter_out(load: Load) -> None:
    space = load(ALPHA + "  optim.clip: {choice: [1, 2]}", "numbers")
    assert domains(space) == {"loss.only": ["mse"], "optim.clip": [1, 2]}
    said = "loss.alpha takes part only when loss.only is ordinal_log, and is not searched"
    assert said in space.notes
    none = load(ALPHA.replace("<task>", "<classes>") + "  optim.clip: {choice: [1, 2]}", "numbers")
    assert domains(none) == {"optim.clip": [1, 2]}
    why = "loss.alpha depends on loss.<classes>, which stands for no task of numbers"
    assert f"{why}, and is not searched" in none.notes


def test_a_condition_of_several_is_met_by_what_is_set(load: Load) -> None:
    met = load(ALPHA, overrides={"loss.nli": "ordinal_log"})
    assert [p.when for p in met.parameters if p.key == "loss.alpha"] == [()]
    other = load(ALPHA, overrides={"loss.nli": "cross_entropy"})
    alpha = next(p for p in other.parameters if p.key == "loss.alpha")
    assert list(map(str, alpha.when)) == ["loss.topic is ordinal_log"]


def test_a_fixed_choice_that_has_a_condition_stays_a_choice(load: Load, tmp_path: Path) -> None:
    space = load("""
parameters:
  optim.clip: {choice: [1, 2]}
  loss.<binary>: {choice: [mse, dual_objective], when: {optim.clip: 1}}
""")
    assert space.parameters[1].domain == Choice(("dual_objective",))
    assert again(space, tmp_path) == space


# Faults

FAULTS: dict[str, tuple[str, str]] = {
    "an unknown kind": (
        "parameters:\n  pair.encoding.<pairs>: {choice: [cross]}",
        "line 3: 'pair.encoding.<pairs>' has <pairs>, and 'pairs' is not a kind of task; "
        "did you mean 'pair'?",
    ),
    "an unknown word of two": (
        "parameters:\n  batch.sizes.<long pair>: {choice: [1]}",
        "line 3: 'batch.sizes.<long pair>' has <long pair>, and 'long' is not a kind of task; "
        "known: binary, classes, pair, regression, single, task",
    ),
    "no word at all": (
        "parameters:\n  batch.sizes.<>: {choice: [1]}",
        "line 3: 'batch.sizes.<>' has <>, and '' is not a kind of task",
    ),
    "a setting that is the same for all": (
        "parameters:\n  pair.encodin.<pair>: {choice: [cross]}",
        "line 3: 'pair.encodin.<pair>' is not a setting that each task has; did you mean "
        "'pair.encoding.<task>'?",
    ),
    "a placeholder in the middle": (
        "base:\n  loss.<task>.weights: 3\nparameters: {optim.clip: {choice: [1, 2]}}",
        "line 3: 'loss.<task>.weights' is not a setting that each task has",
    ),
    "two that are as close": (
        "parameters:\n  loss.<single>: {choice: [mse]}\n  loss.<binary>: {choice: [mse]}",
        "line 4: 'loss.<binary>' and 'loss.<single>' both stand for 'loss.fine'; give 'loss.fine' "
        "itself, or name kinds that no task shares",
    ),
    "a domain that does not fit": (
        "parameters:\n  loss.weights.<task>: {float: [-1, 1]}",
        "line 3: 'loss.weights.<task>' must be a number >= 0, but is -1",
    ),
    "a base that does not fit": (
        "base:\n  batch.sizes.<task>: 0\nparameters: {optim.clip: {choice: [1, 2]}}",
        "line 3: 'batch.sizes.<task>' must be a whole number >= 1, but is 0",
    ),
    "base and parameter": (
        "base:\n  batch.sizes.<task>: 3\nparameters:\n  batch.sizes.<pair>: {choice: [1, 2]}",
        "line 3: 'batch.sizes.<task>' is in base, and 'batch.sizes.<pair>' is a parameter; keep",
    ),
    "a condition on an unknown kind": (
        "parameters:\n  optim.clip: {choice: [1], when: {loss.<pairs>: mse}}",
        "line 3: 'optim.clip' depends on 'loss.<pairs>', which has <pairs>, and 'pairs' is not",
    ),
    "a condition on what is no parameter": (
        "parameters:\n  loss.<pair>: {choice: [mse, cross_entropy]}\n"
        "  optim.clip: {choice: [1], when: {loss.<task>: mse}}",
        "line 4: 'optim.clip' depends on 'loss.<task>', and 'loss.fine' is no parameter; "
        "did you mean 'loss.<pair>'?",
    ),
    "a condition on several, of which one is no parameter": (
        "parameters:\n  loss.nli: {choice: [ordinal_log, cross_entropy]}\n"
        "  loss.alpha: {float: [1, 2], when: {loss.nli or loss.topik: ordinal_log}}",
        "line 4: 'loss.alpha' depends on 'loss.nli or loss.topik', and 'loss.topik' is no "
        "parameter; ",
    ),
    "a condition on several of different forms": (
        "parameters:\n  batch.sizes: {choice: [[8, 8, 8, 8], [4, 4, 4, 4]]}\n"
        "  batch.sizes.nli: {choice: [8, 4]}\n"
        "  optim.clip: {choice: [1], when: {batch.sizes or batch.sizes.nli: 8}}",
        "line 5: 'optim.clip' depends on 'batch.sizes or batch.sizes.nli', whose values differ in",
    ),
    "a condition on what is never offered": (
        "parameters:\n  loss.<classes>: {choice: [ordinal_log, cross_entropy]}\n"
        "  loss.alpha: {float: [1, 2], when: {loss.<classes>: ordinal}}",
        "line 4: 'loss.alpha' depends on 'loss.<classes>' being 'ordinal', which can never hold",
    ),
    "a start that is not offered": (
        "parameters: {batch.sizes.<task>: {choice: [4, 8]}}\nstart_from:\n"
        "  - {batch.sizes.<pair>: 5}",
        "line 4: start_from 1: 'batch.sizes.<pair>' 5 is not one of 4 | 8",
    ),
    "a start for more than the parameters": (
        "parameters: {batch.sizes.<pair>: {choice: [4, 8]}}\nstart_from:\n"
        "  - {batch.sizes.<task>: 4}",
        "line 4: start_from 1: 'batch.sizes.<task>' stands for 'batch.sizes.fine', which is not a "
        "parameter; did you mean 'batch.sizes.<pair>'?",
    ),
    "a start of an unknown kind": (
        "parameters: {batch.sizes.<pair>: {choice: [4, 8]}}\nstart_from:\n"
        "  - {batch.sizes.<pear>: 4}",
        "line 4: start_from 1: 'batch.sizes.<pear>' has <pear>, and 'pear' is not a kind of task; "
        "did you mean 'pair'?",
    ),
    "an unknown kind in a list": (
        "parameters:\n  smart.tasks: {choice: [null, [<pairs>]]}",
        "line 3: 'smart.tasks' has a choice that has <pairs>, and 'pairs' is not a kind of task",
    ),
    "only lists without a task": (
        "parameters:\n  smart.tasks: {choice: [[<binary pair>]]}",
        "line 3: 'smart.tasks' offers lists of tasks alone, and there is none of these kinds; add",
    ),
    "parameters for other tasks only": (
        "parameters:\n  batch.sizes.<binary pair>: {choice: [1, 2]}",
        "line 2: no parameter is for a task of mixed; add one for all, such as",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_once_with_its_line_and_as_it_is_written(
    name: str, faults_of: Callable[..., list[str]]
) -> None:
    text, message = FAULTS[name]
    faults = faults_of(text)
    told = [fault for fault in faults if fault.startswith(message)]
    assert len(told) == 1, faults


def test_placeholders_hide_no_fault_where_the_task_set_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("""tasks: nothing.yaml
parameters:
  batch.sizes.<task>: {choice: []}
  loss.alpha: {float: [1, 2], when: {loss.<classes>: ordinal_log}}
start_from: [{batch.sizes.<pair>: 3}]
""")
    with pytest.raises(InputError) as caught:
        load_space(str(path))
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["line 1", "line 3"]
