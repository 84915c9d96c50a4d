"""A checksum inside manifests and manifest lists, in a place that other readers pass over (docs/decisions/0009).

Avro gives every container file a map of properties, and every reader ignores those it does not know. Ours holds
the CRC-32 of the file, all bytes but its own eight digits::

    "Obj" 1 | count | "merganser.crc32" -> 8 hexadecimal digits | avro.schema, avro.codec | sync | blocks

Nothing else tells a flipped byte from a right one: blocks have no checksum, and what they decode to may be a
manifest that lacks a file. Files of other writers have no seal and are taken as they are.
"""

from __future__ import annotations

import zlib
from typing import Final

from merganser.errors import FormatError

_MAGIC: Final = b"Obj\x01"
_COUNT: Final = len(_MAGIC)
_NAME: Final = b"merganser.crc32"
_DIGITS: Final = 8
_ENTRY: Final = bytes([2 * len(_NAME)]) + _NAME + bytes([2 * _DIGITS])  # lengths as zigzag integers of one byte
_START: Final = _COUNT + 1
_VALUE: Final = _START + len(_ENTRY)
_END: Final = _VALUE + _DIGITS
_COUNT_MAX: Final = 62
"""Most entries of a map whose count is one byte, less the one that is added."""


def sealed(data: bytes) -> bytes:
    """Return a container file with its checksum.

    Args:
        data: a container file whose header has few properties, as our writer makes it.
    """
    count = data[_COUNT]
    if data[:_COUNT] != _MAGIC or count % 2 or not 0 < count // 2 <= _COUNT_MAX:
        return data
    head = data[:_COUNT] + bytes([count + 2]) + _ENTRY
    rest = data[_START:]
    return head + _digits(head, rest) + rest


def check_seal(data: bytes, path: str) -> None:
    """Refuse a file whose bytes are not those that were written; a file without a seal passes.

    Raises:
        FormatError: names the path.
    """
    if data[_START:_VALUE] == _ENTRY and data[_VALUE:_END] != _digits(data[:_VALUE], data[_END:]):
        raise FormatError(
            f"cannot read '{path}': its {len(data)} bytes do not have the checksum they were written with. "
            "Snapshots that name it cannot be read. Restore the file, or roll back to a snapshot that does not "
            "need it.",
            path=path,
        )


def _digits(head: bytes, rest: bytes) -> bytes:
    return b"%08x" % zlib.crc32(rest, zlib.crc32(head))
