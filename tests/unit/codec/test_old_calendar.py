"""Dates and times of the old calendar, against Spark's own table and against arithmetic by Julian day numbers."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

import merganser as mg
from merganser.codec.old_calendar import DAYS_END, added_seconds, calendar_of, gregorian_days, zone_named
from merganser.errors import UnsupportedError

LEGACY = {b"org.apache.spark.version": b"3.5.1", b"org.apache.spark.legacyDateTime": b""}
ZONE = {b"org.apache.spark.timeZone": b"America/Los_Angeles"}
SPARK_2 = {b"org.apache.spark.version": b"2.4.8"}


def test_zones_add_what_the_table_of_spark_says() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql-api_*.jar")
    table = json.loads(zipfile.ZipFile(jar).read("julian-gregorian-rebase-micros.json"))
    random = np.random.default_rng(7)
    for line in table:
        zone, switches = zone_named(line["tz"]), np.array(line["switches"])
        assert zone is not None
        seconds = np.concatenate([switches, switches[1:] - 1, switches + 1, random.integers(switches[0], 0, 200)])
        wanted = np.array(line["diffs"])[np.searchsorted(switches, seconds, side="right") - 1]
        assert (added_seconds(seconds, zone) == wanted).all(), line["tz"]


def test_days_keep_their_names() -> None:
    """Day numbers of both calendars by E. G. Richards, in years before Christ too."""
    for year in (-4000, -101, -44, -1, 0, 1, 4, 100, 300, 999, 1000, 1500, 1582):
        for month in (1, 2, 3, 10, 12):
            for day in (1, 4, 28, 29):
                if day == 29 and month == 2 and year % 4:
                    continue
                old, new = _number(year, month, day, julian=True), _number(year, month, day, julian=False)
                if old < DAYS_END:
                    assert gregorian_days(np.array([old]))[0] == new, (year, month, day)


def _number(year: int, month: int, day: int, *, julian: bool) -> int:
    shifted = (14 - month) // 12
    y, m = year + 4800 - shifted, month + 12 * shifted - 3
    days = day + (153 * m + 2) // 5 + 365 * y + y // 4
    return days - (32_083 if julian else y // 100 - y // 400 + 32_045) - 2_440_588


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ({}, None),
        ({b"org.apache.spark.version": b"3.5.1"}, None),
        ({b"org.apache.spark.sql.parquet.row.metadata": b"{}"}, None),
        (LEGACY, (True, True, False, False)),
        (LEGACY | ZONE, (True, True, False, True)),
        (SPARK_2, (True, True, True, False)),
        ({b"org.apache.spark.version": b"3.0.3"}, (False, False, True, False)),
        ({b"writer.date.proleptic": b"false"}, (True, False, False, False)),
        (LEGACY | {b"org.apache.spark.timeZone": b"GMT+08:00"}, (True, True, False, True)),
        (LEGACY | {b"org.apache.spark.timeZone": b"Mars/Base"}, (True, True, False, False)),
    ],
)
def test_files_say_what_is_counted_in_the_old_calendar(pairs: dict[bytes, bytes], said: Any) -> None:
    found = calendar_of(pairs)
    assert (None if found is None else (found.days, found.instants, found.int96, found.zone is not None)) == said


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    made.create_database("db")
    return made


@pytest.mark.parametrize("int96", [False, True])
def test_instants_of_a_zone_that_is_not_told_are_refused_before_anything_is_done(
    catalog: mg.Catalog, tmp_path: Path, int96: bool
) -> None:
    """Spark 2 notes no zone. Dates, and times since 1900, need none."""
    for name, first in (("old", -2_208_988_800_000_001), ("new", -2_208_988_800_000_000)):
        times = pa.array([first, None], pa.timestamp("us", "UTC"))
        schema = pa.schema([("id", pa.int32()), ("d", pa.date32()), ("t", times.type)])
        rows = pa.Table.from_arrays([[1, 2], pa.array([-353_914, 0], pa.date32()), times], schema=schema)
        (tmp_path / name).mkdir()
        columns = {"id": "integer", "d": "date", "t": "timestamp"}
        fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in columns.items()]
        text = json.dumps({"type": "struct", "fields": fields})
        noted = {b"org.apache.spark.sql.parquet.row.metadata": text.encode()}
        file, schema = tmp_path / name / "a.parquet", rows.schema
        with pq.ParquetWriter(file, schema, store_schema=False, use_deprecated_int96_timestamps=int96) as out:
            out.write_table(rows)
            out.add_key_value_metadata(SPARK_2 | noted)
    table = catalog.create_table("db.t", {"id": "INT", "d": "DATE", "t": "TIMESTAMP(6) WITH LOCAL TIME ZONE"})
    for way in ("link", "keep", "copy"):
        with pytest.raises(UnsupportedError, match=r"'t' holds a time before 1900 .*ms\.write.*Nothing was changed"):
            catalog.migrate(tmp_path / "old", "db.u", how=way)
        made = catalog.migrate(tmp_path / "new", f"db.{way}", how=way)
        assert [str(row["d"]) for row in made.read().to_pylist()] == ["1001-01-01", "1970-01-01"]
        assert made.read(where="d = DATE '1001-01-01' and t < TIMESTAMP '1900-01-02 00:00:00'").count() == 1
    with pytest.raises(UnsupportedError, match="'t' holds a time before 1900"):
        table.load(tmp_path / "old")
    table.load(tmp_path / "new")
    assert table.read().count() == 2
