"""The container of Avro files: header, blocks, codecs.

::

    "Obj" 1 | map: avro.schema, avro.codec | sync(16) | { rows varint | bytes varint | block | sync(16) }*

Numbers are zigzag varints. pyarrow brings the codecs along, so that none of them needs a library of its own.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from merganser.errors import FormatError
from merganser.values import dataclass

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
CODECS: Final = {
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "snappy": "snappy",
    "gzip": "deflate",
    "deflate": "deflate",
    # Avro has no LZ4; such tables still get their postponed rows, uncompressed.
    "lz4": "null",
    "none": "null",
    "uncompressed": "null",
    "null": "null",
}
"""The codec of a file by the name that table options use."""


def header_map(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    """Return the map at `at` and the place after it.

    Raises:
        EOFError, IndexError, ValueError: the bytes are no such map.
    """
    entries: dict[str, bytes] = {}
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return entries, at
        if count < 0:
            count = -count
            _, at = read_long(data, at)
        for _ in range(count):
            key, at = _sized(data, at)
            entries[key.decode()], at = _sized(data, at)


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_long(data, at)
    if length < 0 or at + length > len(data):
        raise EOFError("the header ends inside a value")
    return data[at : at + length], at + length


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a container file.

    Attributes:
        rows: number of records in it.
        begin: where its two numbers begin, in bytes from the beginning of the file.
        start, end: where its content begins, and ends; the sync marker follows.
    """

    rows: int
    begin: int
    start: int
    end: int


def block_places(data: bytes, at: int, sync: bytes, path: str) -> Iterator[Block]:
    """Yield the blocks of a container file.

    Args:
        at: where the header ends.
        sync: the marker of the header.
        path: the file, for messages.

    Raises:
        FormatError: a block does not end with the marker.
        IndexError, ValueError: a number is cut off or too long.
    """
    while at < len(data):
        begin = at
        rows, at = read_long(data, at)
        length, at = read_long(data, at)
        end = at + length
        if rows < 0 or length < 0 or data[end : end + SYNC_BYTES] != sync or len(sync) != SYNC_BYTES:
            raise FormatError(
                f"cannot read '{path}': the block at byte {begin} of {len(data)} does not end with the "
                "sync marker of the header",
                path=path,
                offset=begin,
            )
        yield Block(rows, begin, at, end)
        at = end + SYNC_BYTES


def encoded_map(entries: dict[str, bytes]) -> bytes:
    """Return the bytes of a map."""
    parts = [encoded_long(len(entries))]
    for key, value in entries.items():
        parts += [encoded_long(len(key.encode())), key.encode(), encoded_long(len(value)), value]
    return b"".join([*parts, b"\x00"])


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag varint at `at` and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError(f"the number at byte {at} is longer than 64 bits")


def encoded_long(value: int) -> bytes:
    """Return a number of 0 or more as a zigzag varint."""
    value = value << 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _unzstd(block: bytes) -> bytes:
    # As a stream: writers leave the length of the content out of the frame.
    with pa.input_stream(pa.BufferReader(block), compression="zstd") as stream:
        return bytes(stream.read())


def _unsnappy(block: bytes) -> bytes:
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    content = bytes(pa.decompress(block[:-4], decompressed_size=length, codec="snappy", asbytes=True))
    if zlib.crc32(content) != int.from_bytes(block[-4:], "big"):
        raise ValueError("a block's checksum differs from its content")
    return content


DECOMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": lambda block: zlib.decompress(block, -zlib.MAX_WBITS),
    "snappy": _unsnappy,
    "zstandard": _unzstd,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}
"""How to undo each codec, by its name in the header."""


def compressor(codec: str, zstd_level: int) -> Callable[[bytes], bytes]:
    """Return the function that compresses blocks with a codec, named as in the header."""
    match codec:
        case "zstandard":
            zstd = pa.Codec("zstd", compression_level=zstd_level)
            return lambda block: bytes(zstd.compress(block, asbytes=True))
        case "snappy":
            snappy = pa.Codec("snappy")
            return lambda block: bytes(snappy.compress(block, asbytes=True)) + zlib.crc32(block).to_bytes(4, "big")
        case "deflate":
            return lambda block: zlib.compress(block, wbits=-zlib.MAX_WBITS)
    return bytes
