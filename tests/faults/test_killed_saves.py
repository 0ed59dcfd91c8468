"""An evaluation killed at every file it opens, renames, removes or syncs: always a clean resume."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import model.evaluation.model_folder
import model.training.checkpoint
from model.config.parse import parse_settings
from model.tasks.task_set import load_task_set
from model.train import train
from model.training.checkpoint import MANIFEST, load_latest
from tests.faults.fatal_points import FatalPoints, forked
from tests.model.test_resume import QUICK, same_result

SETTINGS = {**QUICK, "budget.eval_rows": 10, "schedule.name": "batch_round_robin"}
EVERY = 20  # of all points, one in so many is trained to its end


class Points(FatalPoints):
    def install(self) -> None:
        super().install()
        for place in (model.training.checkpoint, model.evaluation.model_folder):
            place.save_file = self._torn(place.save_file)  # type: ignore[attr-defined]

    def _torn(self, save: Any) -> Any:
        """The tensors' files are written outside Python: nothing of it, half of it, all of it."""

        def save_file(tensors: Any, path: Path) -> None:
            self.reached("before tensors")
            if self.count + 1 == self.fatal:
                save(tensors, path)
                os.truncate(path, Path(path).stat().st_size // 2)
            self.reached("half of the tensors")
            save(tensors, path)
            self.reached("after tensors")

        return save_file


def run(out: Path, **options: Any) -> Iterator[dict[str, Any]]:
    tasks = load_task_set("sample")
    return train(parse_settings(SETTINGS, tasks), tasks, out=out, **options)


def weights(folder: Path) -> dict[str, str]:
    sums = json.loads((folder / MANIFEST).read_text())
    return {name: value for name, value in sums.items() if name != "state/state.json"}


def linked(source: str, target: str) -> None:
    """Tensors are never written in place: of dozens of copies they are the greater part."""
    (os.link if source.endswith(".safetensors") else shutil.copy2)(source, target)


def no_warning(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_evaluation_killed_at_any_file_or_sync_resumes_cleanly(tmp_path: Path) -> None:
    out, whole, kept = tmp_path / "run", tmp_path / "whole", tmp_path / "kept"
    saved: dict[str, dict[str, str]] = {}
    for record in run(whole):
        name = record["checkpoint"]
        saved[name] = weights(whole / "checkpoints" / name)

    records = run(out)
    first, second = next(records), next(records)  # two are there, so the third one prunes
    shutil.copytree(out, kept)

    def go_on(fatal: int | None, writer: int) -> None:
        points = Points(fatal)
        points.install()
        next(records)
        os.write(writer, json.dumps(points.names).encode())

    names = json.loads(forked(lambda writer: go_on(None, writer)))
    assert {"before fsync", "half of the tensors", "os.rename", "os.rmdir"} <= set(names)
    assert len(names) > 60
    stood = set()
    for fatal in range(1, len(names) + 1):
        shutil.rmtree(out)
        shutil.copytree(kept, out, copy_function=linked)
        assert forked(lambda writer, n=fatal: go_on(n, writer)) == b""
        found = load_latest(out / "checkpoints", no_warning)
        assert found is not None, names[fatal - 1]
        assert weights(found.folder) == saved[found.folder.name]
        stood.add(found.folder.name)
        if fatal % EVERY == 0:
            list(forked_to_the_end(out))
            same_result(whole, out)
    assert stood == {second["checkpoint"], list(saved)[2]}
    assert first["checkpoint"] not in stood
    records.close()


def forked_to_the_end(out: Path) -> list[str]:
    """Resumed by another process, as after a crash; the folder is still held by this one."""
    (out / ".lock").unlink()
    forked(lambda writer: list(run(out, resume=True, warn=no_warning)))
    assert (out / "summary.json").exists()
    return [p.name for p in out.iterdir()]
