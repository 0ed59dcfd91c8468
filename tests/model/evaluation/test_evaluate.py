from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from model.common.errors import InputError
from model.data.batches import Assembler
from model.evaluation import evaluate as module
from model.evaluation.evaluate import (
    Evaluation,
    Rows,
    evaluate,
    features_of,
    outputs_of,
    rows_from_texts,
    rows_on_gpu,
)
from model.evaluation.predictions import PREDICTIONS, write_predictions
from model.evaluation.scores import measure
from model.modules.multitask import MultitaskModel, TaskSpec, decide
from tests.conftest import MOOD, NEAR, SAME, make_task

COUNT = 37


@pytest.fixture
def dev(tiny: MultitaskModel, texts_of: Any, tokenizer: Any) -> dict[str, Rows]:
    """Random rows of every task, longest and shortest mixed."""
    rng = np.random.default_rng(4)
    found = {}
    for number, task in enumerate(tiny.spec.tasks):
        drawn = rng.uniform(task.low, task.high, size=COUNT)
        labels = drawn if task.kind == "regression" else np.round(drawn)
        tokens = rows_from_texts(task, texts_of(task, COUNT, number), tokenizer)
        ids = [f"{task.name}-{row}" for row in range(COUNT)]
        found[task.name] = Rows(tokens, labels, ids, task.metric, 1.0)
    return found


@pytest.fixture
def result(tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler) -> Evaluation:
    return evaluate(tiny, dev, assembler)


def test_off_the_cpu_batches_are_large_and_answers_are_copied_once(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler, monkeypatch: Any
) -> None:
    """`meta` has nothing to copy, so the first copy is the end: all answers are there by then."""
    monkeypatch.setattr(module, "EVAL_BATCH_ON_GPU", 16)
    sizes: list[int] = []
    tiny.heads["task_mood"].register_forward_hook(lambda _, __, out: sizes.append(len(out)))
    outputs_of(tiny, "mood", dev["mood"].tokens, assembler)
    assert sum(sizes) == COUNT and max(sizes) == module.EVAL_BATCH
    sizes.clear()
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta"):
        outputs_of(tiny.to("meta"), "mood", dev["mood"].tokens, assembler)
    assert sum(sizes) == COUNT and max(sizes) == 16


def test_of_long_rows_a_gpu_has_fewer_at_once(dev: dict[str, Rows]) -> None:
    short = dev["mood"].tokens
    long = replace(short, offsets1=short.offsets1 * 400)
    assert rows_on_gpu(short, 512) == 256
    assert rows_on_gpu(long, 128) == 256 and rows_on_gpu(long, 512) == 64
    assert rows_on_gpu(long, 8192) == module.EVAL_BATCH


@pytest.mark.parametrize("size", [1, 5, 36, 37, 100])
def test_outputs_keep_the_order_of_the_rows(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler, size: int
) -> None:
    tiny.eval()
    for task in tiny.spec.tasks:
        tokens = dev[task.name].tokens
        found = outputs_of(tiny, task.name, tokens, assembler, batch_size=size)
        alone = [
            tiny(task.name, assembler.batch(tokens, np.array([row]), layout=task.layout))
            for row in range(COUNT)
        ]
        assert torch.allclose(found, torch.cat(alone), atol=1e-6)


@pytest.mark.parametrize("adapter", ["none", "pals"])
def test_answers_do_not_depend_on_the_number_of_threads(
    model_of: Callable[..., MultitaskModel],
    adapter: str,
    dev: dict[str, Rows],
    assembler: Assembler,
    threads: Callable[[int], None],
) -> None:
    made = model_of(adapter=adapter)
    for name, weights in made.named_parameters():
        if name.startswith("pals."):  # which begin as no change at all
            torch.nn.init.normal_(weights, std=0.2)
    found = []
    for number in (1, 2, 3):
        threads(number)
        of_tasks = {
            name: outputs_of(made, name, rows.tokens, assembler, batch_size=2)
            for name, rows in dev.items()
        }
        found.append(of_tasks)
        assert torch.get_num_threads() == number
    for other in found[1:]:
        assert all(torch.allclose(other[name], found[0][name], atol=1e-6) for name in dev)


def test_a_batch_that_fails_in_a_thread_of_its_own_is_told(
    tiny: MultitaskModel,
    dev: dict[str, Rows],
    assembler: Assembler,
    threads: Callable[[int], None],
) -> None:
    threads(2)
    with pytest.raises(ValueError, match="layout"):
        outputs_of(tiny, "mood", dev["same"].tokens, assembler, batch_size=5)
    assert torch.get_num_threads() == 2


def test_evaluating_changes_neither_mode_nor_weights_nor_generator(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler
) -> None:
    before = {name: tensor.clone() for name, tensor in tiny.state_dict().items()}
    for training in (True, False):
        tiny.train(training)
        torch.manual_seed(3)
        first = evaluate(tiny, dev, assembler)
        drawn = torch.rand(1)
        second = evaluate(tiny, dev, assembler)  # no dropout: the same again
        assert first.predictions.equals(second.predictions)
        assert first.scores == second.scores
        assert tiny.training is training
        torch.manual_seed(3)
        assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tiny.state_dict().items())


def test_a_failing_evaluation_leaves_the_model_in_its_mode(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler
) -> None:
    tiny.train()
    with pytest.raises(ValueError, match="layout"):
        outputs_of(tiny, "mood", dev["same"].tokens, assembler)
    assert tiny.training


def test_scores_and_losses_are_those_of_the_predictions(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler, result: Evaluation
) -> None:
    for task in tiny.spec.tasks:
        outputs = outputs_of(tiny, task.name, dev[task.name].tokens, assembler)
        values, _ = decide(task, outputs)
        labels = dev[task.name].labels
        value = measure(task.metric, labels, values.double().numpy(), task.classes)
        assert result.scores.tasks[task.name].value == pytest.approx(value)
    near = outputs_of(tiny, "near", dev["near"].tokens, assembler).squeeze(-1).numpy()
    assert result.losses["near"] == pytest.approx(np.mean((near - dev["near"].labels) ** 2), 1e-5)
    assert set(result.losses) == set(result.scores.tasks) == {"mood", "same", "near"}


def test_predictions_have_the_schema_and_read_back(tmp_path: Path, result: Evaluation) -> None:
    table = result.predictions
    assert table.schema == PREDICTIONS
    path = tmp_path / "deep" / "x.parquet"
    write_predictions(path, table)
    again = pq.read_table(path)
    assert again.schema.names == PREDICTIONS.names
    assert again.to_pylist() == table.to_pylist()
    assert [item.name for item in path.parent.iterdir()] == ["x.parquet"]


def test_every_example_has_its_answer(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler, result: Evaluation
) -> None:
    rows = result.predictions.to_pylist()
    assert [row["task"] for row in rows] == ["mood"] * COUNT + ["same"] * COUNT + ["near"] * COUNT
    for number, task in enumerate(tiny.spec.tasks):
        mine = rows[number * COUNT : (number + 1) * COUNT]
        assert [row["id"] for row in mine] == list(dev[task.name].ids)
        assert [row["label"] for row in mine] == dev[task.name].labels.tolist()
        values, likely = decide(task, outputs_of(tiny, task.name, dev[task.name].tokens, assembler))
        assert [row["prediction"] for row in mine] == pytest.approx(values.tolist())
        if likely is None:
            assert all(row["probabilities"] is None for row in mine)
        else:
            assert [row["probabilities"] for row in mine] == likely.tolist()
            assert all(np.argmax(row["probabilities"]) == row["prediction"] for row in mine)


def test_one_task_alone_is_evaluated(
    tiny: MultitaskModel, dev: dict[str, Rows], assembler: Assembler, result: Evaluation
) -> None:
    alone = evaluate(tiny, {"same": dev["same"]}, assembler)
    assert alone.scores.overall.value == result.scores.tasks["same"].value
    mine = pa.compute.equal(result.predictions["task"].cast(pa.string()), "same")
    assert alone.predictions.to_pylist() == result.predictions.filter(mine).to_pylist()


# --- texts --------------------------------------------------------------------------------------


def test_texts_are_cleaned_as_the_task_was(
    task_of: Callable[..., TaskSpec], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(module, "encode_texts", lambda a, b, _: given.append((a, b)))
    pair = task_of("t", pair=True, encoding="cross", clean="spaced")
    rows_from_texts(pair, [("Is it so?", "It's not,  no")], tokenizer)
    rows_from_texts(task_of("t", clean="lower"), [" So it IS. "], tokenizer)
    rows_from_texts(task_of("t", clean="none"), [" So it IS. "], tokenizer)
    assert given == [
        (["is it so ?"], ["it 's not , no"]),
        (["so it is."], None),
        ([" So it IS. "], None),
    ]


@pytest.mark.parametrize("task", ["mood", "same", "near", "alike"])
def test_every_row_has_the_features_that_its_head_reads(
    model_of: Any, tokenizer: Any, texts_of: Any, assembler: Assembler, task: str
) -> None:
    kind = {"kind": "regression", "classes": 0, "pair": True, "outputs": 1}
    model: MultitaskModel = model_of(
        [MOOD, SAME, NEAR, make_task("alike", encoding="cosine", **kind)]
    )
    spec = model.tasks[task]
    texts = texts_of(spec, 80)  # several batches, of all lengths
    tokens = rows_from_texts(spec, texts, tokenizer)
    features = features_of(model, task, tokens, assembler)
    assert features.shape == (80, model.features_width(task))
    with torch.inference_mode():
        outputs = model.eval().heads[f"task_{task}"](features)
    wanted = outputs_of(model, task, tokens, assembler)
    assert torch.allclose(outputs, wanted, atol=1e-5)
    for row in (0, 1, 40, 79):
        alone = features_of(model, task, rows_from_texts(spec, [texts[row]], tokenizer), assembler)
        assert torch.allclose(features[row], alone[0], atol=1e-5), row


def test_no_texts_have_no_rows(tiny: MultitaskModel, tokenizer: Any, assembler: Assembler) -> None:
    for task in tiny.spec.tasks:
        tokens = rows_from_texts(task, [], tokenizer)
        assert outputs_of(tiny, task.name, tokens, assembler).shape == (0, task.outputs)


@pytest.mark.parametrize(
    ("task", "texts", "faults"),
    [
        ("mood", "a sentence", ["is one string; give a list, even of one"]),
        ("same", "ab", ["is one string; give a list, even of one"]),
        (
            "mood",
            ["good", ("a", "b"), None],
            [
                "item 2: 'mood' takes single sentences; give a string",
                "item 3: 'mood' takes single sentences; give a string",
            ],
        ),
        (
            "same",
            [("a", "b"), "ab", ("a",), ("a", None), 7],
            [f"item {n}: 'same' takes pairs; give (first, second)" for n in (2, 3, 4, 5)],
        ),
    ],
)
def test_texts_that_do_not_fit_the_task_are_refused(
    tiny: MultitaskModel, tokenizer: Any, task: str, texts: Any, faults: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        rows_from_texts(tiny.tasks[task], texts, tokenizer)
    assert caught.value.faults == faults


def test_a_list_of_two_is_a_pair(tiny: MultitaskModel, tokenizer: Any) -> None:
    found = rows_from_texts(tiny.tasks["same"], [["a", "b"]], tokenizer)  # as JSON gives them
    assert len(found) == 1


def test_an_iterator_of_texts_is_as_good_as_a_list(tiny: MultitaskModel, tokenizer: Any) -> None:
    assert len(rows_from_texts(tiny.tasks["mood"], iter(["ash", "bee"]), tokenizer)) == 2
    pairs = (pair for pair in [("ash", "bee")])
    assert len(rows_from_texts(tiny.tasks["same"], pairs, tokenizer)) == 1


@pytest.mark.parametrize(("task", "text"), [("mood", "ash \ud83d"), ("same", ("ash", "\udc00"))])
def test_half_a_surrogate_pair_is_told(
    tiny: MultitaskModel, tokenizer: Any, task: str, text: Any
) -> None:
    with pytest.raises(InputError, match="item 1: holds half of a surrogate pair"):
        rows_from_texts(tiny.tasks[task], [text], tokenizer)
