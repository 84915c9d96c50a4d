"""A checksum inside manifests and manifest lists, in a place that other readers pass over (docs/decisions/0009).

Avro gives every container file a map of properties, and every reader ignores those it does not know. Ours holds
the CRC-32 of the file, all bytes but its own eight digits::

    "Obj" 1 | count | "merganser.crc32" -> 8 hexadecimal digits | avro.schema, avro.codec | sync | blocks

Nothing else tells a flipped byte from a right one: blocks have no checksum, and what they decode to may be a
manifest that lacks a file. Files of other writers have no seal and are taken as they are.

Snapshots, tags and schemas are JSON and have one too, as a key that other readers pass over (docs/decisions/0018): the
CRC-32 of the file with zeros in place of its own eight digits.
"""

from __future__ import annotations

import operator
import re
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
JSON_SEAL: Final = "merganser.crc32"
_JSON_ENTRY: Final = b',\n  "merganser.crc32": "%s"'
_JSON_CLOSE: Final = b'"\n}'
_JSON_END: Final = _JSON_ENTRY[: -len(b'%s"')] + _JSON_CLOSE
_JSON_SEAL: Final = re.compile(rb',\n  "merganser\.crc32": "([0-9a-f]{8})"')  # no text in JSON has a bare quote in it
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


def check_seal(data: bytes, path: str) -> bool:
    """Refuse a file whose bytes are not those that were written; a file without a seal passes.

    Returns:
        Whether it has one, and so is what its writer made.

    Raises:
        FormatError: names the path.
    """
    has_seal = _is_nearly(data[_START:_VALUE], _ENTRY)
    if has_seal and data[_VALUE:_END] != _digits(data[:_VALUE], data[_END:]):
        raise FormatError(
            f"cannot read '{path}': its {len(data)} bytes do not have the checksum they were written with. "
            "Snapshots that name it cannot be read. Restore the file, or roll back to a snapshot that does not "
            "need it.",
            path=path,
        )
    return has_seal


def _is_nearly(found: bytes, name: bytes) -> bool:
    """Return whether bytes are the name of a seal, or were, but for one: else damage to it would hide itself."""
    return found == name or (len(found) == len(name) and sum(map(operator.ne, found, name)) == 1)


def _digits(head: bytes, rest: bytes) -> bytes:
    return b"%08x" % zlib.crc32(rest, zlib.crc32(head))


def sealed_json(data: bytes) -> bytes:
    """Return a JSON object with its checksum, as the last of its keys, in place of one that it may have.

    Args:
        data: an object of at least one key, laid out over lines, as our writers make it.
    """
    body = unsealed_json(data).removesuffix(b"\n}")
    blank = body + _JSON_ENTRY % (b"0" * _DIGITS) + b"\n}"
    return body + _JSON_ENTRY % (b"%08x" % zlib.crc32(blank)) + b"\n}"


def unsealed_json(data: bytes) -> bytes:
    """Return a JSON file without its checksum: such a file may be edited."""
    return _JSON_SEAL.sub(b"", data)


def check_json_seal(data: bytes, path: str) -> None:
    """Refuse a JSON file whose bytes are not those that were written; one without a seal passes.

    Raises:
        FormatError: names the path.
    """
    found = _JSON_SEAL.search(data)
    if found is None and not _is_nearly(_without_digits(data), _JSON_END):
        return
    if found is None or b"%08x" % zlib.crc32(_blanked(data, *found.span(1))) != found[1]:
        raise FormatError(
            f"cannot read '{path}': its {len(data)} bytes do not have the checksum they were written with. Restore "
            f"the file; if it was edited on purpose, remove the key '{JSON_SEAL}' from it.",
            path=path,
        )


def _blanked(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + b"0" * _DIGITS + data[end:]


def _without_digits(data: bytes) -> bytes:
    """Return the end of a file, where the seal stands, less its digits."""
    end = data[-len(_JSON_END) - _DIGITS :]
    return end[: -_DIGITS - len(_JSON_CLOSE)] + end[-len(_JSON_CLOSE) :]
