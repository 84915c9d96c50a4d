"""Read-only handles of `table$snapshots`, `table$files` and the like, and of `table$ro`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from merganser.handle.table import Table
from merganser.scan.rows import Rows
from merganser.scan.scan import Scan
from merganser.scan.system_tables import check_system_name

READ_OPTIMIZED: Final = "ro"


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
    ) -> Rows:
        """Return its rows; columns, filter and limit as for tables."""
        return self.base.system(self.system_name, columns=columns, where=where, limit=limit)

    def __repr__(self) -> str:
        return f"SystemTable({self.name!r})"


@dataclass(frozen=True)
class ReadOptimizedTable:
    """A table as its last full compactions left it: with a key, only the highest level of each bucket is read.

    Nothing is merged, and rows that came since do not show. Without a key it is the table itself.
    """

    base: Table

    @property
    def name(self) -> str:
        """`database.table$ro`."""
        return f"{self.base.name}${READ_OPTIMIZED}"

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Return a lazy scan; see `Table.read`."""
        return replace(self.base.read(columns, where, snapshot, tag, timestamp, limit), compacted_only=True)

    def __repr__(self) -> str:
        return f"ReadOptimizedTable({self.name!r})"


def system_handle(table: Table, name: str) -> SystemTable | ReadOptimizedTable:
    """Return the handle of `table$name`.

    Raises:
        NotFoundError: there is no system table of this name.
    """
    if name == READ_OPTIMIZED:
        return ReadOptimizedTable(table)
    check_system_name(table.definition, name)
    return SystemTable(table, name)
