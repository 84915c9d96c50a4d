"""An S3 server on the loopback, for the tests marked `s3`; deselect them with `-m "not s3"`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIST_PAGE = 100


class Bucket(NamedTuple):
    """A fresh bucket, how to reach it, and a client that is not ours."""

    root: str
    options: dict[str, str]
    client: Any


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    pytest.importorskip("moto.server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.storage.s3_server", str(port)],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": str(LIST_PAGE)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the S3 server did not come up in 60 s")


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        aws_access_key_id="test-access",
        aws_secret_access_key="test-secret",
        region_name="us-east-1",
    )
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    options = {
        "s3.endpoint": s3_endpoint,
        "s3.region": "us-east-1",
        "s3.access-key": "test-access",
        "s3.secret-key": "test-secret",
    }
    return Bucket(f"s3://{name}", options, client)
