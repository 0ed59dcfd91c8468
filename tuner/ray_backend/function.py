"""One run as a function trainable of plain Ray Tune, for those who search without our driver.

space = load_space("default")
search = OptunaSearch(space.suggest, metric="dev/overall", mode="max")
tune.Tuner(trainable(space), tune_config=tune.TuneConfig(search_alg=search)).fit()
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import tune

from tuner.ray_backend.trainable import with_unheard
from tuner.runs.folder import CHECKPOINTS, MODEL
from tuner.runs.state import OVERALL
from tuner.space.space import Space

__all__ = ["trainable"]

EXAMPLES = "examples"
FOLDER = "training"  # in a trial's working directory


def trainable(
    space: Space,
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | Path | None = None,
    checkpoints: bool = True,
) -> Callable[[dict[str, Any]], None]:
    """A function for `ray.tune.Tuner`. A trial's config is settings by their dotted keys, as
    `space.suggest` gives them or any others; `settings` go over them in every trial.

    Every evaluation is reported: `examples`, `dev/overall` and `dev/TASK`. With `checkpoints` each
    brings its model, an ordinary model folder, and a trial that Ray starts again on the same
    machine goes on from its last evaluation.
    """
    extra, place = dict(settings or {}), None if data is None else Path(data).absolute()

    def train_settings(config: dict[str, Any]) -> None:
        from model.train import train

        run = space.config(config, extra=extra)
        with working_folder() as out:
            records = train(run, space.task_set, out=out, data=place, resume=True)
            for record in with_unheard(records, out, known=known_examples()):
                with model_of(out, record, wanted=checkpoints) as checkpoint:
                    tune.report(metrics_of(record), checkpoint=checkpoint)

    return train_settings


def metrics_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation in plain values, as Ray's schedulers and searchers take them."""
    tasks = {f"dev/{name}": of["value"] for name, of in record["tasks"].items()}
    return {EXAMPLES: record["examples"], f"dev/{OVERALL}": record["score"], **tasks}


def known_examples() -> int:
    """At the last evaluation that Ray has, of a trial that it starts again."""
    checkpoint = tune.get_checkpoint()
    return 0 if checkpoint is None else int(checkpoint.get_metadata().get(EXAMPLES, 0))


@contextmanager
def working_folder() -> Iterator[Path]:
    """Where Ray has put this process; where it has not, a folder that goes with the trial."""
    if os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0":
        yield Path.cwd() / FOLDER
        return
    with tempfile.TemporaryDirectory(prefix="stockpot-tune-") as folder:
        yield Path(folder) / FOLDER


@contextmanager
def model_of(
    out: Path, record: Mapping[str, Any], *, wanted: bool
) -> Iterator[tune.Checkpoint | None]:
    """The evaluation's model for Ray to copy, in a folder of its own: Ray writes a note into it."""
    model = out / CHECKPOINTS / str(record.get("checkpoint")) / MODEL
    if not wanted or not model.is_dir():
        yield None
        return
    with tempfile.TemporaryDirectory(dir=out.parent, prefix="checkpoint-") as folder:
        shutil.copytree(model, folder, copy_function=os.link, dirs_exist_ok=True)
        checkpoint = tune.Checkpoint(folder)
        checkpoint.set_metadata({EXAMPLES: record["examples"]})
        yield checkpoint
