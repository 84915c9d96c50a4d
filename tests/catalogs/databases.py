"""SQL databases for catalogs: a file of SQLite, and a PostgreSQL and a MariaDB that tests start on loopback."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.live.services import MariaDB, PostgreSQL, UnavailableError

__all__ = ["KINDS", "SqlServer", "UnavailableError", "started"]

KINDS = ("sqlite", "postgresql", "mariadb")


@dataclass(frozen=True)
class SqlServer:
    """A database that runs.

    Attributes:
        kind: one of `KINDS`.
        uri: its address, as Java has it.
        options: of a catalog, which say who asks.
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
