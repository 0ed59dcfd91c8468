"""An S3 of this process, for tests: moto behind a port of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass
class S3:
    port: int
    client: Any

    def url(self, path: str = "", bucket: str = "bucket") -> str:
        place = f"http://127.0.0.1:{self.port}"
        return f"s3://{bucket}/{path}?endpoint_override={place}&scheme=http&region=us-east-1"

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket="bucket", Prefix=prefix
        )
        found = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return [key for key in found if not key.endswith("/")]


@contextmanager
def s3_server() -> Iterator[S3]:
    boto3 = pytest.importorskip("boto3")
    server_of = pytest.importorskip("moto.server")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            _, port = server.get_host_and_port()
            client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
            client.create_bucket(Bucket="bucket")
            yield S3(port, client)
        finally:
            server.stop()


def credentials() -> dict[str, str]:
    return {**os.environ, **KEYS}
