"""The tail of ORC files, as far as pyarrow does not hand it out: protocol buffers, read just enough, and written again.

::

    file tail  1: postscript   2: footer   3: bytes of the file   4: bytes of the postscript
    postscript 1: bytes of the footer   2: compression (0 none, 1 zlib, 2 snappy, 4 lz4, 5 zstd)   3: bytes of a block
    footer     3: stripe (repeated)   4: type (repeated)   5: pair of metadata (repeated; 1: name, 2: value)
               7: column statistics (repeated, in the order of types)   9: writer (0 Java, 1 C++, 2 Presto, ...)
               11: calendar (0 unknown, 1 with the Julian one, 2 proleptic)
    stripe     1: where it begins   2, 3: bytes of indexes and data   4: bytes of its footer   5: number of rows
    its footer 3: time zone of the writer
    type       1: kind   2: ids of parts (packed)   5: precision   6: scale   7: attribute (repeated; 1: name, 2: value)
    statistics 7: days -> 1: min, 2: max   9: timestamps -> 1: min, 2: max, 3: min in UTC, 4: max in UTC; all zigzag

Streams are blocks: three bytes with the length times two, plus one if the block is not compressed, then the block.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

import pyarrow as pa

TIMESTAMP: Final = 9
TIMESTAMP_INSTANT: Final = 18
_CODECS: Final = {1: "zlib", 2: "snappy", 4: "lz4_raw", 5: "zstd"}
_HEADER_BYTES: Final = 3


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of a protocol buffer's fields: int for varints, bytes for the rest."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                value, at = _varint(message, at)
                yield tag >> 3, value
                continue
            case 1:
                end = at + 8
            case 2:
                length, at = _varint(message, at)
                end = at + length
            case 5:
                end = at + 4
            case wire:
                raise ValueError(f"wire type {wire} in the footer")
        if end > len(message):
            raise ValueError("the footer ends inside a field")
        yield tag >> 3, message[at:end]
        at = end


def messages(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the fields of a number that are messages or text."""
    return (value for found, value in fields(message) if found == number and isinstance(value, bytes))


def first(message: bytes, number: int) -> bytes:
    """Return the first of them; empty if there is none."""
    return next(messages(message, number), b"")


def number(message: bytes, number: int) -> int:
    """Return the first field of a number that is an integer; 0 if there is none."""
    return next((value for found, value in fields(message) if found == number and isinstance(value, int)), 0)


def packed(message: bytes, number: int) -> Iterator[int]:
    """Yield integers that are repeated, packed or not."""
    for found, value in fields(message):
        if found == number and isinstance(value, int):
            yield value
        elif found == number:
            at = 0
            while at < len(value):
                part, at = _varint(value, at)
                yield part


def pairs(message: bytes, number: int) -> dict[str, str]:
    """Return the pairs of name and value that are repeated."""
    return {first(pair, 1).decode(): first(pair, 2).decode("utf-8", "replace") for pair in messages(message, number)}


def unzigzag(value: int) -> int:
    """Return a signed integer."""
    return (value >> 1) ^ -(value & 1)


def writer_zone(file: pa.NativeFile | IO[bytes], tail: bytes) -> str | None:
    """Return the time zone in which the stripes of a file were written.

    Returns:
        None: there is no stripe, or it does not say, or some differ.
    """
    postscript, footer = first(tail, 1), first(tail, 2)
    zones = set()
    for stripe in messages(footer, 3):
        file.seek(number(stripe, 1) + number(stripe, 2) + number(stripe, 3))
        zones.add(first(_plain(file.read(number(stripe, 4)), postscript), 3).decode())
    return zones.pop() if len(zones) == 1 and "" not in zones else None


def with_instants(file: pa.NativeFile | IO[bytes], tail: bytes) -> pa.NativeFile:
    """Return a file with the same stripes, whose timestamps the library takes for instants.

    Of a timestamp, a file has the seconds since the start of 2015 in the zone of its writer; of an instant, in UTC. So
    what the library hands out is as many seconds too late as that zone was ahead of UTC then.
    """
    postscript, footer = first(tail, 1), first(tail, 2)
    changed = b"".join(_field(n, _as_instants(v) if n == 4 else v) for n, v in fields(footer))
    stored = changed if number(postscript, 2) == 0 else _as_blocks(changed, number(postscript, 3))
    ending = b"".join(_field(n, len(stored) if n == 1 else v) for n, v in fields(postscript))
    length, size = number(tail, 3), number(tail, 4)
    cut = length - 1 - size - number(postscript, 1)
    return pa.PythonFile(_Spliced(file, cut, stored + ending + bytes([len(ending)])), "r")


def _as_instants(kind: bytes) -> bytes:
    if number(kind, 1) != TIMESTAMP:
        return kind
    return b"".join(_field(n, TIMESTAMP_INSTANT if n == 1 else v) for n, v in fields(kind))


def _plain(stream: bytes, postscript: bytes) -> bytes:
    """Return the bytes of a stream, not compressed.

    Raises:
        ValueError: the file has a compression that is not known.
    """
    kind = number(postscript, 2)
    if kind == 0:
        return stream
    if kind not in _CODECS:
        raise ValueError(f"compression {kind} is unknown")
    out, at = [], 0
    while at < len(stream):
        header = int.from_bytes(stream[at : at + _HEADER_BYTES], "little")
        at += _HEADER_BYTES
        block = stream[at : at + (header >> 1)]
        at += header >> 1
        out.append(block if header & 1 else _decompressed(block, _CODECS[kind]))
    return b"".join(out)


def _decompressed(block: bytes, codec: str) -> bytes:
    match codec:
        case "zlib":
            return zlib.decompress(block, -15)
        case "snappy":
            return pa.decompress(block, _varint(block, 0)[0], codec, asbytes=True)  # type: ignore[no-any-return]
        case "zstd":
            with pa.CompressedInputStream(pa.BufferReader(block), codec) as stream:
                return stream.read()  # type: ignore[no-any-return]
    return pa.decompress(block, _lz4_size(block), codec, asbytes=True)  # type: ignore[no-any-return]


def _lz4_size(block: bytes) -> int:
    """Return how many bytes a block of LZ4 holds, which it does not note."""
    size = at = 0
    while True:
        token = block[at]
        literals, at = _lz4_length(block, at + 1, token >> 4)
        size += literals
        at += literals
        if at >= len(block):
            return size
        matched, at = _lz4_length(block, at + 2, token & 15)
        size += matched + 4


def _lz4_length(block: bytes, at: int, start: int) -> tuple[int, int]:
    if start == 15:
        while True:
            more = block[at]
            at += 1
            start += more
            if more != 255:
                break
    return start, at


def _as_blocks(plain: bytes, most: int) -> bytes:
    parts = [plain[at : at + most] for at in range(0, len(plain), most)]
    return b"".join((len(part) << 1 | 1).to_bytes(_HEADER_BYTES, "little") + part for part in parts)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _as_varint(number << 3) + _as_varint(value)
    return _as_varint(number << 3 | 2) + _as_varint(len(value)) + value


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


class _Spliced(io.RawIOBase):
    """The first bytes of a file, and other bytes behind them. It does not close the file."""

    def __init__(self, file: pa.NativeFile | IO[bytes], cut: int, behind: bytes) -> None:
        self._file = file
        self._cut = cut
        self._behind = behind
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence, self._cut + len(self._behind))
        self._at = start + offset
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = self._cut + len(self._behind)
        size = end - self._at if size < 0 else max(0, min(size, end - self._at))
        out = b""
        if size and self._at < self._cut:
            self._file.seek(self._at)
            out = self._file.read(min(size, self._cut - self._at))
        begin = self._at + len(out) - self._cut
        if len(out) < size:
            out += self._behind[begin : begin + size - len(out)]
        self._at += len(out)
        return out
