"""The schema part of a record as Kafka Connect writes it -> the encodings of columns. It is parsed once per text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from merganser.parsing.rules import PLAIN, Encoding

_NAMED: Final[Mapping[str, Encoding]] = {
    "io.debezium.time.Time": Encoding("clock", "ms"),
    "io.debezium.time.MicroTime": Encoding("clock", "us"),
    "io.debezium.time.NanoTime": Encoding("clock", "ns"),
    "io.debezium.time.Timestamp": Encoding(unit="ms"),
    "io.debezium.time.MicroTimestamp": Encoding(unit="us"),
    "io.debezium.time.NanoTimestamp": Encoding(unit="ns"),
    "org.apache.kafka.connect.data.Time": Encoding("clock", "ms"),
    "org.apache.kafka.connect.data.Timestamp": Encoding(unit="ms"),
    "io.debezium.time.IsoDate": Encoding("wall"),
    "io.debezium.time.IsoTime": Encoding("wall"),
    "io.debezium.time.IsoTimestamp": Encoding("wall"),
    "io.debezium.time.ZonedTime": Encoding("wall"),
    "io.debezium.data.EnumSet": Encoding("set"),
    "io.debezium.data.VariableScaleDecimal": Encoding("variable-decimal"),
    "io.debezium.data.geometry.Geometry": Encoding("geometry"),
    "io.debezium.data.geometry.Geography": Encoding("geometry"),
    "io.debezium.data.geometry.Point": Encoding("geometry"),
}


def encodings_of(text: str, images: Sequence[str]) -> dict[str, Encoding]:
    """Return the encodings of columns by name; what the schema does not tell is left out.

    Args:
        text: the schema, an object of JSON.
        images: fields of the envelope that describe the row; the first that is there counts. None: it is the row.
    """
    struct = json.loads(text)
    struct = row_of(struct, images) if images else struct
    found = {name: _encoding(field) for name, field in fields_of(struct).items()}
    return {name: encoding for name, encoding in found.items() if encoding != PLAIN}


def defaults_of(text: str, images: Sequence[str]) -> dict[str, str]:
    """Return the defaults of columns by name, as texts; arguments are those of `encodings_of`."""
    struct = json.loads(text)
    fields = fields_of(row_of(struct, images) if images else struct)
    given = {name: field["default"] for name, field in fields.items() if field.get("default") is not None}
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for name, value in given.items()
    }


def row_of(struct: Any, images: Sequence[str]) -> Any:
    """Return the schema of the row in that of an envelope: of the first image that is there."""
    parts = fields_of(struct)
    return next((parts[name] for name in images if name in parts), None)


def fields_of(struct: Any) -> dict[str, Any]:
    """Return the fields of a schema by name; none if it is no struct."""
    fields = struct.get("fields") if isinstance(struct, Mapping) else None
    if not isinstance(fields, list):
        return {}
    return {f["field"]: f for f in fields if isinstance(f, Mapping) and isinstance(f.get("field"), str)}


def _encoding(field: Any) -> Encoding:
    if not isinstance(field, Mapping):
        return PLAIN
    name, kind, given = field.get("name"), field.get("type"), field.get("parameters")
    parameters = given if isinstance(given, Mapping) else {}
    match name:
        case "org.apache.kafka.connect.data.Decimal":
            scale = _number(parameters, "scale")
            return PLAIN if scale is None else Encoding("decimal", scale=scale)
        case "io.debezium.data.Bits":
            return Encoding("bits", bits=max(0, _number(parameters, "length") or 0))
        case "io.debezium.data.Enum":
            # Debezium puts a backslash before each comma of a label, in the list of labels and in the value
            return Encoding("escaped") if "\\," in str(parameters.get("allowed")) else PLAIN
    if isinstance(name, str) and name in _NAMED:
        return _NAMED[name]
    match kind:
        case "bytes":
            return Encoding("bytes")
        case "array":
            return _around({"element": field.get("items")})
        case "map":
            return _around({"key": field.get("keys"), "value": field.get("values")})
        case "struct":
            return _around(fields_of(field))
    return PLAIN


def _number(parameters: Mapping[str, Any], name: str) -> int | None:
    try:
        return int(parameters[name])
    except (KeyError, TypeError, ValueError):
        return None


def _around(parts: Mapping[str, Any]) -> Encoding:
    inner = tuple((name, found) for name, part in parts.items() if (found := _encoding(part)) != PLAIN)
    return Encoding(inner=inner)
