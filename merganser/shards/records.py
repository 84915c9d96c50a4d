"""Records: rows of a changelog as the records of a shard, one for each change of a row.

    stored           +I 1 a b          -U 1 a b    +U 1 a c                     -D 1 a c
    record           PUT 1 a b         UPDATE 1 . c, changed: the last column   DELETE 1

A row after an update without the one before it is a put: all of the row is known, and not what changed.

All columns at once: a record is a mask over the rows, and what changed is compared column by column.

Semantics: "Table Store Stream", operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.scan.forms import OFFSETS_PER_SNAPSHOT
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.same import same_rows, same_values
from merganser.schema.table_schema import CHANGE_KIND
from merganser.schema.types_text import UNNUMBERED
from merganser.values import dataclass

ACTION: Final = "_action"
SEQUENCE: Final = "_sequence"
COMMIT_TIME: Final = "_commit_time"
CHANGED: Final = "_changed"
BEFORE: Final = "_before"
OWN: Final = (ACTION, SEQUENCE, COMMIT_TIME, CHANGED, BEFORE)
"""Columns of records that are none of the table."""

PUT, UPDATE, DELETE = "PUT", "UPDATE", "DELETE"
_TIME: Final = pa.timestamp("ms", tz="UTC")

_LATE: Final = OFFSETS_PER_SNAPSHOT // 2

Mask: TypeAlias = "npt.NDArray[np.bool_]"
Positions: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Shape:
    """What records have.

    Attributes:
        columns: names of the columns of the table, in order.
        key: those that tell which row is meant; none of a table without a key.
        before: whether the row before the change is among them.
        full: whether an update has all columns of the row, and a delete its last ones.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    before: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows of one snapshot and shard as they are stored, with kinds.

    Attributes:
        rows: the columns of the table and `_row_kind`.
        first: the number of the first row among those of the snapshot and shard.
        snapshot: its id.
        time_ms: when it was committed.
        late: they come after other rows of the snapshot that go, from this shard or from another: an overwrite added
            them, or keys that move between partitions have them now.
    """

    rows: pa.Table
    first: int
    snapshot: int
    time_ms: int
    late: bool = False

    @property
    def end(self) -> int:
        """The number of the row after the last one."""
        rows: int = self.rows.num_rows
        return self.first + rows

    def part(self, begin: int, end: int | None = None) -> Stored:
        """Return rows `begin` to `end` of it."""
        length = (self.rows.num_rows if end is None else end) - begin
        return replace(self, rows=self.rows.slice(begin, length), first=self.first + begin)


def record_fields(shape: Shape, columns: Sequence[t.Field]) -> tuple[t.Field, ...]:
    """Return the columns of records.

    Args:
        columns: those of the shape.
    """
    own = [
        t.Field(UNNUMBERED, ACTION, t.VarChar(nullable=False)),
        t.Field(UNNUMBERED, SEQUENCE, t.BigInt(nullable=False)),
        t.Field(UNNUMBERED, COMMIT_TIME, t.LocalZonedTimestamp(precision=3, nullable=False)),
    ]
    if shape.key:
        own.append(t.Field(UNNUMBERED, CHANGED, t.Array(element=t.VarChar())))
    shown = [f if f.name in shape.key else replace(f, type=f.type.with_nullable(True)) for f in columns]
    if shape.before:
        inner = tuple(replace(field, type=field.type.with_nullable(True)) for field in columns)
        shown.append(t.Field(UNNUMBERED, BEFORE, t.Row(fields=inner)))
    return (*own, *shown)


def ends_within_update(rows: pa.Table) -> bool:
    """Return whether the last row is the one before an update, whose row after comes next."""
    return bool(rows.num_rows) and rows.column(CHANGE_KIND.name)[-1].as_py() == "-U"


def record_count(rows: pa.Table, key: Sequence[str]) -> int:
    """Return how many records rows make."""
    return int(np.count_nonzero(~_paired(rows, _kinds(rows), key)))


def record_table(parts: Sequence[Stored], shape: Shape, empty: pa.Table) -> tuple[pa.Table, Positions]:
    """Return the records of stored rows; the two rows of an update lie in one part.

    Args:
        parts: of one row or more each.
        empty: no rows, for their columns.

    Returns:
        k records, and int64[k]: the row of each among those of all parts, of an update the row after it.
    """
    names = empty.column_names
    told = (pa.table(part.rows.select(names).columns, schema=empty.schema) for part in parts)
    rows = pa.concat_tables([empty, *told]).combine_chunks()
    kinds = _kinds(rows)
    sizes = [part.rows.num_rows for part in parts]
    paired = _paired(rows, kinds, shape.key)
    paired[np.cumsum(sizes, dtype=np.int64) - 1] = False  # else it would depend on where a page ends
    at: Positions = np.flatnonzero(~paired)
    has_before = (at > 0) & paired[np.maximum(at - 1, 0)]
    after = rows.take(at)
    before = rows.take(np.maximum(at - has_before, 0))
    own = kinds[at]
    updates = (own == row_kind.UPDATE_AFTER) & has_before
    deletes = (own & 1).astype(np.bool_)  # a row before an update that has none after it takes its row back
    actions = np.where(updates, 1, np.where(deletes, 2, 0)).astype(np.int8)
    numbers = [
        np.arange(part.first, part.end) + part.snapshot * OFFSETS_PER_SNAPSHOT + part.late * _LATE for part in parts
    ]
    times = np.repeat(np.array([part.time_ms for part in parts], np.int64), sizes)
    shown = [ACTION, SEQUENCE, COMMIT_TIME]
    columns: list[pa.Array | pa.ChunkedArray] = [
        pa.array([PUT, UPDATE, DELETE]).take(pa.array(actions)),
        pa.array((np.concatenate(numbers) if numbers else np.zeros(0, np.int64))[at]),
        pa.array(times[at]).view(_TIME),
    ]
    values = [name for name in shape.columns if name not in shape.key]
    changed = np.zeros((len(at), len(values)), np.bool_)
    if shape.key:
        shown.append(CHANGED)
        for i, name in enumerate(values):
            changed[:, i] = ~same_values(_whole(after.column(name)), _whole(before.column(name)))
        columns.append(_listed(changed, updates, values))
    for name in shape.columns:
        column = after.column(name)
        if shape.key and name not in shape.key and not shape.full:
            hidden = deletes | (updates & ~changed[:, values.index(name)])
            if hidden.any():
                column = pc.if_else(pa.array(~hidden), column, pa.scalar(None, column.type))
        shown.append(name)
        columns.append(column)
    if shape.before:
        shown.append(BEFORE)
        there = updates | deletes
        parts_of = [_whole(before.column(name)) for name in shape.columns]
        columns.append(pa.StructArray.from_arrays(parts_of, list(shape.columns), mask=pa.array(~there)))
    return pa.table(columns, names=shown), at


def _kinds(rows: pa.Table) -> npt.NDArray[np.int8]:
    """Return the kinds of rows as their bytes."""
    found = pc.index_in(rows.column(CHANGE_KIND.name), pa.array(row_kind.SYMBOLS))
    codes: npt.NDArray[np.int8] = found.to_numpy().astype(np.int8)
    return codes


def _paired(rows: pa.Table, kinds: npt.NDArray[np.int8], key: Sequence[str]) -> Mask:
    """Return which rows are followed by the row after their update: they are no records of their own."""
    found = np.zeros(len(kinds), np.bool_)
    at = np.flatnonzero((kinds[:-1] == row_kind.UPDATE_BEFORE) & (kinds[1:] == row_kind.UPDATE_AFTER))
    if len(at):
        keys = rows.select(list(key))
        found[at] = same_rows(keys.take(at), keys.take(at + 1)) if key else True
    return found


def _listed(changed: Mask, known: Mask, names: Sequence[str]) -> pa.Array:
    """Return the names of the columns that each update changed; null for other records."""
    counts = np.where(known, changed.sum(axis=1), 0)
    _, which = np.nonzero(changed & known[:, None])
    ends = np.zeros(len(known) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    flat = pa.array(names, pa.string()).take(pa.array(which))
    return pa.ListArray.from_arrays(pa.array(ends), flat, mask=pa.array(~known))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
