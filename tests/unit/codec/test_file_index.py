"""The container of file indexes: the bytes of the format, what is damaged, and the golden tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import merganser as mg
from merganser.codec.bloom import BloomBuilder
from merganser.codec.file_index import ColumnIndex, decode_file_index, encode_file_index
from merganser.errors import FormatError
from merganser.meta.table_state import MetaReader

GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
INDEXES = (
    ColumnIndex("id", "bloom-filter", b"\0\0\0\1abc"),
    ColumnIndex("id", "bitmap", b"xyz"),
    ColumnIndex("é\0🦆", "bloom-filter", None),
    ColumnIndex("s", "bloom-filter", b""),
)


@pytest.mark.parametrize("checked", [False, True])
def test_a_container_reads_back(checked: bool) -> None:
    assert decode_file_index(encode_file_index(INDEXES, checked=checked), path="f") == INDEXES


def test_names_are_in_the_modified_utf_8_of_java() -> None:
    assert b"\x00\x0a\xc3\xa9\xc0\x80\xed\xa0\xbe\xed\xb6\x86" in encode_file_index(INDEXES, checked=False)


def test_every_flipped_bit_of_a_container_with_a_checksum_is_found() -> None:
    data = encode_file_index(INDEXES, checked=True)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="'f'"):
            decode_file_index(bytes(flipped), path="f")


@pytest.mark.parametrize("size", range(0, 100, 7))
def test_a_container_that_is_cut_off_is_an_error(size: int) -> None:
    with pytest.raises(FormatError, match="'f'"):
        decode_file_index(encode_file_index(INDEXES, checked=True)[:size], path="f")


@pytest.mark.parametrize("name", ["fidx_bloom_java", "fidx_bloom_file_java", "fidx_bitmap_java", "fidx_range_java"])
def test_a_container_of_the_reference_is_what_we_write(name: str) -> None:
    data = _golden_index(name)
    assert encode_file_index(decode_file_index(data, path=name), checked=False) == data


@pytest.mark.parametrize(("name", "items"), [("fidx_bloom_java", 50), ("fidx_bloom_file_java", 200)])
def test_a_filter_of_the_reference_is_the_one_we_make_of_its_rows(name: str, items: int) -> None:
    table = mg.table(str(GOLDEN / name))
    rows = table.read().to_arrow()
    found = decode_file_index(_golden_index(name), path=name)
    assert len(found) == 3
    for index in found:
        builder = BloomBuilder(items, 0.1)
        builder.add(rows.column(index.column), table.definition.schema.field(index.column).type)
        assert builder.finish().encode() == index.body


def _golden_index(name: str) -> bytes:
    table = mg.table(str(GOLDEN / name))
    [entry] = MetaReader(table.definition.paths, table.env, table.name).latest().live
    if entry.file.embedded_index is not None:
        return entry.file.embedded_index
    [beside] = entry.file.extra_files
    return (GOLDEN / name / "bucket-0" / beside).read_bytes()
