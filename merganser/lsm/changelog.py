"""ChangeLog: changelog files of one bucket: what became of each key, row before and row after.

| before | after | published |
|---|---|---|
| none | a row | +I after |
| a row | a row | -U before, +U after; nothing if they are equal and `changelog-producer.row-deduplicate` is set |
| a row | none | -D before |

The rows of one call are in key order, and -U stands right before its +U. Without images of the rows before, an update
is its +U alone. A crash leaves files that no snapshot names.

Format: section "changelog files".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.files.layout import changelog_layout
from merganser.files.write import RollingWriter
from merganser.merge.groups import Mask, Positions
from merganser.merge.images import Fate
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema import row_kind
from merganser.schema.same import same_rows
from merganser.schema.table_schema import SEQUENCE_NUMBER
from merganser.storage.env import Env

Sequences = npt.NDArray[np.int64]


class ChangeLog:
    """Writes the changelog files of one bucket; none if nothing is published.

    Args:
        directory: the bucket's.
        level: of the files.
        before: whether updates publish the row before, too.
        silent: publish nothing.
    """

    def __init__(
        self, table: TableDef, env: Env, directory: str, level: int, *, before: bool = True, silent: bool = False
    ) -> None:
        self._table = table
        self._before = before
        self._silent = silent
        self._writer: RollingWriter | None = None
        self._made: tuple[DataFile, ...] = ()
        self._arguments: dict[str, Any] = {"table": table, "env": env, "directory": directory, "level": level}

    def publish(
        self,
        versions: pa.Table,
        before: Positions,
        after: pa.Table | Positions,
        numbers: Sequences,
        shown: Mask,
        gone: Mask,
        *,
        inserted: int = row_kind.INSERT,
    ) -> None:
        """Publish what became of k keys.

        Args:
            versions: rows of the table with sequence numbers.
            before: int64[k], the row before, among the versions; -1: there was none.
            after: k rows; or int64[k], which versions they are.
            numbers: int64[k], their sequence numbers.
            shown: bool[k], the keys that have a row now, and may have changed.
            gone: bool[k], the keys that have none now.
            inserted: the kind of rows without a row before.
        """
        if self._silent:
            return
        there = before >= 0
        updated = shown & there
        columns = self._table.schema.names
        if self._table.options.get(w.CHANGELOG_ROW_DEDUPLICATE) and updated.any():
            ignored = self._table.options.get(w.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS)
            compared = versions.select([name for name in columns if name not in ignored])
            olds = compared.take(pa.array(before[updated]))
            if isinstance(after, pa.Table):
                news = after.select(compared.column_names).filter(pa.array(updated))
            else:
                news = compared.take(pa.array(after[updated]))
            updated[updated] = ~same_rows(olds, news)
        fate = Fate(shown & ~there, updated, gone & there)
        order, kinds = fate.interleaved()
        if not self._before:
            kept = kinds != row_kind.UPDATE_BEFORE
            order, kinds = order[kept], kinds[kept]
        if inserted != row_kind.INSERT:
            kinds = np.where(kinds == row_kind.INSERT, inserted, kinds).astype(np.int8)
        if not len(order):
            return
        rows = versions.select(columns)
        if isinstance(after, pa.Table):
            rows = pa.concat_tables([rows, after.select(columns)], promote_options="none").combine_chunks()
            after = versions.num_rows + np.arange(after.num_rows)
        at = np.concatenate([before[fate.olds], after[fate.news]])[order]
        old_numbers = versions.column(SEQUENCE_NUMBER.name).to_numpy()[before[fate.olds]]
        every = np.concatenate([old_numbers, numbers[fate.news]])[order]
        self._open().write(rows.take(pa.array(at)), sequences=pa.array(every), kinds=pa.array(kinds))

    def publish_new(self, rows: pa.Table, numbers: Sequences, shown: Mask) -> None:
        """Publish rows of keys that had none.

        Args:
            rows, numbers: n rows and their sequence numbers.
            shown: bool[n], which of them are rows, and not retractions.
        """
        if shown.any() and not self._silent:
            mask = pa.array(shown)
            self._open().write(rows.filter(mask), sequences=pa.array(numbers[shown]))

    def publish_gone(self, rows: pa.Table) -> None:
        """Publish that some rows are gone: n rows of the table, with sequence numbers."""
        if rows.num_rows and not self._silent:
            kinds = np.full(rows.num_rows, row_kind.DELETE, np.int8)
            numbers = rows.column(SEQUENCE_NUMBER.name).combine_chunks()
            self._open().write(rows.select(self._table.schema.names), sequences=numbers, kinds=pa.array(kinds))

    def close(self) -> tuple[DataFile, ...]:
        """Finish the files and return them. They are durable."""
        if self._writer is not None:
            self._made = self._writer.close()
        return self._made

    def abort(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            self._writer.abort()

    def _open(self) -> RollingWriter:
        if self._writer is None:
            self._writer = RollingWriter(layout=changelog_layout(self._table), **self._arguments)
        return self._writer
