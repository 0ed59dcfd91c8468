"""The URL of a database: what is wrong with it is told at once, and its password never."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model.common.errors import InputError
from tuner.engine.database.place import StudyPlace

SECRET = "s3same/{open}@me"
QUOTED = "s3same%2F%7Bopen%7D%40me"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (f"keeper:{SECRET}@host", "is not the URL of a database; write postgresql://host"),
        (f"postgresql://keeper:{SECRET}@host:port/x", "is not the URL of a database"),
        (f"oracel://keeper:{QUOTED}@host/x", "'oracel' is not a database that SQLAlchemy knows"),
        ("sqlite://", "names no file; write sqlite:///studies.db"),
        ("sqlite:////no/such/folder/x.db", "there is no folder /no/such/folder; make it"),
        ("env:NO_SUCH_URL", "the environment has no NO_SUCH_URL; set it"),
    ],
)
def test_what_is_wrong_with_a_url_is_told_without_its_password(given: str, fault: str) -> None:
    with pytest.raises(InputError) as error:
        StudyPlace(given)
    assert fault in str(error.value) and "s3same" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "module", "remedy"),
    [
        ("postgresql+psycopg://me@h/x", "psycopg", "pip install '.[postgres]'"),
        ("mysql+pymysql://me@h/x", "pymysql", "pip install pymysql"),
    ],
)
def test_a_missing_driver_is_named_with_the_remedy(
    url: str, module: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="is not installed; ") as error:
        StudyPlace(url)
    assert str(error.value).endswith(remedy)


@pytest.fixture
def no_driver_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StudyPlace, "_check_driver", lambda self: None)


@pytest.mark.usefixtures("no_driver_needed")
def test_people_see_it_without_its_secrets() -> None:
    place = StudyPlace(f"postgresql+x://keeper:{QUOTED}@host:5432/studies?sslpassword=hunter2")
    assert "s3same" not in place.shown and "hunter2" not in place.shown
    assert place.shown.endswith("@host:5432/studies?sslpassword=***")
    for form in (SECRET, QUOTED, "hunter2", place.url.render_as_string(hide_password=False)):
        said = place.told(OSError(f"no way to {form}"))
        assert "s3same" not in said and "hunter2" not in said and said.startswith("no way to")


@pytest.mark.usefixtures("no_driver_needed")
def test_a_url_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUDIES", f"mysql+x://keeper:{QUOTED}@host/x")
    place = StudyPlace("env:STUDIES")
    assert place.shown == "env:STUDIES" and place.url.password == SECRET


def test_a_file_needs_no_driver(tmp_path: Path) -> None:
    place = StudyPlace(f"sqlite:///{tmp_path}/{{x}}.db")
    storage = place.open()
    storage.engine.dispose()
    assert place.file == tmp_path / "{x}.db" and place.file.exists()
