"""What change records mean: values not sent, records about the stream, updates and deletes of part of a row."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import merganser as mg

Make = Callable[..., mg.Table]
TEXT = "__debezium_unavailable_value"
BYTES = TEXT.encode()
CASES = Path(__file__).parents[2] / "debezium" / "cases"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")

    def created(schema: Mapping[str, str], key: tuple[str, ...] = ("id",), name: str = "t", **more: Any) -> mg.Table:
        return catalog.create_table(f"db.{name}", schema, primary_key=list(key), **more)

    return created


def recorded(name: str) -> tuple[list[str], list[str | None]]:
    """Return the records of a case, and their message keys."""
    lines = [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]
    return [line["value"] for line in lines], [line["key"] for line in lines]


def reasons(parsed: mg.cdc.Parsed) -> list[str]:
    return parsed.rejected["reason"].to_pylist()


# values that the source did not send


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


STAND_INS = {
    "text": ("STRING", TEXT),
    "base64": ("BYTES", base64_of(BYTES)),
    "base64 url-safe": ("BYTES", base64.urlsafe_b64encode(BYTES).decode().rstrip("=")),
    "hex": ("BYTES", BYTES.hex()),
    "hstore as JSON text": ("STRING", json.dumps({TEXT: TEXT}, separators=(",", ":"))),
    "hstore as JSON text with blanks": ("MAP<STRING, STRING>", json.dumps({TEXT: TEXT})),
    "hstore as a map": ("MAP<STRING, STRING>", {TEXT: TEXT}),
    "array of text": ("ARRAY<STRING>", [TEXT]),
    "array of text as text": ("STRING", json.dumps([TEXT])),
    "array of bytes": ("ARRAY<BYTES>", [base64_of(BYTES)]),
    "array of bytes in hex": ("ARRAY<BYTES>", [BYTES.hex()]),
    "array of integers": ("ARRAY<INT>", list(BYTES)),
    "array of floats": ("ARRAY<DOUBLE>", [float(byte) for byte in BYTES]),
    "array of uuid": ("ARRAY<STRING>", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    "geometry": ("BYTES", {"wkb": base64_of(BYTES), "srid": None}),
    "point": ("BYTES", {"x": 0.0, "y": 0.0, "wkb": base64_of(BYTES), "srid": None}),
}


@pytest.mark.parametrize("form", STAND_INS)
@pytest.mark.parametrize("format_", ["debezium-json", "debezium-flat", "json"])
def test_a_value_that_was_not_sent_is_found_in_every_form(make: Make, form: str, format_: str) -> None:
    kind, value = STAND_INS[form]
    table = make({"id": "BIGINT", "v": kind})
    row = {"id": 1, "v": value}
    record = json.dumps({"op": "u", "after": row} if format_ == "debezium-json" else row)
    found = mg.cdc.parse([record], format_, table)
    assert [reason[:23] for reason in reasons(found)] == ["unavailable: column v: "]


def test_a_placeholder_of_the_connector_may_be_written_in_hex(make: Make) -> None:
    record = json.dumps({"op": "u", "after": {"id": 1, "v": base64_of(b"\x01\x02")}})
    found = mg.cdc.parse(
        [record], "debezium-json", make({"id": "INT", "v": "BYTES"}), unavailable_placeholder="hex:0102"
    )
    assert reasons(found)[0].startswith("unavailable: column v")


@pytest.mark.parametrize("case", ["01_hstore_json_placeholder", "08_pk_update_toast"])
def test_a_recorded_row_without_its_large_values_is_bad(make: Make, case: str) -> None:
    columns = {"id": "INT", "h": "STRING", "n": "INT"}
    values, keys = recorded(case)
    found = mg.cdc.parse(values, "debezium-json", make(columns), keys=keys)
    assert [reason[:23] for reason in reasons(found)] == ["unavailable: column h: "] * 2


# records about the stream


CONTROL: dict[str, dict[str, Any]] = {
    "begin": {"status": "BEGIN", "id": "7:1", "event_count": None, "data_collections": None, "ts_ms": 1},
    "end": {"status": "END", "id": "7:1", "event_count": 2, "data_collections": [{"data_collection": "a"}]},
    "message": {"op": "m", "ts_ms": 1, "source": {"table": ""}, "message": {"prefix": "p", "content": "aGk="}},
    "heartbeat": {"ts_ms": 1},
    "schema change": {"source": {}, "ts_ms": 1, "databaseName": "d", "ddl": "ALTER", "tableChanges": []},
}


@pytest.mark.parametrize("what", CONTROL)
@pytest.mark.parametrize("format_", ["debezium-json", "debezium-flat", "json"])
def test_a_record_about_the_stream_gives_no_row_and_is_counted(make: Make, what: str, format_: str) -> None:
    options = {} if format_ == "json" else {"table": "orders"}
    table = make({"id": "STRING", "status": "STRING"})
    found = mg.cdc.parse([json.dumps(CONTROL[what])], format_, table, keys=['{"id": "7:1"}'], **options)
    assert (found.rows.num_rows, reasons(found), dict(found.skipped)) == (0, [], {"control": 1})


@pytest.mark.parametrize("case", ["07_flat_message", "07_transaction"])
@pytest.mark.parametrize("format_", ["debezium-json", "debezium-json-schema", "debezium-flat"])
def test_recorded_messages_and_transactions_give_no_rows(make: Make, case: str, format_: str) -> None:
    values, keys = recorded(case)
    found = mg.cdc.parse(values, format_, make({"id": "INT", "n": "INT"}), keys=keys)
    assert (found.rows.num_rows, reasons(found), dict(found.skipped)) == (0, [], {"control": len(values)})


def test_a_table_of_such_records_takes_them_as_rows(make: Make) -> None:
    columns = {
        "id": "STRING",
        "status": "STRING",
        "event_count": "BIGINT",
        "data_collections": "STRING",
        "ts_ms": "INT",
    }
    records = [json.dumps(CONTROL["begin"]), '{"id": "x", "status": "END"}', '{"ts_ms": 1, "id": "y"}']
    found = mg.cdc.parse(records, "debezium-flat", make(columns))
    assert found.rows["id"].to_pylist() == ["7:1", "x", "y"]


# updates and deletes of part of a row


def test_an_update_of_a_flattened_stream_is_no_addition_to_a_table_without_a_key(make: Make) -> None:
    values, keys = recorded("06_flat_keyless_update")
    table = make({"x": "INT", "s": "STRING", "ts": "TIMESTAMP(6)"}, ())
    found = mg.cdc.parse(values, "debezium-flat", table, keys=keys)
    assert found.kinds.to_pylist() == [3]
    assert [reason.split(":")[0] for reason in reasons(found)] == ["missing-before"] * 2


BAD_OLD = {"id": 1, "n": "x", "d": "2026-99-01"}
BY_FORMAT: dict[str, dict[str, Any]] = {
    "debezium-json": {"op": "d", "before": BAD_OLD},
    "debezium-flat": {**BAD_OLD, "__deleted": "true"},
    "canal-json": {"type": "DELETE", "data": [BAD_OLD]},
    "maxwell-json": {"type": "delete", "data": BAD_OLD},
    "ogg-json": {"op_type": "D", "before": BAD_OLD},
}


@pytest.mark.parametrize("format_", BY_FORMAT)
def test_a_bad_value_outside_the_key_does_not_hold_up_a_delete(make: Make, format_: str) -> None:
    table = make({"id": "BIGINT", "n": "INT NOT NULL", "d": "DATE", "twice": "INT"})
    table.write([{"id": 1, "n": 1, "d": None, "twice": 2}])
    record = json.dumps(BY_FORMAT[format_])
    found = mg.cdc.parse([record], format_, table, computed={"twice": "n * 2"})
    assert found.rows.to_pylist() == [{"id": 1, "n": None, "d": None, "twice": None}]
    table.write_changes([record], format_)
    assert table.read().to_pylist() == []


def test_a_bad_value_that_a_computed_key_needs_holds_up_a_delete(make: Make) -> None:
    table = make({"id": "BIGINT", "at": "TIMESTAMP(3)", "day": "DATE"}, ("id", "day"))
    record = json.dumps({"op": "d", "before": {"id": 1, "at": "noon"}})
    found = mg.cdc.parse([record], "debezium-json", table, computed={"day": "date(at)"})
    assert reasons(found) == ["bad-value: column at: 'noon' is no TIMESTAMP(3)"]


def test_a_bad_old_value_does_not_hold_up_an_update_that_changes_the_key(make: Make) -> None:
    record = json.dumps({"op": "u", "before": {"id": 1, "n": "x"}, "after": {"id": 2, "n": 5}})
    found = mg.cdc.parse([record], "debezium-json", make({"id": "BIGINT", "n": "INT"}))
    assert found.rows.to_pylist() == [{"id": 1, "n": None}, {"id": 2, "n": 5}]


# rows that move, of which the old one is not known


DAY = {"id": "BIGINT", "day": "DATE", "created": "TIMESTAMP(3)"}
OLD, NEW = {"id": 1, "created": "2026-01-01 10:00:00"}, {"id": 1, "created": "2026-01-02 10:00:00"}
UPDATES: dict[str, tuple[str, Any, Any]] = {
    # name: format, the record of the first row, the record of the update
    "debezium": ("debezium-json", {"op": "c", "after": OLD}, {"op": "u", "before": None, "after": NEW}),
    "debezium key": ("debezium-json", {"op": "c", "after": OLD}, {"op": "u", "before": {"id": 1}, "after": NEW}),
    "flat": ("debezium-flat", {**OLD, "__op": "c"}, {**NEW, "__op": "u"}),
    "flat without op": ("debezium-flat", {**OLD, "__op": "c"}, NEW),
    "canal": ("canal-json", {"type": "INSERT", "data": [OLD]}, {"type": "UPDATE", "data": [NEW], "old": None}),
    "maxwell": ("maxwell-json", {"type": "insert", "data": OLD}, {"type": "update", "data": NEW}),
    "ogg": ("ogg-json", {"op_type": "I", "after": OLD}, {"op_type": "U", "before": {"id": 1}, "after": NEW}),
    "json": ("json", None, NEW),
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("way", UPDATES)
def test_an_update_that_may_leave_the_old_row_in_another_partition_is_bad(make: Make, way: str, plain: bool) -> None:
    format_, insert, update = UPDATES[way]
    options: dict[str, Any] = {} if plain else {"computed": {"day": "date(created)"}}
    table = make(DAY, ("id", "day"), partition_by=["day"])
    letters = make(mg.cdc.DEAD_LETTERS, (), "letters")
    if insert is not None:
        table.write_changes([dated(insert, plain)], format_, keys=['{"id": 1}'], **options)
    keys = ['{"pk.id": 1}' if way == "maxwell" else '{"id": 1}']
    found = table.write_changes([dated(update, plain)], format_, keys=keys, dead_letters=letters, **options)
    assert found.rejected == 1
    assert letters.read().to_pylist()[0]["reason"].startswith("missing-before: column day")
    assert table.read().count() == (insert is not None)


def dated(record: Any, plain: bool) -> str:
    """Return a record whose whole rows have a day, if it is a plain column."""
    text = json.dumps(record)
    for day in ("2026-01-01", "2026-01-02") if plain else ():
        text = text.replace(f'"created": "{day} 10:00:00"', f'"created": "{day} 10:00:00", "day": "{day}"')
    return text


@pytest.mark.parametrize(
    ("format_", "update"),
    [
        ("debezium-json", {"op": "u", "before": OLD, "after": NEW}),
        ("canal-json", {"type": "UPDATE", "data": [NEW], "old": [{"created": OLD["created"]}]}),
        ("maxwell-json", {"type": "update", "data": NEW, "old": {"created": OLD["created"]}}),
        ("ogg-json", {"op_type": "U", "before": OLD, "after": {**NEW, "note": "n"}}),  # the old row is not whole
    ],
)
def test_an_update_that_holds_what_the_key_is_computed_from_moves_the_row(
    make: Make, format_: str, update: Any
) -> None:
    table = make({**DAY, "note": "STRING"}, ("id", "day"), partition_by=["day"])
    options = {"computed": {"day": "date(created)"}}
    first = {"op": "c", "after": OLD}
    table.write_changes([json.dumps(first)], "debezium-json", keys=['{"id": 1}'], **options)
    table.write_changes([json.dumps(update)], format_, keys=['{"id": 1}'], **options)
    assert [(row["id"], str(row["day"])) for row in table.read().to_pylist()] == [(1, "2026-01-02")]


def test_an_update_of_part_of_a_row_whose_computed_key_stays_is_one_row(make: Make) -> None:
    table = make({**DAY, "note": "STRING"}, ("id", "day"))
    update = {"op_type": "U", "before": OLD, "after": {**OLD, "note": "n"}}
    found = mg.cdc.parse([json.dumps(update)], "ogg-json", table, computed={"day": "date(created)"})
    assert [(kind, row["note"]) for kind, row in zip(found.kinds.to_pylist(), found.rows.to_pylist(), strict=True)] == [
        (2, "n")
    ]


def test_a_message_key_with_all_key_columns_says_that_they_are_the_same(make: Make) -> None:
    table = make({"id": "BIGINT", "day": "DATE", "n": "INT"}, ("id", "day"), partition_by=["day"])
    row = {"id": 1, "day": "2026-01-01", "n": 2}
    for format_, record in (("debezium-json", {"op": "u", "after": row}), ("debezium-flat", row), ("json", row)):
        keys = ['{"id": 1, "day": "2026-01-01"}']
        assert mg.cdc.parse([json.dumps(record)], format_, table, keys=keys).rows.num_rows == 1


def test_an_update_without_an_old_row_needs_a_message_key_of_the_same_columns(make: Make) -> None:
    update = json.dumps({"op": "u", "after": {"id": 1, "mail": "a@b"}})
    table = make({"id": "BIGINT", "mail": "STRING"}, ("mail",))
    assert reasons(mg.cdc.parse([update], "debezium-json", table, keys=['{"id": 1}']))[0].startswith("missing-before")
    assert mg.cdc.parse([update], "debezium-json", table).rows.num_rows == 1


# old rows with values that the connector put in


def deleted(before: Mapping[str, Any], fields: str | None = None, connector: str | None = "postgresql") -> str:
    """Return the record of a delete; fields: "name type [default]", separated by commas; they make a schema."""
    payload: dict[str, Any] = {"op": "d", "before": before, "source": {"connector": connector}}
    if connector is None:
        del payload["source"]
    if fields is None:
        return json.dumps(payload)
    parts: list[dict[str, Any]] = []
    for name, kind, *default in (field.split() for field in fields.split(", ")):
        parts.append({"field": name, "type": kind, **({"default": json.loads(default[0])} if default else {})})
    image = {"field": "before", "type": "struct", "fields": parts}
    return json.dumps({"schema": {"type": "struct", "fields": [image]}, "payload": payload})


@pytest.mark.parametrize(
    ("record", "fine"),
    [
        (deleted({"id": 1, "region": "", "n": 0}), False),
        (deleted({"id": 1, "region": "eu", "n": 0}), False),  # a constant default, maybe
        (deleted({"id": 1, "region": "eu", "n": 0}, "id int64, region string, n int32"), True),
        (deleted({"id": 1, "region": "eu", "n": 0}, 'id int64, region string "eu", n int32'), False),
        (deleted({"id": 1, "region": "eu", "n": 7}, 'id int64, region string "eu", n int32 5'), True),
        (deleted({"id": 1, "region": "", "n": 7}, "id int64, region string, n int32"), True),
        (deleted({"id": 1, "region": "", "n": 0}, connector=None), False),
        (deleted({"id": 1, "region": "eu", "n": 0}, connector=None), True),
        (deleted({"id": 1, "region": "", "n": 0}, connector="mysql"), True),
        (json.dumps({"id": 1, "region": "", "n": 0, "__deleted": "true", "__lsn": 7}), False),
        (json.dumps({"id": 1, "region": "eu", "n": 0, "__deleted": "true"}), True),
    ],
)
def test_a_delete_whose_key_may_be_made_up_is_bad_unless_the_old_row_is_whole(
    make: Make, record: str, fine: bool
) -> None:
    format_ = "debezium-flat" if "__deleted" in record else "debezium-json"
    table = make({"id": "BIGINT", "region": "STRING", "n": "INT"}, ("id", "region"), partition_by=["region"])
    for keys in (['{"id": 1}'], None):
        found = mg.cdc.parse([record], format_, table, keys=keys)
        assert found.rows.num_rows == fine
        assert all("missing-before: column region" in reason for reason in reasons(found))
        assert all("REPLICA IDENTITY FULL" in reason for reason in reasons(found))
    assert mg.cdc.parse([record], format_, table, keys=['{"id": 1}'], old_rows="whole").rows.num_rows == 1
    assert mg.cdc.parse([record], format_, table, keys=['{"id": 1}'], old_rows="key").rows.num_rows == 0
    assert mg.cdc.parse([record], format_, table, keys=['{"id": 1, "region": ""}']).rows.num_rows == 1


RECORDED = {
    "id": "INT", "name": "STRING NOT NULL", "amount": "DECIMAL(10, 2)", "flag": "BOOLEAN",
    "at": "TIMESTAMP(6) WITH LOCAL TIME ZONE NOT NULL", "q": "INT", "dd": "DATE NOT NULL",
}  # fmt: skip


def test_a_recorded_delete_leaves_out_what_the_connector_put_in(make: Make) -> None:
    values, keys = recorded("09_default_identity_delete")
    for given in (keys, None):
        found = mg.cdc.parse(values, "debezium-json", make(RECORDED, name=f"t{given is None}"), keys=given)
        nothing = dict.fromkeys([name for name in RECORDED if name != "id"])
        assert found.rows.to_pylist() == [{"id": 331, **nothing}, {"id": 98, **nothing}]


@pytest.mark.parametrize("column", ["at", "dd"])
def test_a_recorded_delete_gives_no_computed_key(make: Make, column: str) -> None:
    values, keys = recorded("09_default_identity_delete")
    table = make({**RECORDED, "day": "DATE"}, ("id", "day"), partition_by=["day"])
    plain = [json.dumps(json.loads(value)["payload"]) for value in values]
    for records in (values, plain):
        found = mg.cdc.parse(records, "debezium-json", table, keys=keys, computed={"day": f"date({column})"})
        assert found.rows.num_rows == 0
        assert [reason.startswith("missing-before: column day") for reason in reasons(found)] == [True, True]


def test_a_delete_without_the_column_that_orders_rows_is_bad(make: Make) -> None:
    schema = {"id": "BIGINT", "v": "INT", "seen": "TIMESTAMP(3)"}
    table = make(schema, options={"sequence.field": "v"})
    record = json.dumps({"op": "d", "before": {"id": 1}, "source": {"ts_ms": 5}})
    found = mg.cdc.parse([record], "debezium-json", table)
    assert reasons(found)[0].startswith("missing-before: column v: it orders the rows of a key")
    ordered = make(schema, name="u", options={"sequence.field": "seen"})
    found = mg.cdc.parse([record], "debezium-json", ordered, metadata={"seen": "source_ts"})
    assert found.rows.num_rows == 1


def test_only_keys_of_old_rows_count_if_the_caller_says_so(make: Make) -> None:
    row = {"id": 1, "n": 5}
    update = json.dumps({"op": "u", "before": {"id": 1, "n": 4}, "after": row})
    table = make({"id": "BIGINT", "n": "INT"})
    assert mg.cdc.parse([update], "debezium-json", table).kinds.to_pylist() == [1, 2]
    assert mg.cdc.parse([update], "debezium-json", table, old_rows="key").kinds.to_pylist() == [2]


# positions that order rows


POSITIONS = {
    "lsn": [{"lsn": n} for n in (7, 98532, 1000230, 2**63)],
    "binlog": [
        {"file": file, "pos": pos}
        for file, pos in (
            ("binlog.000002", 79444),
            ("binlog.000002", 105641),
            ("binlog.000010", 4),
            ("binlog.999999", 5),
            ("binlog.1000000", 4),
        )
    ],
    "gtid of MariaDB": [{"gtid": gtid} for gtid in ("0-7-999", "0-7-1082", "0-3-20000")],
    "gtid of MySQL": [{"gtid": f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{n}"} for n in (9, 23, 100)],
}


@pytest.mark.parametrize("what", POSITIONS)
def test_a_position_that_orders_rows_sorts_as_the_log_does(make: Make, what: str) -> None:
    table = make({"id": "BIGINT", "at": "STRING"}, options={"sequence.field": "at"})
    records = [json.dumps({"op": "c", "after": {"id": 1}, "source": source}) for source in POSITIONS[what]]
    name = "gtid" if what.startswith("gtid") else "position"
    found = mg.cdc.parse(records, "debezium-json", table, metadata={"at": name}).rows["at"].to_pylist()
    assert found == sorted(found)
    assert len(set(found)) == len(found)
    plain = make({"id": "BIGINT", "at": "STRING"}, name="plain")
    before = mg.cdc.parse(records, "debezium-json", plain, metadata={"at": name}).rows["at"].to_pylist()
    assert all(old < found[0] for old in before)  # rows that an older release stored are older
    assert before[0] in ("7", "binlog.000002:79444", "0-7-999", "3e11fa47-71ca-11e1-9e33-c80aa9429562:9")


def test_recorded_rows_that_were_deleted_stay_deleted_whatever_the_order_of_arrival(make: Make) -> None:
    values, keys = recorded("02_binlog_position_order")
    columns = {"a": "INT", "b": "STRING", "dt": "DATE", "val": "DECIMAL(9, 3)", "at": "STRING"}
    table = make(columns, ("a", "b", "dt"), options={"sequence.field": "at", "bucket": "1"})
    for i in (2, 4, 0, 3, 1):
        table.write_changes([values[i]], "debezium-json", keys=[keys[i]], metadata={"at": "position"})
    assert table.read().to_pylist() == []


@pytest.mark.parametrize("key", ["abc", "o'clock", "2026-01-01", "a\\\\b", "007", " x ", "12a", b"abc"], ids=repr)
def test_a_raw_text_is_the_message_key_of_a_single_key_column(make: Make, key: str | bytes) -> None:
    table = make({"id": "STRING", "v": "INT"})
    wanted = key.decode() if isinstance(key, bytes) else key
    for format_, record in (("json", None), ("debezium-json", '{"op": "d", "before": null}'), ("debezium-flat", None)):
        table.write([{"id": wanted, "v": 1}, {"id": "other", "v": 2}])
        table.write_changes([record], format_, keys=[key])
        assert table.read(columns=["id"]).to_pylist() == [{"id": "other"}]


@pytest.mark.parametrize("key", ["", " ", '{"id', "[1", '"abc', "null"], ids=repr)
def test_a_message_key_that_begins_like_json_and_is_none_names_no_row(make: Make, key: str) -> None:
    table = make({"id": "STRING", "v": "INT"})
    found = mg.cdc.parse([None], "json", table, keys=[key])
    assert [reason.partition(":")[0] for reason in found.rejected["reason"].to_pylist()] == ["missing-key"]
