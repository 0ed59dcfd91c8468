from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

import model as package
from model.common.errors import InputError
from model.data.batches import Assembler
from model.evaluation.evaluate import Rows, evaluate, rows_from_texts
from model.evaluation.model_folder import (
    HEADS,
    SPEC,
    Prediction,
    load_model,
    name_classes,
    read_class_names,
    read_model,
    read_spec,
    save_model,
)
from model.modules.multitask import MultitaskModel
from tests.conftest import MOOD, NEAR


def disturb(model: MultitaskModel) -> MultitaskModel:
    """As if it had been trained."""
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.05 * torch.randn(weights.shape, generator=GENERATOR))
    return model


GENERATOR = torch.Generator().manual_seed(9)


@pytest.fixture(params=["none", "pals"])
def model(request: pytest.FixtureRequest, model_of: Callable[..., Any]) -> MultitaskModel:
    made: MultitaskModel = model_of(adapter=request.param)
    return disturb(made)


@pytest.fixture
def folder(tmp_path: Path, model: MultitaskModel, tokenizer: Any) -> Path:
    save_model(tmp_path / "model", model, tokenizer)
    return tmp_path / "model"


def faults_of(call: Callable[[], Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        call()
    return caught.value


def test_the_encoder_loads_as_any_other(folder: Path, model: MultitaskModel) -> None:
    encoder = AutoModel.from_pretrained(folder).eval()
    words = AutoTokenizer.from_pretrained(folder)
    inputs = words(["ash bee cod", "dew"], ["elm", "fig gnu"], return_tensors="pt", padding=True)
    model.eval()
    with torch.no_grad():
        theirs = encoder(**inputs).last_hidden_state
        ours = model.encoder(**inputs).last_hidden_state
    assert torch.allclose(theirs, ours, atol=1e-6)


def test_a_model_folder_goes_round(folder: Path, model: MultitaskModel) -> None:
    again, _ = read_model(folder)
    assert again.spec == model.spec
    assert not again.training
    mine, theirs = model.state_dict(), again.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_saving_twice_gives_the_same_bytes(tmp_path: Path, folder: Path, tokenizer: Any) -> None:
    again, words = read_model(folder)
    save_model(tmp_path / "again", again, words)
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_a_loaded_model_answers_as_the_evaluated_one(
    folder: Path, model: MultitaskModel, texts_of: Any, tokenizer: Any, assembler: Assembler
) -> None:
    loaded = package.load_model(folder)
    for task in model.spec.tasks:
        texts = texts_of(task, 70)
        tokens = rows_from_texts(task, texts, tokenizer)
        labels = np.tile([task.low, task.high], 35)
        rows = Rows(tokens, labels, [str(n) for n in range(70)], task.metric, 1.0)
        wanted = evaluate(model, {task.name: rows}, assembler).predictions.to_pylist()
        for size in (64, 7):
            answers = loaded.predict(task.name, texts, batch_size=size)
            assert [one.value for one in answers] == pytest.approx(
                [row["prediction"] for row in wanted], abs=1e-6
            )
            for one, row in zip(answers, wanted, strict=True):
                if one.probabilities is None:
                    assert row["probabilities"] is None
                else:
                    assert one.probabilities == pytest.approx(row["probabilities"], abs=1e-6)


def test_answers_are_plain_numbers(folder: Path) -> None:
    loaded = load_model(str(folder))
    (mood,) = loaded.predict("mood", ["ash"])
    assert isinstance(mood, Prediction)
    assert mood.value in (0.0, 1.0, 2.0)
    assert mood.probabilities is not None
    assert sum(mood.probabilities) == pytest.approx(1)
    (near,) = loaded.predict("near", [("ash", "bee")])
    assert 0 <= near.value <= 5
    assert near.probabilities is None
    json.dumps([near.value, mood.probabilities])
    assert loaded.predict("mood", []) == []
    assert list(loaded.tasks) == ["mood", "same", "near"]
    assert len(loaded.predict("mood", ["", "x" * 5000, "\u4e2d\n\t", "🙂"])) == 4


NAMES = {"mood": ("bad", "fair", "good")}


def test_answers_have_the_names_of_their_classes(
    tmp_path: Path, model: MultitaskModel, tokenizer: Any
) -> None:
    save_model(tmp_path / "named", model, tokenizer, NAMES)
    loaded = load_model(tmp_path / "named")
    assert loaded.class_names == NAMES and read_spec(tmp_path / "named") == model.spec
    (mood,), (same,) = loaded.predict("mood", ["ash"]), loaded.predict("same", [("ash", "bee")])
    assert mood.name == NAMES["mood"][int(mood.value)] and same.name is None


def test_an_only_task_with_classes_has_their_names_where_others_look(
    tmp_path: Path, model_of: Callable[..., Any], tokenizer: Any
) -> None:
    place, both = tmp_path / "one", tmp_path / "both"
    save_model(place, model_of([MOOD, NEAR]), tokenizer, NAMES)
    config = AutoModel.from_pretrained(place).config
    assert config.id2label == dict(enumerate(NAMES["mood"]))
    assert config.label2id == {"bad": 0, "fair": 1, "good": 2}
    save_model(both, model_of(), tokenizer, NAMES)
    assert "id2label" not in json.loads((both / "config.json").read_text())


def test_naming_the_classes_of_a_linked_folder_leaves_the_other_alone(
    tmp_path: Path, folder: Path
) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    (tmp_path / "linked").mkdir()
    for file in folder.iterdir():
        (tmp_path / "linked" / file.name).hardlink_to(file)
    name_classes(tmp_path / "linked", NAMES)
    assert read_class_names(tmp_path / "linked") == NAMES and read_class_names(folder) == {}
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_names_that_do_not_fit_the_tasks_are_not_shown(folder: Path) -> None:
    for odd in ({"mood": ["a", "b"]}, {"mood": 3}, {"other": ["a"]}, [1]):
        data = {**json.loads((folder / SPEC).read_text()), "class_names": odd}
        (folder / SPEC).write_text(json.dumps(data))
        assert load_model(folder).class_names == {}


def test_a_model_in_its_run_knows_the_names_of_the_runs_task_file(
    tmp_path: Path, model: MultitaskModel, tokenizer: Any
) -> None:
    task = "classes: [bad, fair, good], format: sample, columns: {text: sentence1, label: label}"
    (tmp_path / "mine.yaml").write_text(f"tasks:\n  mood: {{{task}}}\n")
    place = tmp_path / "run" / "checkpoints" / "step-1" / "model"
    save_model(place, model, tokenizer)
    (tmp_path / "run" / "config.yaml").write_text(f"tasks: {tmp_path / 'mine.yaml'}\n")
    assert read_class_names(place) == NAMES
    (tmp_path / "mine.yaml").unlink()
    assert read_class_names(place) == {}


def test_a_wrong_task_or_text_is_told(folder: Path) -> None:
    loaded = load_model(folder)
    error = faults_of(lambda: loaded.predict("mod", ["a"]))
    assert error.faults == ["no task 'mod' here; did you mean 'mood'?"]
    error = faults_of(lambda: loaded.predict("mood", [("a", "b")]))
    assert error.faults == ["item 1: 'mood' takes single sentences; give a string"]
    error = faults_of(lambda: loaded.predict("same", ["a"]))
    assert error.faults == ["item 1: 'same' takes pairs; give (first, second)"]
    error = faults_of(lambda: loaded.predict("mood", "a"))
    assert error.faults == ["is one string; give a list, even of one"]


# --- damaged folders ----------------------------------------------------------------------------


def test_what_is_no_model_folder_is_told(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        error = faults_of(lambda place=place: load_model(place))
        assert error.where == str(place)
        assert error.faults == [f"no {SPEC} in it; give the `model` folder of a run"]
    file = tmp_path / "file"
    file.write_text("x")
    assert "Not a directory" in str(faults_of(lambda: load_model(file)))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"tasks": []}', '{"tasks": [{"name": "a"}]}', "\xff"]
)
def test_a_damaged_description_is_told(folder: Path, text: str) -> None:
    (folder / SPEC).write_bytes(text.encode("latin-1"))
    error = faults_of(lambda: load_model(folder))
    assert error.where == str(folder / SPEC)
    assert error.faults[0].startswith("not a model's description: ")


def test_damaged_heads_are_told(folder: Path) -> None:
    whole = (folder / HEADS).read_bytes()
    for content in (b"", whole[:-10], whole[:9], b"x" * len(whole)):
        (folder / HEADS).write_bytes(content)
        error = faults_of(lambda: load_model(folder))
        assert error.where == str(folder / HEADS)
        assert error.faults[0].startswith("cannot be read: ")
    (folder / HEADS).unlink()
    assert faults_of(lambda: load_model(folder)).where == str(folder / HEADS)


def test_heads_that_do_not_fit_the_description_are_all_told(folder: Path) -> None:
    tensors = load_file(folder / HEADS)
    del tensors["heads.task_same.output.bias"]
    tensors["heads.task_other.output.bias"] = torch.zeros(1)
    tensors["heads.task_mood.output.weight"] = torch.zeros(4, 32)
    save_file(tensors, folder / HEADS)
    error = faults_of(lambda: load_model(folder))
    assert error.where == str(folder)
    assert error.faults == [
        f"{HEADS} has an unknown tensor 'heads.task_other.output.bias'",
        f"{HEADS} lacks 'heads.task_same.output.bias'",
        f"{HEADS}: 'heads.task_mood.output.weight' is [4, 32] where {SPEC} says [3, 32]",
    ]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_damaged_encoder_is_told(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    (fault,) = faults_of(lambda: load_model(folder)).faults
    assert str(folder) in fault
    (folder / name).unlink()
    faults_of(lambda: load_model(folder))


def test_the_description_alone_can_be_read(folder: Path, model: MultitaskModel) -> None:
    (folder / HEADS).unlink()
    assert read_spec(folder) == model.spec


def test_a_device_that_is_not_there_is_told(folder: Path) -> None:
    error = faults_of(lambda: load_model(folder, device="cuda:77"))
    assert "'cuda:77' cannot be used" in str(error)
