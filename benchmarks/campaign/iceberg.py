"""PyIceberg in the campaign: a catalog in SQLite, upserts and deletes that rewrite files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.table import Table

from . import rows
from .store import Store


class Iceberg(Store):
    """A round is one transaction: `upsert`, and a delete by a filter of the keys."""

    def __init__(self, home: Path, settings: dict[str, object]) -> None:
        super().__init__(home, settings)
        home.mkdir(parents=True)
        self.catalog = SqlCatalog("peer", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=f"file://{home}")
        self.catalog.create_namespace("db")

    def create(self, table: str) -> None:
        self.catalog.create_table(f"db.{table}", rows.SCHEMA)

    def append(self, table: str, new: pa.Table) -> None:
        self._table(table).append(new)

    def change(self, table: str, written: pa.Table, deleted: pa.Table) -> None:
        with self._table(table).transaction() as transaction:
            transaction.upsert(written, join_cols=list(rows.KEY))
            transaction.delete(_any_of(deleted))

    def read(self, table: str, key_range: Sequence[int] | None = None) -> pa.Table:
        if key_range is None:
            return self._table(table).scan().to_arrow()
        some = And(GreaterThanOrEqual("order_id", key_range[0]), LessThanOrEqual("order_id", key_range[1]))
        return self._table(table).scan(row_filter=some).to_arrow()

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        opened = self._table(table)
        found = [
            opened.scan(row_filter=And(EqualTo("order_id", order), EqualTo("line", line))).to_arrow()
            for order, line in keys
        ]
        return pa.concat_tables(found, promote_options="permissive")  # texts are large strings in some of them

    def path(self, table: str) -> Path:
        return self.home / "db" / table

    def _table(self, table: str) -> Table:
        return self.catalog.load_table(f"db.{table}")


def _any_of(keys: pa.Table) -> BooleanExpression:
    """A filter of keys: for each line number, the orders that it is deleted from."""
    found = None
    for line in sorted(set(keys["line"].to_pylist())):
        orders = keys.filter(pc.equal(keys["line"], line))["order_id"].to_pylist()
        some = And(EqualTo("line", line), In("order_id", orders))
        found = some if found is None else found | some
    assert found is not None
    return found


STORE = Iceberg
