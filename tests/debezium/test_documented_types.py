"""Types of Oracle and SQL Server, as the documentation of their connectors says they are sent, with their schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

import merganser as mg
from tests.debezium.values import plain

_PLACEHOLDER: Final = "__debezium_unavailable_value"
TYPES: Final[dict[str, tuple[dict[str, Any], Any, str, Any]]] = {
    "oracle NUMBER(9)": ({"type": "int32"}, 7, "INT", 7),
    "oracle NUMBER(30)": (
        {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}},
        "AP//////////", "DECIMAL(30, 0)", "18446744073709551615",
    ),
    "oracle NUMBER": (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal",
         "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]},
        {"scale": 2, "value": "AN4="}, "DECIMAL(38, 4)", "2.2200",
    ),
    "oracle FLOAT as text": (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal",
         "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]},
        {"scale": -2, "value": "AQ=="}, "DECIMAL(5, 0)", "100",
    ),
    "oracle BINARY_DOUBLE": ({"type": "double"}, "-Infinity", "DOUBLE", float("-inf")),
    "oracle DATE": (
        {"type": "int64", "name": "io.debezium.time.Timestamp"}, 1_714_564_800_000, "TIMESTAMP(0)",
        1_714_564_800_000_000,
    ),
    "oracle TIMESTAMP(9)": (
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1_714_564_800_000_000_001, "TIMESTAMP(9)",
        1_714_564_800_000_000,
    ),
    "oracle TIMESTAMP WITH TIME ZONE": (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2024-05-01T14:00:00.123456+02:00",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE", 1_714_564_800_123_456,
    ),
    "oracle INTERVAL": ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, -1_000_001, "BIGINT", -1_000_001),
    "oracle RAW": ({"type": "bytes"}, "AAH/", "BYTES", b"\x00\x01\xff"),
    "oracle ROWID": ({"type": "string"}, "AAAR3sAAEAAAACXAAA", "STRING", "AAAR3sAAEAAAACXAAA"),
    "oracle XMLTYPE": ({"type": "string", "name": "io.debezium.data.Xml"}, "<a/>", "STRING", "<a/>"),
    "sqlserver bit": ({"type": "boolean"}, True, "BOOLEAN", True),
    "sqlserver tinyint": ({"type": "int16"}, 255, "SMALLINT", 255),
    "sqlserver money": (
        {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "4"}},
        "gAAAAAAAAAA=", "DECIMAL(19, 4)", "-922337203685477.5808",
    ),
    "sqlserver date": ({"type": "int32", "name": "io.debezium.time.Date"}, -719_162, "DATE", -719_162),
    "sqlserver time(3)": ({"type": "int32", "name": "io.debezium.time.Time"}, 86_399_999, "TIME(3)", 86_399_999_000),
    "sqlserver time(7)": ({"type": "int64", "name": "io.debezium.time.NanoTime"}, 86_399_999_999_900, "BIGINT",
                          86_399_999_999_900),
    "sqlserver datetime": (
        {"type": "int64", "name": "io.debezium.time.Timestamp"}, -1, "TIMESTAMP(3)", -1_000,
    ),
    "sqlserver datetime2(7)": (
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, -100, "TIMESTAMP(7)", -1,
    ),
    "sqlserver datetimeoffset(7)": (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "0001-01-01T00:00:00.1234567-14:00",
        "TIMESTAMP(7) WITH LOCAL TIME ZONE", None,
    ),
    "sqlserver uniqueidentifier": ({"type": "string"}, "6F9619FF-8B86-D011-B42D-00C04FC964FF", "STRING",
                                   "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    "sqlserver rowversion": ({"type": "bytes"}, "AAAAAAAAB9E=", "BYTES", b"\x00\x00\x00\x00\x00\x00\x07\xd1"),
}  # fmt: skip
"""By source type: the schema of the field, the value in JSON, the declared type, and what the table holds."""


def _record(fields: dict[str, dict[str, Any]], row: dict[str, Any], op: str, source: dict[str, Any]) -> str:
    inner = [{"type": "int32", "optional": False, "field": "id"}]
    inner += [{**schema, "optional": True, "field": name} for name, schema in fields.items()]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "optional": True, "fields": inner}]}
    return json.dumps({"schema": schema, "payload": {"op": op, "before": None, "after": row, "source": source}})


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path))
    found.create_database("s")
    return found


def test_documented_values_of_oracle_and_sql_server_are_held(catalog: mg.Catalog) -> None:
    known = {name: case for name, case in TYPES.items() if case[3] is not None}
    columns = {"id": "INT", **{name: kind for name, (_, _, kind, _) in known.items()}}
    table = catalog.create_table("s.t", columns, primary_key=["id"], options={"bucket": "1"})
    fields = {name: schema for name, (schema, _, _, _) in known.items()}
    row = {"id": 1, **{name: value for name, (_, value, _, _) in known.items()}}
    table.write_changes([_record(fields, row, "c", {"db": "d", "table": "t"})], "debezium-json")
    read = table.read().to_arrow()
    found = {name: plain(read.column(name))[0] for name in known}
    assert {name: str(value) for name, value in found.items()} == {name: str(case[3]) for name, case in known.items()}


def test_large_objects_that_oracle_did_not_log_keep_their_values(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "s.t", {"id": "INT", "doc": "STRING", "pic": "BYTES", "n": "INT"}, primary_key=["id"], options={"bucket": "1"}
    )
    fields = {"doc": {"type": "string"}, "pic": {"type": "bytes"}, "n": {"type": "int32"}}
    source = {"connector": "oracle", "db": "D", "schema": "S", "table": "T", "scn": "2816"}
    sent = [
        _record(fields, {"id": 1, "doc": "text", "pic": "AAE=", "n": 1}, "c", source),
        _record(
            fields,
            {"id": 1, "doc": _PLACEHOLDER, "pic": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "n": 2},
            "u",
            source,
        ),
    ]
    table.write_changes(sent, "debezium-json", unavailable="keep")
    assert table.read().to_pylist() == [{"id": 1, "doc": "text", "pic": b"\x00\x01", "n": 2}]
