"""Arrow tables as plain JSON values, in the encoding of the golden tables, and the comparison of rows as multisets.

The encoding is the one of `tests/golden/tables/README.md` ("Value encoding"), and two rows are equal exactly when their
encodings are: nothing is rounded on the way, so a timestamp keeps its nanoseconds and a decimal its scale.

| type | value |
|---|---|
| integers, BOOLEAN | JSON number, JSON boolean |
| FLOAT, DOUBLE | JSON number, or "NaN", "Infinity", "-Infinity"; a FLOAT as the shortest text that reads back as it |
| DECIMAL | text with as many fraction digits as the scale |
| CHAR, VARCHAR, STRING | text |
| BINARY, VARBINARY, BYTES | lower-case hex |
| DATE | YYYY-MM-DD |
| TIME | HH:MM:SS.mmm |
| TIMESTAMP | YYYY-MM-DDTHH:MM:SS.nnnnnnnnn; with local time zone the same in UTC and "Z" after it |
| ARRAY | list |
| MAP, MULTISET | list of [key, value], sorted by the text of the key |
| ROW | object |
| NULL | null |

Everything here works on Arrow types, not on merganser's, so that a fault of merganser cannot hide in its own mirror.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from typing import TypeAlias, cast

import numpy as np
import pyarrow as pa

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Row: TypeAlias = "dict[str, Json]"
PaimonType: TypeAlias = "str | Mapping[str, object]"
"""The text of a type, `DECIMAL(10, 2) NOT NULL`, or the object that schema files hold for a nested one."""
Field: TypeAlias = "Mapping[str, object] | tuple[str, PaimonType] | list[PaimonType]"
"""A column: the object of a schema file with `name` and `type`, or the pair of the two."""

_DAYS_OF_400_YEARS = 146_097
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_NANOS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


# ── Arrow to JSON values ──────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(table: pa.Table, fields: Iterable[Field] | None = None) -> list[Row]:
    """The rows of `table` in the golden encoding, in the order of the table.

    Args:
        table: any Arrow table; large, view and dictionary forms of a type give the same values as the plain one.
        fields: the columns to give and their Paimon types. The type decides only where Arrow says too little: an
            integer column declared TIME, a zoneless timestamp declared with local time zone. None: every column, by
            its Arrow type alone.

    Returns:
        One dict per row, its keys in the order of `fields`, or of the table.

    Raises:
        KeyError: a column of `fields` is not in the table.
    """
    if fields is None:
        declared: list[tuple[str, PaimonType | None]] = [(name, None) for name in table.column_names]
    else:
        declared = [_name_and_type(field) for field in fields]
    names = [name for name, _ in declared]
    columns: list[list[Json]] = []
    for name, paimon_type in declared:
        column = table.column(name)
        columns.append([value for chunk in column.chunks for value in _encoded(chunk, paimon_type)])
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _name_and_type(field: Field) -> tuple[str, PaimonType]:
    if isinstance(field, Mapping):
        return cast("str", field["name"]), cast("PaimonType", field["type"])
    name, paimon_type = field
    return cast("str", name), paimon_type


def _encoded(array: pa.Array, declared: PaimonType | None) -> list[Json]:
    """The values of one array; `declared` may be None where nobody said more than Arrow does."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _encoded(array.storage, declared)
    if pa.types.is_dictionary(kind):
        return _encoded(array.dictionary_decode(), declared)
    if pa.types.is_null(kind):
        return [None] * len(array)
    if pa.types.is_struct(kind):
        return _encoded_structs(array, declared)
    if pa.types.is_map(kind):
        return _encoded_maps(array, declared)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _encoded(array.values, _part(declared, "element"))
        return [None if span is None else values[span] for span in _spans(array)]
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        values = _encoded(array.values.slice(array.offset * size, len(array) * size), _part(declared, "element"))
        return [values[i * size : (i + 1) * size] if there else None for i, there in enumerate(_present(array))]
    if pa.types.is_timestamp(kind):
        zoned = kind.tz is not None or "LOCAL TIME ZONE" in _text(declared)
        scale = _NANOS_PER_UNIT[kind.unit]
        return _each(array.view(pa.int64()).to_pylist(), lambda ticks: _timestamp_text(ticks * scale, zoned=zoned))
    if pa.types.is_time(kind):
        integers = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        scale = _NANOS_PER_UNIT[kind.unit]
        return _each(array.view(integers).to_pylist(), lambda ticks: _time_text(ticks * scale))
    if pa.types.is_date32(kind):
        return _each(array.view(pa.int32()).to_pylist(), _date_text)
    if pa.types.is_date64(kind):
        return _each(array.view(pa.int64()).to_pylist(), lambda millis: _date_text(millis // 86_400_000))
    if pa.types.is_integer(kind) and _text(declared).startswith("TIME") and "STAMP" not in _text(declared):
        return _each(array.to_pylist(), lambda millis: _time_text(millis * 1_000_000))
    if pa.types.is_floating(kind):
        number = _double if pa.types.is_float64(kind) else _float
        return _each(array.to_pylist(), number)
    if pa.types.is_decimal(kind):
        return _each(array.to_pylist(), lambda value: format(cast("Decimal", value), "f"))
    values = array.to_pylist()
    return [value.hex() if isinstance(value, bytes) else value for value in values]


def _each(values: Iterable[object], encode: Callable[..., Json]) -> list[Json]:
    return [None if value is None else encode(value) for value in values]


def _encoded_structs(array: pa.StructArray, declared: PaimonType | None) -> list[Json]:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    parts = [_encoded(child, _row_field(declared, name)) for name, child in zip(names, array.flatten(), strict=True)]
    return [
        {name: part[i] for name, part in zip(names, parts, strict=True)} if there else None
        for i, there in enumerate(_present(array))
    ]


def _encoded_maps(array: pa.MapArray, declared: PaimonType | None) -> list[Json]:
    multiset = isinstance(declared, Mapping) and declared.get("type") == "MULTISET"
    keys = _encoded(array.keys, _part(declared, "element" if multiset else "key"))
    items = _encoded(array.items, None if multiset else _part(declared, "value"))
    rows: list[Json] = []
    for span in _spans(array):
        if span is None:
            rows.append(None)
        else:
            pairs: list[Json] = [[key, item] for key, item in zip(keys[span], items[span], strict=True)]
            rows.append(sorted(pairs, key=_key_text))
    return rows


def _key_text(pair: Json) -> str:
    key = cast("list[Json]", pair)[0]
    return key if isinstance(key, str) else canonical(key)


def _spans(array: pa.ListArray) -> list[slice | None]:
    """Where each list of `array` lies in its child; None for a null list. Right for slices of arrays too."""
    ends = array.offsets.to_pylist()
    return [
        slice(start, end) if there else None
        for start, end, there in zip(ends[:-1], ends[1:], _present(array), strict=True)
    ]


def _present(array: pa.Array) -> list[bool]:
    return cast("list[bool]", array.is_valid().to_pylist())


def _text(declared: PaimonType | None) -> str:
    return declared.upper() if isinstance(declared, str) else ""


def _part(declared: PaimonType | None, name: str) -> PaimonType | None:
    return cast("PaimonType", declared[name]) if isinstance(declared, Mapping) else None


def _row_field(declared: PaimonType | None, name: str) -> PaimonType | None:
    if isinstance(declared, Mapping):
        for field in cast("Sequence[Mapping[str, object]]", declared["fields"]):
            if field["name"] == name:
                return cast("PaimonType", field["type"])
    return None


def _double(value: float) -> Json:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _float(value: float) -> Json:
    return _double(float(str(np.float32(value)))) if math.isfinite(value) else _double(value)


def _date_text(days: int) -> str:
    """The day `days` after 1970-01-01, for years outside 1 to 9999 as well (the calendar repeats every 400 years)."""
    ordinal = days + _EPOCH_ORDINAL
    cycles = (ordinal - 1) // _DAYS_OF_400_YEARS
    inside = date.fromordinal(ordinal - cycles * _DAYS_OF_400_YEARS)
    year = inside.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{inside.month:02d}-{inside.day:02d}"


def _clock_text(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _time_text(nanos: int) -> str:
    seconds, rest = divmod(nanos, 1_000_000_000)
    return f"{_clock_text(seconds)}.{rest // 1_000_000:03d}"


def _timestamp_text(nanos: int, *, zoned: bool) -> str:
    seconds, rest = divmod(nanos, 1_000_000_000)
    days, of_day = divmod(seconds, 86_400)
    return f"{_date_text(days)}T{_clock_text(of_day)}.{rest:09d}{'Z' if zoned else ''}"


# ── types ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
}
_TYPE_TEXT = re.compile(
    r"(?P<name>[A-Z_]+)\s*(?:\((?P<numbers>[\d, ]+)\))?(?P<zone> WITH LOCAL TIME ZONE)?( NOT NULL)?"
)


def arrow_schema(fields: Iterable[Field]) -> pa.Schema:
    """The Arrow schema of columns given by their Paimon types, as design.md section 4 maps them."""
    columns = []
    for field in fields:
        name, paimon_type = _name_and_type(field)
        columns.append(pa.field(name, arrow_type(paimon_type), nullable=not _not_null(paimon_type)))
    return pa.schema(columns)


def arrow_type(paimon_type: PaimonType) -> pa.DataType:
    """The Arrow type of a Paimon type: precision 0 to 3 of a timestamp is ms, to 6 us, to 9 ns.

    Raises:
        ValueError: the text names no type.
    """
    if isinstance(paimon_type, Mapping):
        return _arrow_of_nested(paimon_type)
    match = _TYPE_TEXT.fullmatch(paimon_type.upper())
    if match is None:
        raise ValueError(f"not a Paimon type: {paimon_type!r}")
    numbers = [int(number) for number in (match["numbers"] or "").split(",") if number.strip()]
    if match["name"] in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        precision = numbers[0] if numbers else 6
        unit = "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
        zoned = match["zone"] is not None or match["name"] == "TIMESTAMP_LTZ"
        return pa.timestamp(unit, tz="UTC" if zoned else None)
    if match["name"] == "DECIMAL":
        return pa.decimal128(numbers[0] if numbers else 10, numbers[1] if len(numbers) > 1 else 0)
    if match["name"] not in _SIMPLE_TYPES:
        raise ValueError(f"not a Paimon type: {paimon_type!r}")
    return _SIMPLE_TYPES[match["name"]]


def _arrow_of_nested(paimon_type: Mapping[str, object]) -> pa.DataType:
    kind = cast("str", paimon_type["type"]).removesuffix(" NOT NULL")
    if kind == "ROW":
        return pa.struct(list(arrow_schema(cast("Sequence[Field]", paimon_type["fields"]))))
    element = cast("PaimonType", paimon_type["key" if kind == "MAP" else "element"])
    if kind == "ARRAY":
        return pa.list_(pa.field("element", arrow_type(element), nullable=not _not_null(element)))
    if kind == "MULTISET":
        return pa.map_(arrow_type(element), pa.int32())
    if kind == "MAP":
        return pa.map_(arrow_type(element), arrow_type(cast("PaimonType", paimon_type["value"])))
    raise ValueError(f"not a Paimon type: {kind!r}")


def type_text(paimon_type: PaimonType) -> str:
    """The text of a type, nested ones too: `ARRAY<ROW<k STRING, v DECIMAL(10, 2)>>`."""
    if isinstance(paimon_type, str):
        return paimon_type
    kind = cast("str", paimon_type["type"]).removesuffix(" NOT NULL")
    if kind == "ROW":
        fields = map(_name_and_type, cast("Sequence[Field]", paimon_type["fields"]))
        inner = ", ".join(f"{name} {type_text(part)}" for name, part in fields)
    else:
        names = ("key", "value") if kind == "MAP" else ("element",)
        inner = ", ".join(type_text(cast("PaimonType", paimon_type[name])) for name in names)
    return f"{kind}<{inner}>" + (" NOT NULL" if _not_null(paimon_type) else "")


def _not_null(paimon_type: PaimonType) -> bool:
    if isinstance(paimon_type, Mapping) and paimon_type.get("nullable") is False:
        return True  # the way pypaimon writes it
    text = paimon_type if isinstance(paimon_type, str) else cast("str", paimon_type["type"])
    return text.upper().endswith("NOT NULL")


# ── comparison ────────────────────────────────────────────────────────────────────────────────────────────────────────


def canonical(value: Json | Row) -> str:
    """The one text of a value: keys sorted, no spaces. Rows are equal exactly when their texts are."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def difference(actual: Iterable[Row], expected: Iterable[Row], *, limit: int = 5) -> str | None:
    """What sets two multisets of rows apart, for a person; None when they are equal.

    A row that is only expected and one that is only there are shown as a pair where they differ in the fewest
    columns, and then only these columns are named.
    """
    have, want = Counter(map(canonical, actual)), Counter(map(canonical, expected))
    if have == want:
        return None
    missing = [json.loads(text) for text in sorted((want - have).elements())]
    surplus = [json.loads(text) for text in sorted((have - want).elements())]
    lines = [
        f"{have.total()} rows, {want.total()} expected: {len(missing)} are missing, {len(surplus)} should not be there"
    ]
    for row in missing[:limit]:
        twin = min(surplus, key=partial(_columns_apart_count, row), default=None)
        apart = [] if twin is None else _columns_apart(row, twin)
        if twin is not None and len(apart) < len(row):
            surplus.remove(twin)
            same = {name: value for name, value in row.items() if name not in apart}
            lines.append(f"  in the row with {_shortened(same)}")
            lines += [f"    {name}: {_shown(twin, name)}, expected {_shown(row, name)}" for name in apart]
        else:
            lines.append(f"  missing {_shortened(row)}")
    lines += [f"  surplus {_shortened(row)}" for row in surplus[:limit]]
    return "\n".join(lines)


def assert_same_rows(actual: Iterable[Row], expected: Iterable[Row], message: str = "") -> None:
    """Raise AssertionError with the difference unless both hold the same rows equally often, in any order."""
    found = difference(actual, expected)
    if found is not None:
        raise AssertionError(f"{message}: {found}" if message else found)


def assert_same_changes(actual: Sequence[Row], expected: Sequence[Row], key: Sequence[str], message: str = "") -> None:
    """Raise AssertionError unless both hold the same rows, and the rows of each key in the same order."""
    assert_same_rows(actual, expected, message)
    found, wanted = (_by_key(rows, key) for rows in (actual, expected))
    for name, texts in wanted.items():
        if found[name] != texts:
            lines = "\n  ".join([f"key {name} has", *found[name], "expected", *texts])
            raise AssertionError(f"{message}: {lines}" if message else lines)


def _by_key(rows: Sequence[Row], key: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(canonical([row[name] for name in key]), []).append(canonical(row))
    return found


def _columns_apart(left: Row, right: Row) -> list[str]:
    names = list(left) + [name for name in right if name not in left]
    return [name for name in names if _shown(left, name) != _shown(right, name)]


def _columns_apart_count(left: Row, right: Row) -> int:
    return len(_columns_apart(left, right))


def _shown(row: Row, name: str) -> str:
    return canonical(row[name]) if name in row else "no such column"


def _shortened(row: Row) -> str:
    text = canonical(row)
    return text if len(text) <= 300 else text[:300] + "..."
