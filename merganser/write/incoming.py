"""Rows that fit their table -> rows to write: kinds read from a column, dropped, refused, or turned into counts."""

from __future__ import annotations

import contextlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.merge.rules import merge_of, nulled_by_deletes
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.merging import vouched
from merganser.schema import row_kind
from merganser.schema.conform import kinds_from
from merganser.schema.table_schema import VALUE_COUNT

Arrival: TypeAlias = "npt.NDArray[np.int64]"
Prepared: TypeAlias = "tuple[pa.Table, pa.Array | None, Arrival | None]"
"""Rows in exactly the table's stored types, their kinds (None: all inserts), and what orders them (None: position)."""


def accepted(
    table: TableDef, rows: pa.Table, kinds: pa.Array | None, arrival: Arrival | None, *, action: str
) -> Prepared:
    """Return the rows to write.

    Args:
        rows: in exactly the types of the table's columns.
        kinds: int8, one per row; None: all inserts.
        arrival: int64, orders the rows; None: by position.
        action: beginning of messages, such as "cannot write to 'db.orders'".

    Raises:
        InvalidInputError: a kind that the table does not take; names the row.
    """
    column = table.options.get(w.ROWKIND_FIELD)
    if column is not None:
        kinds = _from_column(rows, column, action)
    _check_vouched(table, rows, kinds, action)
    if kinds is None:
        return _counted(rows, None, arrival) if table.counting else (rows, None, arrival)
    found = kinds.to_numpy(zero_copy_only=False)
    dropped = dropped_among(table, found)
    if dropped is not None and dropped.any():
        kept = ~dropped
        rows, kinds, found = rows.filter(pa.array(kept)), kinds.filter(pa.array(kept)), found[kept]
        arrival = None if arrival is None else arrival[kept]
    if table.counting and not ((found & 1).any() and table.options.get(w.DELETES) == "refuse"):
        return _counted(rows, found, arrival)
    if not (found & 1).any():
        # Kinds that only say "added" are stored, since +U is a kind of its own; a table without a key has no place.
        return rows, kinds if table.keyed and found.any() else None, arrival
    if not table.keyed:
        why = (
            "a table without a primary key takes inserts only (+I, +U). Leave such rows out, set 'ignore-delete' to "
            "drop them, or create the table with 'write-mode' = 'change-log'."
        )
        _refuse(found, why, action)
    if table.options.get(w.DELETES) == "refuse":
        _refuse(found, "deletes are refused by 'merganser.deletes'. Leave such rows out.", action)
    refusal = merge_of(table).refusal(found)
    if refusal is not None:
        _refuse(found, refusal, action)
    if (found == row_kind.DELETE).any():
        _check_nulled(table, rows, found, action)
    return rows, kinds, arrival


def _check_vouched(table: TableDef, rows: pa.Table, kinds: pa.Array | None, action: str) -> None:
    """Refuse rows that add and whose sequence group does not set a NOT NULL column, since its ordering is null."""
    for ordering, name in vouched(table.schema, table.options):
        if not set(ordering) <= set(rows.column_names):
            continue  # the rows get the ordering that is stored
        silent = np.logical_and.reduce([np.asarray(rows.column(column).is_null()) for column in ordering])
        if kinds is not None:
            silent &= (kinds.to_numpy(zero_copy_only=False) & 1) == 0
        if silent.any():
            row = int(np.flatnonzero(silent)[0])
            raise InvalidInputError(
                f"{action}: row {row + 1} of {rows.num_rows:,} is null in '{', '.join(ordering)}', which orders the "
                f"sequence group of column '{name}'. Such a row does not set '{name}', which is NOT NULL: a new key "
                f"would have null there. Nothing was written. Give the ordering a value, or make '{name}' nullable.",
                row=row,
                column=name,
            )


def _check_nulled(table: TableDef, rows: pa.Table, kinds: npt.NDArray[np.int8], action: str) -> None:
    """Refuse deletes that would leave the row of their key with a null in a NOT NULL column."""

    def says(columns: tuple[str, ...]) -> npt.NDArray[np.bool_]:
        found = np.zeros(rows.num_rows, np.bool_)
        for column in columns:
            found |= np.asarray(rows.column(column).is_valid())
        return found

    for name, when in nulled_by_deletes(table).items():
        hit = (kinds == row_kind.DELETE) & ~says(when.removing)
        if when.ordering:
            hit &= says(when.ordering)
        if hit.any():
            why = (
                f"it would set column '{name}', which is NOT NULL, to null: the merge engine keeps the row of the key. "
                f"Make the column nullable, set 'fields.{name}.ignore-retract' to leave it as it is, or set an option "
                "by which a delete removes the row."
            )
            _refuse(np.where(hit, kinds, row_kind.INSERT), why, action)


def deletes_among(table: TableDef, rows: pa.Table, kinds: pa.Array | None) -> pa.Array | None:
    """Return which rows remove the row of their key, as a boolean array. None if there are none.

    Args:
        table: in a table without a primary key a `-D` is a whole row, so it is none of them.
        rows: the columns as they are given.
        kinds: int8, one per row; None: all inserts.
    """
    column = table.options.get(w.ROWKIND_FIELD)
    if table.counting or not table.keyed:
        return None
    if column is not None:
        kinds = None
        if column in rows.column_names:
            with contextlib.suppress(InvalidInputError):  # `accepted` refuses a kind that is none
                kinds = kinds_from(rows.column(column))
    found = None if kinds is None else pc.equal(kinds, row_kind.DELETE)
    return found if found is not None and found.true_count else None


def _from_column(rows: pa.Table, column: str, action: str) -> pa.Array:
    try:
        return kinds_from(rows.column(column))
    except InvalidInputError as error:
        raise InvalidInputError(f"{action}: column '{column}' ('rowkind.field'): {error}", **error.context) from error


def dropped_among(table: TableDef, kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_] | None:
    """Return bool[n], the rows that the options drop; None: none."""
    dropped: npt.NDArray[np.bool_] | None = None
    if table.options.get(w.IGNORE_DELETE):
        dropped = (kinds & 1) == 1
    elif table.options.get(w.IGNORE_UPDATE_BEFORE):
        dropped = kinds == row_kind.UPDATE_BEFORE
    return dropped


def _counted(rows: pa.Table, kinds: npt.NDArray[np.int8] | None, arrival: Arrival | None) -> Prepared:
    """Return rows of a table that counts equal rows: +1 for one added, -1 for one taken back."""
    count = np.ones(rows.num_rows, np.int64) if kinds is None else 1 - 2 * (kinds & 1).astype(np.int64)
    return rows.append_column(VALUE_COUNT.name, pa.array(count)), None, arrival


def _refuse(kinds: npt.NDArray[np.int8], why: str, action: str) -> None:
    row = int(np.flatnonzero(kinds & 1)[0])
    symbol = row_kind.SYMBOLS[kinds[row]]
    raise InvalidInputError(
        f"{action}: row {row + 1} of {len(kinds):,} is of kind {symbol}, and {why} Nothing was written.", row=row
    )
