"""What a change record tells of the table it comes from: columns, their types, and the primary key.

Debezium's schema part tells types, and the message key the primary key; Canal tells both. No other format tells types.
The types are wide, so that later records fit as well: all columns but those of the key take nulls, text has no length,
and numbers of more than 38 digits are text. So are times of the day of more digits than the milliseconds of TIME: MySQL
sends all its times so, and they may be negative or longer than a day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from merganser.cdc.batch import document
from merganser.cdc.connect_schema import fields_of, row_of
from merganser.cdc.debezium import FLAT
from merganser.cdc.records import chunked, pieces
from merganser.errors import InvalidInputError
from merganser.parsing.cells import utf8
from merganser.parsing.json_scan import OBJECT
from merganser.schema import types as t
from merganser.schema.types_text import UNNUMBERED
from merganser.schema.widening import widened
from merganser.values import dataclass

_PRECISION_MAX: Final = 38
_FINE_CLOCKS: Final = ("sqlserver", "oracle", "db2")
"""Connectors of databases whose timestamps have more than six digits of a second; names of sources hold them."""
_NUMBERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal)
_CONNECT: Final[Mapping[str, t.DataType]] = {
    "int8": t.TinyInt(),
    "int16": t.SmallInt(),
    "int32": t.Int(),
    "int64": t.BigInt(),
    "float": t.Float(),
    "float32": t.Float(),
    "double": t.Double(),
    "float64": t.Double(),
    "boolean": t.Boolean(),
    "string": t.VarChar(),
    "bytes": t.VarBinary(),
}
_NAMED: Final[Mapping[str, t.DataType]] = {
    "io.debezium.time.Date": t.Date(),
    "io.debezium.time.IsoDate": t.Date(),
    "org.apache.kafka.connect.data.Date": t.Date(),
    "io.debezium.time.Time": t.Time(precision=3),
    "io.debezium.time.MicroTime": t.VarChar(),
    "io.debezium.time.NanoTime": t.VarChar(),
    "io.debezium.time.IsoTime": t.VarChar(),
    "org.apache.kafka.connect.data.Time": t.Time(precision=3),
    "io.debezium.time.Timestamp": t.Timestamp(precision=3),
    "io.debezium.time.MicroTimestamp": t.Timestamp(precision=6),
    "io.debezium.time.NanoTimestamp": t.Timestamp(precision=9),
    "io.debezium.time.IsoTimestamp": t.Timestamp(precision=6),
    "org.apache.kafka.connect.data.Timestamp": t.Timestamp(precision=3),
    "io.debezium.time.ZonedTimestamp": t.LocalZonedTimestamp(precision=6),
    "io.debezium.data.VariableScaleDecimal": t.VarChar(),
    "io.debezium.data.geometry.Geometry": t.VarBinary(),
    "io.debezium.data.geometry.Geography": t.VarBinary(),
    "io.debezium.data.geometry.Point": t.VarBinary(),
}
_NAMED_FINE: Final[Mapping[str, t.DataType]] = {
    **_NAMED,
    "io.debezium.time.IsoTimestamp": t.Timestamp(precision=9),
    "io.debezium.time.ZonedTimestamp": t.LocalZonedTimestamp(precision=9),
}
"""The same for databases with more than six digits of a second: timestamps in text do not tell how many they have."""
_MYSQL: Final[Mapping[str, tuple[t.DataType, t.DataType]]] = {
    "tinyint": (t.TinyInt(), t.SmallInt()),
    "smallint": (t.SmallInt(), t.Int()),
    "mediumint": (t.Int(), t.Int()),
    "int": (t.Int(), t.BigInt()),
    "integer": (t.Int(), t.BigInt()),
    "bigint": (t.BigInt(), t.Decimal(precision=20, scale=0)),
    "float": (t.Float(), t.Float()),
    "double": (t.Double(), t.Double()),
    "real": (t.Double(), t.Double()),
    "year": (t.Int(), t.Int()),
    "date": (t.Date(), t.Date()),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "linestring",
         "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection"),
        (t.VarBinary(), t.VarBinary()),
    ),
}  # fmt: skip
"""Types by their name, without and with `unsigned`. What is not here is text."""
_MYSQL_TYPE: Final = re.compile(r"\s*([a-z]+)[a-z ]*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.IGNORECASE)


class Untold(Exception):  # noqa: N818 - not an error: the record is good
    """The record does not tell enough of its table; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table as a record tells it.

    Attributes:
        columns: their types by name, in the order of the source.
        key: the primary key.
    """

    columns: Mapping[str, t.DataType]
    key: tuple[str, ...]


def table_told(format_: str, text: bytes | str, key: bytes | str | None) -> NewTable:
    """Return the table that a change record comes from, as the record tells it.

    Args:
        format_: one of those of `cdc_options`.
        text: the record.
        key: its message key.

    Raises:
        Untold: it does not tell enough.
    """
    record = _loaded(text)
    if format_ == "canal-json":
        return _of_canal(record)
    if not format_.startswith("debezium"):
        raise Untold(f"records of the format '{format_}' do not tell types")
    columns = _of_struct(record.get("schema"), format_)
    if not columns:
        raise Untold("the record has no schema")
    return _checked(columns, _key_names(key), "the message key")


def columns_told(records: Any, format_: str, there: Sequence[t.Field], action: str) -> tuple[t.Field, ...]:
    """Return the columns of the rows of change records, as far as the records tell types; not numbered.

    A column of which records tell several types gets one that holds the values of all. If there is none, the records
    tell nothing of a column that the table has; its values have to fit. Of a nested column they may tell new fields,
    too, so it is refused.

    Args:
        records: as for `parse_records`.
        there: the columns of the table.
        action: what is being done, as messages begin.

    Raises:
        InvalidInputError: no type holds the values of a column that the table lacks, or of a nested one.
    """
    member = "mysqlType" if format_ == "canal-json" else "schema"
    known, untold = {field.name for field in there}, set[str]()
    columns: dict[str, t.DataType] = {}
    for piece in pieces(chunked(records, "records")):
        cells = document(utf8(piece)[0].fill_null(""), (member,)).of(member)
        for text in cells.texts.filter(pa.array(cells.kinds == OBJECT)).unique().to_pylist():
            told = _loaded(text)
            own = _of_types(told) if format_ == "canal-json" else _of_struct(told, format_)
            for name, kind in own.items():
                before = columns.get(name, kind)
                both = _of_both(before, kind)
                if both is not None:
                    columns[name] = both
                elif name in known and not (t.is_nested(before) and t.is_nested(kind)):
                    untold.add(name)
                else:
                    raise InvalidInputError(
                        f"{action}: the records tell two types of column '{name}', {before} and {kind}, and no type "
                        "holds the values of both. Nothing was written. Write these records in calls of their own"
                        f"{'' if name in known else ', or add the column with Table.alter first'}.",
                        column=name,
                    )
    return tuple(t.Field(UNNUMBERED, name, kind) for name, kind in columns.items() if name not in untold)


def _of_both(one: t.DataType, other: t.DataType) -> t.DataType | None:
    """Return the type of values of which records tell two types; None: there is none.

    Text holds numbers as they are written. Records write dates and times as numbers, too, so it does not hold these.
    """
    if one == other:
        return one
    match one, other:
        case t.Row(), t.Row():
            return _rows_of_both(one, other)
        case t.Array(), t.Array():
            element = _of_both(one.element, other.element)
            return None if element is None else t.Array(element=element)
        case t.Map(), t.Map() if one.key == other.key:
            value = _of_both(one.value, other.value)
            return None if value is None else t.Map(key=one.key, value=value)
    numbers = isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS)
    texts = isinstance(one, t.VarChar) or isinstance(other, t.VarChar)
    if texts and isinstance(one, (*_NUMBERS, t.VarChar)) and isinstance(other, (*_NUMBERS, t.VarChar)):
        return t.VarChar()
    return widened(one, other) or (t.VarChar() if numbers else None)


def _rows_of_both(one: t.Row, other: t.Row) -> t.Row | None:
    kinds = {field.name: field.type for field in one.fields}
    for field in other.fields:
        both = _of_both(kinds.get(field.name, field.type), field.type)
        if both is None:
            return None
        kinds[field.name] = both
    return t.Row(fields=tuple(t.Field(i, name, kind) for i, (name, kind) in enumerate(kinds.items())))


def _of_struct(struct: Any, format_: str) -> dict[str, t.DataType]:
    """Return the columns of a schema of Kafka Connect; none if it describes no row."""
    flat = format_ in ("debezium-flat", "debezium-flattened")
    fields = fields_of(struct if flat else row_of(struct, ("after", "before")))
    source = fields_of(struct).get("source")
    fine = isinstance(source, Mapping) and any(name in str(source.get("name")) for name in _FINE_CLOCKS)
    named = _NAMED_FINE if fine else _NAMED
    return {name: _connect_type(field, named) for name, field in fields.items() if not (flat and name in FLAT)}


def _of_types(types: Mapping[str, Any]) -> dict[str, t.DataType]:
    """Return the columns of the types that Canal tells."""
    return {name: _mysql_type(str(text)) for name, text in types.items()}


def _of_canal(record: Mapping[str, Any]) -> NewTable:
    types, names = record.get("mysqlType"), record.get("pkNames")
    if not isinstance(types, Mapping) or not types:
        raise Untold("the record has no 'mysqlType'")
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise Untold("the record has no 'pkNames'")
    return _checked(_of_types(types), tuple(map(str, names)), "'pkNames'")


def _checked(columns: Mapping[str, t.DataType], key: tuple[str, ...], where: str) -> NewTable:
    if not key:
        raise Untold(f"{where} names no column")
    lacking = [name for name in key if name not in columns]
    if lacking:
        raise Untold(f"{where} names the column '{lacking[0]}', which the schema of the row does not have")
    return NewTable(columns, key)


def _key_names(key: bytes | str | None) -> tuple[str, ...]:
    found = {} if key is None else _loaded(key)
    if "schema" in found and "payload" in found:
        found = fields_of(found["schema"]) or found["payload"]
    if not isinstance(found, Mapping) or not found:
        raise Untold("the record has no message key that names the columns of the primary key")
    return tuple(found)


def _loaded(text: bytes | str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, Mapping) else {}


def _connect_type(field: Any, named: Mapping[str, t.DataType]) -> t.DataType:
    """Return the type of a field of a schema of Kafka Connect; text for what says none."""
    if not isinstance(field, Mapping):
        return t.VarChar()
    name, kind, parameters = field.get("name"), field.get("type"), field.get("parameters")
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(parameters if isinstance(parameters, Mapping) else {})
    if isinstance(name, str) and name in named:
        return named[name]
    match kind:
        case "array":
            return t.Array(element=_connect_type(field.get("items"), named))
        case "map":
            key = _connect_type(field.get("keys"), named).with_nullable(False)
            return t.Map(key=key, value=_connect_type(field.get("values"), named))
        case "struct":
            inner = fields_of(field).items()
            parts = tuple(t.Field(i, part, _connect_type(own, named)) for i, (part, own) in enumerate(inner))
            return t.Row(fields=parts) if parts else t.VarChar()
    return _CONNECT.get(str(kind), t.VarChar())


def _decimal(parameters: Mapping[str, Any]) -> t.DataType:
    try:
        scale = int(parameters["scale"])
        precision = int(parameters.get("connect.decimal.precision") or _PRECISION_MAX)
    except (KeyError, TypeError, ValueError):
        return t.VarChar()
    precision, scale = max(precision, scale) - min(scale, 0), max(scale, 0)
    if precision > _PRECISION_MAX:
        return t.VarChar()
    return t.Decimal(precision=precision, scale=scale)


def _mysql_type(text: str) -> t.DataType:
    found = _MYSQL_TYPE.match(text)
    if found is None:
        return t.VarChar()
    name, first, second = found[1].lower(), found[2], found[3]
    if name in ("decimal", "numeric", "dec", "fixed"):
        precision, scale = int(first or 10), int(second or 0)
        return t.Decimal(precision=precision, scale=scale) if precision <= _PRECISION_MAX else t.VarChar()
    if name in ("datetime", "timestamp"):
        return t.Timestamp(precision=int(first or 0))
    if name == "time":  # from -838 to 838 hours
        return t.VarChar()
    if name == "bit":
        return t.BigInt() if int(first or 1) < 64 else t.Decimal(precision=20, scale=0)
    plain, unsigned = _MYSQL.get(name, (t.VarChar(), t.VarChar()))
    return unsigned if "unsigned" in text.lower() else plain
