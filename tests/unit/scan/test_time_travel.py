"""Time travel: scan options and arguments choose what of a table a batch read sees."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import ExpiredError, InvalidInputError, NotFoundError

START = datetime(2026, 1, 1, 10, tzinfo=UTC)


class _Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def catalog(tmp_path: Path, clock: _Clock) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"}, clock=clock)
    catalog.create_database("db")
    return catalog


@pytest.fixture
def table(catalog: mg.Catalog, clock: _Clock) -> mg.Table:
    """Snapshot n is of ten o'clock and n - 1 hours and adds key n; 3 is a compaction."""
    table = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1", "write-only": "true"})
    steps: list[Callable[[], Any]] = [
        lambda: table.write([{"k": 1}]),
        lambda: table.write([{"k": 2}]),
        lambda: table.compact(full=True),
        lambda: table.write([{"k": 4}]),
    ]
    for step in steps:
        step()
        clock.now += timedelta(hours=1)
    return table


def _at(table: mg.Table, options: dict[str, str]) -> list[int]:
    scan = table.with_options(options).read()
    found = sorted(row["k"] for row in scan.to_pylist())
    assert scan.count() == len(found)
    return found


def _millis(hour: int, minute: int = 0) -> str:
    return str(int(datetime(2026, 1, 1, hour, minute, tzinfo=UTC).timestamp() * 1000))


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"scan.snapshot-id": "1"}, [1]),
        ({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}, [1, 2]),
        ({"scan.timestamp": "2026-01-01 11:30:00"}, [1, 2]),
        ({"scan.timestamp-millis": _millis(11)}, [1, 2]),
        ({"scan.mode": "latest"}, [1, 2, 4]),
        ({"scan.mode": "latest-delta"}, [4]),
        ({"scan.mode": "compacted-full"}, [1, 2]),
        ({"scan.version": "1"}, [1]),
        ({"scan.file-creation-time-millis": _millis(12, 30)}, [4]),
        ({"scan.creation-time-millis": _millis(10, 30)}, [1, 2]),
        ({"scan.creation-time-millis": _millis(9)}, [1, 2, 4]),
        ({"scan.creation-time-millis": _millis(15)}, []),
    ],
)
def test_scan_options_choose_what_is_read(table: mg.Table, options: dict[str, str], keys: list[int]) -> None:
    assert _at(table, options) == keys


@pytest.mark.parametrize("what", ["compact", "overwrite"])
def test_the_newest_delta_is_empty_after_a_compaction_or_an_overwrite(table: mg.Table, what: str) -> None:
    if what == "compact":
        table.compact(full=True)
    else:
        table.write([{"k": 9}], overwrite={})
    assert _at(table, {"scan.mode": "latest-delta"}) == []


def test_without_a_compaction_the_compacted_state_is_the_newest(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.u", {"k": "INT"})
    assert _at(table, {"scan.mode": "compacted-full"}) == []
    table.write([{"k": 1}])
    assert _at(table, {"scan.mode": "compacted-full"}) == [1]


def test_of_scheduled_compactions_only_those_of_the_schedule_count(table: mg.Table) -> None:
    table.write([{"k": 5}], commit_user="job", identifier=3)
    path = Path(table.path, "snapshot", "snapshot-5")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"commitKind": "COMPACT"}))
    assert _at(table, {"scan.mode": "compacted-full"}) == [1, 2, 4, 5]
    assert _at(table, {"scan.mode": "compacted-full", "full-compaction.delta-commits": "2"}) == [1, 2]
    assert _at(table, {"scan.mode": "compacted-full", "full-compaction.delta-commits": "3"}) == [1, 2, 4, 5]


def test_a_watermark_chooses_the_first_snapshot_that_reached_it(table: mg.Table) -> None:
    for number, watermark in ((2, 100), (3, 100), (4, 250)):
        path = Path(table.path, "snapshot", f"snapshot-{number}")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"watermark": watermark}))
    for watermark, snapshot in ((-5, 2), (100, 2), (101, 4), (250, 4)):
        for options in ({"scan.watermark": str(watermark)}, {"scan.version": f"watermark-{watermark}"}):
            found = table.with_options(options).read().snapshot
            assert found is not None
            assert found.id == snapshot
    with pytest.raises(NotFoundError, match="watermark of 251"):
        table.with_options({"scan.watermark": "251"}).read()


def test_a_version_is_a_tag_before_it_is_an_id(table: mg.Table) -> None:
    table.tags.create("1", snapshot=4)
    assert _at(table, {"scan.version": "1"}) == [1, 2, 4]
    assert _at(table, {"scan.version": "2"}) == [1, 2]
    with pytest.raises(NotFoundError, match=r"version 'nine'.*Choose from '1'"):
        table.with_options({"scan.version": "nine"}).read()


def test_the_schema_of_the_chosen_snapshot_is_read(table: mg.Table) -> None:
    schema = json.loads(Path(table.path, "schema", "schema-0").read_text())
    schema["id"], schema["highestFieldId"] = 1, schema["highestFieldId"] + 1
    schema["fields"].append({"id": schema["highestFieldId"], "name": "v", "type": "INT"})
    table.tags.create("before")
    Path(table.path, "schema", "schema-1").write_text(json.dumps(schema))
    now = mg.table(table.path)
    now.write([{"k": 5, "v": 5}])
    assert now.read().schema.names == ["k", "v"]
    assert now.read(tag="before").schema.names == ["k"]
    assert now.with_options({"scan.tag-name": "before"}).read().schema.names == ["k"]
    assert now.read(snapshot=1).to_pylist() == [{"k": 1}]


def test_a_time_before_the_first_snapshot_is_refused(table: mg.Table) -> None:
    with pytest.raises(NotFoundError, match="its first is of 2026-01-01 10:00"):
        table.with_options({"scan.timestamp-millis": _millis(9)}).read()
    table.expire(retain_max=1, retain_min=1)
    with pytest.raises(ExpiredError, match="snapshots before 4"):
        table.with_options({"scan.timestamp-millis": _millis(11)}).read()


def test_an_argument_of_the_call_comes_before_the_options(table: mg.Table) -> None:
    assert sorted(r["k"] for r in table.with_options({"scan.snapshot-id": "1"}).read(snapshot=2).to_pylist()) == [1, 2]


def test_two_places_at_once_are_refused(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match="snapshot and tag are both given"):
        table.read(snapshot=1, tag="v1")
    with pytest.raises(InvalidInputError, match="Keep one"):
        table.with_options({"scan.snapshot-id": "1", "scan.tag-name": "v1"})
