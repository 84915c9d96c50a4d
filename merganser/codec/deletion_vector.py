"""Deletion vectors: positions of rows of a data file that no longer count, as bytes.

A file is a version byte and vectors back to back, in one of two forms, told apart by the magic number::

    32-bit   int32 BE size | int32 BE 1581511376 | portable roaring bitmap           | int32 BE CRC-32
    64-bit   int32 BE size | int32 LE 1681511377 | int64 LE n, n x (int32 LE high,   | int32 BE CRC-32
                                                   portable roaring bitmap)

`size` counts magic and bitmap, which are what the CRC covers. Metadata gives a vector an offset, that of its size
field, and a length: `size` in the 32-bit form, all of its bytes in the 64-bit one.

Format: section "deletion vectors".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyroaring

from merganser.errors import FormatError
from merganser.values import dataclass

Positions = npt.NDArray[np.int64]
"""Rising positions of rows in a data file, the first row being 0."""

VERSION: Final = 1
_MAGIC_32: Final = struct.pack(">i", 1581511376)
_MAGIC_64: Final = struct.pack("<i", 1681511377)
_WORD: Final = 4
FRAME_BYTES: Final = 2 * _WORD
"""What the length that metadata gives may leave out: the size field and the CRC."""


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a vector lies in its file.

    Attributes:
        offset: of its size field.
        length: as metadata gives it; see the module.
        cardinality: how many positions it has.
    """

    offset: int
    length: int
    cardinality: int


def encode_vectors(vectors: Iterable[Positions], *, bits64: bool) -> tuple[bytes, list[VectorPlace]]:
    """Return the bytes of a file of vectors, and where each lies.

    Args:
        vectors: at least one position each, rising.
        bits64: in the 64-bit form.
    """
    parts = [bytes([VERSION])]
    places = []
    offset = 1
    for positions in vectors:
        body = _MAGIC_64 + _bitmap_64(positions) if bits64 else _MAGIC_32 + _bitmap_32(positions)
        whole = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        places.append(VectorPlace(offset, len(whole) if bits64 else len(body), len(positions)))
        parts.append(whole)
        offset += len(whole)
    return b"".join(parts), places


def decode_vector(data: bytes, *, length: int, path: str, offset: int) -> Positions:
    """Return the positions of one vector.

    Args:
        data: bytes of the file from `offset` on, at least those of the vector; more are passed over.
        length: as metadata gives it.
        path, offset: where `data` begins, for messages.

    Raises:
        FormatError: the bytes are no vector of that length, or their CRC differs.
    """
    if len(data) < 3 * _WORD:
        raise _damaged(path, offset, f"{len(data)} bytes are left there, too few for a vector")
    size = int.from_bytes(data[:_WORD], "big", signed=True)
    magic = data[_WORD : 2 * _WORD]
    if magic not in (_MAGIC_32, _MAGIC_64):
        raise _damaged(path, offset, f"its magic number is {magic.hex()}")
    if size != (length if magic == _MAGIC_32 else length - FRAME_BYTES):
        raise _damaged(path, offset, f"it says that it has {size} bytes, and its metadata says {length}")
    body = data[_WORD : _WORD + size]
    check = data[_WORD + size : FRAME_BYTES + size]
    if len(body) < size or len(check) < _WORD:
        raise _damaged(path, offset, f"it has {size} bytes, and the file ends before")
    if zlib.crc32(body) != int.from_bytes(check, "big"):
        raise _damaged(path, offset, "its bytes do not have the checksum they were written with")
    try:
        if magic == _MAGIC_32:
            return np.frombuffer(pyroaring.BitMap.deserialize(body[_WORD:]).to_array(), np.uint32).astype(np.int64)
        return np.frombuffer(pyroaring.BitMap64.deserialize(body[_WORD:]).to_array(), np.uint64).astype(np.int64)
    except ValueError as error:
        raise _damaged(path, offset, f"its bitmap cannot be read ({error})") from error


def _bitmap_32(positions: Positions) -> bytes:
    if len(positions) and int(positions[-1]) >> 32:
        raise ValueError(f"position {int(positions[-1])} needs the 64-bit form")
    return _serialized(positions.astype(np.uint32))


def _bitmap_64(positions: Positions) -> bytes:
    """Return the 64-bit form; every high half up to the largest is listed, also those without positions."""
    halves = positions >> 32
    count = int(halves[-1]) + 1 if len(positions) else 0
    cuts = np.searchsorted(halves, np.arange(count + 1))
    parts = [struct.pack("<q", count)]
    for high in range(count):
        low = (positions[cuts[high] : cuts[high + 1]] & 0xFFFF_FFFF).astype(np.uint32)
        parts += [struct.pack("<i", high), _serialized(low)]
    return b"".join(parts)


def _serialized(positions: npt.NDArray[np.uint32]) -> bytes:
    view: Any = positions  # pyroaring takes a buffer whole, and anything else number by number
    bitmap = pyroaring.BitMap(memoryview(view))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def _damaged(path: str, offset: int, why: str) -> FormatError:
    return FormatError(
        f"cannot read the deletion vector at byte {offset} of '{path}': {why}. Rows of its data file cannot be told "
        "from deleted ones; other files stay readable. Restore the file, or roll back to a snapshot that does not "
        "need it.",
        path=path,
        offset=offset,
    )
