"""Avro data files and schemas: the reference writer's shapes, every writer's variants, values without loss."""

from __future__ import annotations

import collections
import io
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import file_samples as samples
import pyarrow as pa
import pytest

from merganser.codec.avro_schema import avro_schema
from merganser.codec.data_format import WriteFormat, open_reader, open_writer
from merganser.errors import FormatError, InvalidInputError, InvariantError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

ALL = {k: v for k, v in {**samples.SIMPLE, **samples.NESTED}.items() if "(9)" not in k}
ID = t.Field(0, "id", t.BigInt(nullable=False))


def numbers(count: int, start: int = 0) -> pa.Table:
    return samples.table([ID], [list(range(start, start + count))])


def of_fastavro(schema: Any, records: list[Any], codec: str = "null") -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, records, codec=codec)
    return sink.getvalue()


def read_column(data: bytes, name: str, text: str) -> list[Any]:
    column = samples.opened("avro", data).read(None, [t.Field(0, name, parse_type(text))]).column(0)
    return list((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())


@pytest.mark.parametrize("text", ALL)
def test_a_column_of_any_type_comes_back_as_it_was_written(text: str) -> None:
    fields, rows = samples.sample({text: ALL[text]})
    assert samples.same(samples.round_trip("avro", fields, rows), rows)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "gzip", "none"])
def test_all_types_together_come_back_under_every_compression(compression: str) -> None:
    fields, rows = samples.sample(ALL)
    assert samples.same(samples.round_trip("avro", fields, rows, compression=compression), rows)


def test_blocks_are_the_groups() -> None:
    reader = samples.opened("avro", samples.written("avro", [ID], [numbers(7), numbers(6, 7)], row_group_rows=5))
    assert reader.group_rows == (5, 5, 3)
    assert reader.row_count == 13
    assert reader.read(None, [ID]).equals(numbers(13))
    assert reader.read([2, 0], [ID]).column(0).to_pylist() == [10, 11, 12, 0, 1, 2, 3, 4]
    assert reader.read([], [ID]).num_rows == 0
    assert reader.read([0, 2], []).shape == (8, 0)


def test_slices_of_nested_columns_are_written_right() -> None:
    fields, rows = samples.sample(samples.NESTED)
    sliced = pa.concat_tables([rows, rows]).combine_chunks().slice(1, 4)
    assert samples.round_trip("avro", fields, sliced, row_group_rows=2).equals(sliced)


def test_a_file_without_rows_keeps_its_columns() -> None:
    fields, rows = samples.sample(ALL)
    reader = samples.opened("avro", samples.written("avro", fields, rows.slice(0, 0)))
    assert reader.column_names == tuple(rows.column_names)
    assert samples.same(reader.read(None, fields), rows.slice(0, 0))


def test_the_files_can_be_read_by_an_independent_reader() -> None:
    fields, rows = samples.sample({"INT": [1, None], "DECIMAL(9, 2)": [Decimal("-1.50"), None], "STRING": ["a", "b"]})
    records = list(fastavro.reader(io.BytesIO(samples.written("avro", fields, rows))))
    assert records == [{"c0": 1, "c1": Decimal("-1.50"), "c2": "a"}, {"c0": None, "c1": None, "c2": "b"}]


def test_there_are_no_bounds() -> None:
    assert samples.opened("avro", samples.written("avro", [ID], numbers(3))).group_bounds(ID) is None


def test_a_missing_column_is_named() -> None:
    reader = samples.opened("avro", samples.written("avro", [ID], numbers(1)))
    with pytest.raises(FormatError, match=r"column 'gone' of 'data-1\.avro'.*'id'"):
        reader.read(None, [t.Field(9, "gone", t.Int())])


def test_rows_of_another_schema_and_unknown_compressions_are_refused() -> None:
    with pytest.raises(InvariantError, match="id int32"):
        samples.written("avro", [ID], pa.table({"id": pa.array([1], pa.int32())}))
    with pytest.raises(InvalidInputError, match="'rle'"):
        open_writer(io.BytesIO(), "avro", [ID], WriteFormat(compression="rle"))


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────────


def golden_schema(file: Path) -> Any:
    return json.loads(fastavro.reader(io.BytesIO(file.read_bytes())).metadata["avro.schema"])


def test_schemas_are_those_of_the_reference_writer() -> None:
    name, file = next(f for f in samples.golden_files("avro") if f[0] == "fmt_avro_java")
    names = samples.golden_reader(file).column_names
    fields = samples.physical(next(samples.golden_schemas(name)), names)
    assert fields is not None
    assert avro_schema(fields) == golden_schema(file)


def test_nested_records_are_named_after_the_path_to_them() -> None:
    stats = t.Row(fields=(t.Field(2, "_MIN_VALUES", t.VarBinary(nullable=False)),), nullable=False)
    file = t.Field(1, "_FILE", t.Row(fields=(t.Field(3, "_KEY_STATS", stats),), nullable=False))
    ranges = t.Field(4, "_RANGES", parse_type("ARRAY<ROW<f0 STRING NOT NULL>>"))
    first, second = avro_schema([file, ranges])["fields"]
    assert first["type"]["name"] == "record__FILE"
    assert first["type"]["fields"][0]["type"]["name"] == "record__FILE__KEY_STATS"
    assert "default" not in first
    assert second["default"] is None
    assert second["type"][1]["items"][1]["name"] == "record__RANGES"


def test_maps_with_other_keys_are_arrays_of_records() -> None:
    (field,) = avro_schema([t.Field(0, "m", parse_type("MAP<INT, BIGINT>"))])["fields"]
    entries = [{"name": "key", "type": "int"}, {"name": "value", "type": ["null", "long"], "default": None}]
    record = {"type": "record", "name": "record_m", "fields": entries}
    assert field["type"] == ["null", {"type": "array", "items": record, "logicalType": "map"}]


@pytest.mark.parametrize(
    ("text", "logical"),
    [
        ("TIMESTAMP(3)", "timestamp-millis"),
        ("TIMESTAMP(6)", "timestamp-micros"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "local-timestamp-millis"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "local-timestamp-micros"),
        ("TIME(0)", "time-millis"),
        ("DATE", "date"),
    ],
)
def test_logical_types_are_those_of_the_reference_writer(text: str, logical: str) -> None:
    (field,) = avro_schema([t.Field(0, "c", parse_type(text))])["fields"]
    assert field["type"][1]["logicalType"] == logical


@pytest.mark.parametrize(
    "text", ["TIMESTAMP(9)", "TIMESTAMP(7) WITH LOCAL TIME ZONE", "TIME(6)", "VARIANT", "ARRAY<TIMESTAMP(9)>"]
)
def test_types_that_avro_cannot_hold_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="column 'c'"):
        avro_schema([t.Field(0, "c", parse_type(text))])


def test_names_that_avro_cannot_hold_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"column 'r\.a b'"):
        avro_schema([t.Field(0, "r", t.Row(fields=(t.Field(1, "a b", t.Int()),)))])


# ── what other writers do ─────────────────────────────────────────────────────────────────────────────────────


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "namespace": "n", "fields": list(fields)}


def test_a_root_that_may_be_null_and_nullable_system_columns_are_read() -> None:
    root = ["null", record({"name": "c", "type": ["long", "null"]})]
    assert read_column(of_fastavro(root, [{"c": 1}, {"c": 2}]), "c", "BIGINT NOT NULL") == [1, 2]


def test_a_type_used_twice_by_name_is_read() -> None:
    pair = {"type": "record", "name": "pair", "fields": [{"name": "x", "type": "int"}]}
    root = record({"name": "a", "type": pair}, {"name": "b", "type": ["null", "n.pair"]})
    data = of_fastavro(root, [{"a": {"x": 1}, "b": {"x": 2}}, {"a": {"x": 3}, "b": None}])
    assert read_column(data, "b", "ROW<x INT>") == [{"x": 2}, None]


def test_a_map_is_read_as_entries_or_as_records() -> None:
    as_map = record({"name": "m", "type": {"type": "map", "values": "int"}})
    assert read_column(of_fastavro(as_map, [{"m": {"a": 1}}]), "m", "MAP<STRING, INT>") == [[("a", 1)]]
    pair = {
        "type": "record",
        "name": "e",
        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "int"}],
    }
    as_records = record({"name": "m", "type": {"type": "array", "items": pair}})
    records = [{"m": [{"key": "a", "value": 1}, {"key": "a", "value": 2}]}]
    assert read_column(of_fastavro(as_records, records), "m", "MAP<STRING, INT>") == [[("a", 1), ("a", 2)]]


FIXED_DECIMAL = {"type": "fixed", "name": "f", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "stored", "text", "expected"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, -1, "TIMESTAMP(6)", -1000),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, -1, "TIMESTAMP(3) WITH LOCAL TIME ZONE", -1),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1 << 60, "TIMESTAMP(6)", 1 << 60),
        ("long", 7, "TIMESTAMP(3)", 7),
        (FIXED_DECIMAL, b"\xff\xff\x6a", "DECIMAL(6, 2)", Decimal("-1.50")),
        ("int", 5, "BIGINT", 5),
    ],
)
def test_values_held_in_another_type_are_the_same_values(schema: Any, stored: Any, text: str, expected: Any) -> None:
    plain = {k: v for k, v in schema.items() if k in ("type", "name", "size")} if isinstance(schema, dict) else schema
    data = of_fastavro(record({"name": "c", "type": plain}), [{"c": stored}])
    written, wanted = (json.dumps(record({"name": "c", "type": s})).encode() for s in (plain, schema))
    kept = fastavro.reader(io.BytesIO(data)).metadata["avro.schema"].encode()
    assert json.loads(kept) == json.loads(written)
    length = bytes([len(wanted) << 1 & 0x7F | 0x80, len(wanted) >> 6])
    start = data.index(kept)
    data = data[: start - (2 if len(kept) > 63 else 1)] + length + wanted + data[start + len(kept) :]
    assert read_column(data, "c", text) == [expected]


@pytest.mark.parametrize(
    ("schema", "stored", "text"),
    [
        ("string", "a", "INT"),
        ("int", 1000, "TINYINT"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3}, Decimal("1.500"), "DECIMAL(6, 2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("1234.50"), "DECIMAL(5, 2)"),
        (["int", "string"], 1, "INT"),
        ({"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}, "ROW<y INT>"),
    ],
)
def test_a_type_that_cannot_hold_the_declared_values_is_refused(schema: Any, stored: Any, text: str) -> None:
    with pytest.raises(FormatError, match=r"data-1\.avro"):
        read_column(of_fastavro(record({"name": "c", "type": schema}), [{"c": stored}]), "c", text)


def test_every_golden_file_can_be_read_in_full() -> None:
    files = samples.golden_files("avro")
    assert len(files) >= 12
    for name, file in files:
        reader = samples.golden_reader(file)
        fields = samples.physical(next(samples.golden_schemas(name)), reader.column_names)
        assert fields is not None
        rows = reader.read(None, fields)
        rows.validate(full=True)
        independent = list(fastavro.block_reader(io.BytesIO(file.read_bytes()))) if name != "fmt_level_java" else []
        assert rows.num_rows == sum(reader.group_rows) == reader.row_count
        assert not independent or reader.group_rows == tuple(block.num_records for block in independent)


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────────


def damage_sample(compression: str) -> tuple[tuple[t.Field, ...], pa.Table, bytes]:
    texts = ("INT", "STRING", "DECIMAL(9, 2)", "TIMESTAMP(3)", "ARRAY<ARRAY<BIGINT>>", "MAP<INT, ARRAY<STRING>>")
    fields, rows = samples.sample({k: ALL[k] * 20 for k in texts})
    return fields, rows, samples.written("avro", fields, rows, row_group_rows=25, compression=compression)


def outcome(data: bytes, fields: tuple[t.Field, ...], rows: pa.Table, size: int) -> str:
    try:
        read = open_reader(pa.BufferReader(data), "avro", "data-1.avro", size).read(None, fields)
    except FormatError as error:
        return "refused" if "data-1.avro" in str(error) else "refused without a name"
    read.validate(full=True)
    return "same" if read.equals(rows) else "different"


def test_a_file_cut_anywhere_is_refused_between_two_blocks_too() -> None:
    fields, rows, data = damage_sample("zstd")
    cuts = {0, 1, 4, len(data) - 1, *random.Random(5).sample(range(len(data)), 100)}
    assert {outcome(data[:cut], fields, rows, len(data)) for cut in cuts} == {"refused"}


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_flipped_bits_end_in_a_sound_table_or_a_format_error(compression: str) -> None:
    """Only snappy blocks carry a checksum, so under the others a value may change unseen."""
    fields, rows, data = damage_sample(compression)
    rng = random.Random(7)
    outcomes: collections.Counter[str] = collections.Counter()
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        outcomes[outcome(bytes(damaged), fields, rows, len(data))] += 1
    assert outcomes["refused"] > 60


def test_foreign_bytes_are_refused() -> None:
    for data in (b"", b"Obj\x01", b"x" * 5000):
        with pytest.raises(FormatError, match=r"data-1\.avro"):
            samples.opened("avro", data)
