"""Partial rows: some columns of a row, and the row before -> the row after.

The columns given take their new value, null included. The other columns keep theirs; if the key had no row, they take
their default, or null. A delete sets the columns given to null, and removes the row if nothing but its key is left.
Rows of one key count one after the other.

Format: none; the rules are those of Fluss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merganser.edit.given import Given
from merganser.errors import InvalidInputError
from merganser.merge.groups import Mask, Positions
from merganser.scan.images import Images
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type
from merganser.schema.hidden import nulls
from merganser.schema.literals import default_value
from merganser.schema.pieces import values_at


class Partial:
    """Makes whole rows of some columns.

    Args:
        fields: all columns of the table, with their defaults.
        key: the primary key.
        action: what is being done, as messages begin.
    """

    def __init__(self, given: Given, fields: Sequence[t.Field], key: Sequence[str], action: str) -> None:
        self._given = given
        self._fields = fields
        self._key = key
        self._action = action
        there = set(given.rows.column_names)
        self._others = [field for field in fields if field.name not in there]
        self._other = {field.name: field for field in self._others}

    def check_deletes(self) -> None:
        """Refuse deletes that would set a NOT NULL column to null.

        Raises:
            InvalidInputError: names the column and the row.
        """
        deletes = self._deletes()
        if deletes is None:
            return
        for field in self._fields:
            if field.name in self._other or field.name in self._key or field.type.nullable:
                continue
            row = int(np.flatnonzero(deletes)[0])
            raise InvalidInputError(
                f"{self._action}: row {row + 1} (counting from 1) is of kind -D, which sets the columns given to null, "
                f"and '{field.name}' is NOT NULL. Nothing was written. Give whole rows to remove them, or other "
                "columns.",
                column=field.name,
                row=row,
            )

    def candidates(self, before: Images, at: Positions, group: Positions, names: Sequence[str]) -> pa.Table:
        """Return columns of rows as they become if they are inserts and the last of their key.

        Args:
            at: int64[m], the given rows.
            group: int64[m], their keys.
        """
        place = before.place[group]
        return pa.table({name: self._column(name, before, at, place, None) for name in names})

    def after(self, before: Images, at: Positions) -> tuple[Mask, pa.Table]:
        """Return the rows that keys have after the given ones.

        Args:
            before: the rows before.
            at: int64[k], the row of each key that decides.

        Returns:
            bool[k], which keys have a row; k rows, of which those of keys without one have no meaning.

        Raises:
            InvalidInputError: a new row lacks a column that is NOT NULL and has no default; names the key.
        """
        exists, kept, nulled = self._fate(before)
        self._check_new(exists & ~kept)
        place = np.where(kept, before.place, -1)
        columns = [self._column(field.name, before, at, place, nulled) for field in self._fields]
        return exists, pa.Table.from_arrays(columns, schema=arrow_schema(self._fields))

    def _fate(self, before: Images) -> tuple[Mask, Mask, Mask | None]:
        """Return what becomes of keys.

        Returns:
            bool[k], which keys have a row in the end; bool[k], of which the other columns are those before; bool[k],
            for which the columns given are null, None: for none.
        """
        there = before.there
        deletes = self._deletes()
        if deletes is None:
            return np.ones(len(there), np.bool_), there, None
        given, order = self._given, self._given.order
        sorted_deletes, starts = deletes[given.groups.positions], given.groups.starts
        number = np.arange(len(sorted_deletes))
        first_delete = np.minimum.reduceat(np.where(sorted_deletes, number, len(number)), starts)[order]
        last_insert = np.maximum.reduceat(np.where(sorted_deletes, -1, number), starts)[order]
        ends_deleted = sorted_deletes[given.groups.ends - 1][order]
        removed = there & (first_delete < len(number)) & self._bare(before)
        kept = there & ~removed
        made = ~kept & (last_insert >= 0) & (~there | (last_insert > first_delete))
        stays = any(field.default is not None for field in self._others)  # a new row is never bare
        exists = kept | (made & (~ends_deleted | stays))
        return exists, kept, ends_deleted

    def _bare(self, before: Images) -> Mask:
        """Return bool[k], which rows hold nothing besides the key and the columns given."""
        bare = np.ones(before.rows.num_rows, np.bool_)
        for field in self._others:
            bare &= np.asarray(before.rows.column(field.name).is_null())
        return np.append(bare, False)[before.place]

    def _check_new(self, new: Mask) -> None:
        for field in self._others:
            if new.any() and not field.type.nullable and field.default is None:
                at = int(np.flatnonzero(new)[0])
                key = {name: self._given.keys.column(name)[at].as_py() for name in self._key}
                raise InvalidInputError(
                    f"{self._action}: no row has the key {key}, and a new row needs column '{field.name}', which is "
                    "NOT NULL and has no default. Nothing was written. Give this column too.",
                    column=field.name,
                    key=key,
                )

    def _deletes(self) -> Mask | None:
        kinds = self._given.kinds
        deletes = None if kinds is None else kinds == row_kind.DELETE
        return None if deletes is None or not deletes.any() else deletes

    def _column(
        self, name: str, before: Images, at: Positions, place: Positions, nulled: Mask | None
    ) -> pa.ChunkedArray:
        """Return a column of whole rows.

        Args:
            at: the given row of each.
            place: where the row before is whose other columns stay; -1: nowhere.
            nulled: which rows lose the columns given.
        """
        field = self._other.get(name)
        if field is not None:
            return _or_else(before.rows.column(name), place, _default(field))
        column = self._given.rows.column(name)
        if nulled is None or name in self._key:
            return values_at(column, at)
        return _or_else(column, np.where(nulled, -1, at), nulls(1, column.type))


def _default(field: t.Field) -> pa.Array:
    return nulls(1, arrow_type(field.type)) if field.default is None else pa.repeat(default_value(field), 1)


def _or_else(column: pa.ChunkedArray, place: Positions, other: pa.Array) -> pa.ChunkedArray:
    """Return values of a column, and `other`, an array of one, at the places -1."""
    if (place >= 0).all():
        return values_at(column, place)
    whole = pa.chunked_array([*column.chunks, other], column.type)
    return values_at(whole, np.where(place < 0, len(column), place))
