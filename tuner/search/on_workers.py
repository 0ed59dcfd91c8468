"""What comes after the trials on the workers of a search, where the GPUs are.

Averages are evaluated there, and the models of a teacher answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.common.secrets import brief
from model.evaluation.predictions import Predictions, join_predictions
from model.training.checkpoint import DamagedCheckpoint
from model.training.inputs import Warn
from tuner.predict.predictor import LastModel, Question
from tuner.ray_backend.models import Bring, FetchedModels, InStorage, Sent
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.staging import is_large, needed, pack_one
from tuner.runs.scratch import scratch_folder
from tuner.runs.storage.storage import Storage, StorageLost
from tuner.soup.runner import EvaluationSpec, LocalRunner, PooledRunner, Runner, RunnerThere

if TYPE_CHECKING:
    from tuner.ray_backend.workers import WorkerPool

MakeRunner = Callable[[EvaluationSpec], Runner]
ROWS = 4096  # of one question, so that all workers have some to the end


@contextmanager
def on_workers(
    resources: Resources,
    *,
    shared: bool = False,
    storage: Storage | None = None,
    warn: Warn,
    log: Warn = lambda line: None,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Workers]:
    """`shared`: workers see the run's folder. `storage`: they fetch its models from there; the
    driver sends them otherwise. `stop` is asked while somebody waits for one, and raises what ends
    that."""
    workers = Workers(resources, shared, storage, warn, stop)
    try:
        yield workers
    finally:
        for done, pool in workers.pools:
            pool.close()
            if pool.places:
                log(f"{done} on {', '.join(sorted(pool.places))}")


class Workers:
    def __init__(
        self,
        resources: Resources,
        shared: bool,
        storage: Storage | None,
        warn: Warn,
        stop: Callable[[], None],
    ) -> None:
        self.resources, self.shared, self.storage = resources, shared, storage
        self.warn, self.stop = warn, stop
        self.pools: list[tuple[str, WorkerPool]] = []  # with what they did, in words

    def runner(self, spec: EvaluationSpec) -> Runner:
        """Who evaluates averages."""
        from tuner.ray_backend.workers import Stored

        local = LocalRunner(spec, self.warn)
        if not self.shared and self.storage is None:
            if large := [model for model in spec.models if is_large(str(model))]:
                fault = f"models of more than 1 GiB are not sent: {large[0]}"
                self.warn(f"{fault}; evaluating here")
                return local
        # One by one: together they may be more than the driver's memory.
        inputs = [path for path in needed(spec.paths()) if not is_large(path)]
        staged = {path: Stored(pack_one(path)) for path in dict.fromkeys(inputs)}
        make = partial(RunnerThere, spec, staged, self._brought(spec.models, Path(spec.run)))
        ask, at_once = self._asked("averages were evaluated", make, local.run)
        return PooledRunner(ask, at_once)

    def answer(self, run: Path, questions: Sequence[Question]) -> list[Predictions]:
        """Models of a run answer rows: many rows in parts, as many at once as there are slots."""
        folders = list(dict.fromkeys(question.folder for question in questions))
        make = partial(AnswersThere, folders, self._brought(folders, run))
        ask, at_once = self._asked("rows were answered", make, AnswersThere(folders, None))
        parts = [
            (number, (folders.index(q.folder), q.task, q.rows[start : start + ROWS], q.tokens))
            for number, q in enumerate(questions)
            for start in range(0, max(1, len(q.rows)), ROWS)
        ]
        found: list[list[Predictions]] = [[] for _ in questions]
        with ThreadPoolExecutor(at_once) as threads:
            try:
                answers = threads.map(lambda part: ask(*part[1]), parts)
                for (number, _), answer in zip(parts, answers, strict=True):
                    found[number].append(answer)
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        return list(map(join_predictions, found))

    def _brought(self, models: Sequence[Path], run: Path) -> list[Bring] | None:
        """How each comes to a worker; None where they are seen there."""
        from tuner.ray_backend.workers import Stored

        if self.shared:
            return None
        if self.storage is None:
            return [Sent(Stored(pack_one(str(model)))) for model in models]
        stored, home = Stored(self.storage), run.resolve()
        places = [model.resolve().parent.relative_to(home) for model in models]
        return [InStorage(stored, place.as_posix()) for place in places]

    def _asked(
        self, done: str, make: Callable[[], Any], here: Callable[..., Any]
    ) -> tuple[Callable[..., Any], int]:
        """Who asks the workers, and how many there are. What they cannot do is done here, and all
        where there are none any more."""
        from tuner.ray_backend.workers import NoWorker, WorkerPool

        pool = WorkerPool(make, self.resources, self.warn, self.stop)
        self.pools.append((done, pool))
        alone, told = threading.Lock(), set[str]()

        def ask(*question: Any) -> Any:
            try:
                return pool.ask(*question)
            except NoWorker as error:
                what, why = "no worker answers", str(error)
            except (StorageLost, DamagedCheckpoint) as error:
                what, why = "a worker could not fetch a model", in_short(error)
            except Exception as error:  # a full GPU, say; any other comes again here
                what, why = "a worker could not answer", in_short(error)
            with alone:
                if what not in told:
                    self.warn(f"{what} ({why}); evaluating here")
                told.add(what)
                return here(*question)

        return ask, pool.size


def in_short(error: Exception) -> str:
    """The first line of what a worker raised, which Ray hands on with a traceback."""
    said = str(getattr(error, "cause", error)).strip().splitlines()
    return brief(said[0] if said else type(error).__name__, 120)


class AnswersThere:
    """Models on another machine that answer rows: called with a model's number and the rows."""

    def __init__(self, folders: Sequence[Path], models: Sequence[Bring] | None) -> None:
        self.stack, self.model = ExitStack(), LastModel()
        self.folders = folders
        if models is not None:
            self.folders = FetchedModels(models, self.stack.enter_context(scratch_folder()))

    def __call__(self, number: int, task: str, rows: Any, tokens: Any) -> Predictions:
        return self.model.answer(Question(self.folders[number], task, rows, tokens))

    def close(self) -> None:
        self.stack.close()
