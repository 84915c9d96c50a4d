"""Writes files with DuckDB; the argument is the directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

OUT = Path(sys.argv[1])
about: dict[str, str] = {}
PLAIN = """
select * from (values
  (1, 1::tinyint, 1.25::decimal(4, 2), 1.25::decimal(9, 2), -1.25::decimal(18, 2), 1.25::decimal(38, 2), 0.5::float,
   'nan'::double, 'a', '\\x00\\xFF'::blob, date '1001-01-01', timestamp '1001-01-01 01:02:03.123456',
   timestamptz '1850-01-01 00:00:00+00', [1, null], map {'k': 1}, {'x': 1, 'y': ['a']}, true,
   'b'::enum ('a', 'b')),
  (2, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null))
  as v(id, i8, d4, d9, d18, d38, f32, f64, s, b, d, t, tz, l, m, r, flag, state)
"""
ONE = {
    "unsigned": ("unsigned integers", "1::utinyint as u8, 65535::usmallint as u16, 4294967295::uinteger as u32"),
    "units": (
        "TIMESTAMP_S, _MS, _NS",
        "timestamp_s '2024-02-29 12:00:00' as s, timestamp_ms '2024-02-29 12:00:00.123' as ms, "
        "timestamp_ns '2024-02-29 12:00:00.123456789' as ns",
    ),
    "uuid": ("UUID", "'c56a4180-65aa-42ec-a945-5fd21dec0538'::uuid as u"),
    "hugeint": ("HUGEINT", "170141183460469231731687303715884105727::hugeint as h"),
    "interval": ("INTERVAL", "interval 1 day as i"),
    "time": ("TIME", "time '01:02:03.000004' as t"),
}


def put(name: str, query: str, say: str, options: str = "") -> None:
    folder = OUT / name
    folder.mkdir()
    place = f"{folder}" if "partition_by" in options else f"{folder}/a.parquet"
    duckdb.sql(f"copy ({query}) to '{place}' (format parquet {options})")
    hive = ", hive_partitioning = true, hive_types = {'p': varchar}" if "partition_by" in options else ""
    found = duckdb.sql(f"from read_parquet('{folder}/**/*.parquet' {hive}) order by id").to_arrow_table()
    with pa.ipc.new_file(OUT / f"{name}.arrow", found.schema) as out:
        out.write_table(found)
    about[name] = say


duckdb.sql("set timezone = 'UTC'")
put("parquet", PLAIN, "all types, nested too, old dates")
put("parquet-v2", PLAIN, "pages of version 2, zstd", ", parquet_version v2, compression zstd")
put("parquet-empty", f"{PLAIN} where false", "no rows")
put(
    "parquet-partitions",
    "select * from (values (1, 'a/b c'), (2, null)) as v(id, p)",
    "partition directories",
    ", partition_by (p), overwrite",
)
for name, (say, columns) in ONE.items():
    put(f"parquet-{name}", f"select 1 as id, {columns}", say)
(OUT / "about.json").write_text(json.dumps({"version": f"DuckDB {duckdb.__version__}", "folders": about}))
