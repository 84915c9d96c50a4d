"""SQL on Spark beside the cases of `vectors/sql.json`: large tables, views of Spark, streams, zones, errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import (
    ExpiredError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    SqlSyntaxError,
    UnsupportedError,
)

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import merganser.spark as ms
from merganser.spark import scan as scans
from merganser.spark import sql as spark_sql
from tests.conformance.quick import quick_options
from tests.unit.sql.stored import literals, seen
from tests.unit.sql.test_stored_zones import DOORS, OF_LITERALS, stored

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession, catalog: mg.Catalog) -> Iterator[Any]:
    found = ms.session(spark, catalog)
    found.sql("USE shop")
    yield found
    found.sql("RESET")


@pytest.fixture
def with_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no table be small enough for the driver."""
    monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def views(spark: SparkSession) -> set[str]:
    return {row.tableName for row in spark.sql("SHOW TABLES").collect() if row.isTemporary}


def test_system_tables_of_the_catalog(spark: SparkSession, session: Any, catalog: mg.Catalog) -> None:
    session.sql("CREATE TABLE made (id INT, dt STRING) PARTITIONED BY (dt) WITH ('bucket' = '-1')")
    session.sql("INSERT INTO made VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    query = "SELECT t.record_count, p.partition_name, p.recordCount FROM sys.tables t JOIN sys.partitions p USING "
    found = session.sql(f"{query} (database_name, table_name) WHERE table_name = 'made'")
    assert rows(found) == [(3, "dt=a", 2), (3, "dt=b", 1)]
    frame = ms.read(spark, catalog.table("sys.tables"), columns=["record_count"], where="table_name = 'made'")
    assert rows(frame) == [(3,)]
    assert session.sql("SELECT * FROM sys.catalog_options").count() == 1
    assert session.sql("SELECT * FROM sys.all_table_options WHERE table_name = 'made'").count() == 1


@pytest.mark.parametrize("by", ["driver", "tasks"])
def test_a_snapshot_that_expires_under_a_query_is_said_to_have_expired(
    session: Any, catalog: mg.Catalog, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(
        "CREATE TABLE gone (id INT, v INT, l ARRAY<INT>, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', "
        "'sequence.field' = 'v')"
    )
    session.sql("INSERT INTO gone VALUES (1, 1, array(1))")
    table = catalog.table("shop.gone")

    def expire() -> None:
        table.write([{"id": 2, "v": 2, "l": [2]}])
        table.compact(full=True)
        table.expire(retain_max=1, retain_min=1, older_than=datetime.now(UTC) + timedelta(days=1))

    if by == "tasks":
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
        frame = session.sql("SELECT * FROM gone")
        expire()
        with pytest.raises(Exception, match=r"cannot read snapshot 1 of 'shop\.gone': it expired while it was read"):
            frame.collect()
        return
    plan = scans.Scan.plan

    def planned(scan: Any) -> Any:
        found = plan(scan)
        monkeypatch.setattr(scans.Scan, "plan", plan)
        expire()
        return found

    monkeypatch.setattr(scans.Scan, "plan", planned)
    with pytest.raises(ExpiredError, match=r"cannot read snapshot 1 of 'shop\.gone': it expired while it was read"):
        session.sql("SELECT * FROM gone")


@pytest.mark.skipif(spark_sql.TIME_AS != "time", reason="Spark has TIME from 4.1 on")
def test_times_of_day_compare_and_are_stored(session: Any, catalog: mg.Catalog) -> None:
    own = catalog.session()
    own.sql("USE shop")
    session.sql("CREATE TABLE times (id INT, a TIME, b TIME(3))")
    for i, run in enumerate((own.sql, session.sql)):
        run(f"INSERT INTO times VALUES ({i}, TIME '03:00:00', TIME '03:00:00.5')")
    for where in (
        "a = TIME '03:00:00'", "a < b", "a IN (TIME '03:00:00', TIME '04:00:00')", "b > CAST('03:00:00' AS TIME(0))",
        "CAST('03:00:00.7' AS TIME(0)) = a", "CAST(b AS TIME(0)) = a",
    ):  # fmt: skip
        for run in (own.sql, session.sql):
            found = run(f"SELECT count(*) AS n FROM times WHERE {where}")
            assert (found["n"].to_pylist() if run == own.sql else [row.n for row in found.collect()]) == [2], where


@pytest.mark.skipif(spark_sql.TIME_AS != "time", reason="Spark has TIME from 4.1 on")
def test_the_setting_of_times_is_that_of_the_user_behind_a_statement(spark: SparkSession, session: Any) -> None:
    key = "spark.sql.timeType.enabled"
    before = spark.conf.get(key, None)
    session.sql("CREATE TABLE times (id INT, a TIME, b TIME(3))")
    session.sql("INSERT INTO times VALUES (1, TIME '03:00:00', TIME '03:00:00.5')")
    frame = session.sql("SELECT id, a FROM times WHERE a < b AND hour(b) = 3")
    with pytest.raises(InvalidInputError, match="nothing"):
        session.sql("SELECT nothing FROM times WHERE a < b")
    assert spark.conf.get(key, None) == before is None
    assert [row.id for row in frame.collect()] == [1]
    with pytest.raises(AnalysisException, match="UNSUPPORTED_TIME_TYPE"):
        frame.selectExpr("hour(a)").collect()
    session.sql(f"SET '{key}' = 'true'")
    assert [row.h for row in frame.selectExpr("hour(a) AS h").collect()] == [3]
    session.sql("UPDATE times SET b = a WHERE id IN (SELECT 1)")
    assert spark.conf.get(key) == "true"
    session.sql(f"RESET '{key}'")
    assert spark.conf.get(key, None) is None


def test_moments_of_system_tables_have_no_zone(spark: SparkSession, session: Any, catalog: mg.Catalog) -> None:
    session.sql("CREATE TABLE timed (id INT, PRIMARY KEY (id) NOT ENFORCED); INSERT INTO timed VALUES (1)")
    session.sql("CALL sys.create_tag('timed', 'a'); SET timezone = 'Asia/Tokyo'")
    for name in ("files", "buckets", "partitions", "snapshots", "tags", "schemas", "manifests", "consumers"):
        said = {row.col_name: row.data_type for row in session.sql(f"DESCRIBE timed${name}").collect()}
        frames = [session.sql(f"SELECT * FROM timed${name}"), ms.read(spark, catalog.table(f"shop.timed${name}"))]
        for frame in frames:
            found = {column: kind for column, kind in frame.dtypes if kind.startswith("timestamp")}
            assert found == {
                column: "timestamp_ntz" if "LOCAL" not in kind and "LTZ" not in kind else "timestamp"
                for column, kind in said.items()
                if kind.startswith("TIMESTAMP")
            }
    (row,) = session.sql("SELECT creation_time FROM timed$files").collect()
    assert [row.creation_time] == catalog.table("shop.timed$files").read().to_arrow()["creation_time"].to_pylist()


def test_an_empty_table_with_nested_columns_has_no_rows(session: Any) -> None:
    columns = "k INT, m MAP<STRING, INT>, r STRUCT<x: INT>, l ARRAY<INT>"
    for table, key in (("nested", ""), ("keyed", ", PRIMARY KEY (k) NOT ENFORCED")):
        session.sql(f"CREATE TABLE {table} ({columns}{key})")
        for emptied in ("", f"DELETE FROM {table} WHERE k > 0", f"TRUNCATE TABLE {table}"):
            if emptied:
                session.sql(f"INSERT INTO {table} VALUES (1, map('a', 1), named_struct('x', 1), array(1)); {emptied}")
            for rest in ("", " WHERE k = 7", " WHERE k > 900", " LIMIT 0", " LIMIT 3", "$ro"):
                assert session.sql(f"SELECT m, r, l FROM {table}{rest}").collect() == []


def test_tables_too_large_for_the_driver_are_read_and_changed_by_tasks(session: Any, with_tasks: None) -> None:
    session.sql(
        "CREATE TABLE t (id INT, v STRING, n DECIMAL(6, 2), PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '2')"
    )
    session.sql("CREATE TABLE log (id INT, v STRING)")
    session.sql("INSERT INTO t SELECT CAST(id AS INT), concat('v', id), id / 4 FROM range(100)")
    session.sql("INSERT INTO log SELECT id, v FROM t WHERE id < 10")
    assert rows(session.sql("SELECT count(*), sum(n) FROM t"))[0][0] == 100
    query = "SELECT t.v, log.id FROM t LEFT JOIN log ON t.id = log.id AND log.id <> 8 WHERE t.id IN (7, 8)"
    assert rows(session.sql(query)) == [("v7", 7), ("v8", None)]
    assert session.execute("DELETE FROM log WHERE v = 'v1'").snapshot.rows_deleted == 1
    session.sql("UPDATE t SET v = concat(v, '!') WHERE id < 2")
    session.sql("MERGE INTO t USING (SELECT id + 95 AS id, v FROM log) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert rows(session.sql("SELECT v FROM t WHERE id < 3 OR id > 94")) == [("v0!",), ("v1!",), ("v2",), ("v96",)]
    session.sql("CREATE TABLE copy AS SELECT v, count(*) AS n FROM t GROUP BY v")
    assert session.sql("SELECT * FROM copy").count() == 96
    session.sql("ALTER TABLE t CLUSTERED INTO 3 BUCKETS")
    session.sql("CALL sys.compact('shop.t')")
    assert session.sql("SELECT id FROM t LIMIT 5").count() == 5


def test_rows_of_whole_keys_are_looked_up_by_the_driver(
    session: Any, with_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(
        "CREATE TABLE keyed (id INT, dt DATE, v STRING, n ARRAY<TIMESTAMP(3)>, PRIMARY KEY (id, dt) NOT ENFORCED) "
        "PARTITIONED BY (dt)"
    )
    session.sql("INSERT INTO keyed SELECT id, DATE '2026-01-01', concat('v', id), NULL FROM range(5)")
    session.sql("INSERT INTO keyed VALUES (2, DATE '2026-01-01', 'new', array(TIMESTAMP '2026-01-01 00:00:00'))")

    def scanned(*_: Any) -> Any:
        raise AssertionError("it is scanned")

    monkeypatch.setattr(spark_sql, "query_frame", scanned)
    one = session.sql("SELECT v, n[0] IS NULL, id FROM keyed WHERE id = 2 AND dt = DATE '2026-01-01'")
    assert rows(one) == [("new", False, 2)]
    both = "SELECT v FROM keyed WHERE dt = '2026-01-01' AND id IN (1, 4, 9) AND v <> 'v4'"
    assert rows(session.sql(both)) == [("v1",)]
    several = "SELECT v FROM keyed WHERE dt = '2026-01-01' AND id IN (1, 3, 4)"
    assert [session.sql(f"{several} LIMIT {n}").count() for n in (0, 1, 2, 9)] == [0, 1, 2, 3]
    assert session.sql(f"{several} LIMIT 2 OFFSET 2").count() == 1
    assert rows(session.sql("SELECT v FROM keyed VERSION AS OF 1 WHERE id = 2 AND dt = DATE '2026-01-01'")) == [("v2",)]
    with pytest.raises(AssertionError, match="it is scanned"):
        session.sql("SELECT v FROM keyed WHERE id = 2")


def test_a_row_outside_of_partition_is_found_by_tasks(session: Any, with_tasks: None) -> None:
    session.sql("CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p)")
    session.sql("INSERT INTO t PARTITION (p = 'a') SELECT CAST(id AS INT), 'a' FROM range(9)")
    with pytest.raises(InvalidInputError, match=r"a row has p = 'b', outside of PARTITION \(p = 'a'\)"):
        session.sql("INSERT OVERWRITE t PARTITION (p = 'a') SELECT CAST(id AS INT), if(id = 7, 'b', 'a') FROM range(9)")
    assert session.sql("SELECT count(*) FROM t").collect()[0][0] == 9


@pytest.mark.parametrize("local_bytes", [-1, 512 << 10], ids=["tasks", "driver"])
def test_a_subquery_deletes_from_the_files_of_a_table(
    session: Any, monkeypatch: pytest.MonkeyPatch, local_bytes: int
) -> None:
    monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", local_bytes)
    session.sql(
        "CREATE TABLE sums (id INT, part STRING, v INT, PRIMARY KEY (id, part) NOT ENFORCED) "
        "WITH ('merge-engine' = 'aggregation', 'bucket' = '2', 'write-only' = 'true')"
    )
    session.sql("INSERT INTO sums VALUES (1, 'a', 1), (2, 'b', 2), (3, 'a', 3), (4, 'b', 4)")
    session.sql("INSERT INTO sums VALUES (1, 'a', 1)")
    deleted = session.execute(
        "DELETE FROM sums s WHERE v < (SELECT max(v) FROM sums) AND part IN (SELECT part FROM sums WHERE id = 1)"
    )
    assert deleted.counts == {"deleted": 2}
    assert rows(session.sql("SELECT id, v FROM sums")) == [(2, 2), (4, 4)]
    with pytest.raises(InvalidInputError, match=r"^cannot update 'shop\.sums': merge engine aggregation adds"):
        session.sql("UPDATE sums SET v = (SELECT 1)")


def test_times_of_nine_digits_are_cut_to_six_and_are_no_keys_of_a_query(session: Any, catalog: mg.Catalog) -> None:
    session.sql("CREATE TABLE fine (at TIMESTAMP(9), v INT, PRIMARY KEY (at) NOT ENFORCED) WITH ('bucket' = '1')")
    nanos = [1_767_225_600_000_000_501, 1_767_225_600_000_000_999, -1]
    at = pa.array(nanos, pa.timestamp("ns"))
    catalog.table("shop.fine").write(pa.table({"at": at, "v": pa.array([1, 2, 3], pa.int32())}))
    found = session.sql("SELECT at, count(*) AS n FROM fine GROUP BY at").toArrow()
    micros = found["at"].cast(pa.int64()).to_pylist()
    assert sorted(zip(micros, found["n"].to_pylist(), strict=True)) == [(-1, 1), (1_767_225_600_000_000, 2)]
    for statement in ("UPDATE fine SET v = 9 WHERE v = (SELECT 1)", "DELETE FROM fine WHERE v = (SELECT 1)"):
        with pytest.raises(
            InvalidInputError, match=r"key column 'at' is TIMESTAMP\(9\).* six digits .* Nothing was written"
        ):
            session.sql(statement)
    session.sql("UPDATE fine SET v = 9 WHERE v = 1")
    assert sorted(catalog.table("shop.fine").read().to_arrow()["at"].cast(pa.int64()).to_pylist()) == sorted(nanos)


def test_rows_without_a_key_are_changed_by_subqueries(session: Any) -> None:
    session.sql("CREATE TABLE log (id INT, s STRING, r ROW<x INT>, n INT)")
    session.sql("INSERT INTO log VALUES (1, 'a', NULL, 0), (1, 'a', named_struct('x', 5), 0), (NULL, NULL, NULL, 0)")
    session.sql("UPDATE shop.log SET n = (SELECT max(id) FROM log) WHERE s <=> (SELECT max(s) FROM log) AND log.n = 0")
    assert session.execute("DELETE FROM log WHERE id IN (SELECT 1) AND shop.log.n = 1").snapshot.rows_deleted == 2
    assert session.execute("DELETE FROM log WHERE s IS NULL AND 1 IN (SELECT 1)").snapshot.rows_deleted == 1


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
def test_nested_values_are_assigned(session: Any, key: str) -> None:
    session.sql(f"CREATE TABLE n (id INT, a ARRAY<STRING>, m MAP<STRING, INT>, r ROW<x INT, y STRING>{key})")
    session.sql("INSERT INTO n (id) VALUES (1), (2)")
    session.sql("UPDATE n SET a = array(), m = map('k', id), r = named_struct('x', id, 'y', NULL) WHERE id = 1")
    session.sql("UPDATE n SET a = array('x', NULL) WHERE id = 2")
    found = session.sql("SELECT id, a, m, r.x, r.y FROM n ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, [], {"k": 1}, 1, None), (2, ["x", None], None, None, None)]


def test_a_dataframe_keeps_its_snapshot_and_leaves_no_view(spark: SparkSession, session: Any) -> None:
    before = views(spark)
    session.sql("CREATE TABLE t (id INT) ")
    session.sql("INSERT INTO t VALUES (1)")
    frame = session.sql("SELECT x.id, (SELECT count(*) FROM t) FROM t x")
    session.sql("INSERT INTO t VALUES (2)")
    assert rows(frame) == [(1, 1)]
    assert views(spark) == before


def test_views_and_tables_of_spark_are_joined_with_ours(spark: SparkSession, session: Any) -> None:
    session.sql("CREATE TABLE t (id INT, v STRING)")
    session.sql("INSERT INTO t VALUES (1, 'ours'), (2, 'two')")
    spark.createDataFrame([(1, "view")], "id int, w string").createOrReplaceTempView("mine")
    spark.sql("CREATE TABLE default.theirs AS SELECT 2 AS id, 'spark' AS w")
    try:
        query = "SELECT v, m.w, s.w FROM t LEFT JOIN mine m ON m.id = t.id LEFT JOIN {} s ON s.id = t.id"
        assert rows(session.sql(query.format("default.theirs"))) == [("ours", "view", None), ("two", None, "spark")]
        session.sql("INSERT INTO t SELECT id, w FROM spark_catalog.default.theirs")
        assert rows(session.sql("SELECT v FROM t WHERE id = 2")) == [("spark",), ("two",)]
        assert rows(session.sql("SELECT r.id FROM range(5) r ANTI JOIN t ON t.id = r.id WHERE r.id < 4")) == [
            (0,),
            (3,),
        ]
        with pytest.raises(NotFoundError, match=r"no table 'shop\.mein'"):
            session.sql("SELECT * FROM mein")
    finally:
        spark.sql("DROP TABLE default.theirs")
        spark.catalog.dropTempView("mine")


def test_the_zone_is_that_of_spark_until_it_is_set(spark: SparkSession, session: Any) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    session.sql("CREATE TABLE t (id INT, at TIMESTAMP_LTZ(3))")
    session.sql("INSERT INTO t VALUES (1, TIMESTAMP_LTZ '2026-01-31 10:00:00')")
    asked = "SELECT CAST(at AS STRING) FROM t WHERE at = TIMESTAMP_LTZ '2026-01-31 {}:00:00'"
    assert rows(session.sql(asked.format("10"))) == [("2026-01-31 10:00:00",)]
    session.sql("SET timezone = 'Asia/Tokyo'")
    assert rows(session.sql("SELECT CAST(at AS STRING) FROM t")) == [("2026-02-01 00:00:00",)]
    assert session.execute("DELETE FROM t WHERE at = TIMESTAMP_LTZ '2026-02-01 00:00:00'").snapshot.rows_deleted == 1
    session.sql("RESET timezone")
    assert spark.conf.get(zone) == before


def test_values_are_stored_as_spark_assigns_them(session: Any) -> None:
    session.sql("CREATE TABLE t (id TINYINT, at TIMESTAMP(3), s ROW<a BIGINT, b STRING>, l ARRAY<BIGINT>)")
    session.sql("INSERT INTO t SELECT 7L, TIMESTAMP '2026-01-31 10:00:00', named_struct('x', 1, 'y', 'b'), array(1)")
    assert rows(session.sql("SELECT id, CAST(at AS STRING), s.a, l[0] FROM t")) == [(7, "2026-01-31 10:00:00", 1, 1)]
    for query, why in {
        "SELECT 300, NULL, NULL, NULL": "(?i)tinyint|overflow|out of range",
        "SELECT 'x', NULL, NULL, NULL": "cannot write column 'id'",
        "SELECT 1, NULL, named_struct('x', 1), NULL": "1 field, the column 2",
        "SELECT 1, NULL, NULL": "3 columns, and the table has 4",
    }.items():
        with pytest.raises(InvalidInputError, match=why):
            session.sql(f"INSERT INTO t {query}")
    assert session.sql("SELECT * FROM t").count() == 1


@pytest.mark.parametrize("engine", ["process", "driver", "tasks"])
def test_values_are_stored_in_narrower_types_as_on_the_other_engine(
    session: Any, catalog: mg.Catalog, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "tasks":
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    own = catalog.session()
    own.sql("USE shop")
    run = own.sql if engine == "process" else session.sql
    run("SET timezone = 'UTC'")
    run(
        "CREATE TABLE n (id INT, at TIMESTAMP(3), z TIMESTAMP_LTZ(0), f FLOAT, l ARRAY<INT>, r ROW<x INT, y FLOAT>, "
        "m MAP<STRING, TIMESTAMP(1)>, ls ARRAY<ROW<t TIMESTAMP(3)>>)"
    )
    moment = "TIMESTAMP '1960-01-01 01:02:03.98765'"
    stored = {
        ("at", moment): datetime(1960, 1, 1, 1, 2, 3, 987000),
        ("z", moment): datetime(1960, 1, 1, 1, 2, 3, tzinfo=UTC),
        ("f", "CAST(0.1 AS DOUBLE)"): 0.10000000149011612,
        ("l", "array(1.5, NULL, 2)"): [1, None, 2],
        ("l", "array()"): [],
        ("l", "array(NULL)"): [None],
        ("r", "named_struct('a', 1.5, 'b', 2)"): {"x": 1, "y": 2.0},
        ("m", f"map('a', {moment})"): [("a", datetime(1960, 1, 1, 1, 2, 3, 900000))],
        ("ls", f"array(named_struct('t', {moment}), NULL)"): [{"t": datetime(1960, 1, 1, 1, 2, 3, 987000)}, None],
    }
    for i, (column, value) in enumerate(stored):
        run(f"INSERT INTO n (id, {column}) VALUES ({i}, {value})")
    run("INSERT INTO n (id, at) SELECT 100, current_timestamp()")
    table = catalog.table("shop.n").read().to_pylist()
    assert {row["id"]: row for row in table}.keys() == {*range(len(stored)), 100}
    found = {row["id"]: row for row in table}
    assert [found[i][column] for i, (column, _) in enumerate(stored)] == list(stored.values())
    for column, value in {
        "f": "1e40",
        "r": "named_struct('a', 1, 'b', 1e40)",
        "l": "array(3000000000)",
        "m": "array('a')",
        "ls": "array(named_struct('t', 'x'))",
    }.items():
        with pytest.raises(InvalidInputError, match=r"(fit|overflow|CAST it).*Nothing was written|overflow"):
            run(f"INSERT INTO n (id, {column}) VALUES (200, {value})")


def test_forms_of_flink_and_braces_reach_spark(session: Any) -> None:
    session.sql("CREATE TABLE t (id INT, v STRING)")
    session.sql("INSERT INTO t VALUES (1, '{0}'), (2, 'it''s {v}')")
    found = rows(
        session.sql("SELECT ARRAY[1, 2][1], MAP['k', MAP['l', v]]['k']['l'], ROW(id, v).v FROM t WHERE v LIKE '%{%'")
    )
    assert found == [(2, "it's {v}", "it's {v}"), (2, "{0}", "{0}")]
    assert rows(session.sql("SELECT v FROM t WHERE v = :v", {"v": "it's {v}"})) == [("it's {v}",)]
    assert session.sql("SELECT nvl(v, 'x'), count(*) FROM t GROUP BY 1").columns == ["nvl(v, x)", "count(1)"]
    for cast, expected in (("TIMESTAMP_NTZ(3)", 123000), ("TIMESTAMP_NTZ(0)", 0), ("TIMESTAMP_NTZ(6)", 123456)):
        (row,) = session.sql(f"SELECT CAST('1969-12-31 10:20:30.123456' AS {cast}) AS v").collect()
        assert row.v == datetime(1969, 12, 31, 10, 20, 30, expected)


def test_a_large_table_is_not_sent_to_every_task(
    session: Any, with_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("SET 'spark.sql.autoBroadcastJoinThreshold' = '1m'")
    session.sql("CREATE TABLE small (id INT)")
    session.sql("CREATE TABLE large (id INT, s STRING)")
    session.sql("INSERT INTO small SELECT CAST(id AS INT) FROM range(10)")
    session.sql("INSERT INTO large SELECT CAST(id AS INT), 'x' FROM range(600000)")
    frame = session.sql("SELECT l.s FROM large l JOIN large m ON l.id = m.id")
    assert "Broadcast" not in _plan(session, frame)
    assert frame.count() == 600_000
    frame = session.sql("SELECT s FROM large l JOIN small USING (id)")
    assert "Broadcast" in _plan(session, frame)
    assert frame.count() == 10
    monkeypatch.setattr(scans, "_ROWS_TOLD", 0)
    assert "Broadcast" in _plan(session, session.sql("SELECT l.s FROM large l JOIN large m ON l.id = m.id"))


def _plan(session: Any, frame: DataFrame) -> str:
    text: str = frame.sparkSession.sql("EXPLAIN SELECT * FROM {frame}", frame=frame).collect()[0][0]
    return text


def test_streams(spark: SparkSession, session: Any, tmp_path: Path) -> None:
    for name in ("src", "dst"):
        session.sql(f"CREATE TABLE {name} (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1')")
    session.sql("INSERT INTO src VALUES (1, 'a'), (2, 'b')")
    session.sql("SET 'execution.runtime-mode' = 'streaming'")
    assert session.sql("SELECT v FROM src WHERE id > 1").isStreaming
    assert not session.sql("SELECT 1").isStreaming
    with pytest.raises(InvalidInputError, match="no checkpoint"):
        session.sql("INSERT INTO dst SELECT * FROM src")
    with pytest.raises(UnsupportedError, match="cannot overwrite"):
        session.sql("INSERT OVERWRITE dst SELECT * FROM src")
    session.sql("INSERT INTO dst VALUES (9, 'end')")
    session.sql(f"SET 'checkpoint' = '{tmp_path / 'checkpoint'}'")
    running = set(spark.streams.active)
    session.sql("INSERT INTO dst SELECT id, upper(v) FROM src WHERE id < 9")
    (query,) = (each for each in spark.streams.active if each not in running)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    session.sql("SET 'execution.runtime-mode' = 'batch'")
    assert rows(session.sql("SELECT * FROM dst")) == [(1, "A"), (2, "B"), (9, "end")]


def test_errors_have_the_words_of_spark_and_the_nearest_name(session: Any) -> None:
    session.sql("CREATE TABLE t (id INT, amount INT, at TIMESTAMP(9))")
    with pytest.raises(
        InvalidInputError, match=r"`amont` cannot be resolved\. Did you mean 'amount'\?\nline 1, column"
    ):
        session.sql("SELECT amont FROM t")
    with pytest.raises(
        InvalidInputError, match=r"there is no function 'coutn'\. Did you mean 'count'\?\nline 1, column"
    ):
        session.sql("SELECT coutn(id) FROM t")
    with pytest.raises(InvalidInputError, match=r"(?i)division by zero"):
        session.sql("INSERT INTO t SELECT 1, 1 DIV 0, NULL")
    with pytest.raises(NotFoundError, match=r"no table 'shop\.tt'"):
        session.sql("SELECT 1; SELECT * FROM tt")


def test_syntax_errors_have_places_of_the_text_of_the_user_or_none(session: Any, catalog: mg.Catalog) -> None:
    session.sql("CREATE TABLE t (id INT)")
    for run in (catalog.session().sql, session.sql):
        with pytest.raises(SqlSyntaxError, match=r"line 2, column 1: expected an expression behind SELECT") as error:
            run("SELECT 1;\nSELECT FROM (SELECT 1)")
        assert "SELECT FROM (SELECT 1)\n  ^" in error.value.message
    with pytest.raises(InvalidInputError, match="cannot run the query: Syntax error") as refused:
        session.sql("SELECT id @@ 3 FROM t")
    assert "pos " not in refused.value.message


def test_limits_of_this_process_are_said_not_to_hold(session: Any) -> None:
    for key, value in {"sql.timeout": "30 s", "sql.max-rows": "1", "sql.memory": "1 gb"}.items():
        with pytest.warns(RuntimeWarning, match=rf"'{key}' was set, and does not hold on Spark"):
            session.sql(f"SET '{key}' = '{value}'")
        with pytest.raises(InvalidInputError, match=f"cannot set '{key}' to 'many'"):
            session.sql(f"SET '{key}' = 'many'")
    assert session.sql("SELECT * FROM range(3)").count() == 3


def test_explain_names_what_is_read(session: Any) -> None:
    session.sql("CREATE TABLE t (id INT, v STRING)")
    session.sql("INSERT INTO t VALUES (1, 'a')")
    (plan,) = session.sql("EXPLAIN SELECT v FROM t JOIN range(3) r ON r.id = t.id WHERE t.id = 7").collect()
    assert "read shop.t" in plan[0]
    assert "read tables of Spark" in plan[0]


QUERIES = (
    "SELECT * FROM t ORDER BY id",
    "SELECT count(*) FROM t TABLESAMPLE (100 PERCENT)",
    "SELECT count(*) FROM t TABLESAMPLE (100 PERCENT) WHERE id = 1",
    "SELECT * FROM (SELECT v, id FROM t) PIVOT (sum(id) FOR v IN ('a', 'b'))",
    "SELECT * FROM t PIVOT (count(id) AS n FOR v IN ('a', 'b'))",
    "SELECT id, x FROM t LATERAL VIEW explode(l) e AS x WHERE x > 1 AND id < 3",
    "SELECT id, x FROM t LATERAL VIEW OUTER posexplode(l) e AS p, x WHERE id <> 2",
    "SELECT t.id, q.m FROM t, LATERAL (SELECT max(n) AS m FROM u WHERE u.id = t.id) q WHERE q.m > 1",
    "SELECT id, y FROM t JOIN LATERAL explode(l) AS e(y) WHERE t.id = 1",
    "SELECT t.*, u.n FROM t JOIN u USING (id) WHERE id > 1",
    "SELECT * FROM t NATURAL JOIN u",
    "SELECT * EXCEPT (l) FROM t WHERE v = 'a'",
    "SELECT v AS id, id AS v FROM t WHERE id = 1 ORDER BY id, v",
    "SELECT id + 1 AS m, m * 2 AS n FROM t WHERE id = 2",
    "SELECT s.a, s.b FROM t s WHERE s.s.a = 1",
    "SELECT s.a FROM t WHERE s.a IS NOT NULL AND t.s.b = 'x'",
    "SELECT /*+ BROADCAST(t) */ t.v FROM t JOIN u ON t.id = u.id",
    "SELECT id FROM t EXCEPT SELECT id FROM u WHERE n > 1",
    "SELECT id FROM t WHERE id IN (SELECT id FROM u WHERE u.n = t.id)",
    "SELECT id FROM t WHERE id NOT IN (SELECT u.id FROM u WHERE u.n IS NULL)",
    "SELECT id, (SELECT count(*) FROM u WHERE u.id = t.id) AS c FROM t WHERE v <=> NULL",
    "WITH t AS (SELECT id * 10 AS id FROM t WHERE id < 3) SELECT * FROM t WHERE id > 10",
    "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 4) SELECT i FROM r JOIN t ON t.id = i",
    "SELECT v, count(*) AS n FROM t GROUP BY ALL HAVING n > 0 ORDER BY ALL",
    "SELECT v, id, grouping(v) FROM t GROUP BY GROUPING SETS ((v), (id), ())",
    "SELECT sum(id) OVER w AS s, v FROM t WINDOW w AS (PARTITION BY v ORDER BY id)",
    "SELECT id, transform(l, x -> x + id) AS r FROM t WHERE exists(l, x -> x = 2)",
    "SELECT named_struct('id', id).id, map('v', v)['v'], v::STRING FROM t WHERE id BETWEEN 1 AND 2",
    "SELECT d, d + INTERVAL 1 DAY, date_format(d, 'yyyy') FROM t WHERE d >= '2026-01-02' AND d < DATE '2026-01-03'",
    "SELECT r'a\\b', 'a\\\\b', \"it's\", 'x' 'y', '\\n', v RLIKE '^[ab]$' FROM t WHERE id = 1",
    "SELECT try_cast(v AS INT), cast(id AS STRING), nvl2(v, 1, 2), 5 DIV 2, 5 % 3 FROM t",
    "SELECT t.id, w.id FROM t LEFT JOIN u w ON t.id = w.id AND w.n = 1 WHERE w.id IS NULL AND t.id < 3",
    "SELECT coalesce(t.id, u.id), v, n FROM t FULL OUTER JOIN u ON t.id = u.id AND t.v = 'a' AND u.n = 1",
    "VALUES (1, 'x'), (2, 'y')",
    "SELECT current_date() = current_date, count_if(id > 1) FROM t",
    "SELECT id, `v` FROM `t` WHERE `id` = 1 -- behind it {x}",
    "SELECT stack(2, id, n) FROM u",
    "SELECT * FROM t UNPIVOT (val FOR col IN (id)) WHERE val = 1",
)


def test_queries_give_what_they_give_over_tables_of_spark(spark: SparkSession, session: Any) -> None:
    session.sql("CREATE TABLE t (id INT, v STRING, l ARRAY<INT>, s ROW<a INT, b STRING>, d DATE)")
    session.sql("CREATE TABLE u (id INT, n INT)")
    t = "VALUES (1, 'a', array(1, 2), named_struct('a', 1, 'b', 'x'), DATE '2026-01-01'), "
    t += "(2, 'b', array(2), NULL, DATE '2026-01-02'), (3, NULL, NULL, named_struct('a', NULL, 'b', 'x'), NULL)"
    u = "VALUES (1, 1), (2, 5), (NULL, 1), (3, NULL)"
    session.sql(f"INSERT INTO t {t}")
    session.sql(f"INSERT INTO u {u}")
    wrong = []
    with quick_options(spark):
        spark.sql(f"CREATE TEMPORARY VIEW t AS SELECT * FROM {t.replace('VALUES', '(VALUES', 1)}) AS q(id, v, l, s, d)")
        spark.sql(f"CREATE TEMPORARY VIEW u AS SELECT * FROM {u.replace('VALUES', '(VALUES', 1)}) AS q(id, n)")
        try:
            for query in QUERIES:
                expected, found = spark.sql(query), session.sql(query)
                if found.columns != expected.columns or rows(found) != rows(expected):
                    wrong.append((query, found.columns, rows(found), expected.columns, rows(expected)))
        finally:
            spark.catalog.dropTempView("t")
            spark.catalog.dropTempView("u")
    assert wrong == []


@pytest.mark.parametrize("by", ["driver", "tasks"])
def test_queries_that_spark_alone_understands(
    session: Any, catalog: mg.Catalog, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_database("other")
    session.sql("CREATE TABLE e (k INT, n INT, ts TIMESTAMP_LTZ); CREATE TABLE other.g (k INT, s STRING)")
    session.sql(
        "INSERT INTO e VALUES (1, 5, TIMESTAMP '2026-01-01 10:00:00'), (2, -3, TIMESTAMP '2026-01-02 11:00:00'), "
        "(3, 7, TIMESTAMP '2026-01-01 12:00:00'); INSERT INTO other.g VALUES (1, 'a'), (2, '{b}')"
    )
    if by == "tasks":
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    for text, wanted in (
        ("SELECT count(*) FROM e GROUP BY window(ts, '1 day')", [(1,), (2,)]),
        ("SELECT n > 0, sum(k) FROM e GROUP BY ROLLUP (n > 0)", [(False, 2), (None, 6), (True, 4)]),
        ("FROM e SELECT k WHERE n > 0", [(1,), (3,)]),
        ("TABLE other.g", [(1, "a"), (2, "{b}")]),
        ("FROM e AS x |> WHERE x.n > 0 |> SELECT x.k", [(1,), (3,)]),
        (
            "FROM e |> JOIN other.g AS h USING (k) |> WHERE h.s <> 'z{' |> AGGREGATE max(n) GROUP BY s",
            [("a", 5), ("{b}", -3)],
        ),
        ("WITH q AS (SELECT k FROM e WHERE n > 0) FROM q |> WHERE k > 1", [(3,)]),
        ("SELECT TRANSFORM(k) USING 'cat' AS (a STRING) FROM e WHERE k = 1", [("1",)]),
    ):  # fmt: skip
        assert rows(session.sql(text)) == wanted, text
    assert rows(session.sql("FROM e |> WHERE k = :k |> SELECT n", {"k": 2})) == [(-3,)]
    session.sql("INSERT INTO e (k) FROM e |> SELECT k + 10")
    session.sql("WITH q AS (SELECT 77 AS k) INSERT INTO e (k) FROM q |> SELECT k")
    session.sql("WITH q AS (SELECT 1 AS k) DELETE FROM e WHERE k IN (SELECT k FROM q)")
    assert rows(session.sql("TABLE e |> SELECT k")) == [(11,), (12,), (13,), (2,), (3,), (77,)]


def test_a_query_that_only_spark_understands_reads_versions(session: Any) -> None:
    session.sql("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
    session.sql("INSERT INTO t VALUES (2); CALL sys.create_tag('t', 'first', 1)")
    for travel in ("VERSION AS OF 1", "VERSION AS OF 'first'", "FOR SYSTEM_VERSION AS OF 1", "FOR VERSION AS OF 1"):
        assert rows(session.sql(f"FROM shop.t {travel} |> SELECT t.id")) == [(1,)], travel
    assert rows(session.sql("FROM t TIMESTAMP AS OF '2999-01-01 00:00:00' |> SELECT id")) == [(1,), (2,)]
    beside = "FROM t AS new |> LEFT JOIN t VERSION AS OF 1 AS old ON old.id = new.id |> SELECT new.id, old.id"
    assert rows(session.sql(beside)) == [(1, 1), (2, None)]
    with pytest.raises(NotFoundError, match="no snapshot 9"):
        session.sql("FROM t VERSION AS OF 9 |> SELECT id")
    with pytest.raises(UnsupportedError, match="TIMESTAMP AS OF takes a number or a text, and no expression"):
        session.sql("FROM t TIMESTAMP AS OF current_timestamp() |> SELECT id")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT id,\n nope FROM t", r"`nope` cannot be resolved.*\nline 2, column 2:"),
        ("SELECT a.nope, b.id FROM t a, t b", r"cannot be resolved.*\nline 1, column 8:"),
        ("SELECT nope(id) FROM t", r"there is no function 'nope'\.\nline 1, column 8:"),
        ("SELECT id FROM nothing", r"\nline 1, column 16:"),
        ("FROM nothing |> LIMIT 1", r"\nline 1, column 6:"),
        ("INSERT INTO t SELECT nope FROM t", r"\nline 1, column 22:"),
        ("UPDATE t SET id = (SELECT max(nope) FROM t)", r"\nline 1, column 31:"),
        ("SELECT ?", r"line 1, column 8: a parameter has a name"),
        ("SELECT :n", r"line 1, column 8: no value was given for the parameter :n"),
        ("FROM t |> WHERE id = :n", r"line 1, column 22: no value was given for the parameter :n"),
    ],
)
def test_errors_have_the_place_of_a_name(session: Any, text: str, why: str) -> None:
    session.sql("CREATE TABLE t (id INT)")
    with pytest.raises(MerganserError, match=why):
        session.sql(text)


def test_set_shows_options_of_spark(spark: SparkSession, session: Any) -> None:
    def shown(key: str) -> str:
        return str(session.sql(f"SET {key}").collect()[0].value)

    assert shown("spark.sql.shuffle.partitions") == spark.conf.get("spark.sql.shuffle.partitions")
    assert shown("spark.sql.ansi.enabled") == "true"  # the default
    assert shown("spark.sql.session.timeZone") == shown("timezone") == spark.conf.get("spark.sql.session.timeZone")
    assert shown("spark.nothing") == shown("sql.timeout") == "<undefined>"
    session.sql("SET 'time.zone' = 'Europe/Oslo'")
    assert shown("timezone") == "Europe/Oslo"


def test_a_query_that_nobody_understands_stops_all_statements(session: Any) -> None:
    for text in ("SELECT k FRM e", "FROM e |> WEHRE k > 1", "SELECT (1"):
        with pytest.raises(SqlSyntaxError, match="cannot parse the statement at line 2, column"):
            session.sql(f"CREATE TABLE e (k INT);\n{text}")
    assert rows(session.sql("SHOW TABLES")) == []
    with pytest.raises(NotFoundError, match=r"cannot run the query: .*`nothing` cannot be found"):
        session.sql("FROM nothing |> LIMIT 1")


@pytest.mark.parametrize("by", ["driver", "tasks"])
@pytest.mark.parametrize("key", [", PRIMARY KEY (k) NOT ENFORCED", ""])
def test_updates_and_deletes_know_the_functions_of_select(
    session: Any, by: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(f"CREATE TABLE t (k INT, s STRING, n INT{key})")
    session.sql("INSERT INTO t VALUES (1, 'abc', 5), (2, 'xyz', 6), (3, NULL, 7)")
    if by == "tasks":
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    session.sql("UPDATE t SET s = replace(s, 'a', 'b'), n = greatest(n, 9) WHERE left(s, 1) = 'a'")
    session.sql("UPDATE t SET n = n & 4 WHERE k = 2")
    session.sql("DELETE FROM t WHERE lpad(CAST(n AS STRING), 2, '0') = '07'")
    assert rows(session.sql("SELECT * FROM t")) == [(1, "bbc", 9), (2, "xyz", 4)]


@pytest.mark.parametrize("by_tasks", [False, True], ids=["driver", "tasks"])
@pytest.mark.parametrize(("given", "kind"), [("TIMESTAMP_NTZ", "TIMESTAMP"), ("TIMESTAMP", "TIMESTAMP_NTZ")])
def test_times_are_stored_in_the_zone_of_the_session(
    spark: SparkSession,
    session: Any,
    catalog: mg.Catalog,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    kind: str,
    by_tasks: bool,
) -> None:
    if by_tasks:
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    session.sql("SET timezone = 'Europe/Berlin'")
    listed = ", ".join(f"CAST({text} AS {kind}) AS v{i}" for i, text in enumerate(literals(given)))
    wanted = [seen(column)[0] for column in spark.sql(f"SELECT {listed}").toArrow().columns]
    doors = ["INSERT OVERWRITE of columns", "UPDATE to columns", "UPDATE to subqueries", "MERGE that updates"]
    for name in [*doors, "MERGE that inserts by name", "UPDATE to literals"]:
        found = stored(session.sql, lambda t: catalog.table(f"shop.{t}"), (DOORS | OF_LITERALS)[name], given, kind)
        assert (name, found) == (name, wanted)
        for table in session.sql("SHOW TABLES").collect():
            session.sql(f"DROP TABLE {table.tableName}")
    session.sql("CREATE TABLE t (id INT, z TIMESTAMP_LTZ(6), PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO t (id) VALUES (1)")
    session.sql("UPDATE t SET z = '2026-01-01 12:00:00'")
    assert seen(catalog.table("shop.t").read().to_arrow().column("z")) == ["2026-01-01 11:00:00+00:00"]


@pytest.mark.parametrize("by", ["driver", "tasks"])
@pytest.mark.parametrize(
    "options", ["", " WITH ('deletion-vectors.enabled' = 'true')", " WITH ('bucket' = '2', 'bucket-key' = 'k')"]
)
def test_rows_without_a_key_are_told_apart_by_their_places(
    session: Any, by: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(f"CREATE TABLE ap (k INT, n INT, r ROW<a INT, b STRING>, l ARRAY<INT>, at TIMESTAMP(9)){options}")
    session.sql("INSERT INTO ap SELECT id, 0, named_struct('a', id, 'b', 'x'), array(id, 3), NULL FROM range(4)")
    session.sql("INSERT INTO ap VALUES (9, 0, NULL, NULL, NULL)")
    if by == "tasks":
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    result = session.execute("UPDATE ap SET r.a = r.a + 10, n = l[0] WHERE k < 2")
    assert result.counts == {"updated": 2}
    session.sql("UPDATE ap SET l = array_append(l, k), n = n + (SELECT count(*) FROM ap) WHERE size(l) = 2 AND k > 1")
    session.sql("DELETE FROM ap WHERE exists(l, e -> e = 0)")
    assert session.sql("DELETE FROM ap WHERE r.b = 'y' OR array_contains(l, 99)").collect() == []
    found = session.sql("SELECT k, n, r.a, l FROM ap ORDER BY k").collect()
    assert [tuple(row) for row in found] == [
        (1, 1, 11, [1, 3]),
        (2, 5, 2, [2, 3, 2]),
        (3, 5, 3, [3, 3, 3]),
        (9, 0, None, None),
    ]
    session.sql("UPDATE ap SET r = named_struct('a', k, 'b', concat(r.b, '!')), l = array() WHERE r.a = 11")
    assert [tuple(row) for row in session.sql("SELECT r.a, r.b, l FROM ap WHERE k = 1").collect()] == [(1, "x!", [])]


@pytest.mark.parametrize("by", ["driver", "tasks"])
@pytest.mark.parametrize("key", [", PRIMARY KEY (k) NOT ENFORCED", ""])
def test_merges_compute_what_looks_at_the_source_alone_as_select_does(
    session: Any, by: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(f"CREATE TABLE t (k INT, s STRING, n INT{key}); INSERT INTO t VALUES (1, 'abc', 5), (2, 'xyz', 6)")
    session.sql("CREATE TABLE q (k INT, s STRING); INSERT INTO q VALUES (1, 'xx'), (2, 'yx'), (8, 'yy'), (9, 'zz')")
    if by == "tasks":
        monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    session.sql(
        "MERGE INTO t USING q ON t.k = q.k "
        "WHEN MATCHED AND left(q.s, 1) = 'x' THEN UPDATE SET s = replace(q.s, 'x', 'z'), n = t.n + 1 "
        "WHEN NOT MATCHED AND left(s, 1) = 'y' THEN INSERT (k, s) VALUES (k, lpad(s, 4, '-'))"
    )
    assert rows(session.sql("SELECT * FROM t")) == [(1, "zz", 6), (2, "xyz", 6), (8, "--yy", None)]


def test_inserts_cut_times_to_what_columns_store(session: Any) -> None:
    session.sql("CREATE TABLE clocks (a TIME(6), b TIME(0), c ARRAY<TIME(6)>)")
    session.sql("INSERT INTO clocks VALUES (TIME '01:02:03.000456', TIME '01:02:03.5', array(TIME '01:02:03.000456'))")
    found = session.sql("SELECT CAST(a AS STRING), CAST(b AS STRING), CAST(c[0] AS STRING) FROM clocks").collect()
    assert [tuple(row) for row in found] == [("01:02:03", "01:02:03", "01:02:03")]
