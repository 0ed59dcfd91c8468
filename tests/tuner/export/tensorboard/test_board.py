"""What TensorBoard is given, read back from its files; and the real one asked what it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from model.evaluation.model_folder import save_model
from model.evaluation.scores import Score
from tests.conftest import make_model, make_task
from tests.tuner.boards import (
    POINT,
    SMART,
    MadeUp,
    made_up,
    of_every_kind,
    records_of,
    tags_of,
    tensorboard_on,
    write_answers,
)
from tests.tuner.soup_runs import made_up_method, made_up_soup, write_record
from tuner.export.tensorboard.board import Board, rebuild
from tuner.export.tensorboard.columns import FIRST, SCORE, Columns
from tuner.export.tensorboard.event_files import HISTORY, PICTURES, files_in
from tuner.export.tensorboard.hparams import metrics_of
from tuner.runs.ledger import Ledger
from tuner.soup.record import TaskScore
from tuner.space.default import dropouts_of
from tuner.space.space import load_space, shipped_spaces


def history(run: MadeUp, trial: str) -> dict[str, list[tuple[int, Any]]]:
    (file,) = files_in(run.folder / "trials" / trial, HISTORY)
    return tags_of(file)


def contents(folder: Path) -> dict[str, list[bytes]]:
    """The bytes of every history by the folder it is in."""
    places = [folder, *(folder / "trials").iterdir()]
    return {place.name: [f.read_bytes() for f in files_in(place)] for place in places[1:]} | {
        "": [file.read_bytes() for file in files_in(folder)]
    }


# --- columns ------------------------------------------------------------------------------------


def test_every_cell_has_the_type_of_its_column(tmp_path: Path) -> None:
    columns = Columns.of(made_up(tmp_path).space)
    cells = columns.values(SMART, "sampler")
    assert cells == {
        "optim.learning_rate": 1e-4,
        "optim.learning_rate.log10": pytest.approx(-4),
        "encoder.dropout": 0.1,
        "smart.weight": 0.1,
        "smart.radius": 0.01,
        "smart.radius.log10": pytest.approx(-2),
        "smart.steps": 2.0,
        "head.hidden": "0",  # text, as another of its choices is
        "batch.sizes": "16-8-4",
        "batch.sizes.sentiment": 16.0,
        "batch.sizes.paraphrase": 8.0,
        "batch.sizes.similarity": 4.0,
        "loss.weights": "2-1-0.5",
        "loss.weights.sentiment": 2.0,
        "loss.weights.paraphrase": 1.0,
        "loss.weights.similarity": 0.5,
        "origin": "sampler",
        "outcome": "finished",
    }


def test_a_parameter_that_takes_no_part_has_no_cell_and_is_not_among_the_first(
    tmp_path: Path,
) -> None:
    columns = Columns.of(made_up(tmp_path).space)
    cells = columns.values(POINT, "sampler")
    assert not {"smart.radius", "smart.radius.log10", "smart.steps"} & set(cells)
    shown = {column.name for column in columns.columns if column.shown}
    scores = {SCORE, *(f"Score {name}" for name in ("sentiment", "paraphrase", "similarity"))}
    assert scores <= shown <= {*scores, *cells}  # or parallel coordinates would leave the trial out


def test_the_first_five_are_all_scores_and_what_all_tasks_share_by_names_that_fit() -> None:
    columns = Columns.of(load_space("default", None, {"encoder.name": "tiny"})).columns
    first = sorted((column for column in columns if column.shown), key=lambda each: each.name)
    assert [(column.name, column.label or column.name) for column in first][:FIRST] == [
        (SCORE, SCORE),
        ("Score paraphrase", "paraphrase"),
        ("Score sentiment", "sentiment"),
        ("Score similarity", "similarity"),
        ("optim.learning_rate", "learning_rate"),
    ]


def test_metrics_that_are_shown_repeat_no_score_of_the_columns() -> None:
    names = [metric.name for metric in metrics_of(["mood", "near"])]
    assert names[:5] == ["last overall", "examples seen", "seconds", "last mood", "last near"]
    assert names[5:] == ["best overall", "best mood", "best near"]


def test_scores_are_cells_once_the_trial_has_ended(tmp_path: Path) -> None:
    run = made_up(tmp_path)
    name = run.create(POINT)
    run.evaluate(name, 200, 0.625)
    start = "_hparams_/session_start_info"
    assert SCORE not in str(history(run, name)[start])
    run.finish(name)
    found = str(history(run, name)[start])
    assert SCORE in found and "Score sentiment" in found and "Score similarity" in found


def test_the_default_is_shown_with_what_it_means(tmp_path: Path) -> None:
    columns = Columns.of(made_up(tmp_path).space)
    cells = columns.values({}, "default")
    assert cells["optim.learning_rate"] == 1e-3  # what suits the tiny encoder
    assert cells["batch.sizes"] == "16-16-16"  # which the space does not offer
    assert cells["batch.sizes.similarity"] == 16.0
    assert "smart.radius" not in cells
    offered = {column.name: column.choices for column in columns.columns}
    assert "16-16-16" in offered["batch.sizes"] and 16.0 in offered["batch.sizes.similarity"]
    assert columns.values({}, "confirm") == {**cells, "origin": "confirm"}


@pytest.mark.parametrize(
    "named",
    [("hidden_dropout_prob", "attention_probs_dropout_prob"), ("dropout", "attention_dropout")],
)
def test_the_encoders_own_dropout_is_a_number(tmp_path: Path, named: tuple[str, str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(dict(zip(named, (0.1, 0.2), strict=True))))
    assert dropouts_of(str(tmp_path)) == {
        "encoder.dropout": 0.1,
        "head.dropout": 0.1,
        "encoder.attention_dropout": 0.2,
    }


@pytest.mark.parametrize("name", shipped_spaces())
def test_every_shipped_space_has_typed_columns_that_take_its_points(name: str) -> None:
    import numpy as np

    space = load_space(name, None, {"encoder.name": "tiny"})
    columns = Columns.of(space)
    by_name = {column.name: column for column in columns.columns}
    assert len(by_name) == len(columns.columns)
    rng = np.random.default_rng(0)
    for _ in range(20):
        settings = space.draw(rng)
        for key, value in columns.values(settings, "sampler").items():
            column = by_name[key]
            if column.ends is not None:
                assert column.ends[0] - 1e-9 <= float(value) <= column.ends[1] + 1e-9
            else:
                assert value in column.choices and len({type(c) for c in column.choices}) == 1


# --- the files ----------------------------------------------------------------------------------


def test_a_trial_is_there_from_its_creation_and_has_no_end_while_it_runs(tmp_path: Path) -> None:
    run = made_up(tmp_path)
    trial = run.create(POINT)
    found = history(run, trial)
    assert "_hparams_/session_start_info" in found
    run.evaluate(trial, 100, 0.5)
    assert "_hparams_/session_end_info" not in history(run, trial)
    run.finish(trial)
    assert len(history(run, trial)["_hparams_/session_end_info"]) == 1


def test_one_evaluation_is_one_record_at_its_count_of_examples(tmp_path: Path) -> None:
    run = made_up(tmp_path)
    trial = run.create(POINT)
    for examples, score in ((100, 0.5), (200, 0.75), (300, 0.625)):
        event = run.evaluate(trial, examples, score)
    (file,) = files_in(tmp_path / "trials" / trial)
    last = records_of(file)[-1]
    assert last.step == 300
    assert last.wall_time == event["time"]
    values = {value.tag: value.simple_value for value in last.summary.value}
    tasks = ("sentiment", "paraphrase", "similarity")
    assert values == pytest.approx(
        {
            "score/overall": 0.625,
            "best/overall": 0.75,
            **{f"score/{task}": 0.625 for task in tasks},
            **{f"best/{task}": 0.75 for task in tasks},
            **{f"loss/{task}": 0.375 for task in tasks},
            **{f"train loss/{task}": 0.275 for task in tasks},
            "train loss/SMART term": 0.125,
            "optimiser/learning rate, lowest": 1e-5,
            "optimiser/learning rate, highest": 1e-4,
            "optimiser/gradient norm": 1.5,
            "speed/examples per second": 80.0,
            "speed/share of time in data": 0.02,
            "trial/examples": 300.0,
            "trial/seconds": 3.75,
        },
        rel=1e-6,
    )


def test_a_board_made_anew_is_the_one_that_was_written_live(tmp_path: Path) -> None:
    run = of_every_kind(tmp_path)
    live = contents(tmp_path)
    assert len(live) == 7 and all(len(files) == 1 for files in live.values())
    rebuild(tmp_path)
    assert contents(tmp_path) == live
    run.ledger.close()
    # A driver that goes on.
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        Board(tmp_path, run.space).follow(ledger)
        assert contents(tmp_path) == live
        ledger.append("finished", trial="t0004")
    found = history(run, "t0004")
    assert len(found["_hparams_/session_end_info"]) == 1


def test_a_short_run_is_pruned_or_promoted_once_that_is_decided(tmp_path: Path) -> None:
    run = made_up(tmp_path)
    run.ledger.append("planned", rungs=[[100, 2], [300, 1]], num_samples=2)
    names = [run.create(POINT, length=100) for _ in range(2)]
    for name, score in zip(names, (0.5, 0.7), strict=True):
        run.evaluate(name, 100, score)
        run.finish(name)

    def told(name: str) -> str:
        (found,) = history(run, name)["_hparams_/session_start_info"]
        assert len(history(run, name)["_hparams_/session_end_info"]) == 1
        assert len(history(run, name)["score/overall"]) == 1
        words = ("waiting", "pruned", "promoted", "finished")
        (word,) = [word for word in words if word in str(found)]
        return word

    assert [told(name) for name in names] == ["waiting", "waiting"]
    final = run.create(POINT, "start_from", of=names[1], length=300, level=1)
    assert [told(name) for name in names] == ["pruned", "promoted"]
    run.evaluate(final, 300, 0.8)
    run.finish(final)
    assert told(final) == "finished"
    live = contents(tmp_path)
    rebuild(tmp_path)
    assert contents(tmp_path) == live


def test_what_cannot_be_written_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    run = made_up(tmp_path, warn=said.append)
    (tmp_path / "trials").write_text("in the way")
    trial = run.create(POINT)
    run.evaluate(trial, 100, 0.5)
    run.finish(trial)
    run.board.finish()
    assert run.ledger.state.trials[trial].status == "finished"
    assert len(said) == 1 and "--tensorboard" in said[0]
    (tmp_path / "trials").unlink()
    rebuild(tmp_path)
    assert "_hparams_/session_end_info" in history(run, trial)


# --- pictures, soups, embeddings ----------------------------------------------------------------


def finished_with_predictions(folder: Path) -> tuple[MadeUp, str]:
    run = made_up(folder)
    trial = run.create(POINT)
    for examples, score in ((100, 0.5), (200, 0.75), (300, 0.625)):
        write_answers(
            folder / "trials" / trial / f"predictions/step-{examples:08d}.parquet", run.tasks
        )
        run.evaluate(trial, examples, score)
    run.finish(trial)
    return run, trial


def test_a_finished_trial_has_pictures_of_its_best_evaluation(tmp_path: Path) -> None:
    run, trial = finished_with_predictions(tmp_path)
    place = tmp_path / "trials" / trial
    (file,) = files_in(place, PICTURES)
    found = tags_of(file)
    assert set(found) == {
        "confusion/sentiment",
        "calibration/sentiment",
        "confusion/paraphrase",
        "calibration/paraphrase",
        "predicted against true/similarity",
    }
    for ((step, value),) in found.values():
        assert step == 200
        assert value.image.encoded_image_string.startswith(b"\x89PNG")
    run.ledger.close()
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        Board(tmp_path, run.space).follow(ledger)
    assert files_in(place, PICTURES) == [file]  # not drawn again for a driver that goes on
    drawn = file.read_bytes()
    rebuild(tmp_path)
    (anew,) = files_in(place, PICTURES)
    assert anew != file and anew.read_bytes() == drawn


def soup_json(folder: Path) -> None:
    greedy = made_up_method(
        "greedy soup",
        "weights",
        score=Score(0.875, 0.85, 0.9),
        overall=Score(0.75, 0.7, 0.8),
        tasks={"sentiment": TaskScore(0.875, 0.85, 0.9, "accuracy")},
        folder="soup",
        predictions="soup/predictions/greedy.parquet",
    )
    write_record(folder, made_up_soup(methods=[greedy, made_up_method("best single", "single")]))


def test_soups_are_rows_of_the_table_with_pictures(tmp_path: Path) -> None:
    run, _ = finished_with_predictions(tmp_path)
    soup_json(tmp_path)
    write_answers(tmp_path / "soup/predictions/greedy.parquet", run.tasks)
    rebuild(tmp_path)
    assert [place.name for place in (tmp_path / "board").iterdir()] == ["greedy-soup"]
    (file,) = files_in(tmp_path / "board" / "greedy-soup")
    found = tags_of(file)
    # The score is by the search's goal, which may be a task.
    assert found["best/overall"][0][1].simple_value == 0.75
    assert found["best/sentiment"][0][1].simple_value == 0.875
    assert "_hparams_/session_end_info" in found
    ((_, start),) = found["_hparams_/session_start_info"]
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    row = HParamsPluginData.FromString(start.metadata.plugin_data.content).session_start_info
    assert row.group_name == "~ greedy soup" > "t9999"  # after all trials
    assert row.hparams[SCORE].number_value == 0.75
    assert row.hparams["Score sentiment"].number_value == 0.875
    (pictures,) = files_in(tmp_path / "board" / "greedy-soup", PICTURES)
    assert "confusion/sentiment" in tags_of(pictures)


def save_tiny(folder: Path, tokenizer: Any) -> None:
    tasks = [
        make_task("sentiment", classes=5, outputs=5, high=4.0),
        make_task("paraphrase", kind="binary", classes=2, pair=True, encoding="cross", outputs=1),
        make_task(
            "similarity", kind="regression", classes=0, pair=True, encoding="cosine", outputs=1
        ),
    ]
    save_model(folder, make_model(tasks), tokenizer)


@pytest.mark.slow
def test_embeddings_of_the_best_model_are_there_for_the_projector(
    tmp_path: Path, tokenizer: Any
) -> None:
    run, trial = finished_with_predictions(tmp_path)
    save_tiny(tmp_path / "trials" / trial / "checkpoints/step-00000200/model", tokenizer)
    said: list[str] = []
    rebuild(tmp_path, said.append)
    assert not said
    place = tmp_path / "board" / "embeddings"
    config = (place / "projector_config.pbtxt").read_text()
    for task, vectors in (("sentiment", 1), ("paraphrase", 1), ("similarity", 2)):
        lines = (place / f"{task}.tsv").read_text().splitlines()
        cells = {len(line.split("\t")) for line in lines}
        assert cells == {4 if task == "sentiment" else 5}
        width = (place / f"{task}.bytes").stat().st_size // 4 / (len(lines) - 1)
        assert width == 32 * vectors and f'tensor_path: "{task}.bytes"' in config
    assert files_in(place)  # without which TensorBoard does not look there


def test_embedding_answers_as_the_model_does(
    tokenizer: Any, assembler: Any, texts_of: Any, model_of: Any
) -> None:
    from model.evaluation.evaluate import outputs_of, rows_from_texts
    from model.modules.multitask import decide
    from tests.conftest import MOOD, NEAR, SAME
    from tuner.export.tensorboard.projector import embed

    compared = make_task(
        "alike", kind="regression", classes=0, pair=True, encoding="cosine", outputs=1, high=5.0
    )
    model = model_of([MOOD, SAME, NEAR, compared])
    for task, width in ((MOOD, 1), (SAME, 1), (NEAR, 3), (compared, 2)):
        tokens = rows_from_texts(task, texts_of(task, 9), tokenizer)
        vectors, answers = embed(model, task.name, tokens, assembler)
        assert vectors.shape == (9, 32 * width)
        wanted, _ = decide(task, outputs_of(model, task.name, tokens, assembler))
        assert answers.tolist() == pytest.approx(wanted.tolist())


def test_text_cannot_break_the_projectors_table() -> None:
    from tuner.export.tensorboard.projector import LONGEST, one_cell

    assert one_cell("a\tb\nc\r\nd\u2028e\x85f\x00g") == "a b c d e f g"
    assert len(one_cell("x" * 1000)) == LONGEST


# --- the real TensorBoard -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_real_tensorboard_shows_all_trials_with_typed_columns(
    tmp_path: Path, tokenizer: Any
) -> None:
    run = of_every_kind(tmp_path)
    save_tiny(tmp_path / "trials/t0001/checkpoints/step-00000200/model", tokenizer)
    write_answers(tmp_path / "trials/t0001/predictions/step-00000200.parquet", run.tasks)
    run.board.finish()
    names = ["t0000 finished, default", "t0001 finished", "t0002 pruned", "t0003 failed", "t0004"]
    names.append("t0005 finished, t0001 seed 4")
    with tensorboard_on(tmp_path) as board:
        board.wait_for(lambda: sorted(board.trials()) == names)
        board.wait_for(lambda: metrics(board.trials()[names[-1]]))
        check_columns(board.experiment())
        check_trials(board.trials())
        # One that starts while TensorBoard is open, and one that ends.
        late = run.create({**SMART, "head.hidden": "width"})
        run.evaluate("t0004", 200, 0.625)
        run.finish("t0004")
        board.wait_for(lambda: late in board.trials())
        ended = board.wait_for(lambda: status(board.trials()["t0004"]) == "STATUS_SUCCESS")
        assert ended and status(board.trials()[late]) == "STATUS_UNKNOWN"
        assert metrics(board.trials()["t0004"])["best/overall"] == 0.625
        assert "board/embeddings" in board.ask("plugin/projector/runs")
        images = board.ask("plugin/images/tags")["trials/t0001"]
        assert "confusion/sentiment" in images


def status(row: Any) -> str:
    (session,) = row["sessions"]
    return str(session["status"])


def metrics(row: Any) -> dict[str, float]:
    return {value["name"]["tag"]: value["value"] for value in row["metricValues"]}


def check_columns(experiment: Any) -> None:
    columns = {column["name"]: column for column in experiment["hparamInfos"]}
    number = {"type": "DATA_TYPE_FLOAT64"}
    expected: dict[str, dict[str, Any]] = {
        "optim.learning_rate": {**number, "domainInterval": {"minValue": 1e-5, "maxValue": 1e-3}},
        "optim.learning_rate.log10": {**number, "domainInterval": {"minValue": -5, "maxValue": -3}},
        "encoder.dropout": {**number, "domainInterval": {"minValue": 0, "maxValue": 0.3}},
        "smart.weight": {**number, "domainDiscrete": [0, 0.1, 1]},
        "smart.radius": {**number, "domainInterval": {"minValue": 0.001, "maxValue": 0.3}},
        "smart.steps": {**number, "domainInterval": {"minValue": 1, "maxValue": 3}},
        "head.hidden": {"type": "DATA_TYPE_STRING", "domainDiscrete": ["0", "40", "width"]},
        "batch.sizes": {
            "type": "DATA_TYPE_STRING",
            "domainDiscrete": ["8-8-8", "16-8-4", "16-16-16"],
        },
        "batch.sizes.sentiment": {**number, "domainDiscrete": [8, 16]},
        "loss.weights": {"type": "DATA_TYPE_STRING", "domainDiscrete": ["1-1-1", "2-1-0.5"]},
        "loss.weights.similarity": {**number, "domainDiscrete": [0.5, 1]},
    }
    for name, wanted in expected.items():
        assert {key: columns[name][key] for key in wanted} == wanted, name
    assert all("domainInterval" in c or "domainDiscrete" in c for c in columns.values())
    assert all(c["type"] != "DATA_TYPE_UNSET" for c in columns.values())
    first = [column["name"] for column in experiment["hparamInfos"][:5]]
    assert not [name for name in first if name.startswith("smart.r") or name.endswith("log10")]
    tags = [metric["name"]["tag"] for metric in experiment["metricInfos"]]
    assert first[0] == SCORE and tags[0] == "score/overall"
    assert {"score/overall", "best/similarity", "trial/examples", "trial/seconds"} <= set(tags)


def check_trials(rows: dict[str, Any]) -> None:
    assert {name[:5]: status(row) for name, row in rows.items()} == {
        "t0000": "STATUS_SUCCESS",
        "t0001": "STATUS_SUCCESS",
        "t0002": "STATUS_UNKNOWN",
        "t0003": "STATUS_FAILURE",
        "t0004": "STATUS_UNKNOWN",
        "t0005": "STATUS_SUCCESS",
    }
    outcomes = {name[:5]: row["hparams"]["outcome"] for name, row in rows.items()}
    assert outcomes == {
        "t0000": "finished",
        "t0001": "finished",
        "t0002": "pruned",
        "t0003": "failed",
        "t0004": "running",
        "t0005": "finished",
    }
    rows = {name[:5]: row for name, row in rows.items()}
    assert rows["t0001"]["hparams"]["batch.sizes"] == "16-8-4"
    assert rows["t0001"]["hparams"]["batch.sizes.similarity"] == 4
    assert rows["t0003"]["hparams"]["optim.learning_rate"] == 1e-3
    assert rows["t0002"]["hparams"]["smart.radius"] == 0.01
    assert "smart.radius" not in rows["t0001"]["hparams"]
    assert rows["t0000"]["hparams"]["batch.sizes"] == "16-16-16"
    found = metrics(rows["t0001"])
    assert found["best/overall"] == pytest.approx(0.8)
    assert found["score/overall"] == pytest.approx(0.75)
    assert found["trial/examples"] == 300
