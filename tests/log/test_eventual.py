"""Tables with an eventual log: rows are seen when they are flushed, and readers come to what the table has."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import confluent_kafka as kafka
import pytest

import merganser as mg
from merganser.changes import add_column, set_option
from merganser.commit.log import write_names
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, InvalidInputError, StorageError
from merganser.log import commit_log, uncommitted
from merganser.log.mark import HEADER
from merganser.log.uncommitted import Flushed, flushed_from, uncommitted_topic
from tests.log.broker import Broker
from tests.log.test_log import _following, _records, _row, _said

pytestmark = pytest.mark.broker
_names = itertools.count()
_Get = Callable[[], list[dict[str, Any]]]
_BY_COMPACTION = ("lookup", "full-compaction")


@pytest.fixture
def warehouse(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(tmp_path / f"eventual{next(_names)}-{time.time_ns()}")
    found.create_database("db")
    return found


def _table(catalog: mg.Catalog, broker: Broker, **options: str) -> mg.Table:
    told = {"bucket": "2", "log.system": "kafka", "kafka.bootstrap.servers": broker.address}
    told |= {"log.consistency": "eventual", **options}
    return catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, ["k"], options=told)


def _settled(get: _Get, rows: dict[int, Any], wanted: dict[int, Any]) -> None:
    """Apply plans to rows until they are as wanted; each change has to fit the rows that it comes to."""
    until = time.monotonic() + 20
    while rows != wanted and time.monotonic() < until:
        for row in get():
            kind, k, v = row.values()
            if kind in ("-U", "-D"):
                assert rows.pop(k) == v
            else:
                assert k not in rows
                rows[k] = v
    assert rows == wanted


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"log.changelog-mode": "all", "bucket": "-1"},
        {"log.changelog-mode": "upsert", "changelog-producer": "per-record"},
        {"changelog-producer": "input"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "lookup", "write-only": "true"},
        {"changelog-producer": "full-compaction", "bucket": "-1"},
    ],
)
def test_a_stream_gets_flushed_rows_before_their_commit_and_once(
    warehouse: mg.Catalog, broker: Broker, options: dict[str, str]
) -> None:
    table = _table(warehouse, broker, **options)
    table.write([{"k": 1, "v": "a"}, {"k": 4, "v": "x"}])
    with _following(table) as get, table.writer() as writer:
        assert sorted(row["k"] for row in get()) == [1, 4]
        writer.write([{"k": 1, "v": "b"}, {"k": 2, "v": "c"}])
        writer.flush()
        assert get() == [_row("-U", 1, "a"), _row("+U", 1, "b"), _row("+I", 2, "c")]
        assert [row["k"] for row in table.read().to_pylist()] == [1, 4]
        writer.write([{"k": 4, "v": None}, {"k": 5, "v": "no"}, {"k": 5, "v": None}], kinds=["-D", "+I", "-D"])
        rows: dict[int, Any] = {1: "b", 2: "c", 4: "x"}
        _settled(get, rows, {1: "b", 2: "c"})  # without `flush` rows come one by one: that 5 came and went may follow
        writer.commit()
        writer.write([{"k": 3, "v": "d"}])
        _settled(get, rows, {1: "b", 2: "c", 3: "d"})
        table.write([{"k": 4, "v": "again"}])
        _settled(get, rows, {1: "b", 2: "c", 3: "d", 4: "again"})


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("producer", _BY_COMPACTION)
def test_what_a_compaction_publishes_was_there_with_the_commit(
    warehouse: mg.Catalog, broker: Broker, producer: str
) -> None:
    table = _table(warehouse, broker, **{"changelog-producer": producer, "write-only": "true"})
    upkeep = table.with_options({"write-only": "false"})
    table.write([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    with _following(table) as get:
        assert sorted(row["k"] for row in get()) == [1, 2]  # level 0, too
        with patch.object(uncommitted._Sender, "send"):  # as of a writer whose flushed rows are lost
            table.write([{"k": 1, "v": "c"}])
        assert get() == [_row("-U", 1, "a"), _row("+U", 1, "c")]
        upkeep.compact(full=True)
        table.write([{"k": 3, "v": "d"}])
        assert get() == [_row("+I", 3, "d")]
    records = [(r["snapshot"], r["key"]) for r in _records(table)]
    assert [one for one in records if one[0] in (1, 2)] == [(1, "merganser"), (2, "merganser")]
    compacted = [json.loads(key)["k"] for snapshot, key in records if snapshot == 3]
    assert sorted(compacted) == [1, 2]
    with _following(table, start="latest", **{"scan.remove-normalize": "true"}) as get, table.writer() as writer:
        writer.write([{"k": 4, "v": "e"}])
        writer.flush()
        assert get() == [_row("+I", 4, "e")]
        writer.commit()
        assert get() == [_row("+I", 4, "e")]


@pytest.mark.parametrize("producer", _BY_COMPACTION)
def test_a_stream_at_a_position_goes_on_with_rows_that_no_compaction_has_published(
    warehouse: mg.Catalog, broker: Broker, producer: str
) -> None:
    table = _table(warehouse, broker, **{"changelog-producer": producer, "write-only": "true"})
    table.write([{"k": 1, "v": "a"}])
    stream = table.stream(consumer="reader")
    assert next(stream).to_pylist() == [_row("+I", 1, "a")]
    table.write([{"k": 1, "v": "b"}])
    assert next(stream).to_pylist() == [_row("-U", 1, "a"), _row("+U", 1, "b")]
    stream.close()
    table.write([{"k": 2, "v": "c"}])
    table.with_options({"write-only": "false"}).compact(full=True)
    with table.stream(consumer="reader", follow=False) as again:
        rows = [row for plan in again for row in plan.to_pylist()]
    assert rows == [_row("-U", 1, "a"), _row("+U", 1, "b"), _row("+I", 2, "c")]


@pytest.mark.parametrize("producer", _BY_COMPACTION)
def test_a_table_whose_compactions_publish_gets_an_eventual_log_before_its_rows(
    warehouse: mg.Catalog, broker: Broker, producer: str
) -> None:
    options = {"changelog-producer": producer, "log.consistency": "transactional"}
    table = _table(warehouse, broker, **options)
    table = table.alter([set_option("log.consistency", "eventual")])
    table.write([{"k": 1, "v": "a"}])
    table = table.alter([set_option("log.consistency", "transactional")])
    before = _topics(broker)
    with pytest.raises(InvalidInputError, match=r"'log.consistency' cannot change .* wait for the compaction"):
        table.alter([set_option("log.consistency", "eventual")])
    assert _topics(broker) == before
    table.alter([set_option("changelog-producer", "none"), set_option("log.consistency", "transactional")]).alter(
        [set_option("log.consistency", "eventual")]
    )


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("producer", ["none", *_BY_COMPACTION])
def test_a_stream_has_what_is_flushed_over_what_is_committed_after_any_history(
    warehouse: mg.Catalog, broker: Broker, producer: str, seed: int
) -> None:
    rng = random.Random(f"{producer} {seed}")
    options = {"changelog-producer": producer, "write-only": str(seed == 0).lower(), "bucket": rng.choice(["2", "-1"])}
    table = _table(warehouse, broker, **options)
    rows: dict[int, Any] = {}
    with _following(table) as get:
        for _ in range(12):
            given = [{"k": k, "v": str(rng.randrange(99))} for k in rng.sample(range(8), rng.randrange(1, 5))]
            kinds = [rng.choice(["+I", "+I", "-D"]) for _ in given]
            drawn = rng.random()
            if drawn < 0.4:
                table.write(given, kinds=kinds)
            elif drawn < 0.5:
                table.write(given, overwrite={})
            elif drawn < 0.6:
                table.delete(f"k < {rng.randrange(4)}")
            elif drawn < 0.75:
                table.with_options({"write-only": "false"}).compact(full=rng.random() < 0.5)
            else:
                with table.writer() as writer:
                    writer.write(given, kinds=kinds)
                    writer.flush()
                    flushed = {row["k"]: row["v"] for row, kind in zip(given, kinds, strict=True) if kind == "+I"}
                    there = {k: v for k, v in _there(table).items() if k not in {row["k"] for row in given}}
                    _settled(get, rows, {**there, **flushed})
                    if rng.random() < 0.5:
                        table.write([{"k": 0, "v": "between"}])
                    if rng.random() < 0.5:
                        writer.commit()
            _settled(get, rows, _there(table))
        table.write([{"k": 99, "v": "last"}])  # behind all that could be doubled
        _settled(get, rows, _there(table))


def _there(table: mg.Table) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in table.read().to_pylist()}


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("producer", ["none", "input", *_BY_COMPACTION])
def test_what_an_overwrite_removes_goes(warehouse: mg.Catalog, broker: Broker, producer: str) -> None:
    table = _table(warehouse, broker, **{"changelog-producer": producer})
    table.write([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    with _following(table) as get:
        rows: dict[int, Any] = {}
        _settled(get, rows, {1: "a", 2: "b"})
        table.write([{"k": 2, "v": "c"}, {"k": 3, "v": "d"}], overwrite={})
        _settled(get, rows, {2: "c", 3: "d"})
        table.truncate()
        _settled(get, rows, {})


def test_rows_that_are_never_committed_are_taken_back(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}, {"k": 3, "v": "c"}])
    with _following(table, start="latest") as get:
        with table.writer() as writer:
            writer.write([{"k": 1, "v": "b"}, {"k": 2, "v": "b"}, {"k": 3, "v": "c"}], kinds=["+I", "+I", "-D"])
            writer.flush()
            assert get() == [_row("-U", 1, "a"), _row("+U", 1, "b"), _row("+I", 2, "b"), _row("-D", 3, "c")]
        assert get() == [_row("-U", 1, "b"), _row("+U", 1, "a"), _row("-D", 2, "b"), _row("+I", 3, "c")]
        with patch.object(TableCommit, "_create", side_effect=StorageError("no")), pytest.raises(StorageError):
            table.write([{"k": 1, "v": "never"}])
        rows = {1: "a"}
        _settled(get, rows, {1: "never"})
        _settled(get, rows, {1: "a"})
    assert {record["value"] and record["key"] for record in _records(table)} == {'{"k":1}', '{"k":3}'}


def test_of_two_writers_the_one_that_commits_last_has_the_row(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with _following(table) as get, table.writer() as first, table.writer() as second:
        rows: dict[int, Any] = {}
        first.write([{"k": 1, "v": "first"}, {"k": 2, "v": "first"}])
        first.flush()
        _settled(get, rows, {1: "first", 2: "first"})
        second.write([{"k": 1, "v": "second"}])
        second.flush()
        _settled(get, rows, {1: "second", 2: "first"})
        second.commit()
        first.commit()
        _settled(get, rows, {1: "first", 2: "first"})
        assert table.read(where="k = 1").to_pylist() == [{"k": 1, "v": "first"}]


def test_a_stream_that_starts_gets_what_is_flushed_and_not_what_has_ended(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    for v in "abc":
        table.write([{"k": 1, "v": v}])
    with table.writer() as writer:
        writer.write([{"k": 2, "v": "dropped"}])
        writer.flush()
    with patch.object(uncommitted.Uncommitted, "end"):  # as of a process that was killed after its commit
        table.write([{"k": 3, "v": "old"}])
    table.write([{"k": 3, "v": "new"}])
    with table.writer() as writer:
        writer.write([{"k": 4, "v": "flushed"}])
        writer.flush()
        with _following(table) as get:
            assert sorted(row["v"] for row in get()) == ["c", "new"]
            assert get() == [_row("+I", 4, "flushed")]
            writer.commit()
            table.write([{"k": 5, "v": "last"}])
            assert get() == [_row("+I", 5, "last")]


_KILLED = """
import os, sys
import merganser as mg
writer = mg.table(sys.argv[1]).writer()
writer.write([{"k": 1, "v": "b"}, {"k": 2, "v": "b"}])
writer.flush()
os.kill(os.getpid(), 9)
"""


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("how", ["repair", "time"])
def test_rows_of_a_writer_that_was_killed_go_with_a_repair_or_with_time(
    warehouse: mg.Catalog, broker: Broker, how: str
) -> None:
    table = _table(warehouse, broker, **{"log.uncommitted-timeout": "3 s" if how == "time" else "10 min"})
    table.write([{"k": 1, "v": "a"}])
    with _following(table) as get:
        rows: dict[int, Any] = {}
        _settled(get, rows, {1: "a"})
        ran = subprocess.run([sys.executable, "-c", _KILLED, table.path], check=False)
        assert ran.returncode == -9
        _settled(get, rows, {1: "b", 2: "b"})
        if how == "repair":
            said = "the log lacks nothing\nstreams take back rows that are not committed\n"
            assert _said("log", "repair", table.path) == said
        _settled(get, rows, {1: "a"})


def test_a_writer_that_stops_between_its_snapshot_and_the_log_is_followed_from_the_files(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with _following(table) as get:
        rows: dict[int, Any] = {}
        stop = patch.object(commit_log._TableLog, "show", side_effect=KeyboardInterrupt)
        with stop, pytest.raises(KeyboardInterrupt):
            table.write([{"k": 1, "v": "b"}, {"k": 2, "v": "b"}])
        _settled(get, rows, {1: "b", 2: "b"})
        commit_log._logs.clear()  # as in another process
        table.write([{"k": 3, "v": "c"}])
        _settled(get, rows, {1: "b", 2: "b", 3: "c"})
        _said("log", "repair", table.path)
        table.write([{"k": 4, "v": "d"}])
        assert get() == [_row("+I", 4, "d")]


def test_a_stream_that_goes_on_at_a_position_tells_of_rows_that_went_meanwhile(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with table.writer() as writer:
        stream = table.stream(consumer="reader")
        assert next(stream).to_pylist() == [_row("+I", 1, "a")]
        writer.write([{"k": 1, "v": "b"}, {"k": 2, "v": "b"}])
        writer.flush()
        assert next(stream).num_rows == 3
        del stream  # and with it what it knew
    again = table.stream(consumer="reader")
    assert next(again).to_pylist() == [_row("+U", 1, "a"), _row("-D", 2, None)]


def test_a_stream_without_a_normaliser_gets_rows_as_the_log_has_them(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "a"}])
    with _following(table, start="latest", **{"scan.remove-normalize": "true"}) as get, table.writer() as writer:
        writer.write([{"k": 1, "v": "b"}, {"k": 1, "v": None}], kinds=["+I", "-D"])
        writer.flush()
        assert get() == [_row("+I", 1, "b"), _row("-D", 1, None)]
        writer.commit()
        assert get() == [_row("-D", 1, None)]


def test_columns_filters_and_new_columns_of_a_stream(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with _following(table, columns=["v"], where="k > 1") as get, table.writer() as writer:
        writer.write([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
        writer.flush()
        assert get() == [{"_row_kind": "+I", "v": "b"}]
        writer.commit()
        wider = table.alter([add_column("w", "INT")])
        wider.write([{"k": 3, "v": "c", "w": 1}])
        assert get() == [{"_row_kind": "+I", "v": "c"}]
        wider.delete("k = 2")
        assert get() == [{"_row_kind": "-D", "v": "b"}]


def test_flush_says_what_the_broker_does_not_take_and_the_commit_brings_it(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    error = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
    with _following(table) as get, table.writer() as writer:
        with patch.object(uncommitted._Sender, "_produce", side_effect=error):
            writer.write([{"k": 1, "v": "a"}])
        with pytest.raises(StorageError, match="show rows before their commit"):
            writer.flush()
        writer.commit()
        assert get() == [_row("+I", 1, "a")]


def test_rows_that_a_table_does_not_publish_are_not_shown(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    sent: list[Any] = []
    with patch.object(uncommitted._Sender, "send", lambda _, told, keys, values: sent.append(told)):
        table.write([{"k": 1, "v": "b"}], changes=False)
        table.write([{"k": 1, "v": "c"}], overwrite={})
        assert [told.end for told in sent if told.end is None] == []
        table.write([{"k": 1, "v": "d"}])
    assert [told.end for told in sent if told.end is None] == [None]


def _topics(broker: Broker) -> set[str]:
    return set(kafka.admin.AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10).topics)


def test_the_topic_of_uncommitted_rows_comes_and_goes_with_the_option(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"log.consistency": "transactional"})
    own = uncommitted_topic(table.options["kafka.topic"])
    with table.writer() as writer, pytest.raises(InvalidInputError, match="flush shows rows before their commit"):
        writer.flush()
    assert own not in _topics(broker)
    table = table.alter([set_option("log.consistency", "eventual")])
    assert own in _topics(broker)
    table.write([{"k": 1, "v": "a"}])
    table.alter([set_option("log.consistency", "transactional")])
    assert own not in _topics(broker)
    table.alter([set_option("log.consistency", "eventual")])
    warehouse.drop_table("db.t")
    assert not {own, table.options["kafka.topic"]} & _topics(broker)


@pytest.mark.parametrize(
    ("key", "options", "why"),
    [
        ((), {}, "needs a primary key"),
        (("k",), {"merge-engine": "partial-update"}, "'merge-engine' = 'partial-update'"),
        (("k",), {"merge-engine": "aggregation"}, "'merge-engine' = 'aggregation'"),
        (("k",), {"merge-engine": "first-row"}, "'merge-engine' = 'first-row'"),
        (("k",), {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"}, "with a compaction"),
        (("k",), {"deletion-vectors.enabled": "true"}, "with a compaction"),
        (("k",), {"bucket": "-2"}, "find their bucket"),
    ],
)
def test_tables_whose_flushed_rows_are_not_their_rows_are_refused(
    warehouse: mg.Catalog, broker: Broker, key: tuple[str, ...], options: dict[str, str], why: str
) -> None:
    told = {"bucket": "2", "log.system": "kafka", "kafka.bootstrap.servers": broker.address, **options}
    told |= {"bucket-key": "k"} if not key else {}
    before = _topics(broker)
    with pytest.raises(InvalidInputError, match=why):
        warehouse.create_table("db.t", {"k": "INT", "v": "INT"}, key, options={**told, "log.consistency": "eventual"})
    assert _topics(broker) == before
    table = warehouse.create_table("db.t", {"k": "INT", "v": "INT"}, key, options=told)
    before = _topics(broker)
    with pytest.raises(InvalidInputError, match=why):
        table.alter([set_option("log.consistency", "eventual")])
    assert _topics(broker) == before


def test_a_clone_and_a_branch_have_no_log(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"log.changelog-mode": "upsert"})
    table.write([{"k": 1, "v": "a"}])
    other = warehouse.clone("db.t", "db.other")
    other.write([{"k": 2, "v": "b"}])
    assert sorted(row["k"] for row in other.read().to_pylist()) == [1, 2]
    table.branches.create("b")
    with table.branch("b").writer() as writer:
        writer.write([{"k": 3, "v": "c"}])
        with pytest.raises(InvalidInputError, match="flush shows rows before their commit"):
            writer.flush()
        writer.commit()
    assert [record["snapshot"] for record in _records(table)] == [1]


@pytest.mark.spark
def test_tasks_of_spark_show_rows_before_the_commit(spark: Any, warehouse: mg.Catalog, broker: Broker) -> None:
    import merganser.spark as ms

    table = _table(warehouse, broker)
    df = spark.range(20).selectExpr("CAST(id AS INT) AS k", "'a' AS v")
    with _following(table) as get:
        rows: dict[int, Any] = {}
        with patch.object(TableCommit, "commit", side_effect=ConflictError("no")), pytest.raises(ConflictError):
            ms.write(df, table.path)
        _settled(get, rows, dict.fromkeys(range(20), "a"))
        _settled(get, rows, {})
        ms.write(df, table.path)
        _settled(get, rows, dict.fromkeys(range(20), "a"))
        ms.write(df.selectExpr("k", "'b' AS v"), table.path, through="files")
        _settled(get, rows, dict.fromkeys(range(20), "b"))


def _shown(table: mg.Table) -> list[Flushed]:
    """Return what the records of rows that are not committed say."""
    place = kafka.TopicPartition(uncommitted_topic(table.options["kafka.topic"]), 0, kafka.OFFSET_BEGINNING)
    told = {"bootstrap.servers": table.options["kafka.bootstrap.servers"], "group.id": "a-reader"}
    consumer = kafka.Consumer({**told, "enable.partition.eof": True})
    consumer.assign([place])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(flushed_from(dict(message.headers())[HEADER]))
    consumer.close()
    return found


@pytest.mark.campaign(1 / 2)
@pytest.mark.spark
def test_a_batch_of_a_stream_of_spark_shows_rows_under_the_name_of_its_commit(
    spark: Any, warehouse: mg.Catalog, broker: Broker, tmp_path: Path
) -> None:
    import merganser.spark as ms

    table = _table(warehouse, broker)
    spark.range(3).selectExpr("CAST(id AS INT) AS k", "'a' AS v").write.parquet(str(tmp_path / "in"))
    df = spark.readStream.schema("k INT, v STRING").parquet(str(tmp_path / "in"))
    ms.write_stream(df, table, str(tmp_path / "point"), trigger="availableNow").awaitTermination()
    (snapshot,) = (each for each in table.snapshots() if each.commit_kind == "APPEND")
    assert [each.write in write_names(snapshot) for each in _shown(table)] == [True] * 3
    with _following(table) as get:
        assert len(get()) == 3
        table.write([{"k": 9, "v": "b"}])
        assert get() == [_row("+I", 9, "b")]
