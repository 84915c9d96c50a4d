"""`ms.write`: one commit per call, the rows of the DataFrame in its order, refused before anything is written."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError, NotFoundError

pytestmark = pytest.mark.spark


def rows(table: mg.Table, by: str = "id", **arguments: Any) -> list[dict[str, Any]]:
    return sorted(table.read(**arguments).to_pylist(), key=lambda row: row[by])


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    schema = {"id": "BIGINT", "state": "STRING", "amount": "DECIMAL(10, 2)"}
    return catalog.create_table("shop.orders", schema=schema, primary_key=["id"], options={"bucket": "3"})


def frame(
    spark: SparkSession, values: list[tuple[Any, ...]], schema: str = "id long, state string, amount decimal(10,2)"
):
    return spark.createDataFrame(values, schema)


def test_a_frame_is_one_commit_and_an_upsert_replaces(spark: SparkSession, orders: mg.Table) -> None:
    first = ms.write(spark.range(100).selectExpr("id", "'new' as state", "cast(id as decimal(10,2)) as amount"), orders)
    second = ms.write(frame(spark, [(7, "paid", None), (200, "new", None)]), orders.path)
    assert first is not None
    assert second is not None
    assert (first.id, second.id, second.commit_kind) == (1, 2, "APPEND")
    found = rows(orders)
    assert len(found) == 101
    assert found[7] == {"id": 7, "state": "paid", "amount": None}
    assert orders.files().column("level").to_pylist() == [0] * orders.files().num_rows


def test_every_bucket_has_one_writer(spark: SparkSession, orders: mg.Table) -> None:
    ms.write(spark.range(0, 1000, 1, 5).selectExpr("id", "'x' as state", "1.0 as amount"), orders)
    assert sorted(orders.files().column("bucket").to_pylist()) == [0, 1, 2]


def test_rows_of_tasks_are_published_as_they_came(spark: SparkSession, catalog: mg.Catalog) -> None:
    options = {"bucket": "3", "changelog-producer": "input"}
    table = catalog.create_table("shop.input", {"id": "BIGINT", "v": "INT"}, primary_key=["id"], options=options)
    given = [(i % 20, i, "+I" if i < 20 else ("-U", "+U")[i % 2]) for i in range(60)]
    schema = "id long, v int, kind string"
    ms.write(spark.createDataFrame(given, schema).coalesce(1), table, kinds="kind")
    ms.write(spark.createDataFrame(given, schema).coalesce(1), table, kinds="kind", collect=True)
    of_key: dict[int, list[tuple[str, int]]] = {}
    for row in table.changes(1, 1).to_pylist():
        of_key.setdefault(row["id"], []).append((row["_row_kind"], row["v"]))
    assert of_key == {key: [(kind, v) for other, v, kind in given if other == key] for key in range(20)}
    assert table.changes(2).to_arrow().num_rows == 60
    assert table.changes(2, 2).to_pylist() == table.changes(1, 1).to_pylist()


def test_files_of_tasks_have_indexes(spark: SparkSession, catalog: mg.Catalog) -> None:
    options = {"bucket": "3", "file-index.bloom-filter.columns": "id,state", "file-index.in-manifest-threshold": "1 b"}
    schema = {"id": "BIGINT", "state": "STRING"}
    table = catalog.create_table("shop.indexed", schema=schema, primary_key=["id"], options=options)
    ms.write(spark.range(0, 3000, 3, 5).selectExpr("id", "concat('s', id) as state"), table)
    found = sorted(path.name for path in Path(table.path).glob("bucket-*/*"))
    data = [name for name in found if not name.endswith(".index")]
    assert found == sorted([*data, *(f"{name}.index" for name in data)])
    assert [table.read(where=f"id = {i}").count() for i in (300, 301)] == [1, 0]
    assert table.read(where="state = 's301'").plan().splits == ()
    assert spark.read.format("merganser").load(table.path).where("id in (300, 301)").count() == 1


def test_kinds_delete_and_are_not_stored(spark: SparkSession, orders: mg.Table) -> None:
    ms.write(frame(spark, [(1, "a", None), (2, "b", None), (3, "c", None)]), orders)
    changes = frame(spark, [("-D", 1, "a"), ("+U", 2, "z"), ("+I", 4, "d")], "op string, id long, state string")
    ms.write(changes, orders, kinds="op", columns=["id", "state"])
    assert [(r["id"], r["state"]) for r in rows(orders)] == [(2, "z"), (3, "c"), (4, "d")]


def test_the_last_row_of_a_key_in_the_frame_wins(spark: SparkSession, catalog: mg.Catalog) -> None:
    schema = {"id": "BIGINT", "n": "BIGINT"}
    whole = catalog.create_table("shop.whole", schema=schema, primary_key=["id"], options={"bucket": "2"})
    flushed = catalog.create_table(
        "shop.flushed", schema=schema, primary_key=["id"], options={"bucket": "2", "write-buffer-size": "16 kb"}
    )
    doubles = spark.range(0, 20_000, 1, 7).selectExpr("id % 1000 as id", "id as n")
    expected = [{"id": i, "n": 19_000 + i} for i in range(1000)]
    ms.write(doubles, whole)
    assert rows(whole) == expected
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        ms.write(doubles, flushed)
        assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "500"
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert rows(flushed) == expected
    ms.write(spark.range(1000).selectExpr("id", "-id as n"), flushed)
    assert rows(flushed) == [{"id": i, "n": -i} for i in range(1000)]


def test_keys_without_a_native_bucket_go_to_the_bucket_of_the_format(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.floats", schema={"id": "DOUBLE", "n": "BIGINT"}, primary_key=["id"], options={"bucket": "4"}
    )
    data = spark.range(0, 400, 1, 3).selectExpr("cast(id % 100 as double) as id", "id as n")
    ms.write(data, table)
    assert rows(table) == [{"id": float(i), "n": 300 + i} for i in range(100)]
    assert table.read(where="id = 42").to_pylist() == [{"id": 42.0, "n": 342}]


def test_partitions_and_their_overwrites(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.parts", schema={"dt": "STRING", "id": "INT", "n": "INT"}, primary_key=["dt", "id"], partition_by=["dt"],
        options={"bucket": "2"},
    )  # fmt: skip
    data = spark.range(60).selectExpr("concat('d', id % 3) as dt", "cast(id as int) as id", "0 as n")
    ms.write(data, table)
    static = spark.createDataFrame([("d1", 1, 1)], "dt string, id int, n int")
    assert ms.write(static, table, overwrite={"dt": "d1"}).commit_kind == "OVERWRITE"
    assert [(r["dt"], r["n"]) for r in rows(table, where="dt = 'd1'")] == [("d1", 1)]
    ms.write(spark.createDataFrame([("d2", 5, 2)], "dt string, id int, n int"), table, overwrite="dynamic")
    assert {r["dt"]: r["n"] for r in table.read(where="dt <> 'd0'").to_pylist()} == {"d1": 1, "d2": 2}
    assert table.read().count() == 22
    with pytest.raises(InvalidInputError, match="outside the partition"):
        ms.write(static, table, overwrite={"dt": "d0"})
    ms.write(static.limit(0), table, overwrite={})
    assert table.read().count() == 0


def test_a_partition_of_a_day_is_overwritten_without_rows(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.days", {"day": "DATE", "n": "INT"}, partition_by=["day"], options={"bucket": "-1"}
    )
    days = spark.sql("SELECT DATE '2026-01-01' AS day, 1 AS n UNION ALL SELECT DATE '2026-01-02', 2")
    for collect in (False, True):
        ms.write(days, table, overwrite={})
        ms.write(days.limit(0), table, overwrite={"day": date(2026, 1, 1)}, collect=collect)
        assert [row["n"] for row in table.read().to_pylist()] == [2]


def test_append_tables_take_rows_without_a_shuffle_and_queues_keep_their_order(
    spark: SparkSession, catalog: mg.Catalog
) -> None:
    log = catalog.create_table("shop.log", schema={"id": "BIGINT", "text": "STRING"})
    ms.write(spark.range(0, 100, 1, 3).selectExpr("id", "cast(id as string) as text"), log)
    ms.write(spark.range(100, 200, 1, 1).selectExpr("id", "cast(id as string) as text"), log)
    assert [r["id"] for r in rows(log)] == list(range(200))
    assert log.files().num_rows == 4
    queue = catalog.create_table(
        "shop.queue", schema={"id": "BIGINT", "n": "BIGINT"}, options={"bucket": "2", "bucket-key": "id"}
    )
    for start in (0, 100):
        ms.write(spark.range(start, start + 100, 1, 4).selectExpr("id % 2 as id", "id as n"), queue)
    for key in (0, 1):
        ordered = [r["n"] for r in queue.read(where=f"id = {key}").to_pylist()]
        assert ordered == list(range(key, 200, 2))
    with pytest.raises(InvalidInputError, match="takes inserts only"):
        ms.write(spark.createDataFrame([(1, 1, "-D")], "id long, n long, op string"), queue, kinds="op")


def test_defaults_of_partition_and_key_columns_decide_where_rows_go(spark: SparkSession, catalog: mg.Catalog) -> None:
    schema = {"dt": "STRING", "id": "INT", "n": "INT"}
    options = {"bucket": "3", "fields.dt.default-value": "none", "fields.id.default-value": "7"}
    table = catalog.create_table(
        "shop.t", schema=schema, primary_key=["dt", "id"], partition_by=["dt"], options=options
    )
    values = [(None, None, 1), ("none", 7, 2), (None, 8, 3), ("some", None, 4)] * 3
    ms.write(spark.createDataFrame(values, "dt string, id int, n int").repartition(3), table)
    found = {(r["dt"], r["id"]) for r in table.read().to_pylist()}
    assert found == {("none", 7), ("none", 8), ("some", 7)}
    queue = catalog.create_table("shop.q", schema=schema, options={"bucket": "2", "bucket-key": "id"})
    ms.write(spark.range(0, 10, 1, 3).selectExpr("cast(id as int) as n"), queue, columns=["n"])
    assert [r["n"] for r in queue.read().to_pylist()] == list(range(10))


def test_few_rows_are_collected_and_written_here(spark: SparkSession, orders: mg.Table) -> None:
    ms.write(frame(spark, [(1, "a", None), (1, "b", None)]), orders, collect=True)
    assert rows(orders) == [{"id": 1, "state": "b", "amount": None}]


def test_an_identifier_is_applied_once(spark: SparkSession, orders: mg.Table) -> None:
    data = frame(spark, [(1, "a", None)])
    first = ms.write(data, orders, commit_user="job", identifier=3)
    again = ms.write(frame(spark, [(2, "b", None)]), orders, commit_user="job", identifier=3)
    assert first == again
    assert len(orders.snapshots()) == 1
    with pytest.raises(InvalidInputError, match="without commit_user"):
        ms.write(data, orders, identifier=4)


@pytest.mark.parametrize("collect", [False, True])
def test_a_commit_carries_a_watermark(spark: SparkSession, orders: mg.Table, collect: bool) -> None:
    data = frame(spark, [(1, "a", None)])
    ms.write(data, orders, collect=collect, watermark=5)
    data.write.format("merganser").option("watermark", "7").mode("append").save(orders.path)
    assert [snapshot.watermark for snapshot in orders.snapshots()] == [5, 7]
    with pytest.raises(InvalidInputError, match="watermark is 'noon'"):
        ms.write(data, orders, collect=collect, watermark="noon")


def test_an_empty_frame_makes_no_snapshot(spark: SparkSession, orders: mg.Table) -> None:
    assert ms.write(frame(spark, []), orders) is None
    assert orders.snapshots() == ()


@pytest.mark.parametrize(
    "option", [("commit.force-create-snapshot", "true"), ("snapshot.ignore-empty-commit", "false")]
)
def test_empty_commits_make_a_snapshot_where_they_are_asked_for(
    spark: SparkSession, orders: mg.Table, tmp_path: Path, option: tuple[str, str]
) -> None:
    asked = orders.with_options(dict([option]))
    empty = frame(spark, [])
    made = ms.write(empty, asked)
    assert made is not None
    assert (made.id, made.commit_kind, made.delta_record_count) == (1, "APPEND", 0)
    empty.write.format("merganser").option(*option).mode("append").save(orders.path)
    pq.write_table(asked.read().to_arrow(), tmp_path / "empty.parquet")
    loaded = ms.load(spark, str(tmp_path / "empty.parquet"), asked)
    assert loaded is not None
    assert loaded.id == 3


def test_a_frame_without_rows_that_replaces_a_table_is_followed_by_what_is_owed(
    spark: SparkSession, orders: mg.Table
) -> None:
    options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    table = orders.with_options({**options, "snapshot.expire.execution-mode": "sync"})
    table.write([{"id": 1, "state": "a", "amount": None}])
    ms.write(frame(spark, []), table, overwrite={})
    assert [snapshot.id for snapshot in table.snapshots()] == [2]
    assert rows(table) == []


WHOLE = "id long, state string, amount decimal(10,2)"
PART = {"kinds": "op", "columns": ["id", "state"]}


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("values", "schema", "arguments", "message"),
    [
        ([(None, "a", None)], WHOLE, {}, "key column 'id' is null"),
        ([(1, "a")], "id long, state string", {}, "1 of 3 columns is missing"),
        ([(1, "a", None, 1)], f"{WHOLE}, x int", {}, "'x' of the data is not a column"),
        ([("1", "a", None)], "id string, state string, amount decimal(10,2)", {}, "column 'id' is string"),
        ([(1.5, "a", None)], "id double, state string, amount decimal(10,2)", {}, "1.5 does not fit BIGINT"),
        ([(1, "a", "1")], "id long, state string, op string", PART, "the kind is '1'"),
        ([(1, "a", None)], WHOLE, {"kinds": "op"}, "which the data lacks"),
        ([(1, "a", None)], WHOLE, {"kinds": ["+I"]}, "it is the name of a column"),
        ([(1, "a", None)], WHOLE, {"overwrite": {"x": 1}}, "not a partition column"),
        ([(1, "a", None)], WHOLE, {"overwrite": "all"}, "overwrite is 'all'"),
        ([(1, "a", None)], "id long, state string, amount interval day", {}, "is duration.us. in the data"),
        ([(1, "a", 2)], "id long, state string, id int", {}, "occurs 2 times"),
    ],
)
def test_bad_rows_and_calls_are_refused_with_our_class_and_nothing_changes(
    spark: SparkSession, orders: mg.Table, values: list[Any], schema: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ms.write(spark.createDataFrame(values, schema), orders, **arguments)
    assert orders.snapshots() == ()
    assert list(Path(orders.path).glob("bucket-*/*")) == []
    assert rows(orders) == []


def test_a_path_without_a_table_says_how_to_make_one(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="create_table"):
        ms.write(spark.range(1), str(tmp_path / "nothing"))


def test_a_failed_attempt_leaves_nothing_visible(spark: SparkSession, catalog: mg.Catalog) -> None:
    log = catalog.create_table("shop.log", schema={"id": "BIGINT"}, options={"write-buffer-size": "1 kb"})

    def poisoned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        for batch in batches:
            for start in range(0, batch.num_rows, 500):
                yield batch.slice(start, 500)
        if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 0:
            os._exit(1)

    snapshot = ms.write(spark.range(0, 4000, 1, 2).mapInArrow(poisoned, "id long"), log)
    assert snapshot is not None
    assert snapshot.id == 1
    assert [r["id"] for r in rows(log)] == list(range(4000))
    assert len(log.snapshots()) == 1


def test_two_threads_write_one_table(spark: SparkSession, orders: mg.Table) -> None:
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    errors: list[BaseException] = []

    def work(start: int) -> None:
        try:
            ms.write(spark.range(start, start + 50).selectExpr("id", "'s' as state", "1.0 as amount"), orders)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i * 50,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(orders.snapshots()) == 2
    assert [r["id"] for r in rows(orders)] == list(range(100))
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before


def _interrupted(spark: SparkSession, orders: mg.Table, marker: Path) -> DataFrame:
    """Return rows of the ids 0 to 4 whose first task commits rows of the ids 0 to 9 itself, before it gives its own."""
    path = orders.path

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not marker.exists():
                marker.touch()
                mg.table(path).write([{"id": i, "state": "early", "amount": None} for i in range(10)])
            yield batch

    late = spark.range(0, 5, 1, 1).selectExpr("id", "'late' AS state", "CAST(NULL AS DECIMAL(10, 2)) AS amount")
    return late.mapInArrow(work, late.schema)


@pytest.mark.parametrize("through", ["arrow", "files", "data source"])
def test_the_rows_of_the_later_commit_are_the_newer_ones(
    through: str, spark: SparkSession, orders: mg.Table, tmp_path: Path
) -> None:
    df = _interrupted(spark, orders, tmp_path / "written")
    if through == "data source":
        ms.register(spark)
        df.write.format("merganser").mode("append").save(orders.path)
    else:
        ms.write(df, orders, through=through)
    assert [snapshot.commit_kind for snapshot in orders.snapshots()] == ["APPEND", "APPEND"]
    assert [r["state"] for r in rows(orders)] == ["late"] * 5 + ["early"] * 5
    orders.compact(full=True)
    assert [r["state"] for r in rows(orders)] == ["late"] * 5 + ["early"] * 5
    assert orders.check() == ()
    live = {Path(row["file_path"]).name for row in orders.system("files").to_pylist()}
    assert live <= {path.name for path in Path(orders.path).rglob("data-*")}


def test_an_explicit_number_of_tasks_and_no_adaptive_execution(spark: SparkSession, orders: mg.Table) -> None:
    ms.write(
        spark.range(90).selectExpr("id", "'x' as state", "1.0 as amount"),
        orders.with_options({"sink.parallelism": "2"}),
    )
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        ms.write(
            spark.range(10).select(f.col("id"), f.lit("y").alias("state"), f.lit(None).cast("int").alias("amount")),
            orders,
        )
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert [r["state"] for r in rows(orders)] == ["y"] * 10 + ["x"] * 80
    assert orders.files().num_rows == 6


def test_rows_that_are_no_frame_of_spark_are_refused(spark: SparkSession, orders: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"a pandas.*DataFrame, and a Spark DataFrame is wanted"):
        ms.write(orders.read().to_pandas(), orders)


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    "call",
    [
        lambda rows, table: ms.lookup_join(rows, table, on="id"),
        lambda rows, table: ms.write_stream(rows, table),
        lambda rows, table: ms.cdc.parse(rows, "json", table),
        lambda rows, table: ms.cdc.write(rows, "json", {"t": table}),
        lambda rows, table: ms.cdc.write_stream(rows, "json", {"t": table}),
    ],
)
def test_rows_of_this_process_are_refused_by_name(call: Any, catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.local", {"id": "INT"}, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidInputError, match=r"the rows are a builtins\.list, and a Spark DataFrame is wanted"):
        call([1], table)


@pytest.mark.parametrize("through", ["arrow", "files"])
def test_a_refused_value_is_named_by_the_key_of_its_row(through: str, spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        f"shop.named_{through}", {"id": "INT", "v": "TINYINT"}, ["id"], options={"bucket": "2"}
    )
    rows = spark.range(0, 1000, 1, 4).selectExpr("CAST(id AS INT) AS id", "IF(id = 777, 300, 1) AS v")
    with pytest.raises(mg.errors.InvalidInputError, match=r"value 300 does not fit TINYINT \(the row with id = 777\)"):
        ms.write(rows, table, through=through)


@pytest.mark.parametrize("producer", ["lookup", "per-record"])
def test_changes_that_tasks_find_out_are_those_of_one_process(
    spark: SparkSession, catalog: mg.Catalog, producer: str
) -> None:
    options = {"bucket": "3", "changelog-producer": producer}
    table, alone = (
        catalog.create_table(f"shop.{name}", {"id": "BIGINT", "v": "INT"}, primary_key=["id"], options=options)
        for name in ("by_tasks", "alone")
    )
    for start in (0, 5):
        given = [(i % 20, start + i, ("+I", "+U", "-D")[i % 7 % 3]) for i in range(start, start + 60)]
        with patch("merganser.write.recording._HERE_ROWS", 0):
            ms.write(spark.createDataFrame(given, "id long, v int, kind string").coalesce(1), table, kinds="kind")
        alone.write([{"id": i, "v": v} for i, v, _ in given], kinds=[kind for _, _, kind in given])
    assert table.changes(1).to_pylist() == alone.changes(1).to_pylist()
    assert not list(Path(table.path).rglob("received-*"))
    assert rows(table) == rows(alone)


def test_a_write_and_a_read_warn_of_nothing(spark: SparkSession, orders: mg.Table) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        ms.write(ms.read(spark, orders), orders)
        assert ms.read(spark, orders).count() == orders.read().count()
