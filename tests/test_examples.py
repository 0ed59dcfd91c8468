"""The notebooks of examples/ run as they are, but for their parameters; the scripts as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.model.cs224n_files import write_cs224n

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SMALL = {"ENCODER": "tiny", "BUDGET": 320, "SETTINGS": {"budget.eval_rows": 20}}


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def parameters(notebook: Any) -> Any:
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    return cell


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_sound_and_holds_no_results(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert parameters(notebook)
    for cell in notebook.cells:
        assert cell.cell_type == "markdown" or not (cell.outputs or cell.execution_count)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_without_stockpot_says_what_to_set_and_shows_the_install(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = next(cell.source for cell in read(path).cells if cell.cell_type == "code")
    (install,) = [line.strip() for line in setup.splitlines() if line.strip().startswith("%pip")]
    ran: list[str] = []
    code = setup.replace(install, f"ran.append({install!r})")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="Set SOURCE above"):
        exec(code, {"ran": ran})
    exec(code.replace('SOURCE = ""', 'SOURCE = "x"'), {"ran": ran})
    assert ran == ['%pip install "stockpot[local] @ {SOURCE}"']  # which prints what it does


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = read(path)
    given = dict(SMALL)
    if path.stem == "cs224n":
        given["DATA"] = str(write_cs224n(tmp_path / "data"))
    parameters(notebook).source = "\n".join(f"{key} = {value!r}" for key, value in given.items())
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources=place).execute()
    said = "".join(
        out.get("text", "") + out.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        for out in cell.get("outputs", ())
    )
    assert "best trials" in said and "Predictor(" in said and ".parquet" in said


# As a user starts it, but for Ray, which the script leaves to itself: only this machine reaches it.
WITH_RAY = """
import runpy, sys
from tuner.ray_backend.session import ray_session
with ray_session(None):
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "start", "said"),
    [
        ("plain_optuna", [], ["best: trial ", "'optim.learning_rate': "]),
        ("plain_ray_tune", ["-c", WITH_RAY], ["best: overall ", "[Prediction(value="]),
    ],
)
def test_a_script_runs(name: str, start: list[str], said: list[str], tmp_path: Path) -> None:
    words = [sys.executable, *start, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in said), done.stdout
