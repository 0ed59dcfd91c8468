"""A run at work in its folder: its stages, its evaluations, its checkpoints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from model import __version__
from model.common.errors import InputError
from model.common.files import to_yaml, write_atomic
from model.common.rng import rng_seed, seed_rng
from model.common.run_files import CONFIG, METRICS
from model.common.untrusted import REMEDY, inside
from model.data.prefetch import Prefetch, with_next
from model.evaluation.evaluate import evaluate, outputs_of
from model.evaluation.model_folder import ModelTensors, read_model, save_model
from model.evaluation.predictions import Predictions, write_predictions
from model.evaluation.scores import measure
from model.modules.encoder import layers_of, other_dropouts
from model.modules.multitask import MultitaskModel
from model.objectives.schedules import Round
from model.objectives.simcse import simcse_loss
from model.objectives.uncertainty import Uncertainty
from model.tasks.task_set import describe_task, task_changes
from model.training.averaging import Averaged
from model.training.checkpoint import (
    KEPT_MODELS,
    STATE,
    Restored,
    checkpoint_name,
    clean_leftovers,
    load_latest,
)
from model.training.finish import publish_best
from model.training.inputs import Warn, sampled
from model.training.optim import (
    add_scalars,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    progress_scale,
)
from model.training.prepare import PreparedRun, Turns, start_from
from model.training.progress import Heartbeat, Meter, Progress, Record, mean, state_fault
from model.training.readings import Reader, UnreadStep
from model.training.saving import SavePoint, Writer, on_host, saves_in_background
from model.training.step import Stepper

SIMCSE, TASKS = "simcse", "tasks"
COPY = "copy."  # the momentum copy's tensors in a checkpoint
RAW = "raw."  # the weights that are trained, where the model's own are their average
LOSS, VARIANCE = "loss.", "variance."  # learned weights of losses: their names, their values
LOOK = 2.0  # seconds between looks at what the device has found, at least
SIMCSE_SEED = 1_000_003  # keeps its draws apart from those of the steps on tasks
Stop = Callable[[], bool]
Watch = Callable[[Progress, int], None]


class TrainingRun:
    """A prepared run at work in its folder."""

    def __init__(
        self,
        prepared: PreparedRun,
        out: Path,
        data: Path | None,
        warn: Warn,
        may_save: Callable[[], None] = lambda: None,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self.prepared = prepared
        self.config = prepared.config
        self.model = prepared.model
        self.out = out
        self.data = data
        self.warn = warn
        self.may_save = may_save
        self.progress = Progress(stage=SIMCSE if prepared.simcse else TASKS)
        self.progress.drawn = dict.fromkeys(prepared.streams, 0)
        self.lora = prepared.config.encoder.adapter == "lora"
        self.unread: list[UnreadStep] = []
        self.look = Heartbeat(LOOK)
        self.writer = Writer(saves_in_background(prepared.device), written)
        background = prepared.device.type == "cuda"
        # Of `prepared`, not of the run: in a cycle it would outlive its end, with all its tensors.
        self.batches = Prefetch(prepared.batches_of, background=background)
        self.sentences = Prefetch(prepared.sentences_of, background=background)
        self.untold: Record | None = None  # of an evaluation that is not safe yet
        self.reader = Reader(float16=prepared.precision == torch.float16)

    def _enter_stage(self) -> None:
        """A fresh optimiser (and momentum copy) for the stage that begins."""
        optim, simcse = self.config.optim, self.config.pretrain.simcse
        alone, own = self.progress.stage == SIMCSE, simcse.weight_decay
        assert optim.learning_rate is not None  # filled in by prepare
        named = self.model.named_parameters()
        self.optimizer = make_optimizer(
            [(n, p) for n, p in named if n.startswith("encoder.")] if alone else named,
            layers=len(layers_of(self.model.encoder)),
            learning_rate=(simcse.learning_rate if alone else None) or optim.learning_rate,
            head_learning_rate=optim.head_learning_rate,
            weight_decay=own if alone and own is not None else optim.weight_decay,
            decay_all=optim.decayed == "all",
            layer_decay=optim.layer_decay,
            betas=optim.betas,
            epsilon=optim.epsilon,
        )
        tasks = self.prepared.tasks
        loss, uncertainty = self.config.loss, None
        if loss.weighting == "uncertainty" and not alone:
            uncertainty = Uncertainty({t.name: t.kind for t in tasks}, self.prepared.device)
            add_scalars(
                self.optimizer,
                {LOSS + task: s for task, s in uncertainty.log_variances.items()},
                rate=loss.weighting_rate,
                depth=len(layers_of(self.model.encoder)) + 2,
            )
        self.stepper = Stepper(
            self.model,
            self.optimizer,
            self.config,
            weights=self.config.training_weights(tasks),
            bregman=0.0 if alone else self.config.smart.bregman,
            uncertainty=uncertainty,
            precision=self.prepared.precision,
        )
        share = 0.0 if alone else self.config.average.share
        self.average = Averaged(self.model, share, self.progress.step) if share else None

    @property
    def scored(self) -> MultitaskModel:
        """The model as it is evaluated and saved."""
        return self.model if self.average is None else self.average.model

    def close(self) -> None:
        """However the run ends, nothing of it is left at work."""
        self.batches.close()
        self.sentences.close()
        self.writer.close()

    # --- the folder -------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def begin(self) -> None:
        self.may_save()
        clean_leftovers(self.out)
        described = {
            "stockpot": __version__,
            "tasks": self.prepared.tasks.origin,
            "data": None if self.data is None else str(self.data),
            "settings": self.config.to_flat(),
        }
        write_atomic(self.out / CONFIG, to_yaml(described))
        lines = "".join(json.dumps(record) + "\n" for record in self.progress.history)
        write_atomic(self.out / METRICS, lines)

    def start_fresh(self) -> None:
        self._start_weights()
        self._enter_stage()

    def _start_weights(self) -> None:
        if self.config.init_from:
            start_from(self.model, Path(self.config.init_from), self.warn)

    def restore(self) -> bool:
        """Go on from the youngest checkpoint that is whole; False if there is none."""
        saved = load_latest(self.checkpoints, self.warn)
        if saved is None:
            return False
        self._check_state(saved)
        if (here := machine(self.prepared.device)) != (there := saved.state.get("machine")):
            self.warn(f"going on with {here} where it was {there}: the last digits may differ")
        if faults := self._changes(saved.state):
            raise InputError(str(self.out), faults)
        self.progress = Progress.from_dict(saved.state["progress"])
        if self.lora:  # saved is what it was merged into: the weights beneath are as at the start
            self._start_weights()
        else:
            before, _ = read_model(saved.folder / "model")
            self.model.load_state_dict(before.state_dict())
        self._enter_stage()
        others = (COPY, RAW, VARIANCE)
        rest = {n: t for n, t in saved.tensors.items() if not n.startswith(others)}
        load_optimizer_tensors(self.optimizer, rest)
        if self.stepper.uncertainty is not None:
            for task, value in _part(saved.tensors, VARIANCE).items():
                self.stepper.uncertainty.log_variances[task].data.copy_(value)
        if scaler := saved.state.get("scaler"):
            self.stepper.scaler.load_state_dict(scaler)
        if self.stepper.copy is not None:
            self.stepper.copy.load_state_dict(_part(saved.tensors, COPY))
        # Of averaged weights, what was loaded is the average.
        if self.average is not None or self.lora:
            self.model.load_state_dict(_part(saved.tensors, RAW), strict=False)
        return True

    def _check_state(self, saved: Restored) -> None:
        """Its files are as they were signed, which a stranger can do as well."""
        if fault := state_fault(saved.state):
            raise InputError(str(saved.folder / STATE), [f"{fault}; {REMEDY}"])
        progress = saved.state["progress"]
        for entry in (*progress.get("best", {}).values(), *progress.get("history", [])):
            inside(self.checkpoints, entry["checkpoint"])

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

    def save(self) -> None:
        """Save all that resuming needs, at once."""
        self.may_save()
        self.writer.write(self._save_point(copies=False))
        self.writer.wait()

    def _save_point(self, *, copies: bool) -> SavePoint:
        """All that resuming needs as it is now; as copies, where training goes on meanwhile."""
        self.read()
        tensors = dict(optimizer_tensors(self.optimizer))
        if self.stepper.copy is not None:
            tensors |= {COPY + n: t for n, t in self.stepper.copy.state_dict().items()}
        if self.average is not None or self.lora:
            trained = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
            tensors |= {RAW + n: p for n, p in trained}
        if self.stepper.uncertainty is not None:
            learned = self.stepper.uncertainty.log_variances
            tensors |= {VARIANCE + task: value for task, value in learned.items()}
        model, prepared = self.scored, self.prepared
        of_model = ModelTensors.of(model)
        if copies:
            of_model = ModelTensors(on_host(of_model.encoder), on_host(of_model.own))
        sizes = [t.numel() * t.element_size() for t in model.state_dict().values()]
        return SavePoint(
            folder=self.checkpoints / self._name(),
            model_size=sum(sizes),
            write_model=lambda folder: save_model(
                folder, model, prepared.tokenizer, prepared.tasks.class_names, of_model
            ),
            tensors=on_host(tensors) if copies else tensors,
            state={
                "fingerprint": self.prepared.inputs.fingerprint,
                "tasks": self._described_tasks(),
                "machine": machine(self.prepared.device),
                "progress": asdict(self.progress),
                "scaler": self.stepper.scaler.state_dict(),  # of float16; else empty
            },
            kept=frozenset(
                entry["checkpoint"]
                for entry in (*self.progress.best.values(), *self.progress.history[-KEPT_MODELS:])
            ),
        )

    def _name(self) -> str:
        before = 0 if self.progress.stage == SIMCSE else self.prepared.simcse_steps
        return checkpoint_name(before + self.progress.step)

    # --- the stages -------------------------------------------------------------------------

    def pretrain(self, stop: Stop, watch: Watch, heartbeat: Heartbeat) -> Iterator[Record]:
        """SimCSE, if asked for; the next stage begins when it is through."""
        stream, simcse = self.prepared.simcse, self.config.pretrain.simcse
        if stream is None or self.progress.stage != SIMCSE:
            return
        pooling = None if simcse.pooling == "auto" else simcse.pooling
        self.model.train()
        with other_dropouts(self.model.encoder, simcse.dropout, simcse.attention_dropout):
            yield from self._simcse(pooling, stop, watch, heartbeat)
        if self.progress.step < self.prepared.simcse_steps:  # it was asked to stop
            return
        self.read()
        meter = self.progress.meter
        self.progress.simcse_loss = mean(meter.losses.get(SIMCSE), meter.counts.get(SIMCSE))
        self.progress.meter = Meter()
        self.progress.stage, self.progress.step = TASKS, 0
        self._enter_stage()
        self.save()

    def _simcse(
        self,
        pooling: str | None,
        stop: Stop,
        watch: Watch,
        heartbeat: Heartbeat,
    ) -> Iterator[Record]:
        simcse, steps = self.config.pretrain.simcse, self.prepared.simcse_steps
        every = self.config.budget.eval_every or 1
        for number, following in with_next(range(self.progress.step, steps)):
            if stop():
                self.save()
                return
            if heartbeat.due():
                yield self._heartbeat_record()
            seed_rng(rng_seed(self.config.seed, SIMCSE_SEED, number), self.prepared.device)
            batch = self.sentences.get(number, following)
            share, optim = (number + 1) / (steps + 1), self.config.optim
            scale = progress_scale(optim.decay, share, optim.warmup, optim.cooldown)

            def loss() -> torch.Tensor:
                first = self.model.encode(batch, pooling)  # noqa: B023
                second = self.model.encode(batch, pooling)  # noqa: B023
                return simcse_loss(first, second, simcse.temperature, simcse.negatives)

            self.unread.append(self.stepper.step_on(number, SIMCSE, loss, scale))
            self.progress.step = number + 1
            self.glance()
            watch(self.progress, steps)
            if (number + 1) * simcse.batch_size // every > number * simcse.batch_size // every:
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

    def _heartbeat_record(self, doing: str = "training") -> Record:
        self.read()
        at = {"step": self.progress.step, "examples": self.progress.examples}
        return {"heartbeat": True, "doing": doing, **at}

    def fine_tune(self, stop: Stop, watch: Watch, heartbeat: Heartbeat) -> Iterator[Record]:
        progress, steps = self.progress, self.prepared.steps
        self.model.train()
        for tasks, following in with_next(self.prepared.rounds(progress.step)):
            if stop():
                yield from self._tell()
                self.save()
                return
            if self.untold is None and heartbeat.due():
                yield self._heartbeat_record()
            before = progress.examples
            try:
                self.advance(tasks, following)
                self.glance()
            except Exception:  # it takes nothing back of what was evaluated before
                yield from self._tell()
                raise
            watch(progress, steps)
            if self._is_due(before, progress.examples) or progress.step == steps:
                yield from self._tell()
                if heartbeat.seconds is not None:
                    yield self._heartbeat_record("evaluating")
                self.evaluate()
            if self.writer.done:
                yield from self._tell()
        yield from self._tell()

    def _tell(self) -> Iterator[Record]:
        """The record of the last evaluation, once its checkpoint is safe."""
        if self.untold is None:
            return
        self.writer.wait()
        record, self.untold = self.untold, None
        self.may_save()
        with open(self.out / METRICS, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        yield record

    def _is_due(self, before: int, now: int) -> bool:
        """Whether an evaluation falls into the step from so many examples to so many."""
        budget = self.config.budget
        if budget.eval_at is not None:
            return any(before < point <= now for point in budget.eval_at)
        assert budget.eval_every is not None  # filled in by prepare
        return now // budget.eval_every > before // budget.eval_every

    def advance(self, tasks: Round, following: Round | None = None) -> None:
        """One step on a batch of each of these tasks; those of the next round are begun."""
        progress, optim, names = self.progress, self.config.optim, self.prepared.tasks.names
        began = time.perf_counter()
        turns = {names[task]: progress.drawn[names[task]] for task in tasks}
        batches = self.batches.get(
            tuple(turns.items()),
            None if following is None else self._turns_after(turns, following),
        )
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

    def _turns_after(self, turns: Mapping[str, int], following: Round) -> Turns:
        """Which batch of each task the next round has."""
        names, drawn = self.prepared.tasks.names, self.progress.drawn
        return tuple((names[t], drawn[names[t]] + (names[t] in turns)) for t in following)

    def evaluate(self) -> None:
        """Score the model, keep what is worth keeping, save, and start the next stretch."""
        self.read()
        began = time.perf_counter()
        evaluation = evaluate(
            self.scored,
            self.prepared.dev,
            self.prepared.assembler,
            loss_options=self.config.loss.options,
            precision=self.prepared.precision,
        )
        rates = [group["lr"] for group in self.optimizer.param_groups]
        record = self.progress.record(
            evaluation.scores,
            evaluation.losses,
            metrics={task.name: task.metric for task in self.prepared.tasks},
            steps=self.prepared.steps,
            rates=(min(rates), max(rates)),
            name=self._name(),
            also=evaluation.also,
            trained=self._train_scores(),
        )
        record["rows"] = sum(len(rows.labels) for rows in self.prepared.dev.values())
        record["evaluation_seconds"] = time.perf_counter() - began
        self.may_save()
        file = self.out / record["predictions"]
        file.parent.mkdir(exist_ok=True)  # fails if the run's folder went away
        write_predictions(file, evaluation.predictions)
        self.progress.history.append(record)
        self.progress.meter = Meter()
        self.writer.write(self._save_point(copies=self.writer.background))
        self.untold = record

    def _train_scores(self) -> dict[str, float] | None:
        """Each task's metric on some of its training rows, if asked for: the same in every run."""
        most = self.config.budget.train_rows
        if most is None:
            return None
        found = {}
        for task in self.prepared.tasks:
            inputs = self.prepared.inputs.tasks[task.name]
            rows = sampled(inputs.real, most)
            outputs = outputs_of(
                *(self.scored, task.name, inputs.train, self.prepared.assembler),
                precision=self.prepared.precision,
                rows=rows,
            )
            answers = Predictions.of_outputs(self.model.tasks[task.name], outputs).values
            found[task.name] = measure(task.metric, inputs.labels[rows], answers, task.classes)
        return found

    def finish(self) -> None:
        """The best model under its own name, and the summary."""
        self.may_save()
        publish_best(self.out, self.progress, self.prepared.inputs.baselines, self.warn)


def machine(device: torch.device) -> str:
    """What decides the last digits of a sum: threads add up in another order."""
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return f"{threads} thread{'s' if threads != 1 else ''} on {name}"


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
