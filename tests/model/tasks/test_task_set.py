from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from model.common.files import Document
from model.tasks import task_set as tasks_module
from model.tasks.task_set import (
    CLEANING,
    FORMATS,
    LOSSES,
    METRICS,
    TaskSet,
    load_task_set,
    parse_task_set,
    shipped,
)

GOOD = """\
about: one good task
tasks:
  mood:
    classes: 3
    format: glue
    files: {train: a.tsv, dev: b.tsv}
    columns: {text: sentence, label: label}
"""
COLUMNS = "columns: {text: sentence, label: label}"


def load(tmp_path: Path, text: str) -> TaskSet:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_task_set(str(path))


def faults_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert caught.value.where.endswith("mine.yaml")
    return caught.value.faults


def test_a_plain_task_gets_the_defaults_of_its_kind(tmp_path: Path) -> None:
    tasks = load(tmp_path, GOOD)
    task = tasks["mood"]
    assert (tasks.name, tasks.about, tasks.names, len(tasks)) == (
        "mine",
        "one good task",
        ("mood",),
        1,
    )
    assert (task.kind, task.classes, task.low, task.high) == ("classes", 3, 0.0, 2.0)
    assert (task.loss, task.metric, task.weight, task.pair) == (
        "cross_entropy",
        "accuracy",
        1,
        False,
    )
    assert (task.source.clean, task.source.id, task.source.text) == ("none", None, ("sentence",))
    assert dict(task.source.files) == {"train": "a.tsv", "dev": "b.tsv"}
    assert hash(task)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("binary: true", ("binary", 2, 0.0, 1.0, "binary_cross_entropy", "accuracy")),
        ("regression: [-1, 2.5]", ("regression", 0, -1.0, 2.5, "mse", "pearson")),
        ("classes: 7", ("classes", 7, 0.0, 6.0, "cross_entropy", "accuracy")),
    ],
)
def test_each_kind_has_its_range_and_defaults(tmp_path: Path, kind: str, expected: object) -> None:
    task = load(tmp_path, GOOD.replace("classes: 3", kind))["mood"]
    found = (task.kind, task.classes, task.low, task.high, task.loss, task.metric)
    assert found == expected


@pytest.mark.parametrize("name", shipped())
def test_shipped_sets_load(name: str) -> None:
    tasks = load_task_set(name)
    assert tasks.name == name and tasks.about and len(tasks) == 3
    assert [task.name for task in tasks] == list(tasks.names)
    assert [tasks.index(task.name) for task in tasks] == [0, 1, 2]
    assert {task.kind for task in tasks} == {"classes", "binary", "regression"}


def test_a_task_may_ask_for_a_file_of_its_answers(tmp_path: Path) -> None:
    asked = GOOD + '    predictions: {file: "mood-{split}.txt", column: Mood}\n'
    found = load(tmp_path, asked)["mood"].predictions
    assert found is not None and found.name("test") == "mood-test.txt" and found.column == "Mood"
    assert load(tmp_path, GOOD)["mood"].predictions is None
    names = [task.predictions and task.predictions.name("dev") for task in load_task_set("cs224n")]
    assert names == ["sst-dev-output.csv", "para-dev-output.csv", "sts-dev-output.csv"]


def test_a_fourth_three_class_pair_task_needs_a_file_and_no_code(tmp_path: Path) -> None:
    text = (
        Path(__file__).parents[3].joinpath("model/tasks/task_sets/cs224n.yaml").read_text("utf-8")
    )
    text += """\
  entailment:
    classes: 3
    format: parquet
    files: {train: nli-train.parquet, dev: nli-dev.parquet}
    columns: {text: [premise, hypothesis], label: gold}
    loss: ordinal_log
    metric: macro_f1
    weight: 2
"""
    tasks = load(tmp_path, text)
    task = tasks["entailment"]
    assert len(tasks) == 4 and tasks.index("entailment") == 3
    assert (task.pair, task.classes, task.loss, task.metric, task.weight) == (
        *(True, 3, "ordinal_log", "macro_f1"),
        2.0,
    )


def test_hub_tasks_name_a_data_set(tmp_path: Path) -> None:
    hub = "hub: {dataset: glue, config: qqp, splits: {train: train, dev: validation}}"
    text = GOOD.replace("format: glue", "format: hub")
    text = text.replace("files: {train: a.tsv, dev: b.tsv}", hub)
    source = load(tmp_path, text)["mood"].source
    assert (source.dataset, source.config) == ("glue", "qqp")
    assert dict(source.files) == {"train": "train", "dev": "validation"}


def test_classes_may_have_names(tmp_path: Path) -> None:
    source = load(tmp_path, GOOD + "    labels: [bad, ' so so ', good]\n")["mood"].source
    assert source.labels == ("bad", "so so", "good")
    assert [source.label_name(n) for n in (0.0, 2.0)] == ["bad", "good"]
    text = GOOD.replace("classes: 3", "binary: true") + "    labels: ['no', 'yes']\n"
    assert load(tmp_path, text)["mood"].source.labels == ("no", "yes")
    named = load(tmp_path, GOOD.replace("classes: 3", "classes: [bad, fair, good]"))
    assert named.class_names == {"mood": ("bad", "fair", "good")}
    assert (named["mood"].kind, named["mood"].classes, named["mood"].high) == ("classes", 3, 2)
    plain = load(tmp_path, GOOD)["mood"].source
    assert plain.labels == () and plain.label_name(2.0) == "2"


def test_columns_of_a_file_without_a_header_go_by_number(tmp_path: Path) -> None:
    text = GOOD.replace(COLUMNS, "columns: {id: 1, text: [4, 3], label: 2}\n    header: false")
    task = load(tmp_path, text)["mood"]
    assert not task.source.header and task.pair
    assert (task.source.id, task.source.text, task.source.label) == ("1", ("4", "3"), "2")
    assert load(tmp_path, GOOD + "    header: true\n")["mood"].source.header


def test_the_page_on_data_knows_every_key_and_its_example_loads(tmp_path: Path) -> None:
    page = Path(__file__).parents[3].joinpath("docs/data.md").read_text("utf-8")
    names = [*tasks_module.KEYS, *FORMATS, *CLEANING, *METRICS]  # losses: in settings.md
    assert [name for name in names if not re.search(rf"`{name}[`:]", page)] == []
    example = page.split("```yaml\n")[1].split("```")[0]
    assert load(tmp_path, example).names == ("nli", "fine")


def test_an_unknown_set_or_task_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'sample'"):
        load_task_set("sampel")
    with pytest.raises(InputError, match="no such file"):
        load_task_set("nowhere/mine.yaml")
    with pytest.raises(InputError, match="did you mean 'sentiment'"):
        load_task_set("sample")["sentimant"]


# (what is replaced, by what, what must be said about it)
BAD = [
    ("classes: 3", "clases: 3", "line 4: mood: 'clases' is not a setting; did you mean 'classes'?"),
    ("classes: 3", "weight: 1", "line 3: mood: has no kind; give one of classes: N"),
    ("classes: 3", "{classes: 3, binary: true}", "not valid YAML"),
    ("classes: 3", "classes: 3\n    binary: true", "line 5: mood: classes and binary are given"),
    ("classes: 3", "classes: 1", "line 4: mood: 'classes' must be a whole number from 2"),
    ("classes: 3", "classes: 3.0", "'classes' must be a whole number from 2 to 100,000"),
    ("classes: 3", "classes: true", "'classes' must be a whole number"),
    ("classes: 3", f"classes: 0x{'f' * 5000}", "'classes' must be a whole number"),
    ("classes: 3", "binary: false", "'binary' must be true, but is false"),
    ("classes: 3", "regression: [5, 0]", "two numbers with low < high, but is [5, 0]"),
    ("classes: 3", "regression: [0, .inf]", "two numbers with low < high"),
    ("classes: 3", "regression: [0, 1, 2]", "two numbers with low < high"),
    ("classes: 3", "regression: 2020-01-01", "two numbers with low < high, but is 2020-01-01"),
    ("classes: 3", "classes: 3\n    loss: hinge", "line 5: mood: 'loss' is 'hinge'; known: binary"),
    ("classes: 3", "classes: 3\n    loss: mse", "'loss: mse' does not fit classes; it can be"),
    ("classes: 3", "classes: 3\n    metric: pearson", "'metric: pearson' does not fit classes"),
    ("classes: 3", "regression: [0, 1]\n    metric: f1", "it can be pearson, spearman"),
    ("classes: 3", "classes: 3\n    metric: acuracy", "did you mean 'accuracy'?"),
    ("classes: 3", "classes: 3\n    metric: [a]", "'metric' must be text, but is ['a']"),
    ("classes: 3", "classes: 3\n    weight: -1", "'weight' must be a number, 0 or more, but is -1"),
    ("classes: 3", "classes: 3\n    weight: .nan", "'weight' must be a number, 0 or more"),
    ("classes: 3", "classes: 3\n    weight: 0", "every weight is 0; at least one task must count"),
    ("classes: 3", "classes: 3\n    predictions: a.csv", "'predictions' must be {file: \"NAME"),
    (
        "classes: 3",
        "classes: 3\n    predictions: {file: a.csv, column: A}",
        "'file' must be a file's name with {split} in it, and no folder, but is 'a.csv'",
    ),
    (
        "classes: 3",
        'classes: 3\n    predictions: {file: "../{split}", column: A}',
        "and no folder, but is '../{split}'",
    ),
    (
        "classes: 3",
        'classes: 3\n    predictions: {file: "{split}", colum: A}',
        "line 5: mood: 'colum' is not a setting; did you mean 'column'?",
    ),
    (
        "classes: 3",
        "classes: 3\n    clean: shiny",
        "line 5: mood: 'clean' is 'shiny'; known: lower",
    ),
    ("classes: 3", "classes: 3\n    clean: ~", "'clean' must be text, but is null"),
    ("classes: 3", "classes: 3\n    1: 2", "line 5: mood: '1' is not a setting; known:"),
    ("classes: 3", "classes: 3\n    ~: 2", "'None' is not a setting"),
    ("classes: 3", "classes: 3\n    classes: 4", "line 5: 'classes' is given twice"),
    ("format: glue", "format: glu", "line 5: mood: 'format' is 'glu'; did you mean 'glue'?"),
    ("format: glue", "format: csv", "glue reads files with commas or tabs"),
    ("    format: glue\n", "", "line 3: mood: 'format' is missing"),
    ("format: glue", "format: hub", "'files' does not go with format hub; remove it"),
    ("format: glue", "format: hub", "'hub' is missing; give {dataset: NAME"),
    ("format: glue", "format: sample", "'files' does not go with format sample"),
    ("format: glue", "format: arrow", "format arrow has its own column names: sentence1"),
    ("{train: a.tsv, dev: b.tsv}", "{train: a.tsv}", "line 6: mood: 'dev' is missing"),
    ("{train: a.tsv, dev: b.tsv}", "{train: 3, dev: b}", "'train' must be text, but is 3"),
    ("{train: a.tsv, dev: b.tsv}", "{train: '', dev: b}", "'train' must be text, but is ''"),
    ("dev: b.tsv}", "dev: b.tsv, tset: c}", "'tset' is not a setting; did you mean 'test'?"),
    ("{train: a.tsv, dev: b.tsv}", "a.tsv", "'files' must be {train: ..., dev: ...}, but is 'a"),
    ("{text: sentence, label: label}", "{text: sentence}", "line 7: mood: 'label' is missing"),
    ("{text: sentence, label: label}", "{label: label}", "'text' must be a column's name, or two"),
    ("text: sentence", "text: [a, b, c]", "'text' must be a column's name, or two of them"),
    ("text: sentence", "text: [a, 2]", "but is ['a', 2]"),
    ("text: sentence", "text: label", "one column is named twice"),
    ("text: sentence", "id: [x], text: sentence", "'id' must be a column's name, but is ['x']"),
    ("text: sentence", "text: 4", "but is 4; columns go by number only with 'header: false'"),
    ("label: label", "label: 2", "but is 2; columns go by number only with 'header: false'"),
    ("classes: 3", "classes: 3\n    header: 0", "line 5: mood: 'header' must be true or false"),
    ("format: glue", "format: parquet\n    header: false", "'header' does not go with format parq"),
    (
        COLUMNS,
        "columns: {text: a, label: 2}\n    header: false",
        "'text' must be a column's number",
    ),
    (COLUMNS, "columns: {text: 0, label: 2}\n    header: false", "from 1, as there is no header"),
    (COLUMNS, "columns: {text: 1, label: true}\n    header: false", "'label' must be a column's"),
    (COLUMNS, "columns: {text: [1, 2], label: 2}\n    header: false", "one column is named twice"),
    (COLUMNS, f"columns: {{text: 0x{'f' * 5000}, label: 2}}\n    header: false", "column's number"),
    (
        "classes: 3",
        "classes: 3\n    labels: [a, b]",
        "line 5: mood: 'labels' has 2 names, and there",
    ),
    ("classes: 3", "classes: 3\n    labels: [a, b, a]", "'labels' holds one name twice"),
    ("classes: 3", "classes: 3\n    labels: a", "'labels' must be a list of names, but is 'a'"),
    ("classes: 3", "classes: 3\n    labels: ~", "'labels' must be a list of names, but is null"),
    (
        "classes: 3",
        "classes: 3\n    labels: [a, b, no]",
        "'labels' holds false; each must be a word",
    ),
    ("classes: 3", "classes: 3\n    labels: [a, b, 2]", "'labels' holds 2; each must be a word"),
    ("classes: 3", "classes: 3\n    labels: [a, b, '2']", "in quotes where YAML reads it as some"),
    ("classes: 3", "classes: 3\n    labels: [a, b, ' ']", "'labels' holds ' '; each must be"),
    ("classes: 3", "binary: true\n    labels: [a, b, c]", "'labels' has 3 names, and there are 2"),
    ("classes: 3", "classes: [a]", "line 4: mood: 'classes' must be a whole number from 2 to"),
    ("classes: 3", "classes: [a, b, a]", "line 4: mood: 'classes' holds one name twice"),
    ("classes: 3", "classes: [a, no]", "'classes' holds false; each must be a word, in quotes"),
    ("classes: 3", "classes: [a, b]\n    labels: [a, b]", "line 5: mood: 'classes' has the names"),
    ("classes: 3", "regression: [0, 1]\n    labels: [a]", "a regression has none; remove it"),
    ("mood:", "2mood:", "line 3: '2mood' is not a task name; use a letter, then"),
    ("mood:", "a-b:", "'a-b' is not a task name"),
    ("mood:", f"{'m' * 33}:", "is not a task name"),
    ("mood:", "7:", "line 3: 7 is not a task name"),
    ("mood:", "2020-01-01:", "2020-01-01 is not a task name"),
    ("tasks:", "task:", "line 2: 'task' is not a setting; did you mean 'tasks'?"),
    ("tasks:", "task:", "'tasks' is missing; give a mapping"),
    ("about: one good task", "about: [1]", "line 1: 'about' must be text, but is [1]"),
    ("about: one good task", "- a", "not valid YAML"),
    (GOOD, "", "'tasks' is missing"),
    (GOOD, "tasks: {}", "line 1: there are no tasks; name at least one"),
    (GOOD, "tasks: [mood]", "'tasks' must be a mapping from each task's name"),
    (GOOD, "tasks: {mood: 3}", "mood: must be a mapping of settings, but is 3"),
    (GOOD, "tasks: {mood: }", "mood: must be a mapping of settings, but is null"),
    (GOOD, "[1, 2]", "must be a mapping of keys to values, but is a list"),
    (GOOD, "tasks: !!int ''", "not valid YAML"),
    (GOOD, "tasks: &x {mood: *x}", "mood: has no kind"),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD)
def test_a_malformed_task_file_is_told_with_line_and_remedy(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GOOD
    faults = faults_of(tmp_path, GOOD.replace(old, new, 1))
    assert any(said in fault for fault in faults), faults


def test_all_faults_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("classes: 3", "classes: 1\n    lss: mse").replace("glue", "gleu")
    text = text.replace("label: label", "lable: label") + "  other: {binary: true}\n"
    faults = faults_of(tmp_path, text)
    for said in (
        "line 4: mood: 'classes'",
        "line 5: mood: 'lss' is not a setting; did you mean 'loss'?",
        "line 6: mood: 'format' is 'gleu'",
        "line 8: mood: 'lable' is not a setting; did you mean 'label'?",
        "line 8: mood: 'label' is missing",
        "line 9: other: 'format' is missing",
        "line 9: other: 'columns' is missing",
    ):
        assert any(fault.startswith(said) for fault in faults), (said, faults)


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(max_size=8)
WORDS = st.sampled_from([*FORMATS, *CLEANING, *LOSSES, *METRICS, "a", "b", "sentence1", "label"])
KEYS = st.sampled_from(
    "classes binary regression format files hub columns header labels clean loss metric weight "
    "predictions "
    "train dev test text label id dataset config splits".split()
)
KEY = KEYS | st.none() | st.integers() | st.dates() | st.text(string.printable, max_size=5)
VALUE = st.recursive(
    ODD | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEY, inner, max_size=4),
    max_leaves=8,
)
TASKS = st.dictionaries(KEY, VALUE | st.dictionaries(KEY, VALUE, max_size=8), max_size=3)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.just("tasks") | st.just("about") | KEY, TASKS | VALUE, max_size=3))
def test_any_mapping_gives_a_task_set_or_an_input_error(data: dict[Any, Any]) -> None:
    try:
        assert len(parse_task_set(Document(Path("any.yaml"), data))) > 0
    except InputError as error:
        assert error.faults and all(fault.strip() for fault in error.faults)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(KEYS, VALUE, max_size=9))
def test_any_change_to_a_good_task_gives_a_task_set_or_an_input_error(
    changes: dict[str, Any],
) -> None:
    data = yaml.safe_load(GOOD)
    data["tasks"]["mood"].update(changes)
    try:
        parse_task_set(Document(Path("any.yaml"), data))
    except InputError as error:
        assert error.faults


def test_some_tasks_of_a_set_are_a_set_of_their_own(tmp_path: Path) -> None:
    some = load_task_set("sample:similarity,sentiment")
    assert some.names == ("sentiment", "similarity")  # in the set's order
    assert some.name == some.origin == "sample:sentiment,similarity"
    assert load_task_set(some.origin) == some
    (tmp_path / "mine.yaml").write_text(GOOD)
    own = load_task_set(f"{tmp_path / 'mine.yaml'}:mood")
    assert own.names == ("mood",) and own.origin == f"{tmp_path / 'mine.yaml'}:mood"
    with pytest.raises(InputError, match="no task is called 'sentimnt' in sample; did you mean"):
        load_task_set("sample:sentimnt")


def test_a_drive_letter_names_no_tasks() -> None:
    assert tasks_module.split_origin(r"C:\data\tasks.yaml") == (r"C:\data\tasks.yaml", "")
    assert tasks_module.split_origin("a.yaml:mood,near") == ("a.yaml", ":mood,near")


def test_a_task_may_show_further_metrics(tmp_path: Path) -> None:
    assert [task.also for task in load_task_set("cs224n")] == [
        *(("macro_f1",), ("macro_f1",), ("spearman",))
    ]
    assert [task.also for task in load_task_set("sample")] == [(), (), ()]


@pytest.mark.parametrize("given", ["[pearson]", "[accuracy]", "macro_f1", "[[]]", "7"])
def test_a_further_metric_that_does_not_fit_is_told(tmp_path: Path, given: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "tasks:\n  a:\n    classes: 3\n    format: glue\n    files: {train: a, dev: b}\n"
        f"    columns: {{text: s, label: l}}\n    also: {given}\n"
    )
    with pytest.raises(InputError, match="line 7: .*'also' must be a list out of macro_f1"):
        load_task_set(str(path))
