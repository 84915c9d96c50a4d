"""Rows come back from log records as they were, and the records are what readers of Debezium JSON expect."""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merganser.errors import FormatError
from merganser.log.records import Mode, Records, decode, encode
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type, nullable_schema
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import parse_type

INSERT, BEFORE, AFTER, DELETE = range(4)
ODD_NAMES = (
    "a",
    "b.c",
    'q"u',
    "ö ß",
    "日本",
    "back\\slash",
    "new\nline",
    "before",
    "after",
    "op",
    "kind",
    "x'y",
    "",
    "{",
    "a:b,",
)


def schema_of(columns: dict[str, str | t.DataType], key: tuple[str, ...] = ()) -> TableSchema:
    types = {name: parse_type(kind) if isinstance(kind, str) else kind for name, kind in columns.items()}
    fields = tuple(
        t.Field(i, name, kind.with_nullable(False) if name in key else kind)
        for i, (name, kind) in enumerate(types.items())
    )
    return TableSchema(0, fields, len(fields), primary_keys=key)


def kinds_of(*kinds: int) -> pa.Array:
    return pa.array(kinds, pa.int8())


ORDERS = schema_of({"id": "INT", "state": "STRING"}, ("id",))


def orders(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.table([[row[0] for row in rows], [row[1] for row in rows]], schema=arrow_schema(ORDERS.fields))


def assert_same(found: pa.Table, expected: pa.Table, schema: TableSchema) -> None:
    """Compare bit by bit: NaN equals NaN, and 0.0 is not -0.0."""
    assert found.schema == nullable_schema(schema.fields)
    found.validate(full=True)
    assert bits(found.to_pylist()) == bits(expected.to_pylist())


def bits(value: Any) -> Any:
    match value:
        case float():
            return ("float", "nan" if value != value else struct.pack("<d", value))
        case list():
            return [bits(part) for part in value]
        case tuple():
            return tuple(bits(part) for part in value)
        case dict():
            return {name: bits(part) for name, part in value.items()}
    return value


def round_trip(rows: pa.Table, schema: TableSchema, kinds: pa.Array | None = None) -> None:
    records = encode(rows, kinds, schema, "all")
    for value in records.values:
        assert value is not None
        json.loads(value)  # which also refuses control characters
    found, their_kinds = decode(records.keys, records.values, schema)
    assert_same(found, rows, schema)
    assert their_kinds.equals(row_kind.inserts(len(rows)) if kinds is None else kinds)


# the bytes


def test_each_kind_has_its_record() -> None:
    rows = orders((7, "new"), (7, "new"), (7, "paid"), (8, None))
    records = encode(rows, kinds_of(INSERT, BEFORE, AFTER, DELETE), ORDERS, "all")
    assert records == Records(
        [b'{"id":7}', b'{"id":7}', b'{"id":7}', b'{"id":8}'],
        [
            b'{"before":null,"after":{"id":7,"state":"new"},"op":"c"}',
            b'{"before":{"id":7,"state":"new"},"after":null,"op":"d","kind":"-U"}',
            b'{"before":null,"after":{"id":7,"state":"paid"},"op":"c","kind":"+U"}',
            b'{"before":{"id":8,"state":null},"after":null,"op":"d"}',
        ],
    )
    found, kinds = decode(records.keys, records.values, ORDERS)
    assert_same(found, rows, ORDERS)
    assert kinds.to_pylist() == [INSERT, BEFORE, AFTER, DELETE]


def test_mode_upsert_drops_rows_before_updates_and_writes_tombstones() -> None:
    rows = orders((7, "new"), (7, "new"), (7, "paid"), (8, "old"), (9, "new"))
    records = encode(rows, kinds_of(INSERT, BEFORE, AFTER, DELETE, INSERT), ORDERS, "upsert")
    assert records.keys == [b'{"id":7}', b'{"id":7}', b'{"id":8}', b'{"id":9}']
    assert [value is None for value in records.values] == [False, False, True, False]
    found, kinds = decode(records.keys, records.values, ORDERS)
    assert_same(found, orders((7, "new"), (7, "paid"), (8, None), (9, "new")), ORDERS)
    assert kinds.to_pylist() == [INSERT, AFTER, DELETE, INSERT]


@pytest.mark.parametrize(("mode", "kept"), [("all", [10, 11, 12, 13, 14]), ("upsert", [10, 12, 13, 14])])
def test_each_record_has_the_sequence_number_of_its_row(mode: Mode, kept: list[int]) -> None:
    rows = orders((7, "new"), (7, "new"), (7, "paid"), (8, "old"), (9, "new"))
    numbers = pa.chunked_array([[10, 11], [12, 13, 14]], pa.int64())
    records = encode(rows, kinds_of(INSERT, BEFORE, AFTER, DELETE, INSERT), ORDERS, mode, numbers)
    assert records.sequences == [str(number).encode() for number in kept]
    assert len(records.values) == len(kept)
    assert encode(rows, None, ORDERS, mode).sequences is None


def test_deletes_alone_are_tombstones_alone() -> None:
    records = encode(orders((7, "a"), (8, "b")), kinds_of(DELETE, DELETE), ORDERS, "upsert")
    assert records == Records([b'{"id":7}', b'{"id":8}'], [None, None])
    found, kinds = decode(records.keys, records.values, ORDERS)
    assert_same(found, orders((7, None), (8, None)), ORDERS)
    assert kinds.to_pylist() == [DELETE, DELETE]


def test_a_table_without_a_primary_key_has_no_record_keys() -> None:
    schema = schema_of({"v": "INT"})
    records = encode(pa.table({"v": pa.array([1, 1], pa.int32())}), None, schema, "all")
    assert records == Records(None, [b'{"before":null,"after":{"v":1},"op":"c"}'] * 2)


def test_the_key_has_the_order_of_the_primary_key_and_keeps_all_columns_in_the_value() -> None:
    schema = schema_of({"a": "INT", "v": "STRING", "b": "STRING"}, ("b", "a"))
    rows = pa.table([[1], ["x"], ['q"']], schema=arrow_schema(schema.fields))
    records = encode(rows, kinds_of(DELETE), schema, "upsert")
    assert records == Records([b'{"b":"q\\"","a":1}'], [None])
    assert decode(records.keys, records.values, schema)[0].to_pylist() == [{"a": 1, "v": None, "b": 'q"'}]


def test_no_rows_are_no_records() -> None:
    records = encode(orders(), None, ORDERS, "all")
    assert records == Records([], [])
    found, kinds = decode([], [], ORDERS)
    assert_same(found, orders(), ORDERS)
    assert kinds.equals(kinds_of())


def test_chunks_and_slices_of_rows_are_followed() -> None:
    rows = pa.concat_tables([orders((1, "a"), (2, "b")), orders((3, "c"), (4, "d"))]).slice(1, 2)
    records = encode(rows, kinds_of(INSERT, INSERT, AFTER, INSERT).slice(1, 2), ORDERS, "all")
    found, kinds = decode(records.keys, records.values, ORDERS)
    assert_same(found, orders((2, "b"), (3, "c")), ORDERS)
    assert kinds.to_pylist() == [INSERT, AFTER]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("BOOLEAN", True, "true"),
        ("TINYINT", -128, "-128"),
        ("BIGINT", 2**63 - 1, "9223372036854775807"),
        ("DOUBLE", float("nan"), '"NaN"'),
        ("DOUBLE", float("-inf"), '"-Infinity"'),
        ("FLOAT", float("inf"), '"Infinity"'),
        ("DOUBLE", -0.0, "-0.0"),
        ("FLOAT", 0.10000000149011612, "0.1"),
        ("DECIMAL(38, 38)", Decimal("1E-38"), "0.00000000000000000000000000000000000001"),
        ("DECIMAL(10, 2)", Decimal("-7.50"), "-7.50"),
        ("STRING", 'a"\\\n\x00\x1e\u2028é😀', '"a\\"\\\\\\n\\u0000\\u001e\u2028é😀"'),
        ("BYTES", b"\x00\xff", '"AP8="'),
        ("DATE", -719162, '"0001-01-01"'),
        ("TIME(3)", 86_399_100, '"23:59:59.1"'),
        ("TIME(0)", 36_000_000, '"10:00:00"'),
        ("TIMESTAMP(0)", -1000, '"1969-12-31 23:59:59"'),
        ("TIMESTAMP(6)", -1, '"1969-12-31 23:59:59.999999"'),
        ("TIMESTAMP(6)", 10, '"1970-01-01 00:00:00.00001"'),
        ("TIMESTAMP(9)", 1, '"1970-01-01 00:00:00.000000001"'),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", 0, '"1970-01-01 00:00:00Z"'),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", -1, '"1969-12-31 23:59:59.999999999Z"'),
        ("ARRAY<INT>", [1, None], "[1,null]"),
        ("MAP<STRING, INT>", [("b", 1), ("a", None)], '{"b":1,"a":null}'),
        ("MAP<INT, STRING>", [(2, "x"), (1, None)], '[[2,"x"],[1,null]]'),
        ("MULTISET<STRING>", [("b", 2)], '{"b":2}'),
        ("MULTISET<DATE>", [(0, 2)], '[["1970-01-01",2]]'),
        ("ROW<a INT, `b.c` ARRAY<STRING>>", {"a": None, "b.c": ["x"]}, '{"a":null,"b.c":["x"]}'),
        ("VARIANT", {"value": b"\x01", "metadata": b""}, '{"value":"AQ==","metadata":""}'),
    ],
)
def test_values_are_written_as_flink_writes_them_and_come_back(kind: str, value: Any, text: str) -> None:
    schema = schema_of({"v": kind})
    rows = pa.table([values_of([value, None], schema.fields[0].type)], schema=arrow_schema(schema.fields))
    assert encode(rows.slice(0, 1), None, schema, "all").values == [
        f'{{"before":null,"after":{{"v":{text}}},"op":"c"}}'.encode()
    ]
    round_trip(rows, schema)


def test_parts_that_became_not_null_may_be_null_in_old_rows() -> None:
    schema = schema_of({"v": "ROW<a INT NOT NULL>", "w": "ARRAY<INT NOT NULL>", "m": "MAP<INT, INT NOT NULL>"})
    kinds = [arrow_type(field.type) for field in schema.fields]
    v = pa.StructArray.from_arrays([pa.array([None], pa.int32())], fields=list(kinds[0]))
    w = pa.ListArray.from_arrays([0, 1], pa.array([None], pa.int32()), type=kinds[1])
    m = pa.MapArray.from_arrays([0, 1], pa.array([1], pa.int32()), pa.array([None], pa.int32()), type=kinds[2])
    rows = pa.Table.from_arrays([v, w, m], schema=arrow_schema(schema.fields))
    records = encode(rows, None, schema, "all")
    assert decode(None, records.values, schema)[0].to_pylist() == [{"v": {"a": None}, "w": [None], "m": [(1, None)]}]


def test_digits_and_lengths_of_an_older_type_come_back() -> None:
    schema = schema_of({"v": "VARCHAR(1)", "w": "TIME(0)", "x": "TIMESTAMP(0)", "y": "BINARY(1)"})
    rows = pa.table([["long"], pa.array([1], pa.time32("ms")), pa.array([1], pa.timestamp("ms")), [b"long"]],
                    schema=arrow_schema(schema.fields))  # fmt: skip
    round_trip(rows, schema)


# random schemas


def values_of(values: list[Any], kind: t.DataType) -> pa.Array:
    """Return Python values as an array; dates and times are given as the integers that Arrow holds."""
    target = arrow_type(kind)
    if pa.types.is_temporal(target):
        return pa.array(values, pa.int32() if target.bit_width == 32 else pa.int64()).view(target)
    if isinstance(kind, t.Array | t.Map | t.Multiset):
        lengths = [0 if value is None else len(value) for value in values]
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), mask=np.array(
            [value is None for value in values] + [False]))  # fmt: skip
        parts = [part for value in values if value is not None for part in value]
        if isinstance(kind, t.Array):
            return pa.ListArray.from_arrays(offsets, values_of(parts, kind.element), type=target)
        key, value = (kind.key, kind.value) if isinstance(kind, t.Map) else (kind.element, t.Int())
        keys, items = values_of([part[0] for part in parts], key), values_of([part[1] for part in parts], value)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target)
    if isinstance(kind, t.Row):
        inner = [
            values_of([None if value is None else value[field.name] for value in values], field.type)
            for field in kind.fields
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(inner, fields=list(target), mask=mask)
    return pa.array(values, target)


def random_type(rng: Random, depth: int = 0, *, key: bool = False) -> t.DataType:
    simple = [
        t.Boolean(), t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Char(8), t.string(), t.VarChar(9), t.Binary(5),
        t.VarBinary(), t.Date(), t.Time(rng.randrange(4)), t.Timestamp(rng.randrange(10)),
        t.LocalZonedTimestamp(rng.randrange(10)), t.Decimal(precision := rng.randint(1, 38), rng.randint(0, precision)),
        t.Float(), t.Double(),
    ]  # fmt: skip
    choice = rng.choice([*simple, *([] if depth > 2 or key else ["array", "map", "multiset", "row", "variant"])])
    match choice:
        case "array":
            return t.Array(element=random_type(rng, depth + 1))
        case "map":
            return t.Map(
                key=random_type(rng, depth + 1, key=True).with_nullable(False), value=random_type(rng, depth + 1)
            )
        case "multiset":
            return t.Multiset(element=random_type(rng, depth + 1, key=True).with_nullable(False))
        case "row":
            names = rng.sample(ODD_NAMES, rng.randint(1, 4))
            return t.Row(fields=tuple(t.Field(i, name, random_type(rng, depth + 1)) for i, name in enumerate(names)))
        case "variant":
            return t.Variant()
    assert isinstance(choice, t.DataType)
    return choice


CHARACTERS = [*map(chr, range(0x80)), '"', "\\", "\\u0041", "é", "日", "😀", "\u2028", "\ud7ff", "\ue000", "\U0010ffff"]
ENDS = {1: 1, 1_000: 86_400_000, 1_000_000: 86_400_000_000}
FIRST, LAST = -719_162, 2_932_896


def random_value(rng: Random, kind: t.DataType, *, null: float = 0.2) -> Any:
    if kind.nullable and rng.random() < null:
        return None
    match kind:
        case t.Boolean():
            return rng.random() < 0.5
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            top = 1 << arrow_type(kind).bit_width - 1
            return rng.choice([-top, top - 1, 0, rng.randrange(-top, top), rng.randrange(-100, 100)])
        case t.Float():
            found = struct.unpack("<f", rng.randbytes(4))[0]
            return rng.choice([float("nan"), float("inf"), -0.0, 0.0, 1.5, found])
        case t.Double():
            found = struct.unpack("<d", rng.randbytes(8))[0]
            return rng.choice([float("nan"), float("-inf"), -0.0, 5e-324, 0.1, found])
        case t.Decimal():
            top = 10**kind.precision - 1
            digits = rng.choice([-top, top, 0, 1, rng.randint(-top, top), rng.randint(-top, top) // 10**kind.scale])
            return Decimal(f"{digits}e-{kind.scale}")
        case t.Char() | t.VarChar():
            return "".join(rng.choices(CHARACTERS if rng.random() < 0.5 else "abc", k=rng.randrange(9)))
        case t.Binary() | t.VarBinary():
            return rng.randbytes(rng.randrange(6))
        case t.Date():
            return rng.choice([FIRST, LAST, -1, 0, rng.randint(FIRST, LAST)])
        case t.Time():
            return rng.choice([0, 86_399_999, 1, rng.randrange(86_400) * 1000, rng.randrange(86_400_000)])
        case t.Timestamp() | t.LocalZonedTimestamp():
            unit = 3 if kind.precision <= 3 else 6 if kind.precision <= 6 else 9
            first, last = (FIRST, LAST + 1) if unit < 9 else (-106_000, 106_000)
            low, high = first * 86_400 * 10**unit, last * 86_400 * 10**unit - 1
            return rng.choice([low, high, -1, 0, rng.randint(low, high), rng.randint(-(10**9), 10**9) * 10**unit // 1])
        case t.Array():
            return [random_value(rng, kind.element) for _ in range(rng.randrange(4))]
        case t.Map() | t.Multiset():
            key, value = (kind.key, kind.value) if isinstance(kind, t.Map) else (kind.element, t.Int(nullable=False))
            found = {random_value(rng, key.with_nullable(False)): random_value(rng, value) for _ in range(3)}
            return [(k, v) for k, v in found.items() if k == k]
        case t.Row():
            return {field.name: random_value(rng, field.type) for field in kind.fields}
        case t.Variant():
            return {"value": rng.randbytes(rng.randrange(4)), "metadata": rng.randbytes(2)}
    raise AssertionError(kind)


def drawn(seed: int) -> tuple[Random, TableSchema, pa.Table, pa.Array]:
    rng = Random(seed)
    names = rng.sample(ODD_NAMES, rng.randint(1, 8))
    key = tuple(rng.sample(names, rng.randint(0, min(2, len(names)))))
    schema = schema_of({name: random_type(rng, key=name in key) for name in names}, key)
    count = rng.choice([1, 2, 40])
    columns = [values_of([random_value(rng, f.type) for _ in range(count)], f.type) for f in schema.fields]
    kinds = pa.array([rng.randrange(4) if seed % 2 else INSERT for _ in range(count)], pa.int8())
    return rng, schema, pa.Table.from_arrays(columns, schema=arrow_schema(schema.fields)), kinds


@pytest.mark.parametrize("seed", range(120))
def test_rows_of_any_schema_come_back(seed: int) -> None:
    _, schema, rows, kinds = drawn(seed)
    round_trip(rows, schema, kinds)
    if schema.keyed:
        records = encode(rows, kinds, schema, "upsert")
        found, their_kinds = decode(records.keys, records.values, schema)
        kept = [i for i, kind in enumerate(kinds.to_pylist()) if kind != BEFORE]
        assert their_kinds.to_pylist() == [kinds[i].as_py() for i in kept]
        expected = [
            {name: value if kind != DELETE or name in schema.primary_keys else None for name, value in row.items()}
            for row, kind in zip(
                rows.take(pa.array(kept, pa.int64())).to_pylist(), their_kinds.to_pylist(), strict=True
            )
        ]
        assert bits(found.to_pylist()) == bits(expected)


@pytest.mark.parametrize("seed", range(40))
def test_records_written_by_another_writer_of_json_mean_the_same(seed: int) -> None:
    """Python's `json` writes blanks, other escapes and another order of members."""
    rng, schema, rows, kinds = drawn(seed)
    records = encode(rows, kinds, schema, "all")
    others: list[bytes | None] = []
    for value in records.values:
        assert value is not None
        record = list(json.loads(value, parse_float="<{}>".format).items())  # Python would round it
        rng.shuffle(record)
        text = re.sub('"<([0-9eE.+-]+)>"', r"\1", json.dumps(dict(record), indent=rng.choice([None, 2])))
        others.append(text.encode() if rng.random() < 0.7 else value)
    found, their_kinds = decode(records.keys, others, schema)
    assert_same(found, rows, schema)
    assert their_kinds.equals(kinds)


# other schemas


def test_columns_are_found_by_name() -> None:
    older = schema_of({"id": "INT", "gone": "STRING", "n": "INT"}, ("id",))
    newer = schema_of({"n": "BIGINT", "id": "INT", "added": t.Int(nullable=False)}, ("id",))
    rows = pa.table([[1], ["x"], [5]], schema=arrow_schema(older.fields))
    records = encode(rows, None, older, "all")
    found, _ = decode(records.keys, records.values, newer)
    assert found.schema == nullable_schema(newer.fields)
    assert found.to_pylist() == [{"n": 5, "id": 1, "added": None}]


def test_only_the_columns_asked_for_are_read() -> None:
    values = [b'{"before":null,"after":{"id":1,"state":["no", "text"]},"op":"c"}', None]
    found, kinds = decode([b'{"id":1}', b'{"id":2}'], values, ORDERS, ["id"])
    assert found.to_pylist() == [{"id": 1}, {"id": 2}]
    assert kinds.to_pylist() == [INSERT, DELETE]
    assert decode([b'{"id":1}', b'{"id":2}'], values, ORDERS, ["state"])[0].to_pylist()[1] == {"state": None}


# damage

GOOD = b'{"before":null,"after":{"id":1,"state":"a"},"op":"c"}'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "no object of JSON"),
        (b"null", "no object of JSON"),
        (b"[1]", "no object of JSON"),
        (b"{}", "'op' is neither"),
        (GOOD[:-1], "no object of JSON"),
        (GOOD[1:], "no object of JSON"),
        (GOOD.replace(b'"a"', b'"\xff"'), "not UTF-8"),
        (GOOD.replace(b'"a"', b'"\n"'), "no object of JSON"),
        (GOOD.replace(b'"a"', b"a"), "no object of JSON"),
        (GOOD.replace(b'"c"', b'"u"'), "'op' is neither"),
        (GOOD.replace(b'"c"', b'"d"'), "'before' is no object"),
        (b'{"before":null,"after":null,"op":"c"}', "'after' is no object"),
        (b'{"before":null,"after":7,"op":"c"}', "'after' is no object"),
        (GOOD.replace(b'"c"', b'"c","kind":"-D"'), "'kind' is none"),
        (GOOD.replace(b'"c"', b'"c","kind":7'), "'kind' is none"),
        (GOOD.replace(b'"id":1', b'"id":1.5'), "value '1.5' of column 'id' is no INT"),
        (GOOD.replace(b'"id":1', b'"id":null'), "lacks 'id'"),
        (GOOD.replace(b'"id"', b'"di"'), "lacks 'id'"),
        (GOOD.replace(b'"a"', b'"\\ud800"'), "half a surrogate pair"),
    ],
)
def test_a_damaged_record_is_named(value: bytes, message: str) -> None:
    with pytest.raises(FormatError, match="cannot read record 2 of a part of the log") as error:
        decode([b'{"id":1}'] * 4, [GOOD, None, value, GOOD], ORDERS)
    assert message in str(error.value)
    assert error.value.context["record"] == 2


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("DATE", "0000-01-01"),
        ("DATE", "2026-02-29"),
        ("TIMESTAMP(6)", "0000-12-31 00:00:00"),
        ("TIMESTAMP(6)", "2026-01-01 10"),
        ("TIMESTAMP(3)", "2026-01-01 10:00:00.1234"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2026-01-01 10:00:00+19:00"),
        ("TIME(3)", "24:00:00"),
        ("MAP<STRING, INT>", {"a": "x"}),
        ("ARRAY<INT>", {"a": 1}),
        ("BYTES", "?"),
        ("DECIMAL(3, 1)", "100.0"),
    ],
)
def test_a_value_that_its_column_does_not_hold_is_named(kind: str, text: Any) -> None:
    value = json.dumps({"before": None, "after": {"v": text}, "op": "c"}, separators=(",", ":")).encode()
    with pytest.raises(FormatError, match=r"cannot read record 0 of .* of column 'v'") as error:
        decode(None, [value], schema_of({"v": kind}))
    assert error.value.context == {"record": 0, "column": "v"}


@pytest.mark.parametrize("key", [None, b"", b"7", b"{}", b'{"id":null}', b'{"id":"x"}', b"\xff", b'{"id":1'])
def test_a_tombstone_needs_its_key(key: bytes | None) -> None:
    with pytest.raises(FormatError, match="cannot read record 1 of a part of the log"):
        decode([b'{"id":1}', key], [GOOD, None], ORDERS)


def test_many_records_keep_their_order_and_their_numbers() -> None:
    count = 20_000
    rows = pa.table([np.arange(count, dtype=np.int32), [str(i) for i in range(count)]], schema=orders().schema)
    kinds = pa.array((np.arange(count) % 4).astype(np.int8))
    round_trip(rows, ORDERS, kinds)
    records = encode(rows, kinds, ORDERS, "upsert")
    found, their_kinds = decode(records.keys, records.values, ORDERS)
    kept = np.flatnonzero(np.arange(count) % 4 != BEFORE)
    assert found["id"].to_pylist() == kept.tolist()
    assert their_kinds.to_pylist() == (kept % 4).tolist()
    with pytest.raises(FormatError, match="cannot read record 14999 of a part") as error:
        decode(records.keys, [*records.values[:-1], b"{"], ORDERS)
    assert error.value.context["record"] == 14_999


def test_a_table_without_a_primary_key_has_no_tombstones() -> None:
    schema = schema_of({"v": "INT"})
    for keys in (None, [b"{}"]):
        with pytest.raises(FormatError, match="no primary key"):
            decode(keys, [None], schema)


def test_a_record_between_our_ends_that_has_more_members_is_read_as_a_whole() -> None:
    value = b'{"before":null,"after":{"id":1,"state":"a"},"source":{"x":[1]},"op":"c"}'
    assert decode(None, [value, GOOD], ORDERS)[0].to_pylist() == [{"id": 1, "state": "a"}] * 2
