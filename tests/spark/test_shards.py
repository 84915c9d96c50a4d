"""Records of shards as a stream of Spark: order, lineage, starts, restarts, errors."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError, StreamNotFoundError, StreamParameterError, TrimmedDataError
from merganser.schema import types as t
from merganser.spark.names import Spelling
from merganser.spark.shard_source import RecordsAsked, shard_request_of
from merganser.spark.source import MerganserSource
from merganser.spark.stream_reader import StreamReader
from merganser.spark.types import arrow_schema_of
from merganser.stream.batches import UNLIMITED

pytestmark = pytest.mark.spark
Batch = list[dict[str, Any]]


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table(
        "shop.orders",
        "id INT, state STRING, amount INT, PRIMARY KEY (id)",
        options={"bucket": "2", "stream.enabled": "true"},
    )


@pytest.fixture
def follow(tmp_path: Path) -> Callable[..., dict[int, Batch]]:
    """Run a query until it has caught up, or its sink broke; return its batches that have rows, by number."""

    def run(frame: DataFrame, fails: Callable[[int], bool] = lambda _: False) -> dict[int, Batch]:
        found: dict[int, Batch] = {}

        def take(rows: DataFrame, number: int) -> None:
            found[number] = [row.asDict() for row in rows.withColumn("task", f.spark_partition_id()).collect()]
            if fails(number):
                raise RuntimeError("the sink broke after it had stored the batch")

        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        try:
            query.trigger(availableNow=True).start().awaitTermination(120)
        except PySparkException as error:
            assert "the sink broke" in str(error), error
        return {number: batch for number, batch in found.items() if batch}

    return run


def load(spark: SparkSession, table: mg.Table, **options: Any) -> DataFrame:
    return spark.readStream.format("merganser").option("shards", "true").options(**options).load(table.path)


def test_each_shard_is_a_task_and_children_come_in_a_later_batch(
    spark: SparkSession, orders: mg.Table, follow: Callable[..., dict[int, Batch]]
) -> None:
    values = [{"id": i, "state": "new", "amount": 1} for i in range(8)]
    orders.write(values)
    orders.write([{"id": 0, "state": "paid", "amount": 1}])
    (batch,) = follow(load(spark, orders)).values()
    assert list(batch[0]) == ["_shard_id", "_action", "_sequence", "_commit_time", "_changed", *values[0], "task"]
    tasks = {(row["_shard_id"], row["task"]) for row in batch}
    assert len(tasks) == 2 == len({shard for shard, _ in tasks})
    assert [(r["_action"], r["_changed"], r["state"], r["amount"]) for r in batch if r["id"] == 0] == [
        ("PUT", None, "new", 1),
        ("UPDATE", ["state"], "paid", None),
    ]
    direct = [
        record
        for shard in orders.shards()
        for record in orders.records(orders.shard_iterator(shard.shard_id, at="trim_horizon")).records.to_pylist()
    ]
    assert sorted(r["_sequence"] for r in batch) == sorted(r["_sequence"] for r in direct)

    orders.write([{"id": 1, "state": "paid", "amount": 1}], kinds=["-D"])
    orders.rescale(3)
    orders.write([{"id": i, "state": "sent", "amount": 2} for i in range(8)])
    orders.rescale(1)
    orders.write([{"id": 3, "state": "done", "amount": 2}])
    before, split, merged = follow(load(spark, orders, before="true", full="true")).values()
    parents = {shard.shard_id: set(shard.parents) for shard in orders.shards()}
    assert [(r["_action"], r["id"], r["state"], r["_before"]["state"]) for r in before] == [("DELETE", 1, "new", "new")]
    assert {r["_before"]["state"] if r["_before"] else None for r in split} == {None, "new", "paid"}
    assert [(r["id"], r["state"], r["amount"], r["_before"]["state"]) for r in merged] == [(3, "done", 2, "sent")]
    for later, earlier in ((split, before), (merged, split)):
        assert {r["_shard_id"] for r in earlier} <= set().union(*(parents[r["_shard_id"]] for r in later))


def test_every_record_counts_once_however_often_the_sink_breaks(
    spark: SparkSession, orders: mg.Table, follow: Callable[..., dict[int, Batch]]
) -> None:
    rng = random.Random(7)
    kept: dict[int, Batch] = {}
    state: dict[int, int | None] = {}
    for _turn in range(2):
        for _ in range(3):  # several writers
            table = mg.table(orders.path)
            keys = rng.sample(range(12), 4)
            kinds = [rng.choice(["+I", "+I", "-D"]) for _ in keys]
            rows = [{"id": key, "state": "s", "amount": rng.randrange(1000)} for key in keys]
            table.write(rows, kinds=kinds)
            for row, kind in zip(rows, kinds, strict=True):
                state[row["id"]] = None if kind == "-D" else row["amount"]
            if rng.random() < 0.5:
                table.rescale(rng.randrange(1, 5))
        mg.table(orders.path).expire(retain_max=1, retain_min=1)
        frame = ms.read_stream(spark, orders, shards=True, full=True, maxRowsPerTrigger=9)
        broken = len(kept) + 1
        for number, batch in (follow(frame, lambda number, broken=broken: number == broken) | follow(frame)).items():
            for row in batch:
                del row["task"]
            assert kept.setdefault(number, batch) == batch  # a batch that comes again is the same
    last: dict[int, dict[str, Any]] = {}
    count = 0
    for _, batch in sorted(kept.items()):
        for row in batch:
            assert row["_sequence"] > last.get(row["id"], {"_sequence": -1})["_sequence"]
            last[row["id"]] = row
            count += 1
    assert {k: None if r["_action"] == "DELETE" else r["amount"] for k, r in last.items()} == {
        k: v for k, v in state.items() if v is not None or k in last
    }
    wanted = sum(
        orders.records(orders.shard_iterator(s.shard_id, at="trim_horizon"), limit=1000).records.num_rows
        for s in orders.shards()
    )
    assert count == wanted


def test_a_stream_of_records_starts_where_the_options_say(catalog: mg.Catalog, orders: mg.Table) -> None:
    orders.write([{"id": 1, "state": "a", "amount": 1}])
    middle = orders.write([{"id": 2, "state": "a", "amount": 1}])
    assert middle is not None
    at = middle.commit_time.replace(tzinfo=None).isoformat()

    def rows(**options: str) -> int:
        source = MerganserSource({"path": orders.path, "shards": "true", "columns": "ID,_action"} | options)
        schema = source.schema()
        assert schema.names == ["id", "_action"]
        reader = source.streamReader(schema)
        end = reader.latestOffset()
        assert len(str(end)) < 150
        return sum(batch.num_rows for part in reader.partitions({"version": 1}, end) for batch in reader.read(part))

    assert rows() == rows(start="trim_horizon") == 2
    assert rows(start="latest") == 0
    assert rows(timestamp=at) == 1
    assert rows(timestamp=at, timezone="Asia/Tokyo") == 2  # nine hours earlier
    for wrong, error in (
        ({"start": "newest"}, StreamParameterError),
        ({"scan.mode": "latest"}, InvalidInputError),
        ({"consumer-id": "a"}, InvalidInputError),
        ({"where": "id = 1"}, InvalidInputError),
        ({"snapshot": "1"}, InvalidInputError),
        ({"shards": "yes"}, InvalidInputError),
        ({"shards": "false", "start": "latest"}, InvalidInputError),
        ({"path": orders.path + "$audit_log"}, InvalidInputError),
    ):
        with pytest.raises(error):
            rows(**wrong)


def test_a_position_that_the_stream_does_not_keep_is_refused_with_its_code(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    catalog = mg.catalog(str(tmp_path), clock=lambda: now[0])
    catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT, PRIMARY KEY (k)", options={"stream.enabled": "true"})

    def reader() -> Any:
        request = shard_request_of(
            table,
            None,
            RecordsAsked(),
            columns=None,
            spelling=Spelling((t.Field(0, "k", t.Int()),), exact=True),
            where=None,
            setting=table.setting("UTC"),
            given=(),
            limits=UNLIMITED,
            parallelism=1,
        )
        return StreamReader(request, arrow_schema_of(request.schema))

    table.disable_stream()
    with pytest.raises(StreamNotFoundError):
        reader()
    table.enable_stream("1 h")
    table.write([{"k": 1}])
    first = reader()
    began = first.latestOffset()
    table.write([{"k": 2}])
    now[0] += timedelta(hours=2)
    with pytest.raises(TrimmedDataError, match="retention") as refused:
        reader().latestOffset(began)
    assert refused.value.code == "OTSTrimmedDataAccess"
    table.write([{"k": 3}])
    kept = reader().latestOffset()
    table.write([{"k": 4}])
    assert reader().latestOffset(kept) != kept
    ahead = reader().latestOffset(kept)
    table.rollback(kept["next"] - 1)
    with pytest.raises(TrimmedDataError, match="rolled back"):
        reader().latestOffset(ahead)
    running = reader()
    assert running.latestOffset(kept) == kept
    table.disable_stream()
    time.sleep(0.15)  # the source looks ten times a second
    with pytest.raises(StreamNotFoundError):
        running.latestOffset(kept)
    table.enable_stream("1 h")
    for one in (running, reader()):
        with pytest.raises(TrimmedDataError, match="belongs to the stream"):
            one.latestOffset(kept)
    with pytest.raises(InvalidInputError, match="none of a shard stream"):
        reader().latestOffset({"version": 1, "first": 1, "next": 2})


def test_writes_compactions_and_rescales_of_spark_are_in_the_stream(
    spark: SparkSession, orders: mg.Table, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    columns = "id INT, state STRING, amount INT"

    def rows(first: int, state: str) -> DataFrame:
        return spark.range(first, first + 8).selectExpr("CAST(id AS INT) id", f"'{state}' state", "1 amount")

    ms.write(rows(0, "new"), orders)
    ms.compact(spark, orders, full=True)
    ms.rescale(spark, orders, 3)
    rows(4, "paid").write.parquet(str(source))
    stream = spark.readStream.schema(columns).parquet(str(source))
    ms.write_stream(stream, orders, str(tmp_path / "c"), trigger="availableNow").awaitTermination()
    ms.compact(spark, orders, full=True)
    seen: dict[int, str] = {}
    kinds = []
    for shard in orders.shards():
        at: str | None = orders.shard_iterator(shard.shard_id, at="trim_horizon")
        while at is not None:
            page = orders.records(at, limit=3, full=True)
            for row in page.records.to_pylist():
                assert (row["id"] in seen) == (row["_action"] == "UPDATE")
                seen[row["id"]] = row["state"]
                kinds.append(row["_action"])
            at = page.next_iterator
            if not page.may_have_more:
                break
    assert seen == {i: "new" if i < 4 else "paid" for i in range(12)}
    assert (kinds.count("PUT"), kinds.count("UPDATE"), len(kinds)) == (12, 4, 16)
    assert sum(not shard.closed for shard in orders.shards()) == 3


def test_rows_that_are_marked_and_rows_that_are_counted_have_records_after_expiry(
    spark: SparkSession, catalog: mg.Catalog, follow: Callable[..., dict[int, Batch]]
) -> None:
    options = {"stream.enabled": "true", "deletion-vectors.enabled": "true"}
    marked = catalog.create_table("shop.marked", "p INT, k INT, v INT", partition_by=["p"], options=options)
    marked.write([{"p": p, "k": k, "v": 0} for p in (0, 1) for k in range(5)])
    marked.delete("k = 1 or k = 4")
    marked.update("k = 2 and p = 1", {"v": "7"})
    marked.write([{"p": 0, "k": 9, "v": 9}], overwrite={"p": 0})
    marked.write([{"p": 1, "k": 8, "v": 8}])
    marked.expire(retain_max=1, retain_min=1)
    rows: Counter[tuple[int, int, int]] = Counter()
    for batch in follow(load(spark, marked, maxFilesPerTrigger="1")).values():
        for row in batch:
            rows[row["p"], row["k"], row["v"]] += -1 if row["_action"] == "DELETE" else 1
    assert +rows == Counter((row["p"], row["k"], row["v"]) for row in marked.read().to_pylist())
    assert not -rows


def test_a_counting_table_has_a_record_in_spark_for_each_row_that_comes_or_goes(
    spark: SparkSession, catalog: mg.Catalog, follow: Callable[..., dict[int, Batch]]
) -> None:
    options = {"stream.enabled": "true", "write-mode": "change-log", "bucket": "2"}
    counted = catalog.create_table("shop.counted", "k INT, v INT", options=options)
    counted.write([{"k": k, "v": 0} for k in (1, 1, 2)])
    counted.write([{"k": 1, "v": 0}, {"k": 3, "v": 0}], kinds=["-D", "+I"])
    counted.expire(retain_max=1, retain_min=1)
    (batch,) = follow(load(spark, counted)).values()
    wanted = [("DELETE", 1), ("PUT", 1), ("PUT", 1), ("PUT", 2), ("PUT", 3)]
    assert sorted((row["_action"], row["k"]) for row in batch) == wanted
