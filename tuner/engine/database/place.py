"""A database that studies are in: its URL, what it needs, and what of it people may see."""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.common.errors import InputError, install
from model.common.secrets import brief, hide, redact

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from sqlalchemy.engine import URL

FROM_ENVIRONMENT = "env:"
PATIENCE = 10  # seconds for a database to answer
EXTRAS = {"psycopg": "postgres"}  # drivers that an extra brings
EXAMPLE = "postgresql://host/database or sqlite:///studies.db"


class StudyPlace:
    """A storage URL, or env:NAME for the one in that environment variable. It may hold a password,
    so only `shown` is for people. Raises InputError for one that cannot be used here."""

    def __init__(self, given: str, flag: str = "--study-storage") -> None:
        self.given, self.flag = given, flag
        self.url = self._read()
        self._check_driver()

    def _read(self) -> URL:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        text = self.given
        if text.startswith(FROM_ENVIRONMENT):
            name = text.removeprefix(FROM_ENVIRONMENT)
            text = os.environ.get(name, "")
            if not text:
                raise self.fault(f"the environment has no {name}; set it to the storage's URL")
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):  # which quote it, password and all
            raise self.fault(f"is not the URL of a database; write {EXAMPLE}") from None
        if url.drivername == "postgresql" and find_spec("psycopg"):
            url = url.set(drivername="postgresql+psycopg")  # whatever SQLAlchemy takes by itself
        if url.get_backend_name() == "sqlite":
            self._check_file(url)
        return url

    def _check_file(self, url: URL) -> None:
        if url.database in (None, "", ":memory:"):
            raise self.fault("names no file; write sqlite:///studies.db")
        folder = Path(str(url.database)).absolute().parent
        if not folder.is_dir():
            raise self.fault(f"there is no folder {folder}; make it, or name another file")

    def _check_driver(self) -> None:
        from sqlalchemy.exc import NoSuchModuleError

        try:
            self.url.get_dialect().import_dbapi()
        except NoSuchModuleError:
            fault = f"'{self.url.drivername}' is not a database that SQLAlchemy knows"
            raise self.fault(f"{fault}; write {EXAMPLE}") from None
        except ImportError as error:
            name = error.name or self.url.drivername
            remedy = install(EXTRAS[name]) if name in EXTRAS else f"pip install {name}"
            raise self.fault(f"its driver {name} is not installed; {remedy}") from None

    @property
    def shown(self) -> str:
        """As a command has it, without its secrets."""
        if self.given.startswith(FROM_ENVIRONMENT):
            return self.given
        return self.hide(self.url.render_as_string(hide_password=True))

    def hide(self, text: str) -> str:
        """The text without the password, in whatever form it is there."""
        return redact(hide(text, self._secrets()))

    def _secrets(self) -> list[str]:
        query = [str(value) for key, value in self.url.query.items() if "pass" in key.lower()]
        found = [str(self.url.password or ""), *query]
        return sorted((value for value in found if value), key=lambda value: -len(value))

    def told(self, error: BaseException) -> str:
        """What went wrong, in one line; Optuna's errors say it in what caused them."""
        while error.__cause__ is not None:
            error = error.__cause__
        error = getattr(error, "orig", None) or error
        return brief(self.hide(str(error)), 300) or type(error).__name__

    def fault(self, text: str) -> InputError:
        return InputError(self.flag, [text])

    def open(self) -> RDBStorage:
        """With its tables, which are made where there are none."""
        from optuna.storages import RDBStorage

        # Its line about a new study. `quiet` is for one thread only.
        logging.getLogger(RDBStorage.__module__).setLevel(logging.WARNING)
        url = self.url.render_as_string(hide_password=False)
        braced = url.replace("{", "{{").replace("}", "}}")  # Optuna formats it
        return RDBStorage(braced, engine_kwargs=self.options())

    def options(self) -> dict[str, Any]:
        patience = "timeout" if self.url.get_backend_name() == "sqlite" else "connect_timeout"
        return {"connect_args": {patience: PATIENCE}, "pool_pre_ping": True}

    @property
    def file(self) -> Path | None:
        """Of SQLite."""
        is_file = self.url.get_backend_name() == "sqlite"
        return Path(str(self.url.database)) if is_file else None
