"""Values of PostgreSQL as `column::text` shows them, and values that a table holds: both in one form that compares.

Numbers of days and microseconds stand for dates and times, so that values beyond Python's calendar compare as well.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa

from merganser.schema import types as t

DAY: Final = 86_400_000_000
"""Microseconds of a day."""
_MONTH: Final = 30.4375
"""Days of a month, as Debezium counts intervals in microseconds."""
_TYPE: Final = re.compile(
    r"(?P<base>[\w.\" ]+?)(?:\((?P<size>\d+)(?:,(?P<scale>-?\d+))?\))?(?P<zone> with(?:out)? time zone)?"
    r"(?P<array>\[\])?"
)
_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)')


@dataclass(frozen=True)
class Setting:
    """What a connector was told, as far as it decides the form of values."""

    options: Mapping[str, str]

    @property
    def schemas(self) -> bool:
        return self.options["converter.schemas.enable"] == "true"

    @property
    def flat(self) -> bool:
        return "transforms" in self.options

    @property
    def format(self) -> str:
        return "debezium-flat" if self.flat else "debezium-json"

    @property
    def decimals(self) -> str:
        return self.options.get("decimal.handling.mode", "precise")

    @property
    def times(self) -> str:
        return self.options.get("time.precision.mode", "adaptive")

    @property
    def binaries(self) -> str:
        return self.options.get("binary.handling.mode", "bytes")

    @property
    def intervals(self) -> str:
        return self.options.get("interval.handling.mode", "numeric")

    @property
    def hstore(self) -> str:
        return self.options.get("hstore.handling.mode", "json")

    @property
    def replaces_nulls(self) -> bool:
        """Whether the converter sends a column's default in place of NULL."""
        return self.options.get("converter.replace.null.with.default", "true") == "true"

    def unit(self, digits: int, *, clock: bool) -> str:
        """Return the unit of integers that stand for times.

        Args:
            digits: that the column keeps of a second.
            clock: whether these are times of a day.
        """
        match self.times:
            case "connect":
                return "ms"
            case "microseconds":
                return "us"
            case "nanoseconds":
                return "ns"
            case "adaptive_time_microseconds" if clock:
                return "us"
        return "ms" if digits <= 3 else "us"


@dataclass(frozen=True)
class SourceType:
    """A type of PostgreSQL."""

    base: str
    size: int | None
    scale: int | None
    array: bool

    @property
    def digits(self) -> int:
        """Digits of a second."""
        return 6 if self.size is None else self.size


def source_type(text: str) -> SourceType:
    found = _TYPE.fullmatch(text)
    assert found is not None, text
    base = found["base"] + (" tz" if found["zone"] == " with time zone" else "")
    size, scale = (None if found[part] is None else int(found[part]) for part in ("size", "scale"))
    return SourceType(base, size, scale, found["array"] is not None)


# columns of tables


def declared(kind: SourceType, setting: Setting) -> str:
    """Return the type that docs/cdc.md tells for a column."""
    if kind.array:
        return f"ARRAY<{_declared(kind, setting)}>"
    return _declared(kind, setting)


def _declared(kind: SourceType, setting: Setting) -> str:
    match kind.base:
        case "bigint unsigned":
            return "DECIMAL(20, 0)"
        case "smallint" | "integer" | "bigint":
            return {"smallint": "SMALLINT", "integer": "INT", "bigint": "BIGINT"}[kind.base]
        case "real" | "double precision":
            return "FLOAT" if kind.base == "real" else "DOUBLE"
        case "boolean":
            return "BOOLEAN"
        case "numeric" if setting.decimals == "double":
            return "DOUBLE"
        case "numeric" if kind.size is not None and kind.size <= 38:
            return f"DECIMAL({kind.size}, {kind.scale or 0})"
        case "money":
            return "DOUBLE" if setting.decimals == "double" else "DECIMAL(19, 2)"
        case "bytea":
            return "BYTES"
        case "geometry" if setting.schemas:
            return "BYTES"
        case "date":
            return "DATE"
        case "time" if kind.digits <= 3 or setting.times == "connect":
            return "TIME(3)"
        case "time":
            return "STRING" if setting.schemas or setting.times == "isostring" else "BIGINT"
        case "timestamp" | "timestamp tz":
            digits = 3 if setting.times == "connect" and kind.base == "timestamp" else kind.digits
            return f"TIMESTAMP({digits})" + (" WITH LOCAL TIME ZONE" if kind.base == "timestamp tz" else "")
        case "interval":
            return "BIGINT" if setting.intervals == "numeric" else "STRING"
        case "hstore" if setting.hstore == "map":
            return "MAP<STRING, STRING>"
        case "bit" if kind.size in (None, 1):
            return "BOOLEAN"
        case "bit" | "bit varying":
            return "BYTES"
    return "STRING"


def reading(columns: Mapping[str, SourceType], setting: Setting) -> dict[str, Any]:
    """Return the options of `write_changes` that the records of a table need."""
    found: dict[str, Any] = {"unavailable": "keep"}
    if setting.schemas:
        if setting.binaries != "bytes":
            found["binary"] = setting.binaries
        return found
    forms = {"bytea": setting.binaries.replace("bytes", "base64"), "bit": "base64", "bit varying": "base64"}
    binaries = {name: forms[kind.base] for name, kind in columns.items() if kind.base in forms}
    if binaries:
        found["binary"] = binaries
    exact = ("numeric", "money", "bigint unsigned") if setting.decimals == "precise" else ("bigint unsigned",)
    numbers = [name for name, kind in columns.items() if kind.base in exact]
    if numbers:
        found["decimal"] = dict.fromkeys(numbers, "base64")
    if setting.times != "isostring":
        found["time_unit"] = {
            name: setting.unit(kind.digits, clock=kind.base == "time")
            for name, kind in columns.items()
            if kind.base in ("time", "timestamp")
        }
    return found


# values of PostgreSQL


def told(text: str | None, kind: SourceType, setting: Setting) -> Any:
    """Return what a text of PostgreSQL says, as exactly as the connector's setting can send it."""
    if text is None:
        return None
    if not kind.array:
        return _told(text, kind, setting)
    elements = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    return [None if part is None else _told(_as_text(part), kind, setting) for part in elements]


def _as_text(part: Any) -> str:
    return str(part).lower() if isinstance(part, bool) else str(part)


def _told(text: str, kind: SourceType, setting: Setting) -> Any:
    match kind.base:
        case "smallint" | "integer" | "bigint" | "bigint unsigned":
            return int(text)
        case "real":
            return _float32(float(text))
        case "double precision":
            return _number(float(text))
        case "numeric" | "money":
            number = Decimal(text.replace("$", "").replace(",", ""))
            return _number(float(number)) if setting.decimals == "double" else _number(number)
        case "boolean":
            return text == "true"
        case "character":
            return text.rstrip(" ")
        case "bytea" | "geometry":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "date":
            return days(text)
        case "time":
            found = clock(text)
            return found // 1000 * 1000 if setting.times == "connect" else found
        case "time tz":
            return clock_with_zone(text)
        case "timestamp":
            found = instant(text)
            return found // 1000 * 1000 if setting.times == "connect" else found
        case "timestamp tz":
            return instant(text)
        case "interval":
            months, whole, micros = interval(text)
            if setting.intervals == "string":
                return months, whole, micros
            return round((months * _MONTH + whole) * DAY) + micros
        case "hstore":
            return {
                _unescaped(found[1]): None if found[2] is None else _unescaped(found[2])
                for found in _PAIR.finditer(text)
            }
        case "inet":
            return re.sub(r"/(?:128|32)$", "", text)
        case "bit" if kind.size in (None, 1):
            return text == "1"
        case "bit" | "bit varying":
            return int(text or "0", 2)
    return text


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _number(value: float | Decimal) -> Any:
    return "NaN" if value != value else value


def _float32(value: float) -> Any:
    return _number(struct.unpack("f", struct.pack("f", value))[0])


def days(text: str) -> int:
    """Return the days since 1970 of a date."""
    found = re.fullmatch(r"(\d+)-(\d\d)-(\d\d)Z?( BC)?", text)
    assert found is not None, text
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    year = 1 - year if found[4] else year
    # the days of the proleptic Gregorian calendar, with March as the first month of a year
    years = year - (month <= 2)
    era, month = years // 400, (month + 9) % 12
    inside = years - era * 400
    return era * 146_097 + inside * 365 + inside // 4 - inside // 100 + (153 * month + 2) // 5 + day - 1 - 719_468


def clock(text: str) -> int:
    """Return the microseconds of a time of day."""
    found = re.fullmatch(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?Z?", text)
    assert found is not None, text
    micros = int((found[4] or "").ljust(9, "0")) // 1000
    return (int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0)) * 1_000_000 + micros


def clock_with_zone(text: str) -> int:
    """Return the microseconds of a time of day in UTC."""
    found = re.fullmatch(r"([\d:.]+)(Z|[+-]\d\d(?::\d\d)?)", text)
    assert found is not None, text
    return (clock(found[1]) - _zone(found[2])) % DAY


def instant(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp, in UTC if it names a zone."""
    found = re.fullmatch(r"(\d+-\d\d-\d\d)[T ]([\d:.]+)(Z|[+-]\d\d(?::\d\d)?)?( BC)?", text)
    assert found is not None, text
    zone = _zone(found[3]) if found[3] else 0
    return days(found[1] + (found[4] or "")) * DAY + clock(found[2]) - zone


def _zone(text: str) -> int:
    if text == "Z":
        return 0
    hours, _, minutes = text[1:].partition(":")
    size = (int(hours) * 3600 + int(minutes or 0) * 60) * 1_000_000
    return -size if text[0] == "-" else size


def interval(text: str) -> tuple[int, int, int]:
    """Return the months, days and microseconds of an interval in the form of ISO 8601."""
    parts = {"Y": 0, "M": 0, "D": 0, "TH": 0, "TM": 0, "TS": Decimal(0)}
    assert text.startswith("P"), text
    date, _, time = text[1:].partition("T")
    for prefix, part in (("", date), ("T", time)):
        for number, unit in re.findall(r"(-?[\d.]+)([A-Z])", part):
            parts[prefix + unit] = Decimal(number)
    micros = (parts["TH"] * 3600 + parts["TM"] * 60 + parts["TS"]) * 1_000_000
    return int(parts["Y"] * 12 + parts["M"]), int(parts["D"]), int(micros)


# values of tables


def held(value: Any, stored: t.DataType, kind: SourceType, setting: Setting) -> Any:
    """Return what a value of a table says, in the form of `told`.

    Args:
        value: as `plain` gives it.
        stored: the type of its column.
        kind: the column's type in PostgreSQL.
        setting: what the connector was told.
    """
    if value is None:
        return None
    if kind.array:
        if isinstance(stored, t.Array):
            return [held(part, stored.element, _element(kind), setting) for part in value]
        return [held(part, t.VarChar(), _element(kind), setting) for part in json.loads(value, parse_float=str)]
    if isinstance(stored, t.VarChar):
        value = _from_text(value, kind, setting)
    match kind.base:
        case "real":
            return _float32(value)
        case "double precision":
            return _number(value)
        case "numeric" | "money" if setting.decimals == "double":
            return _number(float(value))
        case "numeric" | "money":
            return _number(Decimal(value))
        case "character":
            return value.rstrip(" ")
        case "time" if isinstance(stored, t.BigInt | t.Int):
            scale = {"ms": 1_000_000, "us": 1_000, "ns": 1}[setting.unit(kind.digits, clock=True)]
            return value * scale // 1_000
        case "hstore":
            return dict(value)
        case "bit" | "bit varying" if isinstance(value, bytes):
            return int.from_bytes(value, "big" if setting.schemas else "little")
    return value


def _element(kind: SourceType) -> SourceType:
    return SourceType(kind.base, kind.size, kind.scale, False)


def _from_text(text: str, kind: SourceType, setting: Setting) -> Any:
    """Return the value that a column of text holds for a type that is none."""
    match kind.base:
        case "time":
            if re.fullmatch(r"\d+", text):
                return held(int(text), t.BigInt(), kind, setting)
            return clock(text)
        case "time tz":
            return clock_with_zone(text)
        case "timestamp" | "timestamp tz":
            return instant(text)
        case "date":
            return days(text)
        case "interval":
            return interval(text)
        case "hstore":
            return json.loads(text)
        case "inet":
            return re.sub(r"/(?:128|32)$", "", text)
        case "bytea" if setting.binaries == "hex":
            return bytes.fromhex(text)
        case "bytea":
            return base64.b64decode(text, altchars=b"-_" if setting.binaries == "base64-url-safe" else None)
        case "geometry":
            return base64.b64decode(json.loads(text)["wkb"])
        case "numeric" | "money" if text.startswith("{"):
            parts = json.loads(text)
            return Decimal(f"{_whole(parts['value'])}E{-int(parts['scale'])}")
        case "numeric" if setting.decimals == "precise" and not setting.schemas:
            return Decimal(f"{_whole(text)}E{-(kind.scale or 0)}")
    return text


def _whole(text: str) -> int:
    return int.from_bytes(base64.b64decode(text), "big", signed=True)


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Return values of a column: dates as days, times and timestamps as microseconds."""
    scale, counted = _counted(column.type)
    values = column.cast(counted).to_pylist()
    if scale is None:
        return values

    def micros(value: Any) -> Any:
        return [micros(part) for part in value] if isinstance(value, list) else value and value * scale // 1_000

    return [micros(value) for value in values]


def _counted(kind: pa.DataType) -> tuple[int | None, pa.DataType]:
    """Return nanoseconds of a unit, and the type of numbers that count them; None: the values are no times."""
    if pa.types.is_list(kind):
        scale, inner = _counted(kind.value_type)
        return scale, pa.list_(inner)
    if pa.types.is_date32(kind):
        return None, pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        scale = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[kind.unit]
        return scale, pa.int32() if pa.types.is_time32(kind) else pa.int64()
    return None, kind


# tables


@dataclass(frozen=True)
class Difference:
    """A value of a table that is not the database's.

    Attributes:
        key: the row, by the primary key or, without one, by its place.
        column: None if the row is in the table or in the database alone.
        expected, found: what the database and the table hold.
    """

    table: str
    key: tuple[Any, ...]
    column: str | None
    expected: Any
    found: Any


def differences(
    name: str,
    columns: Mapping[str, SourceType],
    key: Sequence[str],
    rows: Sequence[Sequence[Any]],
    table: Any,
    setting: Setting,
) -> Iterator[Difference]:
    """Yield where a table differs from the database.

    Args:
        name: the table's name in the database.
        columns: their types there, by name.
        key: its primary key.
        rows: the texts of its rows.
        table: a `merganser.Table`.
        setting: what the connector was told.
    """
    read = table.read().to_arrow()
    stored = {field.name: field.type for field in table.schema.fields}
    found = [
        [held(value, stored[column], kind, setting) for value in plain(read.column(column))]
        if column in stored
        else [None] * read.num_rows
        for column, kind in columns.items()
    ]
    have = list(zip(*found, strict=True))
    want = [tuple(told(text, kind, setting) for text, kind in zip(row, columns.values(), strict=True)) for row in rows]
    if not key:
        want, have = (sorted(side, key=repr) for side in (want, have))
        pairs = {(i,): pair for i, pair in enumerate(zip_longest(want, have))}
    else:
        places = [list(columns).index(column) for column in key]
        sides = [{tuple(row[i] for i in places): row for row in side} for side in (want, have)]
        assert len(sides[1]) == len(have), f"{name} holds a key twice"
        pairs = {one: (sides[0].get(one), sides[1].get(one)) for one in sides[0] | sides[1]}
    for one, (expected, seen) in pairs.items():
        if expected is None or seen is None:
            yield Difference(name, one, None, expected, seen)
            continue
        for column, left, right in zip(columns, expected, seen, strict=True):
            if left != right:
                yield Difference(name, one, column, left, right)
