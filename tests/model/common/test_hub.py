from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.common import hub
from model.common.errors import InputError
from model.modules.encoder_defaults import MINILM, TINY


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a process that has not asked yet, and whose user did not say that it is offline."""
    import huggingface_hub.constants

    monkeypatch.setenv(hub.OFFLINE, "0")
    monkeypatch.setattr(huggingface_hub.constants, hub.OFFLINE, False)
    monkeypatch.setattr(hub, "getproxies", dict)
    hub.no_way.cache_clear()
    yield
    hub.no_way.cache_clear()


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    def refuse(place: Any, timeout: float) -> Any:
        asked.append(place)
        raise OSError("no route")

    monkeypatch.setattr(socket, "create_connection", refuse)
    return asked


def test_without_a_network_a_hub_id_is_refused_in_one_sentence(away: list[Any]) -> None:
    import huggingface_hub.constants

    for _ in range(2):
        with pytest.raises(InputError) as refused:
            hub.require_encoder("some/encoder")
        (fault,) = refused.value.faults
        assert fault.startswith("'some/encoder' is not on this machine, and the Hub (https://hugg")
        assert "give the folder of a copy" in fault and "HF_HUB_OFFLINE=1" in fault
    assert away == [("huggingface.co", 443)]  # asked once
    assert os.environ["HF_HUB_OFFLINE"] == "1" and huggingface_hub.constants.HF_HUB_OFFLINE


def test_what_is_in_the_cache_needs_no_network(
    away: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--some--encoder" / "snapshots").mkdir(parents=True)
    hub.require_encoder("some/encoder")
    with pytest.raises(InputError) as refused:
        hub.require_encoder("some/encoder", "tiny", "no/one", "nor/another")
    named = [fault.split(" is not on")[0] for fault in refused.value.faults]
    assert named == ["'no/one'", "'nor/another'"]  # all at once


def test_folders_and_our_own_encoders_do_not_ask(
    away: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in (*hub.OWN, "mine", str(tmp_path), "./nowhere", "~/nowhere"):
        hub.require_encoder(name)
    assert away == [] and {MINILM, TINY} == set(hub.OWN)


def test_whoever_is_offline_on_purpose_is_not_asked(
    away: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(hub.OFFLINE, "1")
    hub.require_encoder("some/encoder")  # the library says by itself what it lacks
    assert away == []


def test_another_endpoint_is_asked_in_place_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert hub.reachable()
    assert not hub.reachable()
