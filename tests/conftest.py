"""Fixtures that several files use: everything small, offline, and the same on every machine."""

from __future__ import annotations

import os
import sys

# Read when the library is first imported, which test files do before any fixture runs.
os.environ["HF_HUB_OFFLINE"] = "1"
# As in an active environment: commands to copy are then told by their names alone.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from model.data.batches import Assembler, Batch
from model.data.tokens import Tokens, encode_texts
from model.modules.encoder import load_encoder, load_tokenizer
from model.modules.multitask import ModelSpec, MultitaskModel, TaskSpec
from model.tasks.task_set import TaskSet, load_task_set
from tests.installed import build_wheel, install
from tests.shared_ray import SHARED_RAY, SharedRay

# A busy machine must not fail a test, nor a lucky draw pass it.
settings.register_profile("stockpot", deadline=None, derandomize=True)
settings.load_profile("stockpot")


LONGEST = (  # files of more than a minute
    "test_new_user.py",
    "test_examples.py",
    "test_search_faults.py",
    "test_early_scores.py",
    "test_followed_search.py",
    "test_outcome.py",
    "test_killed_drivers.py",
    "test_drained_node.py",
    "test_search_signals.py",
    "test_study_storage.py",
    "test_lost_storage.py",
    "test_search.py",
    "test_cut_ledger.py",
    "test_resume.py",
    "test_faulty_search.py",
    "test_remote.py",
    "test_report.py",
    "test_train.py",
    "test_run.py",
    "test_sampling.py",
    "test_starved_ray.py",
    "test_workers.py",
    "test_distill.py",
    "test_composition.py",
    "test_simulation.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that nobody waits for one of them in the end."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session", autouse=True)
def by_itself(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No cache of the user's, no network, one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOCKPOT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        torch.set_num_threads(1)
        yield


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """`threads(2)`: so many for torch, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def two_replicas(threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads, and a replica however small the work."""
    threads(2)
    monkeypatch.setattr("model.training.replicas.WORTH", 0)


@pytest.fixture(scope="session")
def tasks() -> TaskSet:
    return load_task_set("sample")


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[SharedRay]:
    """For tests that need a Ray of their own, to stop this one: `shared_ray.stop()`."""
    yield SHARED_RAY
    SHARED_RAY.stop()


@pytest.fixture(scope="module")
def ray(shared_ray: SharedRay) -> None:
    shared_ray.start()


def make_task(name: str = "mood", **changes: Any) -> TaskSpec:
    settings: dict[str, Any] = {
        "name": name,
        "kind": "classes",
        "classes": 3,
        "low": 0.0,
        "high": 2.0,
        "pair": False,
        "clean": "none",
        "encoding": "single",
        "outputs": 3,
        "loss": "cross_entropy",
        "metric": "accuracy",
    }
    return TaskSpec(**{**settings, **changes})


MOOD = make_task("mood")
SAME = make_task(
    "same",
    kind="binary",
    classes=2,
    high=1.0,
    pair=True,
    encoding="cross",
    outputs=1,
    loss="binary_cross_entropy",
)
NEAR = make_task(
    "near",
    kind="regression",
    classes=0,
    high=5.0,
    pair=True,
    encoding="bi_difference",
    outputs=1,
    loss="mse",
    metric="pearson",
)


def make_model(
    tasks: Sequence[TaskSpec] = (MOOD, SAME, NEAR),
    *,
    dropout: float | None = None,
    encoder: torch.nn.Module | None = None,
    seed: int = 0,
    **changes: Any,
) -> MultitaskModel:
    """A model on the tiny encoder; `dropout` is that of the encoder and of the heads."""
    settings: dict[str, Any] = {
        "tasks": tuple(tasks),
        "pooling": "mean",
        "max_length": 64,
        "head_hidden": 0,
        "head_activation": "gelu",
        "head_dropout": 0.1 if dropout is None else dropout,
        "adapter": "none",
        "adapter_size": 8,
        "adapter_heads": 2,
    }
    if encoder is None:
        encoder = load_encoder("tiny", dropout=dropout, attention_dropout=dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MultitaskModel(encoder, ModelSpec(**{**settings, **changes}))


@pytest.fixture(scope="session")
def task_of() -> Callable[..., TaskSpec]:
    """Makes a task of a model: `task_of("mood", classes=4)`."""
    return make_task


@pytest.fixture(scope="session")
def model_of() -> Callable[..., MultitaskModel]:
    """Makes a model: `model_of([task, ...], dropout=0.0, pooling="cls")`."""
    return make_model


@pytest.fixture
def tiny() -> MultitaskModel:
    """Three tasks: `mood` of single sentences, `same` and `near` of pairs."""
    return make_model()


@pytest.fixture
def calm(model_of: Callable[..., Any]) -> Callable[..., MultitaskModel]:
    """Makes the same model without dropout again and again, in training mode.

    Its heads are large enough for differences to show.
    """

    def make(dropout: float = 0.0, **changes: Any) -> MultitaskModel:
        model: MultitaskModel = model_of(dropout=dropout, **changes)
        with torch.no_grad():
            for weights in model.heads.parameters():
                weights.mul_(20)
        return model.train()

    return make


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return load_tokenizer("tiny")


@pytest.fixture(scope="session")
def assembler(tokenizer: Any) -> Assembler:
    return Assembler.of(tokenizer, 64)


WORDS = ("ash", "bee", "cod", "dew", "elm", "fig", "gnu", "hay", "ivy", "jay", "kelp", "lime")


@pytest.fixture(scope="session")
def texts_of() -> Callable[..., Any]:
    """`texts_of(task, 5)`: so many sentences or pairs of all lengths, by a seed."""

    def texts(task: TaskSpec, count: int, seed: int = 0) -> list[Any]:
        rng = np.random.default_rng(seed)

        def sentence() -> str:
            return " ".join(rng.choice(WORDS, size=rng.integers(1, 12)))

        return [(sentence(), sentence()) if task.pair else sentence() for _ in range(count)]

    return texts


@pytest.fixture(scope="session")
def batch_of(assembler: Assembler, tokenizer: Any, texts_of: Callable[..., Any]) -> Any:
    """`batch_of(task, 6)`: a batch of random sentences with labels that suit the task."""

    def batch(task: TaskSpec, count: int = 6, seed: int = 0) -> Batch:
        rng = np.random.default_rng(seed)
        drawn = rng.uniform(task.low, task.high, size=count)
        labels = drawn if task.kind == "regression" else np.round(drawn)
        tokens = tokens_of(task, texts_of(task, count, seed), tokenizer)
        return assembler.batch(tokens, np.arange(count), layout=task.layout, labels=labels)

    return batch


def tokens_of(task: TaskSpec, texts: Sequence[Any], tokenizer: Any) -> Tokens:
    if not task.pair:
        return encode_texts(list(texts), None, tokenizer)
    return encode_texts([a for a, _ in texts], [b for _, b in texts], tokenizer)


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Callable[[str, Callable[[Path], None]], Path]:
    """`once("wheel", make)`: a folder that `make` fills, one for all workers of these tests."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent

    def made(name: str, make: Callable[[Path], None]) -> Path:
        place, unfinished = base / f"once-{name}", base / f"once-{name}.tmp"
        with FileLock(base / f"once-{name}.lock"):
            if not place.exists():
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(place)
        return place

    return made


@pytest.fixture(scope="session")
def wheel(once: Callable[..., Path]) -> Path:
    (found,) = once("wheel", build_wheel).glob("*.whl")
    return found


@pytest.fixture(scope="session")
def installed(once: Callable[..., Path], wheel: Path) -> Path:
    """The folder that the wheel is installed into."""
    return once("installed", lambda place: install(wheel, place))
