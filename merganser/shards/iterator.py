"""Shard iterators: a position in a shard as an opaque text, which any process of any machine can go on from.

    version | stream id | shard id | snapshot | row | time of the last snapshot read | checksum       in base64url

The row counts the stored rows that the snapshot published in the bucket. The time is that of the snapshot before, or of
the snapshot itself once rows of it were read. It tells the snapshots of one history from those that a rollback has put
in their place.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Final

from merganser.errors import TrimmedDataError, a_type
from merganser.values import dataclass

_VERSION: Final = 1
_FIXED: Final = struct.Struct(">B16sQQqH")
_CHECK: Final = struct.Struct(">I")
_LENGTH_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a shard.

    Attributes:
        stream_id: 32 hexadecimal digits.
        snapshot: whose records come next.
        row: how many stored rows of it were read.
        read_ms: when the snapshot was committed of which rows were read last: itself, or if `row` is 0 the one before;
            -1: not known.
    """

    stream_id: str
    shard_id: str
    snapshot: int
    row: int = 0
    read_ms: int = -1

    @property
    def last_read(self) -> int:
        """The snapshot of which rows were read last, or might have been."""
        return self.snapshot if self.row else self.snapshot - 1


def iterator_text(place: Place) -> str:
    """Return a position as a text."""
    shard = place.shard_id.encode()
    fixed = _FIXED.pack(_VERSION, bytes.fromhex(place.stream_id), place.snapshot, place.row, place.read_ms, len(shard))
    data = fixed + shard
    return _text(data + _CHECK.pack(zlib.crc32(data)))


def place_of(text: str, *, table: str, stream_id: str) -> Place:
    """Return the position that a text names.

    Args:
        table: its name, for messages.
        stream_id: the stream that the table keeps now.

    Raises:
        TrimmedDataError: the text is damaged, or names another stream.
    """
    what = f"cannot read records of '{table}'"
    if not isinstance(text, str):
        raise TrimmedDataError(
            f"{what}: the iterator is {text!r:.60}, {a_type(text)}. Give the text that shard_iterator or the "
            "last records returned.",
            table=table,
        )
    try:
        data = base64.b64decode(text[:_LENGTH_MAX] + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        body, (check,) = data[: -_CHECK.size], _CHECK.unpack(data[-_CHECK.size :])
        version, stream, snapshot, row, read_ms, size = _FIXED.unpack_from(body)
        shard = body[_FIXED.size :]
        whole = zlib.crc32(body) == check and version == _VERSION and len(shard) == size and _text(data) == text
        name = shard.decode()
    except (binascii.Error, struct.error, ValueError):
        whole = False
    if not whole:
        raise TrimmedDataError(
            f"{what}: the iterator {text!r:.60} is damaged, or was never one. Nothing was read. Ask for a new one with "
            "shard_iterator.",
            table=table,
        )
    if stream.hex() != stream_id:
        raise TrimmedDataError(
            f"{what}: the iterator belongs to the stream {stream.hex()}, and the table keeps the stream {stream_id}. A "
            "stream that is enabled again begins anew, and each table has streams of its own. Nothing was read. Ask "
            "for a new iterator with shard_iterator.",
            table=table,
            stream=stream_id,
        )
    return Place(stream_id, name, snapshot, row, read_ms)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
