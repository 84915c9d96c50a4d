"""Normalizer: turns what an eventual log says into proper changes, one row per key.

A reader of an eventual log is told of rows twice: when a writer has flushed them, and with their commit. Flushed rows
may never be committed, and others may commit the same keys first. The table itself is the state to compare with::

    a key whose newest flushed row is not committed yet     has this row
    any other key                                           has the row of the table, at the snapshot of the reader

Every change of this state is a change for the reader, and nothing else is. Memory holds the rows that are not committed
yet. They go as soon as their write is committed or dropped. Then the reader has what the table has, whatever it was
told before.

All of it is a function of Arrow tables. Its callers give the rows of the table by key (`Rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.log.records import key_texts
from merganser.merge.groups import Positions
from merganser.scan.images import Images, fate_of, rows_of_changes
from merganser.scan.rows import joined
from merganser.schema import row_kind
from merganser.schema.arrow import in_types, nullable_schema
from merganser.schema.internal_names import internal_name
from merganser.schema.pieces import in_one, rows_at
from merganser.schema.table_schema import CHANGE_KIND, TableSchema

Rows: TypeAlias = Callable[[pa.Table], tuple[Positions, pa.Table]]
"""Gives, of the columns of k keys, which keys have a row in the table, rising, and these rows."""

_KEY: Final = internal_name("log_key")
_WRITE: Final = internal_name("log_write")
_GONE: Final = internal_name("log_gone")
_CHUNKS_MAX: Final = 16
"""Maximum number of chunks of the rows that are not committed. Each takes time in every step."""
_OWN: Final = (_KEY, _WRITE, _GONE)


class Normalizer:
    """The state that a reader of an eventual log has been told of; see the module.

    Args:
        schema: of the table, with a primary key.
    """

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._arrow = nullable_schema(schema.fields)
        self._held = _held(self._arrow.empty_table(), _TEXTS, _TEXTS, pa.array([], pa.bool_()))

    @property
    def nothing(self) -> pa.Table:
        """Changes without rows."""
        return self._arrow.empty_table().add_column(0, CHANGE_KIND.name, pa.array([], pa.string()))

    @property
    def writes(self) -> frozenset[str]:
        """The writes whose rows are not committed yet."""
        return frozenset(pc.unique(self._held.column(_WRITE)).to_pylist())

    def flushed(self, rows: pa.Table, kinds: pa.Array, write: str, table: Rows) -> pa.Table:
        """Take rows that a write has flushed; return what changes.

        Args:
            rows: n rows in the columns of the table, in the order in which they were written.
            kinds: int8[n].
            write: the name of the write.
            table: gives the rows of the table.
        """
        rows = in_one(in_types(rows, self._arrow))
        texts = key_texts(rows, self._schema)
        last = _last(texts)
        gone = pa.array((np.asarray(kinds) & 1).astype(bool)[last])
        rows, texts = rows.take(pa.array(last)), texts.take(pa.array(last))
        new = _held(rows, texts, pa.array([write] * len(last), pa.large_string()), gone)
        kept = self._held.filter(pc.invert(pc.is_in(self._held.column(_KEY), texts)))
        held = joined([kept, new])
        if held.column(_KEY).num_chunks > _CHUNKS_MAX:
            held = in_one(held)
        return self._moved(self._keys(rows), texts, held, table, table)

    def committed(self, keys: pa.Table, writes: Collection[str], before: Rows, after: Rows) -> pa.Table:
        """Take a commit, or several; return what changes.

        Args:
            keys: rows of the table, or their key columns, whose keys the commit may have changed.
            writes: those that it commits.
            before, after: give the rows of the table before and after it.
        """
        ends = pc.is_in(self._held.column(_WRITE), pa.array(list(writes), pa.large_string()))
        ended = self._held.filter(ends)
        told = joined([self._keys(keys), self._keys(ended)])
        texts = key_texts(told, self._schema)
        first = _last(texts)
        return self._moved(
            told.take(pa.array(first)),
            texts.take(pa.array(first)),
            self._held.filter(pc.invert(ends)),
            before,
            after,
        )

    def dropped(self, writes: Collection[str], table: Rows) -> pa.Table:
        """Take the end of writes whose rows are not committed; return what changes: keys have the rows of the table."""
        return self.committed(self._arrow.empty_table(), writes, table, table)

    def repeated(self, keys: pa.Table, table: Rows) -> pa.Table:
        """Return the rows that keys have, known to the reader or not: `+U`, or `-D` with the key alone."""
        told = self._keys(keys)
        texts = key_texts(told, self._schema)
        first = pa.array(_last(texts))
        told, texts = told.take(first), texts.take(first)
        images = self._state(told, texts, self._held, table)
        lacking = told.filter(pa.array(~images.there))
        gone = pa.table({name: _column(lacking, name, type_) for name, type_ in _typed(self._arrow)}, self._arrow)
        rows = joined([images.taken(images.there), gone])
        counts = {row_kind.UPDATE_AFTER: rows.num_rows - lacking.num_rows, row_kind.DELETE: lacking.num_rows}
        kinds = pa.chunked_array([pa.repeat(row_kind.SYMBOLS[kind], n) for kind, n in counts.items()], pa.string())
        return rows.add_column(0, CHANGE_KIND.name, kinds)

    def under(self, schema: TableSchema) -> Normalizer:
        """Return the same state under another schema of the table: by name, null in columns that are not the same."""
        found = Normalizer(schema)
        held = pa.table({name: _column(self._held, name, type_) for name, type_ in _typed(found._arrow)}, found._arrow)
        found._held = _held(held, *(self._held.column(name) for name in _OWN))
        return found

    def _keys(self, rows: pa.Table) -> pa.Table:
        names = list(self._schema.primary_keys)
        return in_one(in_types(rows.select(names), pa.schema([self._arrow.field(name) for name in names])))

    def _moved(self, keys: pa.Table, texts: pa.Array, held: pa.Table, before: Rows, after: Rows) -> pa.Table:
        """Return the changes of different keys, and go on with other rows that are not committed."""
        if not keys.num_rows:
            self._held = held
            return self.nothing
        old, new = self._state(keys, texts, self._held, before), self._state(keys, texts, held, after)
        found = rows_of_changes(old, new, fate_of(old, new, old.same(new)))
        self._held = held
        return found

    def _state(self, keys: pa.Table, texts: pa.Array, held: pa.Table, table: Rows) -> Images:
        """Return the rows of keys: those that are not committed, and of the other keys those of the table."""
        at = pc.index_in(texts, held.column(_KEY).combine_chunks())
        is_held = np.asarray(at.is_valid())
        positions = np.asarray(at.drop_null(), dtype=np.int64)
        is_there = ~np.asarray(held.column(_GONE).combine_chunks())[positions]
        asked = np.flatnonzero(~is_held)
        which, stored = table(keys if len(asked) == len(texts) else keys.take(pa.array(asked))) if len(asked) else _NONE
        rows = rows_at(held.drop_columns(list(_OWN)), positions[is_there])
        if len(which):
            rows = in_one(joined([rows, in_types(stored, self._arrow)]))
        place = np.full(len(texts), -1, np.int64)
        place[np.flatnonzero(is_held)[is_there]] = np.arange(np.count_nonzero(is_there))
        place[asked[which]] = np.count_nonzero(is_there) + np.arange(len(which))
        return Images(place, rows)


_NONE: Final[tuple[Positions, Any]] = (np.zeros(0, np.int64), None)
_TEXTS: Final = pa.nulls(0, pa.large_string())


def _held(rows: pa.Table, texts: Any, writes: Any, gone: Any) -> pa.Table:
    for name, column in zip(_OWN, (texts, writes, gone), strict=True):
        rows = rows.append_column(name, column)
    return rows


def _typed(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _column(rows: pa.Table, name: str, type_: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column of rows, nulls if there is no such column of the type."""
    if name in rows.column_names and rows.schema.field(name).type == type_:
        return rows.column(name)
    return pa.nulls(rows.num_rows, type_)


def _last(texts: pa.Array) -> Positions:
    """Return where the last of equal texts stand, in the order of the first of each."""
    codes = np.asarray(pc.dictionary_encode(texts).indices)
    found = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    np.maximum.at(found, codes, np.arange(len(codes)))
    return found
