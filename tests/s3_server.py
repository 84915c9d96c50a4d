"""An S3 server on the loopback interface: moto's, with writes that are atomic, and buckets that fail on purpose.

    python -m tests.s3_server <port>

moto looks whether an object is there, and puts it a moment later. Of two threads both may win then, which S3 excludes.

In a bucket with the name `flaky-<n>-<seed>-...` every n-th request goes wrong, in ways drawn from the seed:

============  ==============================  ==========================================
way           the store                       the client
============  ==============================  ==========================================
UNAVAILABLE   does nothing                    gets 503 `SlowDown`
INTERNAL      does what was asked             gets 500 `InternalError`
LOST          does what was asked             loses the connection before the reply
REFUSED       does nothing                    loses the connection before the reply
CUT           does what was asked             loses the connection in the middle of the reply
SLOW          waits, does what was asked      gets the reply late
============  ==============================  ==========================================

A bucket with the name `keyed-...` takes requests with keys of `keys_of` alone: those of another bucket, and those that
have expired, are refused with 403, and so is a request to write with keys that only read.

In a bucket with the name `held-<milliseconds>-...` every request is held so long before it is answered.
"""

from __future__ import annotations

import io
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

LIST_PAGE: Final = 100
WAYS: Final = ("UNAVAILABLE", "INTERNAL", "LOST", "REFUSED", "CUT", "SLOW")
_SLOW_SECONDS: Final = 0.4
_HELD: Final = re.compile(r"/held-([0-9]+)-")
_KEYED: Final = re.compile(r"/(keyed-[a-z0-9-]+)")
_CREDENTIAL: Final = re.compile(r"Credential=until-([0-9]+)-(read|write)-(keyed-[a-z0-9-]+)/")
_ERROR: Final = "<Error><Code>{}</Code><Message>Please try again.</Message></Error>"


class Bucket(NamedTuple):
    """A fresh bucket, how to reach it, and a client that is not ours."""

    root: str
    options: dict[str, str]
    client: Any


@dataclass
class _Flaky:
    """Which requests to a bucket go wrong, and how."""

    every: int
    rng: random.Random
    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def way(self) -> str | None:
        """Count a request; return how it goes wrong."""
        with self.lock:
            self.count += 1
            return None if self.count % self.every else self.rng.choice(WAYS)


@contextmanager
def running() -> Iterator[str]:
    """Start a server in a process of its own, and yield its endpoint."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.s3_server", str(port)],
        cwd=Path(__file__).parents[1],
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


def keys_of(bucket: str, until_ms: int, role: str = "write") -> dict[str, str]:
    """Return options with keys of a bucket `keyed-...` that expire.

    Args:
        bucket: `s3://keyed-...`, or a path below it.
        until_ms: epoch milliseconds.
        role: "read" or "write".
    """
    name = f"until-{until_ms}-{role}-{bucket.removeprefix('s3://').partition('/')[0]}"
    return {"s3.access-key": name, "s3.secret-key": "test-secret", "s3.session-token": f"session-of-{name}"}


def new_bucket(endpoint: str, *, flaky: tuple[int, int] | None = None, held_ms: int = 0, keyed: bool = False) -> Bucket:
    """Make a bucket.

    Args:
        flaky: (n, seed): every n-th request goes wrong; None: none does.
        held_ms: how long each request is held before it is answered.
        keyed: it takes only keys of `keys_of`. The options have no keys then, and the client cannot ask.
    """
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="test-access",
        aws_secret_access_key="test-secret",
        region_name="us-east-1",
    )
    if keyed:
        name = f"keyed-{uuid.uuid4().hex[:12]}"
        client.create_bucket(Bucket=name)
        return Bucket(f"s3://{name}", {"s3.endpoint": endpoint, "s3.region": "us-east-1"}, client)
    kind = f"held-{held_ms}" if held_ms else "bucket" if flaky is None else f"flaky-{flaky[0]}-{flaky[1]}"
    name = f"{kind}-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    options = {
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key": "test-access",
        "s3.secret-key": "test-secret",
    }
    return Bucket(f"s3://{name}", options, client)


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


class _Server:
    """The application."""

    def __init__(self, dispatch: Callable[..., Iterable[bytes]]) -> None:
        self._dispatch = dispatch
        self._writes = threading.Lock()
        self._flaky: dict[str, _Flaky] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if found := _HELD.match(environ["PATH_INFO"]):
            time.sleep(int(found[1]) / 1000)
        if not _has_keys(environ):
            return _refusal(start_response, "403 Forbidden", "ExpiredToken")
        flaky = self._flaky_of(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        way = None if flaky is None else flaky.way()
        if way is None:
            return self._answer(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        connection: socket.socket = environ["werkzeug.socket"]
        if way == "UNAVAILABLE":
            return _refusal(start_response, "503 Slow Down", "SlowDown")
        if way == "REFUSED":
            connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        if way == "SLOW":
            time.sleep(_SLOW_SECONDS)
            return self._answer(environ, start_response)
        replies: list[tuple[Any, ...]] = []
        reply = b"".join(self._answer(environ, lambda *arguments: replies.append(arguments)))
        if way == "INTERNAL":
            return _refusal(start_response, "500 Internal Server Error", "InternalError")
        if way == "LOST" or len(reply) < 2:
            connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        start_response(*replies[-1])
        return _cut(reply[: len(reply) // 2], connection)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; those that write, one after the other."""
        if environ["REQUEST_METHOD"] not in ("PUT", "POST", "DELETE"):
            return self._dispatch(environ, start_response)
        with self._writes:
            return list(self._dispatch(environ, start_response))

    def _flaky_of(self, method: str, path: str) -> _Flaky | None:
        bucket, _, key = path.lstrip("/").partition("/")
        if not bucket.startswith("flaky-") or (method == "PUT" and not key):  # the bucket itself is made
            return None
        with self._lock:
            if bucket not in self._flaky:
                _, every, seed, _ = bucket.split("-")
                self._flaky[bucket] = _Flaky(int(every), random.Random(int(seed)))
            return self._flaky[bucket]


def _has_keys(environ: dict[str, Any]) -> bool:
    """Return whether a request may be made: it has keys of its bucket that are good."""
    asked = _KEYED.match(environ["PATH_INFO"])
    if asked is None or (environ["PATH_INFO"].rstrip("/") == f"/{asked[1]}" and environ["REQUEST_METHOD"] == "PUT"):
        return True
    found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    if found is None or found[3] != asked[1] or time.time() * 1000 >= int(found[1]):
        return False
    session = environ.get("HTTP_X_AMZ_SECURITY_TOKEN")
    writes = environ["REQUEST_METHOD"] in ("PUT", "POST", "DELETE")
    return session == f"session-of-until-{found[1]}-{found[2]}-{found[3]}" and (found[2] == "write" or not writes)


def _refusal(start_response: Callable[..., Any], status: str, code: str) -> list[bytes]:
    start_response(status, [("Content-Type", "application/xml")])
    return [_ERROR.format(code).encode()]


def _cut(part: bytes, connection: socket.socket) -> Iterator[bytes]:
    yield part
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


if __name__ == "__main__":
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    application = _Server(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
