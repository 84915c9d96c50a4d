"""Columns as a file holds them -> columns in the exact Arrow types of the table.

Writers differ in how they store a type: timestamps in another unit, decimals as integers or fixed bytes, maps
and lists with any group names, text as large text or dictionaries. `exact_column` undoes all of that, and gives
a column back untouched when there is nothing to undo, which is the case for our own files.

What is exact here: type, unit, zone, nullability of parts, and names of parts. Two rules lose digits, both as
the reference reader does: a timestamp or time finer than its declared precision is rounded down.

`decoding` is the one place where errors of the libraries that parse files become ours.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.int96 import INT96_BYTES, int96_counts
from merganser.errors import FormatError, MerganserError, StorageError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, arrow_type
from merganser.schema.hidden import with_values_under_nulls

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAMAGE: Final = (
    OSError,
    pa.ArrowException,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    RecursionError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)
"""What parsers of files raise when bytes make no sense to them."""


@contextmanager
def decoding(path: str) -> Iterator[None]:
    """Turn what a parsing library raises inside the block into our errors.

    Args:
        path: the file that is parsed, for the message.

    Raises:
        FormatError: the library found bytes it cannot parse, or failed in a way only such bytes cause.
        StorageError: the operating system reported the failure (an errno is set), so the bytes may be fine.
    """
    try:
        yield
    except (MerganserError, MemoryError):
        raise
    except _DAMAGE as error:
        # The parsers' own OSErrors carry no errno: Arrow uses the class for damaged bytes too.
        if isinstance(error, OSError) and error.errno is not None:
            raise StorageError(f"cannot read '{path}': {error}", path=path) from error
        raise FormatError(
            f"cannot read '{path}': its bytes are damaged or not what its name says "
            f"({type(error).__name__}: {error!s:.300})",
            path=path,
        ) from error


def exact_table(columns: Sequence[pa.ChunkedArray], fields: Sequence[t.Field], *, rows: int, path: str) -> pa.Table:
    """Return columns of a file as the table that `fields` describe.

    Args:
        columns: one per field, `rows` values each, in any physical type that can hold the field's values.
        fields: the columns asked for.
        rows: number of rows; needed because there may be no column at all.
        path: the file, for messages.

    Raises:
        FormatError: a column has another number of rows, or its type cannot hold the declared values.
        UnsupportedError: a value does not fit the Arrow type, such as a nanosecond timestamp after 2262.
    """
    if not fields:
        return pa.table({"": pa.nulls(rows)}).select([])
    exact = []
    for column, field in zip(columns, fields, strict=True):
        if len(column) != rows:
            raise FormatError(
                f"cannot read '{path}': column '{field.name}' has {len(column)} values for {rows} rows",
                path=path,
                column=field.name,
            )
        exact.append(exact_column(column, field.type, column=field.name, path=path))
    return pa.Table.from_arrays(exact, schema=pa.schema([arrow_field(f) for f in fields]))


def exact_column(values: pa.ChunkedArray, kind: t.DataType, *, column: str, path: str) -> pa.ChunkedArray:
    """Return `values` in the Arrow type of `kind`; the same object when they are already.

    Raises:
        FormatError: the physical type cannot hold values of `kind`.
        UnsupportedError: a value does not fit the Arrow type of `kind`.
    """
    target = arrow_type(kind)
    if not _identical(values.type, target):
        conversion = _Conversion(column, path)
        values = pa.chunked_array([conversion.array(chunk, target) for chunk in values.chunks], type=target)
    return with_values_under_nulls(values)


SHREDDED: Final = (
    "is a VARIANT whose values are stored in parts (shredded), which this version of merganser does not put together "
    "again. {still_true} Write the file with whole values: Spark does if spark.sql.variant.writeShredding.enabled "
    "is false."
)
"""The rest of a sentence about a column; see `is_shredded`."""


def is_shredded(kind: pa.DataType) -> bool:
    """Return whether a type is that of a VARIANT stored in parts, or has such a part."""
    if pa.types.is_struct(kind):
        names = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        if "typed_value" in names and names.get("metadata") == pa.binary():
            return True
    return pa.types.is_nested(kind) and any(is_shredded(kind.field(i).type) for i in range(kind.num_fields))


def unit_factor(source: str, target: str) -> tuple[int, int]:
    """Return (multiplier, divisor) that lead from counts of `source` units to counts of `target` units."""
    low, high = _PER_SECOND[source], _PER_SECOND[target]
    return (high // low, 1) if high >= low else (1, low // high)


def _identical(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether two types are equal with the names of their parts; Arrow's own equality skips some."""
    if left.id != right.id:
        return False
    if pa.types.is_list(left):
        return _identical_field(left.value_field, right.value_field)
    if pa.types.is_struct(left):
        return left.num_fields == right.num_fields and all(
            _identical_field(left.field(i), right.field(i)) for i in range(left.num_fields)
        )
    if pa.types.is_map(left):
        return _identical_field(left.field(0), right.field(0))
    return bool(left == right)


def _identical_field(left: pa.Field, right: pa.Field) -> bool:
    return left.name == right.name and left.nullable == right.nullable and _identical(left.type, right.type)


class _Conversion:
    """Converts arrays of one column of one file; it only holds the names that its errors need."""

    def __init__(self, column: str, path: str) -> None:
        self._column = column
        self._path = path

    def array(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        source = values.type
        if _identical(source, target):
            return values
        if pa.types.is_null(source):
            return pa.nulls(len(values), target)
        if pa.types.is_struct(target):
            return self._struct(values, target)
        if pa.types.is_map(target):
            return self._map(values, target)
        if pa.types.is_list(target):
            return self._list(values, target)
        if pa.types.is_timestamp(target) and pa.types.is_timestamp(source):
            return self._timestamp(values, target)
        if pa.types.is_timestamp(target) and pa.types.is_fixed_size_binary(source) and source.byte_width == INT96_BYTES:
            return self._int96(values, target)
        if pa.types.is_time(target) and pa.types.is_time(source):
            # Times are never negative, so cutting digits is rounding down.
            return values.cast(target, safe=False)
        return self._cast(values, target)

    def _cast(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        source = values.type
        if not _castable(source, target):
            raise self._mismatch(source, target)
        try:
            return pc.cast(values, target)
        except pa.ArrowInvalid as error:
            raise FormatError(
                f"cannot read '{self._path}': column '{self._column}' holds a value that {target} cannot: {error}",
                path=self._path,
                column=self._column,
            ) from error

    def _timestamp(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        multiplier, divisor = unit_factor(values.type.unit, target.unit)
        counts = values.view(pa.int64())
        if multiplier > 1:
            try:
                counts = pc.multiply_checked(counts, multiplier)
            except pa.ArrowInvalid as error:
                raise self._too_far(target) from error
        elif divisor > 1:
            # pc.divide rounds towards zero, which is up before 1970.
            data = counts.fill_null(0).to_numpy(zero_copy_only=False)
            counts = pa.array(np.floor_divide(data, divisor), mask=_null_mask(values))
        return counts.view(target)

    def _int96(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        counts, fits = int96_counts(values, _PER_SECOND[target.unit])
        if not fits:
            raise self._too_far(target)
        return pa.array(counts, mask=_null_mask(values)).view(target)

    def _struct(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        source = values.type
        if not pa.types.is_struct(source):
            raise self._mismatch(source, target)
        wanted = [target.field(i) for i in range(target.num_fields)]
        names = [source.field(i).name for i in range(source.num_fields)]
        if "typed_value" in names and "typed_value" not in [f.name for f in wanted]:
            raise UnsupportedError(
                f"cannot read '{self._path}': column '{self._column}' is a shredded VARIANT, which this version of "
                "merganser does not put together again",
                path=self._path,
                column=self._column,
            )
        parts = []
        for field in wanted:
            if names.count(field.name) != 1:
                raise self._mismatch(source, target)
            parts.append(self.array(values.field(names.index(field.name)), field.type))
        mask = pc.is_null(values) if values.null_count else None
        if not parts:
            return pa.StructArray.from_buffers(target, len(values), [None])
        return pa.StructArray.from_arrays(parts, fields=wanted, mask=mask)

    def _list(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        source = values.type
        if not pa.types.is_list(source):
            if not isinstance(source, pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType):
                raise self._mismatch(source, target)
            if isinstance(source, pa.FixedSizeListType) and values.null_count:
                # A null takes part in the fixed length, which the cast of older versions of pyarrow denies.
                values = pa.array(values.to_pylist(), pa.list_(source.value_field))
            values = values.cast(pa.list_(source.value_field))
        parts = self.array(values.values, target.value_type)
        return _rebuilt(values, target, parts)

    def _map(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        source = values.type
        if pa.types.is_map(source):
            keys, items = values.keys, values.items
        elif pa.types.is_list(source) and pa.types.is_struct(source.value_type) and source.value_type.num_fields == 2:
            # A map whose writer left out the annotation, or a format without maps: a list of pairs.
            keys, items = values.values.field(0), values.values.field(1)
        else:
            raise self._mismatch(source, target)
        entries = pa.StructArray.from_arrays(
            [self.array(keys, target.key_type), self.array(items, target.item_type)],
            fields=[target.key_field, target.item_field],
        )
        return _rebuilt(values, target, entries)

    def _too_far(self, target: pa.DataType) -> UnsupportedError:
        return UnsupportedError(
            f"cannot read '{self._path}': column '{self._column}' holds a timestamp that {target} cannot hold "
            "(nanoseconds in 64 bits end in the years 1677 and 2262). "
            "The other columns can be read; select them by name.",
            path=self._path,
            column=self._column,
        )

    def _mismatch(self, source: pa.DataType, target: pa.DataType) -> FormatError:
        return FormatError(
            f"cannot read '{self._path}': column '{self._column}' needs values of type {target}, "
            f"and the file holds {source}",
            path=self._path,
            column=self._column,
        )


def _rebuilt(values: pa.Array, target: pa.DataType, children: pa.Array) -> pa.Array:
    """Return a list or map array with the places and nulls of `values` over other children."""
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], values.null_count, values.offset, children=[children]
    )


def _null_mask(values: pa.Array) -> np.ndarray | None:
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a checked cast keeps the meaning: the value is the same, or the cast fails."""
    is_ = pa.types
    if is_.is_decimal(target):
        return bool(is_.is_decimal(source)) and source.scale == target.scale
    if is_.is_integer(target):
        return bool(is_.is_integer(source))
    if is_.is_floating(target):
        return bool(is_.is_floating(source)) and source.bit_width <= target.bit_width
    if is_.is_string(target):
        return bool(
            is_.is_string(source) or is_.is_large_string(source) or is_.is_string_view(source) or _binary(source)
        )
    if is_.is_binary(target):
        return bool(_binary(source) or is_.is_string(source) or is_.is_large_string(source))
    if is_.is_date32(target):
        return bool(is_.is_int32(source) or is_.is_date64(source))
    if is_.is_time32(target):
        return bool(is_.is_int32(source))
    if is_.is_timestamp(target):
        return bool(is_.is_int64(source))
    return False


def _binary(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(
        is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind) or is_.is_binary_view(kind)
    )
