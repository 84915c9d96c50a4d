"""A gateway before a REST catalog: tokens of clients end soon, and a share of the requests and replies goes wrong.

    python -m tests.catalogs.gateway PORT PORT_OF_SERVER SHARE SEED

It runs in a process of its own, so that it can be killed like the server. Clients sign requests with `sign`, and the
gateway hands those whose token has not ended to the server, with the server's own token. `SHARE` of the requests go
wrong, each in one way of `WAYS`.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tests.unit.serve.serving import TOKEN

WAYS: Final = ("lost", "reply lost", "late", "ended", "busy", "unavailable", "slow")
"""Never handed on; done without a reply; done after the client was told that the connection broke; refused as a token
that has ended; 429; 503; done with a late reply."""
_LATE_S: Final = (0.05, 2.0)
_token_ends = 0.0


def sign(method: str, path: str, query: Mapping[str, str], body: bytes) -> Mapping[str, str]:
    """Return a token, which ends within a second; a new one if the last one has ended."""
    global _token_ends
    if time.time() >= _token_ends:
        _token_ends = time.time() + random.uniform(0.02, 1)
    return {"Authorization": f"Bearer {_token_ends}"}


class _Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_port: int
    share: float
    rng: random.Random

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        way = self.rng.choice(WAYS) if self.rng.random() < self.share else None
        ends = float((self.headers.get("authorization") or "Bearer 0").removeprefix("Bearer "))
        if way == "ended" or ends < time.time():
            self._reply(401, b'{"code": 401, "message": "the token has ended."}')
        elif way == "busy":
            self._reply(429, b'{"code": 429, "message": "too many requests."}')
        elif way == "unavailable":
            self._reply(503, b'{"code": 503, "message": "busy."}')
        elif way == "lost":
            self.close_connection = True
        elif way == "late":
            self.close_connection = True
            threading.Timer(self.rng.uniform(*_LATE_S), self._done, (body,)).start()
        else:
            done = self._done(body)
            if way == "slow":
                time.sleep(self.rng.uniform(0, 0.5))
            if done is None or way == "reply lost":
                self.close_connection = True
            else:
                self._reply(*done)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names of http.server

    def _done(self, body: bytes) -> tuple[int, bytes] | None:
        """Have the server do it, and return its reply; None: there is none."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            server = http.client.HTTPConnection("127.0.0.1", self.server_port, timeout=60)
            with contextlib.closing(server):
                headers = {key: text for key, text in self.headers.items() if key.lower() not in ("host", "connection")}
                headers |= {"authorization": f"Bearer {TOKEN}"}
                server.request(self.command, self.path, body, headers)
                reply = server.getresponse()
                return reply.status, reply.read()
        return None

    def _reply(self, status: int, content: bytes) -> None:
        with contextlib.suppress(OSError):  # the client was killed
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients are killed."""


if __name__ == "__main__":
    _Gateway.server_port, _Gateway.share = int(sys.argv[2]), float(sys.argv[3])
    _Gateway.rng = random.Random(sys.argv[4])
    listening = _Listening(("127.0.0.1", int(sys.argv[1])), _Gateway)
    print(listening.server_address[1], flush=True)
    listening.serve_forever()
