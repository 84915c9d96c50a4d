"""Streaming queries of Spark on tables with a log: what they get from it, and from the files."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("pyspark")

import merganser as mg
import merganser.spark as ms
from merganser.changes import add_column, remove_option, set_option
from merganser.errors import ConflictError
from merganser.log import commit_log
from merganser.log import kafka as log_kafka
from merganser.log import tail as log_tail
from merganser.stream import waiting
from merganser.stream.follow import TableStream
from tests.log.broker import Broker
from tests.log.queries import Query, Row

pytestmark = [pytest.mark.broker, pytest.mark.spark]
_names = itertools.count()
_PATIENT = {"continuous.discovery-interval": "600 s"}
"""With it a query that listens learns of a commit by the log alone."""


@pytest.fixture
def warehouse(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(tmp_path / f"spark{next(_names)}-{time.time_ns()}")
    found.create_database("db")
    return found


def _table(catalog: mg.Catalog, broker: Broker, key: str = "k", **options: str) -> mg.Table:
    told = {"bucket": "2", "log.system": "kafka", "kafka.bootstrap.servers": broker.address, **options}
    keys = key.split()
    return catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, keys, options=told).with_options(_PATIENT)


@contextmanager
def _query(table: mg.Table, offset: dict[str, Any] | None = None, **how: Any) -> Iterator[Query]:
    found = Query(table, offset, **how)
    try:
        yield found
    finally:
        found.stop()


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("key", "options", "heard"),
    [
        ("k", {}, 2),  # not the delete, which has its key alone in the log
        ("k", {"log.changelog-mode": "all"}, 3),
        ("k", {"changelog-producer": "per-record"}, 3),
        ("k", {"changelog-producer": "per-record", "log.changelog-mode": "upsert"}, 1),  # inserts alone
        ("", {"bucket": "-1"}, 2),  # not the delete, which writes files again as an overwrite does
    ],
    ids=["upsert", "all", "complete", "complete upsert", "no key"],
)
def test_a_query_gets_from_the_log_what_the_files_say(
    warehouse: mg.Catalog, broker: Broker, key: str, options: dict[str, str], heard: int
) -> None:
    table = _table(warehouse, broker, key, **options)
    table.write([{"k": k, "v": "a"} for k in range(6)])
    with _query(table) as query, _query(table, where="k < 3", kinds=False, columns=["v"]) as narrow:
        state = query.listen()
        assert len(state) == 6
        assert len(narrow.listen()) == 3
        for commit in (
            lambda: table.write([{"k": k, "v": "b"} for k in range(1, 9)]),
            lambda: table.compact(full=True),
            lambda: table.delete("k = 4"),
            lambda: table.write([{"k": 7, "v": "c"}], overwrite={}),
            lambda: table.write([{"k": 8, "v": None}]),
            lambda: table.write([{"k": 1, "v": None}, {"k": 20, "v": 'é"\\'}]),
        ):
            before = table.snapshots()[-1].id
            commit()
            files = table.with_options({"scan.snapshot-id": f"{before + 1}"}).stream(follow=False)
            changes = [row for plan in files for row in plan.to_pylist()]
            assert _sorted(query.take(len(changes))) == _sorted(changes)
            added = [{"v": row["v"]} for row in changes if row["_row_kind"] in ("+I", "+U") and row["k"] < 3]
            assert _sorted(narrow.take(len(added))) == _sorted(added)
        assert query.heard >= heard
        # Spark asks again for a batch after a crash: another process has heard nothing, and reads the files
        with _query(table) as other:
            for start, end in query.batches:
                assert _sorted(other.read(start, end)) == _sorted(query.read(start, end))
            assert other.heard == 0


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("skipped", [0, 2, 4])
def test_a_query_that_starts_from_a_time_gets_the_rows_that_it_gets_without_a_log(
    warehouse: mg.Catalog, broker: Broker, skipped: int
) -> None:
    logged = _table(warehouse, broker)
    plain = warehouse.create_table("db.plain", {"k": "INT", "v": "STRING"}, ["k"], options={"bucket": "2"})

    def write(n: int) -> None:
        for table in (logged, plain):
            table.write([{"k": n % 2, "v": str(n)}])

    for n in range(4):
        write(n)
        time.sleep(0.005)

    def started(table: mg.Table) -> mg.Table:
        first = table.snapshots()[0].time_millis if not skipped else table.snapshots()[skipped - 1].time_millis + 1
        return table.with_options({"scan.mode": "from-timestamp", "scan.timestamp-millis": str(first)})

    with _query(started(logged)) as query, _query(started(plain)) as other:
        rows = query.listen()
        for n in (4, 5):
            write(n)
            rows += query.take(1)
        assert query.heard == 2
        wanted = other.take(6 - skipped)
        assert sorted(row["v"] for row in wanted) == [str(n) for n in range(skipped, 6)]
        assert _sorted(rows) == _sorted(wanted)
    with _query(started(logged), query.offset) as again:  # the time of the start no longer counts
        assert again.listen() == []
        write(6)
        assert again.take(1) == [{"_row_kind": "+I", "k": 0, "v": "6"}]


def test_a_query_of_an_eventual_log_gets_what_compactions_publish(warehouse: mg.Catalog, broker: Broker) -> None:
    options = {"changelog-producer": "lookup", "log.consistency": "eventual", "write-only": "true"}
    table = _table(warehouse, broker, **options)
    with _query(table) as query:
        query.listen()
        table.write([{"k": 1, "v": "a"}])
        table.with_options({"write-only": "false"}).compact(full=True)
        assert query.take(1) == [{"_row_kind": "+I", "k": 1, "v": "a"}]
        table.write([{"k": 1, "v": "b"}])
        table.with_options({"write-only": "false"}).compact(full=True)
        assert [row["_row_kind"] for row in query.take(2)] == ["-U", "+U"]
        assert query.heard == 4


def test_a_batch_that_the_log_told_of_costs_no_request(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with _query(table) as query:
        query.listen()
        table.write([{"k": 1, "v": "a"}])
        query.take(1)
        query.requests.names.clear()
        for n in range(3):
            table.write([{"k": k, "v": str(n)} for k in range(20)])
            assert len(query.take(20)) == 20
        assert query.requests.names == []
        assert query.heard == 4
        assert query._reader._lag == {"snapshot": 4, "lag_snapshots": 0, "lag_seconds": 0.0, "log_snapshots": 4}


def test_a_query_goes_on_at_its_offset_wherever_the_rows_came_from(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"scan.mode": "latest"})
    with _query(table) as query:
        query.listen()
        table.write([{"k": 1, "v": "a"}])
        query.take(1)
    table.write([{"k": 2, "v": "b"}])
    with _query(table, query.offset) as again:
        assert again.listen() == [{"_row_kind": "+I", "k": 2, "v": "b"}]
        table.write([{"k": 3, "v": "c"}])
        assert again.take(1) == [{"_row_kind": "+I", "k": 3, "v": "c"}]
        assert again.heard == 1


def test_limits_hold_for_the_log(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"read.stream.maxRowsPerTrigger": "10"})
    with _query(table) as query:
        query.listen()
        for n in range(4):
            table.write([{"k": k, "v": str(n)} for k in range(6)])
        table.write([{"k": k, "v": "large"} for k in range(30)])
        table.write([{"k": 0, "v": "last"}])
        rows: list[Row] = []
        sizes: list[int] = []
        while {"_row_kind": "+I", "k": 0, "v": "last"} not in rows:
            found = query.step()
            sizes += [len(found)] if found else []
            rows += found
        assert len(rows) == 4 * 6 + 30 + 1
        assert sizes[:4] == [6, 6, 6, 6]
        assert max(sizes) < 30  # of the files of a commit a batch may take some
        assert query.heard >= 4


def test_large_commits_come_from_the_files(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with _query(table) as query, patch.object(waiting, "LOG_BYTES_MAX", 20_000):
        query.listen()
        table.write([{"k": k, "v": "x" * 100} for k in range(1000)])
        assert len(query.take(1000)) == 1000
        assert query.heard == 0
        query.listen()
        table.write([{"k": 1, "v": "small"}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 1, "v": "small"}]
        assert query.heard == 1


def test_a_query_follows_a_table_that_gets_a_log_and_loses_it(warehouse: mg.Catalog, broker: Broker) -> None:
    table = warehouse.create_table("db.t", {"k": "INT", "v": "STRING"}, ["k"], options={"bucket": "1"})
    table.write([{"k": 0, "v": "before"}])
    with _query(table) as query:
        assert len(query.take(1)) == 1
        table = table.alter([set_option("log.system", "kafka"), set_option("kafka.bootstrap.servers", broker.address)])
        table.write([{"k": 1, "v": "a"}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 1, "v": "a"}]
        query.listen()
        table.write([{"k": 2, "v": "b"}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 2, "v": "b"}]
        assert query.heard == 1
        table = table.alter([remove_option("log.system")])
        table.write([{"k": 3, "v": "c"}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 3, "v": "c"}]
        table.write([{"k": 4, "v": "d"}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 4, "v": "d"}]
        assert not query.hears


def test_rows_of_other_columns_come_from_the_files(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with _query(table) as query:
        query.listen()
        table = table.alter([add_column("w", "INT")])
        table.write([{"k": 1, "v": "a", "w": 7}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 1, "v": "a"}]
        assert query.heard == 0


@pytest.mark.parametrize("listens", [True, False])
def test_a_rollback_is_noticed_if_later_commits_have_come_to_the_same_number(
    warehouse: mg.Catalog, broker: Broker, listens: bool
) -> None:
    table = _table(warehouse, broker)
    for v in "abc":
        table.write([{"k": 1, "v": v}])
    with _query(table) as query:
        query.listen() if listens else query.take(1)
        table.rollback(1)
        for v in "BCDE":
            table.write([{"k": 1, "v": v}])
        with pytest.raises(ConflictError, match="rolled back behind snapshot 3"):
            query.take(1)


def test_an_embedded_stream_notices_a_rollback_that_it_hears_of_with_later_commits(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    for v in "abc":
        table.write([{"k": 1, "v": v}])
    stream = table.stream()
    next(stream)
    writer = threading.Thread(target=lambda: _listening(stream) and table.write([{"k": 1, "v": "d"}]))
    writer.start()
    assert next(stream).to_pylist() == [{"_row_kind": "+I", "k": 1, "v": "d"}]
    writer.join()
    table.rollback(1)
    for v in "BCDEF":
        table.write([{"k": 1, "v": v}])
    with pytest.raises(ConflictError, match="rolled back behind snapshot 4"):
        next(stream)


def _listening(stream: TableStream) -> bool:
    while stream._waiting.looks:
        time.sleep(0.01)
    return True


def test_a_query_goes_on_with_the_files_while_the_broker_is_away(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"log.when-unavailable": "files-only"})
    table = table.with_options({"continuous.discovery-interval": "100 ms"})
    with (
        patch.multiple(commit_log, TIMEOUT_S=0.5, _ASK_S=0.0, _REST_S=0.0),
        patch.multiple(log_tail, TIMEOUT_S=0.5, _ANSWER_S=0.5),
        patch.object(log_kafka, "TIMEOUT_S", 0.5),
        _query(table) as query,
    ):
        query.listen()
        broker.pause()
        try:
            table.write([{"k": 1, "v": "a"}])
            assert query.take(1) == [{"_row_kind": "+I", "k": 1, "v": "a"}]
            query.until(lambda _: not query._reader._batches.listens())
        finally:
            broker.resume()
        commit_log._logs.clear()
        query.listen()
        table.write([{"k": 2, "v": "b"}])
        assert query.take(1) == [{"_row_kind": "+I", "k": 2, "v": "b"}]


def test_a_query_of_spark_hears_the_log_and_repeats_a_batch_from_the_files(
    spark: Any, warehouse: mg.Catalog, broker: Broker, tmp_path: Path
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": k, "v": "state"} for k in range(3)])
    secret = {"kafka.sasl.password": "hunter2"}
    tried: list[tuple[int, list[Any]]] = []
    fails: list[bool] = []

    def take(rows: Any, number: int) -> None:
        tried.append((number, sorted(map(tuple, rows.collect()))))
        if fails and tried[-1][1]:
            raise RuntimeError("stopped here")

    def started(frame: Any) -> Any:
        return frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "own")).start()

    def heard(query: Any) -> int:
        progress = query.lastProgress
        offset = None if progress is None else progress["sources"][0]["latestOffset"]
        return int((json.loads(offset) or {}).get("log_snapshots", 0)) if offset else 0

    def wait(query: Any, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, (tried, query.lastProgress)
            time.sleep(0.02)

    frame = ms.read_stream(spark, table, **secret)
    query = started(frame)
    try:
        wait(query, lambda: len(tried) >= 1)
        n = 2
        while not heard(query):  # it listens some moments after it has caught up
            n += 1
            table.write([{"k": n, "v": "log"}])
            wait(query, lambda: ("+I", n, "log") in tried[-1][1])  # noqa: B023 - called at once
        fails.append(True)
        table.write([{"k": 1, "v": "again"}])
        wait(query, lambda: not query.isActive)
        shown = str(query.lastProgress) + str(query.exception())
    finally:
        query.stop()
    fails.clear()
    number, rows = tried[-1]
    assert rows == [("+I", 1, "again")]
    table.delete("k = 1")
    options = {"read.changelog": "true", **_PATIENT, **secret}
    frame = spark.readStream.format("merganser").options(**options).load(table.path)
    query = started(frame)
    try:
        wait(query, lambda: bool(tried[-1][1]) and tried[-1][1][0][0] == "-D")
        shown += str(query.lastProgress)
    finally:
        query.stop()
    assert tried[-2:] == [(number, rows), (number + 1, [("-D", 1, "again")])]
    shown += frame._jdf.queryExecution().toString()
    shown += "".join(
        path.read_text() for path in (tmp_path / "own").rglob("*") if path.suffix != ".crc" and path.is_file()
    )
    assert "hunter2" not in shown
