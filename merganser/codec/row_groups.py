"""How a data file is laid out: options, ids in its schema, and the cutting of rows into groups.

A group is a row group of Parquet, a stripe of ORC, a block of Avro: the unit that a reader reads, skips and holds in
memory. All three writers cut rows by the same rules, so a reader can rely on them in each format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from merganser.errors import InvariantError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type
from merganser.schema.hidden import with_values_under_nulls
from merganser.values import dataclass

ROW_GROUP_ROWS: Final = 32_768
"""Rows per group; small enough that a window of a merge reads little more than it needs."""

_CONTAINER_ID_BASE: Final = 536_870_911
_CONTAINER_IDS_PER_FIELD: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFormat:
    """How a data file is laid out.

    Attributes:
        compression: `zstd`, `snappy`, `lz4`, `gzip` or `none`, in any case.
        zstd_level: 1 (fast) to 22; used with zstd only.
        block_size_bytes: a group ends when its rows take this much memory as Arrow columns, or earlier.
        row_group_rows: most rows of one group.
        file_name: last part of the file's path. Where a file has a footer with room for notes, it notes of its columns
            what follows, and this name: another writer may hand the notes on to a file of other rows, where they are
            not to be believed. None: nothing is noted.
        sorted_by: column by which the rows rise, nulls first, if there is one.
        often_zero: integer column without nulls of which the file notes whether it is 0 in every row, if there is one.
    """

    compression: str = "zstd"
    zstd_level: int = 1
    block_size_bytes: int = 32 * 1024 * 1024
    row_group_rows: int = ROW_GROUP_ROWS
    file_name: str | None = None
    sorted_by: str | None = None
    often_zero: str | None = None


class RowGroups:
    """Rows on their way into groups: tables of any length in, whole groups out.

    Every group but the last has `row_group_rows` rows, or fewer when its rows are so wide that they fill
    `block_size_bytes`. Nothing is copied; what waits is a reference to the caller's columns.
    """

    def __init__(self, fields: Sequence[t.Field], options: WriteFormat) -> None:
        self.schema: Final = arrow_schema(fields)
        self._nested = any(t.is_nested(field.type) for field in fields)
        self._options = options
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take rows and yield the groups they complete.

        Raises:
            InvariantError: the table has another schema than the file.
        """
        if not table.schema.equals(self.schema):
            raise InvariantError(
                f"cannot write rows of schema ({_listed(table.schema)}) to a data file "
                f"of schema ({_listed(self.schema)})"
            )
        if not table.num_rows:
            return
        if self._nested:
            table = pa.Table.from_arrays([with_values_under_nulls(c) for c in table.columns], schema=self.schema)
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        while self._rows >= (size := self._group_rows()):
            rows = pa.concat_tables(self._waiting)
            rest = rows.slice(size)
            self._bytes -= self._bytes * size // self._rows
            self._rows -= size
            self._waiting = [rest] if rest.num_rows else []
            yield rows.slice(0, size)

    def rest(self) -> pa.Table | None:
        """Return the rows that wait for more, as the last group; None when there are none."""
        waiting, self._waiting = self._waiting, []
        return pa.concat_tables(waiting) if waiting else None

    def _group_rows(self) -> int:
        most = self._options.row_group_rows
        if self._bytes <= self._options.block_size_bytes:
            return most
        return max(1, min(most, self._options.block_size_bytes * self._rows // self._bytes))


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)


@lru_cache(maxsize=256)
def schema_with_ids(fields: tuple[t.Field, ...], key: str) -> pa.Schema:
    """Return the Arrow schema of columns with an id on every part, as field metadata under `key`.

    Elements, keys and values have no id in the table's schema. Theirs follow from the field that holds them and
    from how deep they lie in it. Format: section "field ids".
    """
    return pa.schema([_with_id(f, key) for f in fields])


def _with_id(field: t.Field, key: str) -> pa.Field:
    return _identified(field.name, _type_with_ids(field.type, field.id, 1, key), field.id, key, field.type.nullable)


def _identified(name: str, kind: pa.DataType, field_id: int, key: str, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={key: str(field_id)})


def _type_with_ids(kind: t.DataType, owner: int, depth: int, key: str) -> pa.DataType:
    """Return the Arrow type of `kind` with ids on its parts; `owner` is the id of the field that counts `depth`."""
    distance = _CONTAINER_IDS_PER_FIELD * owner + depth

    def part(name: str, inner: t.DataType, offset: int, *, nullable: bool) -> pa.Field:
        typed = _type_with_ids(inner, owner, depth + 1, key)
        return _identified(name, typed, _CONTAINER_ID_BASE + offset, key, nullable)

    match kind:
        case t.Array(element=element):
            return pa.list_(part("element", element, distance, nullable=element.nullable))
        case t.Map(key=map_key, value=value):
            return pa.map_(
                part("key", map_key, -distance, nullable=False), part("value", value, distance, nullable=value.nullable)
            )
        case t.Multiset(element=element):
            return pa.map_(
                part("key", element, -distance, nullable=False), part("value", t.Int(), distance, nullable=False)
            )
        case t.Row(fields=fields):
            return pa.struct([_with_id(f, key) for f in fields])
        case t.Variant():
            return pa.struct(
                [_identified("value", pa.binary(), 0, key, False), _identified("metadata", pa.binary(), 1, key, False)]
            )
    return arrow_type(kind)
