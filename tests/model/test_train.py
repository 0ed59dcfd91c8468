"""Whole runs on the tiny encoder: one promise for every member of every family."""

from __future__ import annotations

import gc
import json
import math
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
import yaml
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from model.common.errors import InputError
from model.common.files import sha256_of
from model.common.rng import rng_seed, seed_rng
from model.config.parse import Layer, load_preset, parse_layers, parse_settings, preset_names
from model.cpu.dropout import dropout
from model.evaluation.evaluate import outputs_of
from model.evaluation.model_folder import load_model
from model.evaluation.scores import measure
from model.modules.encoder import load_tokenizer
from model.modules.multitask import decide
from model.modules.pairs import LAYOUTS
from model.objectives.losses import LOSSES
from model.objectives.schedules import SCHEDULES
from model.tasks.task_set import TaskSet, load_task_set
from model.train import train
from model.training.prepare import ProcessCache, fill_in, prepare
from model.training.progress import Heartbeat, Record
from model.training.run import SIMCSE_SEED, TrainingRun, machine
from model.training.step import TrainingDiverged

from .cs224n_files import write_cs224n

QUICK = {
    "encoder.name": "tiny",
    "encoder.max_length": 48,
    "batch.sizes": 8,
    "budget.examples": 72,
    "budget.eval_every": 36,
    "budget.eval_rows": 20,
}


def quick_run(out: Path, settings: dict[str, Any], tasks: TaskSet | None = None, **options: Any):
    tasks = tasks or load_task_set("sample")
    config = parse_settings({**QUICK, **settings}, tasks)
    return list(train(config, tasks, out=out, **options))


def check_promises(out: Path, records: list[Record], tasks: TaskSet) -> None:
    """What every run owes: records that rise in examples, finite numbers, a usable model."""
    assert len(records) >= 2
    assert [r["examples"] for r in records] == sorted({r["examples"] for r in records})
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records
    for record in records:
        assert 0 <= record["score"] <= 1
        assert record["interval"][0] <= record["score"] <= record["interval"][1]
        assert set(record["tasks"]) == set(tasks.names)
        for of_task in record["tasks"].values():
            assert math.isfinite(of_task["value"]) and math.isfinite(of_task["loss"])
        assert record["gradient_norm"] > 0
        table = pq.read_table(out / record["predictions"])
        assert set(table["task"].to_pylist()) == set(tasks.names)
    model = load_model(out / "model")
    for name, task in model.tasks.items():
        text: Any = ("a first sentence", "a second one") if task.pair else "a sentence"
        (answer,) = model.predict(name, [text])
        assert task.low <= answer.value <= task.high
        assert answer.probabilities is None or sum(answer.probabilities) == pytest.approx(1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_trains(name: str, tmp_path: Path) -> None:
    records = quick_run(tmp_path, {"schedule.name": name})
    check_promises(tmp_path, records, load_task_set("sample"))
    assert records[-1]["examples"] >= QUICK["budget.examples"]


@pytest.mark.parametrize("encoding", LAYOUTS)
def test_every_pair_encoding_trains(encoding: str, tmp_path: Path) -> None:
    records = quick_run(tmp_path, {"pair.encoding": encoding})
    check_promises(tmp_path, records, load_task_set("sample"))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(loss: str, tmp_path: Path) -> None:
    two = {"head.binary_logits": 2}
    settings: dict[str, Any] = {
        "cross_entropy": {"loss.sentiment": loss},
        "dual_objective": {"loss.sentiment": loss, "loss.paraphrase": loss, **two},
        "ordinal_log": {"loss.sentiment": loss},
        "soft_ordinal": {"loss.sentiment": loss, "loss.spread": 0.3},
        "binary_cross_entropy": {"loss.paraphrase": loss},
        "mse": {"loss.similarity": loss},
        "pearson": {"loss.similarity": loss},
        "cosent": {"loss.similarity": loss, "pair.encoding.similarity": "cosine"},
    }[loss]
    check_promises(tmp_path, quick_run(tmp_path, settings), load_task_set("sample"))


@pytest.mark.parametrize(
    "settings",
    [
        {"head.hidden": 0},
        {"head.hidden": 12, "head.activation": "relu"},
        {"head.hidden": "width", "head.activation": "gelu", "head.dropout": 0.4},
        {"head.binary_logits": 2},
    ],
    ids=["linear", "relu", "width", "two-logits"],
)
def test_every_head_trains(settings: dict[str, Any], tmp_path: Path) -> None:
    check_promises(tmp_path, quick_run(tmp_path, settings), load_task_set("sample"))


@pytest.mark.parametrize(
    "settings",
    [
        {"smart.weight": 1, "smart.variant": "published"},
        {"smart.weight": 1, "smart.variant": "ball", "smart.norm": "l2", "smart.steps": 2},
        {"smart.weight": 1, "smart.variant": "random", "smart.tasks": ["sentiment"]},
        {"smart.weight": 1, "smart.every": 2, "smart.bregman": 0.5},
        {"surgery": "pcgrad", "batch.accumulate": 2},
        {"surgery": "upgrad", "loss.smoothing": 0.1},
        {"surgery": "cagrad"},
        {"surgery": "nash_mtl"},
        {"surgery": "mgda"},
        {"surgery": "imtl_g"},
        {"surgery": "aligned_mtl", "loss.weighting": "uncertainty"},
        {"rdrop.weight": 1, "rdrop.tasks": ["sentiment"], "smart.weight": 1},
        {"encoder.adapter": "pals", "encoder.adapter_size": 12, "encoder.adapter_heads": 3},
        {
            "encoder.adapter": "pals",
            "encoder.adapter_size": 12,
            "encoder.adapter_heads": 3,
            "encoder.frozen": True,
            "smart.weight": 1,
        },
        {"encoder.frozen": True, "optim.learning_rate": 1e-3},
        {"encoder.train_layers": [1]},
        {"encoder.pooling": "cls", "encoder.dropout": 0.4, "encoder.attention_dropout": 0.2},
        {"encoder.pooling": "pooler"},
        {"optim.layer_decay": 0.8, "optim.decay": "cosine", "optim.head_learning_rate": 1e-2},
        {"optim.layer_scale.beta": 2, "optim.layer_scale.layers": {"sentiment": [1]}},
        {"loss.weights": [0.1, 2, 0.4], "batch.sizes": [8, 4, 2]},
        {"precision": "float32"},
        {"pretrain.simcse.epochs": 0.02, "pretrain.simcse.batch_size": 16},
    ],
    ids=lambda settings: "+".join(key.split(".", 1)[-1] for key in settings),
)
def test_every_other_ingredient_trains(settings: dict[str, Any], tmp_path: Path) -> None:
    check_promises(tmp_path, quick_run(tmp_path, settings), load_task_set("sample"))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_trains(name: str, tmp_path: Path) -> None:
    data = write_cs224n(tmp_path / "data")
    preset = load_preset(name)
    tasks = load_task_set(preset.tasks or "")
    small = {**QUICK, "budget.epochs": 2, "budget.examples": 60, "budget.eval_every": 24}
    del small["batch.sizes"]  # the preset's own
    if name == "paper-003":
        small |= {"encoder.adapter_size": 12, "pretrain.simcse.epochs": 1}
    config = parse_layers([preset, Layer(small, "test")], tasks)
    assert config.encoder.pooling == "cls"
    warnings: list[str] = []
    records = list(train(config, tasks, out=tmp_path / "run", data=data, warn=warnings.append))
    check_promises(tmp_path / "run", records, tasks)
    assert any("skipped 2 damaged rows" in line and "row" in line for line in warnings)


def test_a_fourth_task_needs_a_file_and_no_code(tmp_path: Path) -> None:
    """Three classes on pairs, from GLUE-style files, beside the three CS224N tasks."""
    data = write_cs224n(tmp_path / "data")
    for split in ("train", "dev"):
        rows = [f"{n}\tleft side {n}\tright side {n % 7}\t{n % 3}" for n in range(30)]
        text = "\n".join(["index\tpremise\thypothesis\tlabel", *rows]) + "\n"
        (data / f"nli-{split}.tsv").write_text(text)
    shipped = Path(__file__).parents[2] / "model" / "tasks" / "task_sets" / "cs224n.yaml"
    fourth = """
  nli:
    classes: 3
    format: glue
    files: {train: nli-train.tsv, dev: nli-dev.tsv}
    columns: {id: index, text: [premise, hypothesis], label: label}
"""
    path = tmp_path / "four.yaml"
    path.write_text(shipped.read_text() + fourth)
    tasks = load_task_set(str(path))
    settings = {"budget.examples": 96, "loss.weights": [1, 1, 1, 2]}
    records = quick_run(tmp_path / "run", settings, tasks, data=data, warn=lambda line: None)
    check_promises(tmp_path / "run", records, tasks)
    assert records[-1]["tasks"]["nli"]["metric"] == "accuracy"
    (answer,) = load_model(tmp_path / "run" / "model").predict("nli", [("a", "b")])
    assert answer.probabilities is not None and len(answer.probabilities) == 3


def test_training_learns(tmp_path: Path) -> None:
    """Not only does it run: where one word gives the label away, it finds that word."""
    data = write_cs224n(tmp_path / "data")
    for split in ("train", "dev"):
        seed = {"train": 1, "dev": 2}[split]
        rows = np.random.default_rng(seed).integers(0, 4, size=(200, 2))
        words = ["apple", "stone", "river", "cloud"]
        plain = [f"{n}\tthe {words[a]} and the {words[b]}\t{a}" for n, (a, b) in enumerate(rows)]
        text = "\n".join(["id\tsentence\tsentiment", *plain]) + "\n"
        (data / f"ids-sst-{split}.csv").write_text(text)
    settings = {
        "budget.examples": 4800,
        "budget.eval_every": 1600,
        "budget.eval_rows": 100,
        "optim.learning_rate": 3e-3,
    }
    records = quick_run(tmp_path / "run", settings, load_task_set("cs224n"), data=data)
    assert records[-1]["tasks"]["sst"]["value"] > 0.6  # by chance: 0.25


def test_the_best_weights_are_kept_overall_and_per_task(tmp_path: Path) -> None:
    settings = {"budget.examples": 300, "budget.eval_every": 48, "optim.learning_rate": 1e-2}
    records = quick_run(tmp_path, settings)
    summary = json.loads((tmp_path / "summary.json").read_text())
    best = max(records, key=lambda r: r["score"])
    assert summary["best"] == best
    source = tmp_path / "checkpoints" / best["checkpoint"] / "model" / "model.safetensors"
    assert source.read_bytes() == (tmp_path / "model" / "model.safetensors").read_bytes()
    for task, kept in summary["best_per_task"].items():
        assert kept["value"] == max(r["tasks"][task]["value"] for r in records)
        assert (tmp_path / "checkpoints" / kept["checkpoint"] / "model" / "config.json").is_file()


def test_init_from_takes_the_encoder_and_the_heads_that_fit(tmp_path: Path) -> None:
    quick_run(tmp_path / "first", {})
    lines: list[str] = []
    settings = {
        "init_from": str(tmp_path / "first" / "model"),
        "pair.encoding": {"similarity": "bi_concat"},
    }
    records = quick_run(tmp_path / "second", settings, warn=lines.append)
    check_promises(tmp_path / "second", records, load_task_set("sample"))
    assert any("similarity" in line and "sentiment" not in line for line in lines)
    with pytest.raises(InputError, match="stockpot.json"):
        quick_run(tmp_path / "third", {"init_from": str(tmp_path)})


def test_augmentation_is_trained_on(tmp_path: Path) -> None:
    data = write_cs224n(tmp_path / "data")
    extra = tmp_path / "extra.csv"
    rows = "".join(f"e{n}\textra {n}\t{n % 5}\n" for n in range(40))
    extra.write_text(f"id\tsentence\tsentiment\n{rows}")
    tasks = load_task_set("cs224n")
    settings = {"augment.sst": str(extra), "schedule.name": "annealed"}
    records = quick_run(tmp_path / "run", settings, tasks, data=data, warn=lambda line: None)
    check_promises(tmp_path / "run", records, tasks)


def test_simcse_reads_a_text_file(tmp_path: Path) -> None:
    text = tmp_path / "sentences.txt"
    text.write_text("\n".join(f"a sentence number {n}" for n in range(40)))
    settings = {"pretrain.simcse.epochs": 1, "pretrain.simcse.text": str(text)}
    with_simcse = quick_run(tmp_path / "a", {**settings, "pretrain.simcse.batch_size": 8})
    without = quick_run(tmp_path / "b", {})
    assert with_simcse[0]["tasks"]["sentiment"]["loss"] != without[0]["tasks"]["sentiment"]["loss"]


def test_a_diverging_run_says_where_and_what_to_do(tmp_path: Path) -> None:
    settings = {"optim.learning_rate": 1e18, "optim.clip": 0, "optim.warmup": 0}
    with pytest.raises(TrainingDiverged, match=r"step \d+.*learning_rate"):
        quick_run(tmp_path, {**settings, "budget.examples": 2000})


def test_a_used_folder_is_not_overwritten(tmp_path: Path) -> None:
    quick_run(tmp_path, {})
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="holds a run already; go on with --resume"):
        quick_run(tmp_path, {"seed": 1})
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """Never mind what --out is pointed at: nothing in it is touched."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "code.py").write_text("mine")
    (tmp_path / ".emacs.old").mkdir()
    for options in ({}, {"resume": True}):
        with pytest.raises(InputError, match="not empty and not a run's folder"):
            quick_run(tmp_path, {}, **options)
    (tmp_path / "run" / ".notes.old").mkdir(parents=True)
    with pytest.raises(InputError, match="not empty"):
        quick_run(tmp_path / "run", {})
    assert (tmp_path / "model" / "code.py").read_text() == "mine"
    assert (tmp_path / ".emacs.old").is_dir() and (tmp_path / "run" / ".notes.old").is_dir()


def test_cleaning_up_removes_only_what_a_run_writes(tmp_path: Path) -> None:
    quick_run(tmp_path, {}, stop=lambda: True)
    mine = tmp_path / "predictions" / ".notes.tmp"
    left = tmp_path / "checkpoints" / ".step-00000009.0123abcd.tmp"
    mine.mkdir(parents=True)
    left.mkdir()
    quick_run(tmp_path, {}, resume=True)
    assert mine.is_dir() and not left.exists()


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    tasks = load_task_set("sample")
    config = parse_settings(QUICK, tasks)
    first = train(config, tasks, out=tmp_path)
    next(first)
    with pytest.raises(InputError, match="another process is working in this folder"):
        list(train(config, tasks, out=tmp_path, resume=True))
    first.close()
    list(train(config, tasks, out=tmp_path, resume=True))


def test_nothing_is_written_where_it_may_not_be_any_more(tmp_path: Path) -> None:
    """As by a worker whose driver was deposed: it is asked before every save."""
    asked: list[int] = []

    def may_save() -> None:
        asked.append(len(asked))
        if len(asked) > 3:  # the start, predictions and list of the first evaluation
            raise PermissionError("another driver has the run")

    tasks = load_task_set("sample")
    config = parse_settings(QUICK, tasks)
    records = train(config, tasks, out=tmp_path, may_save=may_save)
    next(records)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(PermissionError):
        list(records)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_damaged_best_model_is_not_passed_off(tmp_path: Path) -> None:
    settings = {"budget.examples": 300, "budget.eval_every": 48, "optim.learning_rate": 1e-2}
    for seed in range(10):  # until the best is none of those that a resume would mend
        out = tmp_path / str(seed)
        records = quick_run(out, {**settings, "seed": seed})
        best = max(records, key=lambda r: r["score"])
        if best not in records[-2:]:
            break
    shutil.rmtree(out / "model")
    (out / "summary.json").unlink()
    weights = out / "checkpoints" / best["checkpoint"] / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    lines: list[str] = []
    quick_run(out, {**settings, "seed": seed}, resume=True, warn=lines.append)
    assert any(best["checkpoint"] in line and "taking the next best" in line for line in lines)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["best"]["checkpoint"] != best["checkpoint"]


def test_examples_on_top_of_a_preset_still_train_every_task(tmp_path: Path) -> None:
    data = write_cs224n(tmp_path / "data")
    preset = load_preset("paper-000")
    tasks = load_task_set("cs224n")
    small = {key: value for key, value in QUICK.items() if key != "batch.sizes"}
    config = parse_layers([preset, Layer({**small, "budget.examples": 100}, "--set")], tasks)
    assert config.budget.epochs is None
    lines: list[str] = []
    records = list(train(config, tasks, out=tmp_path / "run", data=data, warn=lines.append))
    trained = {n for r in records for n, t in r["tasks"].items() if t["train_loss"] is not None}
    assert trained == set(tasks.names)


def test_a_task_without_a_single_batch_is_named(tmp_path: Path) -> None:
    lines: list[str] = []
    settings = {"schedule.name": "sequential", "budget.epochs": 3, "budget.examples": 16}
    quick_run(tmp_path, settings, warn=lines.append)
    assert sum("has its first batch" in line for line in lines) == 2


def test_a_cut_first_stage_is_said_and_recorded(tmp_path: Path) -> None:
    lines: list[str] = []
    quick_run(tmp_path, {"schedule.name": "staggered"}, warn=lines.append)
    assert any("schedule.first_epochs is cut from 1 to" in line for line in lines)
    saved = yaml.safe_load((tmp_path / "config.yaml").read_text())["settings"]
    assert saved["schedule.first_epochs"] < 0.1


def test_simcse_is_watched_and_its_loss_kept(tmp_path: Path) -> None:
    stages: list[str] = []
    settings = {"pretrain.simcse.epochs": 0.02, "pretrain.simcse.batch_size": 16}
    records = quick_run(tmp_path, settings, watch=lambda progress, _: stages.append(progress.stage))
    assert stages[0] == "simcse" and stages[-1] == "tasks"
    assert records[-1]["simcse_loss"] > 0


def test_a_run_can_be_resumed_from_anywhere_and_without_what_it_began_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_run(tmp_path / "first", {})
    monkeypatch.chdir(tmp_path)
    settings = {"init_from": "first/model"}
    stops = iter(range(100))
    quick_run(tmp_path / "second", settings, stop=lambda: next(stops) >= 2)
    saved = yaml.safe_load((tmp_path / "second" / "config.yaml").read_text())["settings"]
    assert saved["init_from"] == str(tmp_path / "first" / "model")
    shutil.rmtree(tmp_path / "first")
    monkeypatch.chdir("/")
    quick_run(tmp_path / "second", saved, resume=True)
    assert (tmp_path / "second" / "summary.json").is_file()


def test_other_threads_are_told_on_resume(tmp_path: Path) -> None:
    stops = iter(range(100))
    quick_run(tmp_path, {}, stop=lambda: next(stops) >= 2)
    before = torch.get_num_threads()
    lines: list[str] = []
    torch.set_num_threads(before + 1)
    try:
        quick_run(tmp_path, {}, resume=True, warn=lines.append)
    finally:
        torch.set_num_threads(before)
    assert any("the last digits may differ" in line for line in lines)


def test_missing_data_is_explained_for_all_tasks_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        quick_run(tmp_path, {}, load_task_set("cs224n"))
    assert caught.value.where == "--data"
    assert all(str(caught.value).count(f"{name}-") == 2 for name in ("ids-sst", "quora", "sts"))


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    weights = {}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        quick_run(tmp_path / name, {"seed": seed})
        weights[name] = (tmp_path / name / "model" / "model.safetensors").read_bytes()
    assert weights["a"] == weights["b"] != weights["c"]


def test_heartbeats_come_only_when_asked_for_and_change_nothing(tmp_path: Path) -> None:
    plain = quick_run(tmp_path / "plain", {})
    assert not any("heartbeat" in record for record in plain)
    beating = quick_run(tmp_path / "beating", {}, heartbeat=0.0)
    assert sum("heartbeat" in record for record in beating) > len(plain)
    doing = [record.get("doing", "evaluated") for record in beating]
    assert doing.count("evaluating") == doing.count("evaluated") == len(plain)
    assert set(doing[: doing.index("evaluating")]) == {"training"}
    weights = [(tmp_path / name / "model" / "model.safetensors") for name in ("plain", "beating")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_warm_runs_are_the_same_runs(tmp_path: Path) -> None:
    cache = ProcessCache()
    for name in ("first", "again"):
        quick_run(tmp_path / name, {"seed": 5}, cache=cache)
    quick_run(tmp_path / "other", {"seed": 5, "budget.eval_rows": 30}, cache=cache)
    quick_run(tmp_path / "cold", {"seed": 5})
    sums = {n: sha256_of(tmp_path / n / "model" / "model.safetensors") for n in ("first", "again")}
    assert set(sums.values()) == {sha256_of(tmp_path / "cold" / "model" / "model.safetensors")}
    rows = pq.read_table(tmp_path / "other" / "predictions").num_rows
    assert rows == 30 * 3 * len((tmp_path / "other" / "metrics.jsonl").read_text().splitlines())


def test_a_run_that_came_and_went_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Getting ready takes a while, and the folder is not yet held."""

    def slow(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        quick_run(tmp_path / "run", {"seed": 1})
        return prepare(*arguments, **options)

    monkeypatch.setattr("model.training.prepare.prepare", slow)
    with pytest.raises(InputError, match="holds a run already"):
        quick_run(tmp_path / "run", {})
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["settings"]
    assert saved["seed"] == 1 and (tmp_path / "run" / "summary.json").is_file()


def test_init_from_begins_with_the_tensors_of_the_other_run(tmp_path: Path) -> None:
    quick_run(tmp_path / "first", {})
    still = {"optim.learning_rate": 1e-12, "optim.weight_decay": 0}
    quick_run(tmp_path / "second", {**still, "init_from": str(tmp_path / "first" / "model")})
    quick_run(tmp_path / "fresh", still)
    first, second, fresh = (
        load_model(tmp_path / name / "model").model.state_dict()
        for name in ("first", "second", "fresh")
    )
    assert all(torch.allclose(first[name], second[name], atol=1e-7) for name in first)
    moved = {name for name in first if not torch.allclose(first[name], fresh[name], atol=1e-7)}
    assert any(name.startswith("encoder.") for name in moved)
    assert any(name.startswith("heads.") for name in moved)


WIRED = {
    "pretrain.simcse.temperature": 0.5,
    "pretrain.simcse.learning_rate": 1e-2,
    "pretrain.simcse.pooling": "cls",
    "pretrain.simcse.tasks": ["sentiment"],
    "optim.head_learning_rate": 1e-2,
    "optim.weight_decay": 0.5,
    "optim.betas": [0.5, 0.9],
    "optim.epsilon": 1e-2,
    "loss.alpha": 3,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The weights of a short run that reads all of these settings."""
    cache = ProcessCache()
    settings = {
        "loss.sentiment": "ordinal_log",
        "pretrain.simcse.epochs": 0.02,
        "pretrain.simcse.batch_size": 16,
        "budget.examples": 32,
        "budget.eval_every": 32,
    }

    def weights(changes: dict[str, Any]) -> bytes:
        out = tmp_path_factory.mktemp("wired") / "run"
        quick_run(out, {**settings, **changes}, cache=cache)
        return (out / "model" / "model.safetensors").read_bytes()

    return weights, weights({})


@pytest.mark.parametrize("key", WIRED)
def test_a_setting_reaches_the_weights(key: str, trained: Any) -> None:
    weights, plain = trained
    assert weights({key: WIRED[key]}) != plain


@pytest.mark.parametrize("key", ["encoder.pooling", "pretrain.simcse.pooling"])
def test_a_pooler_that_is_not_there_is_told_before_the_folder_is_made(
    key: str, tmp_path: Path
) -> None:
    config = DistilBertConfig(vocab_size=2000, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    DistilBertModel(config).save_pretrained(tmp_path / "encoder")
    load_tokenizer("tiny").save_pretrained(tmp_path / "encoder")
    settings = {"encoder.name": str(tmp_path / "encoder"), "pretrain.simcse.epochs": 0.02}
    with pytest.raises(InputError, match=f"{key}: this encoder has no pooler"):
        quick_run(tmp_path / "run", {**settings, key: "pooler"})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["tiny", "minilm"])
def test_a_folder_does_not_hide_an_encoder_of_that_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    config = parse_settings({"encoder.name": name}, load_task_set("sample"))
    assert fill_in(config).encoder.name == name


def test_the_machine_is_named_by_the_run_s_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: f"GPU {device}")
    assert machine(torch.device("cpu")).endswith("on CPU")
    assert machine(torch.device("cuda:1")).endswith("on GPU cuda:1")


def test_train_scores_are_those_of_the_best_model_on_these_rows(tmp_path: Path) -> None:
    tasks = load_task_set("sample")
    settings = {"budget.train_rows": 30, "schedule.only": ["sentiment"]}
    records = quick_run(tmp_path, settings)
    best = max(records, key=lambda r: r["score"])
    config = parse_settings({**QUICK, **settings}, tasks)
    prepared = prepare(config, tasks)
    model = load_model(tmp_path / "model")
    for task in tasks:
        inputs = prepared.inputs.tasks[task.name]
        chosen = np.sort(np.random.default_rng(0).choice(inputs.real, size=30, replace=False))
        outputs = outputs_of(model.model, task.name, inputs.train, model.assembler)[chosen]
        answers = decide(model.tasks[task.name], outputs)[0].numpy().astype(np.float64)
        expected = measure(task.metric, inputs.labels[chosen], answers, task.classes)
        assert best["tasks"][task.name]["train_value"] == pytest.approx(expected, abs=1e-6)
        assert (records[-1]["tasks"][task.name]["train_loss"] is None) == (task.name != "sentiment")
    assert "train_value" not in quick_run(tmp_path / "none", {})[0]["tasks"]["sentiment"]


def test_simcse_has_a_dropout_and_a_decay_of_its_own(tmp_path: Path) -> None:
    simcse = {"pretrain.simcse.epochs": 0.02, "pretrain.simcse.batch_size": 16}
    own = {"dropout": 0.3, "attention_dropout": 0.2, "weight_decay": 0.5, "negatives": "both"}
    plain = quick_run(tmp_path / "plain", simcse)[0]["simcse_loss"]
    for key, value in own.items():
        given = {**simcse, f"pretrain.simcse.{key}": value}
        records = quick_run(tmp_path / key, given)
        check_promises(tmp_path / key, records, load_task_set("sample"))
        assert records[0]["simcse_loss"] != plain
        encoder = json.loads((tmp_path / key / "model" / "config.json").read_text())
        assert encoder["hidden_dropout_prob"] == encoder["attention_probs_dropout_prob"] == 0.1


def test_a_step_of_simcse_is_plain_arithmetic_with_its_own_dropout_and_decay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against transformers' encoder with these rates, the loss written out, and AdamW by hand."""
    rate, decay, epsilon = 2e-3, 0.5, 1e-3  # the last so large that no rounding decides a sign
    simcse = {"epochs": 1e-6, "batch_size": 8, "learning_rate": rate, "temperature": 0.1}
    simcse |= {"dropout": 0.3, "attention_dropout": 0.2, "weight_decay": decay, "pooling": "cls"}
    settings = {f"pretrain.simcse.{key}": value for key, value in simcse.items()}
    settings |= {"optim.decay": "constant", "optim.warmup": 0, "optim.clip": 0}
    settings |= {"optim.epsilon": epsilon, "optim.weight_decay": 0.01}
    tasks = load_task_set("sample")
    config = parse_settings({**QUICK, **settings}, tasks)
    run = TrainingRun(prepare(config, tasks, device="cpu"), tmp_path, None, print)
    run.start_fresh()
    run.begin()
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    list(run.pretrain(lambda: False, lambda *_: None, Heartbeat(None)))
    loss = run.progress.simcse_loss
    run.close()

    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}
    shape = run.model.encoder.config.to_dict() | rates
    plain = BertModel(BertConfig(**shape), add_pooling_layer=True)
    plain.set_attn_implementation("eager")
    inside = {n.removeprefix("encoder."): t for n, t in before.items() if n.startswith("encoder.")}
    plain.load_state_dict(inside)
    monkeypatch.setattr(  # the same draws, in the same order
        F, "dropout", lambda input, p, training, inplace=False: dropout(input, p, training)
    )
    seed_rng(rng_seed(config.seed, SIMCSE_SEED, 0), torch.device("cpu"))
    batch = run.prepared.sentences_of(0)
    a, b = (
        plain.train()(batch.input_ids, batch.attention_mask).last_hidden_state[:, 0]
        for _ in range(2)
    )
    assert not torch.equal(a, b)
    near = (a @ b.T) / (a.norm(dim=1)[:, None] * b.norm(dim=1)) / 0.1
    own = (near.diagonal() - near.exp().sum(1).log()).mean().neg()
    own.backward()
    assert loss == pytest.approx(own.item(), rel=1e-5)

    after = run.model.state_dict()
    for name, weight in plain.named_parameters():
        old, grad = inside[name], weight.grad
        step = torch.zeros_like(old) if grad is None else grad / (grad.abs() + epsilon)
        shrunk = decay * old if old.ndim >= 2 and grad is not None else torch.zeros_like(old)
        wanted = old - rate * (shrunk + step)
        torch.testing.assert_close(after[f"encoder.{name}"], wanted, rtol=0, atol=2e-6, msg=name)
    heads = [name for name in before if not name.startswith("encoder.")]
    assert heads and all(torch.equal(before[name], after[name]) for name in heads)


def test_a_head_of_two_hidden_layers_is_saved_and_resumed(tmp_path: Path) -> None:
    given = {"head.hidden": 6, "head.layers": 2, "pair.segments": False, "optim.decayed": "all"}
    records = quick_run(tmp_path, given)
    check_promises(tmp_path, records, load_task_set("sample"))
    spec = load_model(tmp_path / "model").model.spec
    assert (spec.head_layers, spec.segments) == (2, False)


def test_further_metrics_stand_beside_the_one_that_counts(tmp_path: Path) -> None:
    write_cs224n(tmp_path)
    tasks = load_task_set("cs224n")
    records = quick_run(tmp_path / "run", {}, tasks, data=tmp_path)
    of = records[-1]["tasks"]
    assert {name: list(task["also"]) for name, task in of.items()} == {
        **{"sst": ["macro_f1"], "para": ["macro_f1"], "sts": ["spearman"]}
    }
    table = pq.read_table(tmp_path / "run" / records[-1]["predictions"]).to_pandas()
    rows = table[table["task"] == "sts"]
    expected = rows["label"].corr(rows["prediction"], method="spearman")
    assert of["sts"]["also"]["spearman"]["value"] == pytest.approx(expected, nan_ok=True)


def test_a_run_that_has_ended_is_gone_at_once(tasks: TaskSet, tmp_path: Path) -> None:
    """With its optimiser, not only when Python looks for cycles: the next one needs the room."""
    prepared = prepare(parse_settings(QUICK, tasks), tasks)
    run = TrainingRun(prepared, tmp_path, None, print)
    run.start_fresh()
    run.close()
    left = [weakref.ref(run), weakref.ref(run.optimizer)]
    gc.disable()
    try:
        del run
        assert [each() for each in left] == [None, None]
    finally:
        gc.enable()
