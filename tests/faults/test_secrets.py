"""Passwords and keys are refused where they would be kept, and hidden where they would be shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.common.errors import InputError
from model.common.secrets import redact
from tuner.search.__main__ import main

KEY = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://me:pass@bucket/x", "s3://***@bucket/x"),
        ("at https://token@host:80/y now", "at https://***@host:80/y now"),
        ("postgresql+psycopg2://u:p%40q@db/optuna", "postgresql+psycopg2://***@db/optuna"),
        ("s3:/me:pass@bucket", "s3:/***@bucket"),  # as a path has it
        ("s3://b/x?access_key=A1&region=eu", "s3://b/x?access_key=***&region=eu"),
        ("s3://b/x?region=eu&secret_key=B2", "s3://b/x?region=eu&secret_key=***"),
        ("https://h/x?X-Amz-Signature=ab12", "https://h/x?X-Amz-Signature=***"),
        (f"key {KEY}.", "key ***."),
        ("a@b.org wrote to c@d.org", "a@b.org wrote to c@d.org"),
        ("runs/mine/t0001", "runs/mine/t0001"),
        ("smart.weight=5 keys=3", "smart.weight=5 keys=3"),
        ("https://host/plain?region=eu", "https://host/plain?region=eu"),
    ],
)
def test_what_is_secret_is_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact(text, {}) == shown


def test_what_the_environment_calls_a_secret_is_hidden() -> None:
    environment = {"MY_TOKEN": "abcdefgh1", "HOME": "/home/somebody", "SHORT_KEY": "abc"}
    assert redact("abcdefgh1 in /home/somebody, abc", environment) == "*** in /home/somebody, abc"


@given(st.text(max_size=200))
def test_hiding_twice_hides_no_more(text: str) -> None:
    assert redact(redact(text, {}), {}) == redact(text, {})


def test_an_error_does_not_repeat_a_password() -> None:
    error = InputError("s3://me:pass@bucket", ["https://me:pass@host does not answer"])
    assert "pass" not in str(error)
    assert "s3://***@bucket: 1 problem" in str(error)


@pytest.mark.parametrize(
    "flags",
    [
        ["--data", "s3://me:hunter2@bucket/data"],
        ["--encoder", "https://me:hunter2@host/encoder"],
        ["--set", "init_from=https://host/model?token=hunter2"],
    ],
    ids=["data", "encoder", "set"],
)
def test_a_secret_that_would_be_kept_is_refused(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "runs"
    assert main(["--storage-path", str(storage), *flags]) == 2
    said = "".join(capsys.readouterr())
    assert "holds a password or a key" in said
    assert "hunter2" not in said
    assert not storage.exists()
