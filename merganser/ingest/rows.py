"""Rows as callers hold them -> Arrow tables: Arrow, pandas, Polars, dictionaries, iterators of any of those."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final

import pyarrow as pa

from merganser.errors import InvalidInputError, a_type
from merganser.ingest.frames import of_frame
from merganser.ingest.python_values import RefusedValueError, column_of
from merganser.schema import types as t
from merganser.schema.conform import kinds_from

_PIECE_ROWS: Final = 16_384
"""Dictionaries of an iterator that become one table."""


def batches_of(data: Any, fields: Sequence[t.Field] = ()) -> Iterator[tuple[pa.Table, bool]]:
    """Yield the rows of `data` as tables, each with whether the caller holds it in memory anyway.

    Args:
        data: rows.
        fields: columns of the table: which dictionaries in rows are maps.

    Raises:
        InvalidInputError: `data` is nothing that holds rows.
    """
    if isinstance(data, pa.RecordBatchReader):
        for batch in data:
            yield pa.Table.from_batches([batch]), False
        return
    whole = held_rows(data, fields)
    if whole is not None:
        yield whole, True
        return
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        for table in _tables(data, fields):
            yield table, False
        return
    raise _not_rows(data)


def _tables(parts: Iterable[Any], fields: Sequence[t.Field]) -> Iterator[pa.Table]:
    """Yield the parts of an iterator as tables, and as many as fit a piece of those that are single rows."""
    names: dict[str, None] = {}  # a column of one piece is null in a later one that does not speak of it
    for single, run in itertools.groupby(parts, lambda part: isinstance(part, Mapping)):
        if single:
            while piece := list(itertools.islice(run, _PIECE_ROWS)):
                names.update(dict.fromkeys(name for row in piece for name in row))
                yield _from_dicts(piece, fields, names)
            continue
        for part in run:
            table = held_rows(part, fields)
            if table is None:
                raise _not_rows(part)
            yield table


def held_rows(data: Any, fields: Sequence[t.Field]) -> pa.Table | None:
    """Return a table of what lies in memory, or None when it is something else.

    Args:
        fields: as for `batches_of`.

    Raises:
        InvalidInputError: it is no rows.
    """
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list | tuple):
        if all(isinstance(row, Mapping) for row in data):
            return _from_dicts(data, fields, dict.fromkeys(name for row in data for name in row))
        return None
    frame = of_frame(data, fields)
    if frame is not None:
        return frame
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except pa.ArrowInvalid as error:  # one column, such as a Series, is a stream of values and not of rows
            raise _not_rows(data) from error
        return reader.read_all()
    return None


def _from_dicts(rows: Sequence[Mapping[str, Any]], fields: Sequence[t.Field], names: Iterable[str]) -> pa.Table:
    kinds = {field.name: field.type for field in fields}
    columns = {}
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(f"cannot take the rows: the name of a column is {name!r:.60}, which is no text.")
        try:
            columns[name] = column_of([row.get(name) for row in rows], kinds.get(name))
        except RefusedValueError as error:
            at = "" if error.row is None else f"in row {error.row + 1} of {len(rows)} (counting from 1): "
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: {at}{error} Nothing was written.",
                column=name,
                row=error.row,
            ) from error
    return pa.table(columns)


def split_kinds(rows: pa.Table, column: str | None, *, table: str) -> tuple[pa.Table, pa.Array | None]:
    """Return the rows without their kind column, and the kinds as bytes; None when all are inserts.

    Args:
        column: the name of a column of the rows, one kind per row, or None.
        table: name of the table, for messages.

    Raises:
        InvalidInputError: no such column, or a kind that is none of the four; names the row.
    """
    if column is None:
        return rows, None
    if column not in rows.column_names:
        if not rows.num_columns and not rows.num_rows:
            return rows, None
        raise InvalidInputError(
            f"cannot write to '{table}': kinds names the column '{column}', which the data lacks. It has: "
            f"{', '.join(rows.column_names[:8])}. "
            "Name a column of the data, or give one of +I, -U, +U, -D for every row.",
            column=column,
        )
    return rows.drop_columns([column]), kinds_from(rows.column(column))


class RowKinds:
    """The row kinds of a write, dealt out over its batches in their order.

    Args:
        kinds: the name of a column of the rows, or one kind for each row of all batches together; None: all are
            inserts.
        table: name of the table, for messages.

    Raises:
        InvalidInputError: a kind is none of the four; names the row.
    """

    def __init__(self, kinds: Any, *, table: str) -> None:
        self._column = kinds if kinds is None or isinstance(kinds, str) else None
        self._all = kinds_from(kinds) if self._column is not kinds else None
        self._dealt = 0
        self._table = table

    def split(self, rows: pa.Table, *, last: bool) -> tuple[pa.Table, pa.Array | None]:
        """Return the rows without a kind column, and the kinds as bytes; None when all are inserts.

        Args:
            rows: the next batch.
            last: no batch is to follow; only messages need it.

        Raises:
            InvalidInputError: no such column, a kind that is none of the four, or fewer kinds than rows.
        """
        if self._all is None:
            return split_kinds(rows, self._column, table=self._table)
        kinds = self._all.slice(self._dealt, rows.num_rows)
        self._dealt += rows.num_rows
        if len(kinds) < rows.num_rows:
            raise self._wrong(f"{self._dealt} rows" if last else f"{self._dealt} rows or more")
        return rows, kinds

    def finish(self) -> None:
        """Check that no kind is left after the last row.

        Raises:
            InvalidInputError: there are more kinds than rows.
        """
        if self._all is not None and self._dealt < len(self._all):
            raise self._wrong(f"{self._dealt} rows")

    def _wrong(self, rows: str) -> InvalidInputError:
        assert self._all is not None
        return InvalidInputError(
            f"cannot write to '{self._table}': {len(self._all)} kinds for {rows}. Give one for each row. Nothing was "
            "written."
        )


def _not_rows(data: Any) -> InvalidInputError:
    name = type(data).__name__
    if isinstance(data, str | PathLike):
        advice = "Rows that lie in files are written by table.load(...)."
    elif isinstance(data, Mapping):
        advice = "Give a list of dictionaries, one per row, or pyarrow.table(...) of columns."
    elif name == "LazyFrame":
        advice = "Give what its collect() returns."
    elif name == "Series":
        advice = "Give the frame that its to_frame() returns."
    else:
        advice = "Give an Arrow table, batches or reader, a pandas or Polars frame, or a list of dictionaries."
    return InvalidInputError(f"cannot take rows from {a_type(data)}. {advice}")
