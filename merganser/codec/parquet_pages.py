"""Parquet pages that Polars is to decode: of types that it understands as pyarrow does, with checksums that hold.

Polars verifies no checksum. A page is a header in thrift's compact form (1: kind, 2: bytes of the values as decoded,
3: as stored, 4: CRC-32 of those) and its values behind it; headers of many pages are read together, as columns
(docs/decisions/0027).
"""

from __future__ import annotations

import os
import zlib
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec import thrift
from merganser.schema.lazy_polars import pl

_PROCESS: Final = os.getpid()

_I32_FIELD: Final = 0x15
"""Header of a field of a thrift struct: an int32 whose number is one more than that of the field before."""

_DATA: Final = 0
_DICTIONARY: Final = 2
"""Kinds of pages; others are rare."""

_DATA_FIELD: Final = 5
_DICTIONARY_FIELD: Final = 7
"""Fields of a header that say more of a page of either kind."""

_SORTED_FIELDS: Final = (0x10 | thrift.TRUE, 0x10 | thrift.FALSE)
"""Headers of the field of a dictionary's header that says whether it is sorted."""

_NONE: Final = -1

Kept: TypeAlias = "pl.Expr"
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


def undamaged(data: memoryview, stretches: Places) -> bool:
    """Return whether all pages of some stretches are as their checksums say; those without one are taken as they are.

    Args:
        data: what holds the pages.
        stretches: int64[n, 2]: where the header of the first page of each begins, and where the values of its last page
            end.
    """
    octets = np.frombuffer(data, np.uint8)
    at, ends = stretches[:, 0].copy(), stretches[:, 1]
    if (at < 0).any() or (at >= ends).any() or (ends > len(octets)).any():
        return False
    pages: list[Places] = []
    left, unusual = np.arange(len(at)), []
    while len(left):  # each turn reads the header of one page of every stretch
        headers = _Headers(octets, at[left])
        unusual.append(left[~headers.usual])
        left, starts = left[headers.usual], headers.at[headers.usual]
        behind = starts + headers.stored[headers.usual]
        if (behind < starts).any() or (behind > ends[left]).any():
            return False
        pages.append(np.stack((starts, behind, headers.checksum[headers.usual]), axis=1))
        at[left] = behind
        left = left[behind < ends[left]]
    found = np.concatenate(pages)
    return all(
        zlib.crc32(data[start:end]) == checksum for start, end, checksum in found[found[:, 2] != _NONE].tolist()
    ) and all(_each_holds(data, *stretches[i].tolist()) for i in np.concatenate(unusual))


def _each_holds(data: memoryview, start: int, end: int) -> bool:
    """Return the same of one stretch, whatever form the headers of its pages have."""
    at = start
    while at < end:
        try:
            fields, values = thrift.read_struct_at(data, at)
        except (ValueError, IndexError):
            return False
        header = {number: value for number, kind, value in fields if kind == thrift.I32}
        at = values + header.get(3, -1)
        if not values <= at <= end:
            return False
        if 4 in header and zlib.crc32(data[values:at]) != header[4] & 0xFFFFFFFF:
            return False
    return True


class _Headers:
    """Headers of n pages in the form that most writers give them, read together, field by field.

    Attributes:
        usual: bool[n], whether the header has that form. Of others the rest means nothing.
        at: int64[n], where the values of the page begin.
        stored: int64[n], how many bytes they take.
        checksum: int64[n], CRC-32 of these bytes; `_NONE`: the header has none.
    """

    def __init__(self, octets: npt.NDArray[np.uint8], at: Places) -> None:
        self._octets = octets
        self._last = len(octets) - 1
        self.at = at
        self.usual = everywhere = np.ones(len(at), np.bool_)
        kind, _, self.stored = (self._field(everywhere) for _ in range(3))  # between them: bytes as decoded
        noted = self._octet() == _I32_FIELD
        self.checksum = np.where(noted, self._field(noted) & 0xFFFFFFFF, _NONE)
        dictionary = kind == _DICTIONARY
        self.usual &= dictionary | (kind == _DATA)
        number = np.where(dictionary, _DICTIONARY_FIELD, _DATA_FIELD)
        self._skip((number - np.where(noted, 4, 3)) << 4 | thrift.STRUCT)
        for count in range(4):  # number of values, encoding of values; of a data page the encodings of levels, too
            self._field(~dictionary if count >= 2 else everywhere)
        self.at = self.at + (dictionary & np.isin(self._octet(), _SORTED_FIELDS))
        self._skip(0)
        self._skip(0)

    def _octet(self) -> npt.NDArray[np.int64]:
        return self._octets[np.minimum(self.at, self._last)].astype(np.int64)

    def _skip(self, octet: npt.NDArray[np.int64] | int) -> None:
        self.usual = self.usual & (self._octet() == octet)
        self.at = self.at + 1

    def _field(self, where: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Go past a 32-bit field whose number follows the one before, where there is one; return its values."""
        self.usual = self.usual & (~where | (self._octet() == _I32_FIELD))
        self.at = self.at + where
        value = np.zeros(len(self.at), np.int64)
        more = where
        for shift in range(0, 35, 7):  # a 32-bit integer has five bytes at most
            octet = self._octet()
            value |= np.where(more, (octet & 0x7F) << shift, 0)
            self.at = self.at + more
            more = more & (octet >= 0x80)
            if not more.any():
                break
        return (value >> 1) ^ -(value & 1)
