"""Who runs an average on the dev rows: this process, or others that are asked to.

`EvaluationSpec` is all that it takes, so that a worker on another machine can do it as well: the
driver of a cluster often has no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import torch
from torch import Tensor

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.data.batches import Assembler
from model.evaluation.evaluate import Rows, evaluate
from model.evaluation.model_folder import read_model
from model.modules.device import evaluation_precision, find_device
from model.modules.encoder import load_encoder, load_tokenizer
from model.tasks.task_set import load_task_set
from model.training.inputs import Warn, load_inputs
from model.training.prepare import fill_in
from tuner.ray_backend.models import Bring, FetchedModels
from tuner.ray_backend.resources import give_back_memory
from tuner.ray_backend.staging import Localizer, StagedInput, paths_in
from tuner.runs.scratch import scratch_folder
from tuner.soup.average import ENCODER, SoupModel
from tuner.soup.combinations import TaskCombinations


@dataclass(frozen=True)
class DevData:
    """The dev rows of a run, to run a model on."""

    rows: Mapping[str, Rows]
    precision: torch.dtype


@dataclass(frozen=True)
class EvaluationSpec:
    run: str
    models: Sequence[Path]  # folders of the ingredients
    base: int  # whose configuration an average gets
    settings: Mapping[str, Any]  # of the run's default configuration
    tasks: str
    data: str | None
    fingerprint: str
    start: tuple[str, str | None]  # the encoder and the `init_from` that the group began with
    several_encoders: bool = False  # then those that are averaged may have another tokenizer

    def paths(self) -> list[str | None]:
        """What it names beside the models and may be of this machine alone."""
        return [self.data, self.tasks, *self.start, *paths_in(self.settings).values()]

    def moved(self, there: Localizer, models: Sequence[Path]) -> EvaluationSpec:
        """For another machine, whose paths `there` knows."""
        encoder, init_from = self.start
        return replace(
            self,
            models=models,
            settings=there.settings(self.settings),
            tasks=there.tasks(self.tasks),
            data=self.data and there.path(self.data),
            start=(there.path(encoder), init_from and there.path(init_from)),
        )


class Runner(Protocol):
    at_once: int  # evaluations that it can be asked for side by side

    def run(self, combinations: TaskCombinations) -> pa.Table:
        """What averages with one trunk answer to the dev rows of their tasks."""
        ...


class LocalRunner:
    """One model in this process, that takes on one average after the other."""

    at_once = 1

    def __init__(self, spec: EvaluationSpec, warn: Warn = print) -> None:
        self.spec, self.warn = spec, warn

    @cached_property
    def data(self) -> DevData:
        """Read the run's data, and make sure that they are what the search saw."""
        spec, tasks = self.spec, load_task_set(self.spec.tasks)
        config = fill_in(parse_settings(spec.settings, tasks))
        place = None if spec.data is None else Path(spec.data)
        inputs = load_inputs(config, tasks, place, load_tokenizer(config.encoder.name), self.warn)
        if inputs.fingerprint != spec.fingerprint:
            fault = "the data are not those of the search"
            raise InputError(spec.run, [f"{fault}; name the folder where they are with --data"])
        if spec.several_encoders:
            tokenizer = load_tokenizer(str(spec.models[spec.base]))
            inputs = load_inputs(config, tasks, place, tokenizer, lambda line: None)
        rows = {name: of.dev for name, of in inputs.tasks.items()}
        return DevData(rows, evaluation_precision(config.precision, find_device(None)))

    @cached_property
    def soup_model(self) -> SoupModel:
        return SoupModel(self.spec.models, self.spec.base, find_device(None), self._start)

    def _start(self) -> dict[str, Tensor]:
        """The weights that all of the group began with."""
        give_back_memory(device=False)  # what evaluations left: now a second model comes
        encoder, init_from = self.spec.start
        if init_from:
            return dict(read_model(Path(init_from))[0].state_dict())
        weights = load_encoder(encoder).state_dict()
        return {ENCODER + name: tensor for name, tensor in weights.items()}

    def run(self, combinations: TaskCombinations) -> pa.Table:
        alone = {combination.single for combination in combinations.values()}
        if len(alone) == 1 and (number := alone.pop()) is not None:
            return self._run_alone(number, list(combinations))
        data = self.data  # first: if they are others, nothing else counts
        model, tokenizer = self.soup_model.average(combinations)
        rows = {task: data.rows[task] for task in combinations}
        assembler = Assembler.of(tokenizer, model.spec.max_length)
        return evaluate(model, rows, assembler, precision=data.precision).predictions

    def _run_alone(self, number: int, tasks: Sequence[str]) -> pa.Table:
        """One ingredient as it is, which need not fit the others."""
        spec = replace(self.spec, base=number)
        data = self.data if not spec.several_encoders else LocalRunner(spec, self.warn).data
        model, tokenizer = read_model(spec.models[number])
        assembler = Assembler.of(tokenizer, model.spec.max_length)
        rows = {task: data.rows[task] for task in tasks}
        there = model.to(find_device(None))
        return evaluate(there, rows, assembler, precision=data.precision).predictions


# --- elsewhere ----------------------------------------------------------------------------------


class PooledRunner:
    """Workers elsewhere, each with a runner that `RunnerThere` made."""

    def __init__(self, ask: Callable[[TaskCombinations], pa.Table], at_once: int) -> None:
        self.ask, self.at_once = ask, at_once

    def run(self, combinations: TaskCombinations) -> pa.Table:
        return self.ask(combinations)


class RunnerThere:
    """A runner on another machine, with its paths: called with combinations.

    `staged` are inputs that the driver's machine has; `models` bring the ingredients' folders, if
    the other machine does not see them. They come when they are needed, and go with the runner.
    """

    def __init__(
        self,
        spec: EvaluationSpec,
        staged: Mapping[str, Callable[[], StagedInput]],
        models: Sequence[Bring] | None = None,
    ) -> None:
        self.stack = ExitStack()
        folders: Sequence[Path] = spec.models
        if models is not None:
            folders = FetchedModels(models, self.stack.enter_context(scratch_folder()))
        self.local = LocalRunner(spec.moved(Localizer(staged), folders))

    def __call__(self, combinations: TaskCombinations) -> pa.Table:
        return self.local.run(combinations)

    def close(self) -> None:
        self.stack.close()
