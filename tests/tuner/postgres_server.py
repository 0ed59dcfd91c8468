"""A real PostgreSQL for tests: Debian's, as an unprivileged user, on a Unix socket and no port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

PASSWORD = "sesame{open}/me please"  # with all that a URL has to quote
USER = "keeper"
PATIENCE = 60.0  # seconds


def binaries() -> Path | None:
    """Debian keeps them out of the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    place = str(found[-1]) if found else shutil.which("initdb")
    return Path(place).resolve().parent if place else None


def why_not() -> str | None:
    """Why there is no server here; None if there can be one."""
    if binaries() is None:
        return "no PostgreSQL; as root on Debian `make test` installs it"
    if find_spec("psycopg") is None:
        return "no psycopg; pip install '.[postgres]'"
    return None if owner() is not None else "PostgreSQL does not run as root, and there is no other"


def owner() -> pwd.struct_passwd | None:
    """Who runs it: this user, or, as it refuses root, its own or nobody."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@dataclass
class Postgres:
    folder: Path

    def url(self, database: str = "postgres") -> str:
        """With its password."""
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Its URL."""
        import psycopg

        name = f"d{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def start(self) -> None:
        folder, bin_ = self.folder, self._bin
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [bin_ / "postgres", "-D", folder / "data", "-c", "listen_addresses="]
                + ["-c", f"unix_socket_directories={folder}", "-c", "fsync=off"],
                **self._as_owner,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while subprocess.run([bin_ / "pg_isready", "-q", "-h", folder]).returncode != 0:
            alive = self.process.poll() is None and time.monotonic() < deadline
            assert alive, (folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """At once, as a crash would."""
        self.process.send_signal(3)
        self.process.wait(PATIENCE)

    def make(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD)
        own = owner()
        assert own is not None
        for place in (self.folder, secret):
            os.chown(place, own.pw_uid, own.pw_gid)
        words = [self._bin / "initdb", "-D", self.folder / "data", "--username", USER]
        words += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "--locale=C"]
        words += ["--encoding=UTF8"]
        subprocess.run(words, check=True, **self._as_owner, stdout=subprocess.DEVNULL)

    @property
    def _bin(self) -> Path:
        place = binaries()
        assert place is not None
        return place

    @property
    def _as_owner(self) -> dict[str, Any]:
        own = owner()
        assert own is not None
        given: dict[str, Any] = {"cwd": self.folder}
        if os.getuid() == 0:
            given |= {"user": own.pw_uid, "group": own.pw_gid, "extra_groups": []}
        return given


@contextmanager
def postgres() -> Iterator[Postgres]:
    # Not pytest's folder: it is closed to other users, and too long for a socket's name.
    folder = Path(tempfile.mkdtemp(prefix="stockpot-postgres-"))
    server = Postgres(folder)
    try:
        server.make()
        server.start()
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.stop()
    finally:
        shutil.rmtree(folder)
