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
