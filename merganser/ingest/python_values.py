"""Python values -> Arrow arrays: what Arrow takes, and what it would take for another value.

Missing values of pandas (NaT and NA) are nulls. NaN is a number and no null. Moments with a zone and without one do not
mix: Arrow would count those without one as UTC. What no array holds is refused with its row, type and value.
"""

from __future__ import annotations

import datetime
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merganser.schema import types as t

_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""What Arrow raises for values that it does not take."""


class RefusedValueError(Exception):
    """A value of a column cannot be taken: `row` counts from 0, and the text says why, and what to give."""

    def __init__(self, row: int | None, why: str) -> None:
        super().__init__(why)
        self.row = row


def column_of(values: list[Any], kind: t.DataType | None) -> pa.Array:
    """Return the values of a column; see `array_of`.

    Raises:
        RefusedValueError: one of them is no value of a column, or another than those before it.
    """
    values = _with_nulls(values)
    try:
        array = array_of(values, kind)
        if pa.types.is_timestamp(array.type) and any(getattr(value, "nanosecond", 0) for value in values):
            array = pa.array(values, pa.timestamp("ns", array.type.tz))  # pandas' own moments have nanoseconds
    except _NoMapError as error:
        raise RefusedValueError(None, str(error)) from error
    except _REFUSED as error:
        raise _refused(values, kind, error) from error
    _check(values, range(len(values)), array.type)
    return array


class _NoMapError(TypeError):
    """A value of a map column is no map; says which and what to give."""


def array_of(values: list[Any], kind: t.DataType | None) -> pa.Array:
    """Return values as Arrow takes them, but dictionaries and pairs as maps where the column has maps."""
    match kind:
        case t.Map(key=key, value=item):
            pairs = [None if value is None else _pairs(value) for value in values]
            keys = array_of([pair[0] for of_row in pairs if of_row for pair in of_row], key)
            if keys.null_count:
                owners = [(value, pair[0]) for value, of in zip(values, pairs, strict=True) for pair in of or ()]
                wrong, null = owners[keys.is_null().index(True).as_py()]  # NaT and pandas.NA are null, too
                raise _NoMapError(
                    f"{wrong!r:.60} has the key {null!r}, and keys of a map cannot be null. Leave the entry out, or "
                    "give it a key."
                )
            items = array_of([pair[1] for of_row in pairs if of_row for pair in of_row], item)
            return pa.MapArray.from_arrays(_offsets(pairs), keys, items)
        case t.Multiset(element=element):
            return array_of(values, t.Map(key=element, value=t.Int()))
        case t.Array(element=element) if has_maps(element) and _all(values, list | tuple | np.ndarray):
            return pa.ListArray.from_arrays(
                _offsets(values), array_of([v for of in values if of is not None for v in of], element)
            )
        case t.Row(fields=fields) if has_maps(kind) and _all(values, Mapping):
            rows = [value or {} for value in values]
            names = list(dict.fromkeys([f.name for f in fields] + [name for row in rows for name in row]))
            kinds = {field.name: field.type for field in fields}
            parts = [array_of([row.get(name) for row in rows], kinds.get(name)) for name in names]
            return pa.StructArray.from_arrays(
                parts, names, mask=pa.array([value is None for value in values], pa.bool_())
            )
    if isinstance(kind, t.Decimal) and any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in values):
        values = [Decimal(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    return pa.array(values)


def has_maps(kind: t.DataType) -> bool:
    """Return whether values of a type are maps, or hold some."""
    match kind:
        case t.Map() | t.Multiset():
            return True
        case t.Array(element=element):
            return has_maps(element)
        case t.Row(fields=fields):
            return any(has_maps(field.type) for field in fields)
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


def _with_nulls(values: list[Any]) -> list[Any]:
    """Return values with None in place of the missing values of pandas, at any depth."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "NA"):
        return values
    missing = (pandas.NaT, pandas.NA)

    def plain(value: Any) -> Any:
        if value is missing[0] or value is missing[1]:
            return None
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value

    return [plain(value) for value in values]


def _check(values: Sequence[Any], rows: Sequence[int], kind: pa.DataType) -> None:
    """Refuse values that Arrow took for other ones: numbers among moments and flags among numbers, for instance.

    Args:
        values: n values.
        rows: the row that each belongs to.
        kind: the Arrow type of their array.
    """
    if pa.types.is_struct(kind):
        some = [(value, row) for value, row in zip(values, rows, strict=True) if isinstance(value, Mapping)]
        for field in kind:
            _check([value.get(field.name) for value, _ in some], [row for _, row in some], field.type)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        for part, inner in enumerate((kind.key_type, kind.item_type) if pa.types.is_map(kind) else (kind.value_type,)):
            items = [(item, row) for value, row in zip(values, rows, strict=True) for item in _items(value, part)]
            _check([item for item, _ in items], [row for _, row in items], inner)
    elif wanted := next((types for test, types in _TAKEN if test(kind)), None):
        found = {type(value) for value in values if value is not None}
        others = {each for each in found if not issubclass(each, wanted) or (each is bool and bool not in wanted)}
        if pa.types.is_date(kind):
            others |= {each for each in found if issubclass(each, datetime.datetime)}
        if others:
            at = next(i for i, value in enumerate(values) if type(value) in others)
            before = next(type(value).__name__ for value in values if value is not None and type(value) not in others)
            raise RefusedValueError(rows[at], _another(values[at], before))
        if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
            _check_zones(values, rows, kind)


def _items(value: Any, part: int) -> Sequence[Any]:
    """Return the elements of a list, or (part 0) the keys or (part 1) the values of a map."""
    if isinstance(value, Mapping):
        return list(value.values() if part else value.keys())
    if isinstance(value, list | tuple):
        pairs = bool(value) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value)
        return [pair[part] for pair in value] if pairs else value
    return ()


def _check_zones(values: Sequence[Any], rows: Sequence[int], kind: pa.DataType) -> None:
    first: bool | None = None
    for value, row in zip(values, rows, strict=True):
        if not isinstance(value, datetime.datetime | datetime.time):
            continue
        zoned = value.tzinfo is not None
        if isinstance(value, datetime.time):
            if zoned:
                why = f"{value} has a time zone, and TIME has none. Give it without, as value.replace(tzinfo=None)."
                raise RefusedValueError(row, why)
            continue
        if first is not None and zoned is not first:
            other = (
                "has a time zone, and values before it have none" if zoned else "has no zone, and values before it do"
            )
            raise RefusedValueError(
                row, f"{value} {other}. Give all values a zone for an instant, or none for a wall clock."
            )
        first = zoned
        if kind.unit != "ns" and getattr(value, "nanosecond", 0):
            raise RefusedValueError(row, f"{value} has nanoseconds inside of another value. Give an Arrow table.")


_TAKEN: Final[tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...]] = (
    (pa.types.is_timestamp, (datetime.datetime, np.datetime64, pa.Scalar)),
    (pa.types.is_date, (datetime.date, np.datetime64, pa.Scalar)),
    (pa.types.is_time, (datetime.time, pa.Scalar)),
    (pa.types.is_duration, (datetime.timedelta, np.timedelta64, pa.Scalar)),
    (pa.types.is_floating, (int, float, np.number, pa.Scalar)),
)
"""What arrays of some types are made of; Arrow takes other values, too, and makes moments and numbers of them."""


def _another(value: Any, before: str) -> str:
    return f"{_shown(value)} is another kind of value than those before it ({before}). Give values of one type."


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{shown[:60]}... ({type(value).__name__})" if len(shown) > 60 else f"{shown} ({type(value).__name__})"


def _refused(values: list[Any], kind: t.DataType | None, error: Exception) -> RefusedValueError:
    """Return what is wrong with the first value that Arrow does not take after those before it."""

    def taken(some: Iterable[Any]) -> bool:
        try:
            array_of(list(some), kind)
        except _REFUSED:
            return False
        return True

    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(values[:middle]) else (low, middle)
    value = values[low]
    named = _shown(value)
    if isinstance(value, str) and not taken([value]):
        return RefusedValueError(low, f"{named} is no text: {error}. Text has no halves of surrogate pairs.")
    if isinstance(value, int) and not taken([value]):
        return RefusedValueError(low, f"{named} is a number that does not fit 64 bits. Give decimals for larger ones.")
    if isinstance(value, float | Decimal) and not np.isfinite(float(value)):
        wanted = "the column" if kind is None else str(kind.with_nullable(True))
        return RefusedValueError(low, f"{named} is no value of {wanted}. Give None where there is no value.")
    if taken([value]):
        before = next((type(each).__name__ for each in values if each is not None), "None")
        return RefusedValueError(low, _another(value, before))
    return RefusedValueError(
        low,
        f"{named} is nothing that a column holds. Give a number, text, bytes, a date, a time, a list or a dictionary, "
        "such as str(value), value.value of an Enum, dataclasses.asdict(value).",
    )
