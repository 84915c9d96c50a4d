"""`ms.read_stream` and the stream source of the data source: starts, limits, restarts, kinds, views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.spark.source import MerganserSource

pytestmark = pytest.mark.spark
Batch = list[tuple[Any, ...]]


@pytest.fixture
def visits(catalog: mg.Catalog) -> mg.Table:
    table = catalog.create_table(
        "shop.visits",
        schema={"id": "INT", "page": "STRING"},
        primary_key=["id"],
        options={"bucket": "2", "changelog-producer": "lookup"},
    )
    table.write([{"id": i, "page": f"/{i}"} for i in range(8)])
    return table


@pytest.fixture
def batches(tmp_path: Path) -> Callable[..., list[Batch]]:
    """Run a query until it has caught up; return its batches that have rows."""

    def run(frame: DataFrame, checkpoint: str = "checkpoint") -> list[Batch]:
        found: list[Batch] = []
        query = frame.writeStream.foreachBatch(lambda rows, _: found.append(sorted(map(tuple, rows.collect()))))
        query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
        return [batch for batch in found if batch]

    return run


def test_a_stream_begins_with_the_state_and_goes_on_with_changes_after_a_restart(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    frame = ms.read_stream(spark, visits, where="id < 100")
    assert frame.columns == ["_row_kind", "id", "page"]
    assert batches(frame) == [[("+I", i, f"/{i}") for i in range(8)]]
    visits.write([{"id": 1, "page": "/x"}, {"id": 2, "page": None}, {"id": 200, "page": ""}], kinds=["+U", "-D", "+I"])
    changed = [("+U", 1, "/x"), ("-D", 2, "/2"), ("-U", 1, "/1")]
    assert batches(ms.read_stream(spark, visits, where="id < 100")) == [changed]
    assert batches(ms.read_stream(spark, visits, where="id < 100")) == []
    assert batches(ms.read_stream(spark, visits, ["PAGE"], kinds=False), "other") == [
        sorted((row["page"],) for row in visits.read().to_pylist())
    ]


@pytest.mark.campaign(1 / 2)
def test_limits_cut_the_state_and_the_changes_into_batches(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    visits.write([{"id": i, "page": "/y"} for i in range(8)])
    limits = {"maxFilesPerTrigger": 1, "read.stream.maxRowsPerTrigger": 100, "maxbytespertrigger": 10_000_000}
    reader = spark.readStream.format("merganser").options(**limits).option("read.changelog", "true")
    found = batches(reader.load(visits.path))
    assert [len(batch) for batch in found] in ([4, 4], [5, 3], [3, 5], [6, 2], [2, 6])
    visits.write([{"id": 0, "page": "/z"}])
    assert batches(reader.load(visits.path)) == [[("+U", 0, "/z"), ("-U", 0, "/y")]]
    changes = reader.option("scan.snapshot-id", 1).load(visits.path)
    replay: dict[int, str] = {}
    for batch in batches(changes, "from the first"):
        for kind, key, page in sorted(batch, key=lambda row: row[0] in ("+U", "+I")):
            if kind in ("+I", "+U"):
                replay[key] = page
            else:
                assert replay.pop(key) == page
    assert replay == {row["id"]: row["page"] for row in visits.read().to_pylist()}


@pytest.mark.campaign(1 / 2)
def test_an_overwrite_is_cut_into_batches_as_what_it_changed(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    reader = spark.readStream.format("merganser").option("read.changelog", "true").option("maxFilesPerTrigger", 1)
    rows: dict[int, str] = {}

    def follow() -> list[Batch]:
        found = batches(reader.load(visits.path))
        for batch in found:
            for kind, key, page in sorted(batch, key=lambda row: row[0] in ("+U", "+I")):
                if kind in ("+I", "+U"):
                    rows[key] = page
                else:
                    assert rows.pop(key) == page
        return found

    follow()
    visits.write([{"id": i, "page": "/new"} for i in range(4, 12)], overwrite={})
    assert len(follow()) == 2  # one of each bucket
    assert rows == dict.fromkeys(range(4, 12), "/new")
    visits.truncate()
    first = visits.snapshots()[-1].id
    assert {row[0] for row in ms.changes(spark, visits, first).collect()} == {"-D"}
    follow()
    assert rows == {}
    visits.write([{"id": 1, "page": "/1"}])
    visits.write([], overwrite={})
    plain = visits.with_options({"streaming-read-overwrite": "false"})
    with pytest.raises(PySparkException, match="'streaming-read-overwrite' is 'false'"):
        batches(ms.read_stream(spark, plain), "checkpoint")
    batches(ms.read_stream(spark, plain, gaps="skip"), "checkpoint")


def test_views_of_changes_are_streams(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    visits.write([{"id": 0, "page": "/z"}])
    log = spark.readStream.format("merganser").option("scan.mode", "latest").load(visits.path + "$binlog")
    assert log.columns == ["rowkind", "id", "page"]
    batches(log)
    visits.write([{"id": 0, "page": "/a"}])
    again = spark.readStream.format("merganser").option("scan.mode", "latest").load(visits.path + "$binlog")
    assert batches(again) == [[("+U", [0, 0], ["/z", "/a"])]]


def test_a_stream_starts_where_a_read_of_a_state_cannot(visits: mg.Table) -> None:
    """The options name an expired snapshot, the one to come, and in a log any snapshot at all."""
    newest = visits.latest_snapshot()
    assert newest is not None
    visits.expire(retain_max=1, retain_min=1, older_than="2999-01-01")
    for view in ("", "$audit_log", "$changelog"):
        for start in (
            {"scan.snapshot-id": "1"},
            {"scan.snapshot-id": f"{newest.id + 1}"},
            {"scan.timestamp-millis": "1"},
        ):
            source = MerganserSource({"path": visits.path + view} | start)
            schema = source.schema()
            assert schema.names[-2:] == ["id", "page"]
            assert source.streamReader(schema).latestOffset()
            with pytest.raises((mg.errors.ExpiredError, mg.errors.NotFoundError, mg.errors.InvalidInputError)):
                source.reader(schema).partitions()
    for wrong in ({"tag": "none"}, {"scan.tag-name": "none"}, {"snapshot": "1"}):
        with pytest.raises((mg.errors.ExpiredError, mg.errors.NotFoundError)):
            MerganserSource({"path": visits.path} | wrong).schema()


def test_a_consumer_moves_on_with_the_query(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    options = {"consumer-id": "job"}
    assert len(batches(ms.read_stream(spark, visits, **options))) == 1
    visits.write([{"id": 0, "page": "/z"}])
    newest = visits.snapshots()[-1].id
    assert len(batches(ms.read_stream(spark, visits, **options))) == 1
    assert [(one.id, one.next_snapshot) for one in visits.consumers.list()] == [("job", newest + 1)]


@pytest.mark.parametrize("options", [{}, {"shards": "true"}, {"incremental-between": "0,2"}])
def test_an_erasure_between_the_plan_of_a_batch_and_its_tasks_is_named(
    catalog: mg.Catalog, options: dict[str, str]
) -> None:
    own = {"bucket": "2", "changelog-producer": "lookup", "stream.enabled": "true"}
    table = catalog.create_table("shop.people", {"id": "INT", "name": "STRING"}, primary_key=["id"], options=own)
    table.write([{"id": i, "name": f"n{i}"} for i in range(8)])
    table.write([{"id": i, "name": f"m{i}"} for i in range(8)])
    source = MerganserSource({"path": table.path} | options)
    schema = source.schema()
    if "incremental-between" in options:
        reader: Any = source.reader(schema)
        planned = reader.partitions()
    else:
        reader = source.streamReader(schema)
        start = reader.initialOffset()
        planned = reader.partitions(start, reader.latestOffset(start))
    assert planned
    table.erase("id = 1", everywhere=True)
    with pytest.raises(mg.errors.ExpiredError, match=r"erase\(..., everywhere=True\) at .* ended"):
        [list(reader.read(each)) for each in planned]


def test_a_query_that_missed_an_erasure_is_told_to_drop_its_consumer(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    frame = ms.read_stream(spark, visits, **{"consumer-id": "job"})
    assert len(batches(frame)) == 1
    visits.erase("id = 1", everywhere=True)
    with pytest.raises(PySparkException, match=r"call consumers\.drop\('job'\) of '[^']+', and start the query"):
        batches(frame)
    with pytest.raises(PySparkException, match=r"ended the consumer.*call consumers\.drop\('job'\)"):
        batches(frame, "new")
    visits.consumers.drop("job")
    assert [len(rows) for rows in batches(frame, "new")] == [7]


def test_a_query_whose_consumer_an_erasure_has_ended_fails(
    spark: SparkSession, visits: mg.Table, batches: Callable[..., list[Batch]]
) -> None:
    visits.consumers.set("job", next_snapshot=1)
    visits.erase("id = 1", everywhere=True)
    by_path = spark.readStream.format("merganser").option("consumer-id", "job").load(visits.path)
    for frame in (ms.read_stream(spark, visits, **{"consumer-id": "job"}), by_path):
        with pytest.raises(PySparkException, match="ended the consumer"):
            batches(frame)
    visits.consumers.drop("job")
    assert len(batches(by_path)) == 1


def test_what_a_stream_does_not_have_is_refused_at_once(spark: SparkSession, visits: mg.Table) -> None:
    for options, said in (
        ({"scan.tag-name": "a"}, "is for reads that end"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"minRowsPerTrigger": 5}, "go together"),
        ({"maxFilePerTrigger": 5}, "Did you mean 'maxFilesPerTrigger'"),
        ({"read.stream.maxRowPerTrigger": 5}, "Did you mean 'maxRowsPerTrigger'"),
        ({"change-tracking.gaps": "mark"}, "'mark'"),
        ({"gaps": "mark"}, "'mark'"),
        ({"gaps": "skip", "shards": True}, "gaps='skip' goes with changes"),
        ({"consumer-id": ""}, "cannot be the name of a consumer"),
    ):
        with pytest.raises(mg.errors.InvalidInputError, match=said):
            ms.read_stream(spark, visits, **options)
    with pytest.raises(mg.errors.InvalidInputError, match="no column 'x'"):
        ms.read_stream(spark, visits, columns=["x"])
    with pytest.raises(PySparkException, match="cannot be the name of a consumer"):
        spark.readStream.format("merganser").option("consumer-id", "").load(visits.path)
    with pytest.raises(mg.errors.NotFoundError):
        ms.read_stream(spark, visits.path + "x")
