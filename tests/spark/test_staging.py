"""`ms.write` through files: the rows, types and order of a DataFrame, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.spark import files, sink, staging
from merganser.storage.object_store import ObjectStorage
from tests.s3_server import Bucket

pytestmark = pytest.mark.spark

ROWS = 3_000
KEYS = 400


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "TASK_BYTES_MIN", 1)


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table(
        "shop.orders", schema={"id": "BIGINT", "n": "BIGINT"}, primary_key=["id"], options={"bucket": "3"}
    )


def left(table: mg.Table) -> list[str]:
    return [path.name for path in Path(table.path).iterdir() if path.name.startswith(".")]


def test_the_last_row_of_a_key_in_the_frame_wins_over_partitions_and_files(
    spark: SparkSession, orders: mg.Table
) -> None:
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "97")
    try:
        df = spark.range(0, ROWS, 1, 5).selectExpr(f"id % {KEYS} AS id", "id AS n")
        snapshot = ms.write(df, orders, through="files")
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    assert snapshot is not None
    assert snapshot.metrics is not None
    assert {"staging", "tasks"} <= set(snapshot.metrics.seconds)
    expected = {n % KEYS: n for n in range(ROWS)}
    assert {row["id"]: row["n"] for row in orders.read().to_pylist()} == expected
    assert left(orders) == []
    ms.write(spark.range(0, 10, 1, 3).selectExpr("id", "-id AS n"), orders, through="files")
    assert {row["id"]: row["n"] for row in orders.read().to_pylist()} == expected | {n: -n for n in range(10)}


def test_rows_of_a_queue_keep_their_order(spark: SparkSession, catalog: mg.Catalog) -> None:
    queue = catalog.create_table(
        "shop.queue", schema={"id": "BIGINT", "n": "BIGINT"}, options={"bucket": "1", "bucket-key": "id"}
    )
    ms.write(spark.range(0, 200, 1, 12).selectExpr("id % 7 AS id", "id AS n"), queue, through="files")
    assert [row["n"] for row in queue.read().to_pylist()] == list(range(200))


def test_kinds_and_columns_that_are_supplied(spark: SparkSession, orders: mg.Table) -> None:
    orders.write([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    changes = spark.createDataFrame([("-D", 1), ("+I", 3)], "`the op.` string, id long")
    ms.write(changes, orders, kinds="the op.", columns=["id"], through="files")
    assert {row["id"]: row["n"] for row in orders.read().to_pylist()} == {2: 2, 3: None}


EVERY = {
    "bool": ("BOOLEAN", "boolean", ["true", "false"]),
    "tiny": ("TINYINT", "tinyint", ["-128", "127"]),
    "small": ("SMALLINT", "smallint", ["-32768", "32767"]),
    "whole": ("INT", "int", ["-2147483648", "2147483647"]),
    "real": ("FLOAT", "float", ["float('-0.0')", "float('nan')"]),
    "wide": ("DOUBLE", "double", ["double('-0.0')", "double('-infinity')"]),
    "few": ("DECIMAL(9, 2)", "decimal(9,2)", ["-1234567.89BD", "0.01BD"]),
    "more": ("DECIMAL(18, 3)", "decimal(18,3)", ["-123456789012345.678BD", "0.001BD"]),
    "most": ("DECIMAL(38, 10)", "decimal(38,10)", ["-1234567890123456789012345678.0123456789BD", "0.0000000001BD"]),
    "text": ("STRING", "string", ["''", "'é𝄞\\n'"]),
    "raw": ("BYTES", "binary", ["X''", "X'00ff'"]),
    "day": ("DATE", "date", ["date'0001-01-01'", "date'1582-10-04'", "date'9999-12-31'"]),
    "instant": (
        "TIMESTAMP_LTZ(6)",
        "timestamp",
        ["timestamp'0001-01-03 00:00:00.000001'", "timestamp'1582-10-04 23:59:59.999999'", "timestamp'9999-12-30'"],
    ),
    "clock": (
        "TIMESTAMP(6)",
        "timestamp_ntz",
        ["timestamp_ntz'0001-01-01 00:00:00.000001'", "timestamp_ntz'1582-10-04 23:59:59.999999'"],
    ),
    "items": ("ARRAY<INT>", "array<int>", ["array()", "array(1, null)"]),
    "pairs": ("MAP<STRING, BIGINT>", "map<string,bigint>", ["map()", "map('a', 1L, 'b', null)"]),
    "parts": (
        "ROW<a INT, b ARRAY<STRING>>",
        "struct<a:int,b:array<string>>",
        ["named_struct('a', null, 'b', array('x'))"],
    ),
}


def _every(spark: SparkSession) -> DataFrame:
    rows = [
        ", ".join(
            f"CAST({(values[i] if i < len(values) else 'NULL')} AS {kind}) AS `{name}`"
            for name, (_, kind, values) in EVERY.items()
        )
        for i in range(4)
    ]
    return spark.sql(" UNION ALL ".join(f"SELECT {i}L AS id, {row}" for i, row in enumerate(rows)))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.compression.codec": "gzip",
        },
    ],
)
def test_every_type_arrives_as_it_does_without_files_whatever_the_session_says(
    spark: SparkSession, catalog: mg.Catalog, settings: dict[str, str]
) -> None:
    schema = {"id": "BIGINT"} | {name: kind for name, (kind, _, _) in EVERY.items()}
    found: list[Any] = []
    for through in ("arrow", "files"):
        table = catalog.create_table(f"shop.{through}", schema=schema, primary_key=["id"], options={"bucket": "1"})
        before = {key: spark.conf.get(key, None) for key in settings}
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            ms.write(_every(spark), table, through=through)
        finally:
            assert {key: spark.conf.get(key) for key in settings} == settings
            for key, value in before.items():
                spark.conf.unset(key) if value is None else spark.conf.set(key, value)
        found.append([repr(row) for row in table.read().to_arrow().to_pylist()])
    assert found[0] == found[1]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    "kind", ["interval day to second", "interval year to month", "array<date>", "struct<t:timestamp>", "void"]
)
def test_what_parquet_would_change_is_told_before_anything_runs(spark: SparkSession, kind: str) -> None:
    df = spark.sql(f"SELECT 1L AS id, CAST(NULL AS {kind}) AS x")
    assert "column 'x'" in (staging.why_not_staged(df) or "")


def test_types_that_do_not_fit_are_refused_or_handed_over(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.days", schema={"id": "BIGINT", "x": "ARRAY<DATE>"}, primary_key=["id"], options={"bucket": "1"}
    )
    df = spark.sql("SELECT 1L AS id, array(date'2026-01-01') AS x")
    with pytest.raises(UnsupportedError, match=r"column 'x' is array<date>.*Nothing was written"):
        ms.write(df, table, through="files")
    ms.write(df, table)
    assert table.read().count() == 1


def test_a_refused_or_failed_write_leaves_no_staged_files(spark: SparkSession, orders: mg.Table) -> None:
    null = spark.sql("SELECT CAST(NULL AS BIGINT) AS id, 1L AS n")
    with pytest.raises(InvalidInputError, match="key column 'id' is null"):
        ms.write(null, orders, through="files")
    broken = spark.range(0, 100, 1, 2).select("id", f.raise_error(f.lit("broken")).cast("bigint").alias("n"))
    with pytest.raises(Exception, match="broken"):
        ms.write(broken, orders, through="files")
    assert left(orders) == []
    assert orders.snapshots() == ()


def test_rows_go_through_files_where_they_are_many(
    spark: SparkSession, orders: mg.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = staging.FILES_FROM_BYTES // 8  # a BIGINT each
    chosen = sink._staging_path
    assert chosen(spark.range(many), orders, must=False) is not None
    assert chosen(spark.range(many // 2), orders, must=False) is None
    assert chosen(spark.createDataFrame([(1, 1)], "id long, n long"), orders, must=False) is None
    monkeypatch.setattr(staging, "_ESTIMATE", staging._PART)
    assert staging.estimated_bytes(spark.range(many)) is None


def test_a_store_that_spark_does_not_reach_is_told_or_passed_over(
    spark: SparkSession, orders: mg.Table, bucket: Bucket
) -> None:
    storage = ObjectStorage(bucket.root, bucket.options)
    definition = orders.definition
    elsewhere = mg.Table(
        type(definition)("shop.far", f"{bucket.root}/far", definition.schema, definition.options),
        type(orders.env)(storage),
    )
    df = spark.range(1 << 22).selectExpr("id", "id AS n")
    with pytest.raises(UnsupportedError, match=r"Spark cannot write to 's3://[^/]*/far'.*Let Spark reach that path"):
        sink._staging_path(df, elsewhere, must=True)
    assert sink._staging_path(df, elsewhere, must=False) is None


@pytest.mark.parametrize("arguments", [{"through": "file"}, {"through": None}, {"through": "files", "collect": True}])
def test_a_way_that_is_none_is_refused(spark: SparkSession, orders: mg.Table, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="through is"):
        ms.write(spark.range(1).selectExpr("id", "id AS n"), orders, **arguments)
