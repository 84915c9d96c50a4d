"""INT96 timestamps of Parquet files, made readable without loss.

Such a value is 12 bytes: nanoseconds of the day (int64, little endian) and the Julian day (int32). The
reference writer lets the nanoseconds of times before 1970 be negative, others do not. pyarrow turns the pair
into one 64-bit count with unsigned arithmetic: nanoseconds wrap outside the years 1677 to 2262, and coarser
units are wrong for negative ones, so that neither alone nor both together tell what was stored.

PLAIN and dictionary pages hold 12 bytes per value either way, so `with_raw_int96` says in the footer that these
columns are FIXED_LEN_BYTE_ARRAY(12), and `int96_counts` computes with what then comes out.

The footer is a struct in thrift's compact protocol. It is taken apart into (id, type, value) triples and put
together again; what is not touched stays as it was::

    FileMetaData 2: [SchemaElement 1: type, 2: type length]
                 4: [RowGroup 1: [ColumnChunk 3: ColumnMetaData 1: type]]
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_INT96: Final = 3
_FIXED_LEN_BYTE_ARRAY: Final = 7
_JULIAN_DAY_OF_EPOCH: Final = 2_440_588
_SECONDS_PER_DAY: Final = 86_400
_NANOS_PER_SECOND: Final = 1_000_000_000
_STORED: Final = np.dtype([("nanos", "<i8"), ("day", "<i4")])

INT96_BYTES: Final = _STORED.itemsize
"""Width of a stored value."""

_TRUE, _FALSE, _BYTE, _I32, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 5, 7, 8, 9, 10, 11, 12

_Struct = list[tuple[int, int, Any]]


def with_raw_int96(metadata: pq.FileMetaData) -> pq.FileMetaData:
    """Return a footer in which INT96 columns, at any depth, are fixed binaries of 12 bytes.

    Raises:
        ValueError: the footer is not what thrift writes.
    """
    whole = io.BytesIO()
    metadata.write_metadata_file(whole)
    root = _Source(whole.getvalue()[len(_MAGIC) : -8]).struct()
    for elements in _values(root, 2):
        for element in elements[1]:
            if _INT96 in _values(element, 1):
                _set_type(element)
                element.insert(1, (2, _I32, INT96_BYTES))
    for groups in _values(root, 4):
        for chunks in (c for group in groups[1] for c in _values(group, 1)):
            for column in (m for chunk in chunks[1] for m in _values(chunk, 3)):
                if _INT96 in _values(column, 1):
                    _set_type(column)
    out = bytearray(_MAGIC)
    _write_struct(out, root)
    out += (len(out) - len(_MAGIC)).to_bytes(4, "little") + _MAGIC
    return pq.read_metadata(io.BytesIO(bytes(out)))


def int96_counts(values: pa.Array, per_second: int) -> tuple[np.ndarray, bool]:
    """Return stored INT96 values as counts since 1970, rounded down, and whether each fits 64 bits.

    Args:
        values: fixed_size_binary(12), nulls allowed.
        per_second: counts per second of the wanted unit: 1_000, 1_000_000 or 1_000_000_000.

    Returns:
        int64[n], with any value where `values` is null, and whether all other values are right.
    """
    data = values.buffers()[1]
    stored = np.frombuffer(b"" if data is None else data, _STORED)[values.offset : values.offset + len(values)]
    days = stored["day"].astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    seconds = days * _SECONDS_PER_DAY + stored["nanos"] // _NANOS_PER_SECOND
    counts = seconds * per_second + stored["nanos"] % _NANOS_PER_SECOND // (_NANOS_PER_SECOND // per_second)
    # A product that wrapped lies more than 64 bits from the truth, so it cannot lead back to the same second.
    fits = counts // per_second == seconds
    if values.null_count:
        fits |= values.is_null().to_numpy(zero_copy_only=False)
    return counts, bool(fits.all())


def _values(fields: _Struct, number: int) -> Iterator[Any]:
    return (value for found, _, value in fields if found == number)


def _set_type(fields: _Struct) -> None:
    fields[0] = (1, _I32, _FIXED_LEN_BYTE_ARRAY)


class _Source:
    """Reads values of the compact protocol one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> _Struct:
        fields: _Struct = []
        number = 0
        while header := self._bytes(1)[0]:
            number = number + (header >> 4) if header >> 4 else _unzigzag(self._varint())
            fields.append((number, header & 15, self._value(header & 15)))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return None
        if kind == _BYTE:
            return self._bytes(1)
        if kind < _DOUBLE:
            return _unzigzag(self._varint())
        if kind == _DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            header = self._bytes(1)[0]
            size = header >> 4 if header >> 4 < 15 else self._varint()
            return header & 15, [self._element(header & 15) for _ in range(size)]
        if kind == _STRUCT:
            return self.struct()
        raise ValueError(f"a footer holds no value of thrift type {kind}")

    def _element(self, kind: int) -> Any:
        # Booleans in a list take a byte; in a struct their field header says it all.
        return self._bytes(1) if kind in (_TRUE, _FALSE) else self._value(kind)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._bytes(1)[0]) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _bytes(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("the footer ends inside a value")
        self._at += count
        return taken


def _write_struct(out: bytearray, fields: _Struct) -> None:
    last = 0
    for number, kind, value in fields:
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            _write_varint(out, _zigzag(number))
        last = number
        _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if isinstance(value, bytes):
        if kind == _BINARY:
            _write_varint(out, len(value))
        out += value
    elif isinstance(value, int):
        _write_varint(out, _zigzag(value))
    elif isinstance(value, float):
        out += struct.pack("<d", value)
    elif isinstance(value, tuple):
        element, items = value
        out.append(min(len(items), 15) << 4 | element)
        if len(items) >= 15:
            _write_varint(out, len(items))
        for item in items:
            _write_value(out, element, item)
    elif value is not None:
        _write_struct(out, value)


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else ~(value << 1)


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
