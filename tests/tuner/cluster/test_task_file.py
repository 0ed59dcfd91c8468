"""Tasks of SkyPilot and dstack. Their packages, which `dev` has not, are asked where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tuner.cluster.__main__ import main
from tuner.cluster.file import check_file
from tuner.cluster.task_file import DSTACK, SKYPILOT, launcher_of

FOLDER = Path(__file__).parents[3] / "docs" / "clusters"
SKY_FILE, DSTACK_FILE = FOLDER / "skypilot.yaml", FOLDER / "dstack.yaml"

# file, what is written instead of what, and what is said about it
BAD = {
    "a misspelt key": (SKY_FILE, "num_nodes:", "num_node:", "did you mean 'num_nodes'?"),
    "a misspelt resource": (
        SKY_FILE,
        "use_spot:",
        "use_spots:",
        "line 9: 'resources.use_spots' is not a key of a SkyPilot task",
    ),
    "SkyPilot without a token": (SKY_FILE, "RAY_AUTH_MODE=token", "A=1", "without a token"),
    "symmetric-run": (SKY_FILE, "ray start --head", "ray symmetric-run", "SkyPilot's own Ray"),
    "ray stop": (SKY_FILE, "setup: |\n", "setup: |\n  ray stop\n", "'ray stop' ends SkyPilot's"),
    "auto": (SKY_FILE, 'search --address "$head:6379"', "search --address auto", "may find"),
    "SkyPilot's folders": (SKY_FILE, "s3://ours/runs", "~/runs", "storage '~/runs' is a folder"),
    "a misspelt key of dstack": (DSTACK_FILE, "spot_policy:", "spot-policy:", "'spot_policy'?"),
    "a misspelt event": (DSTACK_FILE, "  on_events:", "  on_event:", "'retry.on_event' is not"),
    "dstack without a token": (DSTACK_FILE, "RAY_AUTH_MODE=token", "A=1", "without a token"),
    "an open dashboard": (
        DSTACK_FILE,
        "=127.0.0.1",
        "=0.0.0.0",
        "the dashboard is open on 0.0.0.0",
    ),
    "another version": (
        DSTACK_FILE,
        "pip install",
        "pip install ray==2.9.0",
        "'ray==2.9.0' is not",
    ),
    "a number in words": (SKY_FILE, "num_nodes: 2", "num_nodes: two", "is a number, but is 'two'"),
    "a command that is none": (
        DSTACK_FILE,
        "commands:\n",
        "commands:\n  - echo key: value\n",
        "put it in quotes",
    ),
    "an image": (DSTACK_FILE, 'python: "3.11"', "image: us/pot:latest", "is not pinned"),
    "dstack's folders": (DSTACK_FILE, "s3://ours/runs", "/runs", "storage '/runs' is a folder"),
}


def filled_in(path: Path) -> str:
    return path.read_text(encoding="utf-8").replace("BUCKET", "ours")


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, old, new, message = BAD[name]
    text = filled_in(source)
    assert old in text
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert main(["check", str(path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("path", [SKY_FILE, DSTACK_FILE], ids=lambda path: path.name)
def test_one_machine_or_a_shared_folder_may_have_storage_of_its_own(
    path: Path, tmp_path: Path
) -> None:
    mine = tmp_path / path.name
    mine.write_text(filled_in(path).replace("s3://ours/runs", "/nfs/runs"))
    assert len(check_file(mine)) == 1
    assert check_file(mine, shared=True) == []
    mine.write_text(mine.read_text().replace("odes: 2", "odes: 1"))
    assert check_file(mine) == []


def test_each_file_is_known_for_what_it_is() -> None:
    assert launcher_of(yaml.safe_load(SKY_FILE.read_text())) is SKYPILOT
    assert launcher_of(yaml.safe_load(DSTACK_FILE.read_text())) is DSTACK
    assert launcher_of(yaml.safe_load((FOLDER / "local.yaml").read_text())) is None


def test_skypilot_takes_its_file_and_the_table_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where it keeps a folder, and looks for the token
    sky = pytest.importorskip("sky", reason="SkyPilot is not installed")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    monkeypatch.chdir(FOLDER.parents[1])
    task = sky.Task.from_yaml(str(SKY_FILE))
    assert task.num_nodes == 2
    schema = sky.utils.schemas
    known = schema.get_task_schema()["properties"]
    assert {key for key in known if key[0] != "_"} == SKYPILOT.keys
    known = schema.get_resources_schema()["properties"]
    assert {key for key in known if key[0] != "_"} == SKYPILOT.inside["resources"]


def test_dstack_takes_its_file_and_the_table_is_its_own() -> None:
    pytest.importorskip("dstack", reason="dstack is not installed")
    from dstack._internal.core.models.configurations import (
        TaskConfiguration,
        parse_apply_configuration,
    )
    from dstack._internal.core.models.profiles import ProfileRetry
    from dstack._internal.core.models.resources import ResourcesSpec

    task = parse_apply_configuration(yaml.safe_load(DSTACK_FILE.read_text()))
    assert task.nodes == 2 and task.env["RAY_AUTH_MODE"] == "token"
    assert set(TaskConfiguration.model_fields) == DSTACK.keys
    assert set(ResourcesSpec.model_fields) == DSTACK.inside["resources"]
    assert set(ProfileRetry.model_fields) == DSTACK.inside["retry"]
