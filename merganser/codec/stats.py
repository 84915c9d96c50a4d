"""Column statistics of data files: smallest and largest value and number of nulls, as manifests keep them.

They exist to skip files, so every bound here errs on the wide side: a missing bound means "unknown", and
`min` and `max` are missing together or not at all. Bounds may lie beyond the true ones (text is cut to keep
manifests small), never inside them:

* floats: a NaN orders differently in Arrow, in IEEE comparisons and in the key order, so a column that holds
  one has no bounds; a zero bound becomes -0.0 below and 0.0 above, which is right whether a reader takes the
  zeros for equal (IEEE) or not (key order).
* types without an order (ARRAY, MAP, MULTISET, ROW, VARIANT) have null counts only.

On disk a set of statistics is two serialized rows of m fields, all nullable, and m null counts.

Format: section "stats".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import EMPTY_ROW as EMPTY_ROW
from merganser.codec.binary_row import deserialize, serialize
from merganser.codec.stored import BINARY, TEXT, TIMESTAMPS, Stored, arrow_to_stored, plain, scaled, sort_key
from merganser.errors import FormatError, InvalidInputError
from merganser.schema import types as t
from merganser.schema.spans import edges
from merganser.values import dataclass

_TRUNCATE: Final = re.compile(r"truncate\(\s*(\d{1,9})\s*\)")
_WHOLE: Final[dict[type[t.DataType], pa.DataType]] = {
    t.TinyInt: pa.int8(),
    t.SmallInt: pa.int16(),
    **dict.fromkeys((t.Int, t.Date, t.Time), pa.int32()),
    **dict.fromkeys((t.BigInt, *TIMESTAMPS), pa.int64()),
}
"""Integers that hold the stored values of a type, as many bits wide as its Arrow type."""
_WORD_DIGITS_MAX: Final = 18
"""Digits of the widest decimals that one word of 64 bits holds."""

_CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class StatsMode:
    """How much is kept of a column's statistics.

    name: `none` (nothing), `counts` (null counts), `truncate` (and bounds, text cut), `full` (and exact bounds).
    length: for `truncate`, the characters (bytes of binary) that a bound keeps, at least 1; else None.
    """

    name: str
    length: int | None = None

    def __str__(self) -> str:
        """Return the mode as table options write it."""
        return self.name if self.length is None else f"{self.name}({self.length})"


NONE: Final = StatsMode("none")
COUNTS: Final = StatsMode("counts")
FULL: Final = StatsMode("full")


def parse_stats_mode(text: str) -> StatsMode:
    """Return the mode that an option value names: `none`, `counts`, `full` or `truncate(n)`, in any case.

    Raises:
        InvalidInputError: the text is none of them, or n is 0.
    """
    name = text.strip().lower()
    if name in ("none", "counts", "full"):
        return StatsMode(name)
    found = _TRUNCATE.fullmatch(name)
    if found and int(found[1]) > 0:
        return StatsMode("truncate", int(found[1]))
    raise InvalidInputError(
        f"unknown stats mode '{text}': it is none, counts, full or truncate(n) with n of at least 1"
    )


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Statistics of m columns as a manifest entry stores them.

    min_values, max_values: serialized rows of m fields. null_counts: m counts, each None when unknown; None or
    empty when no writer counted. `EMPTY_ROW` twice means nothing was collected.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...] | None


NO_STATS: Final = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
"""Statistics of no columns."""


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of one column.

    min, max: stored values; every value of the column that is not null lies between them, both included. None,
    always both, when unknown. null_count: None when unknown.
    no_values: known to hold nulls only. Manifests do not keep it; it lets `merge_stats` tell "no bound because
    no value" from "unknown".
    """

    min: Stored
    max: Stored
    null_count: int | None
    no_values: bool = field(default=False, compare=False)


UNKNOWN: Final = ColumnStats(None, None, None)


def column_stats(column: pa.Array | pa.ChunkedArray, kind: t.DataType) -> ColumnStats:
    """Return the statistics of one column, exact but for floats and types without order (see the header).

    Args:
        column: the values, in the Arrow type of the kind (text and binary also large or view).
        kind: the type.

    Raises:
        InvalidInputError: the values do not fit the type.
    """
    nulls = column.null_count
    if nulls == len(column):
        return ColumnStats(None, None, nulls, no_values=True)
    if t.is_nested(kind):
        return ColumnStats(None, None, nulls)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_bounds(plain(chunk, kind), kind) for chunk in chunks if chunk.null_count < len(chunk)]
    if any(low is None for low, _ in parts):
        return ColumnStats(None, None, nulls)
    low, high = parts[0] if len(parts) == 1 else _widest([p[0] for p in parts], [p[1] for p in parts], kind)
    return ColumnStats(low, high, nulls)


def _bounds(array: pa.Array, kind: t.DataType) -> tuple[Stored, Stored]:
    """Return the smallest and largest value of an array that holds one; None, None when a NaN is among them."""
    width = _WHOLE.get(type(kind))
    if width is not None:
        numbers = array.view(width)
        if array.null_count:
            found = pc.min_max(numbers).as_py()
            return found["min"], found["max"]
        values = numbers.to_numpy()  # a call of Arrow takes longer than to look at few numbers twice
        return int(np.minimum.reduce(values)), int(np.maximum.reduce(values))
    if not array.null_count and isinstance(kind, (t.Float, t.Double)):
        values = array.to_numpy()
        low, high = float(values.min()), float(values.max())  # both are NaN when a value is
        return (None, None) if low != low else (low or -0.0, high or 0.0)
    if isinstance(kind, (t.Float, t.Double)) and pc.any(pc.is_nan(array)).as_py():
        return None, None
    if isinstance(kind, t.Boolean):
        return array.true_count + array.null_count == len(array), array.true_count > 0
    if isinstance(kind, t.Decimal) and kind.precision <= _WORD_DIGITS_MAX:
        counts = _counts(array)
        return scaled(int(counts.min()), kind.scale), scaled(int(counts.max()), kind.scale)
    if isinstance(kind, (*TEXT, *BINARY)):
        array = edges(array)
    found = pc.min_max(array)
    return _bound(found["min"], kind, -0.0), _bound(found["max"], kind, 0.0)


def _counts(array: pa.Decimal128Array) -> npt.NDArray[np.int64]:
    """Return the values that are not null as int64 counts of units.

    They are the lower words, since the upper ones only repeat the sign. Arrow's own comparison of decimals takes ten
    times as long.
    """
    words = np.frombuffer(array.buffers()[1], np.int64)
    counts = words[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    return counts[array.is_valid().to_numpy(zero_copy_only=False)] if array.null_count else counts


def _bound(scalar: pa.Scalar, kind: t.DataType, zero: float) -> Stored:
    if isinstance(kind, (*TEXT, *BINARY)):  # the array may be of the other kind, since their bytes are the same
        if isinstance(kind, BINARY):
            return scalar.cast(pa.large_binary()).as_py()  # type: ignore[no-any-return]
        try:
            text = scalar.as_py()
            return text if isinstance(text, str) else text.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"a value of type {kind} is not UTF-8 ({error}). Store bytes as BYTES.") from error
    value = arrow_to_stored(scalar, kind)
    return zero if isinstance(value, float) and value == 0 else value


def _widest(lows: Sequence[Stored], highs: Sequence[Stored], kind: t.DataType) -> tuple[Stored, Stored]:
    def place(value: Stored) -> Any:
        return sort_key((value,), (kind,))

    return min(lows, key=place), max(highs, key=place)


def merge_stats(a: ColumnStats, b: ColumnStats, kind: t.DataType) -> ColumnStats:
    """Return the statistics of the rows of both: unknown where either is, but for columns known to hold no value."""
    nulls = a.null_count + b.null_count if a.null_count is not None and b.null_count is not None else None
    if a.no_values or b.no_values:
        bounds = b if a.no_values else a
        return ColumnStats(bounds.min, bounds.max, nulls, no_values=a.no_values and b.no_values)
    if a.min is None or a.max is None or b.min is None or b.max is None:
        return ColumnStats(None, None, nulls)
    low, high = _widest((a.min, b.min), (a.max, b.max), kind)
    return ColumnStats(low, high, nulls)


def truncate(stats: ColumnStats, kind: t.DataType, mode: StatsMode) -> ColumnStats:
    """Return what `mode` keeps of the statistics of a column.

    Cut text is still a bound: the minimum is a prefix, and the maximum a prefix whose last character was raised by
    one (carrying to the left past the highest, and over the surrogates, which are no characters). If no character
    can be raised, both bounds go, as the reference does. Binary is cut by bytes in the same way; the reference keeps
    binary whole, and reads either.
    """
    if mode.name == "none":
        return UNKNOWN
    if mode.name == "counts":
        return ColumnStats(None, None, stats.null_count, stats.no_values)
    if mode.length is None or not isinstance(kind, (*TEXT, *BINARY)):
        return stats
    low, high = _cut(stats.min, mode.length), _raised(stats.max, mode.length)
    if low is None or high is None:
        return ColumnStats(None, None, stats.null_count, stats.no_values)
    return ColumnStats(low, high, stats.null_count, stats.no_values)


def _cut(value: Stored, length: int) -> Stored:
    return value[:length] if isinstance(value, str | bytes) else value


def _raised(value: Stored, length: int) -> Stored:
    """Return the smallest text of at most `length` characters found by raising one that is not below `value`."""
    if not isinstance(value, str | bytes) or len(value) <= length:
        return value
    for i in range(length - 1, -1, -1):
        if isinstance(value, bytes):
            if value[i] < 0xFF:
                return value[:i] + bytes([value[i] + 1])
        elif ord(value[i]) < _CODE_POINT_MAX:
            following = ord(value[i]) + 1
            return value[:i] + chr(_SURROGATES.stop if following in _SURROGATES else following)
    return None


def encode_stats(stats: Sequence[ColumnStats], kinds: Sequence[t.DataType]) -> SimpleStats:
    """Return statistics of m columns in the form manifests store.

    Raises:
        InvalidInputError: a bound is no value of its type, or stats and kinds differ in number.
    """
    return SimpleStats(
        serialize([s.min for s in stats], kinds),
        serialize([s.max for s in stats], kinds),
        tuple(s.null_count for s in stats),
    )


def decode_stats(stats: SimpleStats, kinds: Sequence[t.DataType]) -> tuple[ColumnStats, ...]:
    """Return the statistics of m columns, unknown for all when nothing was collected.

    Half a pair of bounds is dropped, as are bounds of which one is NaN: it tells that the column holds NaNs, and not
    how the writer ordered them.

    Raises:
        FormatError: the rows are not of these types, or the null counts are not m.
    """
    lows, highs = (deserialize(row, kinds) or (None,) * len(kinds) for row in (stats.min_values, stats.max_values))
    counts = stats.null_counts or (None,) * len(kinds)
    if len(counts) != len(kinds):
        raise FormatError(
            f"cannot read column statistics: they have {len(counts)} null counts for {len(kinds)} columns"
        )
    return tuple(_decoded(*parts) for parts in zip(lows, highs, counts, strict=True))


def _decoded(low: Stored, high: Stored, null_count: int | None) -> ColumnStats:
    if low is None or high is None or low != low or high != high:
        return ColumnStats(None, None, null_count)
    return ColumnStats(low, high, null_count)
