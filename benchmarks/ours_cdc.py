"""The actions of `cdc.py`: records made, and turned into rows by merganser, Polars and pyarrow."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.json as pj

import merganser as mg
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import parse_type

COLUMNS = {
    "id": "BIGINT", "name": "STRING", "qty": "INT", "amount": "DECIMAL(12, 2)", "price": "DOUBLE",
    "created": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "state": "STRING", "big": "BIGINT", "note": "STRING",
    "flag": "BOOLEAN",
}  # fmt: skip
_SOURCE = {
    "version": "3.2.0.Final", "connector": "mysql", "name": "erp", "ts_ms": 1714564800123, "snapshot": "false",
    "db": "shop", "sequence": None, "ts_us": 1714564800123000, "ts_ns": 1714564800123000000, "table": "orders",
    "server_id": 4711, "gtid": None, "file": "binlog.000007", "pos": 1520, "row": 0, "thread": 12, "query": None,
}  # fmt: skip
_CONNECT = {
    "id": "int64", "name": "string", "qty": "int32", "amount": "string", "price": "double", "created": "string",
    "state": "string", "big": "int64", "note": "string", "flag": "boolean",
}  # fmt: skip


def warm_up() -> None:
    """Read twenty records in each way."""
    for action in (by_merganser, by_polars, by_arrow):
        action("debezium-json", 20, 1)()


def by_merganser(format: str, records: int, seed: int, bad: int = 0) -> Callable[[], int]:
    """Make rows with kinds."""
    texts = pa.array(made(format, records, seed, bad))
    fields = tuple(t.Field(i, name, parse_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    table: Any = SimpleNamespace(schema=TableSchema(0, fields, 10, primary_keys=("id",)), primary_key=("id",))

    def action() -> int:
        found = mg.cdc.parse(texts, format, table)
        assert found.rejected.num_rows == (records // bad if bad else 0)
        return records

    return action


def by_polars(format: str, records: int, seed: int) -> Callable[[], int]:
    """Decode the same texts with a fixed schema: the floor."""
    texts = pl.Series(made(format, records, seed))
    kind = pl.DataFrame(pa.Table.from_batches([], schema=pa.schema(list(_schema(format))))).schema
    return lambda: len(texts.str.json_decode(pl.Struct(kind)))


def by_arrow(format: str, records: int, seed: int) -> Callable[[], int]:
    """Read the same texts, joined by line breaks, with a fixed schema."""
    data = "\n".join(made(format, records, seed)).encode()
    options = pj.ParseOptions(explicit_schema=pa.schema(list(_schema(format))), unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=1 << 22)
    return lambda: int(pj.read_json(pa.BufferReader(data), read, options).num_rows)


def _schema(format: str) -> pa.StructType:
    kinds = {
        "int64": pa.int64(),
        "int32": pa.int32(),
        "string": pa.string(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
    }
    row = pa.struct([(name, kinds[kind]) for name, kind in _CONNECT.items()])
    texts = pa.struct([(name, pa.string()) for name in _CONNECT])
    match format:
        case "debezium-json":
            return pa.struct([("before", row), ("after", row), ("op", pa.string())])
        case "debezium-json-schema":
            return pa.struct([("payload", _schema("debezium-json"))])
        case "canal-json":
            return pa.struct([("data", pa.list_(texts)), ("old", pa.list_(texts)), ("type", pa.string())])
        case "maxwell-json":
            return pa.struct([("data", row), ("old", row), ("type", pa.string())])
        case "ogg-json":
            return pa.struct([("before", row), ("after", row), ("op_type", pa.string())])
    return row


def made(format: str, records: int, seed: int, bad: int = 0) -> list[str]:
    """Return records of a format; every so many is cut off in the middle."""
    draw = random.Random(seed)
    found = [json.dumps(_record(format, i, draw), separators=(",", ":")) for i in range(records)]
    for i in range(bad - 1, records, bad) if bad else ():
        found[i] = found[i][: len(found[i]) // 2]
    return found


def _record(format: str, i: int, draw: random.Random) -> dict[str, Any]:
    new, old = _row(i, draw), _row(i, draw)
    kind = "ccuud"[i % 5]
    before, after = (None if kind == "c" else old), (None if kind == "d" else new)
    match format:
        case "debezium-json":
            return {
                "before": before, "after": after, "source": _SOURCE, "transaction": None, "op": kind,
                "ts_ms": 1714564800456, "ts_us": 1714564800456000, "ts_ns": 1714564800456000000,
            }  # fmt: skip
        case "debezium-json-schema":
            return {"schema": _SCHEMA, "payload": _record("debezium-json", i, draw)}
        case "canal-json":
            word = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[kind]
            changed = {"qty": str(old["qty"]), "amount": old["amount"]}
            return {
                "data": [_texts(new)], "old": [changed] if kind == "u" else None, "type": word, "isDdl": False,
                "database": "shop", "table": "orders", "es": 1714564800000, "ts": 1714564800777, "id": 31,
                "mysqlType": dict.fromkeys(_CONNECT, "varchar(40)"), "pkNames": ["id"], "sql": "", "gtid": "",
            }  # fmt: skip
        case "maxwell-json":
            word = {"c": "insert", "u": "update", "d": "delete"}[kind]
            record = {"database": "shop", "table": "orders", "type": word, "ts": 1714564800, "xid": 8812, "data": new}
            return {**record, "old": {"qty": old["qty"], "amount": old["amount"]}} if kind == "u" else record
        case "ogg-json":
            word = {"c": "I", "u": "U", "d": "D"}[kind]
            return {
                "table": "SHOP.ORDERS", "op_type": word, "op_ts": "2024-05-01 12:00:00.123456", "pos": "00000001",
                "current_ts": "2024-05-01T12:00:01.500000", "before": before, "after": after,
            }  # fmt: skip
        case "debezium-flat":
            return {**new, "__deleted": "true" if kind == "d" else "false"}
    return new


def _row(i: int, draw: random.Random) -> dict[str, Any]:
    return {
        "id": i, "name": f"name {draw.randrange(10**6)}", "qty": draw.randrange(1000),
        "amount": f"{draw.randrange(10**6)}.{draw.randrange(100):02}", "price": draw.randrange(10**6) / 100,
        "created": f"2024-05-{draw.randrange(1, 28):02}T{draw.randrange(24):02}:30:00.250001Z",
        "state": draw.choice(["new", "paid", "sent", None]), "big": draw.randrange(10**17, 10**18),
        "note": f"some longer text, with a comma: {i}", "flag": draw.random() < 0.5,
    }  # fmt: skip


def _texts(row: dict[str, Any]) -> dict[str, Any]:
    words = {True: "1", False: "0"}
    return {
        name: None if value is None else words[value] if isinstance(value, bool) else str(value)
        for name, value in row.items()
    }


_IMAGE = {
    "type": "struct", "optional": True,
    "fields": [{"type": kind, "optional": True, "field": name} for name, kind in _CONNECT.items()],
}  # fmt: skip
_SCHEMA = {
    "type": "struct", "optional": False, "name": "erp.shop.orders.Envelope",
    "fields": [{**_IMAGE, "field": "before"}, {**_IMAGE, "field": "after"}, {"type": "string", "field": "op"}],
}  # fmt: skip
