"""Automatic tags: of periods by the clock or the watermark, and of batch jobs."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 10, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Periods are those of local time."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def catalog(tmp_path: Path, clock: _Clock) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"}, clock=clock)
    catalog.create_database("db")
    return catalog


def _table(catalog: mg.Catalog, mode: str = "process-time", **options: str) -> mg.Table:
    given = {f"tag.{key.replace('_', '-')}".replace("batch-", "batch."): text for key, text in options.items()}
    return catalog.create_table("db.t", {"k": "INT"}, options={"tag.automatic-creation": mode, **given})


def _write(table: mg.Table, clock: _Clock, at: str) -> None:
    clock.now = datetime.fromisoformat(f"{at}+00:00")
    table.write([{"k": 1}])


def _tags(table: mg.Table) -> dict[str, int]:
    return {tag.name: tag.snapshot_id for tag in table.tags.list()}


def test_the_first_commit_after_a_period_is_tagged_with_the_periods_name(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog)
    _write(table, clock, "2026-01-01T10:00")
    _write(table, clock, "2026-01-01T23:59:59")
    assert _tags(table) == {"2025-12-31": 1}
    _write(table, clock, "2026-01-02T00:00")
    _write(table, clock, "2026-01-02T00:01")
    assert _tags(table) == {"2025-12-31": 1, "2026-01-01": 3}


def test_a_tag_holds_the_rows_of_the_commit_that_makes_it_and_none_if_that_has_none(
    catalog: mg.Catalog, clock: _Clock
) -> None:
    table = _table(catalog)
    empty = table.with_options({"snapshot.ignore-empty-commit": "false"})
    _write(table, clock, "2026-01-01T10:00")
    _write(table, clock, "2026-01-02T00:01")
    clock.now = datetime(2026, 1, 3, tzinfo=UTC)
    empty.write([])
    table.write([{"k": 1}])
    assert _tags(table) == {"2025-12-31": 1, "2026-01-01": 2, "2026-01-02": 3}
    assert [table.read(tag=name).count() for name in _tags(table)] == [1, 2, 2]


def test_the_delay_lets_late_commits_into_the_period(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog, creation_period="hourly", creation_delay="10 min")
    for at in ("10:00", "11:09", "11:10"):
        _write(table, clock, f"2026-01-01T{at}")
    assert _tags(table) == {"2026-01-01 09": 1, "2026-01-01 10": 3}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"creation_period": "daily"}, "2025-12-31"),
        ({"creation_period": "daily", "period_formatter": "without-dashes"}, "20251231"),
        ({"creation_period": "hourly"}, "2026-01-01 09"),
        ({"creation_period": "hourly", "period_formatter": "without-dashes"}, "20260101 09"),
        ({"creation_period": "hourly", "period_formatter": "without-dashes-and-spaces"}, "2026010109"),
        ({"creation_period": "two-hours", "period_formatter": "without-dashes"}, "2026-01-01 08"),
        ({"creation_period_duration": "30 min"}, "202601011000"),
    ],
)
def test_names_follow_period_and_formatter(
    catalog: mg.Catalog, clock: _Clock, options: dict[str, Any], name: str
) -> None:
    table = _table(catalog, **options)
    _write(table, clock, "2026-01-01T10:40")
    assert _tags(table) == {name: 1}


def test_a_gap_gives_one_tag_or_with_completion_one_tag_for_each_commit_after_it(
    catalog: mg.Catalog, clock: _Clock
) -> None:
    table = _table(catalog, creation_period="hourly")
    complete = table.with_options({"tag.automatic-completion": "true"})
    _write(table, clock, "2026-01-01T10:00")
    for minute in (1, 2, 3):
        _write(complete, clock, f"2026-01-01T13:0{minute}")
    assert _tags(table) == {f"2026-01-01 {hour:02}": hour - 8 for hour in (9, 10, 11, 12)}
    _write(table, clock, "2026-01-01T17:00")
    _write(table, clock, "2026-01-01T17:01")
    assert list(_tags(table))[-1] == "2026-01-01 16"
    assert len(_tags(table)) == 5


def test_what_a_writer_that_keeps_nothing_in_shape_left_is_tagged_by_the_next(
    catalog: mg.Catalog, clock: _Clock
) -> None:
    table = _table(catalog, creation_period="hourly")
    _write(table, clock, "2026-01-01T10:00")
    idle = table.with_options({"write-only": "true"})
    for at in ("10:30", "11:05", "11:30", "12:10"):
        _write(idle, clock, f"2026-01-01T{at}")
    assert _tags(table) == {"2026-01-01 09": 1}
    _write(table, clock, "2026-01-01T12:20")
    assert _tags(table) == {"2026-01-01 09": 1, "2026-01-01 10": 3, "2026-01-01 11": 5}


def test_the_oldest_automatic_tags_go_and_those_that_were_made_by_hand_stay(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog, creation_period="hourly", num_retained_max="2", create_success_file="true")
    _write(table, clock, "2026-01-01T10:00")
    table.tags.create("by hand")
    for hour in (11, 12, 13):
        _write(table, clock, f"2026-01-01T{hour}:00")
    assert list(_tags(table)) == ["by hand", "2026-01-01 11", "2026-01-01 12"]
    markers = Path(table.path, "tag", "tag-success-file")
    assert sorted(path.name for path in markers.iterdir()) == ["2026-01-01 11_SUCCESS", "2026-01-01 12_SUCCESS"]
    assert json.loads((markers / "2026-01-01 12_SUCCESS").read_text())["creationTime"] == 1_767_272_400_000


def test_automatic_tags_have_the_default_time(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog, default_time_retained="3 d")
    _write(table, clock, "2026-01-01T10:00")
    [tag] = table.tags.list()
    assert tag.time_retained == timedelta(days=3)


def test_the_watermark_decides_where_the_option_says_so(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog, "watermark", creation_period="hourly")
    _write(table, clock, "2026-01-01T10:00")
    assert _tags(table) == {}
    path = Path(table.path, "snapshot", "snapshot-1")
    watermark = int(datetime(2026, 1, 1, 7, 5, tzinfo=UTC).timestamp() * 1000)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"watermark": watermark}))
    _write(table, clock, "2026-01-01T11:00")
    assert _tags(table) == {"2026-01-01 06": 1}


def test_a_batch_job_is_tagged_in_the_place_of_the_days_last(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog, "batch")
    _write(table, clock, "2026-01-01T10:00")
    _write(table, clock, "2026-01-01T11:00")
    _write(table, clock, "2026-01-02T11:00")
    table.write([{"k": 2}], commit_user="stream", identifier=1)
    assert _tags(table) == {"batch-write-2026-01-01": 2, "batch-write-2026-01-02": 3}


def test_the_tag_of_batch_jobs_can_have_a_name(catalog: mg.Catalog, clock: _Clock) -> None:
    table = _table(catalog, "batch", batch_customized_name="nightly", num_retained_max="1")
    _write(table, clock, "2026-01-01T10:00")
    table.tags.create("by hand")
    _write(table, clock, "2026-01-02T10:00")
    assert _tags(table) == {"by hand": 1, "nightly": 2}
    assert table.check() == ()


def test_a_tag_that_cannot_be_made_does_not_undo_the_commit(
    catalog: mg.Catalog, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(catalog)
    with monkeypatch.context() as patch:
        patch.setattr("merganser.meta.refs.TagStore.names", _fail)
        _write(table, clock, "2026-01-01T10:00")
    assert table.read().count() == 1
    _write(table, clock, "2026-01-01T11:00")
    assert _tags(table) == {"2025-12-31": 1}


def _fail(*args: Any) -> Any:
    raise mg.errors.StorageError("the store is away")


@pytest.mark.parametrize(
    "options",
    [
        {"creation_period": "hourly", "creation_delay": "1 h"},
        {"creation_delay": "2 d"},
        {"creation_period_duration": "0 s"},
    ],
)
def test_a_delay_as_long_as_the_period_is_refused_with_the_table(catalog: mg.Catalog, options: dict[str, Any]) -> None:
    with pytest.raises(mg.errors.InvalidInputError, match=r"tag\.creation"):
        _table(catalog, **options)
