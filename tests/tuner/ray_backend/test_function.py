"""The trainable for plain Ray Tune, with Ray's side of it made up; the real one: test_examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune

from model import load_model
from model.common.errors import InputError
from tuner.ray_backend.function import trainable
from tuner.space.space import Space, load_space

SHORT = {"budget.examples": 96, "budget.eval_every": 32, "budget.eval_rows": 10}
SHORT |= {"batch.sizes": 4}
STEPS = [36, 72, 96]  # examples at the ends of rounds of all tasks


@pytest.fixture(scope="module")
def space() -> Space:
    return load_space("default", tasks="sample", overrides={"encoder.name": "tiny"})


class Tune:
    """What a trial sees of Ray Tune. It may be killed after so many reports."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.models: list[str] = []
        self.last: dict[str, Any] | None = None
        self.kill_after = 0

    def report(self, metrics: dict[str, Any], *, checkpoint: Any = None) -> None:
        self.reports.append(metrics)
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                self.models.append(type(load_model(folder)).__name__)
            self.last = checkpoint.get_metadata()
        if len(self.reports) == self.kill_after:
            raise KeyboardInterrupt

    def get_checkpoint(self) -> Any:
        if self.last is None:
            return None
        return type("Checkpoint", (), {"get_metadata": lambda _: self.last})()


@pytest.fixture
def ray_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    made = Tune()
    monkeypatch.setattr(tune, "report", made.report)
    monkeypatch.setattr(tune, "get_checkpoint", made.get_checkpoint)
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "1")
    monkeypatch.chdir(tmp_path)
    return made


def test_every_evaluation_is_reported_with_its_model(space: Space, ray_tune: Tune) -> None:
    trainable(space, SHORT)({"optim.learning_rate": 1e-4})
    assert [each["examples"] for each in ray_tune.reports] == STEPS
    names = {"dev/overall", "dev/sentiment", "dev/paraphrase", "dev/similarity"}
    assert all(each.keys() == names | {"examples"} for each in ray_tune.reports)
    assert len(ray_tune.models) == 3
    assert [path.name for path in Path().iterdir()] == ["training"]  # no copies are left


def test_a_trial_that_is_started_again_goes_on_and_tells_nothing_twice(
    space: Space, ray_tune: Tune
) -> None:
    ray_tune.kill_after = 2
    with pytest.raises(KeyboardInterrupt):
        trainable(space, SHORT)({"optim.learning_rate": 1e-4})
    first = (Path("training") / "metrics.jsonl").read_text()
    ray_tune.kill_after = 0
    trainable(space, SHORT)({"optim.learning_rate": 1e-4})
    assert [each["examples"] for each in ray_tune.reports] == STEPS
    assert (Path("training") / "metrics.jsonl").read_text().startswith(first)


def test_without_checkpoints_and_without_a_folder_of_ray_s_nothing_is_left(
    space: Space, ray_tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
    trainable(space, SHORT, checkpoints=False)({})
    assert len(ray_tune.reports) == 3 and ray_tune.models == [] and not list(Path().iterdir())


def test_settings_that_are_none_are_refused(space: Space, ray_tune: Tune) -> None:
    with pytest.raises(InputError, match="optim.lerning_rate"):
        trainable(space, SHORT)({"optim.lerning_rate": 1e-4})
    assert ray_tune.reports == []
