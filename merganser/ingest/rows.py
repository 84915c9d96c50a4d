"""Rows as callers hold them -> Arrow tables: Arrow, pandas, Polars, dictionaries, iterators of any of those."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from os import PathLike
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merganser.errors import InvalidInputError
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
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return _from_pandas(data, fields)
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except pa.ArrowInvalid as error:  # one column, such as a Series, is a stream of values and not of rows
            raise _not_rows(data) from error
        return reader.read_all()
    return None


def _from_pandas(data: Any, fields: Sequence[t.Field]) -> pa.Table:
    kinds = {field.name: field.type for field in fields if _has_maps(field.type)}
    try:
        once = {name for name, count in Counter(data.columns).items() if count == 1}
        maps = {
            name: _array(data[name].tolist(), kinds[name])
            for name in data.columns
            if name in kinds and name in once and data[name].dtype == object
        }
        plain = data.drop(columns=list(maps)) if maps else data
        rows = pa.Table.from_pandas(plain, preserve_index=False).replace_schema_metadata(None)
        for name, column in maps.items():
            rows = rows.append_column(name, column)
        return rows
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = ": ".join(str(part) for part in reversed(error.args))
        raise InvalidInputError(
            f"cannot take the rows of the pandas frame: {why}. Give a column values of one type, and each name once."
        ) from error


def _from_dicts(rows: Sequence[Mapping[str, Any]], fields: Sequence[t.Field], names: Iterable[str]) -> pa.Table:
    kinds = {field.name: field.type for field in fields}
    columns = {}
    for name in names:
        if not isinstance(name, str):
            raise InvalidInputError(f"cannot take the rows: the name of a column is {name!r:.60}, which is no text.")
        try:
            columns[name] = _array([row.get(name) for row in rows], kinds.get(name))
        except OverflowError as error:
            beyond = [
                i for i, row in enumerate(rows) if isinstance(v := row.get(name), int) and not -(2**63) <= v < 2**63
            ]
            at = f" in row {beyond[0] + 1} of {len(rows)} (counting from 1): {rows[beyond[0]][name]}" if beyond else ""
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: a number does not fit 64 bits{at}. Give decimals for "
                "larger ones.",
                column=name,
                row=beyond[0] if beyond else None,
            ) from error
        except UnicodeError as error:
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: {error}. Text has no halves of surrogate pairs.", column=name
            ) from error
        except _NoMapError as error:
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: {error} Nothing was written.", column=name
            ) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            if isinstance(kinds.get(name), t.Decimal):
                _refuse_no_number(name, [row.get(name) for row in rows], kinds[name])
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: its values are of more than one type ({error}). Give "
                "values of one type.",
                column=name,
            ) from error
    return pa.table(columns)


def _refuse_no_number(name: str, values: list[Any], kind: t.DataType) -> None:
    """Refuse values of a DECIMAL column among which is NaN or an infinity; others are left to the caller."""
    for i, value in enumerate(values):
        if isinstance(value, float | Decimal) and not math.isfinite(value):
            raise InvalidInputError(
                f"cannot take column '{name}' of the rows: {value} in row {i + 1} of {len(values)} (counting from 1) "
                f"is no value of {kind.with_nullable(True)}. Give None where there is no number. Nothing was written.",
                column=name,
                row=i,
            )


class _NoMapError(Exception):
    """A value of a map column is no map; says which and what to give."""


def _array(values: list[Any], kind: t.DataType | None) -> pa.Array:
    """Return values as Arrow takes them, but dictionaries and pairs as maps where the column has maps."""
    match kind:
        case t.Map(key=key, value=item):
            pairs = [None if value is None else _pairs(value) for value in values]
            keys = _array([pair[0] for of_row in pairs if of_row for pair in of_row], key)
            if keys.null_count:
                owners = [(value, pair[0]) for value, of in zip(values, pairs, strict=True) for pair in of or ()]
                wrong, null = owners[keys.is_null().index(True).as_py()]  # NaT and pandas.NA are null, too
                raise _NoMapError(
                    f"{wrong!r:.60} has the key {null!r}, and keys of a map cannot be null. Leave the entry out, or "
                    "give it a key."
                )
            items = _array([pair[1] for of_row in pairs if of_row for pair in of_row], item)
            return pa.MapArray.from_arrays(_offsets(pairs), keys, items)
        case t.Multiset(element=element):
            return _array(values, t.Map(key=element, value=t.Int()))
        case t.Array(element=element) if _has_maps(element) and _all(values, list | tuple | np.ndarray):
            return pa.ListArray.from_arrays(
                _offsets(values), _array([v for of in values if of is not None for v in of], element)
            )
        case t.Row(fields=fields) if _has_maps(kind) and _all(values, Mapping):
            rows = [value or {} for value in values]
            names = list(dict.fromkeys([f.name for f in fields] + [name for row in rows for name in row]))
            kinds = {field.name: field.type for field in fields}
            parts = [_array([row.get(name) for row in rows], kinds.get(name)) for name in names]
            return pa.StructArray.from_arrays(
                parts, names, mask=pa.array([value is None for value in values], pa.bool_())
            )
    return pa.array(values)


def _has_maps(kind: t.DataType) -> bool:
    match kind:
        case t.Map() | t.Multiset():
            return True
        case t.Array(element=element):
            return _has_maps(element)
        case t.Row(fields=fields):
            return any(_has_maps(field.type) for field in fields)
    return False


def _all(values: list[Any], wanted: Any) -> bool:
    return all(value is None or isinstance(value, wanted) for value in values)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return [(pair[0], pair[1]) for pair in value]
    raise _NoMapError(f"{value!r:.60} is no map. Give a dictionary or a list of pairs.")


def _offsets(values: list[Any]) -> pa.Array:
    """Return where each list begins in all of them put together, and the end; null at one that is null."""
    ends = [0, *itertools.accumulate(0 if value is None else len(value) for value in values)]
    starts = [None if value is None else start for value, start in zip(values, ends, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int32())


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
    return InvalidInputError(f"cannot take rows from a {name}. {advice}")
