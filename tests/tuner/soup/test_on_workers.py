"""What the workers of a soup are given, and how many there are; without Ray."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from ray.exceptions import RayActorError, RayTaskError

from model.config.parse import parse_settings
from model.config.settings import RunConfig
from model.evaluation.model_folder import save_model
from model.modules.encoder import load_encoder, load_tokenizer
from model.tasks.task_set import load_task_set
from model.training.checkpoint import write_manifest
from model.training.prepare import build_model, fill_in
from tuner.predict.predictor import load_predictor
from tuner.ray_backend import workers
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.session import Session
from tuner.ray_backend.staging import StagedInput, needed, pack, paths_in
from tuner.ray_backend.workers import NoWorker, WorkerPool
from tuner.runs.storage.storage import Storage
from tuner.search.on_workers import on_workers
from tuner.soup.__main__ import resources_of
from tuner.soup.ensemble_file import EnsembleMember
from tuner.soup.runner import EvaluationSpec, PooledRunner, RunnerThere

TWO = Resources(2, 1.0, 0.0)
FILES = ("init_from", "pretrain.simcse.text", "distill.teacher", "distill.text", "augment.mood")


def spec_in(folder: Path, **settings: Any) -> EvaluationSpec:
    return EvaluationSpec(
        run=str(folder),
        models=[],
        base=0,
        settings={**RunConfig().to_flat(), **settings},
        tasks="sample",
        data=None,
        fingerprint="",
        start=("tiny", None),
    )


def test_a_worker_has_every_file_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    files = {key: tmp_path / f"{key}.file" for key in FILES}
    for key, file in files.items():
        file.write_text(key)
    spec = spec_in(tmp_path, **{key: str(file) for key, file in files.items()})
    staged, _ = pack(needed(spec.paths()))
    there = RunnerThere(spec, {path: lambda of=of: of for path, of in staged.items()}).local.spec
    for key, file in files.items():
        assert there.settings[key] != str(file)
        assert Path(there.settings[key]).read_text() == key
    same = set(spec.settings) - set(files)
    assert all(there.settings[key] == spec.settings[key] for key in same)


def test_no_setting_that_names_a_file_is_forgotten() -> None:
    """By its meaning in the page of settings: what is not staged, a cluster lacks."""
    page = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {row[1].strip(" `") for row in rows if row[-2].strip().startswith("file")}
    keys = [name.replace("<task>", "mood") for name in named]
    assert keys and sorted(paths_in(dict.fromkeys(keys, "x"))) == sorted(keys)


def test_models_are_packed_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    class Sent:
        def __init__(self, value: StagedInput) -> None:
            assert not any(earlier() for earlier in sent)  # nothing of them is left here
            sent.append(weakref.ref(value))

    monkeypatch.setattr("tuner.ray_backend.workers.Stored", Sent)
    models = [tmp_path / name for name in "abc"]
    for model in models:
        model.mkdir()
        (model / "model.safetensors").write_text(model.name)
    spec = replace(spec_in(tmp_path), models=models)
    told: list[str] = []
    with on_workers(TWO, warn=told.append) as there:
        there.runner(spec)
        assert len(sent) == 3
        monkeypatch.setattr("tuner.ray_backend.staging.LARGEST", 0)
        there.runner(spec)
    assert len(sent) == 3 and len(told) == 1 and "are not sent" in told[0]


class Pool:
    """A worker in this process, asked as those of a cluster are."""

    size = 2

    def __init__(self, make: Callable[[], Any], resources: Resources, *told: Any) -> None:
        self.made, self.places = make(), {"here"}
        self.asked = 0

    def ask(self, *question: Any) -> Any:
        self.asked += 1
        return self.made(*question)

    def close(self) -> None:
        self.made.close()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> type[Pool]:
    monkeypatch.setattr("tuner.ray_backend.workers.WorkerPool", Pool)
    monkeypatch.setattr("tuner.ray_backend.workers.Stored", lambda value: lambda: value)
    return Pool


def save_models(run: Path, count: int) -> list[Path]:
    """As checkpoints of a run, each whole."""
    tasks = load_task_set("sample")
    config = fill_in(parse_settings({"encoder.name": "tiny"}, tasks))
    places = []
    for number in range(count):
        torch.manual_seed(number)
        model = build_model(config, tasks, load_encoder("tiny"))
        place = run / "trials" / f"t{number:04d}" / "checkpoints" / "step-00000008"
        save_model(place / "model", model, load_tokenizer("tiny"))
        write_manifest(place)
        places.append(place / "model")
    return places


TEXTS = {"sentiment": ["a fine film", "never dull", "often moving", "nobody laughed", "so so"]}


def test_models_in_storage_answer_rows_in_parts_as_they_do_here(
    tmp_path: Path, pool: type[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.search.on_workers.ROWS", 2)
    models = save_models(tmp_path / "run", 2)
    shutil.copytree(tmp_path / "run", tmp_path / "storage")
    ensemble = EnsembleMember("mean", tuple(models), (2.0, 1.0))
    predictor = replace(load_predictor(models[0]), parts={"sentiment": ensemble})
    here = predictor.answer_texts(TEXTS)["sentiment"]
    for model in models:  # so that the workers' are others
        (model / "heads.safetensors").write_bytes(b"")
    told: list[str] = []
    storage = Storage((tmp_path / "storage").as_uri())
    with on_workers(TWO, storage=storage, warn=told.append, log=told.append) as there:
        found = predictor.answer_texts(TEXTS, partial(there.answer, tmp_path / "run"))
        ((_, used),) = there.pools
    assert used.asked == 6 and told == ["rows were answered on here"]
    assert found["sentiment"].probabilities == pytest.approx(here.probabilities, abs=1e-6)
    assert found["sentiment"].values.tolist() == here.values.tolist()


def test_what_a_worker_cannot_fetch_is_done_here(tmp_path: Path, pool: type[Pool]) -> None:
    models = save_models(tmp_path / "run", 1)
    shutil.copytree(tmp_path / "run", tmp_path / "storage")
    stored = next((tmp_path / "storage").rglob("heads.safetensors"))
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    told: list[str] = []
    predictor = load_predictor(models[0])
    with on_workers(
        TWO, storage=Storage((tmp_path / "storage").as_uri()), warn=told.append
    ) as there:
        found = predictor.answer_texts(TEXTS, partial(there.answer, tmp_path / "run"))
    assert len(told) == 1 and "heads.safetensors" in told[0] and "here" in told[0]
    here = predictor.answer_texts(TEXTS)
    assert (found["sentiment"].values == here["sentiment"].values).all()


def test_room_that_was_waited_for_in_vain_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.01)
    monkeypatch.setattr(workers.ray, "wait", lambda signs, timeout: ([], signs))
    monkeypatch.setattr(WorkerPool, "_start", lambda pool: MagicMock())
    pool = WorkerPool(lambda: None, TWO, pytest.fail)
    with pytest.raises(NoWorker):
        pool.ask()
    monkeypatch.setattr(pool._changed, "wait", pytest.fail)
    with pytest.raises(NoWorker):
        pool.ask()


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nSee the manual")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (NoWorker("the cluster has no room"), "no worker answers (the cluster has no room)"),
        (FULL, "a worker could not answer (CUDA out of memory. Tried to allocate 2.00 GiB)"),
        (
            RayTaskError("ask", "Traceback\n ...", FULL).as_instanceof_cause(),
            "a worker could not answer (CUDA out of memory. Tried to allocate 2.00 GiB)",
        ),
        (RuntimeError(), "a worker could not answer (RuntimeError)"),
    ],
)
def test_what_no_worker_can_do_is_done_here_and_told_once(
    tmp_path: Path,
    pool: type[Pool],
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    said: str,
) -> None:
    def ask(pool: Pool, *question: Any) -> Any:
        raise fault

    monkeypatch.setattr(Pool, "ask", ask)
    monkeypatch.setattr("tuner.search.on_workers.ROWS", 2)  # so that there are three questions
    predictor, told = load_predictor(save_models(tmp_path / "run", 1)[0]), list[str]()
    with on_workers(TWO, shared=True, warn=told.append) as there:
        found = predictor.answer_texts(TEXTS, partial(there.answer, tmp_path / "run"))
    assert told == [f"{said}; evaluating here"]
    assert (found["sentiment"].values == predictor.answer_texts(TEXTS)["sentiment"].values).all()


def dying(monkeypatch: pytest.MonkeyPatch, *, starting: bool) -> WorkerPool:
    """Its workers die at once, or when they are asked."""

    def get(sign: Any) -> Any:
        if starting or sign is asked:
            raise RayActorError(error_msg="The actor died.\n\tpid: 7")
        return "host", 7

    asked, worker = object(), MagicMock()
    worker.ready.remote.side_effect = object
    worker.ask.remote.return_value = asked
    monkeypatch.setattr(workers.ray, "wait", lambda signs, timeout: (signs, []))
    monkeypatch.setattr(workers.ray, "get", get)
    monkeypatch.setattr(workers, "LOOK", 0.0)
    monkeypatch.setattr(WorkerPool, "_start", lambda pool: worker)
    monkeypatch.setattr(WorkerPool, "watch", MagicMock())
    return WorkerPool(lambda: None, TWO, lambda line: None)


def test_one_question_costs_four_workers_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = dying(monkeypatch, starting=False)
    said = r"^4 workers were lost by one question \(The actor died.\)$"
    with pytest.raises(NoWorker, match=said):
        pool.ask()


def test_workers_that_cannot_start_are_not_started_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = dying(monkeypatch, starting=True)
    with pytest.raises(NoWorker, match=r"^no worker starts \(The actor died.\)$"):
        pool.ask()
    monkeypatch.setattr(pool._changed, "wait", pytest.fail)  # nor waited for
    with pytest.raises(NoWorker):
        pool.ask()


def test_models_of_any_size_are_fetched_from_storage(
    tmp_path: Path, pool: type[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.ray_backend.staging.LARGEST", 0)
    spec = replace(spec_in(tmp_path / "run"), models=save_models(tmp_path / "run", 1))
    storage = Storage((tmp_path / "run").as_uri())
    with on_workers(TWO, storage=storage, warn=pytest.fail) as there:
        runner = there.runner(spec)
        assert isinstance(runner, PooledRunner) and runner.at_once == 2
        ((_, used),) = there.pools
        fetched = used.made.local.spec.models[0]
        assert fetched != spec.models[0] and (fetched / "heads.safetensors").is_file()
    assert not fetched.exists()  # it went with its worker


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([(8, 0), (4, 1)], Resources(1, 4, 1)),  # a head without a GPU
        ([(4, 1), (14, 1)], Resources(2, 4, 1)),
        ([(2, 0), (3, 0)], Resources(5, 1, 0)),
        ([(1.5, 0), (1.5, 0)], Resources(2, 1, 0)),
        ([(0, 0)], Resources(1, 1, 0)),  # whose machines are still to come
    ],
)
def test_every_worker_finds_room_on_one_machine(
    nodes: list[tuple[float, float]], expected: Resources, tmp_path: Path
) -> None:
    cpus, gpus = (sum(each) for each in zip(*nodes, strict=True))
    assert resources_of(Session(cpus, gpus, tmp_path, tuple(nodes))) == expected
