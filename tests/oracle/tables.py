"""The oracle: a table as a dictionary, one row at a time. The specification that the kernels are held against.

Read it in one sitting; it is slow on purpose and shares no code with what it checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from merganser.values import dataclass

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass
class DeduplicateOracle:
    """A key table of merge engine deduplicate: the last row written under a key is the row, unless it retracts.

    Attributes:
        key: primary key columns.
        partition: partition columns; empty for an unpartitioned table.
        rows: the visible rows.
    """

    key: Sequence[str]
    partition: Sequence[str] = ()
    rows: dict[Key, Row] = field(default_factory=dict)

    def write(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Apply rows of (kind, row), in order, as one commit."""
        for kind, row in rows:
            self._apply(kind, row)

    def overwrite(self, spec: Mapping[str, Any], rows: Iterable[tuple[str, Row]]) -> None:
        """Replace the partitions that have the values of `spec` ({}: all) by rows, as one commit."""
        gone = [k for k, row in self.rows.items() if all(row[name] == value for name, value in spec.items())]
        for k in gone:
            del self.rows[k]
        for kind, row in rows:
            self._apply(kind, row)

    def overwrite_dynamic(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Replace the partitions that occur in `rows`, as one commit."""
        rows = list(rows)
        hit = {self._partition_of(row) for _, row in rows}
        self.rows = {k: row for k, row in self.rows.items() if self._partition_of(row) not in hit}
        for kind, row in rows:
            self._apply(kind, row)

    def visible(self) -> list[Row]:
        """Return the rows a batch read must give, in no order."""
        return list(self.rows.values())

    def _apply(self, kind: str, row: Row) -> None:
        k = tuple(row[name] for name in self.key)
        if kind in ("+I", "+U"):
            self.rows[k] = dict(row)
        else:
            self.rows.pop(k, None)

    def _partition_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.partition)
