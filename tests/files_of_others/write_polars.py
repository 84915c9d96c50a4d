"""Writes files with Polars; the argument is the directory."""

from __future__ import annotations

import datetime as dt
import json
import sys
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa

OUT = Path(sys.argv[1])
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
PLAIN = pl.DataFrame(
    {
        "id": [1, 2, 3],
        "f": [0.5, float("nan"), None],
        "s": ["a", "", None],
        "b": [b"\x00\xff", b"", None],
        "d": [dt.date(1001, 1, 1), dt.date(1582, 10, 4), None],
        "t": [NOON, dt.datetime(1001, 1, 1), None],
        "flag": [True, False, None],
    }
)
NESTED = PLAIN.with_columns(
    pl.Series("l", [[1, None], [], None]),
    pl.Series("r", [{"x": 1, "y": ["a"]}, {"x": None, "y": None}, None]),
    pl.Series("n", [Decimal("1.25"), Decimal("-9.99"), None], pl.Decimal(18, 2)),
    pl.Series("category", ["a", "b", None], pl.Categorical),
    pl.Series("state", ["a", "b", None], pl.Enum(["a", "b"])),
    pl.Series("millis", [NOON.replace(microsecond=0), None, None], pl.Datetime("ms")),
    pl.Series("tz", [NOON, None, None], pl.Datetime("us")).dt.replace_time_zone("Europe/Amsterdam"),
)
about: dict[str, str] = {}


def put(name: str, frame: pl.DataFrame, say: str) -> None:
    form = name.partition("-")[0]
    path = OUT / name / f"a.{form}"
    path.parent.mkdir()
    getattr(frame, f"write_{form}")(path)
    found = getattr(pl, f"read_{form}")(path).to_arrow(compat_level=pl.CompatLevel.oldest())
    with pa.ipc.new_file(OUT / f"{name}.arrow", found.schema) as out:
        out.write_table(found)
    about[name] = say


put("parquet", NESTED, "nested, categories, decimals, old dates")
put("parquet-empty", NESTED.clear(), "no rows")
put("parquet-unsigned", pl.DataFrame({"id": [1], "u": pl.Series([2**63], dtype=pl.UInt64)}), "unsigned integers")
put("parquet-time", pl.DataFrame({"id": [1], "time": [dt.time(1, 2, 3, 4)]}), "TIME in nanoseconds")
put("parquet-duration", pl.DataFrame({"id": [1], "long": [dt.timedelta(seconds=1)]}), "Duration")
put("avro", PLAIN, "old dates")
(OUT / "about.json").write_text(json.dumps({"version": f"Polars {pl.__version__}", "folders": about}))
