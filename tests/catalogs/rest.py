"""A server of a REST catalog in a process of its own, and a proxy before it that loses, delays and refuses."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import merganser as mg
from tests.unit.serve.serving import TOKEN, Serving

Answer = tuple[int, Mapping[str, str], bytes]
NOTHING: Answer = (0, {}, b"")
"""No reply: the connection is closed."""


class Server(Serving):
    """A server that may change its warehouse, with clients of it."""

    def __init__(self, folder: Path, warehouse: str | None = None, more: Sequence[str] = (), **tokens: Any) -> None:
        """Start a server of the warehouse in a folder, or of another catalog with tables there."""
        (folder / "warehouse").mkdir(exist_ok=True)
        options = ("--store", "local.sync=false", *more)
        if warehouse is not None:  # the last one holds
            options = (*options, "-w", warehouse)
        super().__init__(folder / "warehouse", *options, token=TOKEN, command="serve-catalog", **tokens)
        self.folder = folder

    def catalog(self, port: int | None = None, **options: str) -> mg.Catalog:
        """Return the catalog as a client has it."""
        asked = {"warehouse": "warehouse", "token.provider": "bear", "token": TOKEN, "local.sync": "false", **options}
        scheme = "https" if "tls.ca-file" in options else "http"
        return mg.catalog(f"{scheme}://127.0.0.1:{port or self.port}", options=asked)

    def files(self) -> mg.Catalog:
        """Return the same catalog without a server."""
        return mg.catalog(self.folder / "warehouse", options={"local.sync": "false"})


class Proxy:
    """Hands requests on to a server, and replies back.

    Attributes:
        before: may answer a request instead of the server.
        after: may change a reply.
        port_of: says which server gets a request of a path.
        known: says with which token a request goes on to the server, and None if it is refused with 401; None: with
            that of the request.
        asked: all requests: method, path and JSON.
    """

    def __init__(self, port: int) -> None:
        self.before: Callable[[str, str], Answer | None] = lambda _method, _path: None
        self.after: Callable[[str, str, Answer], Answer] = lambda _method, _path, answer: answer
        self.port_of: Callable[[str], int] = lambda _path: port
        self.known: Callable[[str, str, Mapping[str, str], bytes], str | None] | None = None
        self.asked: list[tuple[str, str, Any]] = []
        self.tokens: list[str | None] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else the body of each reply waits for 40 ms

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                proxy.asked.append((self.command, self.path, json.loads(body) if body else None))
                proxy.tokens.append(self.headers.get("authorization"))
                headers = {key.lower(): text for key, text in self.headers.items() if key.lower() != "host"}
                found = proxy.before(self.command, self.path)
                if found is None and proxy.known is not None:
                    given = {key.lower(): text for key, text in self.headers.items()}
                    token = proxy.known(self.command, self.path, given, body)
                    headers["authorization"] = f"Bearer {token}"
                    found = None if token else (401, {}, b'{"message":"the signature is wrong.","code":401}')
                if found is None:
                    server = http.client.HTTPConnection("127.0.0.1", proxy.port_of(self.path), timeout=30)
                    server.request(self.command, self.path, body, headers)
                    reply = server.getresponse()
                    found = proxy.after(self.command, self.path, (reply.status, {}, reply.read()))
                    server.close()
                status, more, content = found
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                for key, text in {**more, "content-length": str(len(content))}.items():
                    self.send_header(key, text)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names of http.server

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def commits(self) -> list[Any]:
        """Return the bodies of the commits that were asked for."""
        return [body for method, path, body in self.asked if method == "POST" and path.endswith("/commit")]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
