"""merganser in the campaign: a table with a key, four buckets, and otherwise defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import merganser as mg

from . import rows
from .store import KIND, Store, with_kinds


class Merganser(Store):
    """Deletes travel with the rows of a round in one commit; the feed is what the commits wrote, with kinds."""

    def create(self, table: str) -> None:
        catalog = mg.catalog(str(self.home))
        catalog.create_database("db", if_not_exists=True)
        catalog.create_table(f"db.{table}", dict(rows.COLUMNS), primary_key=list(rows.KEY), options={"bucket": "4"})

    def append(self, table: str, new: pa.Table) -> None:
        self._table(table).write(new)

    def change(self, table: str, written: pa.Table, deleted: pa.Table) -> None:
        self._table(table).write(with_kinds(written, deleted), kinds=KIND)

    def read(self, table: str, key_range: Sequence[int] | None = None) -> pa.Table:
        where = f"order_id BETWEEN {key_range[0]} AND {key_range[1]}" if key_range else None
        return self._table(table).read(where=where).to_arrow()

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        handle = self._table(table).lookups()
        return pa.concat_tables([handle.lookup([dict(zip(rows.KEY, key, strict=True))]) for key in keys])

    def position(self, table: str) -> int:
        return int(self._table(table).latest_snapshot().id)

    def feed(self, source: str, target: str, since: int) -> None:
        changes = self._table(source).changes(since + 1).to_arrow()
        self._table(target).write(changes, kinds="_row_kind")

    def compact(self, table: str) -> None:
        self._table(table).compact(full=True)

    def path(self, table: str) -> Path:
        return self.home / "db.db" / table

    def _table(self, table: str) -> mg.Table:
        return mg.table(str(self.path(table)))


STORE = Merganser
