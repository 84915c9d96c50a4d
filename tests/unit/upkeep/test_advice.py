"""Advice: what is wrong with the shape of a table, and that nothing is said of one in good shape."""

from __future__ import annotations

import itertools
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
from merganser.testing.builders import catalog_over, memory_with
from merganser.upkeep.advice import Facts, advice_for

_names = itertools.count()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
MB = 1 << 20


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
    dynamic = _table(primary_key=["k"])
    live = _live(dynamic, {0: [4_096 * MB]}, level=5, row_count=2_000_000)
    (found,) = advice_for(dynamic.definition, Facts(live, 5, NOW, NOW))
    assert "'dynamic-bucket.target-row-num' to about 500,000" in found.remedy


def test_many_small_buckets_are_named() -> None:
    table = _table(primary_key=["k"], options={"bucket": "200"})
    assert _topics(table, _live(table, {b: [1 * MB] for b in range(200)}, level=5)) == ["buckets"]
    assert _topics(table, _live(table, {b: [1 * MB] for b in range(50)}, level=5)) == []


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


def test_files_without_statistics_are_named() -> None:
    table = _table(options={"metadata.stats-mode": "none"})
    assert _topics(table, _live(table, {0: [250 * MB] * 40}, value_stats_columns=())) == ["statistics"]
