"""Catalogs for tests: a file of SQLite, a PostgreSQL and a MariaDB that tests start on loopback, and REST servers."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.catalogs.rest_service import RestService
from tests.live.services import MariaDB, PostgreSQL, UnavailableError

__all__ = [
    "CATALOGS",
    "DISTURBED_S",
    "KINDS",
    "Backend",
    "Backends",
    "SqlServer",
    "UnavailableError",
    "backends",
    "started",
]

KINDS = ("sqlite", "postgresql", "mariadb")
DISTURBED_S: Final = 8.0
"""Mean seconds between two kills of the catalog of a campaign."""
CATALOGS = (*KINDS, "rest", *(f"rest+{kind}" for kind in KINDS))


class Backend(Protocol):
    """What has the names of tables in a campaign, and can be disturbed."""

    uri: str

    def options(self, warehouse: str) -> dict[str, str]:
        """Return the options of a catalog."""

    def lose(self, share: float, seed: int = 0) -> None:
        """Let a share of the requests go wrong from now on."""

    def disturb(self, rng: random.Random) -> str:
        """Kill a process of it and start it again. Return which; "": there is none."""

    def close(self) -> None:
        """End the processes that are there for this campaign alone."""


@dataclass(frozen=True)
class SqlServer:
    """A database that runs.

    Attributes:
        kind: one of `KINDS`.
        uri: its address, as Java has it.
        options: options of a catalog, which say who asks.
        server: None for SQLite.
    """

    kind: str
    uri: str
    options: dict[str, str]
    server: PostgreSQL | MariaDB | None = None

    def emptied(self, name: str, folder: Path) -> SqlServer:
        """Return an empty database of this server."""
        if self.server is None:
            return SqlServer(self.kind, f"jdbc:sqlite:{folder / name}.sqlite", {})
        self.server.query(f"CREATE DATABASE {name}")
        return SqlServer(self.kind, f"{self.uri}{name}", self.options, self.server)


@dataclass
class SqlBackend:
    """A database of a campaign; see `Backend`."""

    database: SqlServer

    @property
    def uri(self) -> str:
        """Its address."""
        return self.database.uri

    def options(self, warehouse: str) -> dict[str, str]:
        """Return the options of a catalog whose commits take locks."""
        return {"warehouse": warehouse, "lock.enabled": "true", **self.database.options}

    def lose(self, share: float, seed: int = 0) -> None:
        """Do nothing: there is nobody between clients and a database."""

    def disturb(self, rng: random.Random) -> str:
        """Kill the server, if there is one, and start it again after a while."""
        if self.database.server is None:
            return ""
        self.database.server.crash()
        time.sleep(rng.choice([0, 0.5, 2]))
        self.database.server.start()
        return "database"

    def close(self) -> None:
        """Do nothing: the server has other databases."""


@dataclass
class Backends:
    """Makes backends of one kind.

    Attributes:
        kind: one of `CATALOGS`.
        server: the database; None for a REST server over a directory.
    """

    kind: str
    server: SqlServer | None

    def emptied(self, name: str, folder: Path) -> Backend:
        """Return an empty catalog, whose tables lie in the directory `warehouse` of a folder if it is one of REST."""
        if self.server is None:
            return RestService(folder)
        behind = SqlBackend(self.server.emptied(name, folder))
        if not self.kind.startswith("rest"):
            return behind
        given = behind.options(str(folder / "warehouse"))
        more = [part for key, value in given.items() for part in ("--store", f"{key}={value}")]
        return RestService(folder, behind.uri, more, behind.disturb if self.server.server else None)


@contextmanager
def backends(kind: str) -> Iterator[Backends]:
    """Give a maker of catalogs for campaigns until the block ends.

    Raises:
        UnavailableError: the database cannot be installed.
    """
    database = kind.removeprefix("rest").removeprefix("+")
    if not database:
        yield Backends(kind, None)
        return
    with started(database) as server:
        yield Backends(kind, server)


@contextmanager
def started(kind: str) -> Iterator[SqlServer]:
    """Give a server that runs until the block ends.

    Raises:
        UnavailableError: it cannot be installed.
    """
    if kind == "sqlite":
        yield SqlServer(kind, "", {})
        return
    with tempfile.TemporaryDirectory(prefix="merganser-sql-") as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        made = (PostgreSQL if kind == "postgresql" else MariaDB)(Path(folder) / kind)
        try:
            uri = f"jdbc:{'postgresql' if kind == 'postgresql' else 'mysql'}://127.0.0.1:{made.port}/"
            yield SqlServer(kind, uri, {"jdbc.user": "live", "jdbc.password": "live"}, made)
        finally:
            made.stop()
