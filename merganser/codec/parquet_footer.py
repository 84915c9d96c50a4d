"""Parts of a Parquet footer that pyarrow does not expose, or cannot read safely.

* INT96. `with_raw_int96` changes the footer so that such columns are fixed binaries of 12 bytes. PLAIN and dictionary
  pages store both types alike, so pyarrow then returns the stored bytes, which `codec.int96` decodes.
* Statistics. pyarrow ends the process, without an exception, if the statistics of a damaged footer have the wrong
  type or length, or if it has to write such a footer. `chunk_statistics` parses them from the bytes.

The parts of the footer that are touched::

    FileMetaData 2: [SchemaElement 1: type, 2: type length]
                 4: [RowGroup 1: [ColumnChunk 3: ColumnMetaData 1: type, 12: Statistics]]
                 7: [order of a column's values]
    Statistics   3: number of nulls, 5: max, 6: min; 1 and 2 are older forms, whose order nobody knew
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from merganser.codec import thrift
from merganser.codec.int96 import INT96_BYTES

_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8
"""The length of the footer and the magic bytes, at the very end."""

_TAIL_BYTES: Final = 64 * 1024
_INT96: Final = 3
_FIXED_LEN_BYTE_ARRAY: Final = 7


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """What the footer says of one column in one row group.

    Attributes:
        physical_type: number of the physical type, as in the schema: 1 INT32, 2 INT64, ...
        low: smallest value in PLAIN encoding, or None.
        high: largest value in PLAIN encoding, or None.
        null_count: number of nulls, or None.
    """

    physical_type: int
    low: bytes | None
    high: bytes | None
    null_count: int | None


def read_footer(file: pa.NativeFile) -> bytes:
    """Return the footer of a Parquet file as its bytes stand there: one read, or two when it is long.

    Raises:
        ValueError: the file does not end as a Parquet file.
    """
    size = file.size()
    tail = file.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    if tail[-len(_MAGIC) :] != _MAGIC:
        raise ValueError(f"the file of {size} bytes ends with {tail[-len(_MAGIC) :]!r} and not with {_MAGIC!r}")
    whole = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES
    if whole + len(_MAGIC) > size:
        raise ValueError(f"the file of {size} bytes says that its footer has {whole - _END_BYTES}")
    if whole > len(tail):
        tail = file.read_at(whole, size - whole)
    return bytes(tail[-whole:-_END_BYTES])


def parsed(footer: bytes) -> pq.FileMetaData:
    """Return a footer as pyarrow sees it."""
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC))


def chunk_statistics(footer: bytes) -> list[list[ChunkStatistics]]:
    """Return the statistics of every leaf column in every row group.

    Raises:
        ValueError, IndexError: the footer is not what thrift writes.
    """
    root = thrift.read_struct(footer)
    # Without an order nobody can say what the writer took for the smallest text or decimal.
    ordered = bool(thrift.elements(root, 7))
    return [
        [_statistics(column, ordered) for chunk in thrift.elements(group, 1) for column in thrift.values(chunk, 3)]
        for group in thrift.elements(root, 4)
    ]


def with_raw_int96(footer: bytes) -> pq.FileMetaData:
    """Return a footer in which INT96 columns, at any depth, are fixed binaries of 12 bytes.

    Raises:
        ValueError, IndexError: the footer is not what thrift writes.
    """
    root = thrift.read_struct(footer)
    for element in thrift.elements(root, 2):
        if _set_type(element):
            element.insert(1, (2, thrift.I32, INT96_BYTES))
    for group in thrift.elements(root, 4):
        for chunk in thrift.elements(group, 1):
            for column in thrift.values(chunk, 3):
                _set_type(column)
    return parsed(thrift.write_struct(root))


def _statistics(column: thrift.Fields, ordered: bool) -> ChunkStatistics:
    physical_type = next(thrift.values(column, 1), -1)
    found = {number: value for number, _, value in next(thrift.values(column, 12), [])}
    return ChunkStatistics(
        physical_type, found.get(6) if ordered else None, found.get(5) if ordered else None, found.get(3)
    )


def _set_type(fields: thrift.Fields) -> bool:
    """Turn an INT96 element or column into a fixed binary; return whether it was one."""
    if not fields or fields[0] != (1, thrift.I32, _INT96):
        return False
    fields[0] = (1, thrift.I32, _FIXED_LEN_BYTE_ARRAY)
    return True
