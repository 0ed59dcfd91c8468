"""From a study to the spaces that hold its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.common.files import to_yaml
from model.tasks.task_set import load_task_set
from tuner.space.space import load_space
from tuner.study.grid import expand
from tuner.study.reader import load_study, shipped_studies

CS224N = load_task_set("cs224n")


def test_a_study_is_a_space_of_listed_points(tmp_path: Path) -> None:
    study = load_study("001-methods")
    (part,) = expand(study, CS224N, None, None, {}, [])
    path = tmp_path / "s.yaml"
    path.write_text(to_yaml(part.space(study, "cs224n")))
    # Its parameters freely combined would not do: surgery with one task a step, for one.
    space = load_space(str(path))
    assert space.listed and len(space.start_from) == 7
    configs = [space.config(point) for point in space.start_from]
    assert [c.schedule.name for c in configs][:4] == ["sequential"] * 4
    assert [c.surgery for c in configs] == [*["none"] * 6, "pcgrad"]
    assert configs[1].encoding_of(CS224N["sts"]) == "cosine"
    assert {c.optim.learning_rate for c in configs} == {1e-5}
    assert space.default_point() == space.start_from[0]
    assert space.config(space.most_expensive()).surgery == "pcgrad"
    again = tmp_path / "again.yaml"
    again.write_text(to_yaml(space.to_dict()))
    assert load_space(str(again)).start_from == space.start_from


@pytest.mark.parametrize("name", shipped_studies())
def test_every_point_of_every_study_is_in_its_space(name: str, tmp_path: Path) -> None:
    study = load_study(name)
    files = {"wiki": "/wiki", "wiki256": "/wiki256", "paraphrases": "/paraphrases"}
    for part in expand(study, CS224N, "tiny", 2, files, []):
        path = tmp_path / f"s{part.name}.yaml"
        path.write_text(to_yaml(part.space(study, "cs224n")))
        space = load_space(str(path))
        known = {parameter.key for parameter in space.parameters}
        for point, training in zip(part.points(), part.trainings, strict=True):
            own = {key: value for key, value in point.items() if key in known}
            wanted = space.config(own)
            settings = [space.settings(space.params(each)) for each in space.start_from]
            assert wanted in [space.config(each) for each in settings], training.label


def test_what_all_rows_agree_on_is_held() -> None:
    study = load_study("004-layers")
    (part,) = expand(study, CS224N, None, 12, {}, [])
    space = part.space(study, "cs224n")
    assert set(space["parameters"]) == {"encoder.train_layers", "schedule.only"}
    assert len(space["start_from"]) == 36 and space["base"]["head.hidden"] == 0
    assert [t.label for t in part.trainings[:3]] == ["Layer 0 sst", "Layer 0 para", "Layer 0 sts"]


def test_rows_that_read_or_start_from_something_else_are_searches_of_their_own() -> None:
    files = {"wiki": "/w", "wiki256": "/v"}
    parts = expand(load_study("003-extensions"), CS224N, None, None, files, [])
    assert [(part.name, len(part.trainings)) for part in parts] == [
        *(("", 7), ("-wiki", 4), ("-wiki256", 1))
    ]
    assert [p.held.get("pretrain.simcse.text") for p in parts] == [None, "/w", "/v"]
    first, then = expand(load_study("002-sampling"), CS224N, None, None, {}, [])
    assert (first.start, then.start) == (None, "Quora alone para")
    space = then.space(load_study("002-sampling"), "cs224n", "/model")
    assert space["base"]["init_from"] == "/model"
    assert space["parameters"] == {"schedule.name": {"choice": ["uniform"]}}
    assert space["start_from"] == [{"schedule.name": "uniform"}]


def test_a_share_of_the_training_has_that_share_of_simcse() -> None:
    (part,) = expand(load_study("003-simcse"), CS224N, None, None, {}, [], 0.25)
    assert part.held["pretrain.simcse.epochs"] == 0.25
    assert part.points()[0]["pretrain.simcse.epochs"] == 0  # the row without any
    (part,) = expand(load_study("003-ensembles"), CS224N, None, None, {}, [], 0.25)
    epochs = [point["pretrain.simcse.epochs"] for point in part.points()]
    assert sorted(set(epochs)) == [0, 0.25]


def test_a_row_without_its_file_is_left_out_and_told() -> None:
    notes: list[str] = []
    (part,) = expand(load_study("002-synthetic"), CS224N, None, None, {}, notes)
    assert [training.row for training in part.trainings] == ["Real data"]
    assert notes[0] == "'Real + synthetic data' is left out: it needs --file paraphrases=PATH"


def test_another_encoder_has_rates_and_layers_that_suit_it() -> None:
    notes: list[str] = []
    (part,) = expand(load_study("000-baselines"), CS224N, "minilm", None, {}, notes)
    rates = {p.row: p.settings.get("optim.learning_rate") for p in part.trainings}
    assert part.held["optim.learning_rate"] == pytest.approx(2e-4)
    assert rates["Frozen single-task"] == 1e-3  # that of the heads alone
    assert part.held["encoder.pooling"] == "auto"
    assert notes[0] == "minilm in place of bert-base-uncased: learning rates times 10"
    (part,) = expand(load_study("004-layer-scale"), CS224N, "minilm", 6, {}, notes)
    assert part.held["optim.layer_scale.layers.sst"] == [4, 5]
    assert part.held["optim.layer_scale.layers.para"] == [1, 3, 4]
