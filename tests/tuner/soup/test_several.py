"""Ensembles over runs with other tasks: who answers what, scored and served."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.common.untrusted import read_json
from tests.tuner.soup_runs import POINTS, make_run, write_toy
from tuner.predict.__main__ import main as predict
from tuner.predict.predictor import load_predictor
from tuner.runs.folder import LEDGER
from tuner.runs.ledger import encode, read_events
from tuner.runs.open import open_run
from tuner.soup.__main__ import main
from tuner.soup.ensemble_file import read_ensemble
from tuner.soup.methods import BEST, METHODS
from tuner.soup.several import ensembles_of

ONE = {"optim.learning_rate": 6e-3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One run with all tasks, and one with one of them alone."""
    root = tmp_path_factory.mktemp("several")
    toy = write_toy(root / "data")
    some = f"{toy}:mood"
    return [
        make_run(root / "all", POINTS[:2], tasks=str(toy), data=toy.parent),
        make_run(root / "mood", [ONE], tasks=some, data=toy.parent, **{"batch.sizes": [8]}),
    ]


def test_each_model_answers_the_tasks_that_it_has(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "both"
    assert main([*map(str, runs), "--out", str(out), "-v"]) == 0
    said, err = capsys.readouterr()
    assert err == "loading\n" and "combining the answers of 2 runs" in said.splitlines()[0]
    assert "vs best single" in said and "greedy ensemble" in said and "take the" in said
    mean = read_ensemble(out / "mean")
    assert len(mean.parts["mood"].models) == 3 and len(mean.parts["much"].models) == 2
    assert any("/mood/" in str(model) for model in mean.parts["mood"].models)
    # Served as scored: by the command on all of dev, and from Python.
    assert predict([str(out / "mean"), "--split", "dev", "--out", str(tmp_path / "p"), "-q"]) == 0
    kept, made = pq.read_table(out / "mean/dev.parquet"), pq.read_table(tmp_path / "p/dev.parquet")
    by_id = dict(zip(kept["id"].to_pylist(), kept["prediction"].to_pylist(), strict=True))
    expected = [by_id[name] for name in made["id"].to_pylist()]
    np.testing.assert_allclose(made["prediction"].to_numpy(), expected, atol=1e-4)
    predictor = load_predictor(out / "recommended")
    assert set(predictor.tasks) == {"mood", "said", "much"}
    assert predictor.answer_texts({"mood": ["good good film"]})["mood"].names is not None


def test_single_tasks_alone_are_compared_with_the_best_of_each(
    runs: list[Path], tmp_path: Path
) -> None:
    toy = runs[0].parent / "data" / "toy.yaml"
    other = tmp_path / "much"
    make_run(other, [ONE], tasks=f"{toy}:much", data=toy.parent, **{"batch.sizes": [8]})
    found = ensembles_of([runs[1], other], tmp_path / "out", log=lambda line: None)
    assert found.tasks.names == ("mood", "much") and found.against == "best per task"
    assert BEST not in {result.name for result in found.results}
    with pytest.raises(InputError, match="is there already"):
        ensembles_of([runs[1], other], tmp_path / "out", log=lambda line: None)


def test_every_fault_of_the_folders_is_told(runs: list[Path], tmp_path: Path) -> None:
    """Nothing could be served out of a run, and a run that is there twice would count twice."""
    out = runs[0] / "both"
    with pytest.raises(InputError) as refused:
        ensembles_of([*runs, runs[1] / ".." / "mood"], out, log=lambda line: None)
    assert refused.value.faults == [
        f"{runs[1]} is named twice; name each run once",
        f"{out} is inside the run {runs[0]}; name a folder beside it with --out",
    ]
    assert not out.exists()


def test_the_early_score_of_a_stopped_trial_makes_it_no_best_single(
    runs: list[Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "run"))
    early = open_run(run).state.best_trial()
    assert early is not None
    events = read_events(run / LEDGER)
    for event in events:
        if event["event"] == "finished" and event["trial"] == early.id:
            event |= {"event": "stopped", "examples": 240, "rung": 0, "reason": "low"}
    (run / LEDGER).write_bytes(b"".join(map(encode, events)))
    found = ensembles_of([run, runs[1]], tmp_path / "out", log=lambda line: None)
    assert early.id in {member.name.split("/")[1] for member in found.members}
    single = read_ensemble(tmp_path / "out" / "best-single")
    assert not any(f"/{early.id}/" in str(part.models[0]) for part in single.parts.values())


def test_what_an_ensemble_taught_is_no_member_of_another(runs: list[Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "taught"))
    events = read_events(run / LEDGER)
    for event in events:
        if event["event"] == "created" and event["trial"] == "t0001":
            event |= {"origin": "distilled", "of": "t0000", "number": None}
    (run / LEDGER).write_bytes(b"".join(map(encode, events)))
    found = ensembles_of([run, runs[1]], tmp_path / "out", log=lambda line: None)
    assert [member.name.split("/")[:2] for member in found.members] == [
        ["all", "t0000"],
        ["mood", "t0000"],
    ]


def test_the_table_has_the_methods_that_matter_and_says_how_many_more(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = "mean,vote,greedy ensemble"
    assert main([*map(str, runs), "--out", str(tmp_path / "o"), "--methods", wanted]) == 0
    said = capsys.readouterr().out
    made = {place.name for place in (tmp_path / "o").iterdir()}
    assert made == {
        "best-per-task",
        "best-single",
        "greedy-ensemble",
        "mean",
        "recommended",
        "vote",
    }
    shown = [line for line in said.splitlines() if line[2:].split("  ")[0].strip() in METHODS]
    assert 2 <= len(shown) < 5 and f"; {5 - len(shown)} more with -v" in said
    assert any("best single" in line for line in shown)


def test_where_the_data_are_now_is_written_into_the_ensembles(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = Path(shutil.copytree(runs[0].parent / "data", tmp_path / "moved"))
    out = tmp_path / "o"
    said = [*map(str, runs), "--out", str(out), "--data", str(moved), "--methods", "mean", "-q"]
    assert main(said) == 0
    assert read_json(out / "mean" / "ensemble.json")["data"] == str(moved)


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--halvings", "3"), "--halvings: for one run"),
        (("--folders", "--address", "auto"), "--folders, --address: for one run"),
        (("--methods", "greedy soup,mean"), "'greedy soup' is made within one run; over several"),
        (("--methods", "distilled"), "'distilled' is made within one run"),
        (("--keep", "0"), "--keep is 0; it must be 1 or more"),
    ],
)
def test_what_is_for_one_run_is_refused(
    runs: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    fault: str,
) -> None:
    assert main([*map(str, runs), "--out", str(tmp_path / "o"), *flags]) == 2
    assert fault in capsys.readouterr().err and not (tmp_path / "o").exists()


def test_one_run_has_no_folder_of_ensembles(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(runs[1]), "--out", str(tmp_path / "o")]) == 2
    assert "--out: for several runs" in capsys.readouterr().err


def test_a_task_with_other_dev_rows_is_refused(runs: list[Path], tmp_path: Path) -> None:
    toy = write_toy(tmp_path / "data")
    dev = toy.parent / "mood-dev.tsv"
    dev.write_text(dev.read_text().replace("mooddev7\t", "mooddev700\t"))
    other = make_run(
        tmp_path / "o", [ONE], tasks=f"{toy}:mood", data=toy.parent, **{"batch.sizes": [8]}
    )
    with pytest.raises(InputError, match=r"o has no model that can be compared") as refused:
        ensembles_of([runs[0], other], tmp_path / "out", log=lambda line: None)
    assert "o/t0000/" in str(refused.value) and "rows" in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_tasks_that_are_not_the_same_are_refused(runs: list[Path], tmp_path: Path) -> None:
    toy = write_toy(tmp_path / "data")
    toy.write_text(toy.read_text().replace("regression: [0, 4]", "regression: [0, 5]"))
    other = make_run(
        tmp_path / "o", [ONE], tasks=f"{toy}:much", data=toy.parent, **{"batch.sizes": [8]}
    )
    with pytest.raises(InputError, match=r"o: much: range was .* and is .* \(compared with all\)"):
        ensembles_of([runs[0], other], tmp_path / "out")
