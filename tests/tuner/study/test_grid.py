"""From a study to the spaces that hold its rows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from model.common.files import to_yaml
from model.config.parse import Layer, parse_layers
from model.objectives.schedules import Round
from model.tasks.task_set import load_task_set
from model.training.planning import plan_rounds, walk
from tests.model.training.test_planning import stream
from tuner.space.space import load_space
from tuner.study.grid import StudySearch, expand
from tuner.study.plan import all_alike, length_of
from tuner.study.reader import Study, load_study, shipped_studies

CS224N = load_task_set("cs224n")


def test_a_study_is_a_space_of_listed_points(tmp_path: Path) -> None:
    study = load_study("001-methods")
    (part,) = expand(all_alike(study, []), CS224N, None, None, {}, [])
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
    parts = expand(study, CS224N, None, 12, {}, [])
    assert [(part.name, part.task) for part in parts] == [
        *(("", "sst"), ("-para-2830000", "para"), ("-sts-60400", "sts"))
    ]
    space = parts[1].space(study, "cs224n")
    assert set(space["parameters"]) == {"encoder.train_layers"}
    assert len(space["start_from"]) == 12
    assert space["base"]["head.hidden"] == 0 and space["base"]["schedule.only"] == ["para"]
    assert [t.label for t in parts[1].trainings[:2]] == ["Layer 0 para", "Layer 1 para"]


def test_rows_of_other_lengths_and_models_of_one_task_are_searches_of_their_own() -> None:
    def found(study: Study) -> list[tuple[str, int, int]]:
        parts = expand(study, CS224N, None, None, {}, [])
        return [(part.name, part.examples, len(part.trainings)) for part in parts]

    study, notes = load_study("004-orders"), list[str]()
    assert found(study) == [
        ("", 181_000, 1),
        ("-2976000", 2_976_000, 2),
        ("-sst-85440", 85_440, 1),
        ("-para-2830000", 2_830_000, 1),
        ("-sts-60400", 60_400, 1),
    ]
    alike = all_alike(study, notes)
    assert found(alike) == [
        *(("", 181_000, 3), ("-sst", 181_000, 1), ("-para", 181_000, 1), ("-sts", 181_000, 1))
    ]
    assert notes == ["all rows are as long as each other, which the paper's are not"]


def rounds_of(part: StudySearch, scale: float) -> list[tuple[str, list[Round]]]:
    """Each training: its settings but those of the schedule, and which task trains when."""
    real, found = {"sst": 8_544, "para": 22_624, "sts": 6_040}, []
    for point in part.points():
        budget = {"budget.epochs": None, "budget.examples": length_of(part, scale)}
        config = parse_layers([Layer(part.held), Layer(point), Layer(budget)], CS224N)
        sizes = config.batch_sizes(CS224N)
        streams = {task: stream(real[task], size) for task, size in zip(real, sizes, strict=True)}
        plan, steps = plan_rounds(config, CS224N, streams, real)
        walked = islice(walk(config.schedule.name, plan, list(streams.values())), steps)
        flat = config.to_flat().items()
        rest = {k: v for k, v in flat if not k.startswith(("schedule.", "budget."))}
        found.append((f"{part.start} {rest}", [one for one, _ in walked]))
    return found


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("name", shipped_studies())
def test_no_two_rows_of_a_short_study_are_the_same_training(name: str, alike: bool) -> None:
    study = all_alike(load_study(name), []) if alike else load_study(name)
    parts = expand(study, CS224N, None, None, {}, [], scale := 0.01)
    if not any("schedule.name" in training.settings for p in parts for training in p.trainings):
        return  # its rows differ in something else
    found = [each for part in parts for each in rounds_of(part, scale)]
    again = [rest for n, (rest, rounds) in enumerate(found) if (rest, rounds) in found[:n]]
    assert not again


def test_rows_that_read_or_start_from_something_else_are_searches_of_their_own() -> None:
    files = {"wiki": "/w", "wiki256": "/v"}
    parts = expand(load_study("003-extensions"), CS224N, None, None, files, [])
    assert [(part.name, len(part.trainings)) for part in parts] == [
        *(("", 7), ("-wiki", 4), ("-wiki256", 1))
    ]
    assert [p.held.get("pretrain.simcse.text") for p in parts] == [None, "/w", "/v"]
    first, quora, then = expand(load_study("002-sampling"), CS224N, None, None, {}, [])
    assert (first.start, quora.start, then.start) == (None, None, "Quora alone para")
    assert [part.name for part in (first, quora, then)] == [
        *("", "-para-1000000", "-from-quora-alone-para")
    ]
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
    parts = expand(load_study("000-baselines"), CS224N, "minilm", None, {}, notes)
    trainings = [training for part in parts for training in part.trainings]
    rates = {each.row: each.settings.get("optim.learning_rate") for each in trainings}
    part = parts[0]
    assert part.held["optim.learning_rate"] == pytest.approx(2e-4)
    assert rates["Frozen single-task"] == 1e-3  # that of the heads alone
    assert part.held["encoder.pooling"] == "auto"
    assert notes[0] == "minilm in place of bert-base-uncased: learning rates times 10"
    (part,) = expand(load_study("004-layer-scale"), CS224N, "minilm", 6, {}, notes)
    assert part.held["optim.layer_scale.layers.sst"] == [4, 5]
    assert part.held["optim.layer_scale.layers.para"] == [1, 3, 4]
