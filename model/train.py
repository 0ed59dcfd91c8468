"""One run: `train` is a generator that yields a record at every evaluation.

    out/
      config.yaml         what was asked, with everything filled in
      metrics.jsonl       a line per evaluation
      predictions/        every dev example's answer at every evaluation
      checkpoints/        the last states, and the models that are the best of something
      model/              the best model, once the run is done
      summary.json        how it ended

An evaluation's record is yielded only after its checkpoint is safe, so whoever iterates may stop
there and go on later with `resume=True`. On the same CPU, with the same number of threads, the
result is the same to the byte; a GPU may add up in another order each time (docs/gpu.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# What is heavy is imported when a run starts: `--help` must not wait for torch.
if TYPE_CHECKING:
    from model.config.settings import RunConfig
    from model.tasks.task_set import TaskSet
    from model.training.prepare import ProcessCache
    from model.training.progress import Progress, Record

__all__ = ["train"]


def train(
    config: RunConfig,
    tasks: TaskSet,
    *,
    out: Path,
    data: Path | None = None,
    resume: bool = False,
    device: str | None = None,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = print,
    watch: Callable[[Progress, int], None] = lambda progress, steps: None,
    heartbeat: float | None = None,
    cache: ProcessCache | None = None,
    may_save: Callable[[], None] = lambda: None,
    written: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Train one run in `out`. When `stop()` turns true, the state is saved and the run ends.

    `watch` hears of every step: where the run stands, and how many steps its stage has. With
    `heartbeat`, a short record {"heartbeat": True, "examples": ..., "doing": "training"} comes
    between evaluations, about every so many seconds, for whoever has to decide things in between,
    and one before each evaluation. Runs that share a
    `cache` start faster. `may_save` is asked before anything is written into `out`, and raises
    where the folder is somebody else's by now. `written` is called in the thread that has written
    a checkpoint while training goes on, as on a GPU, before the evaluation's record is yielded.

    Raises `InputError` for what the user can mend and `TrainingDiverged` for a loss that is
    no longer a number.
    """
    from model.training.prepare import prepare
    from model.training.progress import Heartbeat
    from model.training.run import TASKS, TrainingRun
    from model.training.run_lock import check_folder, hold

    out = Path(out)
    check_folder(out, resume=resume)
    known = out.exists()
    prepared = prepare(config, tasks, data=data, device=device, warn=warn, cache=cache)
    with hold(out, known=known):
        check_folder(out, resume=resume)  # again: another run may have come and gone meanwhile
        run = TrainingRun(prepared, out, data, warn, may_save, written)
        if not (resume and run.restore()):
            run.start_fresh()
        run.begin()
        beat = Heartbeat(heartbeat)
        try:
            yield from run.pretrain(stop, watch, beat)
            if run.progress.stage == TASKS:
                yield from run.fine_tune(stop, watch, beat)
                if run.progress.step >= prepared.steps:
                    run.finish()
        finally:
            run.close()


if __name__ == "__main__":
    from model.cli.command import main

    raise SystemExit(main())
