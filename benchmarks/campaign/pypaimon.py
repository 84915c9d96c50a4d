"""pypaimon in the campaign: a table with a key, four buckets; the client has no compaction of such a table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.read.streaming_table_scan import AsyncStreamingTableScan

from . import rows
from .store import KIND, Store, UnsupportedError, with_kinds


class Pypaimon(Store):
    """The client takes kinds from a column of the table (`rowkind.field`), so the table has one column more."""

    def create(self, table: str) -> None:
        catalog = self._catalog()
        catalog.create_database("db", True)
        schema = rows.SCHEMA.append(pa.field(KIND, pa.string()))
        options = {"bucket": "4", "rowkind.field": KIND, "file.compression": "zstd"}
        made = Schema.from_pyarrow_schema(schema, primary_keys=list(rows.KEY), options=options)
        catalog.create_table(f"db.{table}", made, False)

    def append(self, table: str, new: pa.Table) -> None:
        self.change(table, new.select(rows.SCHEMA.names), new.schema.empty_table().select(list(rows.KEY)))

    def change(self, table: str, written: pa.Table, deleted: pa.Table) -> None:
        self._write(table, with_kinds(written, deleted))

    def read(self, table: str, key_range: Sequence[int] | None = None) -> pa.Table:
        return self._read(table, [("between", "order_id", *key_range)] if key_range else [])

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        found = [self._read(table, [("equal", *term) for term in zip(rows.KEY, key, strict=True)]) for key in keys]
        return pa.concat_tables(found)

    def position(self, table: str) -> int:
        return int(self._table(table).snapshot_manager().get_latest_snapshot().id)

    def feed(self, source: str, target: str, since: int) -> None:
        last = self.position(source)
        table = self._table(source)
        scan = AsyncStreamingTableScan(table, poll_interval_ms=1, prefetch_enabled=False, diff_threshold=last)
        scan.next_snapshot_id = since + 1
        read = table.new_stream_read_builder().with_include_row_kind(True).new_read()
        found: list[pa.Table] = []

        async def follow() -> None:
            async for plan in scan.stream():
                found.append(read.to_arrow(plan.splits()))
                if scan.next_snapshot_id > last:
                    return

        asyncio.run(asyncio.wait_for(follow(), 300))
        for changes in found:
            kinds = changes["_row_kind"]
            self._write(target, changes.drop_columns(["_row_kind", KIND]).append_column(KIND, kinds))

    def compact(self, table: str) -> None:
        raise UnsupportedError("has no compaction of tables with a key")

    def path(self, table: str) -> Path:
        return self.home / "db.db" / table

    def _catalog(self) -> Any:
        return CatalogFactory.create({"warehouse": str(self.home)})

    def _table(self, table: str) -> Any:
        return self._catalog().get_table(f"db.{table}")

    def _write(self, table: str, changes: pa.Table) -> None:
        builder = self._table(table).new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(changes.combine_chunks())
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()

    def _read(self, table: str, terms: Sequence[Sequence[Any]]) -> pa.Table:
        builder = self._table(table).new_read_builder()
        if terms:
            predicates = builder.new_predicate_builder()
            made = [getattr(predicates, method)(column, *values) for method, column, *values in terms]
            builder = builder.with_filter(predicates.and_predicates(made) if len(made) > 1 else made[0])
        builder = builder.with_projection(rows.SCHEMA.names)
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())


STORE = Pypaimon
