"""The file index of a data file as bytes: a container of indexes, each of one kind over one column.

A reader asks an index whether the data file can hold a value, and skips the file if not. All integers are big-endian::

    int64 magic | int32 version = 1 | int32 length of the head, which is where the bodies begin
    int32 number of columns
      for each: text name | int32 number of indexes
        for each: text kind | int32 start, from the first byte of the container | int32 length
    int32 length of what follows of the head | further bytes of the head
    bodies

A text is a length of two bytes and the "modified UTF-8" of Java: a zero is two bytes, and a character beyond the
basic plane two surrogates of three bytes each. A start of -1 says that all values of the column are null.

The format has no checksum, and one flipped bit of a filter hides rows. So a container that becomes a file of its own
has one among the further bytes of its head, which other readers pass over: the four letters `MGCR` and the CRC-32 of
the head before it and the bodies after it. A container in a manifest needs none, because the manifest has one.

Format: section "file index".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final, NoReturn

from merganser.errors import FormatError
from merganser.values import dataclass

_MAGIC: Final = 1493475289347502
_VERSION: Final = 1
_FIRST: Final = struct.Struct(">qii")
_INT: Final = struct.Struct(">i")
_PLACE: Final = struct.Struct(">ii")
_CHECKED: Final = b"MGCR"
_CHECK_BYTES: Final = len(_CHECKED) + 4
_ALL_NULL: Final = -1


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """One index of one column.

    Attributes:
        column: its name in the schema that the data file was written with; `column[key]` for one key of a map.
        kind: such as `bloom-filter`.
        body: bytes of the index; None: the column holds nulls only.
    """

    column: str
    kind: str
    body: bytes | None


def encode_file_index(indexes: Sequence[ColumnIndex], *, checked: bool) -> bytes:
    """Return a container.

    Args:
        indexes: those of one column follow each other.
        checked: whether it has a checksum.
    """
    columns: dict[str, list[ColumnIndex]] = {}
    for index in indexes:
        columns.setdefault(index.column, []).append(index)
    size = _FIRST.size + 2 * _INT.size + checked * _CHECK_BYTES
    for name, held in columns.items():
        size += len(_text(name)) + _INT.size + sum(len(_text(index.kind)) + _PLACE.size for index in held)
    head = [_FIRST.pack(_MAGIC, _VERSION, size), _INT.pack(len(columns))]
    bodies: list[bytes] = []
    at = size
    for name, held in columns.items():
        head += [_text(name), _INT.pack(len(held))]
        for index in held:
            body = index.body
            head += [_text(index.kind), _PLACE.pack(_ALL_NULL, 0) if body is None else _PLACE.pack(at, len(body))]
            if body is not None:
                bodies.append(body)
                at += len(body)
    head.append(_INT.pack(checked * _CHECK_BYTES))
    before, after = b"".join(head), b"".join(bodies)
    return before + (_check(before, after) if checked else b"") + after


def decode_file_index(data: bytes, *, path: str) -> tuple[ColumnIndex, ...]:
    """Return the indexes of a container, of kinds known and unknown.

    Args:
        path: for messages.

    Raises:
        FormatError: the bytes are no container, or differ from the checksum in it.
    """
    try:
        magic, version, end = _FIRST.unpack_from(data)
        if magic != _MAGIC or version != _VERSION:
            _damaged(path, f"it begins with the magic number {magic} and version {version}")
        if not _FIRST.size <= end <= len(data):
            _damaged(path, f"its head should have {end} bytes, and it has {len(data)} in all")
        _check_sum(data, end, path)
        reader = _Head(data[:end], _FIRST.size)
        found = []
        first = len(data)
        for _ in range(reader.integer()):
            column = reader.text()
            for _ in range(reader.integer()):
                kind, start, length = reader.text(), reader.integer(), reader.integer()
                if start == _ALL_NULL:
                    found.append(ColumnIndex(column, kind, None))
                    continue
                if not (end <= start and 0 <= length <= len(data) - start):
                    _damaged(path, f"the index of '{column}' should lie at byte {start} with a length of {length}")
                found.append(ColumnIndex(column, kind, data[start : start + length]))
                first = min(first, start)
        more = reader.integer()
    except (struct.error, ValueError) as error:
        _damaged(path, str(error))
    if first != end:
        _damaged(path, f"its head ends at byte {end}, and the first index begins at byte {first}")
    if more and not (more == _CHECK_BYTES and _is_checked(data, end)):
        _damaged(path, f"its head has {more} further bytes, which this version does not know")
    return tuple(found)


def _is_checked(data: bytes, end: int) -> bool:
    return data[end - _CHECK_BYTES : end - 4] == _CHECKED


def _check_sum(data: bytes, end: int, path: str) -> None:
    """Refuse bytes that differ from their checksum, if they have one. Comes before anything they say is believed."""
    start = end - _CHECK_BYTES
    if _is_checked(data, end) and data[start:end] != _check(data[:start], data[end:]):
        _damaged(path, "its bytes do not have the checksum they were written with")


class _Head:
    """Reads the head of a container from a place on."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def integer(self) -> int:
        (value,) = _INT.unpack_from(self._data, self.at)
        self.at += _INT.size
        return int(value)

    def text(self) -> str:
        size = int.from_bytes(self._data[self.at : self.at + 2], "big")
        self.at += 2 + size
        if self.at > len(self._data):
            raise ValueError("a name in its head goes beyond the head")
        encoded = self._data[self.at - size : self.at].replace(b"\xc0\x80", b"\0")
        units = encoded.decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass")
        return units.decode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    apart = "".join(chr(high << 8 | low) for high, low in zip(units[::2], units[1::2], strict=True))
    encoded = apart.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    return len(encoded).to_bytes(2, "big") + encoded


def _check(before: bytes, after: bytes) -> bytes:
    return _CHECKED + zlib.crc32(after, zlib.crc32(before)).to_bytes(4, "big")


def _damaged(path: str, why: str) -> NoReturn:
    raise FormatError(
        f"cannot read the file index '{path}': {why}. No read needs it; its data file is whole.", path=path
    )
