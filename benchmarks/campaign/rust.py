"""pypaimon-rust in the campaign: a table with a key, four buckets; the client has no compaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

from . import rows
from .store import KIND, Store, with_kinds

_NUMBERS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}


class Rust(Store):
    """Kinds go beside the rows in a column that is not stored."""

    def create(self, table: str) -> None:
        context = SQLContext()
        context.register_catalog("peer", {"warehouse": str(self.home)}, default_database="")
        columns = ", ".join(f"`{name}` {kind}" for name, kind in rows.COLUMNS.items())
        context.sql("CREATE SCHEMA IF NOT EXISTS peer.db")
        key = ", ".join(rows.KEY)
        context.sql(f"CREATE TABLE peer.db.`{table}` ({columns}, PRIMARY KEY ({key})) WITH ('bucket' = '4')")

    def append(self, table: str, new: pa.Table) -> None:
        self._write(table, new)

    def change(self, table: str, written: pa.Table, deleted: pa.Table) -> None:
        changes = with_kinds(written, deleted)
        self._write(table, _numbered(changes, KIND))

    def read(self, table: str, key_range: Sequence[int] | None = None) -> pa.Table:
        if key_range is None:
            return self._read(table, [])
        first, last = key_range
        return self._read(table, [("greaterOrEqual", "order_id", first), ("lessOrEqual", "order_id", last)])

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        found = [self._read(table, [("equal", *term) for term in zip(rows.KEY, key, strict=True)]) for key in keys]
        return pa.concat_tables(found)

    def position(self, table: str) -> int:
        return int(self._table(table).latest_snapshot().id())

    def feed(self, source: str, target: str, since: int) -> None:
        builder = self._table(source).new_read_builder().with_include_row_kind(True)
        found: list[pa.RecordBatch] = []
        for number in range(since, self.position(source)):  # one by one: the order of several snapshots is not kept
            splits = builder.new_incremental_scan(number, number + 1, "delta").plan().splits()
            found += builder.new_read().read_arrow(splits)
        self._write(target, _numbered(pa.Table.from_batches(found), "rowkind"))

    def path(self, table: str) -> Path:
        return self.home / "db.db" / table

    def _table(self, table: str) -> Any:
        return PaimonCatalog({"warehouse": str(self.home)}).get_table(f"db.{table}")

    def _write(self, table: str, changes: pa.Table) -> None:
        builder = self._table(table).new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        for batch in changes.combine_chunks().to_batches():
            writer.write_arrow(batch)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def _read(self, table: str, terms: Sequence[tuple[str, str, Any]]) -> pa.Table:
        builder = self._table(table).new_read_builder()
        children = [{"method": method, "field": field, "literals": [value]} for method, field, value in terms]
        if children:
            builder = builder.with_filter({"method": "and", "children": children} if len(children) > 1 else children[0])
        splits = builder.new_scan().plan().splits()
        found = list(builder.new_read().read_arrow(splits))
        return pa.Table.from_batches(found) if found else rows.SCHEMA.empty_table()


def _numbered(changes: pa.Table, kind: str) -> pa.Table:
    """Rows with their kinds as numbers."""
    places = pc.index_in(changes[kind].cast(pa.string()), pa.array(list(_NUMBERS)))
    return changes.drop_columns([kind]).append_column("_VALUE_KIND", places.cast(pa.int8()))


STORE = Rust
