"""Buckets that are added as keys arrive, by every way of Spark: each key gets one bucket, whatever task it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
import merganser.spark.files as spark_files
from merganser.storage.paths import STAGING
from merganser.write.transaction import Transaction

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_files, "TASK_BYTES_MIN", 1)


def _table(catalog: mg.Catalog, name: str, **options: str) -> mg.Table:
    return catalog.create_table(
        f"shop.{name}",
        {"id": "BIGINT", "g": "INT", "v": "STRING"},
        primary_key=["id", "g"],
        partition_by=["g"],
        options={"dynamic-bucket.target-row-num": "40", **options},
    )


def _frame(spark: SparkSession, start: int, end: int, text: str) -> DataFrame:
    value = f.concat(f.lit(text), f.col("id").cast("string"))
    return spark.range(start, end, 1, 4).select("id", (f.col("id") % 3).cast("int").alias("g"), value.alias("v"))


def _check(table: mg.Table, model: dict[int, str]) -> None:
    assert {row["id"]: row["v"] for row in table.read().to_pylist()} == model
    assert table.read().count() == len(model)
    assert table.check() == ()
    assert not [path for path in Path(table.path).iterdir() if STAGING in path.name]


def _values(start: int, end: int, text: str) -> dict[int, str]:
    return {i: f"{text}{i}" for i in range(start, end)}


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("way", ["arrow", "files", "collect", "source", "load"])
def test_new_and_known_keys_of_many_tasks_get_one_bucket(
    spark: SparkSession, catalog: mg.Catalog, way: str, tmp_path: Path
) -> None:
    table = _table(catalog, f"ways_{way}")
    model: dict[int, str] = {}
    for start, end, text in ((0, 300, "a"), (200, 600, "b")):
        frame = _frame(spark, start, end, text)
        match way:
            case "source":
                twice = frame.union(_frame(spark, start, start + 50, "last"))  # a new key in two tasks: the last wins
                twice.write.format("merganser").mode("append").save(table.path)
            case "load":
                frame.write.mode("overwrite").parquet(str(tmp_path / "in"))
                ms.load(spark, str(tmp_path / "in" / "*.parquet"), table)
            case "collect":
                ms.write(frame, table, collect=True)
            case _:
                ms.write(frame, table, through=way)
        model |= _values(start, end, text)
        if way == "source":
            model |= _values(start, start + 50, "last")
        _check(table, model)
    counts = table.files().group_by(["partition", "bucket"]).aggregate([("record_count", "sum")])
    assert counts.num_rows >= 3 * 5


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize(
    ("way", "engine"),
    [
        ("arrow", "deduplicate"),
        ("files", "partial-update"),
        ("source", "deduplicate"),
        ("load", "deduplicate"),
        ("stream", "partial-update"),
    ],
)
def test_keys_move_between_partitions_or_stay_whatever_task_has_their_rows(
    spark: SparkSession, catalog: mg.Catalog, way: str, engine: str, tmp_path: Path
) -> None:
    table = catalog.create_table(
        f"shop.moving_{way}",
        {"id": "BIGINT", "g": "INT", "v": "STRING"},
        primary_key=["id"],
        partition_by=["g"],
        options={"dynamic-bucket.target-row-num": "40", "merge-engine": engine},
    )
    model: dict[int, tuple[int, str]] = {}
    for number, (start, end, text) in enumerate(((0, 300, "a"), (200, 600, "b"), (100, 250, "c"))):
        rows = _frame(spark, start, end, text).withColumn("g", ((f.col("id") + number) % 3).cast("int"))
        twice = rows.union(_frame(spark, start, start + 20, "last").withColumn("g", f.lit(7)))
        match way:
            case "source":
                twice.write.format("merganser").mode("append").save(table.path)
            case "load":
                twice.write.mode("overwrite").parquet(str(tmp_path / "in"))
                ms.load(spark, str(tmp_path / "in" / "*.parquet"), table)
            case "stream":
                twice.coalesce(1).write.parquet(str(tmp_path / f"in{number}"))
                frame = spark.readStream.schema("id BIGINT, g INT, v STRING").parquet(str(tmp_path / f"in{number}"))
                ms.write_stream(
                    frame, table, checkpoint=str(tmp_path / f"c{number}"), trigger="availableNow"
                ).awaitTermination()
            case _:
                ms.write(twice, table, through=way)
        changes = [(i, (i + number) % 3, f"{text}{i}") for i in range(start, end)]
        changes += [(i, 7, f"last{i}") for i in range(start, start + 20)]
        for i, g, v in changes:
            model[i] = (model[i][0] if engine == "partial-update" and i in model else g, v)
        assert {row["id"]: (row["g"], row["v"]) for row in table.read().to_pylist()} == model
        assert table.read().count() == len(model)
        assert table.check() == ()


@pytest.mark.parametrize("way", ["sink", "source"])
def test_a_stream_gives_new_keys_their_buckets(
    spark: SparkSession, catalog: mg.Catalog, way: str, tmp_path: Path
) -> None:
    table = _table(catalog, f"streams_{way}")
    _frame(spark, 0, 400, "a").write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema("id BIGINT, g INT, v STRING").option("maxFilesPerTrigger", 2)
    frame = rows.parquet(str(tmp_path / "in"))
    if way == "sink":
        query = ms.write_stream(frame, table, checkpoint=str(tmp_path / "c"), trigger="availableNow")
    else:
        writer = frame.writeStream.format("merganser").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start(table.path)
    query.awaitTermination()
    assert query.exception() is None
    _check(table, _values(0, 400, "a"))


def test_few_rows_begin_one_bucket(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.few", {"id": "BIGINT", "v": "STRING"}, primary_key=["id"])
    ms.write(_frame(spark, 0, 100, "a").drop("g"), table)
    assert table.files().num_rows == 1


def test_a_refused_row_leaves_nothing(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = _table(catalog, "refused")
    bad = _frame(spark, 0, 100, "a").withColumn("id", f.when(f.col("id") < 90, f.col("id")))
    with pytest.raises(Exception, match="id"):
        bad.write.format("merganser").mode("append").save(table.path)
    assert table.snapshots() == ()
    _check(table, {})


@pytest.mark.parametrize("way", ["arrow", "files"])
def test_keys_that_another_job_adds_meanwhile_join_those_of_the_tasks(
    spark: SparkSession, catalog: mg.Catalog, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(catalog, f"overtaken_{way}", **{"dynamic-bucket.target-row-num": "1000"})
    table.write([{"id": i, "g": i % 3, "v": f"a{i}"} for i in range(300)])
    finish, meant = Transaction.finish, [[{"id": i, "g": i % 3, "v": f"b{i}"} for i in range(250, 400)]]

    def overtaken(self: Transaction, messages: Any, **how: Any) -> Any:
        while meant and messages:
            catalog.table(table.name).write(meant.pop())
        return finish(self, messages, **how)

    monkeypatch.setattr(Transaction, "finish", overtaken)
    frame = _frame(spark, 100, 200, "c").union(_frame(spark, 1000, 1100, "c"))  # known keys and new ones
    ms.write(frame, table, through=way)
    assert not meant
    model = _values(0, 300, "a") | _values(250, 400, "b") | _values(100, 200, "c") | _values(1000, 1100, "c")
    _check(catalog.table(table.name), model)
