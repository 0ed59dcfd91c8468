"""What the workers of a soup are given, and how many there are; without Ray."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.config.settings import RunConfig
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.session import Session
from tuner.ray_backend.staging import StagedInput, needed, pack, paths_in
from tuner.search.on_workers import on_workers
from tuner.soup.__main__ import resources_of
from tuner.soup.runner import EvaluationSpec, RunnerThere

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
    with on_workers(Resources(2, 1.0, 0.0), shared=False, warn=told.append) as make:
        make(spec)
        assert len(sent) == 3
        monkeypatch.setattr("tuner.ray_backend.staging.LARGEST", 0)
        make(spec)
    assert len(sent) == 3 and len(told) == 1 and "are not sent" in told[0]


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
