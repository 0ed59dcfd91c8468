"""A server of MLflow's on this machine, where there is one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.tuner.search_runs import PATIENCE


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    """The whole package's, which does not go with the pins: from an environment of its own."""
    if not (command := os.environ.get("MLFLOW_SERVER")):
        pytest.skip("MLFLOW_SERVER is not set: the path of the command mlflow of the whole package")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    place = ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db"]
    files = ["--artifacts-destination", str(tmp_path / "artifacts")]
    words = [command, "server", "--host", "127.0.0.1", "--port", port, "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(
        [*words, *place, *files],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_answer(process, uri := f"http://127.0.0.1:{port}")
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for_answer(process: subprocess.Popen[bytes], uri: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urlopen(f"{uri}/version", timeout=10).read()
            return
        except OSError:  # it is still making its tables
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
