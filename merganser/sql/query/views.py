"""Views: how DuckDB finds the rows of a reference under the name that the text of a query has for it.

It reads what it can from the files themselves (`scan.plain`), and asks our reader for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import duckdb
import numpy as np

from merganser.files.plain import FILE_INDEX, FILE_ROW, PlainFile
from merganser.scan.plain import PlainScan, plain_scan
from merganser.scan.scan import Scan
from merganser.schema import row_kind
from merganser.schema.table_schema import VALUE_KIND
from merganser.sql.query.hidden import files_text, hidden_masks
from merganser.sql.query.kinds import duck, quoted, string

_SCANS_MAX: Final = 32
"""Most scans of files with hidden rows in a group. A scan of one file is faster, but each takes time to plan."""

_SCAN_ROWS_MAX: Final = 1 << 30
"""Most rows of several files in a scan: DuckDB counts bits by 32-bit integers."""


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
            kinds = []
            if group.kinds:
                kinds.append(f"f.{quoted(VALUE_KIND.name)} IN ({row_kind.INSERT}, {row_kind.UPDATE_AFTER})")
            masks = hidden_masks(lambda: self._connection, found, group)
            hidden = [b"" if mask is None else np.packbits(mask).tobytes() for mask in masks]
            whole = [file for file, bits in zip(group.files, hidden, strict=True) if not bits]
            if whole:
                yield _text(columns, files_text(whole), kinds)
            rest = [(file, bits) for file, bits in zip(group.files, hidden, strict=True) if bits]
            for j, part in enumerate(_parts(rest)):
                files = [file for file, _ in part]
                counts = self._counts(f"{view}_{i}_{j}", part)
                yield _text(columns, files_text(files, rows=True), [counts, *kinds])

    def _counts(self, name: str, part: Sequence[tuple[PlainFile, bytes]]) -> str:
        """Return the condition on rows of files that keeps those which count.

        A filter instead of a join: DuckDB moves the filters that it makes of other joins below it, into the scan.
        """
        at = f"f.{FILE_ROW}"
        if len(part) > 1:
            starts = np.cumsum([0, *(8 * len(bits) for _, bits in part[:-1])]).tolist()
            at += f" + [{', '.join(map(str, starts))}][CAST(f.{FILE_INDEX} AS BIGINT) + 1]"
        self._connection.execute(
            f"SET VARIABLE {quoted(name)} = CAST($1 AS BIT)", [b"".join([bits for _, bits in part])]
        )
        return f"get_bit(getvariable({string(name)}), CAST({at} AS INTEGER)) < 1"


def _text(columns: str, files: str, conditions: Sequence[str]) -> str:
    return f"SELECT {columns} FROM {files} f" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")


def _parts(files: Sequence[tuple[PlainFile, bytes]]) -> Iterator[list[tuple[PlainFile, bytes]]]:
    """Yield files in parts, each for one scan."""
    most = -(-len(files) // _SCANS_MAX)
    part: list[tuple[PlainFile, bytes]] = []
    rows = 0
    for file, bits in files:
        if part and (len(part) == most or rows + file.rows > _SCAN_ROWS_MAX):
            yield part
            part, rows = [], 0
        part.append((file, bits))
        rows += file.rows
    if part:
        yield part
