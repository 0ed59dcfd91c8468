"""Evaluations of averages on the workers of a search, where the GPUs are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from model.training.inputs import Warn
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.staging import is_large, needed, pack_one
from tuner.soup.runner import EvaluationSpec, LocalRunner, PooledRunner, Runner, RunnerThere

MakeRunner = Callable[[EvaluationSpec], Runner]


@contextmanager
def on_workers(
    resources: Resources, *, shared: bool, warn: Warn, log: Warn = lambda line: None
) -> Iterator[MakeRunner]:
    """Makes runners for as long as the block lasts. `shared`: workers see the run's folder."""
    from tuner.ray_backend.workers import Stored, WorkerPool

    pools = []

    def make(spec: EvaluationSpec) -> Runner:
        large = [] if shared else [model for model in spec.models if is_large(str(model))]
        if large:
            warn(f"models of more than 1 GiB are not sent: {large[0]}; evaluating here")
            return LocalRunner(spec, warn)
        # One by one: together they may be more than the driver's memory.
        inputs = [path for path in needed(spec.paths()) if not is_large(path)]
        staged = {path: Stored(pack_one(path)) for path in dict.fromkeys(inputs)}
        models = None if shared else [Stored(pack_one(str(model))) for model in spec.models]
        pool = WorkerPool(partial(RunnerThere, spec, staged, models), resources, warn)
        pools.append(pool)
        return PooledRunner(pool)

    try:
        yield make
    finally:
        for pool in pools:
            pool.close()
        if places := sorted({place for pool in pools for place in pool.places}):
            log(f"averages were evaluated on {', '.join(places)}")
