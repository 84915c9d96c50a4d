"""Writes files with pyarrow; the argument is the directory."""

from __future__ import annotations

import datetime as dt
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

OUT = Path(sys.argv[1])
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
OLD = [dt.date(1001, 1, 1), dt.date(1582, 10, 4), None]
PLAIN: dict[str, pa.Array] = {
    "id": pa.array([1, 2, 3], pa.int32()),
    "i8": pa.array([1, None, -128], pa.int8()),
    "i64": pa.array([2**40, None, -1]),
    "f32": pa.array([0.5, float("nan"), None], pa.float32()),
    "f64": pa.array([0.5, float("-inf"), None]),
    "d": pa.array(OLD),
    "s": pa.array(["a", "", None]),
    "b": pa.array([b"\x00\xff", b"", None]),
    "d9": pa.array([Decimal("1.25"), Decimal("-99.99"), None], pa.decimal128(9, 2)),
    "d38": pa.array([Decimal("1.25"), Decimal("-99.99"), None], pa.decimal128(38, 2)),
    "t": pa.array([NOON, dt.datetime(1001, 1, 1), None], pa.timestamp("us")),
    "tz": pa.array([NOON, dt.datetime(1850, 1, 1), None], pa.timestamp("us", "America/Los_Angeles")),
    "l": pa.array([[1, None], [], None], pa.list_(pa.int64())),
    "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
    "r": pa.array(
        [{"x": 1, "y": ["a"]}, {"x": None, "y": None}, None],
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]),
    ),
}
OTHERS: dict[str, pa.Array] = {
    "id": pa.array([1, 2, 3]),
    "category": pa.array(["a", None, "a"]).dictionary_encode(),
    "large": pa.array(["a", None, ""], pa.large_string()),
    "lists": pa.array([[1], None, []], pa.large_list(pa.int64())),
    "midnight": pa.array([dt.date(1001, 1, 1), None, dt.date(2024, 1, 1)], pa.date64()),
    "seconds": pa.array([NOON.replace(microsecond=0), None, None], pa.timestamp("s")),
    "millis": pa.array([1, None, 86_399_999], pa.time32("ms")),
    "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
    "code": pa.array([b"ab", b"cd", None], pa.binary(2)),
}
UNSIGNED = {"id": pa.array([1, 2]), **{f"u{n}": pa.array([1, 2**n - 1], f"uint{n}") for n in (8, 16, 32, 64)}}
NANOS = {"id": pa.array([1, 2]), "t": pa.array([1_700_000_000_123_456_789, -1], pa.timestamp("ns"))}
about: dict[str, str] = {}


def put(name: str, columns: dict[str, pa.Array], say: str, form: str = "parquet", **options: Any) -> None:
    table = pa.table(columns)
    path = OUT / name / f"a.{form}"
    path.parent.mkdir()
    (pq if form == "parquet" else orc).write_table(table, str(path), **options)
    try:
        found = (pq if form == "parquet" else orc).read_table(str(path))
    except pa.ArrowInvalid:  # what pyarrow writes and cannot read
        found = table
    with pa.ipc.new_file(OUT / f"{name}.arrow", found.schema) as out:
        out.write_table(found)
    about[name] = say


for version in ("1.0", "2.4", "2.6"):
    put(f"parquet-{version}", PLAIN, f"version {version}, old dates", version=version)
put("parquet-spark", PLAIN, "flavor spark", flavor="spark")
put("parquet-int96", NANOS, "INT96", use_deprecated_int96_timestamps=True)
put("parquet-integers", PLAIN, "decimals as integers", store_decimal_as_integer=True)
put(
    "parquet-items",
    PLAIN,
    "elements called `item`, no Arrow schema",
    use_compliant_nested_type=False,
    store_schema=False,
)
put("parquet-others", OTHERS, "dictionaries, large and fixed lists, times, date64")
put("parquet-unsigned", UNSIGNED, "unsigned integers")
put("parquet-nanos", NANOS, "nanoseconds")
put("parquet-empty", {name: column[:0] for name, column in PLAIN.items()}, "no rows")
put("orc", {k: v for k, v in PLAIN.items() if k not in ("t",)}, "old dates", "orc")
put("orc-far", {k: v for k, v in PLAIN.items() if k in ("id", "t")}, "times before 1677", "orc")
(OUT / "about.json").write_text(json.dumps({"version": f"pyarrow {pa.__version__}", "folders": about}))
