"""`ms.write_stream` and the stream sink of the data source: each micro-batch is one commit, exactly once."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError

pytestmark = pytest.mark.spark
Row = tuple[Any, ...]


@pytest.fixture
def visits(catalog: mg.Catalog) -> mg.Table:
    options = {"bucket": "2", "changelog-producer": "lookup"}
    return catalog.create_table("shop.visits", {"id": "INT", "page": "STRING"}, primary_key=["id"], options=options)


@pytest.fixture
def arrive(spark: SparkSession, tmp_path: Path) -> Callable[[list[Row]], DataFrame]:
    """Let a file of rows arrive; return the stream of all files, one file per batch."""

    def made(rows: list[Row]) -> DataFrame:
        frame = spark.createDataFrame(rows, "id INT, page STRING, op STRING").coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema("id INT, page STRING, op STRING").option("maxFilesPerTrigger", 1)
        return stream.parquet(str(tmp_path / "in"))

    return made


def _rows(table: mg.Table) -> list[Row]:
    return sorted(tuple(row.values()) for row in table.read().to_pylist())


def _run(frame: DataFrame, table: mg.Table, checkpoint: Path, **options: Any) -> StreamingQuery:
    query = ms.write_stream(frame, table, str(checkpoint), kinds="op", trigger="availableNow", **options)
    query.awaitTermination()
    return query


def test_each_batch_is_a_commit_of_the_query(
    visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    frame = arrive([(1, "/", "+I"), (2, "/a", "+I"), (1, "/b", "+U")])
    _run(frame, visits, tmp_path / "cp", commit_user="visits")
    arrive([(2, None, "-D"), (3, "/c", "+I")])
    query = _run(frame, visits, tmp_path / "cp", commit_user="visits")
    numbers = query.lastProgress["observedMetrics"]["merganser"].asDict()
    assert numbers.pop("bytes") > 0
    assert numbers == {"rows": 2, "retractions": 1, "files": 2, "dead_letters": 0}
    assert _rows(visits) == [(1, "/b"), (3, "/c")]
    appends = [one for one in visits.snapshots() if one.commit_kind == "APPEND"]
    assert [one.commit_identifier for one in appends] == [0, 1]
    assert len({one.commit_user for one in appends}) == 1
    assert appends[0].commit_user.startswith("visits-")
    assert sorted(tuple(row.values()) for row in visits.changes(3).to_pylist()) == [("+I", 3, "/c"), ("-D", 2, "/a")]


def test_a_new_checkpoint_is_no_repeat(
    visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    _run(arrive([(1, "/", "+I")]), visits, tmp_path / "cp")
    shutil.rmtree(tmp_path / "cp")
    shutil.rmtree(tmp_path / "in")
    _run(arrive([(2, "/a", "+I")]), visits, tmp_path / "cp")
    assert _rows(visits) == [(1, "/"), (2, "/a")]


def test_a_batch_that_spark_repeats_is_applied_once(
    visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    _run(arrive([(1, "/", "+I")]), visits, tmp_path / "cp")
    before = visits.snapshots()
    (tmp_path / "cp" / "commits" / "0").unlink()  # as if Spark had died before it wrote this
    (tmp_path / "cp" / "commits" / ".0.crc").unlink()
    _run(arrive([(2, "/a", "+I")]), visits, tmp_path / "cp")
    assert visits.snapshots()[: len(before)] == before
    assert [one.commit_identifier for one in visits.snapshots()[len(before) :]] == [1, 1]
    assert _rows(visits) == [(1, "/"), (2, "/a")]


def test_a_query_killed_before_its_first_batch_was_noted_starts_again(
    visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    """Spark starts no query whose checkpoint has a file of a first batch, not even the one it had not renamed yet."""
    frame = arrive([(1, "/", "+I")])
    offsets = tmp_path / "cp" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.9ea194cc-5d59-4ef3-859f-edc71aa90e1e.tmp", "..0.9ea194cc-5d59-4ef3-859f-edc71aa90e1e.tmp.crc"):
        (offsets / name).write_bytes(b"v1")
    _run(frame, visits, tmp_path / "cp")
    assert _rows(visits) == [(1, "/")]


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("back", [1, 2])
def test_another_batch_of_a_committed_number_is_refused(
    visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path, back: int
) -> None:
    """The checkpoint is that of an earlier time, and the source has gone on."""
    copies = []
    for number in range(3):
        copies.append(shutil.copytree(tmp_path / "cp", tmp_path / f"cp{number}") if number else None)
        _run(arrive([(number, "/", "+I")]), visits, tmp_path / "cp")
    before = visits.snapshots(), sorted(path.name for path in Path(visits.path).glob("bucket-*/*"))
    shutil.rmtree(tmp_path / "cp")
    shutil.copytree(copies[3 - back], tmp_path / "cp")
    with pytest.raises(StreamingQueryException, match="older than the table"):
        _run(arrive([(9, "/late", "+I")]), visits, tmp_path / "cp")
    assert (visits.snapshots(), sorted(path.name for path in Path(visits.path).glob("bucket-*/*"))) == before
    visits.rollback(before[0][-1].id - 2 * back)
    _run(arrive([(10, "/", "+I")]), visits, tmp_path / "cp")
    assert _rows(visits) == [(number, "/") for number in range(3)] + [(9, "/late"), (10, "/")]


def test_a_table_that_was_made_anew_is_refused_unless_its_note_is_removed(
    visits: mg.Table, catalog: mg.Catalog, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    """A query that went on would leave the rows of all earlier batches out without a word."""
    _run(arrive([(1, "/", "+I")]), visits, tmp_path / "cp")
    catalog.drop_table("shop.visits")
    options = dict(visits.definition.schema.options)
    again = catalog.create_table("shop.visits", {"id": "INT", "page": "STRING"}, primary_key=["id"], options=options)
    with pytest.raises(StreamingQueryException, match="dropped and made anew"):
        _run(arrive([(2, "/a", "+I")]), again, tmp_path / "cp")
    assert again.snapshots() == ()
    assert list(Path(again.path).glob("bucket-*/*")) == []
    shutil.rmtree(tmp_path / "cp" / "merganser")
    _run(arrive([(3, "/b", "+I")]), again, tmp_path / "cp")
    assert _rows(again) == [(2, "/a"), (3, "/b")]


def test_a_row_that_does_not_fit_stops_the_query_with_our_error(
    visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="row kind"):
        _run(arrive([(1, "/", "+I"), (2, "/", "?")]), visits, tmp_path / "cp")
    assert visits.snapshots() == ()
    assert list(Path(visits.path).glob("bucket-*/data-*")) == []


def test_a_query_without_a_checkpoint_of_its_own_keeps_it_below_that_of_the_session(
    spark: SparkSession, visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        for row in [(1, "/", "+I"), (2, "/a", "+I")]:
            query = ms.write_stream(arrive([row]), visits, kinds="op", trigger="availableNow", name="visits")
            query.awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert len(list((tmp_path / "all" / "visits" / "merganser").iterdir())) == 1
    assert [one.commit_identifier for one in visits.snapshots() if one.commit_kind == "APPEND"] == [0, 1]
    assert _rows(visits) == [(1, "/"), (2, "/a")]


def test_a_query_that_is_stopped_while_its_tasks_run_ends_without_an_error(
    spark: SparkSession, visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    running = tmp_path / "running"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            running.touch()
            while running.exists():
                time.sleep(0.05)
            yield batch

    frame = arrive([(1, "/", "+I")])
    query = ms.write_stream(frame.mapInArrow(wait, frame.schema), visits, str(tmp_path / "cp"), kinds="op")
    while not running.exists():
        time.sleep(0.05)
    query.stop()
    query.awaitTermination()
    assert query.exception() is None
    assert visits.snapshots() == ()
    running.unlink()
    _run(frame, visits, tmp_path / "cp")
    assert _rows(visits) == [(1, "/")]


def test_the_result_of_an_aggregation_replaces_the_table(
    spark: SparkSession, catalog: mg.Catalog, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    table = catalog.create_table("shop.counts", {"page": "STRING", "n": "BIGINT"}, options={"bucket": "-1"})
    for rows, wanted in (
        ([(1, "/", "+I"), (2, "/", "+I")], [("/", 2)]),
        ([(3, "/", "+I"), (4, "/a", "+I")], [("/", 3), ("/a", 1)]),
    ):
        counts = arrive(rows).groupBy("page").count().withColumnRenamed("count", "n")
        query = ms.write_stream(counts, table, str(tmp_path / "cp"), mode="complete", trigger="availableNow")
        query.awaitTermination()
        assert _rows(table) == wanted


def test_the_data_source_is_a_sink_and_stores_the_watermark(
    spark: SparkSession, catalog: mg.Catalog, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    table = catalog.create_table(
        "shop.times", {"id": "INT", "at": "TIMESTAMP_LTZ(6)"}, primary_key=["id"], options={"bucket": "2"}
    )
    for i in range(3):
        arrive([(i, f"2026-01-0{i + 1} 00:00:00", "+I")])
    frame = arrive([(9, "2026-01-09 00:00:00", "+I")]).selectExpr("id", "to_timestamp(page) AS at")
    marked = frame.withWatermark("at", "1 hour")
    writer = marked.writeStream.format("merganser").option("checkpointLocation", str(tmp_path / "cp"))
    writer.option("compaction", "beside").trigger(availableNow=True).start(table.path).awaitTermination()
    assert sorted(row["id"] for row in table.read().to_pylist()) == [0, 1, 2, 9]
    marks = [one.watermark for one in table.snapshots() if one.commit_kind == "APPEND"]
    assert any(mark is not None and mark > 0 for mark in marks)


def test_rows_of_one_key_keep_the_order_of_their_task(
    spark: SparkSession, catalog: mg.Catalog, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    table = catalog.create_table(
        "shop.pages", {"id": "INT", "page": "STRING"}, primary_key=["id"],
        options={"bucket": "3", "merge-engine": "aggregation", "fields.page.aggregate-function": "listagg"},
    )  # fmt: skip
    frame = arrive([(i % 5, str(i), "+I") for i in range(400)])
    _run(frame, table, tmp_path / "cp")
    assert _rows(table) == [(k, ",".join(str(i) for i in range(400) if i % 5 == k)) for k in range(5)]


def test_what_cannot_be_written_is_refused_before_the_start(
    spark: SparkSession, visits: mg.Table, arrive: Callable[[list[Row]], DataFrame], tmp_path: Path
) -> None:
    frame = arrive([(1, "/", "+I")])
    place = str(tmp_path / "cp")
    for broken, said in (
        (lambda: ms.write_stream(spark.createDataFrame([(1, "/")], "id INT, page STRING"), visits, place), "stream"),
        (lambda: ms.write_stream(frame, visits, place), "op"),
        (lambda: ms.write_stream(frame, visits, kinds="op"), "directory for its progress"),
        (lambda: ms.write_stream(frame, visits, 7, kinds="op"), "path of a directory"),  # type: ignore[arg-type]
        (lambda: ms.write_stream(frame, visits, place, kinds="op", mode="update"), "'complete'"),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", compaction="later"), "'beside'"),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", commit_user=""), "commit_user is ''"),
        (lambda: ms.write_stream(frame.drop("page"), visits, place, kinds="op"), "page"),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", **{"bukcet": "1"}), "bucket"),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", trigger="availableNowz"), "mean 'availableNow'"),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", trigger="soon"), "'soon'}: .*Nothing was started"),
        (
            lambda: ms.write_stream(frame, visits, place, kinds="op", trigger={"availableNo": True}),
            "Did you mean 'availableNow'. Nothing was started",
        ),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", trigger={"once": 3}), "{'once': 3}: .*Nothing"),
        (lambda: ms.write_stream(frame, visits, place, kinds="op", trigger={}), "Give one of processingTime, "),
    ):
        with pytest.raises(InvalidInputError, match=said):
            broken()
    rows = frame.drop("op").writeStream.format("merganser").option("checkpointLocation", place)
    with pytest.raises(PySparkException, match=r"option 'where' is for reads. Nothing was started. To write some of"):
        rows.option("where", "id = 1").trigger(availableNow=True).start(visits.path).awaitTermination()
    assert visits.latest_snapshot() is None
    assert not any((Path(place) / "commits").glob("[0-9]*"))
    assert spark.streams.active == []
