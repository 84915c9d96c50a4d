"""JSON values of cases <-> Arrow values, by README section 4, both in one plain form that can be compared and printed.

The plain form: numbers, text, booleans and None as they are; Decimal; bytes; dates and times as text without trailing
zeros; lists; rows as lists in field order; `Pairs` for maps; and, expected only, `Logical` for bytes that mean a set.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from tests.conformance.column_types import UNKNOWN, Type, arrow_of
from tests.conformance.outcome import Skip

_BYTES: Final = ("BINARY", "VARBINARY", "BYTES")
_DAY: Final = 86_400
_NANOS: Final = 1_000_000_000
_NANOS_PER_UNIT: Final = {"s": _NANOS, "ms": 1_000_000, "us": 1_000, "ns": 1}
_EPOCH: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Pairs:
    """A map: its entries, in no order that counts."""

    entries: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Logical:
    """Bytes that mean a set: a roaring bitmap or a sketch.

    Attributes:
        form: rbm32, rbm64, hll_sketch or theta_sketch.
        members: numbers of a bitmap, strings that a sketch was fed with.
    """

    form: str
    members: tuple[Any, ...]

    def serialized(self) -> bytes:
        """Return the bytes to write."""
        match self.form:
            case "rbm32":
                return bytes(BitMap(self.members).serialize())
            case "rbm64":
                return bytes(BitMap64(self.members).serialize())
            case "hll_sketch":
                sketches = _datasketches()
                hll = sketches.hll_sketch(12, sketches.tgt_hll_type.HLL_4)
                for member in self.members:
                    hll.update(member)
                return bytes(hll.serialize_compact())
            case "theta_sketch":
                theta = _datasketches().update_theta_sketch()
                for member in self.members:
                    theta.update(member)
                return bytes(theta.compact().serialize())
        raise Skip(f"unknown value form '{self.form}'")

    def holds(self, stored: bytes) -> bool:
        """Return whether stored bytes mean the same set; of sketches, whether they estimate its size."""
        try:
            match self.form:
                case "rbm32":
                    return set(BitMap.deserialize(stored)) == set(self.members)
                case "rbm64":
                    return _members64(stored) == set(self.members)
                case "hll_sketch":
                    estimate = _datasketches().hll_sketch.deserialize(stored).get_estimate()
                case "theta_sketch":
                    estimate = _datasketches().compact_theta_sketch.deserialize(stored).get_estimate()
                case _:
                    raise Skip(f"unknown value form '{self.form}'")
        except (ValueError, RuntimeError, IndexError):
            return False  # bytes of no such thing
        return bool(round(estimate) == len(set(self.members)))


def _members64(stored: bytes) -> set[int]:
    """Return the members of a 64-bit bitmap in the portable form, or in the tree form of the JVM's library.

    Only merganser itself reads the latter here.

    Raises:
        ValueError: the bytes are of neither.
    """
    try:
        return set(BitMap64.deserialize(stored))
    except ValueError:
        try:
            from merganser.merge.functions.bitmap64 import read
        except ImportError:
            raise ValueError("not the portable form") from None
        return set(read(stored))


def _datasketches() -> Any:
    try:
        import datasketches
    except ImportError:
        raise Skip("the package datasketches is not installed") from None
    return datasketches


# ── in ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def arrow_table(rows: Sequence[Sequence[Any]], columns: Sequence[tuple[str, Type]]) -> pa.Table:
    """Return rows of JSON values as Arrow; a value that does not fit its column goes in as what it is.

    Raises:
        Skip: a row has another number of values than there are columns.
    """
    for row in rows:
        if len(row) != len(columns):
            raise Skip(f"not a case: {len(row)} values {row!r:.80} for the columns {[name for name, _ in columns]}")
    arrays = [_array([row[i] for row in rows], kind) for i, (_, kind) in enumerate(columns)]
    return pa.table(arrays, names=[name for name, _ in columns])


def _array(values: list[Any], kind: Type) -> pa.Array:
    given = [as_input(value, kind) for value in values]
    if kind == UNKNOWN:
        return pa.array(given)
    try:
        return pa.array(given, arrow_of(kind))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array(given)  # it is for merganser to refuse


def as_input(value: Any, kind: Type) -> Any:
    """Return a JSON value as Python's `pa.array` takes it for a type; what does not fit stays as it is."""
    if value is None:
        return None
    try:
        return _converted(value, kind)
    except (ValueError, InvalidOperation, KeyError, AttributeError, TypeError):
        return value


def _converted(value: Any, kind: Type) -> Any:
    match kind.name:
        case "FLOAT" | "DOUBLE":
            return float(value)
        case "DECIMAL":
            return Decimal(str(value))
        case "DATE":
            return _days(value)
        case "TIME":
            return _clock_nanos(value) // 1_000_000
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return _moment_nanos(value) // _NANOS_PER_UNIT[arrow_of(kind).unit]
        case "ARRAY":
            return [as_input(part, kind.inner("element")) for part in value]
        case "MAP" | "MULTISET":
            key, item = _entry_types(kind)
            return [(as_input(k, key), as_input(v, item)) for k, v in _entries(value)]
        case "ROW":
            return {name: as_input(part, inner) for part, (name, inner) in zip(value, kind.fields, strict=True)}
        case name if name in _BYTES:
            found = _bytes(value)
            return found.serialized() if isinstance(found, Logical) else found
    return value


def _bytes(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((form, content),) = value.items()
    return bytes.fromhex(content) if form == "hex" else Logical(form, tuple(content))


def _entries(value: Any) -> list[Any]:
    if isinstance(value, dict) and set(value) == {"map"}:
        return list(value["map"])
    return list(value.items()) if isinstance(value, dict) else list(value)


def _entry_types(kind: Type) -> tuple[Type, Type]:
    if kind.name == "MULTISET":
        return kind.inner("element"), Type("INT")
    return kind.inner("key"), kind.inner("value")


# ── expected ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def expected(value: Any, kind: Type | None, *, micros: bool = False) -> Any:
    """Return a JSON value of an expectation in the plain form.

    Args:
        kind: None: the column has no type of the table, as in system tables.
        micros: moments lose what lies behind the microsecond.
    """
    if value is None:
        return None
    if kind is None:
        return _plain_json(value)
    try:
        return _expected(value, kind, micros)
    except (ValueError, InvalidOperation, KeyError, AttributeError, TypeError):
        return value


def _expected(value: Any, kind: Type, micros: bool) -> Any:
    match kind.name:
        case "FLOAT":
            return struct.unpack("f", struct.pack("f", float(value)))[0]
        case "DOUBLE":
            return float(value)
        case "DECIMAL":
            return Decimal(str(value))
        case "DATE":
            return _date_text(_days(value))
        case "TIME":
            return _clock_text(_clock_nanos(value))
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            nanos = _moment_nanos(value)
            return _moment_text(nanos // 1_000 * 1_000 if micros else nanos, zoned=kind.name == "TIMESTAMP_LTZ")
        case "ARRAY":
            return [expected(part, kind.inner("element"), micros=micros) for part in value]
        case "MAP" | "MULTISET":
            key, item = _entry_types(kind)
            return Pairs(
                tuple((expected(k, key, micros=micros), expected(v, item, micros=micros)) for k, v in _entries(value))
            )
        case "ROW":
            return [expected(part, inner, micros=micros) for part, (_, inner) in zip(value, kind.fields, strict=True)]
        case name if name in _BYTES:
            return _bytes(value)
    return value


def _plain_json(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"map"}:
            return Pairs(tuple((_plain_json(k), _plain_json(v)) for k, v in value["map"]))
        return _bytes(value)
    return [_plain_json(part) for part in value] if isinstance(value, list) else value


# ── actual ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(table: pa.Table, columns: Sequence[tuple[str, Type | None]]) -> list[list[Any]]:
    """Return rows in the plain form: these columns, in this order; a column that is not there is a KeyError."""
    parts = [[actual(scalar, kind) for scalar in table.column(name)] for name, kind in columns]
    return [list(row) for row in zip(*parts, strict=True)] if parts else [[] for _ in range(table.num_rows)]


def actual(scalar: pa.Scalar, kind: Type | None) -> Any:
    """Return an Arrow value in the plain form; the type decides only where Arrow says too little."""
    if not scalar.is_valid:
        return None
    found = scalar.type
    if pa.types.is_dictionary(found):
        return actual(scalar.as_py() if not hasattr(scalar, "value") else scalar.value, kind)
    if pa.types.is_date(found):
        return _date_text(scalar.cast(pa.date32()).value)
    if pa.types.is_time(found):
        return _clock_text(scalar.value * _NANOS_PER_UNIT[found.unit])
    if pa.types.is_timestamp(found):
        return _moment_text(scalar.value * _NANOS_PER_UNIT[found.unit], zoned=found.tz is not None)
    if pa.types.is_integer(found) and kind is not None and kind.name == "TIME":
        return _clock_text(scalar.as_py() * 1_000_000)
    if pa.types.is_map(found):
        return _map(scalar, kind)
    if pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        inner = kind.inner("element") if kind is not None and kind.name == "ARRAY" else None
        return [actual(part, inner) for part in scalar.values]
    if pa.types.is_struct(found):
        return [actual(scalar[i], _field(kind, i)) for i in range(found.num_fields)]
    return scalar.as_py()


def _map(scalar: pa.Scalar, kind: Type | None) -> Pairs:
    key, item = _entry_types(kind) if kind is not None and kind.name in ("MAP", "MULTISET") else (None, None)
    return Pairs(tuple((actual(entry[0], key), actual(entry[1], item)) for entry in scalar.values))


def _field(kind: Type | None, i: int) -> Type | None:
    return kind.fields[i][1] if kind is not None and kind.name == "ROW" and i < len(kind.fields) else None


# ── text ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(value: Any) -> str:
    """Return a plain value as a person reads it, close to the JSON of cases; equal values give equal text."""
    match value:
        case list():
            return "[" + ", ".join(shown(part) for part in value) + "]"
        case Pairs(entries=entries):
            return "{" + ", ".join(sorted(f"{shown(k)}: {shown(v)}" for k, v in entries)) + "}"
        case Logical(form=form, members=members):
            return f"{form}({', '.join(str(member) for member in members)})"
        case bytes():
            return f"hex({value.hex()})"
        case Decimal():
            return format(value.normalize() if value else Decimal(0), "f")
        case bool() | None | str():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def _days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH


def _date_text(days: int) -> str:
    ordinal = days + _EPOCH
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= date.max.toordinal() else f"day {days}"


def _clock_nanos(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = (int(part) for part in [*clock.split(":"), "0"][:3])
    return (hours * 3600 + minutes * 60 + seconds) * _NANOS + int(fraction[:9].ljust(9, "0"))


def _clock_text(nanos: int) -> str:
    seconds, rest = divmod(nanos, _NANOS)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _moment_nanos(text: str) -> int:
    day, _, clock = text.removesuffix("Z").replace(" ", "T").partition("T")
    return _days(day) * _DAY * _NANOS + (_clock_nanos(clock) if clock else 0)


def _moment_text(nanos: int, *, zoned: bool) -> str:
    days, rest = divmod(nanos, _DAY * _NANOS)
    return f"{_date_text(days)}T{_clock_text(rest)}{'Z' if zoned else ''}"


def millis_of(moment: int | str) -> int:
    """Return the epoch milliseconds of a time in a step: a number, or ISO text in UTC."""
    return moment if isinstance(moment, int) else _moment_nanos(moment) // 1_000_000
