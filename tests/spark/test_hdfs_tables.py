"""Tables in HDFS through Spark: tasks reach them by our storage, and Spark's own client reads what needs no merge."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

import merganser as mg
from merganser.errors import UnsupportedError
from tests.hdfs.cluster import Cluster, Folder

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

import merganser.spark as ms
from merganser.spark import scan as scans
from merganser.spark import sql as spark_sql

pytestmark = [pytest.mark.spark, pytest.mark.hdfs]


@pytest.fixture
def folder(hdfs: Cluster) -> Folder:
    return hdfs.folder(getpass.getuser())  # as Spark


@pytest.fixture
def catalog(folder: Folder) -> mg.Catalog:
    found = mg.catalog(f"{folder.root}/warehouse", options=folder.options)
    found.create_database("shop")
    return found


def _created(catalog: mg.Catalog, **options: str) -> mg.Table:
    return catalog.create_table("shop.t", {"id": "BIGINT", "n": "BIGINT"}, ["id"], options={"bucket": "2", **options})


def _sum(rows: Any) -> tuple[int, int]:
    found = rows.selectExpr("count(*) AS rows", "sum(n) AS total").collect()[0]
    return found.rows, found.total


@pytest.mark.parametrize("through", ["arrow", "files"])
def test_tasks_write_and_read(spark: SparkSession, catalog: mg.Catalog, folder: Folder, through: str) -> None:
    table = _created(catalog)
    ms.write(spark.range(1000).selectExpr("id", "id AS n"), table, through=through)
    ms.write(spark.range(10).selectExpr("id", "-id AS n"), table, through=through)
    assert _sum(ms.read(spark, table)) == (1000, 499500 - 90)
    source = spark.read.format("merganser").options(**folder.options).load(table.path)
    assert _sum(source.where("id < 10")) == (10, -45)
    ms.compact(spark, table, full=True)
    assert _sum(ms.read(spark, table)) == (1000, 499500 - 90)
    assert not any(entry.name.startswith(".staging") for entry in table.env.storage.list(table.path))
    assert table.check() == ()


def test_spark_reads_files_itself_where_it_gets_there(
    spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    by_tasks = []
    tasks = scans.planned_frame
    monkeypatch.setattr(scans, "planned_frame", lambda *given: by_tasks.append(given) or tasks(*given))
    table = _created(catalog, **{"write-only": "true"})
    table.write([{"id": i, "n": i} for i in range(100)])
    table.write([{"id": i, "n": -i} for i in range(10)])
    sql = ms.session(spark, catalog)
    wanted = [(100, 4950 - 90)]
    query = "SELECT count(*), sum(n) FROM shop.t"
    assert list(map(tuple, sql.sql(query).collect())) == wanted
    assert by_tasks == []
    catalog.table("shop.t").compact(full=True)
    assert list(map(tuple, sql.sql(query).collect())) == wanted
    assert by_tasks == []


def test_files_that_only_the_user_of_spark_can_remove_are_not_written(spark: SparkSession, hdfs: Cluster) -> None:
    folder = hdfs.folder("tester")
    catalog = mg.catalog(f"{folder.root}/warehouse", options=folder.options)
    catalog.create_database("shop")
    table = _created(catalog)
    with pytest.raises(UnsupportedError, match=r"not ours to remove.*Permission denied: user=tester"):
        ms.write(spark.range(1).selectExpr("id", "id AS n"), table, through="files")
    ms.write(spark.range(10).selectExpr("id", "id AS n"), table)
    assert _sum(ms.read(spark, table)) == (10, 45)


@pytest.mark.parametrize("root", ["hdfs://127.0.0.1:1", "hdfs://of-another-configuration"])
def test_tasks_read_files_where_spark_does_not_get_to(
    spark: SparkSession, catalog: mg.Catalog, hdfs: Cluster, folder: Folder, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    _created(catalog).write([{"id": i, "n": i} for i in range(100)])
    elsewhere = mg.catalog(f"{root}{catalog.warehouse.removeprefix(hdfs.root)}", options=folder.options)
    sql = ms.session(spark, elsewhere)
    assert list(map(tuple, sql.sql("SELECT count(*), sum(n) FROM shop.t").collect())) == [(100, 4950)]
    table = elsewhere.table("shop.t")
    with pytest.raises(UnsupportedError, match="Let Spark reach that path"):
        ms.write(spark.range(1).selectExpr("id", "id AS n"), table, through="files")
