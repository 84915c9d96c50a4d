"""Change records written into tables, and what `mg.cdc.parse` refuses and promises besides single records."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.cdc import records as records_module
from merganser.errors import InvalidInputError, UnsupportedError

Make = Callable[..., mg.Table]
SCHEMA = {"id": "BIGINT", "name": "STRING", "qty": "INT"}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")

    def created(name: str = "t", schema: Any = None, key: tuple[str, ...] = ("id",), **options: Any) -> mg.Table:
        options = {"bucket": "1", **options} if key else options
        return catalog.create_table(f"db.{name}", schema=schema or SCHEMA, primary_key=list(key), options=options)

    return created


def change(op: str, before: Any = None, after: Any = None, **more: Any) -> str:
    return json.dumps({"op": op, "before": before, "after": after, **more})


def row(i: int, qty: int = 1) -> dict[str, Any]:
    return {"id": i, "name": f"n{i}", "qty": qty}


def test_changes_become_one_commit(make: Make) -> None:
    table = make()
    written = table.write_changes(
        [
            change("c", None, row(1)),
            change("c", None, row(2)),
            change("u", row(1), row(1, 5)),
            change("d", row(2)),
            None,
        ],
        "debezium-json",
    )
    assert (written.rows, written.rejected, written.skipped) == (5, 0, {"tombstone": 1})
    assert written.snapshot is not None
    assert written.snapshot.id == 1
    assert table.read().to_pylist() == [row(1, 5)]


def test_a_bad_record_without_a_table_of_dead_letters_writes_nothing(make: Make) -> None:
    table = make()
    with pytest.raises(InvalidInputError, match=r"record 1 is bad: bad-value: column qty: 'x' is no INT") as found:
        table.write_changes([change("c", None, row(1)), change("c", None, {**row(2), "qty": "x"})], "debezium-json")
    assert found.value.context["record"] == 1
    assert table.snapshots() == ()


def test_bad_records_go_to_the_dead_letters_and_a_repeated_call_writes_nothing_twice(make: Make) -> None:
    table, letters = make(), make("letters", mg.cdc.DEAD_LETTERS, ())
    given = [change("c", None, row(1)), "{", change("c", None, row(2)), b"\xff\xfe"]
    for _ in range(2):
        written = table.write_changes(
            pa.array(given, pa.binary()),
            "debezium-json",
            keys=['{"id": 1}', "k", None, None],
            dead_letters=letters,
            commit_user="feed",
            identifier=7,
        )
        assert (written.rows, written.rejected) == (2, 2)
    found = letters.read(columns=["table", "position", "reason", "text", "key"]).to_pylist()
    assert found == [
        {"table": "db.t", "position": 1, "reason": "not-json: the text is not JSON", "text": b"{", "key": b"k"},
        {"table": "db.t", "position": 3, "reason": "not-json: the bytes are not UTF-8", "text": b"\xff\xfe",
         "key": None},
    ]  # fmt: skip
    assert letters.read(columns=["time"]).to_arrow()["time"].null_count == 0
    assert len(table.snapshots()) == len(letters.snapshots()) == 1


def test_feeds_of_two_tables_share_a_user_and_a_table_of_dead_letters(make: Make) -> None:
    letters = make("letters", mg.cdc.DEAD_LETTERS, ())
    for name in ("t", "u"):
        make(name).write_changes(["{"], "debezium-json", dead_letters=letters, commit_user="feed", identifier=7)
    assert letters.read(columns=["table"]).to_pylist() == [{"table": "db.t"}, {"table": "db.u"}]


def test_nothing_but_skipped_records_is_no_commit(make: Make) -> None:
    written = make().write_changes([None, '{"ts_ms": 1}'], "debezium-json")
    assert (written.snapshot, written.rows, written.skipped) == (None, 0, {"tombstone": 1, "control": 1})


def test_values_that_were_not_sent_stay_in_a_partial_update_table(make: Make) -> None:
    table = make(**{"merge-engine": "partial-update", "ignore-delete": "true"})
    table.write([row(1)])
    unsent = {"id": 1, "name": "__debezium_unavailable_value", "qty": 9}
    table.write_changes([change("u", None, unsent)], "debezium-json", unavailable="null")
    assert table.read().to_pylist() == [row(1, 9)]


def test_rows_do_not_depend_on_how_records_are_cut_into_pieces(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    given = pa.array([change("c", None, row(i)) if i % 7 else "{" for i in range(200)])
    whole = mg.cdc.parse(given, "debezium-json", table)
    monkeypatch.setattr(records_module, "_PIECE_BYTES", 700)
    chunked = pa.chunked_array([given.slice(0, 3), given.slice(3, 0), given.slice(3)])
    for parts in (given, chunked, given.cast(pa.large_string()), given.cast(pa.large_binary()), given.to_pylist()):
        found = mg.cdc.parse(parts, "debezium-json", table)
        assert found.rows.equals(whole.rows)
        assert found.record.equals(whole.record)
        assert found.rejected.to_pylist() == whole.rejected.to_pylist()


def test_no_records_give_no_rows(make: Make) -> None:
    table = make()
    for nothing in ([], pa.array([], pa.string()), [None]):
        assert mg.cdc.parse(nothing, "debezium-json", table).rows.num_rows == 0


@pytest.mark.parametrize("bits", [8, 63, 100, 126])
def test_decimals_in_base64_keep_all_digits(make: Make, bits: int) -> None:
    draw = random.Random(bits)
    numbers = [draw.randrange(-(1 << bits), 1 << bits) for _ in range(50)] + [0, -1, 1, 127, 128, -128, -129, 255, 256]
    numbers = [number for number in numbers if abs(number) < 10**38]
    table = make(schema={"id": "BIGINT", "d": "DECIMAL(38, 5)", "s": "STRING"})
    field = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "5"}}
    image = {"type": "struct", "field": "after", "fields": [{**field, "field": "d"}, {**field, "field": "s"}]}
    schema = {"type": "struct", "fields": [image]}
    given = []
    for i, number in enumerate(numbers):
        text = base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()
        payload = {"op": "c", "after": {"id": i, "d": text, "s": text}}
        separators = random.Random(i).choice([(",", ":"), (", ", ": ")])
        given.append(json.dumps({"schema": schema, "payload": payload}, separators=separators))
    found = mg.cdc.parse(given, "debezium-json", table)
    assert found.rejected.num_rows == 0
    expected = [Decimal(f"{number}e-5") for number in numbers]
    assert found.rows["d"].to_pylist() == expected
    assert [Decimal(text) for text in found.rows["s"].to_pylist()] == expected


def test_each_record_is_read_by_its_own_schema(make: Make) -> None:
    table = make(schema={"id": "BIGINT", "at": "TIMESTAMP(6)"})

    def record(i: int, unit: str, value: int) -> str:
        fields = [{"type": "int64", "field": "at", "name": f"io.debezium.time.{unit}"}]
        schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
        payload = {"op": "c", "after": {"id": i, "at": value}}
        return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":"))

    given = [
        record(i, *(("Timestamp", 1714559400250) if i % 2 else ("MicroTimestamp", 1714559400250000))) for i in range(9)
    ]
    found = mg.cdc.parse([*given, change("c", None, {"id": 9, "at": 1})], "debezium-json", table)
    assert {str(value) for value in found.rows["at"]} == {"2024-05-01 10:30:00.250000"}
    assert found.rejected["reason"].to_pylist() == [
        "bad-value: column at: '1' is an integer of no known unit. Set time_unit"
    ]


@pytest.mark.parametrize("format_", ["debezium-json", "debezium-flat", "canal-json"])
def test_records_bring_the_columns_whose_types_they_tell(make: Make, format_: str) -> None:
    table = make(**{"write.merge-schema": "true", "write.merge-schema.type-widening": "true"})

    def record(i: int, more: dict[str, tuple[Any, Any, str]]) -> str:
        values = row(i) | {name: value for name, (value, _, _) in more.items()}
        if format_ == "canal-json":
            types = {"id": "bigint", "name": "text", "qty": "int"} | {name: kind for name, (_, _, kind) in more.items()}
            texts = {name: str(value) for name, value in values.items()}
            return json.dumps({"type": "INSERT", "data": [texts], "mysqlType": types, "pkNames": ["id"]})
        known = {"id": {"type": "int64"}, "name": {"type": "string"}, "qty": {"type": "int32"}}
        fields = [
            {"field": name, **kind} for name, kind in (known | {n: kind for n, (_, kind, _) in more.items()}).items()
        ]
        struct = {"type": "struct", "fields": fields}
        if format_ == "debezium-flat":
            return json.dumps({"schema": struct, "payload": values})
        schema = {"type": "struct", "fields": [{**struct, "field": "after"}]}
        return json.dumps({"schema": schema, "payload": {"op": "c", "before": None, "after": values}})

    day: Any = (
        19723 if format_ != "canal-json" else "2024-01-01",
        {"type": "int32", "name": "io.debezium.time.Date"},
        "date",
    )
    large: Any = (2**40, {"type": "int64"}, "bigint")
    table.write_changes([record(1, {}), record(2, {"day": day}), record(3, {"qty": large})], format_)
    found = mg.table(table.path)
    assert [(name, str(found.schema.field(name).type)) for name in found.schema.names[2:]] == [
        ("qty", "BIGINT"),
        ("day", "DATE"),
    ]
    rows = {read["id"]: (read["qty"], str(read["day"])) for read in found.read().to_pylist()}
    assert rows == {1: (1, "None"), 2: (1, "2024-01-01"), 3: (2**40, "None")}
    table.write_changes([record(4, {"day": day})], format_)
    assert mg.table(table.path).schema.id == found.schema.id
    with pytest.raises(InvalidInputError):
        table.write_changes([record(5, {"other": day}), '{"x"'], format_)
    table.with_options({"write.merge-schema": "false"}).write_changes([record(5, {"other": day})], format_)
    assert mg.table(table.path).schema.id == found.schema.id


def _told(i: int | None, name: str, kind: dict[str, Any], value: Any) -> str:
    """A record that tells the type of one column beside `id`."""
    fields = [{"field": "id", "type": "int64"}, {"field": name, "optional": True, **kind}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return json.dumps({"schema": schema, "payload": {"op": "c", "before": None, "after": {"id": i, name: value}}})


def _struct(**kinds: str) -> dict[str, Any]:
    fields = [{"field": name, "type": kind, "optional": True} for name, kind in kinds.items()]
    return {"type": "struct", "fields": fields}


INT32, INT64, TEXT = {"type": "int32"}, {"type": "int64"}, {"type": "string"}
DAY = {"type": "int32", "name": "io.debezium.time.Date"}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ((INT64, 2**40), (INT32, 1), "BIGINT"),
        ((TEXT, "007"), (INT32, 1), "STRING"),
        (({"type": "double"}, 0.1), ({"type": "float"}, 1.5), "DOUBLE"),
        (({"type": "double"}, 0.5), (INT64, 2**60 + 1), "STRING"),
        ((_struct(x="int32", a="string"), {"x": 1, "a": "A"}), (_struct(x="int64", b="int32"), {"x": 2, "b": 3}), None),
        ((_struct(x="int32", a="string"), {"x": 1, "a": "A"}), (_struct(x="int32"), {"x": 2}), None),
    ],
)
def test_a_column_gets_a_type_that_holds_what_all_records_of_a_call_tell(
    make: Make, one: tuple[Any, Any], other: tuple[Any, Any], kind: str | None, turned: bool
) -> None:
    table = make(schema={"id": "BIGINT"}, **{"write.merge-schema": "true"})
    records = [_told(1, "w", *one), _told(2, "w", *other)]
    table.write_changes(records[::-1] if turned else records, "debezium-json")
    found = mg.table(table.path)
    values = {row["id"]: row["w"] for row in found.read().to_pylist()}
    if kind is not None:
        assert str(found.schema.field("w").type) == kind
        assert values == {
            1: one[1] if kind != "STRING" else str(one[1]),
            2: other[1] if kind != "STRING" else str(other[1]),
        }
    else:
        for given, row in ((one[1], values[1]), (other[1], values[2])):
            assert {name: value for name, value in row.items() if value is not None} == given


def test_types_that_no_type_holds_are_refused_unless_the_table_has_the_column(make: Make) -> None:
    table = make(schema={"id": "BIGINT"}, **{"write.merge-schema": "true"})
    records = [_told(1, "w", INT32, 5), _told(2, "w", DAY, 19723)]
    with pytest.raises(InvalidInputError, match=r"two types of column 'w', INT and DATE.*Nothing was written"):
        table.write_changes(records, "debezium-json")
    assert mg.table(table.path).schema.id == table.schema.id
    table = table.alter([mg.changes.add_column("w", "DATE")])
    table.write_changes([_told(1, "v", INT32, 5), *records[1:]], "debezium-json")
    table.write_changes([_told(3, "w", DAY, 19724), _told(4, "w", TEXT, None)], "debezium-json")
    assert sorted((row["id"], str(row["w"])) for row in mg.table(table.path).read().to_pylist()) == [
        (1, "None"),
        (2, "2024-01-01"),
        (3, "2024-01-02"),
        (4, "None"),
    ]


def test_no_new_field_of_a_known_row_is_lost_where_records_tell_types_that_do_not_meet(make: Make) -> None:
    table = make(schema={"id": "BIGINT", "w": "ROW<x INT>"}, **{"write.merge-schema": "true"})
    day = {"type": "struct", "fields": [{"field": "x", "optional": True, **DAY}]}
    records = [_told(1, "w", _struct(x="int32", a="string"), {"x": 1, "a": "A"}), _told(2, "w", day, {"x": 5})]
    with pytest.raises(InvalidInputError, match=r"two types of column 'w'.* in calls of their own\.$"):
        table.write_changes(records, "debezium-json")
    for record in records:
        table.write_changes([record], "debezium-json")
    rows = {row["id"]: row["w"] for row in mg.table(table.path).read().to_pylist()}
    assert rows == {1: {"x": 1, "a": "A"}, 2: {"x": 5, "a": None}}


def test_a_record_that_becomes_a_dead_letter_brings_no_column(make: Make) -> None:
    table = make(schema={"id": "BIGINT"}, **{"write.merge-schema": "true"})
    letters = make("letters", dict(mg.cdc.DEAD_LETTERS), ())
    written = table.write_changes(
        [_told(None, "bad", TEXT, "x"), _told(1, "good", TEXT, "y")], "debezium-json", dead_letters=letters
    )
    assert (written.rows, written.rejected) == (1, 1)
    assert mg.table(table.path).schema.names == ("id", "good")


@pytest.mark.parametrize("format_", ["debezium-json", "debezium-flat", "canal-json"])
def test_records_of_other_tables_and_of_the_stream_bring_no_column(make: Make, format_: str) -> None:
    table = make(schema={"id": "BIGINT"}, **{"write.merge-schema": "true"})
    records = [_of_table(format_, "t", {"id": 1, "own": "a"}), _of_table(format_, "u", {"id": 2, "other": "b"})]
    fields = [{"field": name, "type": "string"} for name in ("status", "id", "event_count")]
    begin = {"status": "BEGIN", "id": "7", "event_count": None}
    records.append(json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": begin}))
    for _ in range(2):
        written = table.write_changes(records[: 2 if format_ == "canal-json" else 3], format_, table="t")
    assert mg.table(table.path).schema.names == ("id", "own")
    assert mg.table(table.path).read().to_pylist() == [{"id": 1, "own": "a"}]
    assert written.skipped["other-table"] == 1


def test_recorded_records_of_another_table_bring_no_column(make: Make) -> None:
    lines = (Path(__file__).parents[2] / "debezium/cases/16_merge_schema_other_table.jsonl").read_text().splitlines()
    values, keys = ([json.loads(line)[part] for line in lines] for part in ("value", "key"))
    table = make(schema={"id": "INT"}, **{"write.merge-schema": "true"})
    table.write_changes(values, "debezium-json", keys=keys, table="evolve", database="w2")
    assert mg.table(table.path).schema.names == ("id", "a", "b")


def _of_table(format_: str, table: str, row: dict[str, Any]) -> str:
    if format_ == "canal-json":
        types = {"id": "bigint", "own": "text", "other": "text"}
        told = {name: types[name] for name in row}
        return json.dumps({"type": "INSERT", "table": table, "data": [row], "mysqlType": told})
    fields = [{"field": name, "type": "int64" if name == "id" else "string"} for name in row]
    if format_ == "debezium-flat":
        fields.append({"field": "__table", "type": "string"})
        return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {**row, "__table": table}})
    payload = {"op": "c", "after": row, "source": {"table": table}}
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return json.dumps({"schema": schema, "payload": payload})


def test_computed_columns_may_be_partitions_and_a_row_without_a_value_is_bad_alone(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        schema={"id": "BIGINT", "at": "TIMESTAMP(3)", "dt": "STRING", "n": "INT"},
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1"},
    )
    one, two, huge = ({"id": i, "at": f"2024-05-0{day} 10:00:00"} for i, day in ((1, 1), (1, 2), (2**40, 1)))
    found = mg.cdc.parse(
        [change("c", None, one), change("u", one, two), change("c", None, huge)],
        "debezium-json",
        table,
        computed={"dt": "cast(date(at) as string)", "n": "cast(id as int)"},
    )
    assert found.kinds.to_pylist() == [0, 3, 0]
    assert found.rows["dt"].to_pylist() == ["2024-05-01", "2024-05-01", "2024-05-02"]
    assert found.rejected["record"].to_pylist() == [2]
    assert "column n" in found.rejected["reason"][0].as_py()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tombstones": "ignore"}, "unknown option 'tombstones'. Did you mean 'tombstone'?"),
        ({"truncate": "yes"}, "'truncate' is 'yes'. It is one of 'bad', 'ignore'"),
        ({"time_zone": "Mars"}, "there is no time zone 'Mars'"),
        ({"time_unit": "hours"}, "'time_unit' is 'hours'"),
        ({"time_unit": {"x": "ms"}}, "names the column 'x'"),
        ({"table": "("}, "no regular expression"),
        ({"metadata": {"name": "offset"}}, "'offset' is none of"),
        ({"metadata": {"nam": "op"}}, "Did you mean 'name'?"),
        ({"computed": {"id": "1"}}, "No column of the primary key"),
        ({"computed": {"name": "nothing + 1"}}, "nothing"),
        ({"keys": ["a", "b"]}, "1 records and 2 keys"),
    ],
)
def test_an_option_without_a_meaning_is_refused(make: Make, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError) as found:
        mg.cdc.parse([change("c", None, row(1))], "debezium-json", make(), **options)
    assert said in str(found.value)


def test_formats_and_columns_that_are_not_read_are_refused(make: Make) -> None:
    table = make()
    with pytest.raises(InvalidInputError, match=r"unknown format 'debezium_json'\. Did you mean 'debezium-json'"):
        mg.cdc.parse([], "debezium_json", table)
    with pytest.raises(UnsupportedError, match="schemas lie in a registry"):
        mg.cdc.parse([], "debezium-avro", table)
    with pytest.raises(InvalidInputError, match="do not name their table"):
        mg.cdc.parse([], "json", table, table="t")
    with pytest.raises(InvalidInputError, match="records is list of int64"):
        mg.cdc.parse([1], "json", table)
    bag = make("bag", {"id": "BIGINT", "m": "MULTISET<INT>"})
    with pytest.raises(UnsupportedError, match="column 'm' has the type MULTISET<INT>"):
        mg.cdc.parse([], "json", bag)
