"""Writes files with Spark; the argument is the directory. Its zone has local mean time before 1883, and summer time."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

ZONE = "America/Los_Angeles"
OUT = Path(sys.argv[1])
SCALA = "2.12" if pyspark.__version__.startswith("3") else "2.13"

TYPES = """
select id, cast(id as tinyint) as i8, cast(id as smallint) as i16, id * 10000000000 as i64, float(id) / 2 as f32,
  double(id) / 3 as f64, cast(id as decimal(9, 2)) as d9, cast(id as decimal(18, 2)) as d18,
  cast(id as decimal(38, 10)) as d38, string(id) as s, binary(string(id)) as b, id = 1 as flag,
  date_add(date'2024-02-28', id) as d, timestamp_micros(1709208000123456 + id) as t,
  array(id, null) as l, array(array(id)) as ll, array(id) as full, map(string(id), id) as m,
  named_struct('x', id, 'y', array(named_struct('z', string(id)))) as r
from values (1), (2) as v(id)
union all
select 3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null
"""
OLD = """
select id, d, t, n, array(t) as l, map(d, t) as m, named_struct('t', t, 'd', d, 'n', n) as r from values
  (1, date'1001-01-01', timestamp'1001-01-01 01:02:03.123456', timestamp_ntz'1001-01-01 01:02:03.123456'),
  (2, date'1582-10-04', timestamp'1582-10-04 23:59:59', timestamp_ntz'1582-10-04 23:59:59'),
  (3, date'1582-10-15', timestamp'1582-10-15 00:00:00', timestamp_ntz'1582-10-15 00:00:00'),
  (4, date'1850-01-01', timestamp'1850-01-01 00:00:00', timestamp_ntz'1850-01-01 00:00:00'),
  (5, date'1000-03-01', timestamp'1000-03-01 12:00:00', timestamp_ntz'1000-03-01 12:00:00'),
  (6, date'0001-01-01', timestamp'0001-01-01 00:00:00', timestamp_ntz'0001-01-01 00:00:00'),
  (7, date'2024-02-29', timestamp'2024-02-29 12:00:00.5', timestamp_ntz'2024-02-29 12:00:00.5')
  as v(id, d, t, n)
"""
NEAR = """
select id, d, t, n, array(t) as l, map(d, t) as m, named_struct('t', t, 'd', d, 'n', n) as r from values
  (1, date'1001-01-01', timestamp'1700-01-01 01:02:03.123456', timestamp_ntz'1001-01-01 01:02:03.123456'),
  (2, date'1582-10-04', timestamp'1883-11-18 12:00:00', timestamp_ntz'1582-10-04 23:59:59'),
  (3, date'1582-10-15', timestamp'1899-12-31 23:59:59', timestamp_ntz'9999-12-31 23:59:59.999999'),
  (4, date'1850-01-01', timestamp_micros(1699171200000000), timestamp_ntz'1850-01-01 00:00:00'),
  (5, date'9999-12-31', timestamp_micros(1699174800000001), timestamp_ntz'2024-02-29 12:00:00.5'),
  (6, date'0001-01-01', timestamp_micros(-1), timestamp_ntz'1969-12-31 23:59:59.5'),
  (7, date'1970-01-01', timestamp_micros(3600500000), timestamp_ntz'1970-01-01 00:00:00'),
  (8, date'1969-12-31', timestamp_micros(-3600500000), timestamp_ntz'1969-12-31 00:00:00')
  as v(id, d, t, n)
"""
PARTS = """
select * from values (1, 'a/b=c d', date'2024-02-29'), (2, 'é%', date'2024-03-01'), (3, null, null), (4, '7', null)
  as v(id, p, q)
"""
VARIANT = 'select id, v, array(v) as l from values (1, parse_json(\'{"a": [1, null, "x"]}\')), (2, null) as t(id, v)'
INTERVALS = "select 1 as id, interval '1' day as long, interval '1' year as months"


def put(name: str, rows: DataFrame, form: str, *, by: tuple[str, ...] = (), say: str = "", **options: str) -> None:
    """Write a folder, and the rows that Spark reads in it."""
    for key, value in options.items():
        spark.conf.set("spark.sql." + key.replace("_", "."), value)
    folder = str(OUT / name)
    rows.coalesce(1).write.format(form).partitionBy(*by).save(folder)
    read = spark.read.format(form).load(folder).orderBy("id")
    batches = read._collect_as_arrow()
    found = pa.Table.from_batches(batches, None if batches else to_arrow_schema(read.schema))
    with pa.ipc.new_file(OUT / f"{name}.arrow", found.schema) as out:
        out.write_table(found)
    for key in options:
        spark.conf.unset("spark.sql." + key.replace("_", "."))
    for path in Path(folder).rglob("*.crc"):
        path.unlink()
    about[name] = say


os.environ["TZ"] = ZONE
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", ZONE)
    .config("spark.driver.extraJavaOptions", f"-Duser.timezone={ZONE}")
    .config("spark.jars.packages", f"org.apache.spark:spark-avro_{SCALA}:{pyspark.__version__}")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
about: dict[str, str] = {}

types, old, near = spark.sql(TYPES), spark.sql(OLD), spark.sql(NEAR)
for form in ("parquet", "orc", "avro"):
    put(f"{form}-types", types, form, say="all types, nested too")
    put(f"{form}-empty", types.limit(0), form, say="no rows")
    put(f"{form}-partitions", spark.sql(PARTS), form, by=("p", "q"), say="partition directories with `%XX`, nulls")
put("parquet-old-writer", types, "parquet", parquet_writeLegacyFormat="true", say="lists of two levels, fixed decimals")
for kind in ("TIMESTAMP_MICROS", "TIMESTAMP_MILLIS", "INT96"):
    for mode in ("CORRECTED", "LEGACY"):
        put(
            f"parquet-{mode.lower()}-{kind.lower().rpartition('_')[2]}",
            old,
            "parquet",
            parquet_outputTimestampType=kind,
            parquet_datetimeRebaseModeInWrite=mode,
            parquet_int96RebaseModeInWrite=mode,
            say=f"old dates and times, {mode}, {kind}",
        )
for mode in ("CORRECTED", "LEGACY"):
    put(
        f"avro-{mode.lower()}",
        old.drop("m"),
        "avro",
        avro_datetimeRebaseModeInWrite=mode,
        say=f"old dates and times, {mode}",
    )
put("orc-old", near, "orc", say="old dates, times from 1677 on")
put("orc-far", old, "orc", say="times before 1677")
for codec in ("none", "zlib", "lz4", "zstd"):
    put(f"orc-{codec}", near, "orc", orc_compression_codec=codec, say=f"old dates, {codec}")
if not pyspark.__version__.startswith("3"):
    put("parquet-variant", spark.sql(VARIANT), "parquet", say="VARIANT, in parts as by default")
for form in ("parquet", "orc"):
    put(f"{form}-intervals", spark.sql(INTERVALS), form, say="INTERVAL")
for form in ("parquet", "orc", "avro"):
    source, folder = OUT / f"{form}-types", OUT / f"{form}-hive"
    folder.mkdir()
    (written,) = source.glob("part*")
    shutil.copy(written, folder / "000000_0")
    shutil.copy(OUT / f"{form}-types.arrow", OUT / f"{form}-hive.arrow")
    for name in ("_SUCCESS", "000001_0"):
        (folder / name).touch()
    about[f"{form}-hive"] = "names as Hive gives them, a file of zero bytes"
(OUT / "about.json").write_text(json.dumps({"version": f"Spark {pyspark.__version__}", "folders": about}))
