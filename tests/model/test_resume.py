"""A run that is stopped or killed and resumed ends like one that never was, to the byte."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.amp.grad_scaler import GradScaler

from model.common.errors import InputError
from model.common.files import sha256_of
from model.config.parse import parse_settings
from model.objectives.schedules import JOINT, SCHEDULES
from model.tasks.task_set import load_task_set
from model.train import train
from model.training.checkpoint import MANIFEST, checkpoints_in, load_latest, write_manifest

from .killed_runs import run_killed, run_undisturbed

QUICK = {
    "encoder.name": "tiny",
    "encoder.max_length": 48,
    "batch.sizes": [8, 6, 4],
    "budget.examples": 120,
    "budget.eval_every": 30,
    "budget.eval_rows": 20,
    "smart.weight": 1,
    "smart.bregman": 0.5,
}
TIMES = ("seconds", "evaluation_seconds", "examples_per_second", "data_share")


def for_schedule(name: str) -> dict[str, Any]:
    settings = {**QUICK, "schedule.name": name}
    if name in JOINT:
        settings |= {"surgery": "pcgrad", "smart.variant": "ball"}
    else:
        settings |= {"loss.weighting": "uncertainty", "rdrop.weight": 1}
    return settings


def same_result(one: Path, other: Path) -> None:
    for name in ("model.safetensors", "heads.safetensors", "stockpot.json", "config.json"):
        assert sha256_of(one / "model" / name) == sha256_of(other / "model" / name), name

    def records(folder: Path) -> list[dict[str, Any]]:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [{k: v for k, v in record.items() if k not in TIMES} for record in found]

    assert records(one) == records(other)
    for file in (one / "predictions").iterdir():
        assert sha256_of(file) == sha256_of(other / "predictions" / file.name)


def after(steps: int) -> Callable[[], bool]:
    """Asks for a stop once so many steps have been done."""
    done = itertools.count()
    return lambda: next(done) >= steps


def run(out: Path, settings: dict[str, Any], **options: Any) -> None:
    tasks = load_task_set("sample")
    for _ in train(parse_settings(settings, tasks), tasks, out=out, **options):
        pass


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_stopped_again_and_again_is_the_same_run(name: str, tmp_path: Path) -> None:
    settings = for_schedule(name)
    run(tmp_path / "whole", settings)
    for steps in (1, 2, 0, 1):
        run(tmp_path / "parts", settings, resume=True, stop=after(steps))
        assert not (tmp_path / "parts" / "summary.json").exists()
    run(tmp_path / "parts", settings, resume=True)
    same_result(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.usefixtures("two_replicas")
def test_replicas_repeat_a_run_to_the_byte(tmp_path: Path) -> None:
    settings = {**QUICK, "schedule.name": "simultaneous"}
    run(tmp_path / "whole", settings)
    run(tmp_path / "parts", settings, stop=after(3))
    run(tmp_path / "parts", settings, resume=True)
    same_result(tmp_path / "whole", tmp_path / "parts")


# One of each kind: by batch, by epoch, all tasks in a step. All are stopped and resumed above.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["batch_round_robin", "annealed", "pretrain_then_simultaneous"])
def test_a_run_killed_at_random_moments_is_the_same_run(name: str, tmp_path: Path) -> None:
    settings = for_schedule(name)
    run_undisturbed(settings, tmp_path / "whole")
    assert run_killed(settings, tmp_path / "killed", 3, zlib.crc32(name.encode())) >= 1
    same_result(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra",
    [
        {"pretrain.simcse.epochs": 0.05, "pretrain.simcse.batch_size": 16},
        {"encoder.adapter": "pals", "encoder.adapter_size": 12, "encoder.adapter_heads": 3},
        {"smart.variant": "random", "smart.every": 2, "batch.accumulate": 2},
    ],
    ids=["simcse", "pals", "every-accumulate"],
)
def test_other_ingredients_survive_kills_too(extra: dict[str, Any], tmp_path: Path) -> None:
    settings = {**QUICK, **extra}
    run_undisturbed(settings, tmp_path / "whole")
    assert run_killed(settings, tmp_path / "killed", 4, seed=7) >= 1
    same_result(tmp_path / "whole", tmp_path / "killed")


def test_a_run_with_averaged_weights_stopped_again_and_again_is_the_same_run(
    tmp_path: Path,
) -> None:
    settings = {**QUICK, "average.share": 0.3, "optim.decay": "wsd"}
    settings |= {"pretrain.simcse.epochs": 0.02, "pretrain.simcse.batch_size": 16}
    run(tmp_path / "whole", settings)
    for steps in (1, 2, 0, 1):
        run(tmp_path / "parts", settings, resume=True, stop=after(steps))
    run(tmp_path / "parts", settings, resume=True)
    same_result(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_a_run_in_float16_goes_on_with_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, where no user can ask for it."""
    monkeypatch.setattr("model.training.prepare.precision_on", lambda *_: torch.float16)
    grown = functools.partial(GradScaler, growth_interval=2)  # so that it changes in so few steps
    monkeypatch.setattr("model.training.step.GradScaler", grown)
    settings = {**QUICK, "smart.weight": 0, "smart.bregman": 0}
    with torch.backends.mkldnn.flags(enabled=False):
        run(tmp_path / "whole", settings)
        run(tmp_path / "parts", settings, stop=after(3))
        saved = load_latest(tmp_path / "parts" / "checkpoints", print)
        assert saved is not None and saved.state["scaler"]["scale"] != 65536
        run(tmp_path / "parts", settings, resume=True)
    same_result(tmp_path / "whole", tmp_path / "parts")


def test_simcse_can_be_stopped_half_way(tmp_path: Path) -> None:
    settings = {**QUICK, "pretrain.simcse.epochs": 0.05, "pretrain.simcse.batch_size": 16}
    run(tmp_path / "whole", settings)
    for steps in (2, 1, 20):
        run(tmp_path / "parts", settings, resume=True, stop=after(steps))
    run(tmp_path / "parts", settings, resume=True)
    same_result(tmp_path / "whole", tmp_path / "parts")


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    settings = for_schedule("batch_round_robin")
    run(tmp_path / "whole", settings)
    run(tmp_path / "hurt", settings, stop=after(5))
    *_, before, last = checkpoints_in(tmp_path / "hurt" / "checkpoints")
    tensors = last / "state" / "tensors.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-10] ^= 1
    tensors.write_bytes(content)
    lines: list[str] = []
    run(tmp_path / "hurt", settings, resume=True, warn=lines.append)
    assert any(
        last.name in line and "is damaged" in line and f"using {before.name}" in line
        for line in lines
    )
    same_result(tmp_path / "whole", tmp_path / "hurt")


def test_changed_data_are_refused(tmp_path: Path) -> None:
    run(tmp_path, QUICK, stop=after(4))
    with pytest.raises(InputError, match="the data are not those that this run began with"):
        run(tmp_path, {**QUICK, "budget.eval_rows": 21}, resume=True)


OWN = """
tasks:
  mood:
    classes: 3
    format: glue
    files: {train: rows.tsv, dev: rows.tsv}
    columns: {text: sentence, label: label}
"""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (OWN + "    loss: dual_objective\n", "mood: loss was 'cross_entropy' and is 'dual_obj"),
        (OWN + "    metric: macro_f1\n", "mood: metric was 'accuracy' and is 'macro_f1'"),
        (OWN + "    weight: 2\n", "mood: weight was 1.0 and is 2.0"),
        (OWN.replace("classes: 3", "classes: 4"), "mood: classes was 3 and is 4"),
        (OWN.replace("mood", "moods"), "'mood' is gone"),
    ],
    ids=["loss", "metric", "weight", "classes", "name"],
)
def test_a_changed_task_file_is_refused(changed: str, said: str, tmp_path: Path) -> None:
    """The data and their tokens are the same: only what is done with them is not."""
    rows = "".join(f"word {n}\t{n % 3}\n" for n in range(24))
    (tmp_path / "rows.tsv").write_text(f"sentence\tlabel\n{rows}")
    path = tmp_path / "own.yaml"
    small = {"encoder.name": "tiny", "batch.sizes": 8, "budget.examples": 48}

    def go_on(text: str, **options: Any) -> None:
        path.write_text(text)
        tasks = load_task_set(str(path))
        config = parse_settings(small, tasks)
        for _ in train(config, tasks, out=tmp_path / "run", data=tmp_path, resume=True, **options):
            pass

    go_on(OWN, stop=after(2))
    with pytest.raises(InputError) as caught:
        go_on(changed)
    assert any(f.startswith(f"the task file changed: {said}") for f in caught.value.faults)
    go_on(OWN)
    assert (tmp_path / "run" / "summary.json").is_file()


HOSTILE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "examples": (lambda state: state["progress"].update(examples="many"), "'examples' is 'many'"),
    "meter": (lambda state: state["progress"]["meter"].update(steps=[]), "'steps' is []"),
    "drawn": (lambda state: state["progress"].update(drawn={"a": -1}), "is -1"),
    "history": (
        lambda state: state["progress"]["history"][0].update(examples=None),
        "'examples' is null",
    ),
    "no progress": (lambda state: state.pop("progress"), "which no run writes"),
    "a path": (
        lambda state: state["progress"]["history"][0].update(checkpoint="../../x"),
        "leads out of it",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_state_of_wrong_values_is_one_sentence(what: str, tmp_path: Path, begun: Path) -> None:
    """Signed as it is, as a stranger can do."""
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    place = checkpoints_in(out / "checkpoints")[-1]
    state = json.loads((place / "state/state.json").read_text())
    change, said = HOSTILE[what]
    change(state)
    (place / "state/state.json").write_text(json.dumps(state))
    (place / MANIFEST).unlink()
    write_manifest(place)
    with pytest.raises(InputError, match="1 problem") as refused:
        run(out, QUICK, resume=True)
    assert said in str(refused.value)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first evaluation."""
    out = tmp_path_factory.mktemp("begun") / "run"
    run(out, QUICK, stop=after(8))
    return out
