"""A run's model on a Hub that this machine plays."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.common.errors import InputError
from model.evaluation.model_folder import load_model
from tests.tuner.export.hub.hub_server import TOKEN, Hub, hub_server
from tests.tuner.soup_runs import POINTS, make_run, write_toy
from tuner.export.hub.folder import is_known
from tuner.export.hub.push import prepared
from tuner.export.hub.sentences import FILES
from tuner.push import main
from tuner.soup.make import make_soup
from tuner.soup.text import Origin, hub_name, origin_of

NAME = "me/films"
# huggingface_hub's own, of the way it sends files to LFS.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("push")
    toy = write_toy(root / "data")
    encodings = {"pair.encoding.much": "cosine", "pair.encoding.said": "cross"}
    run = make_run(root / "first", POINTS[:2], tasks=str(toy), data=toy.parent, **encodings)
    make_soup(run, log=lambda line: None, warn=pytest.fail, methods=["uniform soup"])
    return run


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    with hub_server() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        # Xet's storage is a service of its own; without it files go as git LFS has them.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield hub


def received(hub: Hub, place: Path) -> Path:
    for name, content in hub.repos[NAME].files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return place


def test_what_arrives_is_the_model_that_the_run_recommends(
    run: Path, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tuner.predict.predictor import load_predictor

    flags = ["--license", "apache-2.0", "--private", "--model", "greedy soup"]
    assert main([str(run), NAME, *flags]) == 0
    said = capsys.readouterr().out
    assert "pushed" in said and NAME in said and TOKEN not in said
    assert hub.repos[NAME].private and len(hub.repos[NAME].commits) == 1
    place = received(hub, tmp_path / "back")
    assert not (place / "soup.json").exists() and not (place / "predictions").exists()
    texts = ["good good good", "cat dog bad"]
    answers = load_model(place).predict("mood", texts)
    wanted = load_predictor(run, "greedy soup").predict("mood", texts)
    assert [each.value for each in answers] == [each.value for each in wanted]
    assert answers[0].name in ("bad", "fair", "good")


def test_again_sends_no_weights_twice(run: Path, hub: Hub) -> None:
    flags = ["--quiet", "--model", "greedy soup"]
    assert main([str(run), NAME, *flags]) == 0
    before, files = hub.sent, dict(hub.repos[NAME].files)
    assert main([str(run), NAME, *flags]) == 0
    assert hub.sent == before and hub.repos[NAME].files == files


def test_what_an_earlier_model_left_there_goes_and_what_is_somebody_s_own_stays(
    run: Path, hub: Hub
) -> None:
    flags = ["--quiet", "--model", "greedy soup"]
    assert main([str(run), NAME, *flags]) == 0
    files = dict(hub.repos[NAME].files)
    hub.repos[NAME].files |= {"model-00001-of-00002.safetensors": b"old", "vocab.json": b"old"}
    hub.repos[NAME].files["picture.png"] = b"mine"
    assert main([str(run), NAME, *flags]) == 0
    assert hub.repos[NAME].files == {**files, "picture.png": b"mine"}


def test_sentence_files_are_all_known(run: Path) -> None:
    with prepared(run, NAME, "greedy soup") as made:
        assert {name for name in made.files if not is_known(name)} == {*FILES, "README.md"}


def test_a_connection_that_is_lost_is_a_line_and_no_traceback(
    run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class ConnectError(Exception):
        """As httpx has them: no OSError."""

    def lost(*given: object, **more: object) -> None:
        raise ConnectError(f"lost, with {TOKEN}")

    monkeypatch.setattr("huggingface_hub.HfApi.upload_folder", lost)
    assert main([str(run), NAME, "--quiet", "--model", "greedy soup"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("the push failed: ConnectError: lost") and TOKEN not in said
    assert "the same command goes on" in said


def test_a_trial_has_no_card(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), NAME, "--model", "best"]) == 2
    said = capsys.readouterr().err
    assert "'best' is a trial" in said and "'uniform soup'" in said


def test_the_card_is_one_by_the_hub_s_own_rules(run: Path) -> None:
    from huggingface_hub import ModelCard

    with prepared(run, NAME, "greedy soup", "apache-2.0") as made:
        text = (made.folder / "README.md").read_text()
    card = ModelCard(text)  # which reads model-index, and raises for what it cannot
    assert card.data.license == "apache-2.0" and card.data.library_name == "transformers"
    results = {each.task_name: each for each in card.data.eval_results}
    assert results.keys() == {"mood", "said", "much"}
    assert results["mood"].metric_type == "accuracy" and results["mood"].dataset_split == "dev"
    assert results["much"].task_type == "sentence-similarity"
    row = re.search(r"\| mood \| accuracy \| ([\d.]+) \| \[([\d.]+), ([\d.]+)\]", text)
    assert row and float(row[1]) == results["mood"].metric_value
    assert float(row[2]) <= float(row[1]) <= float(row[3])
    assert "The classes of mood: 0 bad, 1 fair, 2 good." in text
    assert "base_model" not in text and str(run.parent) not in text  # paths of this machine


def test_the_card_names_the_encoder_and_the_data_sets_that_the_hub_has(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import ModelCard

    def on_hub(*given: Any) -> Origin:
        return replace(
            origin_of(*given), base_model=hub_name("minilm"), datasets={"mood": "me/sst"}
        )

    monkeypatch.setattr("tuner.export.hub.push.origin_of", on_hub)
    with prepared(run, NAME, "greedy soup") as made:
        found = ModelCard.load(made.folder / "README.md").data
    assert found.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert found.datasets == ["me/sst"]
    assert {e.dataset_type for e in found.eval_results if e.task_name == "mood"} == {"me/sst"}
    assert hub_name("tiny") is hub_name(str(run)) is None


def test_the_example_of_the_card_runs(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    with prepared(run, NAME, "greedy soup") as made:
        text = (made.folder / "README.md").read_text()
        example = text.split("```python\n")[1].split("```")[0]
        place = {NAME: str(made.folder)}
        monkeypatch.setattr(huggingface_hub, "snapshot_download", place.__getitem__)
        printed: list[object] = []
        exec(example, {"print": printed.append})
    assert len(printed) == 3
    assert "pip install stockpot" not in text  # nobody's, or a stranger's, on PyPI


def test_transformers_loads_what_arrives(run: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    with prepared(run, NAME, "greedy soup") as made:
        encoder = AutoModel.from_pretrained(made.folder)
        tokens = AutoTokenizer.from_pretrained(made.folder)(["good film"], return_tensors="pt")
        assert torch.isfinite(encoder(**tokens).last_hidden_state).all()


def test_sentence_transformers_has_the_cosine_that_the_model_answers_with(run: Path) -> None:
    models = pytest.importorskip("sentence_transformers", reason="no sentence-transformers here")
    pairs = [("good good cat", "the good good cat"), ("tree film", "the dog much")]
    with prepared(run, NAME, "greedy soup") as made:
        assert made.sentences == "much"
        encoder = models.SentenceTransformer(str(made.folder), device="cpu")
        first, second = (encoder.encode(list(side)) for side in zip(*pairs, strict=True))
        model = load_model(made.folder)
        head = model.model.heads["task_much"]
        answers = [each.value for each in model.predict("much", pairs)]
    cosines = encoder.similarity_pairwise(first, second)
    values = head.low + (head.high - head.low) * (head.gain * cosines + head.offset)
    assert values.clamp(head.low, head.high).tolist() == pytest.approx(answers, abs=1e-4)


def test_nothing_is_sent_of_a_folder_with_something_strange(
    run: Path, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "soup" / "notes.txt").write_text("not for everybody")
    (copy / "soup" / "weights.bin").write_bytes(b"pickle")
    (copy / "soup" / "heads.safetensors").write_bytes(b"cut")
    assert main([str(copy), NAME, "--model", "greedy soup"]) == 2
    said = capsys.readouterr().err
    assert "3 problems" in said and "'notes.txt'" in said and "'weights.bin'" in said
    assert "heads.safetensors: is damaged" in said
    assert hub.requests == []


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe{}"])
def test_a_damaged_configuration_is_named(run: Path, tmp_path: Path, content: bytes) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "soup" / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=r"(?s)config\.json: .* is damaged .*; make the model"):
        with prepared(copy, NAME, "greedy soup"):
            pass


def test_a_tokenizer_without_a_longest_length_is_whole(run: Path, tmp_path: Path) -> None:
    """transformers writes 10 to the power of 30 for it, which is no number of 64 bits."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    config = copy / "soup" / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"longest": 1' + "0" * 30 + ",", 1))
    with prepared(copy, NAME, "greedy soup"):
        pass


def test_a_secret_in_a_file_is_found(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    monkeypatch.setenv("SOME_TOKEN", "hunter2-hunter2")
    config = copy / "soup" / "config.json"
    config.write_text(config.read_text().replace("{", '{"note": "hunter2-hunter2",', 1))
    with pytest.raises(InputError, match="holds a password, a key or a token"):
        with prepared(copy, NAME, "greedy soup"):
            pass


def test_a_dry_run_sends_nothing(run: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), NAME, "--dry-run", "--model", "greedy soup"]) == 0
    said, err = capsys.readouterr()
    assert "model.safetensors" in said and "README.md" in said and "names no licence" in said
    assert err == "loading\ngathering the model's files\n"
    assert hub.requests == []


def test_who_may_not_write_is_told_how(
    run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_ofsomebodyelse")
    assert main([str(run), NAME, "--model", "greedy soup"]) == 2
    said = capsys.readouterr().err
    assert "hf auth login" in said and "hf_ofsomebodyelse" not in said


def test_a_public_model_does_not_become_private_by_itself(
    run: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--quiet", "--model", "greedy soup"]
    assert main([str(run), NAME, *flags]) == 0
    assert main([str(run), NAME, "--private", *flags]) == 2
    assert "exists and is public" in capsys.readouterr().err
    assert len(hub.repos[NAME].commits) == 1


def test_names_and_runs_that_cannot_be_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "not a name"]) == 2
    assert "USER/MODEL" in capsys.readouterr().err
    without = shutil.ignore_patterns("soup", "soups")
    copy = shutil.copytree(run, tmp_path / "copy", ignore=without)
    assert main([str(copy), NAME]) == 2
    assert "has no soup" in capsys.readouterr().err
