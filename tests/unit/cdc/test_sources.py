"""Which table a change record comes from, and what a record tells of a table that is not there yet."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from merganser.cdc.new_tables import Untold, table_told
from merganser.cdc.records import parse_records
from merganser.cdc.sources import Source, named_sources, sources_of
from merganser.schema import types as t

_PLACES = {
    "debezium-json": ("source", "db", "schema", "table"),
    "debezium-flat": (None, "__db", "__schema", "__table"),
    "canal-json": (None, "database", None, "table"),
    "maxwell-json": (None, "database", None, "table"),
}


def _text(draw: random.Random, format_: str, name: Source) -> str:
    parts = [draw.choice([part, part, None]) for part in (name.database, name.schema, name.table)]
    if format_ == "ogg-json":
        return json.dumps({"op_type": "I", "after": {"id": 1}, "table": ".".join(filter(None, parts))})
    around, *names = _PLACES[format_]
    said = {key: part for key, part in zip(names, parts, strict=True) if key and (part or draw.random() < 0.5)}
    payload: dict[str, Any] = {"op": "c", "after": {"table": "other"}, **({around: said} if around else said)}
    if not format_.startswith("debezium") or draw.random() < 0.5:
        return json.dumps(payload)
    return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": payload}, separators=(",", ":"))


def _said(format_: str, text: str) -> Source:
    """Return what a record says, read by the json module."""
    record = json.loads(text)
    record = record.get("payload", record)
    if format_ == "ogg-json":
        parts = [part or None for part in record["table"].split(".")]
        return Source(*([None] * (3 - len(parts)) + parts))
    around, *names = _PLACES[format_]
    record = record[around] if around else record
    return Source(*((record.get(name) or None) if name else None for name in names))


@pytest.mark.parametrize("format_", [*_PLACES, "ogg-json"])
def test_random_records_come_from_the_tables_that_the_json_module_finds(format_: str) -> None:
    draw = random.Random(format_)
    names = [Source("shop", "públic", "orders"), Source("shop", None, "people"), Source('a"b', "x", "orders")]
    texts: list[str | None] = [_text(draw, format_, draw.choice(names)) for _ in range(200)]
    wanted = [_said(format_, text) for text in texts if text is not None]
    for i in range(0, 200, 17):
        texts[i], wanted[i] = draw.choice([None, "{", "[]", "7", ""]), Source(None, None, None)
    found = sources_of(pa.array(texts).cast(pa.binary()), format_, {})
    assert [found.names[i] for i in found.of] == wanted
    assert len(set(found.names)) == len(found.names)


def test_a_column_of_names_tells_the_last_three_parts() -> None:
    found = named_sources(pa.array(["t", "d.t", "d.s.t", "x.d.s.t", None, "", "t"]))
    wanted = [(None, None, "t"), ("d", None, "t"), ("d", "s", "t"), ("d", "s", "t"), *[(None, None, None)] * 2]
    assert [found.names[i] for i in found.of] == [Source(*parts) for parts in [*wanted, wanted[0]]]


# new tables


def _field(name: str, kind: str, logical: str | None = None, **parameters: str) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True, "name": logical, "parameters": parameters}


_CONNECT = "org.apache.kafka.connect.data."
_DEBEZIUM: list[tuple[dict[str, Any], Any, str, str]] = [
    (_field("a", "int64"), 2**63 - 1, "BIGINT", "9223372036854775807"),
    (_field("b", "int32", "io.debezium.time.Date"), 1, "DATE", "1970-01-02"),
    (_field("c", "int64", "io.debezium.time.MicroTimestamp"), 1, "TIMESTAMP(6)", "1970-01-01 00:00:00.000001"),
    (_field("d", "string", "io.debezium.time.ZonedTimestamp"), "2024-05-01T12:00:00Z",
     "TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-05-01 12:00:00+00:00"),
    (_field("e", "bytes", f"{_CONNECT}Decimal", scale="2", **{"connect.decimal.precision": "10"}), "A94=",
     "DECIMAL(10, 2)", "9.90"),
    (_field("f", "bytes", f"{_CONNECT}Decimal", scale="30", **{"connect.decimal.precision": "65"}), "AQ==",
     "STRING", "0." + "0" * 29 + "1"),
    (_field("g", "struct", "io.debezium.data.VariableScaleDecimal"), {"scale": 1, "value": "FQ=="}, "STRING", "2.1"),
    (_field("h", "int64", "io.debezium.time.MicroTime"), 3_600_000_000, "STRING", "01:00:00.000000"),
    (_field("h3", "int32", "io.debezium.time.Time"), 1, "TIME(3)", "00:00:00.001000"),
    (_field("h9", "int64", "io.debezium.time.NanoTime"), -1, "STRING", "-00:00:00.000000001"),
    (_field("hi", "string", "io.debezium.time.IsoTime"), "18:45:54.998001Z", "STRING", "18:45:54.998001Z"),
    (_field("i", "bytes"), "AQ==", "BYTES", "b'\\x01'"),
    (_field("j", "array") | {"items": {"type": "int32"}}, [1, 2], "ARRAY<INT>", "[1, 2]"),
    (_field("k", "string", "io.debezium.data.Json"), '{"x": 1}', "STRING", '{"x": 1}'),
    (_field("l", "boolean"), True, "BOOLEAN", "True"),
    (_field("m", "struct") | {"fields": [_field("x", "double")]}, {"x": 0.5}, "ROW<x DOUBLE>", "{'x': 0.5}"),
]  # fmt: skip


@pytest.mark.parametrize("flat", [False, True])
def test_a_record_of_debezium_with_its_schema_makes_a_table_that_takes_it(flat: bool) -> None:
    row = {"type": "struct", "fields": [_field("id", "int32"), *(field for field, *_ in _DEBEZIUM)]}
    values = {"id": 7} | {field["field"]: value for field, value, *_ in _DEBEZIUM}
    schema: Any = row
    payload: Any = values
    if not flat:
        schema = {"fields": [{**row, "field": "before"}, {**row, "field": "after"}, _field("op", "string")]}
        payload = {"op": "c", "before": None, "after": values}
    text = json.dumps({"schema": schema, "payload": payload})
    key = json.dumps({"schema": {"fields": [_field("id", "int32")]}, "payload": {"id": 7}})
    format_ = "debezium-flat" if flat else "debezium-json"
    told = table_told(format_, text, key)
    assert told.key == ("id",)
    assert [str(kind) for kind in told.columns.values()] == ["INT", *(kind for *_, kind, _ in _DEBEZIUM)]
    fields = [t.Field(i, name, kind) for i, (name, kind) in enumerate(told.columns.items())]
    found = parse_records(pa.array([text]), format_, fields, told.key, {}, pa.array([key]))
    assert found.rejected.to_pylist() == []
    assert [str(value) for value in found.rows.to_pylist()[0].values()] == ["7", *(shown for *_, shown in _DEBEZIUM)]


def test_a_record_of_canal_makes_a_table_that_takes_it() -> None:
    types = {
        "id": ("bigint(20) unsigned", "18446744073709551615", "DECIMAL(20, 0)"),
        "a": ("tinyint(1)", "7", "TINYINT"),
        "b": ("decimal(10,2)", "9.90", "DECIMAL(10, 2)"),
        "c": ("datetime(3)", "2024-05-01 12:00:00.123", "TIMESTAMP(3)"),
        "d": ("varchar(20)", "x", "STRING"),
        "e": ("enum('x','y')", "2", "STRING"),
        "f": ("time(6)", "12:00:00.123456", "STRING"),
        "g": ("double unsigned", "0.5", "DOUBLE"),
        "h": ("blob", "\u00ff", "BYTES"),
        "i": ("int(11)", "-1", "INT"),
        "j": ("decimal(65,30)", "1." + "0" * 29 + "1", "STRING"),
    }
    record = {"type": "INSERT", "isDdl": False, "pkNames": ["id"], "data": [{n: v for n, (_, v, _) in types.items()}]}
    text = json.dumps(record | {"mysqlType": {n: kind for n, (kind, *_) in types.items()}})
    told = table_told("canal-json", text, None)
    assert {name: str(kind) for name, kind in told.columns.items()} == {n: kind for n, (*_, kind) in types.items()}
    fields = [t.Field(i, name, kind) for i, (name, kind) in enumerate(told.columns.items())]
    assert parse_records(pa.array([text]), "canal-json", fields, told.key, {}).rejected.to_pylist() == []


@pytest.mark.parametrize(
    ("format_", "text", "key", "said"),
    [
        ("maxwell-json", "{}", None, "do not tell types"),
        ("debezium-json", '{"op": "c", "after": {"id": 1}}', '{"id": 1}', "no schema"),
        ("debezium-json", "{", None, "no schema"),
        ("debezium-flat", '{"schema": {"fields": [{"field": "id"}]}, "payload": {}}', None, "message key"),
        ("debezium-flat", '{"schema": {"fields": [{"field": "id"}]}, "payload": {}}', "7", "message key"),
        ("debezium-flat", '{"schema": {"fields": [{"field": "i"}]}}', '{"id": 1}', "column 'id', which"),
        ("canal-json", '{"mysqlType": null, "pkNames": ["id"]}', None, "'mysqlType'"),
        ("canal-json", '{"mysqlType": {"id": "int"}, "pkNames": null}', None, "'pkNames'"),
    ],
)  # fmt: skip
def test_a_record_that_does_not_tell_enough_says_what_it_lacks(
    format_: str, text: str, key: str | None, said: str
) -> None:
    with pytest.raises(Untold, match=said):
        table_told(format_, text, key)
