"""Whatever a space file holds, it is a space or is refused with all its faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from tuner.space.space import load_space

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def faults_of(tmp_path: Path) -> Callable[[str], list[str]]:
    """The faults of a space, with `tasks: cs224n` in front where it has none."""

    def faults(text: str) -> list[str]:
        path = tmp_path / "mine.yaml"
        path.write_text(text if "\ntasks:" in f"\n{text}" else f"tasks: cs224n\n{text}")
        with pytest.raises(InputError) as caught:
            load_space(str(path))
        return caught.value.faults

    return faults


# What is refused. `tasks: cs224n` is line 1, `parameters:` line 2.

MALFORMED: dict[str, tuple[str, str]] = {
    "no parameters": ("about: x", "'parameters' is missing or empty; give each as KEY: {float:"),
    "points that are listed somehow": (
        "listed: 3\nparameters: {smart.weight: {choice: [0, 1]}}",
        "line 2: 'listed' must be true or false, but is 3",
    ),
    "a list of parameters": ("parameters: [1]", "line 2: 'parameters' is [1]; give each as KEY"),
    "an unknown part": (
        "parameter: {}\nparameters: {optim.clip: {choice: [1]}}",
        "line 2: 'parameter' is no part of a space; did you mean 'parameters'?",
    ),
    "about that is no text": ("about: 3\nparameters: {}", "line 2: 'about' must be text, but is 3"),
    "an unknown task set": (
        "tasks: cs224\nparameters: {optim.clip: {choice: [1]}}",
        "line 1: task set: 'cs224' is neither a .yaml file nor a set that comes with the package; "
        "did you mean 'cs224n'?",
    ),
    "no task set": (
        "tasks: null\nparameters: {optim.clip: {choice: [1]}}",
        "line 1: 'tasks' is missing; name a task set, such as cs224n, or its file",
    ),
    "a parameter that is not a setting": (
        "parameters:\n  optim.lerning_rate: {float: [1.0e-5, 1.0e-3]}",
        "line 3: 'optim.lerning_rate' is not a setting; did you mean 'optim.learning_rate'?",
    ),
    "a task that is not there": (
        "parameters:\n  loss.mood: {choice: [mse]}",
        "line 3: 'loss.mood' is not a setting, and 'mood' is not a task of cs224n; known: loss.sst",
    ),
    "a nested parameter": (
        "parameters:\n  smart: {weight: {float: [0, 1]}}",
        "line 3: 'smart' is a section; write dotted keys, such as smart.weight: {float:",
    ),
    "a parameter of the search": (
        "parameters:\n  budget.examples: {int: [1, 9]}",
        "line 3: 'budget.examples' is decided by the search itself; remove it",
    ),
    "a domain that is no mapping": (
        "parameters:\n  optim.clip: [1, 2]",
        "line 3: 'optim.clip' must be {float: [low, high]}",
    ),
    "no kind of domain": (
        "parameters:\n  optim.clip: {log: true}",
        "line 3: 'optim.clip' has no domain; give {float: [low, high]}",
    ),
    "two kinds of domain": (
        "parameters:\n  optim.clip: {float: [1, 2], choice: [1]}",
        "line 3: 'optim.clip' has float and choice; keep one",
    ),
    "an unknown word in a domain": (
        "parameters:\n  optim.clip:\n    float: [1, 2]\n    stpe: 1",
        "line 5: 'optim.clip' has 'stpe', which no domain has; did you mean 'step'?",
    ),
    "three ends": (
        "parameters:\n  optim.clip: {float: [1, 2, 3]}",
        "line 3: 'optim.clip' must have float: [low, high], but has [1, 2, 3]",
    ),
    "an end that does not fit": (
        "parameters:\n  encoder.dropout: {float: [0, 1.5]}",
        "line 3: 'encoder.dropout' must be a number >= 0 and < 1, or null, but is 1.5",
    ),
    "an end that is a word": (
        "parameters:\n  head.hidden: {int: [0, width]}",
        "line 3: 'head.hidden' has the end 'width', which is not a number; offer it as a choice",
    ),
    "ends the wrong way round": (
        "parameters:\n  optim.clip: {float: [2, 1]}",
        "line 3: 'optim.clip' goes from 2 to 1; the first must be the smaller",
    ),
    "ends that are the same": (
        "parameters:\n  smart.steps: {int: [2, 2]}",
        "line 3: 'smart.steps' goes from 2 to 2; the first must be the smaller",
    ),
    "a float range for whole numbers": (
        "parameters:\n  smart.steps: {float: [1, 5]}",
        "line 3: 'smart.steps' must be a whole number >= 1, but is 1.5; write int: [low, high]",
    ),
    "an int range with a fraction": (
        "parameters:\n  optim.clip: {int: [0.5, 5]}",
        "line 3: 'optim.clip' has the end 0.5, which is not a whole number",
    ),
    "an int range beyond what samplers can do": (
        "parameters:\n  budget: {int: [1, 2]}\n  smart.steps: {int: [1, 1.0e+30]}",
        "line 4: 'smart.steps' has the end 1e+30, which is not a whole number, or too large",
    ),
    "log from 0": (
        "parameters:\n  optim.clip: {float: [0, 1], log: true}",
        "line 3: 'optim.clip' has log: true and starts at 0; start above 0",
    ),
    "log that is no yes or no": (
        "parameters:\n  optim.clip: {float: [1, 2], log: 10}",
        "line 3: 'optim.clip' has log: 10; write true or false",
    ),
    "log with step": (
        "parameters:\n  optim.clip: {float: [1, 2], log: true, step: 0.5}",
        "line 3: 'optim.clip' has both log and step; keep one of them",
    ),
    "a step that does not divide": (
        "parameters:\n  encoder.dropout: {float: [0.1, 0.5], step: 0.15}",
        "line 3: 'encoder.dropout' has step 0.15, which does not divide 0.1 .. 0.5: it reaches "
        "[0.1, 0.4]; write that",
    ),
    "a step longer than the range": (
        "parameters:\n  encoder.dropout: {float: [0.1, 0.5], step: 1}",
        "line 3: 'encoder.dropout' has step 1, which is longer than 0.1 .. 0.5",
    ),
    "a step of nothing": (
        "parameters:\n  encoder.dropout: {float: [0.1, 0.5], step: 0}",
        "line 3: 'encoder.dropout' has step 0; it must be a number above 0",
    ),
    "a step too fine": (
        "parameters:\n  optim.clip: {float: [0, 1.0e+300], step: 1.0e-300}",
        "line 3: 'optim.clip' has step 1e-300, which is too fine for 0 .. 1e+300; leave it out",
    ),
    "half a step between whole numbers": (
        "parameters:\n  smart.steps: {int: [1, 5], step: 0.5}",
        "line 3: 'smart.steps' has step 0.5 between whole numbers; take a whole one",
    ),
    "log of a choice": (
        "parameters:\n  optim.clip: {choice: [1, 2], log: true}",
        "line 3: 'optim.clip' has 'log', which is for float and int; remove it",
    ),
    "an empty choice": (
        "parameters:\n  optim.clip: {choice: []}",
        "line 3: 'optim.clip' has a choice that is empty; give a list of values",
    ),
    "a choice that is no list": (
        "parameters:\n  optim.decay: {choice: linear}",
        "line 3: 'optim.decay' has a choice that is 'linear'; give a list of values",
    ),
    "a choice that does not fit": (
        "parameters:\n  loss.sst: {choice: [cross_entropi]}",
        "did you mean 'cross_entropy'?",
    ),
    "a list too short": (
        "parameters:\n  batch.sizes: {choice: [[8, 8]]}",
        "line 3: 'batch.sizes' has a choice that has 2 values for 3 tasks; give one each for sst",
    ),
    "a choice twice": (
        "parameters:\n  optim.clip: {choice: [1, 2, 1.0]}",
        "line 3: 'optim.clip' offers 1.0 twice; keep one of them",
    ),
    "a mapping with an unknown task": (
        "parameters:\n  pair.encoding: {choice: [{stst: cross}]}",
        "line 3: 'pair.encoding' has a choice that does not fit: 'pair.encoding.stst' is not a",
    ),
    "a mapping where there is none": (
        "parameters:\n  optim.clip: {choice: [{a: 1}]}",
        "line 3: 'optim.clip' has a choice that must be a number >= 0, but is a mapping",
    ),
    "a number for a section": (
        "parameters:\n  optim.layer_scale: {fixed: 3}",
        "line 3: 'optim.layer_scale' must be a mapping of its settings, such as {alpha: ...}",
    ),
    "a fixed value that does not fit": (
        "parameters:\n  optim.clip: {fixed: -1}\n  smart.steps: {int: [1, 2]}",
        "line 3: 'optim.clip' must be a number >= 0, but is -1",
    ),
    "only fixed values": (
        "parameters:\n  optim.clip: {fixed: 1}",
        "line 2: every parameter is fixed; let at least one vary",
    ),
    "a parameter in base too": (
        "base: {optim: {clip: 3}}\nparameters:\n  optim.clip: {float: [1, 2]}",
        "line 2: 'optim.clip' is in base, and 'optim.clip' is a parameter; keep one of them",
    ),
    "a task of a parameter in base": (
        "base: {batch.sizes.sst: 3}\nparameters:\n  batch.sizes: {choice: [1, 2]}",
        "line 2: 'batch.sizes.sst' is in base, and 'batch.sizes' is a parameter; keep one",
    ),
    "a section of a parameter in base": (
        "base: {optim.layer_scale.beta: 3}\n"
        "parameters: {optim.layer_scale: {choice: [{alpha: 1, beta: 2}]}}",
        "line 2: 'optim.layer_scale.beta' is in base, and 'optim.layer_scale' is a parameter",
    ),
    "a base with an unknown setting": (
        "base:\n  smart: {wieght: 3}\nparameters: {optim.clip: {choice: [1]}}",
        "line 3: 'smart.wieght' is not a setting; did you mean 'smart.weight'?",
    ),
    "a base with a value that does not fit": (
        "base:\n  seed: -1\nparameters: {optim.clip: {choice: [1]}}",
        "line 3: 'seed' must be a whole number >= 0 and <= 4294967295, but is -1",
    ),
    "a base that is a list": ("base: [1]\nparameters: {}", "line 2: 'base' must be a mapping of"),
    "a base that says two things": (
        "base: {smart.weight: 1, smart: {weight: 2}}\nparameters: {optim.clip: {choice: [1]}}",
        "line 2: 'smart.weight' is given twice, as 1 and as 2; keep one of them",
    ),
    "a condition on nothing known": (
        "parameters:\n  optim.clip: {choice: [1], when: {optim.decay: linear}}",
        "line 3: 'optim.clip' depends on 'optim.decay', which is no parameter",
    ),
    "a condition on itself": (
        "parameters:\n  optim.clip: {choice: [1], when: {optim.clip: 1}}",
        "line 3: 'optim.clip' depends on itself; remove that condition",
    ),
    "conditions in a circle": (
        "parameters:\n  optim.clip: {choice: [1], when: {smart.steps: 1}}\n"
        "  smart.steps: {choice: [1], when: {optim.clip: 1}}",
        "the conditions go round in a circle: ",
    ),
    "a condition that is no mapping": (
        "parameters:\n  optim.clip: {choice: [1], when: yes}",
        "line 3: 'optim.clip' has when: true; write {other.parameter: value}",
    ),
    "a condition on a value that is never offered": (
        "parameters:\n  optim.clip: {choice: [1], when: {optim.decay: linaer}}\n"
        "  optim.decay: {choice: [linear, cosine]}",
        "line 3: 'optim.clip' depends on 'optim.decay' being 'linaer', which can never hold",
    ),
    "a condition on a setting's value outside the choice": (
        "parameters:\n  optim.clip: {choice: [1], when: {optim.decay: [linear, constant]}}\n"
        "  optim.decay: {choice: [linear, cosine]}",
        "depends on 'optim.decay' being 'constant', which can never hold: it is not one of linear",
    ),
    "a comparison that never holds": (
        "parameters:\n  optim.clip: {choice: [1], when: {smart.weight: '> 10'}}\n"
        "  smart.weight: {float: [0, 10]}",
        "line 3: 'optim.clip' depends on 'smart.weight' with '> 10', which can never hold; "
        "it is 0 .. 10",
    ),
    "a comparison with a word": (
        "parameters:\n  optim.clip: {choice: [1], when: {smart.weight: '> much'}}\n"
        "  smart.weight: {float: [0, 10]}",
        "with '> much', which does not compare with a number",
    ),
    "a comparison of words": (
        "parameters:\n  optim.clip: {choice: [1], when: {optim.decay: '> 1'}}\n"
        "  optim.decay: {choice: [linear]}",
        "depends on 'optim.decay' with '> 1', but it is no number; it is linear",
    ),
    "a condition that hits one point of a range": (
        "parameters:\n  optim.clip: {choice: [1], when: {smart.weight: 5}}\n"
        "  smart.weight: {float: [0, 10]}",
        "depends on 'smart.weight' being 5, which a range hardly ever is",
    ),
    "unlike the only value": (
        "parameters:\n  optim.clip: {choice: [1], when: {optim.decay: '!= linear'}}\n"
        "  optim.decay: {choice: [linear]}",
        "with '!= linear', which can never hold; it is linear",
    ),
    "a condition on a fixed value": (
        "parameters:\n  optim.clip: {fixed: 1, when: {smart.steps: 1}}\n"
        "  smart.steps: {int: [1, 2]}",
        "line 3: 'optim.clip' is fixed and has 'when'; remove it",
    ),
    "a start that is no list": (
        "parameters: {optim.clip: {choice: [1]}}\nstart_from: {optim.clip: 1}",
        "line 3: 'start_from' must be a list of points, but is {'optim.clip': 1}",
    ),
    "a start with an unknown name": (
        "parameters: {optim.clip: {choice: [1]}}\nstart_from:\n  - {optim.clip: 1}\n"
        "  - {optim.clop: 1}",
        "line 5: start_from 2: 'optim.clop' is not a parameter; did you mean 'optim.clip'?",
    ),
    "a start with what base decides": (
        "base: {seed: 1}\nparameters: {optim.clip: {choice: [1]}}\nstart_from: [{seed: 1}]",
        "line 4: start_from 1: 'seed' is decided by base; known: optim.clip",
    ),
    "a start outside": (
        "parameters: {optim.clip: {float: [1, 2]}}\nstart_from: [{optim.clip: 3}]",
        "line 3: start_from 1: 'optim.clip' 3 is outside 1 .. 2",
    ),
    "a start beside the steps": (
        "parameters: {optim.clip: {float: [1, 2], step: 0.5}}\nstart_from: [{optim.clip: 1.2}]",
        "line 3: start_from 1: 'optim.clip' 1.2 is not on the steps of 1 .. 2; the nearest is 1",
    ),
    "a start that is a number": (
        "parameters: {optim.clip: {choice: [1]}}\nstart_from:\n  - 7",
        "line 4: start_from 1 must be {KEY: value, ...}, but is 7",
    ),
    "a start with what takes no part": (
        "parameters:\n  smart.weight: {choice: [0, 1]}\n"
        "  smart.steps: {int: [1, 3], when: {smart.weight: '> 0'}}\n"
        "start_from: [{smart.weight: 0, smart.steps: 1}]",
        "start_from 1: 'smart.steps' is given, but takes part only when smart.weight > 0",
    ),
    "surgery without a joint schedule": (
        "parameters:\n  schedule.name: {choice: [uniform, simultaneous]}\n"
        "  surgery: {choice: [none, pcgrad]}",
        "line 4: schedule.name uniform and surgery pcgrad cannot be: 'surgery' is pcgrad, but "
        "uniform trains one task per step",
    ),
    "a parameter that contradicts base": (
        "base: {surgery: pcgrad}\nparameters:\n  schedule.name: {choice: [simultaneous, uniform]}",
        "line 4: schedule.name uniform cannot be: 'surgery' is pcgrad, but uniform trains one",
    ),
    "a start that contradicts base": (
        "base: {surgery: pcgrad}\nparameters:\n  schedule.name: {choice: [simultaneous, uniform]}\n"
        "start_from: [{schedule.name: uniform}]",
        "schedule.name uniform cannot be",
    ),
    "a base that contradicts itself": (
        "base: {encoder.frozen: true, encoder.train_layers: [1]}\n"
        "parameters: {optim.clip: {choice: [2]}}",
        "line 2: the default cannot be: 'encoder.train_layers' names layers to train, but",
    ),
    "a key twice": (
        "parameters:\n  optim.clip: {choice: [1]}\n  optim.clip: {choice: [2]}",
        "line 4: 'optim.clip' is given twice; keep one of them",
    ),
    "no YAML": ("parameters: {", "not valid YAML"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_space_is_refused_with_its_fault(
    name: str, faults_of: Callable[..., list[str]]
) -> None:
    text, message = MALFORMED[name]
    faults = faults_of(text)
    assert any(message in fault for fault in faults), faults


def test_all_faults_come_at_once_by_line(faults_of: Callable[..., list[str]]) -> None:
    faults = faults_of("""tasks: cs224n
parameters:
  smart.weight: {float: [2, 1]}
  smart.steps: {int: [1, 3], when: {smart.weigth: 1}}
  loss.sst: {choice: [hinge, cross_entropy]}
base: {seed: x}
start_from:
  - smart.steps: 7
""")
    starts = [fault.split(":")[0] for fault in faults]
    assert starts == ["line 3", "line 4", "line 5", "line 6", "line 8"]


def test_a_loss_of_another_kind_of_task_is_told_with_the_rest(
    faults_of: Callable[..., list[str]],
) -> None:
    faults = faults_of("""tasks: cs224n
parameters:
  smart.wieght: {float: [0.1, 1]}
  optim.learning_rate: {float: [1, 0.1]}
  loss.sst: {choice: [cross_entropy, mse]}
""")
    assert [fault.split(":")[0] for fault in faults] == ["line 3", "line 4", "line 5"]
    assert "has a choice that is mse, which does not fit a task of 5 classes; known:" in faults[2]


def test_a_bad_domain_hides_no_other_fault_of_its_parameter(
    faults_of: Callable[..., list[str]],
) -> None:
    faults = faults_of("""tasks: cs224n
base: {smart.weight: 3}
parameters:
  smart.weight: {float: [2, 1]}
  smart.radius: {float: [0, 1], log: true, when: {smart.wieght: "> 0"}}
""")
    wanted = ("line 2: 'smart.weight' is in base", "line 4: ", "line 5: ", "line 5: ")
    assert [fault.startswith(start) for fault, start in zip(faults, wanted, strict=True)] == [
        True
    ] * 4
    assert "did you mean 'smart.weight'?" in faults[2] + faults[3]


def test_contradictions_name_the_values_that_cause_them_once_each(
    faults_of: Callable[..., list[str]],
) -> None:
    faults = faults_of("""
parameters:
  schedule.name: {choice: [uniform, annealed, simultaneous]}
  surgery: {choice: [none, pcgrad]}
  encoder.adapter_size: {choice: [16, 12]}
  encoder.adapter_heads: {choice: [3, 4]}
  optim.clip: {float: [0, 5]}
""")
    assert len(faults) == 2
    assert all(
        "optim.clip" not in fault and "'when' can keep them apart" in fault for fault in faults
    )


# Any YAML is a space or is refused

KEYS = st.sampled_from(
    ["smart.weight", "smart.steps", "batch.sizes", "loss.sst", "pair.encoding", "encoder.dropout"]
    + ["optim.layer_scale", "head.hidden", "smart", "schedule.name", "surgery", "x", "", "<<"]
    + ["batch.sizes.<task>", "loss.<classes>", "pair.encoding.<pair>", "loss.<x>", "<pair>"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.integers(),
    st.floats(),
    st.sampled_from(["cross", "> 0", "!= none", ">", "= [", "1e-5", "width", "uniform", "~", "é"]),
    st.text(max_size=5),
    st.dates(),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(KEYS, SCALARS), inner, max_size=3)
    ),
    max_leaves=8,
)
DOMAIN = st.fixed_dictionaries(
    {},
    optional={
        "float": st.one_of(st.lists(SCALARS, min_size=2, max_size=2), ANYTHING),
        "int": st.one_of(st.lists(st.integers(0, 50), min_size=2, max_size=2), ANYTHING),
        "choice": st.one_of(st.lists(ANYTHING, max_size=3), ANYTHING),
        "fixed": ANYTHING,
        "log": st.one_of(st.booleans(), ANYTHING),
        "step": SCALARS,
        "when": st.one_of(st.dictionaries(KEYS, ANYTHING, max_size=2), ANYTHING),
    },
)
SOUND: dict[str, list[dict[str, Any]]] = {
    "smart.weight": [{"float": [0.1, 10], "log": True}, {"choice": [0, 1]}, {"fixed": 1}],
    "smart.steps": [{"int": [1, 5], "step": 2}, {"int": [1, 64], "log": True}],
    "smart.tasks": [{"choice": [None, ["sst"], ["sst", "para"]]}],
    "batch.sizes": [{"choice": [8, [1, 2, 3]]}, {"fixed": [4, 4, 4]}, {"int": [1, 8]}],
    "pair.encoding": [{"choice": ["cross", {"sts": "cosine"}]}],
    "pair.encoding.<pair>": [{"choice": ["cross", "cosine"]}, {"fixed": "cosine"}],
    "loss.<task>": [{"choice": ["cross_entropy", "mse", "binary_cross_entropy"]}, {"fixed": "mse"}],
    "loss.weights.<binary pair>": [{"float": [0.1, 2]}],
    "head.hidden": [{"choice": [0, "width"]}, {"int": [0, 100]}],
    "encoder.dropout": [{"float": [0, "2e-1"], "step": 0.05}],
}
WHEN = st.fixed_dictionaries(
    {},
    optional={
        "smart.weight": st.sampled_from(["> 0.5", "< 1", 1, [0, 1]]),
        "smart.steps": st.sampled_from([1, "!= 3", ">= 2", [1, 5]]),
        "head.hidden": st.sampled_from([0, "!= 0", "> 50", "width"]),
        "pair.encoding.<pair>": st.sampled_from(["cosine", "!= cosine"]),
        "loss.<classes>": st.sampled_from(["cross_entropy", "mse"]),
    },
)
SOUND_PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        key: st.tuples(st.sampled_from(domains), st.one_of(st.none(), WHEN)).map(
            lambda both: {**both[0], **({"when": both[1]} if both[1] else {})}
        )
        for key, domains in SOUND.items()
    },
)
SPACE = st.fixed_dictionaries(
    {"parameters": st.dictionaries(KEYS, st.one_of(DOMAIN, ANYTHING), max_size=4)},
    optional={
        "about": SCALARS,
        "base": st.one_of(st.dictionaries(KEYS, ANYTHING, max_size=3), ANYTHING),
        "start_from": st.one_of(
            st.lists(st.dictionaries(KEYS, ANYTHING, max_size=3), max_size=3), ANYTHING
        ),
        "tasks": st.one_of(st.just("sample"), ANYTHING),
        "more": ANYTHING,
    },
)


def loads_or_is_refused(path: Path, tasks: str | None) -> None:
    try:
        space = load_space(str(path), tasks)
    except InputError as error:
        assert error.faults and all(isinstance(fault, str) and fault for fault in error.faults)
        return
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(3):
        point = space.suggest(study.ask())
        space.config(point)
        assert space.settings(space.params(point)) == point
    assert space.table()


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(SPACE, ANYTHING, st.fixed_dictionaries({"parameters": SOUND_PARAMETERS})))
def test_any_yaml_is_a_space_or_is_refused(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    loads_or_is_refused(path, "cs224n")
    loads_or_is_refused(path, None)


NUMBERS = st.one_of(st.integers(0, 60), st.floats(0, 50), st.sampled_from([1e-300, 1e300, 0.1]))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(["optim.clip", "smart.steps", "encoder.dropout", "batch.sizes.sst"]),
    kind=st.sampled_from(["float", "int"]),
    ends=st.lists(NUMBERS, min_size=2, max_size=2).map(sorted),
    more=st.fixed_dictionaries({}, optional={"log": st.booleans(), "step": NUMBERS}),
)
def test_any_range_is_drawn_within_its_ends_or_is_refused(
    key: str, kind: str, ends: list[float], more: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump({"parameters": {key: {kind: ends, **more}}}))
    loads_or_is_refused(path, "cs224n")


@pytest.mark.parametrize(
    "text",
    [
        "&a {parameters: *a}",
        "parameters: &a {smart.weight: *a}",
        "parameters: {smart.tasks: {choice: &a [*a, *a]}}",
        "base: &a {smart: *a}\nparameters: {optim.clip: {choice: [1]}}",
        "parameters: {pair.encoding: {choice: [&a {sts: *a}, &b {sts: *b}]}}",
        "x: &a {start_from: [{optim.clip: 1}]}\n<<: *a\nparameters: {optim.clip: {choice: [1]}}",
        'tasks: "a\\0b.yaml"\nparameters: {optim.clip: {choice: [1]}}',
        "tasks: " + "a" * 5000 + ".yaml\nparameters: {optim.clip: {choice: [1]}}",
        "? [1, 2]\n: 3\nparameters: {? {a: 1} : 3}",
        "- 1",
        "",
    ],
)
def test_yaml_with_tricks_is_refused(text: str, faults_of: Callable[..., list[str]]) -> None:
    assert faults_of(text)
