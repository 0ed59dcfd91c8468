"""The search from end to end, on the tiny encoder; kills and signals have files of their own."""

from __future__ import annotations

import os
import pickletools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from optuna.trial import TrialState
from pyarrow import parquet

from model.common.errors import InputError
from model.common.files import sha256_of
from model.config.parse import parse_settings
from model.tasks.task_set import load_task_set
from model.train import train
from model.training.checkpoint import checkpoints_in
from tests.model.cs224n_files import write_cs224n
from tests.tuner.search_runs import (
    ROOT,
    SMALL,
    MixedTrial,
    RaisingTrial,
    command,
    curves_of,
    events,
    open_study,
    run_here,
    settings,
    state_of,
)
from tuner import run_search
from tuner.runs.open import open_run
from tuner.runs.scratch import PREFIX, short_temporary_folder
from tuner.search.__main__ import main
from tuner.space.space import shipped_spaces

SAMPLERS = "auto, task_gp, tpe, random, gp, cmaes, nsga2"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def scratch_folders() -> set[Path]:
    return set(short_temporary_folder().glob(f"{PREFIX}*"))


# --- what comes out -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched(ray: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A search with two rungs, repeats, and more trials than checkpoints to keep."""
    storage = tmp_path_factory.mktemp("searched")
    request = {"num_samples": 12, "keep": 2, "confirm": (2, 2), "grace_examples": 120}
    request["max_concurrent_trials"] = 2
    return run_search(**settings(storage_path=storage, **request))


def test_a_set_can_be_searched_for_one_of_its_tasks_alone(storage: Path) -> None:
    few = ["--num-samples", "2", "--no-early-stopping", "--max-examples", "96"]
    done = run_here(storage, *SMALL, *few, "--tasks", "sample:sentiment")
    assert done.returncode == 0, done.stdout + done.stderr
    run = open_run(storage / "default")
    assert run.tasks.origin == "sample:sentiment" and run.tasks.names == ("sentiment",)
    trials = list(run.state.trials.values())
    assert len(trials) == 2 and all(trial.status == "finished" for trial in trials)
    for trial in trials:
        entry = trial.best()
        assert entry is not None and set(entry["tasks"]) == {"sentiment"}
        rows = parquet.read_table(run.folder / "trials" / trial.id / entry["predictions"])
        assert set(rows["task"].to_pylist()) == {"sentiment"} and len(rows) == 40
        assert not any("similarity" in key or "paraphrase" in key for key in trial.settings)


@pytest.mark.slow
def test_run_search_returns_what_came_of_it(searched: Any) -> None:
    assert searched.complete
    assert searched.state.counts()["open"] == 0
    assert sum(searched.state.counts().values()) == 12
    assert searched.state.ended == "complete"
    said = searched.summary.text()
    assert "12 of 12 configurations" in said
    assert (
        "trials by planned examples, and their share: 16 × 160 (" in said and "), 4 × 480 (" in said
    )
    steps = said.partition("\nnext\n")[2].splitlines()
    assert [step.split()[:3] for step in steps] == [
        ["tensorboard", "--logdir", str(searched.folder)],
        ["python", "-m", "tuner.predict"],
    ]
    assert (searched.folder / "run.yaml").exists()


@pytest.mark.slow
def test_a_search_leaves_a_table_of_its_trials(searched: Any) -> None:
    frame, state = searched.dataframe(), searched.state
    assert frame.equals(parquet.read_table(searched.folder / "trials.parquet").to_pandas())
    assert list(frame["trial"]) == list(state.trials)
    assert (
        set(frame["status"]) == {"finished", "promoted", "pruned"} and (frame["seconds"] > 0).all()
    )
    row = frame.set_index("trial").loc[searched.best.id]
    best = searched.best.best()
    assert row["score_overall"] == best["score"]
    for task, of in best["tasks"].items():
        low, high = of["interval"]
        found = [row[f"{start}_{task}"] for start in ("score", "low", "high")]
        assert found == [of["value"], low, high]
    assert frame.set_index("trial")["params_optim.learning_rate"].dropna().to_dict() == {
        name: trial.params["optim.learning_rate"]
        for name, trial in state.trials.items()
        if trial.params
    }
    assert (searched.folder / row["checkpoint"] / "model").is_dir()


@pytest.mark.slow
def test_finals_are_complete_and_all_others_pruned_with_their_curves(searched: Any) -> None:
    study, state = open_study(searched.folder), searched.state
    finals = [t for t in state.trials.values() if t.level == 1]
    origins = [t.origin for t in finals]  # the model of the results may have put one together
    assert len(finals) == 4 == origins.count("promoted") + origins.count("expected")
    assert origins[0] == "promoted" and origins.count("expected") <= 1
    assert {t.length for t in state.search_trials if t.level == 0} == {160}
    assert {t.length for t in finals} == {480}
    assert len(study.trials) == len(state.trials)  # the default, longer runs and repeats too
    for frozen in study.trials:
        trial = state.trials[f"t{frozen.number:04d}"]
        assert frozen.state == (TrialState.COMPLETE if trial in finals else TrialState.PRUNED)
        curve = {e["examples"]: e["score"] for e in trial.evaluations}
        assert frozen.intermediate_values == pytest.approx(curve)


@pytest.mark.slow
@pytest.mark.parametrize(
    "evaluator",
    [optuna.importance.FanovaImportanceEvaluator, optuna.importance.PedAnovaImportanceEvaluator],
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_importance_takes_each_tasks_parameters_in_its_stride(
    searched: Any, evaluator: Any
) -> None:
    study = open_study(searched.folder)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator())
    assert {"batch.sizes.sentiment", "loss.weights.similarity", "optim.learning_rate"} <= set(found)


@pytest.mark.slow
def test_tensorboard_was_told_everything_while_it_happened(searched: Any, tmp_path: Path) -> None:
    from tuner.export.tensorboard.board import Board
    from tuner.export.tensorboard.event_files import HISTORY, PICTURES, files_in
    from tuner.space.space import load_space

    Board(tmp_path, load_space(str(searched.folder / "space.yaml"))).replay(events(searched.folder))
    for trial in searched.state.trials.values():
        place = searched.folder / "trials" / trial.id
        (live,), (anew,) = files_in(place, HISTORY), files_in(tmp_path / "trials" / trial.id)
        assert live.read_bytes() == anew.read_bytes()
        assert bool(files_in(place, PICTURES)) == (trial.status == "finished")
    assert (searched.folder / "board" / "embeddings" / "projector_config.pbtxt").exists()


@pytest.mark.slow
def test_only_the_best_checkpoints_stay_and_without_their_states(searched: Any) -> None:
    from tuner.runs.retention import wanted

    chosen = wanted(searched.state, 2)
    found = {
        trial: {p.name for p in checkpoints_in(searched.folder / "trials" / trial / "checkpoints")}
        for trial in searched.state.trials
    }
    assert {trial: names for trial, names in found.items() if names} == chosen
    # Of two trials, of each of three tasks, and of the default's short and long run.
    assert 3 <= sum(map(len, chosen.values())) <= 2 + 3 + 2
    assert not list(searched.folder.rglob("state"))
    assert not list(searched.folder.rglob(".*.tmp")) + list(searched.folder.rglob(".*.old"))
    removed = {
        (e["trial"], c)
        for e in events(searched.folder)
        if e["event"] == "removed"
        for c in e["checkpoints"]
    }
    assert removed
    assert not removed & {(trial, name) for trial, names in found.items() for name in names}
    best = searched.summary.places["best model"]
    assert (best / "model.safetensors").is_file()


@pytest.mark.slow
def test_the_best_are_run_again_and_are_no_rivals_in_the_study(searched: Any) -> None:
    repeats = searched.state.repeats
    assert len(repeats) == 2 * 2
    assert {trial.seed for trial in repeats} == {1, 2}
    assert all(trial.status == "finished" and trial.number is None for trial in repeats)
    originals = {trial.of for trial in repeats}
    short = [trial.id for trial in searched.state.ranked() if trial.level == 0]
    second = short[1] if "t0000" in short[:2] else "t0000"  # the default is in the race
    assert originals == {short[0], second}
    studied = {t.user_attrs["trial"]: t.state for t in open_study(searched.folder).trials}
    assert {studied[trial.id] for trial in repeats} == {TrialState.PRUNED}
    assert {repeated.trial for repeated in searched.summary.repeats} == originals
    last = max(t.closed_order for t in searched.state.search_trials if t.level == 0)
    assert all(trial.order > last for trial in repeats)
    through = max(trial.closed_order for trial in repeats)
    assert all(t.order > through for t in searched.state.trials.values() if t.level == 1)


@pytest.mark.slow
def test_actors_serve_one_trial_after_the_other(searched: Any) -> None:
    started = [e for e in events(searched.folder) if e["event"] == "started"]
    assert len(started) == 12 + 4 + 4
    assert len({(e["node"], e["pid"]) for e in started}) <= min(os.cpu_count() or 1, 4)
    assert all(e["pid"] for e in started)


@pytest.mark.slow
def test_nothing_in_the_folder_is_pickled(searched: Any) -> None:
    kinds = {".yaml", ".jsonl", ".journal", ".json", ".safetensors", ".parquet", ".lock", ""}
    kinds |= {".history", ".pictures", ".bytes", ".tsv", ".pbtxt"}  # TensorBoard's
    for file in searched.folder.rglob("*"):
        if file.is_file():
            assert file.suffix in kinds, file
            assert not is_pickle(file.read_bytes()), file


def is_pickle(content: bytes) -> bool:
    try:
        for _ in pickletools.genops(content):
            pass
    except Exception:
        return False
    return content[:1] == b"\x80"


@pytest.mark.slow
@pytest.mark.parametrize("promotion", ["restart", "continue"])
def test_of_nine_configurations_one_gets_to_the_end(
    without_ray: None, storage: Path, promotion: Any
) -> None:
    small = settings(storage_path=storage, num_samples=9, promotion=promotion)
    result = run_search(**small)
    assert result.complete and 480 <= result.best.examples < 480 + 48  # whole batches
    entered = [t for t in result.state.trials.values() if t.level == 2]
    assert [t.id for t in entered] == [result.best.id]
    complete = [t for t in open_study(result.folder).trials if t.state == TrialState.COMPLETE]
    assert [t.user_attrs["trial"] for t in complete] == [result.best.id]
    states = {t.state for t in open_study(result.folder).trials}
    assert states <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert not list(result.folder.rglob("state"))


@pytest.mark.slow
def test_a_trial_that_was_frozen_five_times_is_the_one_that_never_was(
    without_ray: None, storage: Path, tmp_path: Path
) -> None:
    rungs = {"num_samples": 6, "reduction_factor": 1.5, "grace_examples": 60}
    result = run_search(**settings(storage_path=storage, promotion="continue", **rungs))
    own = result.folder / "trials" / result.best.id
    told = [e["event"] for e in events(result.folder) if e.get("trial") == result.best.id]
    assert told.count("frozen") == 5
    given = yaml.safe_load((own / "config.yaml").read_text(encoding="utf-8"))
    tasks = load_task_set("sample")
    for _ in train(parse_settings(given["settings"], tasks), tasks, out=tmp_path / "whole"):
        pass
    last = f"checkpoints/step-{result.best.evaluations[-1]['step']:08}/model/model.safetensors"
    assert sha256_of(own / last) == sha256_of(tmp_path / "whole" / last)


# --- going on -----------------------------------------------------------------------------------


def test_a_points_further_seeds_have_a_slot_each(without_ray: None, storage: Path) -> None:
    one = settings(storage_path=storage, num_samples=1, max_examples=48, early_stopping=False)
    run_search(**one | {"confirm": (1, 2), "sampler": "random", "max_concurrent_trials": 2})
    told = [e["event"] for e in events(storage / "default")]
    told = [event for event in told if event in ("created", "finished")]
    assert told == ["created", "finished", "created", "created", "finished", "finished"]


@pytest.mark.slow
def test_a_run_is_not_started_twice_but_extended(without_ray: None, storage: Path) -> None:
    first = settings(storage_path=storage, num_samples=2)
    run_search(**first)
    before = (storage / "default" / "ledger.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"2 of 2 configurations done, 0 under way.*--resume"):
        run_search(**first)
    assert (storage / "default" / "ledger.jsonl").read_bytes() == before
    curves = curves_of(storage / "default")
    more = run_search(**{**first, "num_samples": 4}, resume=True)
    assert sum(more.state.counts().values()) == 4 and more.complete
    after = curves_of(storage / "default")
    assert {name: after[name] for name in curves} == curves
    assert (
        yaml.safe_load((storage / "default" / "run.yaml").read_text())["request"]["num_samples"]
        == 4
    )
    # And once more with nothing to do.
    again = run_search(storage_path=storage, resume=True, quiet=True)
    assert again.complete and again.state.starts == 3


@pytest.mark.slow
def test_resume_names_what_changed(
    without_ray: None,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_search(**settings(storage_path=storage, num_samples=1))
    again = ["--storage-path", str(storage), "--resume", "-q"]

    def refused(*flags: str) -> str:
        assert main([*again, *flags]) == 2
        return capsys.readouterr().err

    said = refused("--sampler", "gp", "--seed", "7", "--no-early-stopping")
    assert ": 3 problems\n" in said and "--force" not in said
    assert "--sampler was 'auto' and is 'gp' now; leave it out, or give another --name" in said
    assert "--seed was 0 and is 7 now" in said
    assert "--no-early-stopping was False and is True now" in said
    assert "--encoder was 'tiny'" in refused("--encoder", "minilm")
    assert "--sampler" in refused("--sampler", "gp", "--force")  # not a matter of force
    run = storage / "default" / "run.yaml"
    whole = run.read_text()
    for key, words in (
        ("data", "the data changed"),
        ("tasks", "the task set changed"),
        ("code", "the code changed"),
        ("encoder", "the encoder changed"),
    ):
        data = yaml.safe_load(whole)
        data["fingerprints"][key] = "other"
        run.write_text(yaml.safe_dump(data))
        said = refused()
        assert words in said and "--force" in said
    data = yaml.safe_load(whole)
    data["fingerprints"]["packages"]["torch"] = "1.0"
    run.write_text(yaml.safe_dump(data))
    assert "torch was 1.0 and is" in refused()
    assert main([*again, "--force"]) == 0
    space = storage / "default" / "space.yaml"
    space.write_text(space.read_text().replace("- 0.0005", "- 0.0006"))
    assert "the search space changed" in refused()
    run.write_text("asked: 3\n")
    assert "is this the folder of a run?" in refused()


# --- faults of trials ---------------------------------------------------------------------------


@pytest.mark.slow
def test_trials_that_fail_are_told_apart_and_the_search_goes_on(
    ray: None, storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuner.ray_backend.trainable.SearchTrial", MixedTrial)
    result = run_search(**settings(storage_path=storage, num_samples=7, quiet=False))
    trials = result.state.trials
    assert result.complete
    kinds = {name: trial.kind for name, trial in trials.items() if trial.status == "failed"}
    assert kinds == {"t0001": "code", "t0002": "diverged", "t0003": "memory", "t0004": "metric"}
    assert "ZeroDivisionError: by t0001" in trials["t0001"].reason
    assert "Traceback" in trials["t0001"].traceback
    assert "can't allocate memory" in trials["t0003"].reason
    assert "not a finite number" in trials["t0004"].reason
    assert all(trials[name].status in ("finished", "stopped") for name in ("t0005", "t0006"))
    by_id = {trial.user_attrs["trial"]: trial for trial in open_study(result.folder).trials}
    for name, kind in kinds.items():
        assert by_id[name].state == TrialState.FAIL
        assert by_id[name].user_attrs["kind"] == kind
        assert by_id[name].user_attrs["reason"] == trials[name].reason
    said = capsys.readouterr().out
    assert "t0001 failed (code): ZeroDivisionError" in said
    assert "t0003 failed (memory)" in said
    assert len({e["pid"] for e in events(result.folder) if e["event"] == "started"}) <= 2 + 2


@pytest.mark.slow
def test_five_failures_in_a_row_stop_the_search_and_show_the_first(
    without_ray: None,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tuner.ray_backend.trainable.SearchTrial", RaisingTrial)
    assert main(command(storage, *SMALL, "--num-samples", "12")[3:]) == 1
    state = state_of(storage / "default")
    assert state.ended == "failures"
    assert 5 <= state.counts()["failed"] <= 6
    said = capsys.readouterr().err
    assert "trials failed in a row; the first, t000" in said
    assert said.count("Traceback (most recent call last)") == 1
    assert "--resume" in said
    # Mended, it goes on: five more would have to fail.
    monkeypatch.undo()
    assert run_here(storage, *SMALL, "--num-samples", "7", "--resume").returncode == 0
    assert state_of(storage / "default").counts()["open"] == 0


@pytest.mark.slow
def test_the_time_budget_drains_and_ends_well(
    ray: None, storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*SMALL, "--num-samples", "400", "-q", "--time-budget-s", "8"]
    assert main(command(storage, *flags)[3:]) == 0
    state = state_of(storage / "default")
    assert state.ended == "time"
    paused = {trial.id for trial in state.trials.values() if trial.paused}
    started = {e["trial"] for e in events(storage / "default") if e["event"] == "started"}
    assert {trial.id for trial in state.open_trials} & started == paused
    said = capsys.readouterr()
    assert "search default on sample" in said.out
    assert "python -m tuner.search --resume --name default" in said.err


# --- ways to search -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_ends_in_a_soup_and_outlives_one_that_fails(
    without_ray: None,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("tuner.soup.make.make_soup", full)
        result = run_search(**settings(storage_path=storage, soup=True))
    assert result.complete and result.soup is None
    said = capsys.readouterr().err
    assert "no soup: OSError: no space left; to try again: python -m tuner.soup" in said
    flags = ["--resume", "--name", "default", "--storage-path", str(storage), "--quiet"]
    assert main(flags) == 0
    said = capsys.readouterr().out
    assert "best trials" in said and "greedy soup" in said and "take the" in said
    assert (result.folder / "soup" / "soup.json").exists()
    before = (result.folder / "soup" / "soup.json").read_bytes()
    assert main([*flags, "--no-soup"]) == 0
    assert "greedy soup" not in capsys.readouterr().out
    assert (result.folder / "soup" / "soup.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["random", "gp", "nsga2", "cmaes"])
def test_every_sampler_searches(without_ray: None, storage: Path, sampler: str) -> None:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
    more = {"num_samples": 8 if sampler == "gp" else 4, "early_stopping": sampler != "gp"}
    small = settings(storage_path=storage, sampler=sampler, max_examples=96, **more)
    result = run_search(**small)
    assert result.complete and len(result.state.search_trials) == more["num_samples"]
    if sampler == "gp":
        assert result.state.counts()["finished"] == more["num_samples"]


@pytest.mark.slow
def test_several_objectives_give_a_front(without_ray: None, storage: Path) -> None:
    goals = ("sentiment", "paraphrase")
    more = {"num_samples": 4, "objectives": goals, "early_stopping": False}
    result = run_search(**settings(storage_path=storage, **more))
    study = open_study(result.folder)
    assert study.metric_names == list(goals)
    assert len(study.best_trials) >= 1
    assert result.summary.front
    assert all(set(values) == set(goals) for _, values in result.summary.front)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(shipped_spaces()))
def test_dry_run_takes_a_step_of_every_shipped_space(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_cs224n(tmp_path / "data", rows=80)
    flags = ["--space", name, "--encoder", "tiny", "--dry-run", "--storage-path", str(tmp_path)]
    # One names layers of its twelve, of which the tiny encoder has two.
    layers = [f"optim.layer_scale.layers.{task}=[0]" for task in ("sst", "para", "sts")]
    if "layer_scale" in shipped_spaces()[name].read_text():
        flags += [part for layer in layers for part in ("--set", layer)]
    assert main([*flags, "--data", str(data)]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "parameter" in said and "the most expensive configuration fits" in said
    assert re.search(r"examples in all, about (a minute|\d+ minutes|[\d.]+ hours) here", said)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


# --- the command --------------------------------------------------------------------------------


def test_help_loads_nothing_heavy_and_has_three_examples() -> None:
    code = "import sys; from tuner.search.__main__ import main\ntry:\n main(['--help'])\nfinally:\n"
    code += " print([m for m in ('torch', 'ray', 'optuna', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("[]")
    assert (
        done.stdout.count("python -m tuner.search ") + done.stdout.count("python -m tuner.search\n")
        >= 3
    )
    for group in ("what to search", "how to search", "where to run"):
        assert group in done.stdout


BAD = {
    "--num-samples 0": "--num-samples must be a whole number >= 1, but is '0'",
    "--max-examples -5": "--max-examples must be a whole number >= 1, but is '-5'",
    "--grace-examples 500 --max-examples 100": "--grace-examples 500 is above --max-examples 100",
    "--reduction-factor 1": "--reduction-factor must be a number > 1, but is '1'",
    "--keep 0": "--keep must be a whole number >= 1",
    "--seed -1": "--seed must be a whole number >= 0 and <= 4294967295, but is '-1'",
    "--seed 5000000000": "whole number >= 0 and <= 4294967295, but is '5000000000'",
    "--seed 4294967295 --confirm 1x2": "it must be at most 4294967293",
    "--grace-examples 9999": "budget of 9,000 leaves 750 for the shortest training",
    "--budget-examples 0": "--budget-examples must be a whole number >= 1, but is '0'",
    "--budget-examples 900 --max-examples 900": "take 903 examples, and the budget is 900; raise",
    "--budget-examples 900 --num-samples 999": "and the budget is 900; raise --budget-examples",
    "--finals 4 --num-samples 3": "--finals 4 is above --num-samples 3; lower it",
    "--promotion up": "--promotion must be one of restart, continue, but is 'up'",
    "--set seed=7": "--set: 'seed' is decided by --seed; give that",
    "--set budget.epochs=3": "'budget.epochs' is decided by --max-examples; give that",
    "--set budget.eval_every=50": "'budget.eval_every' is decided by --evaluations; give that",
    "--set budget.eval_at=[50]": "'budget.eval_at' is decided by --evaluations; give that",
    "--objectives sentimnt": "did you mean 'sentiment'?",
    "--objectives sentiment,sentiment": "name each one once",
    "--objectives overall,sentiment --sampler cmaes": "takes one objective",
    "--confirm 3": "'3' is not NxS",
    "--confirm 3x0": "'3x0' is not NxS",
    "--time-budget-s 0": "--time-budget-s must be a number > 0, but is '0'",
    "--time-budget-s nan": "--time-budget-s must be a number > 0, but is 'nan'",
    "--max-concurrent-trials 0": "--max-concurrent-trials must be a whole number >= 1",
    "--cpus-per-trial -1": "--cpus-per-trial must be a number > 0, but is '-1'",
    "--gpus-per-trial -1": "--gpus-per-trial must be a number >= 0 and <= 1, but is '-1'",
    "--gpus-per-trial 2": "--gpus-per-trial must be a number >= 0 and <= 1, but is '2'",
    "--gpus-per-trial 1.5 --address auto": "a number >= 0 and <= 1, but is '1.5'",
    "--space defualt": "did you mean 'default'?",
    "--space nowhere.yaml": "no such file",
    "--tasks nothing": "nothing",
    "--encoder ./nowhere": "nowhere",
    "--data /nowhere/at/all --tasks cs224n": "/nowhere/at/all",
    "--set optim.lerning_rate=1": "did you mean 'optim.learning_rate'?",
    "--set nonsense": "nonsense",
    "--force": "--force goes with --resume",
    "--resume": "no search of this name to resume",
    "--name ../x": "'../x' cannot name a run",
    "--name /tmp/x": "'/tmp/x' cannot name a run",
    "--name .hidden": "no '.' at the start",
    f"--name {'x' * 65}": "up to 64 letters",
    "--name=": "--name must be text, but is ''",
    "--sampler annealing": f"--sampler must be one of {SAMPLERS}",
    "--num-samples many": "--num-samples must be a whole number >= 1, but is 'many'",
}


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["search", "dry run"])
@pytest.mark.parametrize("flags", BAD)
def test_bad_flags_are_refused_and_leave_nothing(
    flags: str, dry: list[str], storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cmaes" in flags:
        pytest.importorskip("cmaes")
    encoder = [] if "--encoder" in flags else ["--encoder", "tiny"]
    assert main([*dry, "--storage-path", str(storage), *encoder, *flags.split()]) == 2
    said = capsys.readouterr().err
    assert BAD[flags] in said
    assert "Traceback" not in said
    assert not storage.exists()
    assert not list(storage.parent.iterdir())


def test_a_space_does_not_decide_what_the_search_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "mine.yaml"
    space.write_text("tasks: sample\nbase: {seed: 7}\nparameters: {optim.clip: {choice: [1, 2]}}\n")
    assert main(["--space", str(space), "--storage-path", str(tmp_path), "--encoder", "tiny"]) == 2
    assert "base: 'seed' is decided by --seed; give that" in capsys.readouterr().err


def test_a_dry_run_looks_at_the_disk(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    real = shutil.disk_usage(storage.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: real._replace(free=3_000_000))
    assert main(["--dry-run", "--storage-path", str(storage), "--encoder", "tiny"]) == 2
    assert "the search needs about" in capsys.readouterr().err


def test_faults_of_several_kinds_are_told_together(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (storage / "default").mkdir(parents=True)
    (storage / "default" / "ledger.jsonl").touch()
    flags = "--num-samples 0 --objectives foo --time-budget-s 0 --encoder tiny".split()
    flags += ["--tasks", "cs224n", "--data", "/nowhere", "--storage-path", str(storage)]
    assert main(flags) == 2
    said = capsys.readouterr().err
    assert "\nsearch: 5 problems\n" in f"\n{said}"
    for part in ("--num-samples must", "'foo' is not one", "--time-budget-s must", "give another"):
        assert part in said
    assert said.count("/nowhere: is not a folder") == 1


@pytest.mark.parametrize("more", [[], ["--kep", "3"]], ids=["as they are", "and a bad flag"])
def test_settings_that_can_be_read_are_checked_beside_those_that_cannot(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--set", "foo", "--set", "foo", "--set", "smart.wieght=1", "--num-samples", "0"]
    assert main([*wrong, *more, "--encoder", "tiny"]) == 2
    said = capsys.readouterr().err
    for part in (
        "'foo' is not KEY=VALUE",
        "'smart.wieght' is not a setting; did you mean 'smart.weight'?",
        "--num-samples must be a whole number >= 1, but is '0'",
        "'--kep' is not a flag; did you mean --keep?" if more else "",
    ):
        assert said.count(part) == 1 or not part
    assert f"{3 + bool(more)} problems" in said


def test_a_search_under_way_is_in_use_and_not_to_be_resumed(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tuner.runs.lock import RunLock

    (storage / "default").mkdir(parents=True)
    (storage / "default" / "ledger.jsonl").touch()
    with RunLock(storage / "default" / "lock"):
        assert main(["--storage-path", str(storage), "--encoder", "tiny"]) == 2
    said = capsys.readouterr().err
    assert f"in use by process {os.getpid()} on " in said and "--resume" not in said


def test_flags_that_are_none_are_told_with_all_else_that_is_wrong_with_the_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--colour red --num-sampels=3 --seed x --sampler annealing --set a --set b".split()
    assert main(flags) == 2
    assert capsys.readouterr().err.splitlines() == [
        "python -m tuner.search: 6 problems",
        "  '--colour' is not a flag; --help shows all",
        "  '--num-sampels' is not a flag; did you mean --num-samples?",
        "  --set: 'a' is not KEY=VALUE; write smart.weight=5",
        "  --set: 'b' is not KEY=VALUE; write smart.weight=5",
        "  --seed must be a whole number >= 0 and <= 4294967295, but is 'x'",
        f"  --sampler must be one of {SAMPLERS}, but is 'annealing'",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [("--cpus-per-trial 5000", "but there are"), ("--gpus-per-trial 1", "GPUs")],
)
def test_what_the_machine_lacks_is_refused_and_leaves_nothing(
    ray: None, flags: str, message: str, storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = scratch_folders()
    assert main(["--storage-path", str(storage), "--encoder", "tiny", *flags.split()]) == 2
    assert message in capsys.readouterr().err
    assert not storage.exists()
    assert scratch_folders() <= before


@pytest.mark.slow
def test_a_disk_that_is_too_small_is_refused_beforehand(
    ray: None, storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    real = shutil.disk_usage(storage.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: real._replace(free=3_000_000))
    assert main(["--storage-path", str(storage), "--encoder", "tiny"]) == 2
    said = capsys.readouterr().err
    assert "the search needs about" in said and "3.0 MB are free here" in said
    assert not storage.exists()


def test_an_argument_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="'num_sample' is not one; did you mean 'num_samples'"):
        run_search(num_sample=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_samples": "few"}, "--num-samples must be a whole number >= 1, but is 'few'"),
        ({"seed": None}, "--seed must be a whole number >= 0 and <= 4294967295, but is null"),
        ({"seed": 1.5}, "--seed must be a whole number >= 0 and <= 4294967295, but is 1.5"),
        ({"keep": True}, "--keep must be a whole number"),
        ({"reduction_factor": [2]}, "--reduction-factor must be a number"),
        ({"time_budget_s": "1h"}, "--time-budget-s must be a number"),
        ({"sampler": ["tpe"]}, "--sampler must be one of auto, task_gp, tpe"),
        ({"set": 1}, "--set must be values by their keys, but is 1"),
        ({"set": ["a"]}, "'a' is not KEY=VALUE"),
        ({"storage_path": 7}, "--storage-path must be a path, but is 7"),
        ({"soup": "no"}, "--no-soup must be true or false, but is 'no'"),
        ({"confirm": (3,)}, "--confirm must be a list of 2, each a whole number >= 0"),
        ({"confirm": "3by3"}, "'3by3' is not NxS"),
        ({"objectives": 3}, "--objectives must be a list, each text, but is 3"),
        ({"name": 3}, "--name must be text, but is 3"),
        ({"name": ""}, "--name must be text, but is ''"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(
    given: dict[str, Any], message: str, storage: Path
) -> None:
    with pytest.raises(InputError) as refused:
        run_search(**{**settings(storage_path=storage), **given})
    assert message in str(refused.value)
    assert not storage.exists()


def test_a_folder_with_something_else_in_it_is_left_alone(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (storage / "default").mkdir(parents=True)
    (storage / "default" / "thesis.tex").write_text("mine")
    assert main(["--storage-path", str(storage), "--encoder", "tiny"]) == 2
    assert "not a run's folder (it has thesis.tex)" in capsys.readouterr().err
    assert [p.name for p in (storage / "default").iterdir()] == ["thesis.tex"]


def test_what_was_asked_survives_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.runs.request import SearchRequest

    monkeypatch.chdir(tmp_path)
    request = SearchRequest(space="mine.yaml", data="data", objectives=("a", "b"), confirm=(3, 3))
    assert request.space == str(tmp_path / "mine.yaml") and request.data == str(tmp_path / "data")
    written = yaml.safe_load(yaml.safe_dump(request.to_dict()))
    assert SearchRequest.from_dict(written) == request
    assert SearchRequest.from_dict({**written, "from_the_future": 1}) == request
    assert replace(request, space="default").space == "default"
    assert SearchRequest(confirm="3x3") == SearchRequest(confirm=(3, 3))  # type: ignore[arg-type]


def test_paths_among_the_settings_hold_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.runs.request import SearchRequest

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    given = {
        "init_from": "other/model",
        "augment.sentiment": "more.csv",
        "augment": {"similarity": "more.csv"},
        "pretrain.simcse.text": "text.txt",
        "encoder.name": "bert",
    }
    request = SearchRequest(set={**given, "schedule.name": "annealed"})
    assert request.set == {
        "init_from": str(tmp_path / "other/model"),
        "augment.sentiment": str(tmp_path / "more.csv"),
        "augment": {"similarity": str(tmp_path / "more.csv")},
        "pretrain.simcse.text": str(tmp_path / "text.txt"),
        "encoder.name": str(tmp_path / "bert"),
        "schedule.name": "annealed",
    }
    assert SearchRequest(set={"encoder.name": "org/hub-id"}).set == {"encoder.name": "org/hub-id"}
