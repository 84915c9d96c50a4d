"""BinaryRow one value at a time: rows, and the arrays, maps and rows inside them.

All integers are little endian; offsets count from the start of the structure that holds the slot.

    row      [row kind: 1 byte][null bits][slot: 8 bytes] * n [areas]        header padded to 8 bytes
    array    [count: int32][null bits: words of 4 bytes][slots of 1, 2, 4 or 8 bytes][padding to 8][areas]
    map      [bytes of the key array: int32][key array][value array]         a multiset maps elements to INT
    variant  [bytes of the value: int32][value][metadata]

A slot holds the value when it fits, else `offset << 32 | size` of an area; areas follow in field order, each
padded with zeros to 8 bytes. Text and binary of at most 7 bytes sit in the slot, with 0x80 | length as its last
byte. A null sets its bit; in rows (not in arrays) a null DECIMAL of more than 18 digits and a null TIMESTAMP of
more than 3 still reserve their area and point at it with size 0, as the reference does, because hashes and
byte equality of keys depend on it. Readers skip a null field whatever its slot says, since other writers
reserve nothing.

`binary_row` does the same for whole columns, and is what hot paths use.

Format: section "BinaryRow".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

from merganser.codec.stored import BINARY, TEXT, TIMESTAMPS, Stored, scaled, unscaled
from merganser.errors import FormatError, InvalidInputError, MerganserError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit

INLINE_MAX: Final = 7
"""Longest text or binary, in bytes, that sits in its slot."""

COMPACT_DECIMAL_PRECISION_MAX: Final = 18
COMPACT_TIMESTAMP_PRECISION_MAX: Final = 3
DECIMAL_AREA_BYTES: Final = 16
TIMESTAMP_AREA_BYTES: Final = 8

UNITS_PER_MILLI: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NANOS_PER_MILLI: Final = 1_000_000

_FORMATS: Final[dict[type[t.DataType], struct.Struct]] = {
    t.Boolean: struct.Struct("<?"),
    t.TinyInt: struct.Struct("<b"),
    t.SmallInt: struct.Struct("<h"),
    t.Int: struct.Struct("<i"),
    t.BigInt: struct.Struct("<q"),
    t.Float: struct.Struct("<f"),
    t.Double: struct.Struct("<d"),
    t.Date: struct.Struct("<i"),
    t.Time: struct.Struct("<i"),
}
_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_SLOT: Final = struct.Struct("<Q")


def header_bytes(arity: int) -> int:
    """Return the bytes before the first slot of a row: 8 for up to 56 fields, 16 for up to 120."""
    return (arity + 71) // 64 * 8


def reserved_bytes(kind: t.DataType) -> int:
    """Return the bytes of the area that a field of a row has even when it is null: 0, 8 or 16."""
    match kind:
        case t.Decimal(precision=precision) if precision > COMPACT_DECIMAL_PRECISION_MAX:
            return DECIMAL_AREA_BYTES
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            return TIMESTAMP_AREA_BYTES if precision > COMPACT_TIMESTAMP_PRECISION_MAX else 0
    return 0


def encode_row(values: Sequence[Stored], kinds: Sequence[t.DataType]) -> bytes:
    """Return the bytes of one row of stored values, row kind +I, without the arity prefix.

    Raises:
        InvalidInputError: a value does not fit its type; names both.
        UnsupportedError: a type has no values in merganser.
    """
    if len(values) != len(kinds):
        raise InvalidInputError(f"cannot encode a row: it has {len(values)} values for {len(kinds)} types")
    header = header_bytes(len(kinds))
    out = bytearray(header + 8 * len(kinds))
    at = header - 8
    for i, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        at += 8
        if value is None:
            out[(i + 8) >> 3] |= 1 << (i & 7)
            reserved = reserved_bytes(kind)
            if reserved:
                _SLOT.pack_into(out, at, len(out) << 32)
                out += bytes(reserved)
        else:
            _put(out, at, value, kind)
    return bytes(out)


def _put(out: bytearray, at: int, value: Any, kind: t.DataType) -> None:
    """Write a value that is not null into the slot at `at`, and its area at the end of `out`."""
    form = _FORMATS.get(type(kind))
    try:
        if form is not None:
            form.pack_into(out, at, math.nan if value != value else value)  # one NaN: its payload must not split a key
        elif isinstance(kind, TEXT):
            _put_text(out, at, value.encode())
        elif isinstance(kind, BINARY):
            _put_text(out, at, bytes(memoryview(value)))
        elif isinstance(kind, t.Decimal):
            _put_decimal(out, at, unscaled(value, kind.scale), kind)
        elif isinstance(kind, TIMESTAMPS):
            _put_timestamp(out, at, value, kind.precision)
        else:
            _put_area(out, at, encode_nested(value, kind))
    except MerganserError:
        raise  # a value inside this one has named itself already
    except (struct.error, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise InvalidInputError(f"cannot encode {value!r:.100} as {kind}: {error}") from error


def _put_text(out: bytearray, at: int, text: bytes) -> None:
    if len(text) > INLINE_MAX:
        _put_area(out, at, text)
    else:
        out[at : at + len(text)] = text
        out[at + 7] = 0x80 | len(text)


def _put_decimal(out: bytearray, at: int, count: int, kind: t.Decimal) -> None:
    if abs(count) >= 10**kind.precision:
        raise OverflowError(f"it has more than {kind.precision} digits")
    if kind.precision <= COMPACT_DECIMAL_PRECISION_MAX:
        _INT64.pack_into(out, at, count)
        return
    size = (count if count >= 0 else ~count).bit_length() // 8 + 1
    _SLOT.pack_into(out, at, len(out) << 32 | size)
    out += count.to_bytes(size, "big", signed=True).ljust(DECIMAL_AREA_BYTES, b"\0")


def _put_timestamp(out: bytearray, at: int, count: int, precision: int) -> None:
    units = UNITS_PER_MILLI[timestamp_unit(precision)]
    millis, rest = divmod(count, units)
    if precision <= COMPACT_TIMESTAMP_PRECISION_MAX:
        _INT64.pack_into(out, at, millis)
        return
    _SLOT.pack_into(out, at, len(out) << 32 | rest * (_NANOS_PER_MILLI // units))
    out += _INT64.pack(millis)


def _put_area(out: bytearray, at: int, area: bytes) -> None:
    _SLOT.pack_into(out, at, len(out) << 32 | len(area))
    out += area
    out += bytes(-len(area) % 8)


def encode_nested(value: Any, kind: t.DataType) -> bytes:
    """Return the area of a value of a nested type, unpadded, as a slot refers to it.

    Raises:
        InvalidInputError: a value inside does not fit its type.
        UnsupportedError: a type that is nothing of the above, such as BLOB.
    """
    match kind:
        case t.Array(element=element):
            return _encode_array(value, element)
        case t.Map(key=key, value=item):
            return _encode_map(value, key, item)
        case t.Multiset(element=element):
            return _encode_map(value, element, t.Int())
        case t.Row(fields=fields):
            return encode_row(value, [f.type for f in fields])
        case t.Variant():
            body, metadata = value
            return b"".join((_INT32.pack(len(body)), body, metadata))
    raise UnsupportedError(f"values of type {kind} cannot be encoded by this version of merganser")


def _encode_map(pairs: Sequence[tuple[Any, Any]], key: t.DataType, value: t.DataType) -> bytes:
    keys = _encode_array([k for k, _ in pairs], key)
    return _INT32.pack(len(keys)) + keys + _encode_array([v for _, v in pairs], value)


def _array_header(count: int) -> int:
    return 4 + (count + 31) // 32 * 4


def _width(kind: t.DataType) -> int:
    form = _FORMATS.get(type(kind))
    return 8 if form is None else form.size


def _encode_array(values: Sequence[Any], element: t.DataType) -> bytes:
    header, width = _array_header(len(values)), _width(element)
    out = bytearray((header + width * len(values) + 7) // 8 * 8)
    _INT32.pack_into(out, 0, len(values))
    for i, value in enumerate(values):
        if value is None:
            out[4 + (i >> 3)] |= 1 << (i & 7)
        else:
            _put(out, header + width * i, value, element)
    return bytes(out)


def decode_row(data: bytes, kinds: Sequence[t.DataType]) -> tuple[Any, ...]:
    """Return the stored values of one row, given without the arity prefix. The row kind is not looked at.

    Raises:
        FormatError: the bytes are not a row of these types.
        UnsupportedError: a type has no values in merganser.
    """
    try:
        return _decode_row(bytes(data), kinds)
    except (struct.error, IndexError, UnicodeError) as error:
        raise FormatError(f"cannot read a row of {len(data)} bytes as {_names(kinds)}: {error}") from error


def _names(kinds: Sequence[t.DataType]) -> str:
    shown = ", ".join(str(kind) for kind in kinds[:3])
    return f"({shown})" if len(kinds) <= 3 else f"({shown}, ... {len(kinds)} types)"


def _decode_row(data: bytes, kinds: Sequence[t.DataType]) -> tuple[Any, ...]:
    header = header_bytes(len(kinds))
    if len(data) < header + 8 * len(kinds):
        raise FormatError(
            f"cannot read a row of {len(data)} bytes as {_names(kinds)}: the slots alone take {header + 8 * len(kinds)}"
        )
    return tuple(
        None if data[(i + 8) >> 3] >> (i & 7) & 1 else _get(data, header + 8 * i, kind) for i, kind in enumerate(kinds)
    )


def _get(data: bytes, at: int, kind: t.DataType) -> Any:
    form = _FORMATS.get(type(kind))
    if form is not None:
        return form.unpack_from(data, at)[0]
    if isinstance(kind, TEXT):
        return _get_text(data, at).decode()
    if isinstance(kind, BINARY):
        return _get_text(data, at)
    if isinstance(kind, t.Decimal):
        return scaled(_get_decimal(data, at, kind), kind.scale)
    if isinstance(kind, TIMESTAMPS):
        return _get_timestamp(data, at, kind.precision)
    return _decode_nested(_get_area(data, at), kind)


def _get_area(data: bytes, at: int) -> bytes:
    (slot,) = _SLOT.unpack_from(data, at)
    return _slice(data, slot >> 32, slot & 0xFFFF_FFFF)


def _slice(data: bytes, start: int, size: int) -> bytes:
    if not 0 <= size <= len(data) - start:
        raise FormatError(
            f"cannot read a value of {size} bytes at byte {start}: what holds it ends at byte {len(data)}"
        )
    return data[start : start + size]


def _get_text(data: bytes, at: int) -> bytes:
    mark = data[at + 7]
    if mark < 0x80:
        return _get_area(data, at)
    if mark & 0x7F > INLINE_MAX:
        raise FormatError(
            f"cannot read a text at byte {at}: the slot claims {mark & 0x7F} bytes, and holds at most {INLINE_MAX}"
        )
    return data[at : at + (mark & 0x7F)]


def _get_decimal(data: bytes, at: int, kind: t.Decimal) -> int:
    if kind.precision <= COMPACT_DECIMAL_PRECISION_MAX:
        count = int(_INT64.unpack_from(data, at)[0])
    else:
        area = _get_area(data, at)
        if not 1 <= len(area) <= DECIMAL_AREA_BYTES:
            raise FormatError(f"cannot read a {kind} of {len(area)} bytes: it takes 1 to {DECIMAL_AREA_BYTES}")
        count = int.from_bytes(area, "big", signed=True)
    if abs(count) >= 10**kind.precision:
        raise FormatError(f"cannot read a {kind}: the unscaled value {count} has more digits than that")
    return count


def _get_timestamp(data: bytes, at: int, precision: int) -> int:
    if precision <= COMPACT_TIMESTAMP_PRECISION_MAX:
        return int(_INT64.unpack_from(data, at)[0])
    (slot,) = _SLOT.unpack_from(data, at)
    nanos = slot & 0xFFFF_FFFF
    if nanos >= _NANOS_PER_MILLI:
        raise FormatError(f"cannot read a timestamp at byte {at}: it has {nanos} nanoseconds of its millisecond")
    units = UNITS_PER_MILLI[timestamp_unit(precision)]
    (millis,) = _INT64.unpack(_slice(data, slot >> 32, TIMESTAMP_AREA_BYTES))
    return int(millis * units + nanos // (_NANOS_PER_MILLI // units))


def _decode_nested(data: bytes, kind: t.DataType) -> Any:
    match kind:
        case t.Array(element=element):
            return _decode_array(data, element)
        case t.Map(key=key, value=value):
            return _decode_map(data, key, value)
        case t.Multiset(element=element):
            return _decode_map(data, element, t.Int())
        case t.Row(fields=fields):
            return _decode_row(data, [f.type for f in fields])
        case t.Variant():
            (size,) = _INT32.unpack_from(data, 0)
            return _slice(data, 4, size), data[4 + size :]
    raise UnsupportedError(f"values of type {kind} cannot be read by this version of merganser")


def _decode_map(data: bytes, key: t.DataType, value: t.DataType) -> list[tuple[Any, Any]]:
    (size,) = _INT32.unpack_from(data, 0)
    keys = _decode_array(_slice(data, 4, size), key)
    values = _decode_array(data[4 + size :], value)
    if len(keys) != len(values):
        raise FormatError(f"cannot read a map: it has {len(keys)} keys and {len(values)} values")
    return list(zip(keys, values, strict=True))


def _decode_array(data: bytes, element: t.DataType) -> list[Any]:
    (count,) = _INT32.unpack_from(data, 0)
    header, width = _array_header(count), _width(element)
    if count < 0 or header + width * count > len(data):
        raise FormatError(f"cannot read an array of {count} elements of type {element} from {len(data)} bytes")
    return [
        None if data[4 + (i >> 3)] >> (i & 7) & 1 else _get(data, header + width * i, element) for i in range(count)
    ]
