"""Texts and names mean what they mean to Spark: the time zone of the session, and its rule for the case of names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

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


@pytest.mark.campaign(1 / 6)
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


@pytest.mark.campaign(1 / 3)
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


_WRITES = ["arrow", "files", "collect", "source", "stream", "source stream", "merge"]


def _write(frame: DataFrame, table: mg.Table, through: str, there: Path) -> None:
    """Write all rows of a frame at one of the entry points."""
    spark = frame.sparkSession
    if "stream" in through:
        frame.write.parquet(str(there / "in"))
        frame = spark.readStream.schema(frame.schema).parquet(str(there / "in"))
    if through == "source":
        frame.write.format("merganser").mode("append").save(table.path)
    elif through == "stream":
        ms.write_stream(frame, table, str(there / "cp"), trigger="availableNow").awaitTermination()
    elif through == "source stream":
        writer = frame.writeStream.format("merganser").option("checkpointLocation", str(there / "cp"))
        writer.trigger(availableNow=True).start(table.path).awaitTermination()
    elif through == "collect":
        ms.write(frame, table, collect=True)
    elif through == "merge":
        ms.merge(spark, table, frame, "target.id = source.id").when_not_matched_insert().execute()
    else:
        ms.write(frame, table, through=through)


def _deep(spark: SparkSession, row: str = "A: INT") -> DataFrame:
    kind = f"STRUCT<{row}>"
    schema = f"ID INT, S STRUCT<{row}, In: {kind}>, L ARRAY<{kind}>, M MAP<STRING, ARRAY<{kind}>>"
    one = tuple(range(1, row.count(":") + 1))
    return spark.createDataFrame([(1, (*one, one), [one, None], {"k": [one]}), (2, None, None, None)], schema)


def _deep_table(catalog: mg.Catalog, *, evolves: bool = False) -> mg.Table:
    kind = "ROW<a INT>"
    schema = {"id": "INT", "s": f"ROW<a INT, `in` {kind}>", "l": f"ARRAY<{kind}>", "m": f"MAP<STRING, ARRAY<{kind}>>"}
    options = {"bucket": "1", "write.merge-schema": str(evolves).lower()}
    return catalog.create_table("shop.deep", schema, ["id"], options=options)


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("through", [*_WRITES, "merge in tasks"])
def test_fields_inside_values_count_in_any_case(
    through: str, session: SparkSession, catalog: mg.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through == "merge in tasks":
        monkeypatch.setattr("merganser.spark.merging.FILES_FROM_BYTES", 1)
    table = _deep_table(catalog)
    _write(_deep(session), table, through.removesuffix(" in tasks"), tmp_path)
    one = {"a": 1}
    assert table.read().to_pylist() == [
        {"id": 1, "s": {"a": 1, "in": one}, "l": [one, None], "m": [("k", [one])]},
        {"id": 2, "s": None, "l": None, "m": None},
    ]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("through", _WRITES)
def test_fields_that_differ_in_case_alone_are_refused(
    through: str, session: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    table = _deep_table(catalog, evolves=True)
    session.conf.set(_CASE, "true")  # for Spark to make such rows
    frame = session.createDataFrame([(1, (1, 2))], "id INT, s STRUCT<A: INT, a: INT>")
    session.conf.set(_CASE, "false")
    said = "in case alone|must have the same names|COLUMN_ALREADY_EXISTS"  # the last one by Spark, of files of a stream
    with pytest.raises((mg.errors.InvalidInputError, PySparkException), match=said):
        _write(frame, table, through, tmp_path)
    assert not table.snapshots()


def test_a_variant_may_be_inside_a_struct_in_another_case(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.variants", {"s": "ROW<v VARIANT>"})
    ms.write(spark.sql("SELECT named_struct('V', parse_json('1')) AS s"), table)
    assert table.read().to_pylist() == [{"s": {"v": {"value": b"\x0c\x01", "metadata": b"\x01\0\0"}}}]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("through", ["arrow", "source", "stream", "source stream"])
def test_new_fields_come_beside_fields_in_another_case(
    through: str, session: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    table = _deep_table(catalog, evolves=True)
    _write(_deep(session, "B: INT, A: INT"), table, through, tmp_path)
    one = {"a": 2, "B": 1}
    row = {"id": 1, "s": {"a": 2, "in": one, "B": 1}, "l": [one, None], "m": [("k", [one])]}
    assert catalog.table("shop.deep").read(where="id = 1").to_pylist() == [row]
    _write(_deep(session, "b: INT, a: INT"), table, through, tmp_path / "again")
    assert len(table.snapshots()) == 2
    assert catalog.table("shop.deep").read(where="id = 1").to_pylist() == [row]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("through", ["arrow", "source", "stream", "source stream", "merge"])
def test_fields_inside_values_count_in_their_case_if_the_session_says_so(
    through: str, session: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    schema = {"id": "INT", "s": "ROW<a INT, A INT>", "l": "ARRAY<ROW<a INT>>"}
    table = catalog.create_table("shop.both", schema, ["id"], options={"bucket": "1"})
    session.conf.set(_CASE, "true")
    ms.register(session)

    def write(item: str, there: Path) -> None:
        schema = f"id INT, s STRUCT<A: INT, a: INT>, l ARRAY<STRUCT<{item}: INT>>"
        frame = session.createDataFrame([(1, (1, 2), [(3,)])], schema)
        _write(frame, table, through, there)

    with pytest.raises((mg.errors.InvalidInputError, PySparkException), match="must have the same names"):
        write("A", tmp_path / "wrong")
    assert not table.snapshots()
    write("a", tmp_path)
    assert table.read().to_pylist() == [{"id": 1, "s": {"a": 2, "A": 1}, "l": [{"a": 3}]}]
