"""Parquet pages that Polars is to decode: of types that it understands as pyarrow does, with checksums that hold.

Polars verifies no checksum. A page is a header in thrift's compact form (1: kind, 2: bytes of the values as decoded,
3: as stored, 4: CRC-32 of those) and its values behind it; headers of many pages are read together, as columns
(docs/decisions/0027).
"""

from __future__ import annotations

import os
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from merganser.codec import thrift

_PROCESS: Final = os.getpid()

_I32_FIELD: Final = 0x15
"""Header of a field of a thrift struct: an int32 whose number is one more than that of the field before."""

_REST_BYTES_MAX: Final = 512
"""Bytes that the rest of a header takes at most, behind the checksum; what is longer is several pages, most often."""

Kept = pl.Expr
"""A condition on columns of a file."""

Places = npt.NDArray[np.int64]


def polars_is_here() -> bool:
    """Return whether this is the process that imported Polars: one that was forked off has none of its threads."""
    return os.getpid() == _PROCESS


def is_literal(name: str) -> bool:
    """Return whether Polars takes a text for the name of a column, and not for a pattern of names."""
    return name != "*" and not (name.startswith("^") and name.endswith("$"))


def is_alike(kind: pa.DataType, physical: str) -> bool:
    """Return whether Polars reads a column to the same values as pyarrow, which gives it the type `kind`.

    Not of INT96, whose unit and range differ, of times, which become nanoseconds, nor of fixed bytes.
    """
    is_ = pa.types
    match physical:
        case "BOOLEAN":
            return bool(is_.is_boolean(kind))
        case "INT32" | "INT64":
            plain = is_.is_signed_integer(kind) or is_.is_date32(kind) or is_.is_decimal128(kind)
            return bool(plain) or (is_.is_timestamp(kind) and kind.tz in (None, "UTC"))
        case "FLOAT" | "DOUBLE":
            return bool(is_.is_floating(kind)) and kind.bit_width >= 32
        case "BYTE_ARRAY":
            return bool(is_.is_string(kind) or is_.is_binary(kind))
    return False


def checksums_hold(data: memoryview, pages: Places) -> npt.NDArray[np.bool_]:
    """Return which pages are as their checksums say; those without one are taken as they are.

    Args:
        data: what holds the pages.
        pages: int64[n, 2]: where the header of each begins, where its values end. Of a stretch of several pages that
            begins or ends there, and of a page with a long header, the answer is no.
    """
    octets = np.frombuffer(data, np.uint8)
    at = pages[:, 0].copy()
    numbers = []
    for _ in range(3):  # kind of page, bytes of its values as decoded, and as stored
        if (octets[at] != _I32_FIELD).any():
            return np.zeros(len(pages), np.bool_)
        number, at = _integers(octets, at + 1)
        numbers.append(number)
    noted = octets[at] == _I32_FIELD
    expected, _ = _integers(octets, np.where(noted, at + 1, pages[:, 0]))
    starts, ends = pages[:, 1] - numbers[2], pages[:, 1]
    holds = (at < starts) & (starts <= ends) & (starts - at <= _REST_BYTES_MAX)
    asked = np.flatnonzero(holds & noted)
    found = np.fromiter(
        (zlib.crc32(data[a:b]) for a, b in zip(starts[asked].tolist(), ends[asked].tolist(), strict=True)), np.int64
    )
    holds[asked] = found == (expected[asked] & 0xFFFFFFFF)
    return holds


def all_hold(data: memoryview, start: int, end: int) -> bool:
    """Return whether all pages of a stretch are as their checksums say.

    Raises:
        ValueError, IndexError: the stretch does not hold pages.
    """
    at = start
    while at < end:
        fields, values = thrift.read_struct_at(data, at)
        header = {number: value for number, _, value in fields}
        at = values + header[3]
        if header[3] < 0 or at > end:
            return False
        if 4 in header and zlib.crc32(data[values:at]) != header[4] & 0xFFFFFFFF:
            return False
    return True


def _integers(octets: npt.NDArray[np.uint8], at: Places) -> tuple[Places, Places]:
    """Return int64[n] that stand in thrift's form at n places, and the places behind them."""
    value = np.zeros(len(at), np.int64)
    open_ = np.ones(len(at), np.bool_)
    at = at.copy()
    for shift in range(0, 35, 7):  # a 32-bit integer has five bytes at most
        byte = octets[at].astype(np.int64)
        value += np.where(open_, (byte & 0x7F) << shift, 0)
        at += open_
        open_ &= byte >= 0x80
        if not open_.any():
            break
    return (value >> 1) ^ -(value & 1), at
