"""Columns <-> Spark's schema JSON, the form that every Spark schema gives of itself.

Spark has fewer types: CHAR and VARCHAR travel as string with the type in the field's metadata, MULTISET<t> as
map<t, int>, TIMESTAMP as timestamp_ntz and LTZ as timestamp, both of microseconds, so digits 7 to 9 of
a TIMESTAMP(9) are lost on the way. TIME is "time(p)", or an integer of milliseconds where Spark has no TIME.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.types_text import UNNUMBERED, parse_type

TimeAs = Literal["time", "int"]

_CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
_FROM_SPARK: Final[dict[str, t.DataType]] = {
    "byte": t.TinyInt(), "tinyint": t.TinyInt(),
    "short": t.SmallInt(), "smallint": t.SmallInt(),
    "integer": t.Int(), "int": t.Int(),
    "long": t.BigInt(), "bigint": t.BigInt(),
    "float": t.Float(), "double": t.Double(), "boolean": t.Boolean(),
    "string": t.VarChar(), "binary": t.VarBinary(), "date": t.Date(),
    "timestamp": t.LocalZonedTimestamp(6), "timestamp_ltz": t.LocalZonedTimestamp(6), "timestamp_ntz": t.Timestamp(6),
    "variant": t.Variant(),
}  # fmt: skip
_TO_SPARK: Final[dict[type[t.DataType], str]] = {
    t.TinyInt: "byte", t.SmallInt: "short", t.Int: "integer", t.BigInt: "long",
    t.Float: "float", t.Double: "double", t.Boolean: "boolean",
    t.Char: "string", t.VarChar: "string", t.Binary: "binary", t.VarBinary: "binary",
    t.Date: "date", t.Timestamp: "timestamp_ntz", t.LocalZonedTimestamp: "timestamp", t.Variant: "variant",
}  # fmt: skip
_PARAMETRIC: Final = re.compile(r"(decimal|char|varchar|time)\(\s*\d+\s*(,\s*\d+\s*)?\)")


def fields_from_spark_json(text: str) -> tuple[t.Field, ...]:
    """Return the columns of a Spark schema, not numbered yet.

    Raises:
        InvalidInputError: the text is no Spark schema, or a column has a type that no column of a table holds.
    """
    try:
        value = json.loads(text)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"cannot read a Spark schema: it is not JSON ({error}).") from error
    if not isinstance(value, Mapping) or value.get("type") != "struct":
        raise InvalidInputError(
            f"cannot read a Spark schema: {text[:100]!r} is not a struct. Give the schema of a frame."
        )
    return _fields(value, "")


def spark_json_from_fields(fields: Sequence[t.Field], *, time_as: TimeAs = "time") -> str:
    """Return Spark's schema JSON for columns.

    Args:
        fields: the columns; comments become metadata.
        time_as: "time" where Spark has TIME (4.1), "int" for milliseconds of the day.

    Raises:
        UnsupportedError: a column has a type that Spark has no form for.
    """
    return json.dumps(_struct(fields, time_as))


def _fields(value: Mapping[str, Any], path: str) -> tuple[t.Field, ...]:
    try:
        parts = value["fields"]
        items = [(f["name"], f["type"], bool(f.get("nullable", True)), f.get("metadata") or {}) for f in parts]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"cannot read a Spark schema: {value!r:.100} is not a struct ({error}).") from error
    fields = []
    for name, kind, nullable, metadata in items:
        ours = _type(metadata.get(_CHAR_VARCHAR, kind) if kind == "string" else kind, path + str(name))
        fields.append(t.Field(UNNUMBERED, str(name), ours.with_nullable(nullable), metadata.get("comment")))
    return tuple(fields)


def _type(kind: Any, path: str) -> t.DataType:
    match kind:
        case str() if kind in _FROM_SPARK:
            return _FROM_SPARK[kind]
        case str() if kind == "decimal":
            return t.Decimal(10, 0)
        case str() if kind == "time":
            return t.Time(6)
        case str() if kind.startswith("string collate "):
            return t.VarChar()
        case str() if _PARAMETRIC.fullmatch(kind):
            return parse_type(kind)
        case {"type": "array", "elementType": element}:
            element_type = _type(element, path + ".element")
            return t.Array(element=element_type.with_nullable(bool(kind.get("containsNull", True))))
        case {"type": "map", "keyType": key, "valueType": value}:
            value_type = _type(value, path + ".value").with_nullable(bool(kind.get("valueContainsNull", True)))
            return t.Map(key=_type(key, path + ".key").with_nullable(False), value=value_type)
        case {"type": "struct"}:
            return t.Row(fields=_fields(kind, path + "."))
        case {"type": "udt", "sqlType": stored}:
            return _type(stored, path)
    name = kind if isinstance(kind, str) else json.dumps(kind)
    raise InvalidInputError(
        f"column '{path}' has the Spark type {name:.100}, which no column type of a table holds. "
        "Cast it, for instance to string, before handing it over.",
        column=path,
    )


def _struct(fields: Iterable[t.Field], time_as: TimeAs) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {
                "name": field.name,
                "type": _spark_type(field.type, field.name, time_as),
                "nullable": field.type.nullable,
                "metadata": {} if field.description is None else {"comment": field.description},
            }
            for field in fields
        ],
    }


def _spark_type(kind: t.DataType, path: str, time_as: TimeAs) -> Any:
    match kind:
        case t.Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case t.Time(precision=precision):
            # Spark's TIME has at most microseconds; ours are stored in milliseconds whatever the precision.
            return f"time({min(precision, 6)})" if time_as == "time" else "integer"
        case t.Array(element=element):
            inner = _spark_type(element, path, time_as)
            return {"type": "array", "elementType": inner, "containsNull": element.nullable}
        case t.Map(key=key, value=value):
            return _spark_map(_spark_type(key, path, time_as), _spark_type(value, path, time_as), value.nullable)
        case t.Multiset(element=element):
            return _spark_map(_spark_type(element, path, time_as), "integer", False)
        case t.Row(fields=fields):
            return _struct(fields, time_as)
    try:
        return _TO_SPARK[type(kind)]
    except KeyError:
        raise UnsupportedError(
            f"column '{path}' has the type {kind}, which Spark has no form for.", column=path
        ) from None


def _spark_map(key: Any, value: Any, contains_null: bool) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": contains_null}
