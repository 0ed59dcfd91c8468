"""A run at work in its folder: its stages, its evaluations, its checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from model import __version__
from model.common.errors import InputError
from model.common.files import atomic_folder, check_room, to_yaml, write_atomic
from model.common.rng import rng_seed, seed_rng
from model.evaluation.evaluate import Evaluation, evaluate
from model.evaluation.model_folder import read_model, save_model
from model.evaluation.predictions import write_predictions
from model.modules.device import place
from model.modules.encoder import layers_of
from model.modules.multitask import MultitaskModel
from model.objectives.schedules import Round
from model.objectives.simcse import simcse_loss
from model.tasks.task_set import describe_task, task_changes
from model.training.averaging import Averaged
from model.training.checkpoint import (
    DamagedCheckpoint,
    checkpoint_name,
    clean_leftovers,
    load_latest,
    prune,
    save_checkpoint,
    verify,
)
from model.training.inputs import Warn
from model.training.optim import (
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    progress_scale,
)
from model.training.prepare import Prepared, start_from
from model.training.progress import Meter, Progress, Record
from model.training.readings import Reader, UnreadStep
from model.training.step import Stepper

SIMCSE, TASKS = "simcse", "tasks"
COPY = "copy."  # the momentum copy's tensors in a checkpoint
RAW = "raw."  # the weights that are trained, where the model's own are their average
OVERALL = "overall"
OTHER_FILES = 1 << 20  # bytes of a checkpoint besides its tensors, at least
LOOK = 2.0  # seconds between looks at what the device has found, at least
SIMCSE_SEED = 1_000_003  # keeps its draws apart from those of the steps on tasks
Stop = Callable[[], bool]
Watch = Callable[[Progress, int], None]


class Heartbeat:
    """Says when the next heartbeat, or look at the device, is due."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.last = time.monotonic()

    def due(self) -> bool:
        if self.seconds is None or time.monotonic() - self.last < self.seconds:
            return False
        self.last = time.monotonic()
        return True


class TrainingRun:
    """A prepared run at work in its folder."""

    def __init__(self, prepared: Prepared, out: Path, data: Path | None, warn: Warn) -> None:
        self.prepared = prepared
        self.config = prepared.config
        self.model = prepared.model
        self.out = out
        self.data = data
        self.warn = warn
        self.progress = Progress(stage=SIMCSE if prepared.simcse else TASKS)
        self.progress.drawn = dict.fromkeys(prepared.streams, 0)
        self.unread: list[UnreadStep] = []
        self.look = Heartbeat(LOOK)
        self.reader = Reader(float16=prepared.precision == torch.float16)

    def _enter_stage(self) -> None:
        """A fresh optimiser (and momentum copy) for the stage that begins."""
        optim, simcse = self.config.optim, self.config.pretrain.simcse
        alone = self.progress.stage == SIMCSE
        assert optim.learning_rate is not None  # filled in by prepare
        named = self.model.named_parameters()
        self.optimizer = make_optimizer(
            [(n, p) for n, p in named if n.startswith("encoder.")] if alone else named,
            layers=len(layers_of(self.model.encoder)),
            learning_rate=(simcse.learning_rate if alone else None) or optim.learning_rate,
            head_learning_rate=optim.head_learning_rate,
            weight_decay=optim.weight_decay,
            layer_decay=optim.layer_decay,
            betas=optim.betas,
            epsilon=optim.epsilon,
        )
        tasks = self.prepared.tasks
        self.stepper = Stepper(
            self.model,
            self.optimizer,
            self.config,
            weights=dict(zip(tasks.names, self.config.loss_weights(tasks), strict=True)),
            bregman=0.0 if alone else self.config.smart.bregman,
            precision=self.prepared.precision,
        )
        share = 0.0 if alone else self.config.average.share
        self.average = Averaged(self.model, share, self.progress.step) if share else None

    @property
    def scored(self) -> MultitaskModel:
        """The model as it is evaluated and saved."""
        return self.model if self.average is None else self.average.model

    # --- the folder -------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def begin(self) -> None:
        clean_leftovers(self.out)
        described = {
            "stockpot": __version__,
            "tasks": self.prepared.tasks.origin,
            "data": None if self.data is None else str(self.data),
            "settings": self.config.to_flat(),
        }
        write_atomic(self.out / "config.yaml", to_yaml(described))
        lines = "".join(json.dumps(record) + "\n" for record in self.progress.history)
        write_atomic(self.out / "metrics.jsonl", lines)

    def start_fresh(self) -> None:
        if self.config.init_from:
            start_from(self.model, Path(self.config.init_from), self.warn)
        self._enter_stage()

    def restore(self) -> bool:
        """Go on from the youngest checkpoint that is whole; False if there is none."""
        saved = load_latest(self.checkpoints, self.warn)
        if saved is None:
            return False
        if (here := machine(self.prepared.device)) != (there := saved.state.get("machine")):
            self.warn(f"going on with {here} where it was {there}: the last digits may differ")
        if faults := self._changes(saved.state):
            raise InputError(str(self.out), faults)
        self.progress = Progress.from_dict(saved.state["progress"])
        before, _ = read_model(saved.folder / "model")
        self.model.load_state_dict(before.state_dict())
        self._enter_stage()
        rest = {n: t for n, t in saved.tensors.items() if not n.startswith((COPY, RAW))}
        load_optimizer_tensors(self.optimizer, rest)
        if scaler := saved.state.get("scaler"):
            self.stepper.scaler.load_state_dict(scaler)
        if self.stepper.copy is not None:
            self.stepper.copy.load_state_dict(_part(saved.tensors, COPY))
        if self.average is not None:  # a copy of what was loaded, which is the average
            self.model.load_state_dict(_part(saved.tensors, RAW), strict=False)
        return True

    def _changes(self, before: dict[str, Any]) -> list[str]:
        """Why a state cannot be gone on with: its tasks or its data were others."""
        back = "put it back as it was, or start a new run"
        faults = [
            f"the task file changed: {change}; {back}"
            for change in task_changes(before.get("tasks") or {}, self._described_tasks())
        ]
        if not faults and before["fingerprint"] != self.prepared.inputs.fingerprint:
            faults = ["the data are not those that this run began with; put them back as they were"]
        return faults

    def _described_tasks(self) -> dict[str, Any]:
        return {task.name: describe_task(task) for task in self.prepared.tasks}

    def save(self) -> str:
        """Save all that resuming needs; the checkpoint's name."""
        self.read()
        tensors = dict(optimizer_tensors(self.optimizer))
        if self.stepper.copy is not None:
            tensors |= {COPY + n: t for n, t in self.stepper.copy.state_dict().items()}
        if self.average is not None:
            trained = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
            tensors |= {RAW + n: p for n, p in trained}
        name = self._name()
        self.checkpoints.mkdir(exist_ok=True)  # fails if the run's folder went away
        sizes = [t.numel() * t.element_size() for t in self.model.state_dict().values()]
        sizes += [t.numel() * t.element_size() for t in tensors.values()]
        check_room(self.checkpoints, sum(sizes) + OTHER_FILES)
        save_checkpoint(
            self.checkpoints / name,
            write_model=lambda folder: save_model(
                folder, self.scored, self.prepared.tokenizer, self.prepared.tasks.class_names
            ),
            tensors=tensors,
            state={
                "fingerprint": self.prepared.inputs.fingerprint,
                "tasks": self._described_tasks(),
                "machine": machine(self.prepared.device),
                "progress": asdict(self.progress),
                "scaler": self.stepper.scaler.state_dict(),  # of float16; else empty
            },
        )
        prune(self.checkpoints, {entry["checkpoint"] for entry in self.progress.best.values()})
        return name

    def _name(self) -> str:
        before = 0 if self.progress.stage == SIMCSE else self._simcse_steps()
        return checkpoint_name(before + self.progress.step)

    # --- the stages -------------------------------------------------------------------------

    def _simcse_steps(self) -> int:
        stream, epochs = self.prepared.simcse, self.config.pretrain.simcse.epochs
        return 0 if stream is None else max(1, round(epochs * stream.per_pass))

    def pretrain(self, stop: Stop, watch: Watch, heartbeat: Heartbeat) -> Iterator[Record]:
        """SimCSE, if asked for; the next stage begins when it is through."""
        stream, simcse = self.prepared.simcse, self.config.pretrain.simcse
        if stream is None or self.progress.stage != SIMCSE:
            return
        pooling = None if simcse.pooling == "auto" else simcse.pooling
        steps, every = self._simcse_steps(), self.config.budget.eval_every or 1
        self.model.train()
        for number in range(self.progress.step, steps):
            if stop():
                self.save()
                return
            if heartbeat.due():
                yield self._pulse()
            seed_rng(rng_seed(self.config.seed, SIMCSE_SEED, number), self.prepared.device)
            batch = place(stream.batch(number), self.prepared.device)
            share, optim = (number + 1) / (steps + 1), self.config.optim
            scale = progress_scale(optim.decay, share, optim.warmup, optim.cooldown)

            def loss() -> torch.Tensor:
                first = self.model.encode(batch, pooling)  # noqa: B023
                second = self.model.encode(batch, pooling)  # noqa: B023
                return simcse_loss(first, second, simcse.temperature)

            self.unread.append(self.stepper.step_on(number, SIMCSE, loss, scale))
            self.progress.step = number + 1
            self.glance()
            watch(self.progress, steps)
            if (number + 1) * simcse.batch_size // every > number * simcse.batch_size // every:
                self.save()
        self.read()
        meter = self.progress.meter
        self.progress.simcse_loss = _mean(meter.losses.get(SIMCSE), meter.counts.get(SIMCSE))
        self.progress.meter = Meter()
        self.progress.stage, self.progress.step = TASKS, 0
        self._enter_stage()
        self.save()

    def read(self) -> None:
        """What the steps since the last look have found; the only place that waits for the device.

        Raises `TrainingDiverged` for the first of them whose loss was no number.
        """
        began = time.perf_counter()
        unread, self.unread = self.unread, []
        for report in self.reader.read(unread):
            self.progress.meter.add(report)
        waited = time.perf_counter() - began
        self.progress.meter.seconds += waited
        self.progress.seconds += waited

    def glance(self) -> None:
        """Now and then, so that a run that diverged ends soon and whoever watches sees losses."""
        if self.look.due():
            self.read()

    def _pulse(self) -> Record:
        self.read()
        return {"heartbeat": True, "step": self.progress.step, "examples": self.progress.examples}

    def fine_tune(self, stop: Stop, watch: Watch, heartbeat: Heartbeat) -> Iterator[Record]:
        progress, steps = self.progress, self.prepared.steps
        self.model.train()
        for tasks in self.prepared.rounds(progress.step):
            if stop():
                self.save()
                return
            if heartbeat.due():
                yield self._pulse()
            before = progress.examples
            self.advance(tasks)
            self.glance()
            watch(progress, steps)
            if self._is_due(before, progress.examples) or progress.step == steps:
                yield self.evaluate()

    def _is_due(self, before: int, now: int) -> bool:
        """Whether an evaluation falls into the step from so many examples to so many."""
        budget = self.config.budget
        if budget.eval_at is not None:
            return any(before < point <= now for point in budget.eval_at)
        assert budget.eval_every is not None  # filled in by prepare
        return now // budget.eval_every > before // budget.eval_every

    def advance(self, tasks: Round) -> None:
        """One step on a batch of each of these tasks."""
        progress, optim, names = self.progress, self.config.optim, self.prepared.tasks.names
        began = time.perf_counter()
        turns = {names[task]: progress.drawn[names[task]] for task in tasks}
        batches = [
            (name, place(self.prepared.streams[name].batch(turn), self.prepared.device))
            for name, turn in turns.items()
        ]
        loaded = time.perf_counter()
        share = (progress.step + 1) / (self.prepared.steps + 1)
        scale = progress_scale(optim.decay, share, optim.warmup, optim.cooldown)
        self.unread.append(self.stepper.step(progress.step, batches, scale, turns))
        if self.average is not None:
            self.average.update(self.model)
        for name in turns:
            progress.drawn[name] += 1
        seconds = time.perf_counter() - began
        examples = sum(len(batch.labels) for _, batch in batches)
        progress.meter.examples += examples
        progress.meter.seconds += seconds
        progress.meter.data_seconds += loaded - began
        progress.step += 1
        progress.examples += examples
        progress.seconds += seconds

    def evaluate(self) -> Record:
        """Score the model, keep what is worth keeping, save, and start the next stretch."""
        self.read()
        began = time.perf_counter()
        evaluation = evaluate(
            self.scored,
            self.prepared.dev,
            self.prepared.assembler,
            alpha=self.config.loss.alpha,
            precision=self.prepared.precision,
        )
        record = self._record(evaluation)
        record["rows"] = sum(len(rows.labels) for rows in self.prepared.dev.values())
        record["evaluation_seconds"] = time.perf_counter() - began
        file = self.out / record["predictions"]
        file.parent.mkdir(exist_ok=True)  # fails if the run's folder went away
        write_predictions(file, evaluation.predictions)
        self.progress.history.append(record)
        self.progress.meter = Meter()
        self.save()
        with open(self.out / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def _record(self, evaluation: Evaluation) -> Record:
        progress, meter, scores = self.progress, self.progress.meter, evaluation.scores
        name = self._name()
        values = {OVERALL: scores.overall.value}
        values |= {task: score.value for task, score in scores.tasks.items()}
        best = [
            what
            for what, value in values.items()
            if what not in progress.best or value > progress.best[what]["value"]
        ]
        for what in best:
            progress.best[what] = {"value": values[what], "checkpoint": name}
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return {
            "step": progress.step,
            "examples": progress.examples,
            "progress": progress.step / self.prepared.steps,
            "score": scores.overall.value,
            "interval": [scores.overall.low, scores.overall.high],
            "tasks": {
                task.name: {
                    "metric": task.metric,
                    "value": scores.tasks[task.name].value,
                    "interval": [scores.tasks[task.name].low, scores.tasks[task.name].high],
                    "loss": evaluation.losses[task.name],
                    "train_loss": _mean(meter.losses.get(task.name), meter.counts.get(task.name)),
                }
                for task in self.prepared.tasks
            },
            "smart": _mean(meter.smart, meter.smart_steps),
            "simcse_loss": progress.simcse_loss,
            "gradient_norm": _mean(meter.norm, meter.steps),
            "learning_rates": [min(rates), max(rates)],
            "examples_per_second": _mean(meter.examples, meter.seconds),
            "data_share": _mean(meter.data_seconds, meter.seconds),
            "seconds": progress.seconds,
            "best": best,
            "checkpoint": name,
            "predictions": f"predictions/{name}.parquet",
        }

    def _best_that_is_whole(self) -> Record:
        """The best evaluation whose model is as it was written."""
        for record in sorted(self.progress.history, key=lambda r: -r["score"]):
            place = self.checkpoints / record["checkpoint"]
            if not (place / "model").is_dir():
                continue  # pruned: it was never the best of anything for long
            try:
                verify(place, "model/")
                return record
            except DamagedCheckpoint as fault:
                self.warn(f"checkpoint {place.name} is damaged ({fault}); taking the next best")
        remedy = "train again in a new folder"
        raise InputError(str(self.checkpoints), [f"no model in it is whole any more; {remedy}"])

    def finish(self) -> None:
        """The best model under its own name, and the summary."""
        record = self._best_that_is_whole()
        with atomic_folder(self.out / "model") as folder:
            for file in (self.checkpoints / record["checkpoint"] / "model").iterdir():
                link_or_copy(file, folder / file.name)
        summary = {
            "best": record,
            "best_per_task": {t: self.progress.best[t] for t in self.prepared.tasks.names},
            "baselines": self.prepared.inputs.baselines,
            "evaluations": len(self.progress.history),
            "steps": self.progress.step,
            "examples": self.progress.examples,
            "seconds": self.progress.seconds,
        }
        write_atomic(self.out / "summary.json", json.dumps(summary, indent=1) + "\n")


def machine(device: torch.device) -> str:
    """What decides the last digits of a sum: threads add up in another order."""
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{threads} thread{'s' if threads != 1 else ''} on {name}"


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _mean(total: float | None, count: float | None) -> float | None:
    return total / count if total is not None and count else None


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link costs no space; where the file system has none, a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
