"""Everything a run needs before its first step: data, model, and the plan of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from model.common.errors import InputError
from model.config.packages import missing_packages
from model.config.settings import RunConfig
from model.data.batches import Assembler, Batch, TaskStream
from model.evaluation.evaluate import Rows
from model.evaluation.model_folder import read_model
from model.modules.compiled import compile_layers, wants_compile
from model.modules.device import find_device, place, precision_on
from model.modules.embeddings import embedding_module
from model.modules.encoder import (
    MINILM,
    TINY,
    checkpoint_gradients,
    choose_trained,
    encoder_defaults,
    has_pooler,
    hidden_dropout,
    layers_of,
    load_encoder,
    load_tokenizer,
    longest_input,
)
from model.modules.heads import outputs_for
from model.modules.lora import attach_lora, is_lora, plain_name
from model.modules.multitask import ModelSpec, MultitaskModel, TaskSpec
from model.objectives.schedules import STAGED, Round, RoundPlan, rounds_of
from model.tasks.task_set import Task, TaskSet
from model.training.inputs import Inputs, Warn, inputs_key, load_inputs
from model.training.planning import evaluation_points, plan_rounds, untrained

Turns = tuple[tuple[str, int], ...]  # tasks, and which of its batches each has

LORA_RATE = 10.0  # times the encoder's own: a rule of thumb, not measured here


class ProcessCache:
    """What the runs of one process have in common, so that the next one starts at once."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Hashable, Any]] = {}

    def keep(self, what: str, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value made for this key; only the last one of each sort is kept."""
        if what not in self._kept or self._kept[what][0] != key:
            self._kept[what] = (key, make())
        return self._kept[what][1]


@dataclass(frozen=True)
class PreparedRun:
    config: RunConfig  # with everything that was left open filled in
    tasks: TaskSet
    model: MultitaskModel
    tokenizer: Any
    assembler: Assembler
    inputs: Inputs
    streams: dict[str, TaskStream]
    simcse: TaskStream | None
    plan: RoundPlan
    steps: int
    device: torch.device
    precision: torch.dtype

    @property
    def dev(self) -> dict[str, Rows]:
        return {name: of_task.dev for name, of_task in self.inputs.tasks.items()}

    @property
    def simcse_steps(self) -> int:
        epochs = self.config.pretrain.simcse.epochs
        return 0 if self.simcse is None else max(1, round(epochs * self.simcse.per_pass))

    def rounds(self, done: int) -> Iterator[Round]:
        """What is left to do after so many rounds."""
        return islice(rounds_of(self.config.schedule.name, self.plan), done, self.steps)

    def batches_of(self, turns: Turns) -> list[tuple[str, Batch]]:
        return [(name, place(self.streams[name].batch(turn), self.device)) for name, turn in turns]

    def sentences_of(self, number: int) -> Batch:
        assert self.simcse is not None  # or nobody asks
        return place(self.simcse.batch(number), self.device)


def prepare(
    config: RunConfig,
    tasks: TaskSet,
    *,
    data: Path | None = None,
    device: str | None = None,
    warn: Warn = print,
    cache: ProcessCache | None = None,
) -> PreparedRun:
    """Get a run ready. Runs that share a `ProcessCache` read and tokenise their data only once."""
    cache = cache or ProcessCache()
    config = fill_in(config)
    where = find_device(device)
    precision = precision_on(config.precision, where)
    faults = missing_packages("surgery", (config.surgery,))
    faults += missing_packages("encoder.adapter", (config.encoder.adapter,))
    if faults:
        raise InputError("settings", faults)
    name = config.encoder.name
    tokenizer = cache.keep("tokenizer", name, lambda: load_tokenizer(name))
    encoder = load_encoder(
        name, dropout=config.encoder.dropout, attention_dropout=config.encoder.attention_dropout
    )
    limit = longest_input(encoder)
    if config.encoder.max_length > limit:
        fault = f"{config.encoder.max_length} is beyond this encoder's {limit} positions"
        raise InputError("encoder.max_length", [fault])
    assembler = Assembler.of(tokenizer, config.encoder.max_length).on(where)
    model = build_model(config, tasks, encoder)
    check_layers(config, model)
    check_pooler(config, model)
    if config.smart.weight > 0:
        embedding_module(encoder, config.smart.where)  # or say at once that there is none
    inputs = cache.keep(
        "inputs",
        inputs_key(config, tasks, data),
        lambda: load_inputs(config, tasks, data, tokenizer, warn),
    )
    streams = {
        task.name: TaskStream(
            inputs.tasks[task.name].train,
            inputs.tasks[task.name].labels,
            size,
            seed_key=(config.seed, number),
            layout=model.tasks[task.name].layout,
            assembler=assembler,
            answers=inputs.tasks[task.name].answers,
        )
        for number, (task, size) in enumerate(zip(tasks, config.batch_sizes(tasks), strict=True))
    }
    real = {name: of_task.real for name, of_task in inputs.tasks.items()}
    plan, steps = plan_rounds(config, tasks, streams, real)
    for task in untrained(config.schedule.name, plan, steps, tasks):
        warn(f"the budget ends before '{task}' has its first batch; raise budget.examples")
    cut = plan.first_epochs < config.schedule.first_epochs and config.schedule.name in STAGED
    if cut and config.schedule.epochs is None:  # with it, all epochs are short, as was asked for
        warn(
            f"schedule.first_epochs is cut from {config.schedule.first_epochs:g} to "
            f"{plan.first_epochs:.3g}, half of budget.examples"
        )
        config = replace(config, schedule=replace(config.schedule, first_epochs=plan.first_epochs))
    prepared = PreparedRun(
        config=replace(config, budget=evaluation_points(config, plan, steps, streams)),
        tasks=tasks,
        model=model.to(where),
        tokenizer=tokenizer,
        assembler=assembler,
        inputs=inputs,
        streams=streams,
        simcse=simcse_stream(config, inputs, assembler, model),
        plan=plan,
        steps=steps,
        device=where,
        precision=precision,
    )
    steps += prepared.simcse_steps
    if wants_compile(config.compile, where, config.encoder.adapter, steps):
        compile_layers(encoder, if_possible=config.compile == "auto")
    return prepared


def check_layers(config: RunConfig, model: MultitaskModel) -> None:
    count = len(layers_of(model.encoder))
    faults = [
        f"optim.layer_scale.layers.{task} names layer {layer}; this encoder has 0 to {count - 1}"
        for task, layers in config.optim.layer_scale.layers.items()
        for layer in layers
        if layer >= count
    ]
    if faults:
        raise InputError("settings", faults)


def check_pooler(config: RunConfig, model: MultitaskModel) -> None:
    simcse = config.pretrain.simcse
    poolings = {"encoder.pooling": config.encoder.pooling}
    if simcse.epochs > 0:
        poolings["pretrain.simcse.pooling"] = simcse.pooling
    without = "this encoder has no pooler; choose cls or mean"
    faults = [f"{key}: {without}" for key, pooling in poolings.items() if pooling == "pooler"]
    if faults and not has_pooler(model.encoder):
        raise InputError("settings", faults)


def fill_in(config: RunConfig) -> RunConfig:
    """What the run leaves to the encoder, and paths that hold wherever it is resumed from."""
    name = config.encoder.name
    if name not in (MINILM, TINY) and Path(name).is_dir():
        name = str(Path(name).absolute())
    fit = encoder_defaults(name)
    pooling = fit.pooling if config.encoder.pooling == "auto" else config.encoder.pooling
    own = fit.learning_rate * (LORA_RATE if config.encoder.adapter == "lora" else 1.0)
    rate = (config.optim.learning_rate or own) * config.optim.rate_scale
    return replace(
        config,
        encoder=replace(config.encoder, name=name, pooling=pooling),
        optim=replace(config.optim, learning_rate=rate, rate_scale=1.0),
        augment={task: str(Path(path).absolute()) for task, path in config.augment.items()},
        init_from=config.init_from and str(Path(config.init_from).absolute()),
        distill=replace(
            config.distill,
            teacher=config.distill.teacher and str(Path(config.distill.teacher).absolute()),
            text=config.distill.text and str(Path(config.distill.text).absolute()),
        ),
        pretrain=replace(
            config.pretrain,
            simcse=replace(
                config.pretrain.simcse,
                text=config.pretrain.simcse.text
                and str(Path(config.pretrain.simcse.text).absolute()),
            ),
        ),
    )


def build_model(config: RunConfig, tasks: TaskSet, encoder: nn.Module) -> MultitaskModel:
    """The model with fresh heads; they depend on the seed and nothing else."""
    choose_trained(encoder, frozen=config.encoder.frozen, layers=config.encoder.train_layers)
    if config.encoder.adapter == "lora":
        attach_lora(
            encoder,
            rank=config.encoder.lora_rank,
            alpha=config.encoder.lora_alpha,
            dropout=config.encoder.lora_dropout,
            targets=config.encoder.lora_targets,
            seed=config.seed,
        )
    if config.encoder.gradient_checkpointing:
        checkpoint_gradients(encoder)
    width = int(encoder.config.hidden_size)  # type: ignore[union-attr,arg-type]
    hidden, dropout = config.head.hidden, config.head.dropout
    spec = ModelSpec(
        tasks=tuple(task_spec(config, task) for task in tasks),
        pooling=config.encoder.pooling,
        max_length=config.encoder.max_length,
        head_hidden=width if hidden == "width" else int(hidden),
        head_layers=config.head.layers,
        head_activation=config.head.activation,
        head_dropout=hidden_dropout(encoder) if dropout is None else dropout,
        # What is saved is merged: an ordinary encoder.
        adapter="none" if config.encoder.adapter == "lora" else config.encoder.adapter,
        adapter_size=config.encoder.adapter_size,
        adapter_heads=config.encoder.adapter_heads,
        segments=config.pair.segments,
        learning_rate=config.optim.learning_rate or 2e-5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return MultitaskModel(encoder, spec)


def task_spec(config: RunConfig, task: Task) -> TaskSpec:
    encoding = config.encoding_of(task)
    return TaskSpec(
        name=task.name,
        kind=task.kind,
        classes=task.classes,
        low=task.low,
        high=task.high,
        pair=task.pair,
        clean=task.source.clean,
        encoding=encoding,
        outputs=outputs_for(task.kind, task.classes, config.logits_of(task)),
        loss=config.loss_of(task),
        metric=task.metric,
    )


def start_from(model: MultitaskModel, folder: Path, warn: Warn) -> None:
    """Take the encoder of another run's model, and the heads and PALs of the same shape."""
    other, _ = read_model(folder)
    own_name = {plain_name(name): name for name in model.state_dict() if not is_lora(name)}
    mine = {plain: model.state_dict()[name] for plain, name in own_name.items()}
    theirs = other.state_dict()
    faults = [
        f"'{name}' is {list(theirs[name].shape) if name in theirs else 'missing'} there "
        f"and {list(tensor.shape)} here; start from a model with the same encoder"
        for name, tensor in mine.items()
        if name.startswith("encoder.")
        and (name not in theirs or theirs[name].shape != tensor.shape)
    ]
    if faults:
        raise InputError(f"init_from {folder}", faults[:5])
    fits = {n: t for n, t in theirs.items() if n in mine and mine[n].shape == t.shape}
    fresh = []
    for task in model.tasks:
        # All of a task's own tensors, or none: half of a head is worth nothing.
        prefixes = (f"heads.task_{task}.", f"pals.tasks.task_{task}.")
        own = [name for name in mine if name.startswith(prefixes)]
        if not all(name in fits for name in own):
            fresh.append(task)
            for name in own:
                fits.pop(name, None)
    model.load_state_dict({own_name[name]: t for name, t in fits.items()}, strict=False)
    if fresh:
        warn(f"init_from {folder}: the heads of {', '.join(fresh)} start anew")


def simcse_stream(
    config: RunConfig, inputs: Inputs, assembler: Assembler, model: MultitaskModel
) -> TaskStream | None:
    """Batches of sentences for SimCSE."""
    if inputs.simcse is None:
        return None
    if not model.shared_parameters():
        fault = "SimCSE trains the encoder, but encoder.frozen leaves nothing of it to train"
        raise InputError("pretrain.simcse", [fault])
    return TaskStream(
        inputs.simcse,
        np.zeros(len(inputs.simcse)),
        config.pretrain.simcse.batch_size,
        seed_key=(config.seed, len(inputs.tasks)),
        layout="single",
        assembler=assembler,
    )
