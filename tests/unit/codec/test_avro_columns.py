"""Container files read together: the same values as alone, with the accelerator and without, and no damage spreads."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import fastavro
import pytest

from merganser.codec import avro_accelerator, avro_columns
from merganser.codec.avro import read_records, write_records
from merganser.codec.avro_columns import Columns, columns_of, read_together
from merganser.storage.scratch import scratch_file

SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "n", "type": "long"},
            {
                "name": "file",
                "type": {
                    "type": "record",
                    "name": "f",
                    "fields": [
                        {"name": "name", "type": "string"},
                        {"name": "key", "type": "bytes"},
                        {"name": "made", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
                        {"name": "counts", "type": ["null", {"type": "array", "items": ["null", "long"]}]},
                    ],
                },
            },
        ],
    }
)
OTHER = fastavro.parse_schema({"type": "record", "name": "o", "fields": [{"name": "x", "type": "int"}]})


def _records(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "n": i,
            "file": {
                "name": f"data-{i}",
                "key": i.to_bytes(12, "big"),
                "made": None if i % 5 == 0 else 1_700_000_000_000 + i,
                "counts": None if i % 7 == 0 else [i, None, 0],
            },
        }
        for i in range(start, start + count)
    ]


def _file(start: int, count: int, codec: str = "zstd") -> bytes:
    return write_records(SCHEMA, _records(start, count), compression=codec)


@pytest.fixture(params=["accelerated", "accelerated, no files in memory", "accelerated, other version", "plain"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With polars-avro for files of any size, and without it."""
    if request.param == "plain":
        monkeypatch.setattr(avro_accelerator, "pays", lambda _: False)
    else:
        pytest.importorskip("polars_avro")
        monkeypatch.setattr(avro_accelerator, "pays", lambda _: True)
        monkeypatch.setattr(avro_columns, "_BATCH_ROWS", 100)
    if request.param.endswith("other version"):
        monkeypatch.setattr(avro_accelerator, "_TRIED", ())
    if request.param.endswith("no files in memory"):
        monkeypatch.delattr(os, "memfd_create", raising=False)
    return str(request.param)


def test_the_accelerator_that_is_installed_is_one_we_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reached below its public functions, so that another version may lack what we ask of it."""
    pytest.importorskip("polars_avro")
    assert version("polars-avro").startswith(avro_accelerator._TRIED)

    def none(*_: object) -> None:
        raise AssertionError("read without the accelerator")

    monkeypatch.setattr(avro_columns, "read_records", none)
    monkeypatch.setattr(avro_accelerator, "pays", lambda _: True)
    assert _read([_file(0, 3), _file(3, 5)])[0] == {0: 3, 1: 5}


def test_the_accelerator_is_imported_once_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import takes 150 ms, so a process that reads little does without it."""
    pytest.importorskip("polars_avro")
    monkeypatch.delitem(sys.modules, "polars_avro")
    monkeypatch.setattr(avro_accelerator, "_seen_bytes", 0)
    asked = [avro_accelerator.pays(size) for size in (10_000, 100_000, 100_000, 100_000, 1_000)]
    assert asked == [False, False, False, True, False]
    monkeypatch.setattr(avro_accelerator, "_NAME", "no_such_library")
    assert not avro_accelerator.pays(10_000_000)


def _read(files: list[bytes], whole: list[bool] | None = None) -> tuple[dict[int, int], list[Columns]]:
    """Return the number of records of each file that was read, and the columns of the groups."""
    counts: dict[int, int] = {}
    columns = []
    for together in read_together(files, [True] * len(files) if whole is None else whole, scratch_file):
        counts |= dict(zip(together.members, together.counts, strict=True))
        columns.append(together.columns)
    return counts, columns


@pytest.mark.parametrize("codec", ["zstd", "snappy", "deflate", "none"])
def test_files_read_together_hold_what_each_holds(codec: str, library: str) -> None:
    files = [_file(0, 3, codec), _file(3, 700, codec), _file(703, 1, codec)]
    counts, [columns] = _read(files)
    assert counts == {0: 3, 1: 700, 2: 1}, library
    expected = _records(0, 704)
    assert columns == {
        "n": list(range(704)),
        "file.name": [record["file"]["name"] for record in expected],
        "file.key": [record["file"]["key"] for record in expected],
        "file.made": [record["file"]["made"] for record in expected],
        "file.counts": [record["file"]["counts"] for record in expected],
    }


def test_equal_arrays_of_a_batch_are_in_memory_once(library: str) -> None:
    kind = {"type": "array", "items": "long"}
    schema = fastavro.parse_schema({"type": "record", "name": "r", "fields": [{"name": "counts", "type": kind}]})
    lists = [[], [1, 2], [], [3], [1, 2]]
    data = write_records(schema, [{"counts": values} for values in lists], compression="none")
    [[counts]] = [columns.values() for columns in _read([data])[1]]
    assert [list(values) for values in counts] == lists
    assert library == "plain" or counts[1] is counts[4]


def test_files_of_other_schemas_and_codecs_are_groups_of_their_own(library: str) -> None:
    other = write_records(OTHER, [{"x": 7}], compression="zstd")
    counts, columns = _read([_file(0, 2), other, _file(2, 2, "none"), _file(4, 1)])
    assert counts == {0: 2, 1: 1, 2: 2, 3: 1}, library
    assert [group.get("n", group.get("x")) for group in columns] == [[0, 1, 4], [7], [2, 3]]


def test_files_that_cannot_be_read_are_left_out_and_do_no_harm(library: str) -> None:
    good = _file(0, 2)
    marker_gone = good[:-1] + bytes([good[-1] ^ 1])
    files = [b"", b"Obj\x01", b"no avro at all", marker_gone, good[:-20], _file(0, 0), good]
    assert _read(files)[0] == {6: 2}, library


def test_a_damaged_block_leaves_its_group_to_be_read_one_by_one(library: str) -> None:
    good = _file(0, 300)
    at = len(good) // 2
    spoilt = good[:at] + bytes(byte ^ 0xFF for byte in good[at : at + 40]) + good[at + 40 :]
    assert _read([good, spoilt]) == ({}, []), library
    assert len(read_records(good, "p")) == 300


def test_files_that_may_be_damaged_are_kept_from_the_accelerator(library: str) -> None:
    """A block with more bytes than its rows take is one that polars-avro never gets through."""
    data = write_records(OTHER, [{"x": 1}] * 9, compression="none")
    while 18 in data[-16:]:  # the mark before and behind each block is random
        data = write_records(OTHER, [{"x": 1}] * 9, compression="none")
    assert data.count(bytes([18, 18])) == 1  # nine rows in nine bytes
    longer = data.replace(bytes([18, 18]), bytes([16, 18]))
    assert _read([longer], [False])[0] == {0: 8}, library
    counts, columns = _read([_file(0, 2), longer, _file(2, 1)], [True, False, True])
    assert counts == {0: 2, 1: 8, 2: 1}
    assert [group.get("n", group.get("x")) for group in columns] == [[0, 1, 2], [1] * 8]


def test_a_header_that_is_no_schema_is_left_out(library: str) -> None:
    good = _file(0, 2)
    at = good.index(b'{"type"') if b'{"type"' in good else good.index(b"{")
    assert _read([good[:at] + b"[" + good[at + 1 :]]) == ({}, []), library


def test_microseconds_become_milliseconds(library: str) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "made", "type": {"type": "long", "logicalType": "timestamp-micros"}}],
    }
    made = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    out = io.BytesIO()
    fastavro.writer(out, schema, [{"made": made}])
    assert _read([out.getvalue()])[1] == [{"made": [1_772_366_400_123]}], library


def test_records_become_columns_by_dotted_names() -> None:
    made = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    records: list[dict[str, Any]] = [{"a": 1, "b": {"c": None}}, {"a": 2, "b": {"c": made}}]
    assert columns_of(records) == {"a": [1, 2], "b.c": [None, 1_772_366_400_123]}
    assert columns_of([]) == {}
    with pytest.raises(KeyError):
        columns_of([{"a": 1}, {"b": 1}])
