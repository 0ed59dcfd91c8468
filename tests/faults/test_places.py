"""Storage that cannot be used, and names that lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.search.__main__ import main

SMALL = ["--encoder", "tiny", "--num-samples", "1"]


def test_storage_that_cannot_be_written_is_named_before_anything_starts(
    read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--storage-path", str(read_only / "runs"), *SMALL]) == 2
    said = capsys.readouterr().err
    assert f"{read_only / 'runs'}" in said
    assert "cannot be made" in said and "choose another --storage-path" in said
    assert "Traceback" not in said


def test_a_storage_path_through_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert main(["--storage-path", str(tmp_path / "file" / "runs"), *SMALL]) == 2
    assert "cannot be made (Not a directory)" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/abs", "..", ".x", "a b", "é", "a\x00b", ""]
)
def test_a_name_never_leads_out_of_the_storage(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "runs"
    code = main(["--storage-path", str(storage), "--name", name, *SMALL, "--resume"])
    assert code == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
