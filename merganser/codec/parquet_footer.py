"""Parts of a Parquet footer that pyarrow does not expose, or cannot read safely.

* INT96. `with_raw_int96` changes the footer so that such columns are fixed binaries of 12 bytes. PLAIN and dictionary
  pages store both types alike, so pyarrow then returns the stored bytes, which `codec.int96` decodes.
* Statistics. pyarrow ends the process, without an exception, if the statistics of a damaged footer have the wrong
  type or length, or if it has to write such a footer. `Chunks` parses them from the bytes. To parse
  a footer of a thousand chunks takes longer than to read a column of them; so it finds the statistics of one column by
  the bytes that most writers put before them.

The parts of the footer that are touched::

    FileMetaData 2: [SchemaElement 1: type, 2: type length]
                 4: [RowGroup 1: [ColumnChunk 3: ColumnMetaData 1: type, 12: Statistics]]
                 7: [order of a column's values]
                    ColumnMetaData 6, 7: bytes of the pages, 9: first data page, 11: dictionary
    Statistics   3: number of nulls, 5: max, 6: min; 1 and 2 are older forms of unknown order
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from merganser.codec import thrift
from merganser.codec.int96 import INT96_BYTES
from merganser.errors import FormatError
from merganser.values import dataclass

_MAGIC: Final = b"PAR1"
_END_BYTES: Final = 8
"""The length of the footer and the magic bytes, at the very end."""

_TAIL_BYTES: Final = 64 * 1024
_INT96: Final = 3
_FIXED_LEN_BYTE_ARRAY: Final = 7

_SOUGHT_MAX: Final = 2
"""Columns whose statistics are sought one by one: for more it takes less time to parse the whole footer."""
_TYPE_DEFINED_ORDER: Final = b"\x1c\0\0"
"""The order of a column's values: without it the smallest text or decimal could mean anything."""

_INTEGER: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """What the footer says of the values of one column in one row group.

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


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """What the footer says of one column in one row group.

    Attributes:
        dictionary_page_offset, data_page_offset: where its pages begin; None: there is no dictionary.
        total_compressed_size, total_uncompressed_size: bytes of its pages as stored, and as decompressed.
        statistics: of its values.
    """

    dictionary_page_offset: int | None
    data_page_offset: int
    total_compressed_size: int
    total_uncompressed_size: int
    statistics: ChunkStatistics


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


def footer_of(tail: Callable[[int], bytes]) -> bytes | None:
    """Return the footer of a Parquet file; None: it is not among the bytes at the end that are at hand.

    Args:
        tail: gives the last bytes of the file, as many as asked for, or fewer.
    """
    end = tail(_END_BYTES)
    size = int.from_bytes(end[: -len(_MAGIC)], "little")
    found = tail(size + _END_BYTES)
    return found[:-_END_BYTES] if len(found) == size + _END_BYTES else None


def check_footer(footer: bytes, checksum: int | None, path: str) -> None:
    """Refuse a footer that is not what its writer wrote.

    Args:
        checksum: its CRC-32 as it was noted; None: not noted, and nothing is refused.

    Raises:
        FormatError: names the path.
    """
    if checksum is not None and zlib.crc32(footer) != checksum:
        raise FormatError(
            f"cannot read the data file '{path}': the {len(footer):,} bytes of its footer do not have the checksum "
            "they were written with, so some of them have changed. Other files of the table stay readable. Restore the "
            "file, or roll back to a snapshot that does not need it.",
            path=path,
        )


def parsed(footer: bytes) -> pq.FileMetaData:
    """Return a footer as pyarrow sees it."""
    return pq.read_metadata(pa.BufferReader(_MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC))


class Chunks:
    """What a footer says of its columns, row group by row group.

    pyarrow ends the process when it is asked for a column whose size statistics or encryption a flipped bit spoiled. So
    it is asked only about a footer whose checksum holds; the bytes of another one are parsed here, once.
    """

    def __init__(self, footer: bytes, metadata: pq.FileMetaData, *, whole: bool) -> None:
        """Take a footer.

        Args:
            metadata: the same, as pyarrow sees it.
            whole: its bytes are sure to be what its writer made.
        """
        self._footer = footer
        self._metadata = metadata
        self._whole = whole
        self._facts: list[list[ChunkFacts]] | None = None
        self._sought = 0

    def of(self, group: int, leaf: int) -> pq.ColumnChunkMetaData | ChunkFacts:
        """Return the places and sizes of a column in a row group.

        Raises:
            ValueError, LookupError: the footer is not what thrift writes, or says nothing of it.
        """
        return self._metadata.row_group(group).column(leaf) if self._whole else self.facts()[group][leaf]

    def statistics(self, name: str, leaf: int) -> Sequence[ChunkStatistics]:
        """Return what the footer says of the values of a top-level column, row group by row group; raises as `of` does.

        Args:
            leaf: where it is among all leaf columns.
        """
        self._sought += 1
        if self._facts is None and self._sought <= _SOUGHT_MAX:
            groups, leaves = self._metadata.num_row_groups, self._metadata.num_columns
            found = leaf_statistics(self._footer, name, groups=groups, leaves=leaves)
            if found is not None:
                return found
        return [group[leaf].statistics for group in self.facts()]

    def facts(self) -> list[list[ChunkFacts]]:
        """Return everything of every leaf column in every row group, statistics included; raises as `of` does."""
        if self._facts is None:
            self._facts = chunk_facts(self._footer)
            groups, leaves = self._metadata.num_row_groups, self._metadata.num_columns
            if len(self._facts) != groups or any(len(group) != leaves for group in self._facts):
                raise ValueError(f"not every one of {groups} row groups has {leaves} columns")
        return self._facts


def has_checksum(page: bytes) -> bool:
    """Return whether the header at the start of `page` (1: kind, 2, 3: bytes, 4: CRC-32) has a checksum."""
    return thrift.leading_numbers(page, 4) == [1, 2, 3, 4]


def chunk_facts(footer: bytes) -> list[list[ChunkFacts]]:
    """Return what the footer says of every leaf column in every row group.

    Raises:
        ValueError, IndexError: the footer is not what thrift writes.
    """
    root = thrift.read_struct(footer)
    ordered = bool(thrift.elements(root, 7))
    return [
        [_facts(column, ordered) for chunk in thrift.elements(group, 1) for column in thrift.values(chunk, 3)]
        for group in thrift.elements(root, 4)
    ]


def leaf_statistics(footer: bytes, name: str, *, groups: int, leaves: int) -> list[ChunkStatistics] | None:
    """Return the statistics of a top-level leaf column in every row group.

    Args:
        name: the column.
        groups: how many row groups the file has.
        leaves: how many leaf columns it has.

    Returns:
        One element per row group; None: the footer is not in the form that most writers give it.
    """
    if not footer.endswith(_TYPE_DEFINED_ORDER * leaves + b"\0"):
        return None
    found = []
    for match in _chunk_of(name.encode()).finditer(footer):
        try:
            fields = thrift.read_struct_at(memoryview(footer), match.end())[0]
        except (IndexError, ValueError):
            return None
        found.append(_statistics(match[1][0] >> 1, fields, ordered=True))
    return found if len(found) == groups else None


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


def _facts(column: thrift.Fields, ordered: bool) -> ChunkFacts:
    said = {number: value for number, _, value in column}
    statistics = _statistics(said.get(1, -1), said.get(12, []), ordered=ordered)
    return ChunkFacts(said.get(11), said[9], said[7], said[6], statistics)


def _statistics(physical_type: int, fields: thrift.Fields, *, ordered: bool) -> ChunkStatistics:
    found = {number: value for number, _, value in fields}
    low, high = (found.get(6), found.get(5)) if ordered else (None, None)
    return ChunkStatistics(physical_type, low, high, found.get(3))


@lru_cache(256)
def _chunk_of(path: bytes) -> re.Pattern[bytes]:
    """Return what stands before the statistics of a column's chunks: fields 1 to 11 of ColumnMetaData.

    They are the type, encodings, path, codec, three counts, and the place of the first page; then that of the
    dictionary, if there is one.
    """
    size = bytes([len(path)]) if len(path) < 128 else bytes([len(path) & 127 | 128, len(path) >> 7])
    return re.compile(
        rb"\x15([\x00-\x0e])\x19[\x15-\xe5][\x00-\x12]{1,14}\x19\x18"
        + re.escape(size + path)
        + b"\x15%b\x16%b\x16%b\x16%b\x26%b(?:\x26%b\x1c|\x3c)" % ((_INTEGER,) * 6),
        re.DOTALL,
    )


def _set_type(fields: thrift.Fields) -> bool:
    """Turn an INT96 element or column into a fixed binary; return whether it was one."""
    if not fields or fields[0] != (1, thrift.I32, _INT96):
        return False
    fields[0] = (1, thrift.I32, _FIXED_LEN_BYTE_ARRAY)
    return True
