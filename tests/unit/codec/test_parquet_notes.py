"""What a Parquet footer notes of a column that is 0 in every row: true, per file, and gone when it is damaged."""

from __future__ import annotations

import io

import file_samples as samples
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.codec.data_format import open_reader
from merganser.schema import types as t

KIND = t.Field(0, "_VALUE_KIND", t.TinyInt(nullable=False))
OTHER = t.Field(1, "n", t.Int())
FIELDS = (KIND, OTHER)


def noting(kinds: list[int], often_zero: str | None = "_VALUE_KIND") -> bytes:
    rows = samples.table(FIELDS, [kinds, [0] * len(kinds)])
    return samples.written("parquet", FIELDS, rows, row_group_rows=2, often_zero=often_zero)


def test_zeros_in_every_row_group_are_noted() -> None:
    reader = samples.opened("parquet", noting([0, 0, 0, 0, 0]))
    assert reader.all_zero("_VALUE_KIND")
    assert not reader.all_zero("n")  # they are, and nobody asked the writer to look


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_one_other_value_in_any_row_group_forbids_the_note(at: int, kind: int) -> None:
    kinds = [0] * 5
    kinds[at] = kind
    assert not samples.opened("parquet", noting(kinds)).all_zero("_VALUE_KIND")


def test_nothing_is_noted_unasked() -> None:
    assert not samples.opened("parquet", noting([0, 0], often_zero=None)).all_zero("_VALUE_KIND")


def test_notes_that_a_library_handed_on_to_another_file_are_not_believed() -> None:
    data = noting([0, 0, 0, 0])
    copied = io.BytesIO()
    pq.write_table(pq.read_table(pa.BufferReader(data)), copied)
    assert b"merganser.all-zero" in copied.getvalue()
    other = open_reader(pa.BufferReader(copied.getvalue()), "parquet", "db.db/t/bucket-0/data-2.parquet", 0)
    assert not other.all_zero("_VALUE_KIND")
    assert other.group_bounds(OTHER) is not None  # by the statistics


def test_a_flipped_bit_makes_the_note_say_nothing() -> None:
    data = noting([0, 0, 0])
    start = data.index(b"merganser.all-zero")
    length = len(b"merganser.all-zero")
    for at in (start, start + length - 1, data.index(b"_VALUE_KIND", start)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert not samples.opened("parquet", bytes(damaged)).all_zero("_VALUE_KIND")


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_other_formats_note_nothing(file_format: str) -> None:
    rows = samples.table(FIELDS, [[0, 0], [0, 0]])
    data = samples.written(file_format, FIELDS, rows, often_zero="_VALUE_KIND")
    assert not samples.opened(file_format, data).all_zero("_VALUE_KIND")
