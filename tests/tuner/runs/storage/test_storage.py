from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from model.common.errors import InputError
from tests.tuner.s3_server import S3
from tuner.runs.request import ExecutionOptions
from tuner.runs.storage.storage import Storage, StorageLost, is_url, secrets_of, without_secrets

SECRET = "s3://AKIA:hush@bucket/path?region=eu&session_token=sesame&scheme=http"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.runs.storage.storage.PAUSES", (0.01,))


def test_what_is_written_comes_back(storage: Storage, tmp_path: Path) -> None:
    storage.check()
    storage.write("a/b.txt", b"first")
    storage.write("a/b.txt", b"second")
    assert storage.read("a/b.txt") == b"second"
    (tmp_path / "big").write_bytes(bytes(range(256)) * 9000)
    storage.put(tmp_path / "big", "a/c/big")
    storage.get("a/c/big", tmp_path / "new" / "big")
    assert (tmp_path / "new" / "big").read_bytes() == (tmp_path / "big").read_bytes()
    assert storage.files() == {"a/b.txt": 6, "a/c/big": 256 * 9000}
    assert storage.files("a/c") == {"a/c/big": 256 * 9000}
    assert storage.inside("a").files("c") == {"c/big": 256 * 9000}


def test_what_is_not_there_is_no_fault(storage: Storage) -> None:
    assert storage.files("nowhere") == {}
    assert storage.read("nowhere") is None
    storage.remove(["nowhere"])


def test_removed_is_gone(storage: Storage) -> None:
    storage.write("a/b", b"1")
    storage.write("a/c", b"2")
    storage.remove(["a/b"])
    assert storage.files() == {"a/c": 1}


def test_a_missing_file_leaves_nothing_half_fetched(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(StorageLost, match="cannot read gone in "):
        storage.get("gone", tmp_path / "here" / "gone")
    assert list((tmp_path / "here").iterdir()) == []


def test_storage_travels_without_its_connections(storage: Storage) -> None:
    storage.write("a", b"1")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"


def test_a_bucket_that_is_not_there_is_one_sentence(s3: S3) -> None:
    with pytest.raises(InputError) as error:
        Storage(s3.url("x", bucket="nobody")).check()
    (fault,) = error.value.faults
    assert "s3://nobody/x" in str(error.value)
    assert "check that it exists" in fault
    assert "\n" not in fault


@pytest.mark.parametrize("url", ["nope://x/y", "s3://b/x?colour=red", "s3://"])
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="write a folder, s3://bucket/path or gs://bucket/path"):
        Storage(url).files()


def test_secrets_are_not_shown() -> None:
    shown = without_secrets(SECRET)
    assert shown == "s3://***@bucket/path?region=eu&session_token=***&scheme=http"
    assert secrets_of(SECRET) == ["AKIA:hush", "sesame", "AKIA", "hush"]
    for text in (repr(Storage(SECRET)), Storage(SECRET).inside("run").shown):
        assert not any(secret in text for secret in secrets_of(SECRET))
    endpoint = "s3://b/x?endpoint_override=http://me:hush@host:9000"
    assert without_secrets(endpoint) == "s3://b/x?endpoint_override=http://***@host:9000"
    assert "hush" in secrets_of(endpoint)


def test_secrets_are_not_in_errors() -> None:
    with pytest.raises(InputError) as error:
        Storage("nope://AKIA:hush@bucket/path?token=sesame").files()
    assert not any(word in str(error.value) for word in ("AKIA", "hush", "sesame"))


def test_a_url_is_told_from_a_folder() -> None:
    assert is_url("s3://bucket/x") and not is_url("runs/s3") and not is_url(Path("/a/b"))
    how = ExecutionOptions(storage_path="s3://bucket/x", local_path=Path("here"))  # type: ignore[arg-type]
    assert (how.storage_path, how.remote) == (Path("here"), "s3://bucket/x")
    assert ExecutionOptions(storage_path=Path("runs/x")).remote is None
