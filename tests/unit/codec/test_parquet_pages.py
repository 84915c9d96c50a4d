"""Page checksums and column statistics, read together: what the slow road through every structure says, too."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.codec.parquet_footer import chunk_facts, leaf_statistics, read_footer
from merganser.codec.parquet_pages import undamaged

ROWS = 3_000
NAMES = ("k", "text", "label", "maybe", "flag", "a name of " + "many " * 40 + "letters")
WRITERS: dict[str, dict[str, Any]] = {
    "as we write": {"write_page_index": True, "compression": "zstd", "data_page_size": 4096},
    "with bounds in page headers": {"write_page_index": False, "data_page_size": 4096},
    "pages of version 2": {"data_page_version": "2.0", "data_page_size": 4096},
    "without dictionaries": {"use_dictionary": False, "compression": "none"},
    "without checksums": {"write_page_checksum": False},
    "without statistics": {"write_statistics": False},
}


def _rows() -> pa.Table:
    chance = random.Random(4)
    columns: list[Any] = [
        pa.array(range(ROWS), pa.int64()),
        [f"{chance.random()}" for _ in range(ROWS)],
        [f"label {i % 7}" for i in range(ROWS)],
        pa.array([None if i % 10 == 0 else i * 7919 % 100_003 for i in range(ROWS)], pa.int32()),
        [i % 3 == 0 for i in range(ROWS)],
        [i / 7 for i in range(ROWS)],
    ]
    return pa.table(dict(zip(NAMES, columns, strict=True)))


def _written(writer: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_rows(), sink, row_group_size=1_000, **{"write_page_checksum": True} | WRITERS[writer])
    return sink.getvalue()


def _stretches(metadata: pq.FileMetaData) -> np.ndarray:
    chunks = [
        metadata.row_group(group).column(leaf)
        for group in range(metadata.num_row_groups)
        for leaf in range(metadata.num_columns)
    ]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    sizes = [chunk.total_compressed_size for chunk in chunks]
    return np.array([(start, start + size) for start, size in zip(starts, sizes, strict=True)], np.int64)


@pytest.mark.parametrize("writer", WRITERS)
def test_whole_pages_are_undamaged(writer: str) -> None:
    data = _written(writer)
    stretches = _stretches(pq.read_metadata(io.BytesIO(data)))
    assert undamaged(memoryview(data), stretches)
    assert not undamaged(memoryview(data), np.array([[4, len(data) + 1]]))


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if "checksums" not in writer])
def test_every_flipped_bit_of_values_is_found(writer: str) -> None:
    """A flip in a header may leave the page as it is, or make no header of it."""
    data = _written(writer)
    stretches = _stretches(pq.read_metadata(io.BytesIO(data)))
    whole = pq.read_table(io.BytesIO(data))
    chance = random.Random(7)
    found = 0
    for _ in range(200):
        damaged = bytearray(data)
        damaged[chance.randrange(int(stretches.min()), int(stretches.max()))] ^= 1 << chance.randrange(8)
        held = undamaged(memoryview(damaged), stretches)
        found += not held
        if held:  # then nothing but a header has changed, and a reader that looks at checksums finds the same
            try:
                rows = pq.read_table(io.BytesIO(bytes(damaged)), page_checksum_verification=True)
            except (OSError, ValueError):
                continue
            assert rows.num_rows != ROWS or rows.equals(whole) or writer == "pages of version 2"
    assert found > 150


@pytest.mark.parametrize("writer", WRITERS)
def test_the_statistics_of_a_column_are_those_of_the_whole_footer(writer: str) -> None:
    footer = read_footer(pa.BufferReader(_written(writer)))
    every = chunk_facts(footer)
    for leaf, name in enumerate(NAMES):
        found = leaf_statistics(footer, name, groups=3, leaves=len(NAMES))
        assert found == [group[leaf].statistics for group in every] or (
            found is None and writer == "without statistics"
        )


def test_statistics_of_other_writers_are_the_same_or_left_to_the_other_road() -> None:
    sink = io.BytesIO()
    frame = pl.from_arrow(_rows())
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(sink, row_group_size=1_000)
    footer = read_footer(pa.BufferReader(sink.getvalue()))
    every = chunk_facts(footer)
    for leaf, name in enumerate(NAMES):
        found = leaf_statistics(footer, name, groups=3, leaves=len(NAMES))
        assert found is None or found == [group[leaf].statistics for group in every]


def test_a_value_that_looks_like_the_statistics_of_a_column_is_not_taken_for_them() -> None:
    """Bounds are bytes of the footer, too: a text may hold all that stands before the statistics of another column."""
    bait = b"\x15\x02\x19\x15\x00\x19\x18\x01k\x15\x00\x16\x02\x16\x02\x16\x02\x26\x08\x3c\x36\x00\x00"
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": [1, 2], "b": pa.array([bait, bait])}), sink)
    footer = read_footer(pa.BufferReader(sink.getvalue()))
    assert bait in footer
    found = leaf_statistics(footer, "k", groups=1, leaves=2)
    assert found is None or found == [group[0].statistics for group in chunk_facts(footer)]


def test_no_footer_gives_wrong_statistics_for_a_missing_column() -> None:
    footer = read_footer(pa.BufferReader(_written("as we write")))
    assert leaf_statistics(footer, "no", groups=3, leaves=len(NAMES)) is None
