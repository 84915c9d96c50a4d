"""Watermarks: commits carry them, later commits keep them, and reads, streams and tags go by them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "2"})


def _marks(table: mg.Table) -> list[int | None]:
    return [snapshot.watermark for snapshot in table.snapshots()]


def _by_write(table: mg.Table, watermark: Any) -> None:
    table.write([{"k": 1, "v": 1}], watermark=watermark)


def _by_writer(table: mg.Table, watermark: Any) -> None:
    with table.writer() as writer:
        writer.write([{"k": 1, "v": 1}])
        writer.commit(watermark=watermark)


def _by_upsert(table: mg.Table, watermark: Any) -> None:
    table.upsert([{"k": 1, "v": 1}], watermark=watermark)


def _by_load(table: mg.Table, watermark: Any) -> None:
    path = Path(table.path).parent / "rows.parquet"
    pq.write_table(pa.table({"k": [1], "v": [1]}), path)
    table.load(str(path), watermark=watermark)


WAYS = [_by_write, _by_writer, _by_upsert, _by_load]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_carries_a_watermark(table: mg.Table, way: Callable[[mg.Table, Any], None]) -> None:
    way(table, NOON)
    [snapshot] = table.snapshots()
    assert snapshot.watermark == NOON_MS
    assert table.system("snapshots", columns=["watermark"]).to_pylist() == [{"watermark": NOON_MS}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (datetime(2026, 1, 1), "a time without a zone"),
        ("2026-01-01", "a str"),
        (1.5, "a float"),
        (True, "a bool"),
        (NOON_MS * 1000, "Divide microseconds by 1000"),
        (-(2**63), "no time between"),
    ],
)
def test_what_is_no_watermark_is_refused(
    table: mg.Table, way: Callable[[mg.Table, Any], None], wrong: Any, said: str
) -> None:
    with pytest.raises(mg.errors.InvalidInputError, match=said):
        way(table, wrong)
    assert table.snapshots() == ()


def test_a_watermark_is_epoch_milliseconds_or_a_time_in_any_zone(table: mg.Table) -> None:
    _by_write(table, -5)
    _by_write(table, NOON.astimezone(timezone(timedelta(hours=5))) - timedelta(microseconds=1))
    _by_write(table, NOON_MS)
    assert _marks(table) == [-5, NOON_MS - 1, NOON_MS]


def test_it_never_falls_and_every_later_commit_keeps_it(table: mg.Table) -> None:
    _by_write(table, 100)
    _by_write(table, 50)
    _by_write(table, None)
    table.compact(full=True)
    table.write([{"k": 2, "v": 2}], overwrite={})
    table.truncate()
    _by_write(table, 200)
    assert _marks(table) == [100] * 6 + [200]


def test_a_compaction_that_follows_a_commit_keeps_it(table: mg.Table) -> None:
    table = table.with_options({"full-compaction.delta-commits": "1"})
    for mark in (10, None, 30):
        _by_write(table, mark)
    assert [s.commit_kind for s in table.snapshots()] == ["APPEND", "COMPACT"] * 3
    assert _marks(table) == [10, 10, 10, 10, 30, 30]


def test_a_higher_watermark_is_committed_without_rows(table: mg.Table) -> None:
    assert table.write([], watermark=10) is not None
    assert table.write([], watermark=10) is None
    with table.writer() as writer:
        assert writer.commit(watermark=9) is None
        assert writer.commit(watermark=11) is not None
    assert table.upsert([], watermark=12).snapshot is not None
    table.upsert([{"k": 1, "v": 1}])
    assert table.upsert([{"k": 1, "v": 1}], watermark=13).unchanged == 1
    assert _marks(table) == [10, 11, 12, 12, 13]
    assert table.read().count() == 1


def test_a_repeated_commit_keeps_the_watermark_of_the_first(table: mg.Table) -> None:
    for mark in (10, 20):
        table.write([{"k": 1, "v": 1}], commit_user="job", identifier=1, watermark=mark)
    assert _marks(table) == [10]


def test_branches_tags_and_rollbacks_have_the_watermark_of_their_snapshot(table: mg.Table) -> None:
    _by_write(table, 10)
    table.tags.create("one")
    _by_write(table, 20)
    table.branches.create("b", tag="one")
    _by_write(table.branch("b"), None)
    assert _marks(table.branch("b"))[-1] == 10
    table.rollback(tag="one")
    _by_write(table, 5)
    assert _marks(table) == [10, 10]


def test_time_travel_goes_to_the_first_snapshot_that_reached_it(table: mg.Table) -> None:
    for v, mark in ((1, None), (2, 100), (3, 100), (4, 200)):
        table.write([{"k": 1, "v": v}], watermark=mark)
    for mark, v in ((-1, 2), (100, 2), (101, 4), (200, 4)):
        assert table.with_options({"scan.watermark": str(mark)}).read(columns=["v"]).to_pylist() == [{"v": v}]
    with pytest.raises(mg.errors.NotFoundError, match="watermark of 201"):
        table.with_options({"scan.watermark": "201"}).read()


@pytest.mark.parametrize("follow", [True, False])
def test_a_stream_ends_before_the_first_snapshot_beyond_its_bound(table: mg.Table, follow: bool) -> None:
    for v, mark in ((1, None), (2, 100), (3, None), (4, 101)):
        table.write([{"k": 1, "v": v}], watermark=mark)
    ids = {"scan.snapshot-id": "1", "scan.bounded.watermark": "100", "continuous.discovery-interval": "1 ms"}
    plans = table.stream("from-snapshot", follow=follow, **ids)
    assert [row["v"] for plan in plans for row in plan.to_pylist()] == [1, 2, 3]


def test_a_state_beyond_the_bound_is_all_of_a_stream(table: mg.Table) -> None:
    _by_write(table, 101)
    bound = {"scan.bounded.watermark": "100"}
    assert [plan.num_rows for plan in table.stream(**bound)] == [1]
    assert list(table.stream("latest", **bound)) == []


def test_tags_of_periods_go_by_the_watermark(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"tag.automatic-creation": "watermark", "tag.creation-period": "hourly"}
    table = catalog.create_table("db.t", {"k": "INT"}, options=options)
    for minutes in (-5, 5, 10, 65):
        table.write([{"k": 1}], watermark=NOON + timedelta(minutes=minutes))
    assert [(tag.name, tag.snapshot_id) for tag in table.tags.list()] == [
        ("2026-01-01 10", 1),
        ("2026-01-01 11", 2),
        ("2026-01-01 12", 4),
    ]
