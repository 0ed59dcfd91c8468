from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import yaml
from huggingface_hub.errors import EntryNotFoundError
from huggingface_hub.utils.tqdm import are_progress_bars_disabled

from model.common.errors import InputError
from model.modules import encoder
from model.modules.encoder import minilm_folder
from model.modules.encoder_defaults import (
    CAUTIONS,
    EncoderDefaults,
    caution,
    encoder_defaults,
    file_of,
)
from model.tasks.task_set import load_task_set

MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
CLS = {"pooling_mode_cls_token": True}
Cache = Callable[..., None]


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_what_suits_the_encoders_we_know(tmp_path: Path) -> None:
    assert encoder_defaults("minilm") == EncoderDefaults("mean", 2e-4)
    assert encoder_defaults("tiny").pooling == "mean"
    assert encoder_defaults("bert-base-uncased") == EncoderDefaults(
        "cls", 2e-5
    )  # not cached, and offline
    assert encoder_defaults(str(tmp_path / "none")) == EncoderDefaults("cls", 2e-5)
    assert encoder.encoder_defaults is encoder_defaults


def test_a_folder_of_minilm_suits_what_minilm_does() -> None:
    assert encoder_defaults(str(minilm_folder())) == encoder_defaults("minilm")


def test_a_sentence_transformers_folder_says_how_it_pools(tmp_path: Path) -> None:
    write(tmp_path / "1_Pooling" / "config.json", MEAN)
    assert encoder_defaults(str(tmp_path)) == EncoderDefaults("mean", 2e-5)
    write(tmp_path / "1_Pooling" / "config.json", CLS)
    assert encoder_defaults(str(tmp_path)) == EncoderDefaults("cls", 2e-5)


def test_a_model_folder_says_what_suited_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "config.json", {"hidden_size": 384})
    write(tmp_path / "stockpot.json", {"pooling": "pooler"})
    assert encoder_defaults(str(tmp_path)) == EncoderDefaults("pooler", 2e-5)
    write(tmp_path / "stockpot.json", {"pooling": "mean", "learning_rate": 0.0003})
    assert encoder_defaults(str(tmp_path)) == EncoderDefaults("mean", 3e-4)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert encoder_defaults(f"~/{tmp_path.name}") == EncoderDefaults("mean", 3e-4)
    for odd in (None, "fast", -1, 0, True, float("inf"), float("nan"), [1e-4]):
        write(tmp_path / "stockpot.json", {"pooling": "mean", "learning_rate": odd})
        assert encoder_defaults(str(tmp_path)).learning_rate == 2e-5


@pytest.mark.parametrize(
    ("text", "fault"), [("{", "cannot be read as JSON"), ("[1]", "is not a JSON object")]
)
def test_a_damaged_description_is_told(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "stockpot.json"
    path.write_text(text)
    with pytest.raises(InputError, match=fault) as caught:
        encoder_defaults(str(tmp_path))
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        ({"hidden_size": 128}, 2e-4),
        ({"hidden_size": 384}, 2e-4),
        ({"hidden_size": 385}, 1e-4),
        ({"hidden_size": 512}, 1e-4),
        ({"hidden_size": 768}, 2e-5),
        ({"dim": 512}, 1e-4),  # DistilBERT
        ({}, 2e-5),
        ({"hidden_size": "wide"}, 2e-5),
        ({"hidden_size": True}, 2e-5),
        ([], 2e-5),
    ],
)
def test_a_narrow_encoder_bears_a_higher_rate(tmp_path: Path, config: Any, rate: float) -> None:
    write(tmp_path / "config.json", config)
    assert encoder_defaults(str(tmp_path)) == EncoderDefaults("cls", rate)


# --- the Hub ------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """Puts files of a model into a cache of the Hub's; None notes that there is no such file."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", pytest.fail)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", pytest.fail)

    def put(name: str, files: dict[str, Any]) -> None:
        folder = tmp_path / f"models--{name.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("abc")
        for file, content in files.items():
            place = "snapshots" if content is not None else ".no_exist"
            write(folder / place / "abc" / file, content)

    return put


@pytest.fixture
def online(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


def test_a_cached_model_of_the_hub_suits_what_its_folder_would(cache: Cache) -> None:
    cache("us/small", {"1_Pooling/config.json": MEAN, "config.json": {"hidden_size": 384}})
    assert encoder_defaults("us/small") == EncoderDefaults("mean", 2e-4)
    cache("us/large", {"1_Pooling/config.json": CLS, "config.json": {"hidden_size": 1024}})
    assert encoder_defaults("us/large") == EncoderDefaults("cls", 2e-5)
    cache("plain", {"config.json": {"hidden_size": 512}})
    assert encoder_defaults("plain") == EncoderDefaults("cls", 1e-4)


def test_offline_nothing_is_asked_for(cache: Cache) -> None:
    assert huggingface_hub.constants.HF_HUB_OFFLINE
    assert encoder_defaults("us/unknown") == EncoderDefaults("cls", 2e-5)


@pytest.mark.usefixtures("online")
def test_what_the_cache_knows_is_not_asked_for_again(cache: Cache) -> None:
    cache("us/plain", {"1_Pooling/config.json": None, "config.json": {"hidden_size": 768}})
    assert encoder_defaults("us/plain") == EncoderDefaults("cls", 2e-5)
    for odd in ("a b", "x/y/z", "./none", "/none", "", "a\0b", "x" * 5000):
        assert encoder_defaults(odd) == EncoderDefaults("cls", 2e-5)  # no Hub id, and no folder


@pytest.mark.usefixtures("online")
def test_a_model_that_is_not_cached_is_looked_up_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "1_Pooling" / "config.json", MEAN)
    write(tmp_path / "config.json", {"hidden_size": 384})
    asked, quiet = [], []

    def head(url: str, *, timeout: float) -> None:
        asked.append(url)
        assert timeout < 5

    def download(name: str, file: str) -> str:
        quiet.append(are_progress_bars_disabled())
        return str(tmp_path / file)

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", head)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    before = are_progress_bars_disabled()
    assert encoder_defaults("us/fresh") == EncoderDefaults("mean", 2e-4)
    assert [url.split("/resolve/main/")[1] for url in asked] == [
        "1_Pooling/config.json",
        "config.json",
    ]
    assert quiet == [True, True] and are_progress_bars_disabled() == before


@pytest.mark.usefixtures("online")
def test_a_model_without_the_file_is_noted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = []

    def head(url: str, *, timeout: float) -> None:
        raise EntryNotFoundError("404")

    def download(name: str, file: str) -> str:
        marked.append(file)  # the library notes it in the cache here
        raise EntryNotFoundError("404")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", head)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert file_of("us/plain", "1_Pooling/config.json") is None
    assert marked == ["1_Pooling/config.json"]


@pytest.mark.usefixtures("online")
def test_without_a_network_the_usual_is_taken_after_one_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def head(url: str, *, timeout: float) -> None:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", head)
    assert encoder_defaults("us/fresh") == EncoderDefaults("cls", 2e-5)


# --- cautions -----------------------------------------------------------------------------------


def tasks_of(folder: Path, **source: Any) -> Any:
    task = {"binary": True, "columns": {"text": ["a", "b"], "label": "y"}, **source}
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({"tasks": {"same": task}}))
    return load_task_set(str(path))


def test_minilm_comes_with_a_caution_where_quora_is_scored(tmp_path: Path) -> None:
    assert caution("minilm", load_task_set("cs224n")) == CAUTIONS["minilm"]
    assert caution("tiny", load_task_set("cs224n")) is None
    assert caution("minilm", load_task_set("sample")) is None
    files = {"train": "QQP/train.tsv", "dev": "QQP/dev.tsv"}
    assert caution("minilm", tasks_of(tmp_path, format="glue", files=files))
    splits = {"train": "train", "dev": "validation"}
    hub: dict[str, Any] = {"dataset": "glue", "config": "qqp", "splits": splits}
    assert caution("minilm", tasks_of(tmp_path, format="hub", hub=hub))
    assert (
        caution("minilm", tasks_of(tmp_path, format="hub", hub={**hub, "config": "mrpc"})) is None
    )
