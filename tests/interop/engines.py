"""merganser and its peers behind one small interface, so that a test can let them take turns on one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from .peers import Peer
from .values import PaimonType, Row, rows_of, type_text

if TYPE_CHECKING:
    from merganser import Catalog, Table

Fields = tuple[tuple[str, PaimonType], ...]
KIND_CODES = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
KIND_FIELD = ("_row_kind", "STRING")


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a table is made of."""

    fields: Fields
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One client, working on tables of one warehouse."""

    @property
    def name(self) -> str:
        """What to call it in a failure."""

    @property
    def deletes(self) -> bool:
        """Whether it can write rows of kind -D into a table without a row kind column."""

    def create(self, table: str, shape: TableShape) -> None:
        """Make a table."""

    def write(self, table: str, rows: pa.Table, *, kinds: Sequence[str] | None = None, overwrite: bool = False) -> None:
        """Write rows as one commit; `kinds` has one text for each row."""

    def rows(self, table: str, shape: TableShape) -> list[Row]:
        """Every row of the latest snapshot."""

    def changes(self, table: str, shape: TableShape, start: int, end: int) -> list[Row]:
        """What the snapshots `start` to `end`, both included, published: `_row_kind`, then the columns of the table.

        The rows of a key come in their order.
        """


class PeerEngine:
    """A client in its own process."""

    def __init__(self, peer: Peer, warehouse: Path) -> None:
        """Nothing is made yet."""
        self.peer, self.warehouse = peer, warehouse
        self.name = peer.kind.name
        self.deletes = peer.kind.name == "pypaimon-rust"

    def create(self, table: str, shape: TableShape) -> None:
        """Make a table."""
        self.peer.create_table(
            self.warehouse,
            table,
            shape.fields,
            primary_key=shape.primary_key,
            partition_by=shape.partition_by,
            options=shape.options,
        )

    def write(self, table: str, rows: pa.Table, *, kinds: Sequence[str] | None = None, overwrite: bool = False) -> None:
        """Write rows as one commit."""
        if kinds is not None:
            assert self.deletes, f"{self.name} takes no row kinds"
            rows = rows.append_column("_VALUE_KIND", pa.array([KIND_CODES[kind] for kind in kinds], pa.int8()))
        self.peer.write(self.warehouse, table, rows, overwrite={} if overwrite else None)

    def rows(self, table: str, shape: TableShape) -> list[Row]:
        """Every row of the latest snapshot."""
        return self.peer.rows(self.warehouse, table, shape.fields)

    def changes(self, table: str, shape: TableShape, start: int, end: int) -> list[Row]:
        """What the snapshots published."""
        return rows_of(self.peer.changes(self.warehouse, table, start, end), (KIND_FIELD, *shape.fields))


class MerganserEngine:
    """merganser, embedded, through its public surface."""

    name = "merganser"
    deletes = True

    def __init__(self, warehouse: Path) -> None:
        """Open the catalog, which does not wait for the disk; the harness can be tested without the package."""
        import merganser

        self.warehouse = warehouse
        self._catalog = merganser.catalog(str(warehouse), options={"local.sync": "false"})

    def table(self, name: str) -> Table:
        """The handle of a table."""
        found: Table = self._catalog.table(name)
        return found

    def database(self, name: str) -> Catalog:
        """The catalog, which has a database of this name."""
        self._catalog.create_database(name, if_not_exists=True)
        return self._catalog

    def create(self, table: str, shape: TableShape) -> None:
        """Make a table."""
        self.database(table.split(".")[0]).create_table(
            table,
            schema={name: type_text(paimon_type) for name, paimon_type in shape.fields},
            primary_key=list(shape.primary_key),
            partition_by=list(shape.partition_by),
            options=dict(shape.options),
        )

    def write(self, table: str, rows: pa.Table, *, kinds: Sequence[str] | None = None, overwrite: bool = False) -> None:
        """Write rows as one commit."""
        self._catalog.table(table).write(
            rows, kinds=pa.array(list(kinds)) if kinds is not None else None, overwrite={} if overwrite else None
        )

    def rows(self, table: str, shape: TableShape) -> list[Row]:
        """Every row of the latest snapshot."""
        return rows_of(self._catalog.table(table).read().to_arrow(), shape.fields)

    def changes(self, table: str, shape: TableShape, start: int, end: int) -> list[Row]:
        """What the snapshots published."""
        found = self._catalog.table(table).changes(start, end).to_arrow()
        return rows_of(found, (KIND_FIELD, *shape.fields))
