"""A proxy before a namenode and its datanodes that loses requests, or replies, as told or as drawn.

============  ==========================  =====================================
way           the cluster                 the client
============  ==========================  =====================================
unavailable   does nothing                gets 503
break         does what was asked         gets 500
lose          does what was asked         loses the connection before the reply
refuse        does nothing                loses the connection before the reply
cut           does what was asked         loses the connection in the reply
slow          waits, does what was asked  gets the reply late
============  ==========================  =====================================
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

WAYS: Final = ("unavailable", "break", "lose", "refuse", "cut", "slow")
_SLOW_SECONDS: Final = 0.2
_UPSTREAM: Final = "&upstream="


@dataclass
class Proxy:
    """A proxy that runs.

    Attributes:
        address: its own, as `host:port`.
        upstream: that of the namenode.
        flaky: (n, seed): every n-th request goes wrong, those to datanodes included, in a way that is drawn.
        ways: operation of WebHDFS -> the ways of its next requests to the namenode, one after the other; "": none.
        seen: the operations of requests to the namenode, in order, and their queries.
        moved_to: where to send those whom the namenode redirects once, instead of a datanode.
    """

    upstream: str
    address: str = ""
    flaky: tuple[int, int] | None = None
    ways: dict[str, list[str]] = field(default_factory=dict)
    seen: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    moved_to: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    count_all: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.flaky[1] if self.flaky else 0)

    def count(self, operation: str) -> int:
        """Return how many requests of an operation came."""
        return sum(seen == operation for seen, _ in self.seen)

    def way(self, query: dict[str, list[str]], *, is_datanode: bool) -> str:
        """Count a request; return how it goes wrong."""
        (operation,) = query["op"]
        with self.lock:
            self.count_all += 1
            if self.flaky and self.count_all % self.flaky[0] == 0:
                return self._rng.choice(WAYS)
            if is_datanode:
                return ""
            self.seen.append((operation, query))
            ways = self.ways.get(operation)
            return ways.pop(0) if ways else ""

    def moved(self, location: str) -> str:
        """Return where the client is redirected to."""
        parts = urlsplit(location)
        if self.moved_to:
            found, self.moved_to = parts._replace(netloc=self.moved_to).geturl(), ""
            return found
        if self.flaky:
            return parts._replace(netloc=self.address).geturl() + _UPSTREAM + parts.netloc
        return location


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body of each reply waits for 40 ms
    proxy: Proxy

    def log_message(self, *_: object) -> None:
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, datanode = self.path.partition(_UPSTREAM)
        way = self.proxy.way(parse_qs(urlsplit(path).query), is_datanode=bool(datanode))
        if way == "slow":
            time.sleep(_SLOW_SECONDS)
        if way == "unavailable":
            return self._answer(503, b"", {})
        if way == "refuse":
            return self._hang_up()
        upstream = http.client.HTTPConnection(datanode or self.proxy.upstream)
        upstream.request(self.command, path, body or None, {"Content-Type": "application/octet-stream"})
        reply = upstream.getresponse()
        found = reply.read()
        upstream.close()
        headers: dict[str, Any] = {name: reply.headers[name] for name in ("Content-Type", "Location")}
        if way == "lose":
            return self._hang_up()
        if headers["Location"] and not datanode:
            headers["Location"] = self.proxy.moved(headers["Location"])
        if way == "cut":
            self._answer(reply.status, found, headers, sent=len(found) // 2)
            return self._hang_up()
        return self._answer(500 if way == "break" else reply.status, found, headers)

    do_GET = do_PUT = do_DELETE = _pass_on  # noqa: N815 - the base class looks for these names

    def _answer(self, status: int, body: bytes, headers: dict[str, Any], *, sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()


@contextmanager
def running(upstream: str, flaky: tuple[int, int] | None = None) -> Iterator[Proxy]:
    """Run a proxy for the time of the block."""
    proxy = Proxy(upstream, flaky=flaky)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"proxy": proxy}))
    proxy.address = f"127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield proxy
    listener.shutdown()
    listener.server_close()
    thread.join()
