"""Rows as given -> rows of the table's types, or why not."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.errors import InvalidInputError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.conform import conform, fill_missing, kinds_from
from merganser.schema.types_text import parse_type

ACTION = "cannot write to 'db.t'"
MAP = pa.map_(pa.string(), pa.int32())
NOON = dt.datetime(2024, 1, 1, 12)


def field(text, name="x", default=None):
    return t.Field(0, name, parse_type(text), None, default)


def conformed(array, text, *, default=None, keys=()):
    wanted = [field(text, default=default)]
    out = conform(pa.table({"x": array}), wanted, action=ACTION, not_null_names=keys)
    out.validate(full=True)
    assert out.schema == arrow_schema(wanted)
    return out.column("x")


def refusal(array, text, **more):
    with pytest.raises(InvalidInputError) as caught:
        conformed(array, text, **more)
    assert str(caught.value).startswith(ACTION + ": ")
    return caught.value


UUIDS = pa.array([bytes.fromhex("c56a418065aa42eca9455fd21dec0538"), None, bytes(15) + b"\xff"], pa.uuid())
TAKEN = [
    (pa.array([1, None], pa.int8()), "BIGINT", [1, None]),
    (pa.array([127], pa.int64()), "TINYINT", [127]),
    (pa.array([1], pa.uint64()), "BIGINT", [1]),
    (pa.array([2.0, None]), "INT", [2, None]),
    (pa.array(np.array([2], np.float16)), "INT", [2]),
    (pa.array([Decimal("2.00")]), "INT", [2]),
    (pa.array([2**60], pa.int64()), "DOUBLE", [float(2**60)]),
    (pa.array([0.5, None]), "FLOAT", [0.5, None]),
    (pa.array([0.1, None, 1e-50]), "FLOAT", [float(np.float32(0.1)), None, 0.0]),
    (pa.array([2**24 + 1, 2**63 - 1]), "FLOAT", [2.0**24, 2.0**63]),
    (pa.array([2**64 - 1], pa.uint64()), "DOUBLE", [2.0**64]),
    (pa.array([float("-inf"), float("inf")]), "FLOAT", [float("-inf"), float("inf")]),
    (pa.array([Decimal("1.10")]), "DOUBLE", [1.1]),
    (pa.array([[0.1]]), "ARRAY<FLOAT>", [[float(np.float32(0.1))]]),
    (pa.array([Decimal("12.50")]), "DECIMAL(10, 1)", [Decimal("12.5")]),
    (pa.array([Decimal("12.50")], pa.decimal256(60, 2)), "DECIMAL(10, 1)", [Decimal("12.5")]),
    (pa.array([Decimal("12.5")], pa.decimal32(5, 1)), "DECIMAL(10, 2)", [Decimal("12.50")]),
    (pa.array([99999], pa.int64()), "DECIMAL(5, 0)", [Decimal("99999")]),
    (pa.array([2**64 - 1], pa.uint64()), "DECIMAL(38, 18)", [Decimal(2**64 - 1)]),
    (pa.array([1.25]), "DECIMAL(5, 2)", [Decimal("1.25")]),
    (pa.array(["a", None], pa.large_string()), "STRING", ["a", None]),
    (pa.array(["a", None], pa.string_view()), "STRING", ["a", None]),
    (pa.array(["a", "b", "a"]).dictionary_encode(), "STRING", ["a", "b", "a"]),
    (pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2]), "INT", [1, 1, 2]),
    (pa.array([b"a"], pa.large_binary()), "BYTES", [b"a"]),
    (pa.array([b"a"], pa.binary_view()), "BYTES", [b"a"]),
    (pa.array([b"ab"], pa.binary(2)), "BINARY(2)", [b"ab"]),
    (pa.array(["äöüßé"]), "VARCHAR(5)", ["äöüßé"]),
    (UUIDS, "STRING", ["c56a4180-65aa-42ec-a945-5fd21dec0538", None, "00000000-0000-0000-0000-0000000000ff"]),
    (UUIDS, "CHAR(36)", ["c56a4180-65aa-42ec-a945-5fd21dec0538", None, "00000000-0000-0000-0000-0000000000ff"]),
    (UUIDS, "BINARY(16)", UUIDS.storage.to_pylist()),
    (UUIDS[:0], "STRING", []),
    (
        pa.ListArray.from_arrays([0, 1], UUIDS[2:]),
        "ARRAY<STRING>",
        [["00000000-0000-0000-0000-0000000000ff"]],
    ),
    (pa.array([3723000004, None], pa.time64("us")), "STRING", ["01:02:03.000004", None]),
    (pa.array([1], pa.time64("ns")), "STRING", ["00:00:00.000000001"]),
    (pa.array([dt.date(2024, 1, 1)], pa.date64()), "DATE", [dt.date(2024, 1, 1)]),
    (pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ns")), "DATE", [dt.date(2024, 1, 1)]),
    (pa.array([dt.time(1, 2, 3, 4000)]), "TIME(3)", [dt.time(1, 2, 3, 4000)]),
    (pa.array([5], pa.int32()), "TIME(3)", [dt.time(0, 0, 0, 5000)]),
    (pa.array([NOON], pa.timestamp("ns")), "TIMESTAMP(3)", [NOON]),
    (pa.array([NOON], pa.timestamp("s")), "TIMESTAMP(6)", [NOON]),
    (pa.array([0], pa.timestamp("s", "Europe/Berlin")), "TIMESTAMP_LTZ(3)", [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
    (pa.nulls(2), "ARRAY<INT>", [None, None]),
    (pa.array([[1], None, []], pa.large_list(pa.int64())), "ARRAY<TINYINT>", [[1], None, []]),
    (pa.array([[1, 2], None, [3]], pa.list_view(pa.int64())), "ARRAY<INT>", [[1, 2], None, [3]]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), "ARRAY<INT>", [[1, 2], None, [3, 4]]),
    (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), "MAP<STRING, INT>", [[("a", 1)], None]),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "MULTISET<STRING>", [[("a", 1)]]),
    (pa.array([[{"key": "a", "value": 1}], None]), "MAP<STRING, INT>", [[("a", 1)], None]),
    (pa.array([{"b": 1, "a": "q"}, None]), "ROW<a STRING, b INT>", [{"a": "q", "b": 1}, None]),
    (pa.array([{"metadata": b"m", "value": b"v"}, None]), "VARIANT", [{"value": b"v", "metadata": b"m"}, None]),
]


@pytest.mark.parametrize(("array", "text", "values"), TAKEN, ids=lambda value: str(getattr(value, "type", value))[:40])
def test_what_converts_without_loss_is_taken(array, text, values):
    assert conformed(array, text).to_pylist() == values


@pytest.mark.parametrize(("array", "text", "values"), TAKEN, ids=lambda value: str(getattr(value, "type", value))[:40])
def test_a_slice_is_taken_like_the_whole(array, text, values):
    doubled = pa.concat_arrays([array, array]) if not pa.types.is_run_end_encoded(array.type) else array
    assert conformed(doubled.slice(1), text).to_pylist() == (
        (values + values)[1:] if doubled is not array else values[1:]
    )


MISFITS = [
    (pa.array([1, None, 300]), "TINYINT", "value 300 does not fit TINYINT (row 3 of 3)", 2),
    (pa.array([2**63], pa.uint64()), "BIGINT", "value 9223372036854775808 does not fit BIGINT", 0),
    (pa.array([1.0, 1.5]), "INT", "value 1.5 does not fit INT (row 2 of 2)", 1),
    (pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()), "DATE", "value 10000-01-01 is beyond DATE", 1),
    (pa.array([-719_163], pa.int32()).cast(pa.date32()), "DATE", "which holds the years 1 to 9999", 0),
    (pa.array([253_402_300_800]).cast(pa.timestamp("s")), "TIMESTAMP(3)", "is beyond TIMESTAMP(3)", 0),
    (pa.array([253_402_300_800_000]).cast(pa.timestamp("ms")), "TIMESTAMP(6)", "is beyond TIMESTAMP(6)", 0),
    (pa.array([-62_135_596_800_001]).cast(pa.timestamp("ms", "UTC")), "TIMESTAMP_LTZ(3)", "the years 1 to 9999", 0),
    (pa.array([[0, 2**53]]).cast(pa.list_(pa.timestamp("ms"))), "ARRAY<TIMESTAMP(3)>", "is beyond TIMESTAMP(3)", 0),
    (pa.array([float("nan")]), "INT", "value nan does not fit INT", 0),
    (pa.array([0.1, 1e39]), "FLOAT", "value 1e+39 does not fit FLOAT (row 2 of 2)", 1),
    (pa.array([float("inf"), -3.5e38]), "FLOAT", "value -3.5e+38 does not fit FLOAT (row 2 of 2)", 1),
    (pa.array([[0.1], [0.2, 1e39]]), "ARRAY<FLOAT>", "value 1e+39 does not fit FLOAT (row 2 of 2)", 1),
    (pa.array([Decimal(10) ** 39], pa.decimal256(60, 0)), "FLOAT", "0000 does not fit FLOAT", 0),
    (pa.array([Decimal("1.25")]), "DECIMAL(10, 1)", "value 1.25 does not fit DECIMAL(10, 1)", 0),
    (pa.array([Decimal(2**63 - 1)], pa.decimal128(38, 3)), "DECIMAL(38, 30)", "does not fit DECIMAL(38, 30)", 0),
    (pa.array([1, 100000]), "DECIMAL(5, 0)", "value 100000 does not fit DECIMAL(5, 0) (row 2 of 2)", 1),
    (pa.array([1.255]), "DECIMAL(5, 2)", "value 1.255 does not fit DECIMAL(5, 2)", 0),
    (pa.array([float("inf")]), "DECIMAL(5, 2)", "does not fit", 0),
    (pa.array(["abcde", None, "abcdef"]), "VARCHAR(5)", "value 'abcdef' of 6 characters does not fit VARCHAR(5)", 2),
    (pa.array(["äöüßéx"]), "CHAR(5)", "of 6 characters does not fit CHAR(5)", 0),
    (pa.array([b"abc"]), "BINARY(2)", "value b'abc' of 3 bytes does not fit BINARY(2)", 0),
    (pa.array([b"abc"]), "VARBINARY(2)", "of 3 bytes", 0),
    (pa.array([NOON]), "DATE", "value 2024-01-01 12:00:00 does not fit DATE", 0),
    (pa.array([86400001], pa.date64()), "DATE", "does not fit DATE", 0),
    (
        pa.array([dt.time(1, 2, 3, 4001)]),
        "TIME(3)",
        "value 01:02:03.004001 has microseconds, and the column stores milliseconds (TIME(3))",
        0,
    ),
    (pa.array([86400000], pa.int32()), "TIME(3)", "value 86400000 does not fit TIME(3)", 0),
    (
        pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
        "TIMESTAMP(3)",
        "has microseconds, and the column stores milliseconds (TIMESTAMP(3))",
        0,
    ),
    (pa.array([dt.datetime(3024, 1, 1)]), "TIMESTAMP(9)", "value 3024-01-01 00:00:00 does not fit TIMESTAMP(9)", 0),
    (pa.array([[1], None, [2, 300]]), "ARRAY<TINYINT>", "value 300 does not fit TINYINT (row 3 of 3)", 2),
    (pa.array([["ab"], ["abc"]]), "ARRAY<VARCHAR(2)>", "'abc' of 3 characters does not fit VARCHAR(2) (row 2 of 2)", 1),
    (pa.array([[1], [1, None]]), "ARRAY<INT NOT NULL>", "has null for an element, which is NOT NULL (row 2 of 2)", 1),
    (pa.array([[{"key": None, "value": 1}]]), "MAP<STRING, INT>", "has null for a map key", 0),
    (
        pa.array([[], [("a", None)]], pa.map_(pa.string(), pa.int32())),
        "MAP<STRING, INT NOT NULL>",
        "has null for a map value, which is NOT NULL (row 2 of 2)",
        1,
    ),
    (pa.array([[("a", 1)], None, [("a", 1), ("b", 2), ("a", 3)]], MAP), "MAP<STRING, INT>", "a key twice", 2),
    (
        pa.array([[[("a", 1)], [("a", 1)]], [[("b", 1), ("b", 1)]]], pa.list_(MAP)),
        "ARRAY<MAP<STRING, INT>>",
        "twice",
        1,
    ),
    (pa.array([{"m": [("a", 1), ("a", 1)]}], pa.struct([("m", MAP)])), "ROW<m MAP<STRING, INT>>", "a key twice", 0),
    (
        pa.array([[{"key": {"x": 1, "y": "q"}, "value": 1}] * 2]),
        "MAP<ROW<x INT, y STRING>, INT>",
        "a key twice. Keep one of its values (row 1 of 1)",
        0,
    ),
    (pa.array([None, {"a": None}]), "ROW<a INT NOT NULL>", "has null for its field 'a', which is NOT NULL (row 2", 1),
    (
        pa.array([[{"a": 1}], [{"a": 2}, {"a": 300}]]),
        "ARRAY<ROW<a TINYINT>>",
        "300 does not fit TINYINT (row 2 of 2)",
        1,
    ),
]


@pytest.mark.parametrize(("array", "text", "why", "row"), MISFITS, ids=lambda value: str(value)[:40])
def test_a_value_that_would_change_is_refused_with_column_value_and_row(array, text, why, row):
    error = refusal(array, text)
    assert "column 'x' " in str(error)
    assert why in str(error)
    assert "Nothing was written." in str(error)
    assert (error.context["column"], error.context["row"]) == ("x", row)


MISMATCHES = [
    (pa.array(["1"]), "INT", "'x' is string in the data and INT in the table"),
    (pa.array([1]), "STRING", "'x' is int64 in the data and STRING in the table"),
    (pa.array([b"a"]), "STRING", "'x' is binary"),
    (UUIDS, "INT", "'x' is fixed_size_binary[16]"),
    (pa.array([1], pa.time32("ms")), "STRING", "'x' is time32"),
    (pa.array(["a"]), "BYTES", "'x' is string"),
    (pa.array([True]), "INT", "'x' is bool"),
    (pa.array([1]), "BOOLEAN", "'x' is int64"),
    (pa.array([1]), "TIME(3)", "'x' is int64"),
    (pa.array([1]), "TIMESTAMP(3)", "'x' is int64"),
    (pa.array([NOON]), "TIMESTAMP_LTZ(3)", "give it a zone first"),
    (pa.array([0], pa.timestamp("us", "UTC")), "TIMESTAMP(3)", "drop the zone"),
    (pa.array([0], pa.timestamp("us", "UTC")), "DATE", "'x' is timestamp"),
    (pa.array([1]), "ARRAY<INT>", "'x' is int64 in the data and ARRAY<INT> in the table"),
    (pa.array([[1]]), "MAP<INT, INT>", "'x' is list"),
    (pa.array([[1]]), "ROW<a INT>", "'x' is list"),
    (pa.array([["a"]]), "ARRAY<INT>", "'x.element' is string in the data and INT in the table"),
    (pa.array([{"a": "q"}]), "ROW<a INT>", "'x.a' is string"),
    (pa.array([{"a": 1, "b": 2}]), "ROW<a INT>", "must have the same names"),
    (pa.array([{"a": 1}]), "ROW<a INT, b INT>", "must have the same names"),
]


@pytest.mark.parametrize(("array", "text", "why"), MISMATCHES, ids=lambda value: str(value)[:40])
def test_a_type_that_says_another_thing_is_refused_with_both_types(array, text, why):
    assert why in str(refusal(array, text))


BOUNDS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}


@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200), max_size=30),
    st.sampled_from(sorted(BOUNDS)),
    st.integers(0, 30),
)
def test_whole_numbers_are_taken_exactly_when_each_fits_and_else_the_first_that_does_not_is_named(values, text, cut):
    chunks = pa.chunked_array([pa.array(values[:cut], pa.int64()), pa.array(values[cut:], pa.int64())])
    limit = 2 ** BOUNDS[text]
    misfits = [row for row, value in enumerate(values) if value is not None and not -limit <= value < limit]
    if misfits:
        assert refusal(chunks, text).context["row"] == misfits[0]
    else:
        assert conformed(chunks, text).to_pylist() == values


DECIMALS = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}e-19"))


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(lambda values: pa.array(values, pa.int64()))
    | st.lists(DECIMALS, max_size=20).map(lambda values: pa.array(values, pa.decimal128(38, 19)))
)
def test_other_numbers_become_the_nearest_float(array):
    assert conformed(array, "DOUBLE").to_pylist() == [float(value) for value in array.to_pylist()]
    texts = [str(value) for value in array.to_pylist()]
    assert conformed(array, "FLOAT").to_pylist() == pa.array(texts, pa.string()).cast(pa.float32()).to_pylist()


def test_not_a_number_is_a_float_like_others():
    assert pc.all(pc.is_nan(conformed(pa.array([float("nan")]), "FLOAT"))).as_py()


# whole tables


def test_columns_are_found_by_name_and_put_in_the_order_of_the_table():
    data = pa.table({"b": [1], "a": ["q"]})
    out = conform(data, [field("STRING", "a"), field("INT", "b")], action=ACTION)
    assert out.to_pylist() == [{"a": "q", "b": 1}]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["id"], "2 of 3 columns are missing from the data (first: 'amount', 'note')"),
        (
            ["id", "amount", "note", "amout"],
            "column 'amout' of the data is not a column of the table. Did you mean 'amount'?",
        ),
        (["id", "amount", "note", "id"], "column 'id' occurs 2 times in the data"),
        (["ID", "amount", "note"], "column 'ID' of the data is not a column of the table. Did you mean 'id'"),
    ],
)
def test_a_table_with_other_columns_is_refused(names, why):
    data = pa.Table.from_arrays([pa.array([1])] * len(names), names=names)
    fields = [field("INT", name) for name in ("id", "amount", "note")]
    with pytest.raises(InvalidInputError) as caught:
        conform(data, fields, action=ACTION)
    assert why in str(caught.value)


def test_a_column_of_the_right_type_is_not_copied():
    array = pa.array([1, 2, None])
    out = conformed(array, "BIGINT")
    assert out.chunk(0).buffers()[1].address == array.buffers()[1].address


def test_a_nested_column_of_the_right_type_is_not_copied():
    array = pa.array([[1, 2], None], pa.list_(pa.int64()))
    out = conformed(array, "ARRAY<BIGINT>")
    assert out.chunk(0).values.buffers()[1].address == array.values.buffers()[1].address


def test_no_rows_are_taken_with_their_columns():
    assert conformed(pa.chunked_array([], pa.int8()), "INT").to_pylist() == []


def test_null_in_a_not_null_column_is_refused_with_count_and_first_row():
    error = refusal(pa.array([1, None, None]), "INT NOT NULL")
    assert "NOT NULL column 'x' is null in 2 of 3 rows (first at row 2 of the batch)" in str(error)
    assert (error.context["row"], error.context["null_count"]) == (1, 2)


def test_null_in_a_key_column_is_refused_whatever_its_type_says():
    error = refusal(pa.array([1, None]), "INT", keys=("x",))
    assert "key column 'x' is null in 1 of 2 rows (first at row 2 of the batch)" in str(error)


@pytest.mark.parametrize(
    ("array", "text", "default", "values"),
    [
        (pa.array([1, None]), "INT NOT NULL", "7", [1, 7]),
        (pa.array([[1], None]), "ARRAY<INT>", "[5, null]", [[1], [5, None]]),
        (pa.array([{"a": 1}, None]), "ROW<a INT NOT NULL>", "{5}", [{"a": 1}, {"a": 5}]),
        (
            pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "MAP<STRING, INT>",
            "{z -> 9}",
            [[("a", 1)], [("z", 9)]],
        ),
    ],
)
def test_a_null_takes_the_default_of_its_column(array, text, default, values):
    assert conformed(array, text, default=default).to_pylist() == values


def test_missing_columns_take_their_default_else_null():
    data = pa.table({"a": [1, 2]})
    fields = [field("INT", "a"), field("INT", "b", "7"), field("ARRAY<INT>", "c", "[1]"), field("STRING", "d")]
    assert fill_missing(data, fields).to_pylist() == [
        {"a": 1, "b": 7, "c": [1], "d": None},
        {"a": 2, "b": 7, "c": [1], "d": None},
    ]


def test_a_missing_not_null_column_without_a_default_is_refused_as_null():
    fields = [field("INT", "a"), field("INT NOT NULL", "b")]
    with pytest.raises(InvalidInputError, match="NOT NULL column 'b' is null in 1 of 1 rows"):
        conform(fill_missing(pa.table({"a": [1]}), fields), fields, action=ACTION)


@pytest.mark.parametrize(
    "inner",
    [
        "TINYINT",
        "BIGINT",
        "DOUBLE",
        "BOOLEAN",
        "DECIMAL(5, 2)",
        "STRING",
        "BINARY(2)",
        "DATE",
        "TIME(3)",
        "TIMESTAMP(3)",
        "TIMESTAMP_LTZ(9)",
        "ARRAY<INT>",
        "MAP<STRING, INT>",
        "ROW<y INT NOT NULL>",
        "VARIANT",
    ],
)
def test_a_null_row_with_not_null_fields_can_be_written_to_a_file(inner):
    kind = f"ROW<a {inner} NOT NULL>"
    filled = conformed(pa.array([None, None], arrow_schema([field(kind.replace(" NOT NULL", ""))]).field(0).type), kind)
    pq.write_table(pa.table({"x": filled}), io.BytesIO())
    assert filled.null_count == 2


def test_values_under_null_lists_are_not_looked_at():
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3]), pa.array([1, 300, 300]), mask=pa.array([False, True]))
    assert conformed(lists, "ARRAY<TINYINT>").to_pylist() == [[1], None]


def test_entries_under_null_maps_are_not_looked_at():
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([[("a", 1)], [("b", 300)]], kind)
    first_only = pa.py_buffer(b"\x01")
    masked = pa.Array.from_buffers(kind, 2, [first_only, maps.buffers()[1]], null_count=1, children=[maps.values])
    assert conformed(masked, "MAP<STRING, TINYINT>").to_pylist() == [[("a", 1)], None]


def test_a_chunk_with_more_bytes_than_offsets_can_count_is_cut_into_pieces(monkeypatch):
    monkeypatch.setattr("merganser.schema.conform._PIECE_BYTES_MAX", 64)
    texts = [f"text {i}" for i in range(100)]
    out = conformed(pa.array(texts, pa.large_string()), "VARCHAR(7)")
    assert out.num_chunks > 1
    assert out.to_pylist() == texts
    assert refusal(pa.array([*texts, "text 100"], pa.large_string()), "VARCHAR(7)").context["row"] == 100


# row kinds


@pytest.mark.parametrize(
    "kinds",
    [
        ["+I", "-U", "+U", "-D"],
        pa.array(["+I", "-U", "+U", "-D"], pa.large_string()),
        pa.array(["+I", "-U", "+U", "-D"]).dictionary_encode(),
        pa.chunked_array([["+I", "-U"], ["+U", "-D"]]),
    ],
)
def test_kinds_become_their_bytes(kinds):
    assert kinds_from(kinds).equals(pa.array([0, 1, 2, 3], pa.int8()))


@pytest.mark.parametrize(
    ("kinds", "why"),
    [
        (["+I", "+X"], "the kind is '+X' in row 2 of 2"),
        (["+I", None], "the kind is null in row 2 of 2"),
        (pa.array([0, 1]), "they are int64"),
        ([0, 1], "expected text"),
    ],
)
def test_what_is_no_kind_is_refused_with_its_row(kinds, why):
    with pytest.raises(InvalidInputError) as caught:
        kinds_from(kinds)
    assert why in str(caught.value)


def test_no_rows_have_no_kinds():
    assert len(kinds_from([])) == 0


@pytest.mark.parametrize("offsets", [[0, 3, 1, 4], [1, 0, 2, 4]])
def test_values_that_do_not_lie_one_behind_the_other_are_refused_and_not_looked_at(offsets):
    ends = pa.py_buffer(np.array(offsets, np.int32))
    text, raw = (
        pa.Array.from_buffers(kind, 3, [None, ends, pa.py_buffer(b"abcd")]) for kind in (pa.string(), pa.binary())
    )
    broken = pa.array([b"a", b"\xff", b"c"], pa.binary()).view(pa.string())
    for array, kind in (
        (text, "STRING"),
        (text, "VARCHAR(10)"),
        (raw, "BYTES"),
        (pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text), "ARRAY<STRING>"),
        (pa.StructArray.from_arrays([broken, text], ["a", "b"]), "ROW<a STRING, b STRING>"),
    ):
        assert "is damaged" in str(refusal(array, kind))


def test_text_that_is_neither_utf8_nor_short_enough_is_refused_with_its_bytes():
    text = pa.array([b"a", b"\xff\xfe\xfd"], pa.binary()).view(pa.string())
    assert "b'\\xff\\xfe\\xfd'" in str(refusal(text, "VARCHAR(2)"))


def test_a_slice_is_not_judged_by_what_lies_beside_it():
    text = pa.array([b"a", b"b", b"\xff"], pa.binary()).view(pa.string())
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    out = conform(pa.table({"x": nested[:2]}), [field("ARRAY<STRING>")], action="cannot write")
    assert out.column("x").to_pylist() == [["a"], ["b"]]
    assert refusal(nested[1:], "ARRAY<STRING>").context["row"] == 1


@pytest.mark.parametrize("end", ["é", "a"])
def test_many_texts_are_taken_and_the_one_that_is_no_text_is_found(end):
    texts = [f"text {i}" for i in range(3_000)] + [end]
    assert conformed(pa.array(texts), "STRING").to_pylist() == texts
    raw = [text.encode() for text in texts]
    raw[2_500] = b"\xff"
    assert refusal(pa.array(raw, pa.binary()).view(pa.string()), "STRING").context["row"] == 2_500


@pytest.mark.parametrize("nested", [False, True])
def test_text_that_is_not_utf8_is_refused_with_its_row(nested):
    text = pa.array([b"a", b"\xc5\x82", b"\xff\xfe"], pa.binary()).view(pa.string())
    array = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text) if nested else text
    why = str(refusal(array, "ARRAY<STRING>" if nested else "STRING"))
    assert "row 3 of 3" in why
    assert "is not UTF-8" in why


def test_a_row_of_a_task_is_named_by_its_key():
    data = pa.table({"id": [7, 8], "v": [1, 300]})
    with pytest.raises(
        InvalidInputError, match=r"value 300 does not fit TINYINT \(the row with id = 8\)\. Nothing was"
    ):
        conform(data, [field("INT", "id"), field("TINYINT", "v")], action=ACTION, named_by=["id"])
    with pytest.raises(
        InvalidInputError, match=r"'v' is null in 1 of 2 rows \(first at the row with id = 7\)\. Nothing was"
    ):
        conform(
            data.set_column(1, "v", pa.array([None, 3])),
            [field("INT", "id"), field("TINYINT NOT NULL", "v")],
            action=ACTION,
            named_by=["id"],
        )


def test_the_same_key_in_maps_of_several_rows_is_no_key_twice():
    array = pa.array([[("a", 1)], [("a", 2), ("b", 1)], None, [("b", 2)]], MAP)
    assert conformed(array.slice(1), "MAP<STRING, INT>").to_pylist() == [[("a", 2), ("b", 1)], None, [("b", 2)]]
