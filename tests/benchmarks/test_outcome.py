from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest

from benchmarks.sides import held_out
from benchmarks.sides.arms import ARMS, best_of, preset
from benchmarks.sides.cell import Cell
from benchmarks.sides.held_out import choose, cut, get_material, key_of, score_model, usable
from benchmarks.sides.our_search import PARTS, program
from benchmarks.sides.outcome_table import (
    Row,
    add_rows,
    arm_lines,
    differences,
    mean_and_error,
    read_rows,
    table,
)
from benchmarks.sides.soup_methods import error_of
from model.common.errors import InputError
from model.config.parse import parse_settings, preset_names
from model.data.rows import labels_of
from model.data.sources import load_split
from model.evaluation.predictions import Predictions
from model.tasks.task_set import load_task_set
from tests.model.cs224n_files import write_cs224n
from tuner.runs.open import has_begun
from tuner.soup.methods import DISTILLED, METHODS

ROOT = Path(__file__).parents[2]


def row(arm: str, seed: int, score: float, **others: Any) -> Row:
    key = {"tasks": "sample", "budget": 100, "encoder": "tiny", "dev_rows": 10}
    found = {"held_out": score, "held_out.mood": score / 2, "dev": score + 0.1}
    took = {"examples": 100, "evaluated": 30, "seconds": 2.0}
    return {**key, "arm": arm, "seed": seed, **found, **took, **others}


@pytest.mark.parametrize("without", PARTS)
def test_a_search_can_do_without_each_of_its_parts(without: str, tmp_path: Path) -> None:
    material = held_out.Material(load_task_set("sample"), None, {}, {})
    cell = Cell(material, 36_000, 0, "tiny", 400, 8, tmp_path, without=without)
    plain = program(replace(cell, without=""), tmp_path)
    command = program(cell, tmp_path)
    assert command != plain and not set(plain) - {"-m", "tuner.search"} - set(command)
    help_ = subprocess.run([*command, "--help"], capture_output=True, text=True, cwd=ROOT)
    assert help_.returncode == 0 and not help_.stderr


# --- the table --------------------------------------------------------------------------------


def test_the_error_of_a_mean_is_the_deviation_by_the_root_of_the_count() -> None:
    middle, error = mean_and_error([0.5, 0.6, 0.7, 0.8])
    deviation = math.sqrt((0.15**2 + 0.05**2 + 0.05**2 + 0.15**2) / 3)
    assert middle == pytest.approx(0.65) and error == pytest.approx(deviation / 2)
    assert math.isnan(mean_and_error([0.5])[1])


def test_differences_are_taken_seed_by_seed_where_both_have_it() -> None:
    ours = [row("ours", 0, 0.7), row("ours", 2, 0.5), row("ours", 3, 0.9)]
    default = [row("default", 2, 0.6), row("default", 0, 0.4), row("default", 1, 0.1)]
    assert differences(ours, default) == pytest.approx([0.3, -0.1])


def test_the_table_ranks_the_arms_and_tells_how_often_one_is_worse() -> None:
    rows = [row("default", seed, 0.6) for seed in (0, 1)]
    rows += [row("ours", 0, 0.9), row("ours", 1, 0.5)]
    heading, first, second = (line.split() for line in arm_lines(rows))
    assert heading[:4] == ["arm", "seeds", "held_out", "mood"]
    assert first == "ours 2 0.7000 (0.2000) 0.350 +0.1000 (0.2000) 1 of 2 0.800 2 100 30".split()
    assert second == "default 2 0.6000 (0.0000) 0.300 0.700 2 100 30".split()


def test_only_cells_of_the_same_tasks_and_budget_are_compared() -> None:
    text = table([row("default", 0, 0.6), row("ours", 0, 0.9, budget=200)])
    small, large = text.split("\n\n")
    assert "100 examples" in small and "default" in small and "ours" not in small
    assert "200 examples" in large and "+" not in large


def test_rows_of_two_task_sets_share_a_file_and_a_cell_done_again_replaces_its_row(
    tmp_path: Path,
) -> None:
    path = tmp_path / "outcome.parquet"
    assert read_rows(path) == []
    first, other = row("default", 0, 0.6), row("default", 0, 0.5, tasks="cs224n")
    other["held_out.sst"] = other.pop("held_out.mood")
    add_rows(path, [first])
    add_rows(path, [other])
    assert read_rows(path) == [first, other]
    again = row("default", 0, 0.65)
    add_rows(path, [again])
    assert read_rows(path) == [again, other] and list(tmp_path.iterdir()) == [path]


def test_methods_of_a_soup_have_a_table_of_their_own_against_the_best_single() -> None:
    rows = [row("default", seed, 0.6) for seed in (0, 1)]
    for seed in (0, 1):
        rows += [
            row("ours", seed, 0.7),
            row("ours:best single", seed, 0.7, cross_fitted=0.65, models=1),
            row("ours:mean", seed, 0.68 + seed / 10, cross_fitted=0.75, models=4),
            row("ours:vote", seed, 0.68, cross_fitted=0.7, models=4, held_out_error=0.01 + seed),
        ]
    arms, methods = table(rows).split("\n\n")
    assert "default" in arms and "mean" not in arms
    name, _, first, voted, second = (line.split() for line in methods.splitlines())
    assert name[0] == "ours,"
    assert " ".join(voted).endswith("2 of 2 1 of 2 4.0")
    found = "mean 2 0.7500 (0.0000) +0.1000 (0.0000) 0.7300 (0.0500) +0.0300 (0.0500) 1 of 2 4.0"
    assert first == found.split()
    assert second == "best single 2 0.6500 (0.0000) 0.7000 (0.0000) 1.0".split()


def test_a_methods_error_is_that_of_its_lead_and_not_of_its_score(tmp_path: Path) -> None:
    """Answers that are wrong on the same rows differ by little, whatever the rows."""
    material = get_material("sample", None, tmp_path, dev_rows=30, held_out=400)
    rng, answers = np.random.default_rng(0), dict[str, dict[str, Predictions]]()
    given = {task.name: labels_of(material.held_out[task.name]) for task in material.tasks}
    noise = {name: rng.random(400) for name in given}
    for name, wrong in {"half": 0.5, "nearly": 0.52}.items():
        answers[name] = {
            task: Predictions(np.where(noise[task] < wrong, labels[::-1], labels), None)
            for task, labels in given.items()
        }
    same = error_of(answers["half"], answers["half"], material)
    close = error_of(answers["nearly"], answers["half"], material)
    assert same == 0 < close < 0.01


# --- rows that nobody saw ---------------------------------------------------------------------


def test_rows_are_cut_from_train_and_no_row_is_lost(tmp_path: Path) -> None:
    files = write_cs224n(tmp_path / "files", rows=40)
    material = get_material("cs224n", files, tmp_path / "work", dev_rows=20, held_out=10)
    for task in material.tasks:
        before = load_split(task, "train", files).table
        left = load_split(task, "train", material.data).table
        alone = material.held_out[task.name]
        assert len(alone) == 10 and len(left) == len(before) - 10
        ids = Counter(left["id"].to_pylist() + alone["id"].to_pylist())
        assert ids == Counter(before["id"].to_pylist())
        assert len(material.dev[task.name]) == 20
        name = task.source.files["dev"]
        assert (tmp_path / "work" / "data" / name).read_bytes() == (files / name).read_bytes()
    again = get_material("cs224n", files, tmp_path / "again", dev_rows=20, held_out=10)
    assert again.held_out == material.held_out


def test_a_pair_that_stands_elsewhere_in_either_order_is_not_held_out(tmp_path: Path) -> None:
    files = write_cs224n(tmp_path, rows=12)
    task = load_task_set("cs224n")["sts"]
    train, dev = (files / task.source.files[split] for split in ("train", "dev"))
    rows = [line.split("\t") for line in train.read_text().splitlines()]
    turned = [*rows[1][:2], rows[1][3], rows[1][2].upper(), *rows[1][4:]]
    twice = ["99", "twice", *rows[2][2:]]
    with open(dev, "a", encoding="utf-8") as file:
        file.write("\t".join(turned) + "\n")
    with open(train, "a", encoding="utf-8") as file:
        file.write("\t".join(twice) + "\n")
    times = Counter(key_of(task, one) for one in usable(task, files, "train"))
    times += Counter(key_of(task, one) for one in usable(task, files, "dev"))
    free = sum(times[key_of(task, one)] == 1 for one in usable(task, files, "train"))
    assert free <= 10 and not {1, 2, 13} & set(choose(task, files, free - 1))
    with pytest.raises(InputError, match="cannot be held out"):
        cut(task, files, tmp_path / "data", tmp_path / "held", free)


def test_the_sample_corpus_holds_out_rows_that_are_in_no_split(tmp_path: Path) -> None:
    material = get_material("sample", None, tmp_path, dev_rows=30)
    assert material.data is None and list(tmp_path.iterdir()) == []
    for task in material.tasks:
        assert len(material.held_out[task.name]) == held_out.HELD_OUT
        assert len(material.dev[task.name]) == 30


# --- arms -------------------------------------------------------------------------------------


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    material = get_material("sample", None, tmp_path, dev_rows=30, held_out=30)
    return Cell(
        material=material,
        budget=96,
        seed=0,
        encoder="tiny",
        dev_rows=30,
        trials=2,
        work=tmp_path / "cell",
    )


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_of_other_task_names_fits_the_tasks_in_the_same_places(
    cell: Cell, name: str
) -> None:
    config = preset(cell, name, 1000, 2)
    assert config.encoder.name == "tiny" and config.optim.learning_rate == 1e-3
    assert config.budget.examples == 1000 and config.budget.epochs is None
    assert set(config.loss.by_task) <= set(cell.material.tasks.names)


def test_the_best_run_is_handed_out_and_scored_on_dev_as_it_scored_itself(cell: Cell) -> None:
    tasks = cell.material.tasks
    rates = (1e-6, 1e-3)
    configs = [
        parse_settings(cell.settings(48, 2) | {"optim.learning_rate": rate}, tasks)
        for rate in rates
    ]
    handed = best_of(cell, configs)
    (kept,) = cell.work.iterdir()  # the other run is gone
    assert handed.model.is_relative_to(kept)
    assert handed.examples == 96 and handed.evaluated == 90 * 2  # an evaluation at its end each
    (line,) = (kept / "metrics.jsonl").read_text().splitlines()
    record, scores = json.loads(line), score_model(handed.model, tasks, cell.material.dev)
    assert scores.overall.value == pytest.approx(record["score"])
    assert {task: score.value for task, score in scores.tasks.items()} == pytest.approx(
        {task: found["value"] for task, found in record["tasks"].items()}
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("threads")  # of which it takes its own number
def test_every_arm_hands_out_a_model_and_what_is_done_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "outcome.parquet"
    flags = ["--quick", "--out", str(out), "--keep-runs", str(tmp_path / "runs")]
    flags += ["--ours-name", "plain", "--ours-flags=--no-early-stopping"]
    program = str(ROOT / "benchmarks" / "outcome.py")
    command = [sys.executable, program, *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read_rows(out)
    methods = {one["arm"]: one for one in rows if "cross_fitted" in one}
    assert {f"plain:{name}" for name in METHODS if name != DISTILLED} == set(methods)
    assert all(one["held_out_error"] >= 0 for one in methods.values())
    assert [place.name for place in (tmp_path / "runs").iterdir()] == ["sample-plain-0"]
    assert has_begun(tmp_path / "runs" / "sample-plain-0")
    arms = {one["arm"] for one in rows} - set(methods)
    assert arms == {*ARMS, "plain", "plain-recommended"} - {"ours"}
    # The same model, by the run's folder and by itself.
    single, alone = methods["plain:best single"], next(o for o in rows if o["arm"] == "plain")
    assert single["held_out_error"] == 0
    assert "held_out_error" in next(o for o in rows if o["arm"] == "plain-recommended")
    for name in ("held_out", "dev", "held_out.similarity", "seconds"):
        assert single[name] == pytest.approx(alone[name])
    for one in rows:
        assert 0 < one["held_out"] < 1 and abs(one["held_out.similarity"]) < 1
        assert one["examples"] == pytest.approx(
            240, rel=0.6
        )  # a round of batches more, in each trial
        assert one["evaluated"] > 0 and one["seconds"] > 0
        assert one["flags"] == ("--no-early-stopping" if "plain" in one["arm"] else "")
    before = out.read_bytes()
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert run_path(program)["main"](flags) == 0
    assert "plain-recommended" in capsys.readouterr().out and out.read_bytes() == before
