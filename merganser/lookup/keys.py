"""What callers give as keys -> key columns, checked before anything is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from merganser.codec.deletion_vector import Positions
from merganser.errors import InvalidInputError
from merganser.ingest.rows import batches_of
from merganser.meta.table_def import TableDef
from merganser.options.registry import did_you_mean
from merganser.schema.arrow import arrow_schema
from merganser.schema.conform import conform
from merganser.schema.fitting import fitting


def check_has_key(table: TableDef, action: str) -> None:
    """Refuse a table without a primary key.

    Raises:
        InvalidInputError: it has none.
    """
    if not table.keyed or table.counting:
        raise InvalidInputError(
            f"{action}: the table has no primary key, so no column says which row is meant. Nothing was read. Use "
            "read(where=...).",
            table=table.name,
        )


def key_rows(
    table: TableDef,
    keys: Any,
    names: Sequence[str],
    action: str,
    noun: str = "key",
    shorter: Sequence[str] | None = None,
) -> pa.Table:
    """Return keys as the columns `names`, or `shorter`, in the Arrow types of the table.

    Args:
        keys: a dict, a list of dicts, an Arrow table, or a frame.
        names: the columns that a key has.
        shorter: those of them that a key may have instead; None: it has all.
        action: what is being done, as messages begin.
        noun: how messages call a key.

    Raises:
        InvalidInputError: a column is missing, or is no part of the key; a value of the primary key is null, or one is
            of another type. Nothing was read.
    """
    fields = [replace(table.schema.field(name), default=None) for name in names]
    beside = beside_key(table, names)
    rows = [keys] if isinstance(keys, Mapping) else keys
    try:
        parts = [part for part, _ in batches_of(rows, fields)]
    except InvalidInputError as error:
        raise InvalidInputError(f"{action}: {error}", **error.context) from error
    if (not isinstance(rows, Sized) or len(rows)) and any(not part.num_columns for part in parts):
        check_columns([], names, action, noun, beside=beside)  # keys without columns lack them; they are not no keys
    if shorter is not None and any(part.num_columns for part in parts):
        given = {name for part in parts for name in part.column_names}
        if given == set(shorter):
            names, fields = shorter, [field for field in fields if field.name in shorter]
    if not any(part.num_rows for part in parts):
        return arrow_schema(fields).empty_table()
    not_null = [name for name in names if name in table.schema.primary_keys]  # a partition column may be null
    parts = [part for part in parts if part.num_rows]
    for part in parts:
        check_columns(part.column_names, names, action, noun, beside=beside)
    _check_alike(rows, names, action, noun)
    conformed = []
    for part in parts:
        conformed.append(
            conform(part, fields, action=action, not_null_names=not_null, still_true="Nothing was read.", placing=None)
        )
    return pa.concat_tables(conformed)


def _check_alike(rows: Any, names: Sequence[str], action: str, noun: str) -> None:
    """Refuse dicts of different columns: a column that one of them lacks would be null there."""
    if not isinstance(rows, Sequence):
        return
    given = {frozenset(row) for row in rows if isinstance(row, Mapping)}
    if len(given) > 1:
        lacking = sorted(frozenset.union(*given) - frozenset.intersection(*given), key=list(names).index)
        raise InvalidInputError(
            f"{action}: some {noun}s have the column '{lacking[0]}', and others lack it. Give all {noun}s the same "
            "columns, with None for a null. Nothing was read.",
            column=lacking[0],
        )


def keys_that_fit(table: TableDef, keys: pa.Table) -> Positions:
    """Return which of some keys rows of the table may have, rising: no value is null or does not fit its column.

    Args:
        keys: columns of the key, of types that `check_types` has let pass.
    """
    fits = np.ones(keys.num_rows, np.bool_)
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        fits &= fitting(column.combine_chunks(), table.schema.field(name).type)
    return np.flatnonzero(fits)


def check_types(table: TableDef, types: Mapping[str, pa.DataType], action: str) -> None:
    """Refuse columns whose type cannot become that of the key.

    Args:
        types: by column of the key.

    Raises:
        InvalidInputError: names the column and both types.
    """
    fields = [replace(table.schema.field(name), default=None) for name in types]
    rows = pa.table({name: pa.nulls(0, kind) for name, kind in types.items()})
    conform(rows, fields, action=action, still_true="Nothing was read.", placing=None)


def beside_key(table: TableDef, names: Sequence[str]) -> list[str]:
    """Return the partition columns among some columns that the primary key of a table lacks."""
    return [name for name in names if name not in table.schema.primary_keys]


def check_columns(
    given: Sequence[str], names: Sequence[str], action: str, noun: str = "key", *, beside: Collection[str] = ()
) -> None:
    """Refuse columns that are not exactly those of a key.

    Args:
        given, names: the columns, and those of a key.
        action: what is being done, as messages begin.
        noun: how messages call a key.
        beside: see `beside_key`.

    Raises:
        InvalidInputError: names the columns.
    """
    wanted = ", ".join(f"'{name}'" for name in names)
    for name in given:
        if name not in names:
            raise InvalidInputError(
                f"{action}: column '{name}' is no part of the {noun}. A {noun} has the columns {wanted}. Nothing was "
                f"read. {did_you_mean(name, list(names))}".rstrip(),
                column=name,
            )
    missing = [name for name in names if name not in given]
    if missing and missing[0] in beside:
        raise InvalidInputError(
            f"{action}: the {noun} lacks column '{missing[0]}', which says in which partition the row is. It is no "
            f"part of the primary key, so each partition may have a row of the same key. Nothing was read. Give "
            f"{wanted}; read(where=...) finds the rows of a key in all partitions.",
            column=missing[0],
            missing=missing,
        )
    if missing:
        raise InvalidInputError(
            f"{action}: the {noun} lacks column '{missing[0]}'. A {noun} has the columns {wanted}. Nothing was read.",
            column=missing[0],
            missing=missing,
        )
