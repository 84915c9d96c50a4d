"""A REST catalog for campaigns: a server and a gateway before it, which are killed and started again on their ports."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.catalogs.rest import Server


class RestService:
    """Stands for the database of a campaign; see `SqlServer`.

    Attributes:
        uri: of the gateway.
        more_to_disturb: breaks what lies behind the server.
    """

    def __init__(
        self,
        folder: Path,
        warehouse: str | None = None,
        more: Sequence[str] = (),
        more_to_disturb: Callable[[random.Random], str] | None = None,
    ) -> None:
        """Start both, over the directory `warehouse` in a folder, or over the catalog of an SQL database."""
        self._server_of = lambda port: Server(folder, warehouse, more, port=port)
        self.more_to_disturb = more_to_disturb
        self.server = self._server_of(0)
        self._share, self._seed, self._port = 0.0, 0, 0
        self._gateway: subprocess.Popen[str] | None = None
        self._start_gateway()
        self.uri = f"http://127.0.0.1:{self._port}"

    def options(self, _warehouse: str) -> dict[str, str]:
        """Return the options of a client."""
        return {"warehouse": "warehouse", "token.provider": "tests.catalogs.gateway:sign"}

    def lose(self, share: float, seed: int = 0) -> None:
        """Let a share of the requests go wrong from now on."""
        self._share, self._seed = share, seed
        self._kill_gateway()
        self._start_gateway()

    def disturb(self, rng: random.Random) -> str:
        """Kill one of the processes, or both, and start them again after a while. Return which."""
        parts = ["server", "gateway", "both", *(["database"] if self.more_to_disturb else [])]
        part = rng.choice(parts)
        if part == "database" and self.more_to_disturb:
            return self.more_to_disturb(rng)
        if part != "server":
            self._kill_gateway()
        if part != "gateway":
            self.server.kill()
        time.sleep(rng.choice([0, 0.1, 1, 3]))
        if part != "server":
            self._start_gateway()
        if part != "gateway":
            self.server = self._server_of(self.server.port)
        return part

    def close(self) -> None:
        """End both."""
        self._kill_gateway()
        self.server.kill()

    def _kill_gateway(self) -> None:
        if self._gateway is not None:
            self._gateway.kill()
            self._gateway.wait()

    def _start_gateway(self) -> None:
        self._seed += 1
        told = map(str, (self._port, self.server.port, self._share, self._seed))
        command = [sys.executable, "-m", "tests.catalogs.gateway", *told]
        self._gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._gateway.stdout is not None
        self._port = int(self._gateway.stdout.readline())
