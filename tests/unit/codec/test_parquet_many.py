"""Many small Parquet files read at once give what each gives by itself, or None; damage never gives other rows."""

from __future__ import annotations

import io
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.codec import parquet_pages
from merganser.codec.data_format import WriteFormat
from merganser.codec.parquet import ParquetFileReader, ParquetFileWriter
from merganser.codec.parquet_many import read_many
from merganser.errors import FormatError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema

_LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
VALUES: dict[str, tuple[t.DataType, list[Any]]] = {
    "bool": (t.Boolean(), [True, None, False]),
    "tiny": (t.TinyInt(), [-128, None, 127]),
    "small": (t.SmallInt(), [-32768, None, 32767]),
    "int": (t.Int(), [-(2**31), None, 2**31 - 1]),
    "big": (t.BigInt(), [-(2**63), None, 2**63 - 1]),
    "float": (t.Float(), [float("-inf"), None, -0.0]),
    "double": (t.Double(), [float("inf"), None, 1.5]),
    "narrow": (t.Decimal(precision=9, scale=2), [Decimal("-1.25"), None, Decimal("9999999.99")]),
    "wide": (t.Decimal(precision=18, scale=4), [Decimal("-1.0625"), None, Decimal("99999999999999.9999")]),
    "text": (t.VarChar(), ["", None, "ö€𝄞"]),
    "bytes": (t.VarBinary(), [b"", None, b"\x00\xff"]),
    "day": (t.Date(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "ms": (t.Timestamp(precision=3), [datetime(1900, 1, 1, 1, 2, 3, 4000), None, datetime(2100, 1, 1)]),
    "us": (t.Timestamp(precision=6), [datetime(1, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "ns": (t.Timestamp(precision=9), [datetime(1700, 1, 1), None, datetime(2200, 1, 1)]),
    "instant": (
        t.LocalZonedTimestamp(precision=6),
        [datetime(1970, 1, 1, tzinfo=UTC), None, datetime.max.replace(tzinfo=UTC)],
    ),
}
OTHERS: dict[str, tuple[t.DataType, list[Any]]] = {
    "time": (t.Time(precision=3), [time(0, 0), None, time(23, 59, 59, 999000)]),
    "list": (t.Array(element=t.Int()), [[1, None], None, []]),
    "row": (t.Row(fields=(t.Field(5, "a", t.Int()),)), [{"a": 1}, None, {"a": None}]),
    "huge": (t.Decimal(precision=30, scale=2), [Decimal("-1.25"), None, Decimal("1e20")]),
}


def _file(fields: tuple[t.Field, ...], rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    writer = ParquetFileWriter(sink, fields, WriteFormat())
    writer.write(rows)
    writer.close()
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _filled(shapes: dict[str, tuple[t.DataType, list[Any]]]) -> tuple[tuple[t.Field, ...], pa.Table]:
    fields = tuple(t.Field(i, name, kind) for i, (name, (kind, _)) in enumerate(shapes.items()))
    schema = arrow_schema(fields)
    columns = [pa.array(values, f.type) for (_, values), f in zip(shapes.values(), schema, strict=True)]
    return fields, pa.table(columns, schema=schema)


def _alone(data: bytes, fields: tuple[t.Field, ...]) -> pa.Table:
    reader = ParquetFileReader(pa.BufferReader(data), "/t/a.parquet")
    try:
        return reader.read(None, fields)
    finally:
        reader.close()


def test_every_type_comes_out_as_from_the_reader_of_single_files() -> None:
    fields, rows = _filled(VALUES)
    parts = [rows, rows.slice(1), rows.slice(0, 1), pa.concat_tables([rows] * 50)]
    files = [_file(fields, part) for part in parts]
    for chosen in (fields, fields[::-1], fields[3:4]):
        found = read_many(
            files, [part.num_rows for part in parts], chosen, path="/t/a.parquet", checksums=[None] * len(files)
        )
        expected = pa.concat_tables([_alone(data, chosen) for data in files])
        assert found is not None
        assert found.schema == expected.schema
        assert found.equals(expected)


@pytest.mark.parametrize("name", OTHERS)
def test_other_types_are_left_to_the_other_reader_and_do_not_disturb_their_neighbours(name: str) -> None:
    fields, rows = _filled({"int": VALUES["int"], name: OTHERS[name]})
    data = _file(fields, rows)
    assert read_many([data], [3], fields, path="a", checksums=[None]) is None
    found = read_many([data], [3], fields[:1], path="a", checksums=[None])
    assert found is None or found.equals(_alone(data, fields[:1]))


@pytest.mark.parametrize("name", ["^b$", "*"])
def test_a_name_that_polars_takes_for_a_pattern_is_a_name(name: str) -> None:
    fields, rows = _filled({"b": (t.Int(), [1, 2, 3]), name: (t.Int(), [7, 8, 9])})
    data = _file(fields, rows)
    for chosen in (fields[1:], fields):
        found = read_many([data], [3], chosen, path="a", checksums=[None])
        assert found is None or found.equals(_alone(data, chosen))


def test_files_of_other_forms_are_left_to_the_other_reader() -> None:
    fields, rows = _filled({"int": VALUES["int"]})
    data = _file(fields, rows)
    assert read_many([data], [4], fields, path="a", checksums=[None]) is None
    assert read_many([data, data[:-1]], [3, 3], fields, path="a", checksums=[None, None]) is None
    assert read_many([data], [3], (t.Field(0, "no", t.Int()),), path="a", checksums=[None]) is None
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=1)
    assert read_many([sink.getvalue()], [3], fields, path="a", checksums=[None]) is None
    stamps = pa.table({"int": pa.array([datetime(2020, 1, 1)], pa.timestamp("us"))})
    sink = io.BytesIO()
    pq.write_table(stamps, sink, use_deprecated_int96_timestamps=True)
    assert (
        read_many([sink.getvalue()], [1], (t.Field(0, "int", t.Timestamp(precision=6)),), path="a", checksums=[None])
        is None
    )
    with patch.object(parquet_pages, "_PROCESS", -1):
        assert read_many([data], [3], fields, path="a", checksums=[None]) is None


def test_a_flipped_bit_gives_the_same_rows_or_none() -> None:
    fields, rows = _filled({name: VALUES[name] for name in ("int", "text", "narrow", "bool")})
    rows = pa.concat_tables([rows] * 30)
    data = _file(fields, rows)
    body = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    chance = random.Random(3)
    for _ in range(150):
        damaged = bytearray(data)
        damaged[chance.randrange(4, body)] ^= 1 << chance.randrange(8)
        found = read_many([data, bytes(damaged)], [rows.num_rows] * 2, fields, path="a", checksums=[None, None])
        assert found is None or found.slice(rows.num_rows).equals(rows)


ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence field": {"sequence.field": "v"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_of_many_commits_reads_as_file_by_file(tmp_path: Path, engine: str) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {"k": "INT", "v": "BIGINT", "s": "STRING"},
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true"} | ENGINES[engine],
    )
    chance = random.Random(1)
    for commit in range(12):
        keys = pa.array(sorted(chance.sample(range(40), 15)), pa.int32())
        values = [None if chance.random() < 0.2 else chance.randrange(9) for _ in range(15)]
        rows = pa.table({"k": keys, "v": pa.array(values, pa.int64()), "s": [f"{commit}"] * 15})
        kinds = ["-D" if chance.random() < 0.2 and engine in ("deduplicate", "partial-update") else "+I" for _ in keys]
        table.write(rows, kinds=kinds)
    if engine == "first-row":  # reads leave level 0 alone
        table = table.with_options({})
        table.compact()
    wide = table.read()
    for columns, where in ((None, None), (["v"], None), (["s"], "v > 3"), (None, "k < 20")):
        found = table.read(columns, where).to_arrow()
        with patch("merganser.lsm.section.MANY_FILES", 10**9):
            expected = table.read(columns, where).to_arrow()
        assert found.equals(expected), (columns, where)
        assert found.schema == expected.schema
    log = table.system("audit_log").to_arrow()
    with patch("merganser.lsm.section.MANY_FILES", 10**9):
        assert table.system("audit_log").to_arrow().equals(log)
    path = Path(table.files().column("file_path")[0].as_py())
    data = bytearray(path.read_bytes())
    data[-20] ^= 255
    path.write_bytes(bytes(data[:-30]) + bytes(data[-20:]))
    with pytest.raises(FormatError, match=path.name):
        wide.to_arrow()
