"""A server in a process of its own, and a client that knows nothing of merganser."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

TOKEN = "sixteen-and-more-characters"
_LIMITED = """
import json, sys
import merganser as mg
from merganser.serve.operations import Limits
from merganser.serve.server import serve
from merganser.serve.service import Service

def log(line):
    print(line, file=sys.stderr, flush=True)

limits = Limits(**json.loads(sys.argv[2]))
serve(lambda access: Service(mg.catalog(sys.argv[1]), access, limits, log), host="127.0.0.1", port=0, token=None,
      changes=False, stop_seconds=1.0, started=lambda address: print("at", address, flush=True))
"""


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Serving:
    """A server process, with its address."""

    def __init__(
        self,
        warehouse: Path,
        *options: str,
        port: int = 0,
        token: str | None = None,
        limits: Mapping[str, Any] | None = None,
        command: str = "serve-stream",
        read_token: str | None = None,
    ) -> None:
        self.token = token
        self.log = warehouse.parent / f"{time.monotonic_ns()}.log"
        asked = [sys.executable, "-m", "merganser", command, "-w", str(warehouse), "--port", str(port)]
        if limits is not None:
            asked = [sys.executable, "-c", _LIMITED, str(warehouse), json.dumps(limits)]
        tokens = {"MERGANSER_TOKEN": token, "MERGANSER_READ_TOKEN": read_token}
        env = {name: value for name, value in os.environ.items() if name not in tokens}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*asked, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=env | {name: value for name, value in tokens.items() if value is not None},
            )
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        assert re.search(r"(^| )at https?://", told), self.log.read_text()
        self.port = int(told.strip().rpartition(":")[2])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        **query: Any,
    ) -> Reply:
        """Ask one thing over a connection of its own."""
        given = dict(headers or {})
        if self.token is not None:
            given.setdefault("authorization", f"Bearer {self.token}")
        connection = self.connect()
        try:
            connection.request(method, path + ("?" + urlencode(query) if query else ""), body, given)
            answer = connection.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def of(self, table: str, verb: str, **query: Any) -> Any:
        """Return the JSON of a verb of a table."""
        reply = self.ask(f"/v1/tables/{quote(table)}/{verb}", **query)
        assert reply.status == 200, reply
        return reply.json

    def shards(self, table: str) -> list[dict[str, Any]]:
        """Return all shards, through pages of three."""
        found, begin = [], {}
        while True:
            page = self.of(table, "shards", limit=3, **begin)
            found += page["shards"]
            if page["next_shard"] is None:
                return found
            begin = {"start_shard": page["next_shard"]}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask the server to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


class Follower:
    """Reads a whole table, parents before children, from positions that it keeps."""

    def __init__(self, serving: Serving, table: str, limit: int = 7) -> None:
        self.serving = serving
        self.table = table
        self.limit = limit
        self.positions: dict[str, str | None] = {}
        self.records: list[dict[str, Any]] = []

    def round(self) -> int:
        """Read a page of each shard that may be read; return how many records came."""
        count = 0
        for shard in self.serving.shards(self.table):
            name = shard["shard_id"]
            if any(self.positions.get(parent, "") is not None for parent in shard["parents"]):
                continue
            if name not in self.positions:
                self.positions[name] = self.serving.of(self.table, "iterator", shard=name, at="trim_horizon")[
                    "iterator"
                ]
            at = self.positions[name]
            if at is not None:
                page = self.serving.of(self.table, "records", iterator=at, limit=self.limit)
                count += len(page["records"])
                self.records += page["records"]
                self.positions[name] = page["next_iterator"]
        return count

    def finish(self) -> list[dict[str, Any]]:
        """Read until nothing came in two rounds in a row, since a shard may have ended in the first of them."""
        idle = 0
        while idle < 2:
            idle = 0 if self.round() else idle + 1
        return self.records
