"""Parquet data files: every type and every writer's layout, and nothing but FormatError from damage."""

from __future__ import annotations

import collections
import gc
import io
import json
import random
import struct
import sys
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import file_samples as samples
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.codec import thrift
from merganser.codec.data_format import WriteFormat, format_of, open_reader, open_writer
from merganser.errors import FormatError, InvalidInputError, InvariantError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.types_text import parse_type

ALL = {**samples.SIMPLE, **samples.NESTED, **samples.VARIANT}
ID = t.Field(0, "id", t.BigInt(nullable=False))


def numbers(count: int, start: int = 0) -> pa.Table:
    return samples.table([ID], [list(range(start, start + count))])


def of_arrow(rows: pa.Table, **options: Any) -> bytes:
    """Return a file as some other writer would lay it out."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def read_as(data: bytes, name: str, text: str) -> pa.ChunkedArray:
    return samples.opened("parquet", data).read(None, [t.Field(0, name, parse_type(text))]).column(0)


@pytest.mark.parametrize("text", ALL)
def test_a_column_of_any_type_comes_back_as_it_was_written(text: str) -> None:
    fields, rows = samples.sample({text: ALL[text]})
    assert samples.same(samples.round_trip("parquet", fields, rows), rows)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "LZ4", "gzip", "none"])
def test_all_types_together_come_back_under_every_compression(compression: str) -> None:
    fields, rows = samples.sample(ALL)
    assert samples.same(samples.round_trip("parquet", fields, rows, compression=compression), rows)


def test_row_groups_that_arrow_does_not_take_at_once_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow refuses 2 GiB of nested texts in one row group; `python -m tests.large_text` has as many."""
    fields, rows = samples.sample(ALL)
    reader: Any = samples.opened("parquet", samples.written("parquet", fields, rows))

    def refuse(*_: Any, **__: Any) -> None:
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

    refusing = SimpleNamespace(schema=reader._parquet.schema, reader=SimpleNamespace(read_row_groups=refuse))
    monkeypatch.setattr(reader, "_parquet", refusing)
    assert samples.same(reader.read(None, fields), rows)


def test_not_null_columns_are_required_in_the_file() -> None:
    data = samples.written("parquet", [ID], numbers(3))
    assert pq.read_schema(io.BytesIO(data)).field("id").nullable is False


def test_a_null_in_a_required_column_is_refused() -> None:
    rows = pa.Table.from_arrays([pa.array([1, None])], schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    with pytest.raises(InvariantError, match="non-nullable"):
        samples.written("parquet", [ID], rows)


def test_rows_of_another_schema_are_refused() -> None:
    with pytest.raises(InvariantError, match="id int32"):
        samples.written("parquet", [ID], pa.table({"id": pa.array([1], pa.int32())}))


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'rle'"):
        open_writer(io.BytesIO(), "parquet", [ID], WriteFormat(compression="rle"))


def test_a_file_without_rows_keeps_its_columns() -> None:
    fields, rows = samples.sample(ALL)
    reader = samples.opened("parquet", samples.written("parquet", fields, rows.slice(0, 0)))
    assert reader.row_count == 0
    assert samples.same(reader.read(None, fields), rows.slice(0, 0))


def test_closing_the_writer_leaves_the_sink_open() -> None:
    sink = io.BytesIO()
    open_writer(sink, "parquet", [ID], WriteFormat()).close()
    assert not sink.closed


def test_an_aborted_writer_is_quiet_when_its_sink_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    sink = io.BytesIO()
    writer = open_writer(sink, "parquet", [ID], WriteFormat(row_group_rows=2))
    writer.write(numbers(5))
    writer.abort()
    sink.close()
    del writer
    gc.collect()
    assert complaints == []


def test_rows_are_cut_into_groups_whatever_the_calls_were() -> None:
    parts = [numbers(3), numbers(1, 3), numbers(0), numbers(9, 4)]
    reader = samples.opened("parquet", samples.written("parquet", [ID], parts, row_group_rows=5))
    assert reader.group_rows == (5, 5, 3)
    assert reader.read(None, [ID]).equals(numbers(13))


def test_wide_rows_make_shorter_groups() -> None:
    field = t.Field(0, "s", t.VarChar())
    rows = samples.table([field], [["x" * 1000] * 100])
    reader = samples.opened("parquet", samples.written("parquet", [field], rows, block_size_bytes=10_000))
    assert max(reader.group_rows) <= 10
    assert sum(reader.group_rows) == reader.row_count == 100


def test_groups_are_read_in_the_order_they_are_asked_for() -> None:
    reader = samples.opened("parquet", samples.written("parquet", [ID], numbers(9), row_group_rows=4))
    assert reader.read([2, 0], [ID]).column(0).to_pylist() == [8, 0, 1, 2, 3]
    assert reader.read([], [ID]).num_rows == 0


def test_columns_come_in_the_order_they_are_asked_for() -> None:
    fields, rows = samples.sample(samples.NESTED)
    reader = samples.opened("parquet", samples.written("parquet", fields, rows))
    wanted = [fields[6], fields[3], fields[0]]
    assert reader.read(None, wanted).equals(rows.select([f.name for f in wanted]))


def test_reading_no_column_gives_the_number_of_rows() -> None:
    reader = samples.opened("parquet", samples.written("parquet", [ID], numbers(9), row_group_rows=4))
    assert reader.read([0, 2], []).shape == (5, 0)


def test_names_with_dots_are_names() -> None:
    row = t.Field(1, "a", t.Row(fields=(t.Field(2, "b", t.Int()),)))
    flat = t.Field(3, "a.b", t.VarChar())
    rows = samples.table([row, flat], [[{"b": 1}], ["x"]])
    reader = samples.opened("parquet", samples.written("parquet", [row, flat], rows))
    assert reader.read(None, [flat]).equals(rows.select(["a.b"]))
    assert reader.read(None, [row]).equals(rows.select(["a"]))


def test_a_missing_column_is_named() -> None:
    reader = samples.opened("parquet", samples.written("parquet", [ID], numbers(1)))
    with pytest.raises(FormatError, match=r"column 'gone' of 'data-1\.parquet'.*'id'"):
        reader.read(None, [t.Field(9, "gone", t.Int())])


def test_closing_the_reader_closes_its_file() -> None:
    file = pa.BufferReader(samples.written("parquet", [ID], numbers(1)))
    reader = open_reader(file, "parquet", "f", file.size())
    reader.close()
    reader.close()
    assert file.closed


def test_a_python_file_is_read_as_well() -> None:
    data = samples.written("parquet", [ID], numbers(7))
    assert open_reader(io.BytesIO(data), "parquet", "f", len(data)).read(None, [ID]).equals(numbers(7))


# ── the layout on disk ────────────────────────────────────────────────────────────────────────────────────────


def schema_of(name: str) -> pq.ParquetSchema:
    _, file = next(f for f in samples.golden_files("parquet") if f[0] == name)
    return pq.ParquetFile(file).schema


def schema_lines(schema: pq.ParquetSchema) -> list[str]:
    """Return the schema as text without the root's name and the outdated annotation of `key_value`."""
    return [line.replace("key_value (Map)", "key_value") for line in str(schema).splitlines()[2:]]


@pytest.mark.parametrize("name", ["types_java", "nested_java", "dects_java", "multiset_java", "nested_pk_java"])
def test_types_names_and_ids_in_the_file_are_those_of_the_reference_writer(name: str) -> None:
    theirs = schema_of(name)
    names = list(theirs.to_arrow_schema().names)
    fields = samples.physical(next(samples.golden_schemas(name)), names)
    assert fields is not None
    ours = pq.ParquetFile(
        io.BytesIO(samples.written("parquet", fields, samples.table(fields, [[] for _ in fields])))
    ).schema
    assert schema_lines(ours) == schema_lines(theirs)


def test_nanosecond_timestamps_are_int64() -> None:
    fields, rows = samples.sample({"TIMESTAMP(9)": [0, None]})
    column = pq.ParquetFile(io.BytesIO(samples.written("parquet", fields, rows))).schema.column(0)
    assert column.physical_type == "INT64"
    assert json.loads(column.logical_type.to_json())["timeUnit"] == "nanoseconds"


def test_the_parts_of_a_variant_have_ids_0_and_1() -> None:
    fields, rows = samples.sample(samples.VARIANT, first_id=7)
    text = str(pq.ParquetFile(io.BytesIO(samples.written("parquet", fields, rows))).schema)
    assert "required binary field_id=0 value;" in text
    assert "required binary field_id=1 metadata;" in text


def encodings(fields: list[t.Field], columns: list[list[Any]]) -> list[set[str]]:
    data = samples.written("parquet", fields, samples.table(fields, columns))
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    return [set(group.column(i).encodings) for i in range(group.num_columns)]


def test_dictionaries_are_for_values_that_repeat() -> None:
    fields = [t.Field(0, "state", t.VarChar()), t.Field(1, "name", t.VarChar()), t.Field(2, "kind", t.TinyInt())]
    columns: list[list[Any]] = [["new", "paid"] * 500, [f"n{i}" for i in range(1000)], [0] * 1000]
    state, name, kind = encodings(fields, columns)
    assert "RLE_DICTIONARY" in state
    assert "RLE_DICTIONARY" not in name
    assert "RLE_DICTIONARY" in kind


def test_integers_that_lie_close_together_are_deltas_and_others_plain() -> None:
    fields = [t.Field(0, "near", t.BigInt()), t.Field(1, "far", t.BigInt()), t.Field(2, "at", t.Timestamp(3))]
    near, far, at = encodings(fields, [list(range(1000)), [i << 52 for i in range(1000)], list(range(1000))])
    assert "DELTA_BINARY_PACKED" in near
    assert "DELTA_BINARY_PACKED" in at
    assert "DELTA_BINARY_PACKED" not in far


@pytest.mark.parametrize(
    ("kind", "near", "expected"),
    [
        ("DECIMAL(9, 2)", 7, True),
        ("DECIMAL(18, 4)", 7, True),
        ("DECIMAL(18, 4)", 10**13, False),
        ("DECIMAL(20, 2)", 7, False),
    ],
)
def test_decimals_stored_as_integers_that_lie_close_together_are_deltas(kind: str, near: int, expected: bool) -> None:
    type_ = parse_type(kind)
    assert isinstance(type_, t.Decimal)
    fields = [t.Field(0, "price", type_)]
    values = [None if i % 10 == 0 else Decimal(i * near - 1000).scaleb(-type_.scale) for i in range(1000)]
    rows = samples.table(fields, [values])
    [found] = encodings(fields, [values])
    assert ("DELTA_BINARY_PACKED" in found) == expected
    assert samples.same(samples.round_trip("parquet", fields, rows), rows)


@pytest.mark.parametrize("compression", ["zstd", "snappy"])
def test_columns_that_compression_makes_no_smaller_are_stored_without_it(compression: str) -> None:
    noise = np.random.default_rng(3)
    fields = [
        t.Field(0, "noise", t.BigInt()),
        t.Field(1, "even", t.Double()),
        t.Field(2, "label", t.VarChar()),
        t.Field(3, "a.b", t.Double()),
        t.Field(4, "list", t.Array(element=t.BigInt())),
    ]
    rows = 40_000
    numbers_, labels = noise.integers(-(2**62), 2**62, rows), ["new", "paid"] * (rows // 2)
    columns = [numbers_, np.arange(rows) / 4, labels, noise.random(rows), [[n] for n in numbers_.tolist()]]
    table_ = pa.table(dict(zip((f.name for f in fields), columns, strict=True)))
    table_ = table_.cast(arrow_schema(fields))
    data = samples.written("parquet", fields, table_, compression=compression)
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    used = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    packed = compression.upper()
    assert used["even"] == used["label"] == packed
    assert used["noise"] == "UNCOMPRESSED"
    assert used["list.list.element"] == "UNCOMPRESSED"
    assert samples.same(samples.opened("parquet", data).read(None, fields), table_)
    alone = samples.written("parquet", fields[:1], table_.select(["noise"]), compression=compression)
    assert pq.read_metadata(io.BytesIO(alone)).row_group(0).column(0).compression == "UNCOMPRESSED"


def test_the_footer_holds_no_arrow_schema() -> None:
    metadata = pq.read_metadata(io.BytesIO(samples.written("parquet", [ID], numbers(1)))).metadata or {}
    assert b"ARROW:schema" not in metadata


def test_a_footer_written_back_is_the_same_footer() -> None:
    fields, rows = samples.sample(ALL)
    data = samples.written("parquet", fields, rows)
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert thrift.write_struct(thrift.read_struct(footer)) == footer


# ── what other writers do ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("STRING", pa.array(["a", None, "a"]).dictionary_encode()),
        ("STRING", pa.array(["a", None], pa.large_string())),
        ("STRING", pa.array([b"a", None], pa.binary())),
        ("BYTES", pa.array([b"ab", None], pa.binary(2))),
        ("ARRAY<STRING>", pa.array([["a", None], None, []], pa.large_list(pa.field("array", pa.large_string())))),
        ("ARRAY<INT>", pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2))),
        ("MAP<STRING, INT>", pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.field("v", pa.int32())))),
        ("ROW<x INT NOT NULL>", pa.array([{"y": 2, "x": 1}], pa.struct([("y", pa.int64()), ("x", pa.int32())]))),
        ("DECIMAL(9, 2)", pa.array([Decimal("1.50"), None], pa.decimal128(20, 2))),
        ("BIGINT", pa.array([1, None], pa.int32())),
        ("DOUBLE", pa.array([0.5, None], pa.float32())),
        ("TIME(3)", pa.array([1_000, None], pa.time64("us"))),
        ("TIMESTAMP(6)", pa.array([-5, None], pa.timestamp("ms"))),
        ("TIMESTAMP(9)", pa.array([-5, None], pa.timestamp("us"))),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.array([5, None], pa.timestamp("ms"))),
    ],
)
def test_values_held_in_another_physical_type_are_the_same_values(text: str, held: pa.Array) -> None:
    field = t.Field(0, "c", parse_type(text))
    read = read_as(of_arrow(pa.table({"c": held})), "c", text)
    plain = held.dictionary_decode() if pa.types.is_dictionary(held.type) else held
    expected = samples.table([field], [plain.cast(pa.binary()).to_pylist() if text == "BYTES" else _plain(plain, text)])
    assert str(read.type) == str(expected.column(0).type)
    assert read.equals(expected.column(0))


def _plain(values: pa.Array, text: str) -> list[Any]:
    if text == "STRING":
        return list(values.cast(pa.string()).to_pylist())
    if text.startswith("ROW"):
        return [{"x": row["x"]} for row in values.to_pylist()]
    if text.startswith("TIME(") or not text.startswith("TIMESTAMP"):
        return list(values.to_pylist())
    factor = {"ms": 10**6, "us": 10**3, "ns": 1}
    target = {"3": "ms", "6": "us", "9": "ns"}[text[10]]
    counts = values.view(pa.int64()).to_pylist()
    return [None if v is None else v * factor[values.type.unit] // factor[target] for v in counts]


def test_digits_beyond_the_declared_precision_are_rounded_down() -> None:
    data = of_arrow(pa.table({"c": pa.array([-1, 1_999, None], pa.timestamp("us"))}))
    assert read_as(data, "c", "TIMESTAMP(3)").cast(pa.int64()).to_pylist() == [-1, 1, None]


def test_parts_of_a_slice_keep_their_places() -> None:
    held = pa.array([[1], [2, 3], None, [4]], pa.list_(pa.field("item", pa.int64())))
    data = of_arrow(pa.table({"c": held}), row_group_size=3)
    assert read_as(data, "c", "ARRAY<BIGINT>").to_pylist() == [[1], [2, 3], None, [4]]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("INT", pa.array(["a"])),
        ("TINYINT", pa.array([1000], pa.int32())),
        ("FLOAT", pa.array([0.1], pa.float64())),
        ("DECIMAL(10, 2)", pa.array([Decimal("1.5000")], pa.decimal128(10, 4))),
        ("ARRAY<INT>", pa.array([1], pa.int32())),
        ("ROW<x INT, y INT>", pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))),
        ("STRING", pa.array([b"\xff"], pa.binary())),
    ],
)
def test_a_type_that_cannot_hold_the_declared_values_is_refused(text: str, held: pa.Array) -> None:
    with pytest.raises(FormatError, match=r"data-1\.parquet.*column 'c'"):
        read_as(of_arrow(pa.table({"c": held})), "c", text)


def test_a_timestamp_that_nanoseconds_cannot_hold_is_refused() -> None:
    data = of_arrow(pa.table({"c": pa.array([samples.YEAR_9999_MS], pa.timestamp("ms"))}))
    with pytest.raises(UnsupportedError, match="2262"):
        read_as(data, "c", "TIMESTAMP(9)")


def test_a_shredded_variant_is_refused() -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    data = of_arrow(pa.table({"c": pa.array([{"metadata": b"", "value": None, "typed_value": 1}], kind)}))
    with pytest.raises(UnsupportedError, match="shredded"):
        read_as(data, "c", "VARIANT")


INT96_MOMENTS = [0, -1, 1_709_210_096_789_012_345, -(10**18), samples.NANOS_MAX, None]


@pytest.mark.parametrize("text", ["TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE"])
def test_int96_nanoseconds_are_exact(text: str) -> None:
    data = of_arrow(pa.table({"c": pa.array(INT96_MOMENTS, pa.timestamp("ns"))}), use_deprecated_int96_timestamps=True)
    assert read_as(data, "c", text).cast(pa.int64()).to_pylist() == INT96_MOMENTS


@pytest.mark.parametrize(("text", "divisor"), [("TIMESTAMP(3)", 10**6), ("TIMESTAMP(6)", 10**3)])
def test_int96_in_coarser_units_is_rounded_down(text: str, divisor: int) -> None:
    data = of_arrow(pa.table({"c": pa.array(INT96_MOMENTS, pa.timestamp("ns"))}), use_deprecated_int96_timestamps=True)
    expected = [None if v is None else v // divisor for v in INT96_MOMENTS]
    assert read_as(data, "c", text).cast(pa.int64()).to_pylist() == expected


def int96_file(nanos: int, day: int) -> bytes:
    """Return a file with one INT96 value that only its bytes tell: nanoseconds of the day, and Julian day."""
    rows = pa.table({"c": pa.array([1_000_000_007], pa.timestamp("ns"))})
    data = of_arrow(rows, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False)
    return data.replace(struct.pack("<qi", 1_000_000_007, 2_440_588), struct.pack("<qi", nanos, day))


def test_int96_of_the_reference_writer_counts_back_from_1970() -> None:
    assert read_as(int96_file(-1, 2_440_588), "c", "TIMESTAMP(9)").cast(pa.int64()).to_pylist() == [-1]
    assert read_as(int96_file(-1, 2_440_588), "c", "TIMESTAMP(6)").cast(pa.int64()).to_pylist() == [-1]


@pytest.mark.parametrize("year_day", [2_451_544 + 500 * 365, 5_373_484, 1_721_426])
def test_int96_far_from_today_is_exact_in_microseconds_and_refused_in_nanoseconds(year_day: int) -> None:
    data = int96_file(1_000, year_day)
    micros = (year_day - 2_440_588) * 86_400_000_000 + 1
    assert read_as(data, "c", "TIMESTAMP(6)").cast(pa.int64()).to_pylist() == [micros]
    with pytest.raises(UnsupportedError, match="2262"):
        read_as(data, "c", "TIMESTAMP(9)")


def test_int96_inside_lists_beside_other_columns_is_exact() -> None:
    held = pa.array([[-1, None], None, [samples.NANOS_MAX]], pa.list_(pa.field("element", pa.timestamp("ns"))))
    data = of_arrow(pa.table({"a": [1, 2, 3], "c": held}), use_deprecated_int96_timestamps=True)
    fields = [t.Field(1, "c", parse_type("ARRAY<TIMESTAMP(9)>")), t.Field(0, "a", t.BigInt())]
    read = samples.opened("parquet", data).read(None, fields)
    assert read.column("a").to_pylist() == [1, 2, 3]
    assert read.column("c").combine_chunks().flatten().cast(pa.int64()).to_pylist() == [-1, None, samples.NANOS_MAX]


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────


def bounds(text: str, values: list[Any], **options: Any) -> Any:
    field = t.Field(0, "c", parse_type(text))
    data = samples.written("parquet", [field], samples.table([field], [values]), **options)
    return samples.opened("parquet", data).group_bounds(field)


@pytest.mark.parametrize("text", [k for k in samples.SIMPLE if k not in ("FLOAT", "DOUBLE")])
def test_bounds_are_the_smallest_and_largest_value(text: str) -> None:
    values = samples.SIMPLE[text]
    known = [v for v in values if v is not None]
    assert bounds(text, values) == ([min(known)], [max(known)], [1])


def test_bounds_are_given_per_row_group_and_unknown_where_all_is_null() -> None:
    assert bounds("INT", [3, 1, None, None, 7, 9], row_group_rows=2) == ([1, None, 7], [3, None, 9], [0, 2, 0])


def test_floating_point_columns_have_null_counts_only() -> None:
    assert bounds("DOUBLE", [1.0, float("nan"), None]) == ([None], [None], [1])


def test_bounds_of_nested_and_missing_columns_are_unknown() -> None:
    assert bounds("ARRAY<INT>", [[1]]) is None
    reader = samples.opened("parquet", samples.written("parquet", [ID], numbers(1)))
    assert reader.group_bounds(t.Field(1, "gone", t.Int())) is None


@pytest.mark.parametrize(
    ("text", "held", "low", "high"),
    [
        ("DECIMAL(9, 2)", pa.array([Decimal("-1.50"), Decimal("2.25")]), Decimal("-1.50"), Decimal("2.25")),
        ("TIMESTAMP(3)", pa.array([-1, 1_999], pa.timestamp("us")), -1, 1),
        ("TIMESTAMP(9)", pa.array([-1, 1], pa.timestamp("ms")), -1_000_000, 1_000_000),
        ("TIME(3)", pa.array([1_000, 5_000], pa.time64("us")), 1, 5),
        ("INT", pa.array(["a"]), None, None),
    ],
)
def test_bounds_are_in_the_units_of_the_declared_type(text: str, held: pa.Array, low: Any, high: Any) -> None:
    reader = samples.opened("parquet", of_arrow(pa.table({"c": held})))
    assert reader.group_bounds(t.Field(0, "c", parse_type(text))) == ([low], [high], [0])


def test_int96_columns_and_files_without_statistics_have_no_bounds() -> None:
    rows = pa.table({"c": pa.array([1], pa.timestamp("ns"))})
    field = t.Field(0, "c", t.Timestamp(9))
    int96 = samples.opened("parquet", of_arrow(rows, use_deprecated_int96_timestamps=True)).group_bounds(field)
    assert int96 is not None
    assert int96[:2] == ([None], [None])
    assert samples.opened("parquet", of_arrow(rows, write_statistics=False)).group_bounds(field) == (
        [None],
        [None],
        [None],
    )


def test_bounds_of_golden_files_are_those_of_their_values() -> None:
    for name, file in samples.golden_files("parquet"):
        if name not in ("types_java", "types_rust", "types_py", "dects_java", "dects_py", "dects_rust"):
            continue
        reader = samples.golden_reader(file)
        for field in samples.physical(next(samples.golden_schemas(name)), reader.column_names) or ():
            found = reader.group_bounds(field)
            assert found is not None
            values = _stored(reader.read([0], [field]).column(0))
            if isinstance(field.type, t.Float | t.Double) or found[0] == [None]:
                continue
            assert (found[0][0], found[1][0], found[2][0]) == (min(values), max(values), reader.row_count - len(values))


def _stored(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    return [v for v in column.to_pylist() if v is not None]


# ── golden tables ─────────────────────────────────────────────────────────────────────────────────────────────


def golden_rows(name: str) -> collections.Counter[str] | None:
    """Return all rows in the files of a table as JSON texts, or None when they were written with several schemas."""
    schemas = list(samples.golden_schemas(name))
    found: collections.Counter[str] = collections.Counter()
    for file in sorted((samples.GOLDEN / name).glob("**/bucket-*/data-*.*")):
        if file.suffix == ".index":
            continue
        reader = samples.golden_reader(file)
        fields = schemas[0]
        if len(schemas) > 1 or samples.physical(fields, reader.column_names) is None:
            return None
        rows = reader.read(None, fields)
        columns = [samples.rendered(c.combine_chunks(), f.type) for c, f in zip(rows.columns, fields, strict=True)]
        for row in zip(*columns, strict=True):
            found[json.dumps(dict(zip(rows.column_names, row, strict=True)), sort_keys=True)] += 1
    return found


APPEND_TABLES = sorted(
    file.name.removesuffix(".expected.json")
    for file in samples.GOLDEN.glob("*.expected.json")
    if file.name.startswith(
        ("types_", "dects_", "nested_", "append_", "ts9_", "fidx_", "mixed_append", "legacy_append")
    )
    and "_pk_" not in file.name
    and "_key_" not in file.name
)


@pytest.mark.parametrize("name", APPEND_TABLES)
def test_the_files_of_append_tables_hold_the_expected_rows(name: str) -> None:
    expected = json.loads((samples.GOLDEN / f"{name}.expected.json").read_text())
    rows = golden_rows(name)
    assert rows is not None
    assert rows == collections.Counter(json.dumps(row, sort_keys=True) for row in expected["rows"])


def test_every_golden_file_can_be_read_in_full_with_one_of_its_tables_schemas() -> None:
    files = samples.golden_files("parquet")
    assert len(files) > 400
    for name, file in files:
        reader = samples.golden_reader(file)
        assert read_with_some_schema(reader, name) == sum(reader.group_rows) == reader.row_count, file
        reader.close()


def read_with_some_schema(reader: Any, name: str) -> int | None:
    for schema in samples.golden_schemas(name):
        fields = samples.physical(schema, reader.column_names)
        if fields is None:
            continue
        try:
            rows = reader.read(None, fields)
        except FormatError:
            continue  # the file is older than this schema
        rows.validate(full=True)
        return int(rows.num_rows)
    return None


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────────


DAMAGED = ["INT", "STRING", "DECIMAL(9, 2)", "TIMESTAMP(3)", "DOUBLE", "ARRAY<ARRAY<BIGINT>>", "MAP<STRING, BIGINT>"]


def damage_sample() -> tuple[tuple[t.Field, ...], pa.Table, bytes]:
    fields, rows = samples.sample({text: ALL[text] * 40 for text in DAMAGED})
    return fields, rows, samples.written("parquet", fields, rows, row_group_rows=50)


def outcome(data: bytes, fields: tuple[t.Field, ...], rows: pa.Table) -> str:
    """Return what reading gives; anything but a table or FormatError leaves as it is, and fails the test."""
    try:
        reader = samples.opened("parquet", data)
        read = reader.read(None, fields)
        for field in fields:
            reader.group_bounds(field)
    except FormatError as error:
        return "refused" if "data-1.parquet" in str(error) else "refused without a name"
    return "same" if read.equals(rows) else "different"


def test_a_file_cut_anywhere_is_refused() -> None:
    fields, rows, data = damage_sample()
    cuts = {0, 1, 4, 8, 11, 12, len(data) - 1, len(data) - 9, *random.Random(5).sample(range(len(data)), 150)}
    assert {outcome(data[:cut], fields, rows) for cut in cuts} == {"refused"}


def page_contents(data: bytes) -> list[int]:
    """Return the places of bytes that belong to the compressed content of a page."""
    metadata = pq.read_metadata(io.BytesIO(data))
    places: list[int] = []
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            at = chunk.dictionary_page_offset or chunk.data_page_offset
            end = at + chunk.total_compressed_size
            while at < end:
                header = thrift.read_struct(data[at:end])
                at += len(thrift.write_struct(header))
                places.extend(range(at, at + next(thrift.values(header, 3))))
                at += next(thrift.values(header, 3))
    return places


def test_a_flipped_bit_inside_a_page_is_refused() -> None:
    fields, rows, data = damage_sample()
    rng = random.Random(6)
    for place in rng.sample(page_contents(data), 300):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        assert outcome(bytes(damaged), fields, rows) == "refused", place


def test_flipped_bits_anywhere_end_in_a_table_or_a_format_error() -> None:
    """Page headers and the footer have no checksum, so a change there may go unseen; it never does worse."""
    fields, rows, data = damage_sample()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    rng = random.Random(7)
    outcomes: collections.Counter[str] = collections.Counter()
    for _ in range(600):
        damaged = bytearray(data)
        place = rng.randrange(footer, len(data)) if rng.random() < 0.7 else rng.randrange(len(data))
        damaged[place] ^= 1 << rng.randrange(8)
        outcomes[outcome(bytes(damaged), fields, rows)] += 1
    assert outcomes["refused"] > 200
    assert outcomes["different"] <= 6


def test_statistics_of_the_wrong_length_are_refused() -> None:
    """The library behind would end the process."""
    data = samples.written("parquet", [ID], numbers(3))
    footer = thrift.read_struct(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
    column = next(thrift.values(thrift.elements(thrift.elements(footer, 4)[0], 1)[0], 3))
    statistics = next(thrift.values(column, 12))
    statistics[:] = [(n, k, b"\x01" if n in (5, 6) else v) for n, k, v in statistics]
    changed = thrift.write_struct(footer)
    start = data[: -8 - int.from_bytes(data[-8:-4], "little")]
    reader = samples.opened("parquet", start + changed + len(changed).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FormatError, match=r"data-1\.parquet"):
        reader.group_bounds(ID)


def test_an_empty_file_and_foreign_bytes_are_refused() -> None:
    for data in (b"", b"PAR1", b"x" * 5000, b"PAR1" + np.random.default_rng(1).bytes(500) + b"\xff\xff\xff\xffPAR1"):
        with pytest.raises(FormatError, match=r"data-1\.parquet"):
            samples.opened("parquet", data)


# ── the door ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data-1-0.parquet", "parquet"),
        ("part-1-0.zst.parquet", "parquet"),
        ("data.dir/data-1-0.ORC", "orc"),
        ("data-1-0.json.gz", "json"),
        ("data-1.avro.zstd", "avro"),
    ],
)
def test_the_format_is_the_last_extension_before_a_compression(name: str, expected: str) -> None:
    assert format_of(name) == expected


def test_a_name_without_extension_has_no_format() -> None:
    with pytest.raises(InvalidInputError, match="data-1"):
        format_of("dir.d/data-1")


def test_a_format_nobody_reads_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'csv'"):
        open_reader(pa.BufferReader(b""), "csv", "f.csv", 0)
    with pytest.raises(UnsupportedError, match="'csv'"):
        open_writer(io.BytesIO(), "csv", [ID], WriteFormat())
