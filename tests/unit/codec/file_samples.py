"""Rows of every type for the tests of data files, and what golden tables say their files hold."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from merganser.codec.data_format import FileReader, WriteFormat, format_of, open_reader, open_writer
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type
from merganser.schema.types_text import field_from_json, parse_type

GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
KEY_ID_BASE = 1_073_741_823
SEQUENCE_NUMBER = t.Field(2_147_483_646, "_SEQUENCE_NUMBER", t.BigInt(nullable=False))
VALUE_KIND = t.Field(2_147_483_645, "_VALUE_KIND", t.TinyInt(nullable=False))

YEAR_1_MS, YEAR_9999_MS = -62_135_596_800_000, 253_402_300_799_999
NANOS_MAX = 2**63 - 1
D = Decimal

SIMPLE: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-32768, 32767, None],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, None],
    "FLOAT": [1.5, -0.0, None],
    "DOUBLE": [float("inf"), 1e-300, None],
    "CHAR(3)": ["abc", "", None],
    "STRING": ["", "naïve 😀", None],
    "BINARY(4)": [b"\x00\xff\x00\xff", b"", None],
    "BYTES": [b"", b"\xff", None],
    "DATE": [-719_162, 2_932_896, None],
    "TIME(3)": [0, 86_399_999, None],
    "DECIMAL(9, 2)": [D("-9999999.99"), D("0.01"), None],
    "DECIMAL(18, 4)": [D("99999999999999.9999"), D("-1.0000"), None],
    "DECIMAL(38, 10)": [D("9" * 28 + "." + "9" * 10), D("-" + "9" * 28 + ".0000000001"), None],
    "TIMESTAMP(0)": [-1000, 0, None],
    "TIMESTAMP(3)": [YEAR_1_MS, YEAR_9999_MS, None],
    "TIMESTAMP(6)": [YEAR_1_MS * 1000, YEAR_9999_MS * 1000 + 999, None],
    "TIMESTAMP(9)": [-NANOS_MAX, NANOS_MAX, None],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": [YEAR_1_MS, YEAR_9999_MS, None],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [YEAR_1_MS * 1000, -1, None],
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": [-1, NANOS_MAX, None],
}
"""Three values of every simple type, by its text: extremes, and null. Timestamps, dates and times as counts."""

NESTED: dict[str, list[Any]] = {
    "ARRAY<INT>": [[1, None, 3], [], None],
    "ARRAY<STRING NOT NULL>": [["a", ""], [], None],
    "ARRAY<ARRAY<BIGINT>>": [[[1], None, []], [[2, None]], None],
    "MAP<STRING, BIGINT>": [[("a", 1), ("b", None)], [], None],
    "MAP<INT, ARRAY<STRING>>": [[(1, ["x"]), (2, None)], [], None],
    "MULTISET<STRING>": [[("a", 2)], [], None],
    "ROW<x INT, y STRING, z ROW<q DOUBLE>>": [{"x": 1, "y": "a", "z": {"q": 0.5}}, {"x": 2, "y": "", "z": None}, None],
    "ARRAY<ROW<k STRING, v DECIMAL(10, 2)>>": [[{"k": "a", "v": D("1.50")}, None], [], None],
    "MAP<INT, ROW<p DATE, t TIME(3)>>": [[(1, {"p": 3, "t": 4}), (2, None)], [], None],
    "ARRAY<TIMESTAMP(6)>": [[0, None, -1], [], None],
}  # fmt: skip
VARIANT = {"VARIANT": [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None, {"value": b"", "metadata": b""}]}


def sample(columns: dict[str, list[Any]], first_id: int = 0) -> tuple[tuple[t.Field, ...], pa.Table]:
    """Return fields `c0`, `c1`, ... of the given types, and their values as a table."""
    fields = tuple(t.Field(first_id + 100 * i, f"c{i}", parse_type(text)) for i, text in enumerate(columns))
    return fields, table(fields, list(columns.values()))


def table(fields: Sequence[t.Field], columns: Sequence[list[Any]]) -> pa.Table:
    arrays = [pa.array(values, arrow_type(f.type)) for f, values in zip(fields, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(fields))


def written(file_format: str, fields: Sequence[t.Field], rows: pa.Table | Sequence[pa.Table], **options: Any) -> bytes:
    """Return the bytes of a file with these rows."""
    sink = io.BytesIO()
    writer = open_writer(sink, file_format, fields, WriteFormat(file_name=f"data-1.{file_format}", **options))
    for part in [rows] if isinstance(rows, pa.Table) else rows:
        writer.write(part)
    writer.close()
    return sink.getvalue()


def opened(file_format: str, data: bytes) -> FileReader:
    return open_reader(pa.BufferReader(data), file_format, f"data-1.{file_format}", len(data))


def round_trip(file_format: str, fields: Sequence[t.Field], rows: pa.Table, **options: Any) -> pa.Table:
    reader = opened(file_format, written(file_format, fields, rows, **options))
    read = reader.read(None, fields)
    read.validate(full=True)
    reader.close()
    return read


def same(left: pa.Table, right: pa.Table) -> bool:
    """Return whether tables are equal with the names of parts of types, which Arrow's own equality skips."""
    return str(left.schema) == str(right.schema) and left.equals(right)


def golden_files(file_format: str) -> list[tuple[str, Path]]:
    """Return (table, file) of every data and changelog file of this format in the golden tables."""
    return [
        (file.relative_to(GOLDEN).parts[0], file)
        for file in sorted(GOLDEN.glob("**/bucket-*/*"))
        if file.suffix != ".index" and format_of(file.name) == file_format
    ]


def golden_reader(file: Path) -> FileReader:
    return open_reader(pa.OSFile(str(file)), format_of(file.name), file.name, file.stat().st_size)


def golden_schemas(name: str) -> Iterator[tuple[t.Field, ...]]:
    """Yield the columns of every schema of a golden table, those of its branches too."""
    for file in sorted((GOLDEN / name).glob("**/schema/schema-*")):
        yield tuple(field_from_json(f) for f in json.loads(file.read_text())["fields"])


def physical(fields: Sequence[t.Field], names: Sequence[str]) -> tuple[t.Field, ...] | None:
    """Return the columns of a file with these names, written with this schema; None when it was another schema."""
    keys = [t.Field(KEY_ID_BASE + f.id, f"_KEY_{f.name}", f.type.with_nullable(False)) for f in fields]
    known = {f.name: f for f in [*keys, SEQUENCE_NUMBER, VALUE_KIND, *fields]}
    if not set(names) <= set(known) or not {f.name for f in fields} <= set(names):
        return None
    return tuple(known[name] for name in names)


def rendered(values: pa.Array, kind: t.DataType) -> list[Any]:
    """Return values as the golden tables' `expected.json` files write them."""
    valid = values.is_valid().to_pylist()
    return [value if ok else None for value, ok in zip(_rendered(values, kind), valid, strict=True)]


def _rendered(values: pa.Array, kind: t.DataType) -> list[Any]:
    match kind:
        case t.Float():
            return [_number(np.float32(v)) for v in values.fill_null(0).to_pylist()]
        case t.Double():
            return [_number(v) for v in values.fill_null(0).to_pylist()]
        case t.Decimal():
            return [format(v, "f") for v in values.fill_null(D(0)).to_pylist()]
        case t.Binary() | t.VarBinary():
            return [v.hex() for v in values.fill_null(b"").to_pylist()]
        case t.Date():
            return [str(v) for v in values.fill_null(0).to_pylist()]
        case t.Time():
            return [_clock(v * 1_000_000)[:-6] for v in values.view(pa.int32()).fill_null(0).to_pylist()]
        case t.Timestamp() | t.LocalZonedTimestamp():
            scale = {"ms": 1_000_000, "us": 1_000, "ns": 1}[values.type.unit]
            end = "Z" if isinstance(kind, t.LocalZonedTimestamp) else ""
            return [_moment(v * scale) + end for v in values.view(pa.int64()).fill_null(0).to_pylist()]
        case t.Array(element=element):
            parts = rendered(values.values, element)
            return [parts[a:b] for a, b in _ends(values)]
        case t.Map() | t.Multiset():
            key, value = (kind.key, kind.value) if isinstance(kind, t.Map) else (kind.element, t.Int())
            pairs = [list(p) for p in zip(rendered(values.keys, key), rendered(values.items, value), strict=True)]
            return [sorted(pairs[a:b], key=lambda p: json.dumps(p[0])) for a, b in _ends(values)]
        case t.Row(fields=fields):
            columns = {f.name: rendered(values.field(i), f.type) for i, f in enumerate(fields)}
            return [{name: column[i] for name, column in columns.items()} for i in range(len(values))]
    return values.to_pylist()


def _ends(values: pa.Array) -> Iterator[tuple[int, int]]:
    offsets = values.offsets.to_pylist()
    return itertools.pairwise(offsets)


def _number(value: Any) -> Any:
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return names.get(str(value), float(str(value)))


def _clock(nanos: int) -> str:
    seconds, rest = divmod(nanos, 10**9)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:09}"


def _moment(nanos: int) -> str:
    days, rest = divmod(nanos, 86_400 * 10**9)
    return f"{np.datetime64(days, 'D')}T{_clock(rest)}"
