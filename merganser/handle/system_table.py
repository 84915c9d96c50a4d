"""Read-only handles of `table$snapshots`, `table$files` and the like, and of views such as `table$ro`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from merganser.expr.setting import Setting
from merganser.handle.table import Table
from merganser.scan.rows import Rows
from merganser.scan.scan import Scan
from merganser.scan.system_tables import check_system_name
from merganser.scan.views import VIEWS, view


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
        self,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        limit: int | None = None,
        timezone: str | Setting = "UTC",
    ) -> Rows:
        """Return its rows; arguments as for tables."""
        return self.base.system(self.system_name, columns=columns, where=where, limit=limit, timezone=timezone)

    def __repr__(self) -> str:
        return f"SystemTable({self.name!r})"


@dataclass(frozen=True)
class TableView:
    """A table read in another way, such as `table$ro` or `table$audit_log`; see `scan.views`."""

    base: Table
    view_name: str

    @property
    def name(self) -> str:
        """`database.table$name`."""
        return f"{self.base.name}${self.view_name}"

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> Scan:
        """Return a lazy scan; see `Table.read`."""
        return self.scan(columns, where, snapshot, tag, timestamp, limit, self.base.setting(timezone))

    def scan(
        self,
        columns: Sequence[str] | None,
        where: str | Any | None,
        snapshot: int | None,
        tag: str | None,
        timestamp: datetime | str | None,
        limit: int | None,
        setting: Setting,
    ) -> Scan:
        """Return a lazy scan; see `Table.read`."""
        scan = self.base.scan(None, None, snapshot, tag, timestamp, limit, setting)
        return view(self.view_name, scan, columns, where, setting)

    def __repr__(self) -> str:
        return f"TableView({self.name!r})"


def system_handle(table: Table, name: str) -> SystemTable | TableView:
    """Return the handle of `table$name`.

    Raises:
        NotFoundError: there is no system table of this name.
    """
    if name in VIEWS:
        return TableView(table, name)
    check_system_name(table.definition, name)
    return SystemTable(table, name)
