"""Rows as callers hold them -> Arrow tables: Arrow, pandas, Polars, lists of dictionaries, iterators of those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.schema.conform import kinds_from


def batches_of(data: Any) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the rows of `data` as tables, each with whether the caller holds it in memory anyway.

    Raises:
        InvalidInputError: `data` is nothing that holds rows.
    """
    if isinstance(data, pa.RecordBatchReader):
        for batch in data:
            yield pa.Table.from_batches([batch]), False
        return
    whole = _table(data)
    if whole is not None:
        yield whole, True
        return
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        for part in data:
            table = _table(part)
            if table is None:
                raise _not_rows(part)
            yield table, False
        return
    raise _not_rows(data)


def _table(data: Any) -> pa.Table | None:
    """Return a table of what lies in memory, or None when it is something else."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list):
        if not data or all(isinstance(row, Mapping) for row in data):
            return _from_dicts(data)
        return None
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    return None


def _from_dicts(rows: list[Mapping[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except OverflowError as error:
            beyond = [
                i for i, row in enumerate(rows) if isinstance(v := row.get(name), int) and not -(2**63) <= v < 2**63
            ]
            at = f" in row {beyond[0] + 1} of {len(rows)}: {rows[beyond[0]][name]}" if beyond else ""
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: a number does not fit 64 bits{at}. Give decimals for "
                "larger ones.",
                column=name,
                row=beyond[0] if beyond else None,
            ) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: its values are of more than one type ({error}). Give "
                "values of one type.",
                column=name,
            ) from error
    return pa.table(columns)


def split_kinds(rows: pa.Table, kinds: Any, *, table: str) -> tuple[pa.Table, pa.Array | None]:
    """Return the rows without their kind column, and the kinds as bytes; None when all are inserts.

    Args:
        kinds: the name of a column of the rows, one kind per row, or None.

    Raises:
        InvalidInputError: no such column, or a kind that is none of the four; names the row.
    """
    if kinds is None:
        return rows, None
    if isinstance(kinds, str):
        if kinds not in rows.column_names:
            if not rows.num_columns and not rows.num_rows:
                return rows, None
            raise InvalidInputError(
                f"cannot write to '{table}': kinds names the column '{kinds}', which the data lacks. It has: "
                f"{', '.join(rows.column_names[:8])}. "
                "Name a column of the data, or give one of +I, -U, +U, -D for every row.",
                column=kinds,
            )
        return rows.drop_columns([kinds]), kinds_from(rows.column(kinds), rows.num_rows)
    return rows, kinds_from(kinds, rows.num_rows)


def _not_rows(data: Any) -> InvalidInputError:
    return InvalidInputError(
        f"cannot take rows from a {type(data).__name__}. Give an Arrow table, batches or reader, a pandas or "
        "Polars frame, or a list of dictionaries."
    )
