"""SystemTable: the read-only handle of `table$snapshots`, `table$files` and the like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from merganser.handle.table import Table
from merganser.scan.rows import StoredRows


@dataclass(frozen=True)
class SystemTable:
    """One system table of a table."""

    base: Table
    system_name: str

    @property
    def name(self) -> str:
        """`database.table$name`."""
        return f"{self.base.name}${self.system_name}"

    def read(
        self, columns: Sequence[str] | None = None, where: str | Any | None = None, limit: int | None = None
    ) -> StoredRows:
        """Return its rows; columns, filter and limit as for tables."""
        return self.base.system(self.system_name, columns=columns, where=where, limit=limit)

    def __repr__(self) -> str:
        return f"SystemTable({self.name!r})"
