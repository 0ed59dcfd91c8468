from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from model.evaluation.model_folder import save_model
from model.modules.encoder import load_tokenizer
from model.modules.multitask import MultitaskModel, TaskSpec
from tests.tuner.made_up_runs import begin, close, create, evaluate
from tuner.runs.ledger import Ledger
from tuner.soup.ingredients import candidates_of, differences, group, spec_facts, tokenizer_fact


def test_what_is_off_when_a_model_is_used_does_not_matter(
    model_of: Callable[..., MultitaskModel],
) -> None:
    spec = model_of().spec
    other = replace(spec, head_dropout=0.4, learning_rate=1e-3)
    assert spec_facts(spec) == spec_facts(other)


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": "cls"},
        {"max_length": 32},
        {"head_hidden": 4},
        {"head_activation": "relu"},
        {"adapter": "pals"},
        {"adapter_size": 16},
    ],
)
def test_what_changes_the_answers_matters(
    model_of: Callable[..., MultitaskModel], change: dict[str, object]
) -> None:
    spec = model_of().spec
    mine, best = spec_facts(replace(spec, **change)), spec_facts(spec)  # type: ignore[arg-type]
    ((key, value),) = change.items()
    assert differences(mine, best) == f"{key} is {value}, not {best[key]}"


def test_losses_matter_only_where_they_make_probabilities_in_another_way(
    model_of: Callable[..., MultitaskModel], task_of: Callable[..., TaskSpec]
) -> None:
    facts = [
        spec_facts(model_of([task_of("mood", loss=loss, metric=metric)]).spec)
        for loss, metric in (
            ("cross_entropy", "accuracy"),
            ("ordinal_log", "macro_f1"),
            ("dual_objective", "accuracy"),
        )
    ]
    assert group(facts) == [[0, 1], [2]]
    assert differences(facts[2], facts[0]) == "mood.sigmoids is True, not False"


def test_groups_come_in_the_order_of_their_best() -> None:
    assert group([{"a": 1}, {"a": 2}, {"a": 1}, {"b": 1}, {"a": 2}]) == [[0, 2], [1, 4], [3]]
    many = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert differences({}, many) == "a is missing, not 1, b is missing, not 2 and 2 more"


def test_how_a_tokenizer_was_last_called_does_not_matter(
    model_of: Callable[..., MultitaskModel], tmp_path: Path
) -> None:
    save_model(tmp_path, model_of(), load_tokenizer("tiny"))
    before = tokenizer_fact(tmp_path)
    path = tmp_path / "tokenizer.json"
    state = json.loads(path.read_text())
    state["padding"] = {"strategy": "BatchLongest"}
    path.write_text(json.dumps(state))
    assert tokenizer_fact(tmp_path) == before
    state["model"]["vocab"]["zz"] = 1
    path.write_text(json.dumps(state))
    assert tokenizer_fact(tmp_path) != before


def test_candidates_come_best_first_and_of_equals_the_earlier(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger)
        for score in (0.5, 0.7, 0.7, 0.6):
            trial = create(ledger)
            evaluate(ledger, trial, 100, score)
            evaluate(ledger, trial, 200, score - 0.1, mood=0.1 * score, near=0.9)
            close(ledger, trial, "finished")
        found = [each.name for _, each in candidates_of(ledger.state, tmp_path, 3, "overall")]
    # The best three, and the best of each task: `mood` early, `near` late.
    assert found == ["t0001/c000100", "t0002/c000100", "t0003/c000100", "t0000/c000200"]


def test_the_first_is_what_the_search_calls_its_best(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger)
        for score, end in ((0.5, "finished"), (0.9, "stopped"), (0.7, "finished")):
            trial = create(ledger)
            evaluate(ledger, trial, 100, score)
            close(ledger, trial, end)
        found = [each for _, each in candidates_of(ledger.state, tmp_path, 3, "overall")]
        best = ledger.state.best_trial()
    assert best is not None and found[0].record.trial == best.id == "t0002"
    assert [each.record.trial for each in found] == ["t0002", "t0000", "t0001"]
    assert [each.finished for each in found] == [True, True, False]
