"""A proxy before a namenode that loses requests, or replies, as told."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Proxy:
    """A proxy that runs.

    Attributes:
        address: its own, as `host:port`.
        upstream: that of the namenode.
        ways: operation of WebHDFS -> what to do with its next requests, one after the other: `lose` the reply, `refuse`
            to pass the request on, `break` (answer 500 after it was carried out), or "" to do nothing.
        seen: the operations of requests, in order, and their queries.
        moved_to: where to send those whom the namenode redirects once, instead of a datanode.
    """

    upstream: str
    address: str = ""
    ways: dict[str, list[str]] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    moved_to: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, operation: str) -> int:
        """Return how many requests of an operation came."""
        return sum(seen == operation for seen, _ in self.seen)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        (operation,) = query["op"]
        with self.proxy.lock:
            self.proxy.seen.append((operation, query))
            ways = self.proxy.ways.get(operation)
            way = ways.pop(0) if ways else ""
        if way != "refuse":
            upstream = http.client.HTTPConnection(self.proxy.upstream)
            upstream.request(self.command, self.path)
            reply = upstream.getresponse()
            body = reply.read()
            upstream.close()
        if way in ("refuse", "lose"):
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(500 if way == "break" else reply.status)
        for name in ("Content-Type", "Location"):
            value: Any = reply.headers[name]
            if name == "Location" and value and self.proxy.moved_to:
                parts = urlsplit(value)
                value, self.proxy.moved_to = parts._replace(netloc=self.proxy.moved_to).geturl(), ""
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - the base class looks for these names


@contextmanager
def running(upstream: str) -> Iterator[Proxy]:
    """Run a proxy for the time of the block."""
    proxy = Proxy(upstream)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"proxy": proxy}))
    proxy.address = f"127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield proxy
    listener.shutdown()
    listener.server_close()
    thread.join()
