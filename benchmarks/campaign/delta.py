"""delta-rs in the campaign (`deltalake`): MERGE of each round, with a change data feed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from . import rows
from .store import KIND, Store, newest, with_kinds


class Delta(Store):
    """Inserts, updates and deletes of a round are one MERGE; OPTIMIZE joins small files."""

    def create(self, table: str) -> None:
        configuration = {"delta.enableChangeDataFeed": "true"}
        DeltaTable.create(str(self.path(table)), rows.SCHEMA, configuration=configuration)

    def append(self, table: str, new: pa.Table) -> None:
        write_deltalake(str(self.path(table)), new, mode="append")

    def change(self, table: str, written: pa.Table, deleted: pa.Table) -> None:
        values = {name: f"s.{name}" for name in rows.SCHEMA.names}
        merge = self._table(table).merge(
            with_kinds(written, deleted),
            predicate=" AND ".join(f"t.{name} = s.{name}" for name in rows.KEY),
            source_alias="s",
            target_alias="t",
        )
        is_delete = f"s.{KIND} = '-D'"
        merge = merge.when_matched_delete(is_delete).when_matched_update(values)
        merge.when_not_matched_insert(values, predicate=f"s.{KIND} = '+I'").execute()

    def read(self, table: str, key_range: Sequence[int] | None = None) -> pa.Table:
        filters = [("order_id", ">=", key_range[0]), ("order_id", "<=", key_range[1])] if key_range else None
        return self._table(table).to_pyarrow_table(filters=filters)

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        opened = self._table(table)
        found = [
            opened.to_pyarrow_table(filters=[(name, "=", value) for name, value in zip(rows.KEY, key, strict=True)])
            for key in keys
        ]
        return pa.concat_tables(found)

    def copy(self, target: str, found: pa.Table) -> None:
        # Without a feed of its own: deltalake 1.6.6 cannot merge a delete of a key that such a table lacks.
        write_deltalake(str(self.path(target)), found)

    def position(self, table: str) -> int:
        return int(self._table(table).version())

    def feed(self, source: str, target: str, since: int) -> None:
        changes = _without_views(pa.table(self._table(source).load_cdf(starting_version=since + 1).read_all()))
        kinds = pc.is_in(changes["_change_type"], pa.array(["insert", "update_postimage", "delete"]))
        self.change(target, *newest(changes.filter(kinds), "_commit_version", "_change_type", ["delete"]))

    def compact(self, table: str) -> None:
        self._table(table).optimize.compact()

    def path(self, table: str) -> Path:
        return self.home / table

    def _table(self, table: str) -> DeltaTable:
        return DeltaTable(str(self.path(table)))


def _without_views(table: pa.Table) -> pa.Table:
    """Texts as plain strings: pyarrow has no kernels for views of them."""
    views = (pa.types.is_string_view(kind) for kind in table.schema.types)
    fields = [field.with_type(pa.string()) if view else field for field, view in zip(table.schema, views, strict=True)]
    return table.cast(pa.schema(fields))


STORE = Delta
