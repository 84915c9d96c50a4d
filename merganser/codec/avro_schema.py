"""Row types -> Avro schemas, named as the reference writer names them.

* The root record is `org.apache.paimon.avro.generated.record`; the record of a nested field is named after the
  path that leads to it: `record__FILE__KEY_STATS`.
* Nullable T is `["null", T]`, as a field with default null.
* TIMESTAMP is `timestamp-millis` or `timestamp-micros` and LTZ is `local-timestamp-...`. Avro means it the
  other way round; readers of tables go by the table's schema.
* A map with text keys is an Avro map, any other an array of {key, value} records with logical type `map`.

Data files and manifests are both described here. Format: sections "How the JVM reference names Avro types" and
"Avro and ORC data files".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from merganser.errors import UnsupportedError
from merganser.schema import types as t

NAMESPACE: Final = "org.apache.paimon.avro.generated"
ROOT_NAME: Final = "record"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: Final[dict[type[t.DataType], str]] = {
    t.Boolean: "boolean",
    t.TinyInt: "int",
    t.SmallInt: "int",
    t.Int: "int",
    t.BigInt: "long",
    t.Float: "float",
    t.Double: "double",
    t.Char: "string",
    t.VarChar: "string",
    t.Binary: "bytes",
    t.VarBinary: "bytes",
}


def avro_schema(fields: Sequence[t.Field]) -> dict[str, Any]:
    """Return the Avro schema of rows with these columns, as JSON values.

    Raises:
        UnsupportedError: Avro files cannot hold a column: its name is no Avro name, its type is VARIANT, TIME with more
            than 3 or a timestamp with more than 6 fraction digits, or a record in it is named like one of another.
    """
    record = _record(ROOT_NAME, fields, "")
    seen = {ROOT_NAME}
    for field, written in zip(fields, record["fields"], strict=True):
        for name in _record_names(written["type"]):
            if name in seen:
                why = f"two of its ROW or MAP columns would have the name '{name}' there; rename one of them"
                raise _unsupported(field.name, why)
            seen.add(name)
    return {"type": "record", "name": ROOT_NAME, "namespace": NAMESPACE, "fields": record["fields"]}


def has_text_keys(kind: t.Map | t.Multiset) -> bool:
    """Return whether a map is written as an Avro map, whose keys are text."""
    return isinstance(kind.key if isinstance(kind, t.Map) else kind.element, t.Char | t.VarChar)


def without_logical_types(schema: Any, named: dict[str, Any], namespace: str) -> Any:
    """Return a schema without logical types, and put the types it names into `named`, as they are."""
    if isinstance(schema, list):
        return [without_logical_types(branch, named, namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
        namespace = schema.get("namespace", namespace)
        named[schema["name"]] = named[f"{namespace}.{schema['name']}"] = schema
    plain = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = without_logical_types(plain[key], named, namespace)
    if "fields" in plain:
        plain["fields"] = [without_logical_types(field, named, namespace) for field in plain["fields"]]
    return plain


def _record_names(schema: Any) -> Iterator[str]:
    """Yield the name of each record in a schema."""
    for part in schema if isinstance(schema, list) else [schema]:
        if not isinstance(part, dict):
            continue
        if part["type"] == "record":
            yield part["name"]
            for field in part["fields"]:
                yield from _record_names(field["type"])
        for inner in ("items", "values"):
            yield from _record_names(part.get(inner))


def _record(name: str, fields: Sequence[t.Field], path: str) -> dict[str, Any]:
    written = []
    for field in fields:
        column = f"{path}.{field.name}" if path else field.name
        if not _NAME.fullmatch(field.name):
            raise _unsupported(column, "its name is not made of letters, digits and underscores alone")
        entry: dict[str, Any] = {"name": field.name, "type": _schema(field.type, f"{name}_{field.name}", column)}
        if field.type.nullable:
            entry["default"] = None
        written.append(entry)
    return {"type": "record", "name": name, "fields": written}


def _schema(kind: t.DataType, name: str, column: str) -> Any:
    """Return the schema of values of `kind`; `name` is for the record it may need, `column` for errors."""
    plain = _not_null(kind, name, column)
    return ["null", plain] if kind.nullable else plain


def _not_null(kind: t.DataType, name: str, column: str) -> Any:
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        case t.Date():
            return {"type": "int", "logicalType": "date"}
        case t.Time(precision=precision):
            if precision > 3:
                raise _unsupported(column, f"Avro has no {kind}; use TIME(3)")
            return {"type": "int", "logicalType": "time-millis"}
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            if precision > 6:
                raise _unsupported(column, f"Avro has no {kind}; use 6 fraction digits, or store the table as Parquet")
            local = "local-" if isinstance(kind, t.LocalZonedTimestamp) else ""
            unit = "millis" if precision <= 3 else "micros"
            return {"type": "long", "logicalType": f"{local}timestamp-{unit}"}
        case t.Array(element=element):
            return {"type": "array", "items": _schema(element, name, column)}
        case t.Map(key=key, value=value):
            return _map(kind, key, value, name, column)
        case t.Multiset(element=element):
            return _map(kind, element, t.Int(nullable=False), name, column)
        case t.Row(fields=fields):
            return _record(name, fields, column)
    try:
        return _SIMPLE[type(kind)]
    except KeyError:
        raise _unsupported(column, f"Avro has no {kind}; store the table as Parquet") from None


def _map(kind: t.Map | t.Multiset, key: t.DataType, value: t.DataType, name: str, column: str) -> dict[str, Any]:
    if has_text_keys(kind):
        return {"type": "map", "values": _schema(value, name, column)}
    entries: list[dict[str, Any]] = [
        {"name": "key", "type": _schema(key.with_nullable(False), f"{name}_key", column)},
        {"name": "value", "type": _schema(value, f"{name}_value", column)},
    ]
    if value.nullable:
        entries[1]["default"] = None
    return {"type": "array", "items": {"type": "record", "name": name, "fields": entries}, "logicalType": "map"}


def _unsupported(column: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"cannot write column '{column}' to an Avro file: {why}", column=column)
