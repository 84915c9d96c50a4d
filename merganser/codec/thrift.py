"""Thrift's compact protocol, as far as Parquet footers use it: bytes <-> fields.

A struct is a list of (number, kind, value), in the order of the bytes, so that writing back what was read gives
the same bytes. Values are int, float, bytes, None for a boolean (its kind says which), a list of fields for a
struct, and (kind of elements, elements) for a list.

Only what pyarrow keeps to itself is read here, so this is written for speed: one pass over the bytes, no objects
besides the result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12

_SHORT_BYTES: Final = 256
_LONG_BYTES: Final = 256 * 1024
"""Bytes of most structs that lie among other bytes, and of the longest: the header of a page with bounds of text."""

Fields = list[tuple[int, int, Any]]


def values(fields: Fields, number: int) -> Iterator[Any]:
    """Yield the values of the fields with this number; one or none in valid structs."""
    return (value for found, _, value in fields if found == number)


def elements(fields: Fields, number: int) -> list[Any]:
    """Return the elements of the list with this number; empty when there is none."""
    return next((value[1] for found, kind, value in fields if found == number and kind == LIST), [])


def read_struct(data: bytes) -> Fields:
    """Return the struct at the start of `data`.

    Raises:
        ValueError: a kind of value that footers do not hold, or the bytes end too early.
        IndexError: the bytes end too early.
    """
    return _struct(data, 0)[0]


def read_struct_at(data: memoryview, at: int) -> tuple[Fields, int]:
    """Return the struct that begins at a place, and the place behind it; raises as `read_struct` does."""
    try:
        fields, end = _struct(data[at : at + _SHORT_BYTES].tobytes(), 0)
    except (IndexError, ValueError):
        fields, end = _struct(data[at : at + _LONG_BYTES].tobytes(), 0)
    return fields, at + end


def leading_numbers(data: bytes, count: int) -> list[int]:
    """Return the numbers of the first fields of a struct, as far as they are integers: at most `count`."""
    found: list[int] = []
    at = number = 0
    while len(found) < count and data[at] & 15 in (I32, I64) and data[at] > 15:
        number += data[at] >> 4
        _, at = _integer(data, at + 1)
        found.append(number)
    return found


def write_struct(fields: Fields) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _struct(data: bytes, at: int) -> tuple[Fields, int]:
    fields: Fields = []
    number = 0
    while header := data[at]:
        at += 1
        kind = header & 15
        if header > 15:
            number += header >> 4
        else:
            number, at = _integer(data, at)
        if kind in (I64, I32):
            byte = data[at]
            if byte < 0x80:
                # Most integers of a footer are counts and places of one byte; a call for each would dominate.
                value: Any = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                value, at = _integer(data, at)
        elif kind == BINARY:
            value, at = _binary(data, at)
        elif kind == STRUCT:
            value, at = _struct(data, at)
        else:
            value, at = _other(data, at, kind)
        fields.append((number, kind, value))
    return fields, at + 1


def _other(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return None, at
    if kind == BYTE:
        return data[at], at + 1
    if kind == 4:
        return _integer(data, at)
    if kind == DOUBLE:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind == LIST:
        return _list(data, at)
    raise ValueError(f"a footer holds no value of thrift type {kind}")


def _list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    kind, size = data[at] & 15, data[at] >> 4
    at += 1
    if size == 15:
        size, at = _varint(data, at)
    if size > len(data) - at:
        raise ValueError(f"a list of {size} elements in {len(data)} bytes")
    found: list[Any] = []
    value: Any
    for _ in range(size):
        if kind == STRUCT:
            value, at = _struct(data, at)
        elif kind == BINARY:
            value, at = _binary(data, at)
        elif kind in (I32, I64):
            value, at = _integer(data, at)
        elif kind in (TRUE, FALSE, BYTE):
            # A boolean in a list is a byte; in a struct the header of its field says it all.
            value, at = data[at], at + 1
        else:
            value, at = _other(data, at, kind)
        found.append(value)
    return (kind, found), at


def _binary(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _varint(data, at)
    end = at + length
    if end > len(data):
        raise ValueError(f"a value of {length} bytes at byte {at} of {len(data)}")
    return data[at:end], end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _write_struct(out: bytearray, fields: Fields) -> None:
    last = 0
    for number, kind, value in fields:
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        last = number
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind == STRUCT:
        _write_struct(out, value)
    elif kind == BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind == LIST:
        element, found = value
        out.append(min(len(found), 15) << 4 | element)
        if len(found) >= 15:
            _write_varint(out, len(found))
        for item in found:
            _write_value(out, element, item)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)
    elif kind in (TRUE, FALSE, BYTE):
        out.append(value)
    else:
        _write_integer(out, value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_varint(out, value << 1 if value >= 0 else ~(value << 1))


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
