"""Views: how DuckDB finds the rows of a reference under the name that the text of a query has for it.

It reads what it can from the files themselves (`scan.plain`), and asks our reader for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from merganser.files.plain import FILE, FILE_ROW, PlainFile
from merganser.scan.plain import PlainScan, plain_scan
from merganser.scan.scan import Scan
from merganser.schema import row_kind
from merganser.schema.table_schema import VALUE_KIND
from merganser.sql.query.kinds import duck, quoted, string


class Views:
    """The views of one query.

    Args:
        connection: in which they are made; they end with it.
        plain: DuckDB may read files.
        joined: the query reads several references. Then DuckDB holds the rows that our reader returns in a table, which
            goes to disk if memory is short: it knows how many rows a table has, and joins in a good order.

    Attributes:
        read: what our reader reads; their `error` is that of a scan.
        of_files: whether DuckDB reads any file.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, plain: bool, joined: bool) -> None:
        self._connection = connection
        self._plain = plain
        self._joined = joined
        self.read: list[Any] = []
        self.of_files = False

    def show(self, view: str, scan: Any) -> None:
        """Make the view of a reference."""
        found = plain_scan(scan) if self._plain and isinstance(scan, Scan) else None
        parts: list[str] = []
        rest = scan
        if found is not None:
            self.of_files = True
            parts, rest = list(self._texts(view, found)), found.rest
        if rest is not None:
            name = f"{view}_rest" if parts or self._joined else view
            self._register(name, rest)
            if name == view:
                return
            if self._joined:
                held = quoted(f"{view}_held")
                self._connection.execute(f"CREATE TEMP TABLE {held} AS FROM {quoted(name)}")
                parts.append(f"FROM {held}")
            else:
                parts.append(f"FROM {quoted(name)}")
        self._connection.execute(f"CREATE TEMP VIEW {quoted(view)} AS {' UNION ALL '.join(parts)}")

    def _register(self, name: str, rows: Any) -> None:
        from merganser.sql.query.scanned import Scanned  # noqa: PLC0415 - datasets of Arrow and pandas, 0.2 s

        self.read.append(Scanned(rows))
        self._connection.register(name, self.read[-1])

    def _texts(self, view: str, found: PlainScan) -> Iterator[str]:
        """Yield a query for each group of files."""
        for i, group in enumerate(found.groups):
            columns = ", ".join(
                f"CAST({'NULL' if own is None else 'f.' + quoted(own)} AS {duck(field.type)}) AS {quoted(field.name)}"
                for field, own in zip(found.scan.columns, group.files[0].names, strict=True)
            )
            deleted = found.deleted(group)
            more = f", {FILE} = true, {FILE_ROW} = true" if deleted is not None else ""
            text = f"SELECT {columns} FROM {_files(group.files, more)} f"
            if deleted is not None:
                dead = f"{view}_deleted_{i}"
                self._connection.register(dead, deleted)
                text += f" ANTI JOIN {quoted(dead)} d ON f.{quoted(FILE)} = d.file AND f.{quoted(FILE_ROW)} = d.row"
            if group.newer:
                keys = ", ".join(quoted(name) for name in found.key)
                on = " AND ".join(f"f.{quoted(name)} = n.{quoted(name)}" for name in found.key)
                text += f" ANTI JOIN (SELECT {keys} FROM {_files(group.newer)}) n ON {on}"
            if group.kinds:
                text += f" WHERE f.{quoted(VALUE_KIND.name)} IN ({row_kind.INSERT}, {row_kind.UPDATE_AFTER})"
            yield text


def _files(files: Sequence[PlainFile], more: str = "") -> str:
    # Statistics of Parquet leave NaN out, so without `can_have_nan` DuckDB would skip it, and find a smaller maximum.
    paths = ", ".join(string(file.path) for file in files)
    return f"read_parquet([{paths}], hive_partitioning = false, union_by_name = false, can_have_nan = true{more})"
