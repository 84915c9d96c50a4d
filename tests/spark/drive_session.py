"""Run by other tests in a process of its own: the same round trip on Connect, or on several executors.

    python -m tests.spark.drive_session connect|cluster <directory>

Prints "ok" at the end; whatever is wrong raises.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError, StorageError
from merganser.spark import merging
from merganser.spark import sql as spark_sql
from merganser.spark.access import is_connect
from merganser.spark.staging import estimated_bytes

SCHEMA = {"dt": "STRING", "id": "BIGINT", "n": "BIGINT"}
REMOTE = {"connect": "local[2]"}
MASTER = {"cluster": "local-cluster[2,1,1024]"}


def session(mode: str, directory: Path) -> SparkSession:
    if mode in REMOTE:
        builder = SparkSession.builder.remote(REMOTE[mode])
    else:
        builder = SparkSession.builder.master(MASTER[mode]).config("spark.executor.memory", "1g")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.task.maxFailures": "2",
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def rows(table: mg.Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.read().to_pylist()}


def statements(spark: SparkSession, directory: Path) -> None:
    """Run statements of SQL in a session whose queries are evaluated by a server, and later."""
    catalog = mg.catalog(str(directory / "sql-warehouse"))
    catalog.create_database("default")
    session = ms.session(spark, catalog)
    session.sql("CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1')")
    assert session.execute("INSERT INTO t VALUES (1, 'a'), (2, '{b}')").counts == {"inserted": 2}
    first = session.sql("SELECT t.v, n.word FROM t JOIN (SELECT 1 AS id, '{x}' AS word) n ON n.id = default.t.id")
    session.sql("UPDATE t SET v = 'z' WHERE id = 1")
    assert [tuple(row) for row in first.collect()] == [("a", "{x}")]
    assert [tuple(row) for row in session.sql("SELECT v FROM t ORDER BY id").collect()] == [("z",), ("{b}",)]
    spark.range(3).createOrReplaceTempView("mine")
    assert session.sql("SELECT * FROM mine JOIN t ON mine.id = t.id").count() == 2
    with pytest.raises(InvalidInputError, match="Choose from 'id', 'v'"):
        session.sql("SELECT vv FROM t")
    assert session.sql("SHOW TABLES").collect()[0].tableName == "t"
    if spark_sql.TIME_AS == "time":  # Connect plans a DataFrame when it is used
        session.sql("CREATE TABLE times (a TIME(0), b TIME(3), c INT)")
        session.sql("INSERT INTO times VALUES (TIME '03:00:00', NULL, 1); INSERT INTO times SELECT a, a, c FROM times")
        assert session.sql("SELECT c FROM times").count() == 2
        assert spark.conf.get("spark.sql.timeType.enabled", None) is None
        if is_connect(spark):
            with pytest.raises(
                InvalidInputError, match=r"only if 'spark\.sql\.timeType\.enabled' is true in the session"
            ):
                session.sql("SELECT * FROM times WHERE a = b")
        else:  # planned by the statement; a DataFrame made of it would be planned later
            assert len(session.sql("SELECT * FROM times WHERE a = b").collect()) == 1
        session.sql("SET 'spark.sql.timeType.enabled' = 'true'")
        assert session.sql("SELECT * FROM times WHERE a = b").count() == 1
        session.sql("RESET; DROP TABLE times")
    session.sql(
        "CREATE TABLE u (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', 'write-only' = 'true')"
    )
    for step in range(3):
        catalog.table("default.u").write([{"id": i, "v": step} for i in range(0, 300, step + 1)])
    local, spark_sql._LOCAL_BYTES = spark_sql._LOCAL_BYTES, -1
    found = session.sql("SELECT v FROM t")
    hidden = session.sql("SELECT count(*) AS n, sum(v) AS v FROM u")
    spark_sql._LOCAL_BYTES = local
    assert found.inputFiles()
    assert sorted(row.v for row in found.collect()) == ["z", "{b}"]
    assert hidden.inputFiles()
    assert [tuple(row) for row in hidden.collect()] == [(300, 100 + 2 * 100)]


def round_trip(spark: SparkSession, directory: Path) -> None:
    catalog = mg.catalog(str(directory / "warehouse"))
    catalog.create_database("shop")
    orders = catalog.create_table(
        "shop.orders", schema=SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "2"}
    )
    data = spark.range(0, 2000, 1, 4).selectExpr("concat('d', id % 2) as dt", "id % 500 as id", "id as n")
    ms.write(data, orders)
    expected = {i: 1500 + i for i in range(500)}
    assert rows(orders) == expected
    assert {row.id: row.n for row in ms.read(spark, orders, columns=["id", "n"]).collect()} == expected
    assert ms.read(spark, orders.path, where="id < 3").count() == 3

    pq.write_table(pa.table({"dt": ["d1", "d0"], "id": [1, 1000], "n": [-1, -2]}), directory / "more.parquet")
    ms.load(spark, str(directory / "more.parquet"), orders)
    expected |= {1: -1, 1000: -2}
    assert rows(orders) == expected

    changed = ms.changes(spark, orders, where="id = 1000").collect()
    assert [(row._row_kind, row.dt, row.n) for row in changed] == [("+I", "d0", -2)]
    assert ms.changes(spark, orders, mode="diff", where="_row_kind = '+I'").count() == 501

    ms.register(spark)
    found = spark.read.format("merganser").option("columns", "id,n").load(orders.path)
    assert {row.id: row.n for row in found.collect()} == expected
    spark.createDataFrame([("d1", 1, 5)], "dt string, id long, n long").write.format("merganser").mode("append").save(
        orders.path
    )
    assert rows(orders)[1] == 5
    ms.write(spark.createDataFrame([("d1", 1, 6)], "dt string, id long, n long"), orders, collect=True)
    assert rows(orders)[1] == 6
    many = spark.range(0, 600, 1, 3).selectExpr("'d' || id % 2 AS dt", "id % 20 AS id", "id AS n")
    ms.write(many, orders, overwrite={}, through="files")
    assert rows(orders) == {i: 580 + i for i in range(20)}
    assert not list(Path(orders.path).glob(".staging-*"))
    assert 7_900 < (estimated_bytes(spark.range(1000)) or 0) < 8_100


def refusals(spark: SparkSession, directory: Path) -> None:
    orders = mg.table(str(directory / "warehouse" / "shop.db" / "orders"))
    kept = orders.latest_snapshot()
    null_key = spark.createDataFrame([("d0", None, 1), ("d1", 1, 1)], "dt string, id long, n long")
    with pytest.raises(InvalidInputError, match="key column 'id' is null"):
        ms.write(null_key, orders)
    with pytest.raises(PySparkException, match="InvalidInputError: cannot write to"):
        null_key.write.format("merganser").mode("append").save(orders.path)
    target = Path(orders.path) / "dt=d7"
    target.write_text("a file where the directory of a partition should be")
    row = spark.createDataFrame([("d7", 1, 1)], "dt string, id long, n long")
    with pytest.raises(StorageError, match="dt=d7"):  # raised in a task, not returned: another attempt might cure it
        ms.write(row, orders)
    target.unlink()
    assert orders.latest_snapshot() == kept


def row_changes(spark: SparkSession, directory: Path) -> None:
    """Rows changed by condition, by tasks, before and after the schema changes."""
    orders = mg.table(str(directory / "warehouse" / "shop.db" / "orders"))
    assert ms.delete(spark, orders, "n % 10 = 5").rows_deleted == 2  # type: ignore[union-attr]
    assert ms.update(spark, orders, "n >= 598", {"n": "n + 1000"}).rows_updated == 2  # type: ignore[union-attr]
    orders = orders.alter([mg.changes.rename_column("n", "amount"), mg.changes.add_column("note", "STRING")])
    source = spark.range(0, 40, 1, 4).selectExpr("'d' || id % 2 AS dt", "id AS key", "id + 580 AS wanted")
    merging.FILES_FROM_BYTES = 1
    merge = ms.merge(spark, orders, source, on="target.amount = source.wanted AND target.dt = source.dt")
    merge = merge.when_matched_update({"note": "'met ' || source.key"})
    merge = merge.when_not_matched_by_source_update({"note": "'alone'"})
    assert merge.execute().rows_updated == 18  # type: ignore[union-attr]
    merge = ms.merge(spark, orders, source.alias("s"), on="t.id = s.key AND t.dt = s.dt")
    merge = merge.when_not_matched_insert({"dt": "s.dt", "id": "s.key", "amount": "s.wanted"})
    assert merge.execute().rows_inserted == 22  # type: ignore[union-attr]
    found = {row.id: (row.amount, row.note) for row in ms.read(spark, orders).collect()}
    assert len(found) == 40
    assert (found[3], found[19], found[5], found[30]) == ((583, "met 3"), (1599, "alone"), (585, None), (610, None))

    options = {"deletion-vectors.enabled": "true"}
    log = mg.catalog(str(directory / "warehouse")).create_table(
        "shop.log", {"id": "BIGINT", "n": "INT"}, options=options
    )
    ms.write(spark.range(0, 40, 1, 4).selectExpr("id", "cast(id as int) n"), log)
    source = spark.range(30, 50, 1, 3).selectExpr("id", "-cast(id as int) n")
    merge = ms.merge(spark, log, source.alias("s"), on="x.id = s.id").when_matched_update({"n": "s.n"}, "x.n > s.n")
    merge = merge.when_not_matched_insert()
    done = merge.when_not_matched_by_source_delete("id < 5").execute()
    assert (done.rows_inserted, done.rows_updated, done.rows_deleted) == (10, 10, 5)  # type: ignore[union-attr]
    assert rows(log) == {i: i if i < 30 else -i for i in range(5, 50)}


def executors(spark: SparkSession) -> None:
    """Tasks run in more than one executor, so nothing was shared but what pickles."""

    def where(batches):  # type: ignore[no-untyped-def]
        import os

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"parent": [os.path.basename(os.getcwd())]})

    found = spark.range(0, 8, 1, 8).mapInArrow(where, "parent string").collect()
    assert len({row.parent for row in found}) == 2, found


def main() -> None:
    mode, directory = sys.argv[1], Path(sys.argv[2])
    spark = session(mode, directory)
    round_trip(spark, directory)
    refusals(spark, directory)
    row_changes(spark, directory)
    statements(spark, directory)
    if mode == "cluster":
        executors(spark)
    spark.stop()
    print("ok")


if __name__ == "__main__":
    main()
