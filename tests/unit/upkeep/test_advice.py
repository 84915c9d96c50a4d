"""Advice: what is wrong with the shape of a table, and that nothing is said of one in good shape."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import merganser as mg
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.live_files import EMPTY, LiveFiles
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_state import MetaReader
from merganser.progress.sizes import size_text
from merganser.upkeep.advice import Facts, advice_for
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
MB = 1 << 20
MIN_MAX = {"snapshot": (("min", "1"), ("max", "2")), "changelog": (("min", "1"), ("max", "4"))}


def _table(**how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"advice-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT, v STRING", **how)
    table.write([{"k": 1, "v": "a"}])
    return table


def _live(table: mg.Table, sizes: Mapping[int, list[int]], **changed: Any) -> LiveFiles:
    """Files of some sizes, by bucket, made of the one that the table has."""
    latest = SnapshotStore(table.definition.paths, table.env, table.name).latest()
    (only,) = MetaReader(table.definition.paths, table.env, table.name).state(latest).live
    entries = [
        ManifestEntry(
            ADD,
            only.partition,
            bucket,
            only.total_buckets,
            replace(only.file, name=f"data-{bucket}-{i}.parquet", size=size, **changed),
        )
        for bucket, held in sizes.items()
        for i, size in enumerate(held)
    ]
    return EMPTY.apply(entries, source="a test")


def _topics(table: mg.Table, live: LiveFiles, *, snapshots: int = 5, age: timedelta = timedelta(hours=1)) -> list[str]:
    return [found.topic for found in advice_for(table.definition, Facts(live, snapshots, NOW - age, NOW))]


def test_a_table_in_good_shape_gets_no_advice() -> None:
    table = _table(primary_key=["k"], options={"bucket": "4"})
    assert _topics(table, _live(table, {b: [500 * MB, 20 * MB] for b in range(4)}, level=5)) == []
    assert table.advice() == ()
    assert "advice" not in table.describe()


def test_large_buckets_are_named_with_a_number_that_would_do() -> None:
    table = _table(primary_key=["k"], options={"bucket": "4"})
    live = _live(table, {0: [100 * MB], 1: [3_000 * MB], 2: [6_000 * MB], 3: [100 * MB]}, level=5)
    (found,) = advice_for(table.definition, Facts(live, 5, NOW, NOW))
    assert found.topic == "buckets"
    for part in ("2 of 4 buckets hold more than 2.0 GB", "1 more than 5.0 GB", "'bucket-2' holds 5.9 GB"):
        assert part in found.problem
    assert "rescale db.t 24`: that makes 24 buckets of 4" in found.remedy
    live = _live(table, {b: [5_700 * MB] for b in range(4)}, level=5)  # 22.3 buckets of 1 GB
    (found,) = advice_for(table.definition, Facts(live, 5, NOW, NOW))
    assert "rescale db.t 24`" in found.remedy
    dynamic = _table(primary_key=["k"])
    live = _live(dynamic, {0: [4_096 * MB]}, level=5, row_count=2_000_000)
    (found,) = advice_for(dynamic.definition, Facts(live, 5, NOW, NOW))
    assert "'dynamic-bucket.target-row-num' to about 500,000" in found.remedy


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (2_048 * MB, None),
        (2_048 * MB + 1, "1 of 4 buckets hold more than 2.0 GB; "),
        (5_120 * MB, "1 of 4 buckets hold more than 2.0 GB; "),
        (5_120 * MB + 1, "1 of 4 buckets hold more than 2.0 GB, and 1 more than 5.0 GB; "),
    ],
)
@pytest.mark.parametrize("bucket", ["4", "-2"])
def test_a_bucket_may_hold_2_gb_and_is_far_too_large_above_5_gb(bucket: str, size: int, said: str | None) -> None:
    table = _table(primary_key=["k"], options={"bucket": bucket})
    held = {0: [size - 900 * MB, 900 * MB], 1: [MB], 2: [MB], 3: [MB]}
    found = advice_for(table.definition, Facts(_live(table, held, level=5), 5, NOW, NOW))
    assert [one.problem.partition("'")[0] for one in found] == ([] if said is None else [said])


def test_many_small_buckets_are_named_with_the_number_that_would_do() -> None:
    table = _table(primary_key=["k"], options={"bucket": "200"})
    live = _live(table, {b: [1 * MB] for b in range(200)}, level=5)
    (found,) = advice_for(table.definition, Facts(live, 5, NOW, NOW))
    assert "200 of 200 buckets hold less than 20.0 MB" in found.problem
    assert found.remedy == "Run `merganser rescale db.t 1`: a partition has 200 buckets."
    assert _topics(table, _live(table, {b: [1 * MB] for b in range(50)}, level=5)) == []
    few_hold_most = {b: [1_900 * MB if b < 60 else MB] for b in range(200)}
    assert _topics(table, _live(table, few_hold_most, level=5)) == []
    table.rescale(1)
    assert table.advice() == ()


def test_small_dynamic_buckets_are_named_with_the_option_that_makes_them_full() -> None:
    small = _table(primary_key=["k"], options={"dynamic-bucket.target-row-num": "1000"})
    live = _live(small, {b: [1 * MB] for b in range(200)}, level=5, row_count=1_000)
    (found,) = advice_for(small.definition, Facts(live, 5, NOW, NOW))
    assert "full at 1,000 keys: set 'dynamic-bucket.target-row-num' to about 1,024,000" in found.remedy
    assert "initial-buckets" not in found.remedy
    tasks = _table(primary_key=["k"])
    live = _live(tasks, {b: [1 * MB] for b in range(200)}, level=5, row_count=1_000)
    (found,) = advice_for(tasks.definition, Facts(live, 5, NOW, NOW))
    assert "'dynamic-bucket.assigner-parallelism' = '1'" in found.remedy
    tasks.with_options({"dynamic-bucket.assigner-parallelism": "1", "dynamic-bucket.target-row-num": "5"})


def test_a_larger_target_lets_new_keys_fill_small_buckets_and_an_overwrite_makes_them_fewer() -> None:
    """What the advice promises."""
    table = _table(primary_key=["k"], options={"dynamic-bucket.target-row-num": "2"})
    table.write([{"k": k, "v": "a"} for k in range(20)])
    wider = table.with_options({"dynamic-bucket.target-row-num": "100"})
    wider.write([{"k": k, "v": "a"} for k in range(20, 60)])
    assert len(set(table.files().column("bucket").to_pylist())) == 10
    wider.write(table.read().to_arrow(), overwrite={})
    assert set(table.files().column("bucket").to_pylist()) == {0}


def test_runs_that_wait_for_a_compaction_are_named() -> None:
    table = _table(primary_key=["k"], options={"bucket": "1", "write-only": "true"})
    live = _live(table, {0: [MB] * 12})
    (found,) = advice_for(table.definition, Facts(live, 5, NOW, NOW))
    assert found.topic == "runs"
    assert "'bucket-0' has 12" in found.problem
    assert "no writer compacts it" in found.remedy
    assert "merganser compact db.t" in str(found)


def test_small_files_of_a_table_without_a_key_are_named() -> None:
    table = _table()
    assert _topics(table, _live(table, {0: [MB] * 50})) == ["files"]
    assert _topics(table, _live(table, {0: [250 * MB] * 50})) == []


@pytest.mark.parametrize(
    ("snapshots", "age", "said"),
    [(4_000, 1, False), (6_000, 1, True), (50, 20, False), (50, 90, True), (5, 900, False)],
)
def test_snapshots_that_should_have_expired_are_named(snapshots: int, age: int, said: bool) -> None:
    table = _table(options={"snapshot.num-retained.max": "2500", "snapshot.time-retained": "20 h"})
    live = _live(table, {0: [250 * MB]})
    assert (_topics(table, live, snapshots=snapshots, age=timedelta(hours=age)) == ["snapshots"]) == said


def test_files_without_statistics_are_named_with_what_gives_them_some() -> None:
    table = _table(options={"metadata.stats-mode": "none"})
    live = _live(table, {0: [250 * MB] * 40}, value_stats_columns=())
    (found,) = advice_for(table.definition, Facts(live, 5, NOW, NOW))
    assert found.topic == "statistics"
    assert "with_options({'metadata.stats-mode': 'truncate(16)'})" in found.remedy
    again = table.with_options({"metadata.stats-mode": "truncate(16)"})
    again.write([{"k": 2, "v": "b"}])
    again.compact(full=True)
    state = MetaReader(table.definition.paths, table.env, table.name).latest()
    assert [entry.file.value_stats_columns for entry in state.live] == [None]
    other = _table()
    (found,) = advice_for(other.definition, Facts(live, 5, NOW, NOW))
    assert "Another engine wrote them. `merganser compact db.t --full`" in found.remedy


def _said(table: mg.Table, topic: str) -> tuple[str, str]:
    (found,) = [one for one in table.advice() if one.topic == topic]
    return found.problem, found.remedy


def _timed(**how: Any) -> tuple[mg.Table, list[datetime]]:
    clock = [NOW]
    catalog = catalog_over(memory_with({}, f"advice-{next(_names)}"), clock=lambda: clock[0])
    catalog.create_database("db")
    return catalog.create_table("db.t", "k INT, v STRING", **how), clock


def test_consumers_are_named_with_the_snapshots_and_bytes_that_they_keep() -> None:
    options = {"bucket": "1", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"}
    options |= {"snapshot.time-retained": "30 d", "snapshot.expire.limit": "2"}
    table, clock = _timed(primary_key=["k"], options=options)
    table.consumers.set("slow", next_snapshot=1)
    for k in range(4):
        table.write([{"k": k, "v": "a"}])
    table.consumers.set("near", next_snapshot=4)
    table.compact(full=True)
    clock[0] += timedelta(days=3)
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3, 4, 5]
    (found,) = table.advice()
    assert "Consumer 'slow' reads snapshot 1 next" in found.problem
    assert "keeps 2 snapshots from expiry, the oldest 3 days old, and 0 bytes of data files" in found.problem
    assert "`merganser consumer drop db.t slow` and `merganser expire db.t`" in found.remedy
    assert str(found) in table.describe()
    for k in range(3):
        table.write([{"k": k, "v": "b"}])
    four = {"snapshot.num-retained.max": "2"}
    found, near = table.with_options(four).advice()
    assert ("'slow'" in found.problem, "'near'" in near.problem) == (True, True)
    assert "keeps 3 snapshots" in near.problem
    before = sum(_data_sizes(table))
    table.consumers.drop("slow")
    table.consumers.drop("near")
    table.with_options(four).expire(max_deletes=100)
    freed = before - sum(_data_sizes(table))
    assert f"and {size_text(freed)} of data files" in found.problem
    assert freed
    assert table.advice() == ()


def test_consumers_that_keep_changelogs_alone_are_named_with_those() -> None:
    few = {f"{what}.num-retained.{which}": n for what in ("snapshot", "changelog") for which, n in MIN_MAX[what]}
    options = {"bucket": "1", "changelog-producer": "input", "consumer.changelog-only": "true", **few}
    table, _ = _timed(primary_key=["k"], options=options | {"num-sorted-run.compaction-trigger": "50"})
    for k in range(10):
        table.write([{"k": k, "v": "a"}])
        if k == 1:
            table.consumers.set("slow", next_snapshot=3)
    assert [snapshot.id for snapshot in table.snapshots()] == [9, 10]
    (found,) = [one for one in table.advice() if one.topic == "consumers"]
    assert "keeps 4 changelogs from expiry" in found.problem
    assert "and files that no later changelog needs" in found.problem
    table.consumers.drop("slow")
    assert [one for one in table.advice() if one.topic == "consumers"] == []


def _data_sizes(table: mg.Table) -> list[int]:
    storage, bucket = table.env.storage, f"{table.path}/bucket-0"
    return [entry.size for entry in storage.list(bucket)]


def test_workers_of_the_shard_stream_that_are_far_behind_are_named() -> None:
    table, clock = _timed(primary_key=["k"], options={"bucket": "2"})
    table.enable_stream("24 h")
    table.write([{"k": k, "v": "a"} for k in range(20)])
    clock[0] += timedelta(hours=10)
    assert table.advice() == ()  # nobody follows it
    stop = threading.Event()
    table.follow("one", lambda _: stop.set(), stop=stop, limit=5)
    problem, remedy = _said(table, "shards")
    assert "behind in 2 of 2 shards" in problem
    assert "the first committed 10 hours ago. The stream keeps records for 24 h" in problem
    assert "merganser stream enable db.t --retention" in remedy
    stop = threading.Event()
    threading.Timer(1, stop.set).start()
    table.follow("one", lambda _: None, stop=stop)
    assert table.advice() == ()


def test_deleted_rows_that_are_still_stored_are_counted() -> None:
    table, _ = _timed(options={"deletion-vectors.enabled": "true"})
    table.write([{"k": k, "v": "a"} for k in range(100)])
    table.delete("k < 4")
    assert table.advice() == ()
    table.delete("k < 5")
    problem, remedy = _said(table, "deletes")
    assert problem == "5 of 100 stored rows are marked as deleted (1 file). Reads pass over them."
    assert remedy == "Run `merganser compact db.t --full`."
    table.compact(full=True)
    assert table.advice() == ()


def test_deletes_that_a_full_compaction_leaves_are_named_with_the_reason() -> None:
    table, clock = _timed(primary_key=["k"], options={"bucket": "1", "sequence.field": "v"})
    table.write([{"k": k, "v": "a"} for k in range(10)])
    table.delete("k < 2")
    assert _said(table, "deletes")[1] == "Run `merganser compact db.t --full`."
    table.compact(full=True)
    assert _said(table, "deletes")[1] == (
        "2 deletes stay for now, since older rows that come late must lose against them for "
        "'tombstone.time-retained' (24 hours)."
    )
    clock[0] += timedelta(days=3)
    assert _said(table, "deletes")[1] == "Run `merganser compact db.t --full`."
    table.compact(full=True)
    assert table.advice() == ()


@pytest.mark.parametrize(
    ("option", "value", "topic", "problem"),
    [
        ("file-index.bloom-filter.columns", "v", "indexes", "lacks a Bloom filter that 'file-index.bloom-filter"),
        ("file.format", "orc", "formats", "has another format than 'file.format' (orc) asks for"),
        ("file.compression", "none", "formats", "has another compression than 'file.compression' (none) asks for"),
    ],
)
def test_files_that_the_options_now_ask_for_otherwise_are_counted(
    option: str, value: str, topic: str, problem: str
) -> None:
    table = _table().alter([mg.changes.set_option(option, value)])
    table.write([{"k": 2, "v": "b"}])
    said, remedy = _said(table, topic)
    assert said.startswith("1 of 2 files (")
    assert problem in said
    assert "`merganser compact db.t --full`" in remedy
    table.compact(full=True)
    assert table.advice() == ()


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=20), "0 minutes"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(minutes=59), "59 minutes"),
        (timedelta(hours=1), "60 minutes"),
        (timedelta(hours=2), "2 hours"),
        (timedelta(hours=71), "71 hours"),
        (timedelta(days=400), "400 days"),
    ],
)
def test_a_span_of_time_is_said_in_a_unit_that_fits(age: timedelta, text: str) -> None:
    table = _table(options={"snapshot.num-retained.max": "10"})
    facts = Facts(_live(table, {0: [250 * MB]}), 60, NOW - age, NOW)
    (found,) = advice_for(table.definition, facts)
    assert f"the oldest for {text};" in found.problem
    assert "for 60 minutes." in found.problem
