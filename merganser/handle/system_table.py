"""Read-only handles of `table$snapshots`, `table$files` and the like, and of views such as `table$ro`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.setting import Setting
from merganser.handle.table import Table
from merganser.options import read as r
from merganser.options.registry import arguments_of, check_asked
from merganser.rules.starts import scan_mode
from merganser.storage.env import Env
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.scan.rows import Rows
    from merganser.scan.scan import Scan
    from merganser.stream.follow import TableStream

_CHANGES: Final = frozenset(
    ("write", "writer", "write_changes", "upsert", "load", "truncate", "drop_partitions", "delete", "update", "merge")
)
"""Verbs of a table that change rows."""


class _ReadOnly:
    """A handle that only reads, and says so."""

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            from merganser.edit.other_names import no_method

            if name in _CHANGES:
                own = f" Use '{self.base.name}'." if self.base is not self else ""
                raise UnsupportedError(
                    f"cannot {name.replace('_', ' ')} '{self.name}': it shows what tables hold, and has no "
                    f"rows of its own. Nothing was written.{own}"
                )
            raise no_method(self, name, {})


@dataclass(frozen=True)
class SystemTable(_ReadOnly):
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

    def _repr_html_(self) -> str:
        """Return its first rows, for notebooks."""
        from merganser.html.tables import shown

        return shown(repr(self), lambda: [self.read()._repr_html_()])


@dataclass(frozen=True)
class CatalogTable(_ReadOnly):
    """One system table of a catalog, such as `sys.tables`.

    Attributes:
        make: returns all its rows.
    """

    name: str
    env: Env
    make: Callable[[], pa.Table]

    @property
    def base(self) -> CatalogTable:
        """Itself: it belongs to no table."""
        return self

    @property
    def path(self) -> str:
        """Its name: it has no directory."""
        return self.name

    def setting(self, timezone: str, exact_names: bool = False) -> Setting:
        """Return what SQL text means besides its words; see `Table.setting`."""
        return Setting(timezone, self.env.now_ms(), exact_names)

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        limit: int | None = None,
        timezone: str | Setting = "UTC",
    ) -> Rows:
        """Return its rows; arguments as for tables."""
        from merganser.scan.rows import StoredRows, asked_rows, check_asked_rows

        setting = self.setting(timezone) if isinstance(timezone, str) else timezone
        check_asked_rows(self.name, columns, limit)
        return StoredRows(lambda: asked_rows(self.make(), self.name, columns, where, limit, setting), self.name)

    def __repr__(self) -> str:
        return f"CatalogTable({self.name!r})"

    def _repr_html_(self) -> str:
        """Return its first rows, for notebooks."""
        from merganser.html.tables import shown

        return shown(repr(self), lambda: [self.read()._repr_html_()])


@dataclass(frozen=True)
class TableView(_ReadOnly):
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
        from merganser.scan.views import view

        scan = self.base.scan(None, None, snapshot, tag, timestamp, limit, setting)
        return view(self.view_name, scan, columns, where, setting)

    def stream(
        self,
        start: str | None = None,
        follow: bool = True,
        consumer: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        until: int | datetime | str | None = None,
        timezone: str = "UTC",
        gaps: str | None = None,
        **options: Any,
    ) -> TableStream:
        """Return an iterator that follows the table, in the columns of this view; see `Table.stream`.

        The rows of one snapshot, or of the state at the start, are one Arrow table, so no update is torn.

        Args:
            start: a start mode; None: what the options say, else "latest-full". A view with `_log_offset` begins with
                the oldest changes that are kept, and has no start with a state: rows of a state have no offset.
            columns: names of the columns to return, in this order; None: all, also those added later.
            where: rows to return, by columns of the view.
            follow, consumer, until, timezone, gaps, options: see `Table.stream`.

        Raises:
            InvalidInputError: the view shows no changes, or an argument or option has no meaning for a stream.
            NotFoundError, ExpiredError: there is no such start, or no longer.
        """
        from merganser.scan.forms import WITH_OFFSETS
        from merganser.scan.views import form_of

        what = form_of(self.view_name, self.base.definition)
        if what is None:
            raise InvalidInputError(
                f"cannot follow '{self.name}': it shows what full compactions left, and no changes. Follow "
                f"'{self.base.name}', or '{self.base.name}$audit_log'."
            )
        check_asked(options, arguments_of(self.stream))
        given = dict(options)
        if gaps is not None:
            given[r.CHANGE_TRACKING_GAPS.key] = gaps
        if start is not None:
            given[r.SCAN_MODE.key] = start
        elif what in WITH_OFFSETS and scan_mode(self.base.definition.options.merged(given)) == "latest-full":
            given |= {r.SCAN_MODE.key: "from-snapshot", r.SCAN_SNAPSHOT_ID.key: "1"}
        return self.base.following(
            what, given, follow, consumer=consumer, columns=columns, where=where, until=until, timezone=timezone
        )

    def __repr__(self) -> str:
        return f"TableView({self.name!r})"


def system_handle(table: Table, name: str) -> SystemTable | TableView:
    """Return the handle of `table$name`.

    Raises:
        NotFoundError: there is no system table of this name.
    """
    from merganser.scan.system_tables import check_system_name
    from merganser.scan.views import VIEWS

    if name in VIEWS:
        return TableView(table, name)
    check_system_name(table.definition, name)
    return SystemTable(table, name)
