"""Texts and names mean what they mean to Spark: the time zone of the session, and its rule for the case of names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark

_ZONE = "spark.sql.session.timeZone"
_CASE = "spark.sql.caseSensitive"
_HOURS = [datetime(2026, 3, 7, 20, tzinfo=UTC) + timedelta(hours=n) for n in range(0, 40, 3)]  # clocks are set forward
_HOURS += [datetime(2026, 10, 31, 22, tzinfo=UTC) + timedelta(hours=n) for n in range(0, 24, 2)]  # and back
_HOURS += [datetime(1899, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2026, 1, 1, 4, 59, tzinfo=UTC)]

_FILTERS = [
    "l >= '2026-03-08'",
    "l >= '2026-03-08 02:30:00'",
    "l < TIMESTAMP '2026-11-01 01:30:00'",
    "l > '2026-03-08 05:00:00+00:00'",
    "l > '2026-03-08 02:30:00 America/New_York'",
    "l > '2026-03-08 07:30:00 UTC+1'",
    "l >= TIMESTAMP '2026-03-07 18:00:00 PST'",
    "w > '2026-03-08 02:30:00 America/New_York'",
    "w < localtimestamp() - INTERVAL 1 HOUR",
    "l BETWEEN DATE'2026-03-08' AND DATE'2026-03-09'",
    "l IN ('2026-03-08 03:00:00', '2026-10-31 20:00:00')",
    "to_date(l) = '2026-03-08'",
    "CAST(l AS DATE) = d",
    "l = d",
    "l > w",
    "coalesce(l, w) > '2026-03-08'",
    "year(l) = 2025",
    "hour(l) < 6 AND month(l) = 3",
    "dayofweek(l) = 1",
    "date_trunc('DAY', l) = '2026-03-08'",
    "trunc(d, 'MM') = DATE'2026-03-01'",
    "date_trunc('MONTH', w) = TIMESTAMP_NTZ '2026-11-01 00:00:00'",
    "l - INTERVAL 1 DAY < TIMESTAMP '2026-03-08 02:00:00'",
    "l + INTERVAL 1 MONTH > '2026-11-30'",
    "w + INTERVAL '1 02:00:00' DAY TO SECOND > TIMESTAMP_NTZ '2026-03-09 00:00:00'",
    "date_add(d, 3) > '2026-11-01'",
    "date_sub(d, 1) = '2026-03-07'",
    "datediff(DATE'2026-03-10', d) < 2",
    "add_months(d, 1) > DATE'2026-12-01'",
    "last_day(d) = '2026-03-31'",
    "d <= current_date",
    "l < current_timestamp() - INTERVAL 1 HOUR",
    "d > make_date(2026, 3, 7)",
    "extract(WEEK FROM l) = 10",
    "weekofyear(d) = 44",
    "quarter(l) = 4",
    "CAST(l AS STRING) LIKE '2026-03-08 0%'",
]


@pytest.fixture(scope="module")
def times(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> mg.Table:
    catalog = mg.catalog(str(tmp_path_factory.mktemp("zones")))
    catalog.create_database("shop")
    kinds = {"id": "INT", "l": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "w": "TIMESTAMP(6)", "d": "DATE"}
    table = catalog.create_table("shop.times", kinds, ["id"], options={"bucket": "1", "write-only": "true"})
    for part in range(3):  # several files, so that some are skipped
        numbers = [n for n in range(len(_HOURS)) if n % 3 == part]
        walls = [_HOURS[n].replace(tzinfo=None) + timedelta(minutes=30) for n in numbers]
        rows = {"id": numbers, "l": [_HOURS[n] for n in numbers], "w": walls, "d": [wall.date() for wall in walls]}
        table.write(pa.table(rows))
    table.write(pa.table({"id": [99], "l": pa.nulls(1), "w": pa.nulls(1), "d": [date(2026, 3, 8)]}))
    return table


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    before = {key: spark.conf.get(key) for key in (_ZONE, _CASE)}
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)
    ms.register(spark)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC", "-03:30"])
def test_a_filter_keeps_what_sparks_own_filter_keeps(zone: str, session: SparkSession, times: mg.Table) -> None:
    session.conf.set(_ZONE, zone)
    every = ms.read(session, times).cache()
    for text in _FILTERS:
        wanted = sorted(row.id for row in every.where(text).select("id").collect())
        scan = times.read(where=text, columns=["id"], timezone=zone)
        assert sorted(scan.to_arrow().column("id").to_pylist()) == wanted, text
    every.unpersist()
    text = _FILTERS[0]
    wanted = times.read(where=text, timezone=zone).count()
    assert ms.read(session, times, where=text).count() == wanted
    ms.register(session)
    assert session.read.format("merganser").option("where", text).load(times.path).count() == wanted
    options = {"where": text, "timezone": "UTC"}
    assert (
        session.read.format("merganser").options(**options).load(times.path).count() == times.read(where=text).count()
    )


def test_text_of_a_time_is_in_the_zone_of_the_session(session: SparkSession, times: mg.Table) -> None:
    first, second, *_ = times.snapshots()
    session.conf.set(_ZONE, "+05:00")
    there = (second.commit_time + timedelta(hours=5)).replace(tzinfo=None).isoformat()
    assert ms.read(session, times, timestamp=there).count() == times.read(snapshot=2).count()
    with pytest.raises(mg.errors.MerganserError, match="had no snapshot at"):
        ms.read(session, times, timestamp=(first.commit_time - timedelta(hours=1)).replace(tzinfo=None).isoformat())


ODD = ["a.b", "c`d", "e f", "Grün", "1st"]


@pytest.mark.parametrize("through", ["arrow", "files", "collect", "source"])
def test_columns_may_have_any_name(through: str, spark: SparkSession, catalog: mg.Catalog) -> None:
    schema = dict.fromkeys(ODD, "INT")
    table = catalog.create_table("shop.odd", schema, ODD[:2], ["a.b"], options={"bucket": "3"})
    frame = spark.createDataFrame([(n % 2, n, n, n, n) for n in range(20)], ODD)
    frame = frame.select(*[frame["`" + name.replace("`", "``") + "`"].cast("int").alias(name) for name in ODD])
    if through == "source":
        frame.write.format("merganser").mode("append").save(table.path)
    elif through == "collect":
        ms.write(frame, table, collect=True)
    else:
        ms.write(frame, table, through=through)
    assert sorted(row["c`d"] for row in table.read().to_pylist()) == list(range(20))
    found = ms.read(spark, table, columns=["a.b", "c`d"], where="`c``d` < 3 AND `a.b` = 0")
    assert sorted(map(tuple, found.collect())) == [(0, 0), (0, 2)]
    options = {"columns": "`a.b`, `c``d`", "where": "`c``d` < 3"}
    source = spark.read.format("merganser").options(**options).load(table.path)
    assert source.columns == ["a.b", "c`d"]
    assert source.count() == 3


def test_names_count_in_any_case_unless_the_session_says_otherwise(session: SparkSession, catalog: mg.Catalog) -> None:
    schema = {"Id": "INT", "Day": "STRING", "v": "INT"}
    table = catalog.create_table("shop.cases", schema, ["Id", "Day"], ["Day"], options={"bucket": "1"})
    frame = session.createDataFrame([(1, "x", 1, "+I"), (2, "y", 2, "+I")], "ID INT, DAY STRING, V INT, OP STRING")
    ms.write(frame, table, kinds="op", columns=["id", "day", "V"])
    ms.write(frame.drop("OP").limit(1), table, overwrite={"day": "x"})
    frame.drop("OP").write.format("merganser").mode("append").save(table.path)
    ms.compact(session, table, partitions=[{"DAY": "x"}], full=True)
    assert sorted(map(tuple, ms.read(session, table, columns=["ID", "v"], where="ID > 0").collect())) == [
        (1, 1),
        (2, 2),
    ]
    read = session.read.format("merganser").option("columns", "ID").option("where", "DAY = 'y'").load(table.path)
    assert [row.Id for row in read.collect()] == [2]

    session.conf.set(_CASE, "true")
    ms.register(session)
    for call in (
        lambda: ms.write(frame, table, kinds="OP"),
        lambda: ms.read(session, table, columns=["ID"]),
        lambda: ms.read(session, table, where="ID = 1"),
        lambda: ms.compact(session, table, partitions=[{"DAY": "x"}]),
    ):
        with pytest.raises(mg.errors.InvalidInputError, match=r"Did you mean '(Id|Day)'"):
            call()
    with pytest.raises(PySparkException, match="Did you mean 'Id'"):
        frame.drop("OP").write.format("merganser").mode("append").save(table.path)
    assert ms.read(session, table, columns=["Id"], where="Id = 1").count() == 1
