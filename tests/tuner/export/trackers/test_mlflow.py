"""To MLflow, and read back by its own client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
pytest.importorskip("mlflow", reason="needs pip install '.[mlflow]'")

# Of MLflow's own making, with the versions that are pinned here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from mlflow import MlflowClient  # noqa: E402

from tests.tuner.export.trackers.read_back import mlflow as state_of  # noqa: E402
from tests.tuner.export.trackers.read_back import mlflow_runs as runs_of  # noqa: E402
from tests.tuner.export.trackers.runs import (  # noqa: E402
    SECRET,
    add_soup,
    events_of,
    export,
    fail,
    recorded,
    snapshot_of,
    until,
    without_last_trial,
    write_events,
)
from tuner.export.__main__ import main  # noqa: E402
from tuner.export.trackers.follow import Exporter  # noqa: E402
from tuner.export.trackers.mlflow import FILES, KEY, Mlflow  # noqa: E402
from tuner.export.trackers.source import RunSource  # noqa: E402
from tuner.runs.folder import RUN  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take longest of all."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").get_experiment_by_name("stockpot")
    return path


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: Path) -> str:
    monkeypatch.chdir(tmp_path)  # where MLflow puts artifacts
    shutil.copy(empty, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture(scope="module")
def at_once(empty: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What MLflow has of the whole run, exported once."""
    place = tmp_path_factory.mktemp("whole")
    shutil.copy(empty, place / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        uri = f"sqlite:///{place}/mlflow.db"
        export(recorded(place), Mlflow(uri, "stockpot"))
        return state_of(uri)


def test_a_parent_with_a_child_for_each_trial(run: Path, uri: str) -> None:
    now = export(run, Mlflow(uri, "stockpot"))
    found = state_of(uri)
    assert found.keys() == {now.search.key, *(trial.key for trial in now.trials.values())}
    info, parent, params, tags, points, files = found[now.trials["t0001"].key]
    assert info[:2] == (now.trials["t0001"].name, "FINISHED") and parent == now.search.key
    assert params["optim.learning_rate"] == "0.0002" and tags["origin"] == "start_from"
    curve = [(step, value) for name, step, value, _ in points if name == "dev/overall"]
    wanted = [(p.step, p.values["dev/overall"]) for p in now.trials["t0001"].points]
    assert curve == wanted and len(curve) == 3
    assert {"best/overall_low", "best/overall_high"} <= {name for name, *_ in points}
    (_, _, _, tags, points, files) = found[now.search.key]
    assert "report.html" in files and tags["best_trial"] in now.trials
    assert [step for name, step, *_ in points if name == "best/overall"] == [1, 2, 3]


def test_again_and_again_is_the_same(run: Path, uri: str, at_once: dict[str, Any]) -> None:
    for _ in range(3):
        export(run, Mlflow(uri, "stockpot"))
        assert state_of(uri) == at_once


def test_in_parts_it_comes_to_the_same_as_at_once(
    run: Path, uri: str, at_once: dict[str, Any]
) -> None:
    whole = until(run, 3)
    for count in (3, 5, 12, 16, len(whole)):
        until(run, count, whole)
        export(run, Mlflow(uri, "stockpot"))
    assert state_of(uri) == at_once


class Killed(BaseException):
    pass


@pytest.mark.parametrize("calls", [1, 3, 5, 9, 17])
def test_killed_anywhere_and_again_it_is_the_same(
    run: Path, uri: str, at_once: dict[str, Any], calls: int
) -> None:
    with pytest.raises(Killed):
        export(run, dies_after(Mlflow(uri, "stockpot"), calls))
    assert len(runs_of(uri)) >= 1
    export(run, Mlflow(uri, "stockpot"))
    assert state_of(uri) == at_once


def dies_after(destination: Mlflow, calls: int) -> Mlflow:
    """After so many writes of its client."""
    left = [calls]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return call(*given, **named)

        return called

    for name in ("create_run", "log_batch", "set_tag", "set_terminated", "update_run"):
        setattr(destination.client, name, counted(getattr(destination.client, name)))
    return destination


def test_what_the_ledger_says_otherwise_by_now_is_replaced(run: Path, uri: str) -> None:
    """An evaluation that was done again after a crash, a trial that a `--force` cut off."""
    export(run, Mlflow(uri, "stockpot"))
    events = events_of(run)
    events[3] |= {"score": 0.1}
    write_events(run, [event for event in events if event.get("trial") != "t0002"])
    now = export(run, Mlflow(uri, "stockpot"))
    found = state_of(uri)
    assert len(found) == 3
    points = found[now.trials["t0000"].key][4]
    at = [value for name, step, value, _ in points if (name, step) == ("dev/overall", 192)]
    assert at == [0.1]


def test_a_trial_that_a_force_cut_off_goes_also_while_the_run_is_followed(
    run: Path, uri: str
) -> None:
    exporter = Exporter(RunSource(run), lambda: Mlflow(uri, "stockpot"), fail)
    exporter.once()
    cut = without_last_trial(run)
    exporter.once()
    assert len(state_of(uri)) == 3 and cut not in state_of(uri)


def test_a_search_that_goes_on_with_more_trials_keeps_its_run_and_what_people_noted_there(
    run: Path, uri: str
) -> None:
    before = ask_for(run, num_samples=3, keep=5)
    exporter = Exporter(RunSource(run), lambda: Mlflow(uri, "stockpot"), fail)
    key = exporter.once().search.key
    parent = run_of(uri, key)
    assert parent.data.tags["num_samples"] == "3" and parent.data.params["seed"] == "5"
    MlflowClient(uri).set_tag(parent.info.run_id, "mlflow.note.content", "the good one")
    ask_for(run, **{**before, "num_samples": 7, "keep": 9, "distill": True})
    exporter.once()
    again = run_of(uri, key)
    assert again.info.run_id == parent.info.run_id
    assert again.data.tags["mlflow.note.content"] == "the good one"
    told = {name: again.data.tags[name] for name in ("num_samples", "keep", "distill")}
    assert told == {"num_samples": "7", "keep": "9", "distill": "True"}


def test_no_trial_is_orphaned_when_the_search_s_run_is_made_anew(run: Path, uri: str) -> None:
    """By a ledger that was cut back while it was followed."""
    exporter = Exporter(RunSource(run), lambda: Mlflow(uri, "stockpot"), fail)
    key = exporter.once().search.key
    parent = run_of(uri, key).info.run_id
    without_last_trial(run)
    exporter.once()
    assert run_of(uri, key).info.run_id != parent
    assert [parent for _, parent, *_ in state_of(uri).values()].count(key) == 2


def ask_for(run: Path, **request: Any) -> dict[str, Any]:
    """As a `--resume` writes it; returns the whole request."""
    said = yaml.safe_load((run / RUN).read_text())
    said["request"] |= request
    (run / RUN).write_text(yaml.safe_dump(said))
    return dict(said["request"])


def run_of(uri: str, key: str) -> Any:
    (found,) = (each for each in runs_of(uri) if each.data.tags[KEY] == key)
    return found


def test_a_search_that_goes_on_runs_again(run: Path, uri: str) -> None:
    events = events_of(run)
    end = {"event": "end", "time": events[4]["time"], "reason": "interrupted"}
    write_events(run, [*events[:5], end])
    now = export(run, Mlflow(uri, "stockpot"))
    assert [each[0][1] for each in state_of(uri).values()] == ["KILLED", "KILLED"]
    again = {**events[0], "time": events[4]["time"] + 1, "resumed": True, "epoch": 2}
    write_events(run, [*events[:5], end, again])
    export(run, Mlflow(uri, "stockpot"))
    found = state_of(uri)
    assert found[now.search.key][0][1] == "RUNNING" and len(found) == 2


def test_no_secret_arrives(
    run: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    export(run, Mlflow(uri, "stockpot"))
    for path in tmp_path.rglob("*"):
        if path.is_file() and run not in path.parents:
            assert SECRET.encode() not in path.read_bytes(), path


def test_files_that_did_not_change_are_not_sent_again(run: Path, uri: str) -> None:
    export(run, Mlflow(uri, "stockpot"))
    destination = Mlflow(uri, "stockpot")
    sent: list[str] = []
    send = destination.client.log_artifact
    destination.client.log_artifact = lambda run, path, inside=None: (  # type: ignore[method-assign]
        sent.append(Path(path).name),
        send(run, path, inside),
    )
    (run / "report.html").write_text("another page")
    export(run, destination)
    assert sent == ["report.html"]
    tagged = [each for each in runs_of(uri) if FILES in each.data.tags]
    assert len(tagged) == 1


def test_the_soup_goes_along_as_a_model_folder_and_once(
    run: Path, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(run), "--out", uri, "--quiet", "--soup", "--to"]
    assert main([*words, "mlflow"]) == 0
    assert "has no soup to send" in capsys.readouterr().err
    add_soup(run)
    assert main([*words, "mlflow"]) == 0
    files = state_of(uri)[snapshot_of(run).search.key][5]
    for name in ("model.safetensors", "heads.safetensors"):
        assert files[f"soup/{name}"] == (run / "soup" / name).read_bytes()
    assert files["soup/config.json"].strip() == b"{}"  # no path of this machine
    monkeypatch.setattr("mlflow.MlflowClient.log_artifact", pytest.fail)
    assert main([*words, "mlflow"]) == 0
    (run / "soup" / "notes.txt").write_text("not for everybody")
    assert main([*words, "mlflow"]) == main([*words, "csv"]) == 2
    said = capsys.readouterr().err
    assert "'notes.txt' is not part of a model" in said and "--to csv takes no files" in said
