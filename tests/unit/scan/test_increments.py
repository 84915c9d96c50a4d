"""The options `incremental-...`: a batch read of what changed, by ids, tags and times; bad values are refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import ExpiredError, InvalidInputError, NotFoundError

Row = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _table(path: Path, clock: Clock, key: tuple[str, ...] = ("k",), **options: str) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"}, clock=clock)
    catalog.create_database("db")
    options = {"write-only": "true"} | {name.replace("__", "."): text for name, text in options.items()}
    options |= {"bucket": "2"} if key else {}
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=list(key), options=options)


def _between(table: mg.Table, between: str, **more: str) -> mg.Table:
    return table.with_options(
        {"incremental-between": between} | {name.replace("_", "-"): v for name, v in more.items()}
    )


def _pairs(table: mg.Table) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for row in table.read().to_pylist())


@pytest.fixture
def table(tmp_path: Path, clock: Clock) -> mg.Table:
    """One commit per hour from noon on: 1a; 1b 2b; -2b 3c; 1d."""
    table = _table(tmp_path, clock)
    for rows, kinds in (
        ([(1, 10)], "+I"),
        ([(1, 20), (2, 20)], "+I"),
        ([(2, 20), (3, 30)], None),
        ([(1, 40)], "+U"),
    ):
        given = ["-D", "+I"] if kinds is None else [kinds] * len(rows)
        table.write([{"k": k, "v": v} for k, v in rows], kinds=given)
        clock.now += timedelta(hours=1)
    return table


def test_rows_that_commits_added_without_retractions(table: mg.Table) -> None:
    """The start is not part of the range; a key comes once for each commit."""
    assert _pairs(_between(table, "0,4")) == [(1, 10), (1, 20), (1, 40), (2, 20), (3, 30)]
    assert _pairs(_between(table, "1, 3")) == [(1, 20), (2, 20), (3, 30)]
    assert _pairs(_between(table, "2,2")) == []
    changed = _between(table, "1,3")
    assert changed.read(columns=["v"], where="k > 1").to_pylist() == [{"v": 20}, {"v": 30}]
    assert changed.read(limit=1).to_arrow().num_rows == 1
    assert changed.read().count() == 3
    assert changed.read(columns=[]).to_arrow().num_rows == 3
    assert "snapshots  2 to 3, 2 snapshots with changes" in changed.read().explain()
    assert table.read(snapshot=1).count() == changed.read(snapshot=1).count() == 1


def test_kinds_show_in_changes_and_in_the_audit_log(table: mg.Table) -> None:
    changed = _between(table, "1,3")
    assert sorted((tuple(row.values()) for row in changed.changes().to_pylist()), key=lambda row: row[1:]) == [
        ("+I", 1, 20),
        ("+I", 2, 20),
        ("-D", 2, 20),
        ("+I", 3, 30),
    ]
    log = changed.system("audit_log").to_pylist()
    assert sorted((row["rowkind"], row["k"]) for row in log) == [("+I", 1), ("+I", 2), ("+I", 3), ("-D", 2)]
    numbered = changed.with_options({"table-read.sequence-number.enabled": "true"})
    found = numbered.system("audit_log", where="rowkind = '-D' AND _SEQUENCE_NUMBER >= 0").to_pylist()
    assert [(row["rowkind"], row["k"]) for row in found] == [("-D", 2)]
    assert changed.changes(4).to_pylist() == [{"_row_kind": "+U", "k": 1, "v": 40}]
    with pytest.raises(InvalidInputError, match=r"\$audit_log"):
        changed.system("ro")


@pytest.mark.parametrize("seed", range(3))
def test_delta_and_changelog_are_the_rows_of_the_files(seed: int, tmp_path: Path, clock: Clock) -> None:
    rng = random.Random(seed)
    table = _table(tmp_path, clock, **{"changelog-producer": "input", "merge-engine": "deduplicate"})
    commits: list[tuple[int, list[tuple[str, int, int]]]] = []
    for _ in range(8):
        rows = [(rng.choice(["+I", "-U", "+U", "-D"]), rng.randrange(6), rng.randrange(9)) for _ in range(9)]
        snapshot = table.write([{"k": k, "v": v} for _, k, v in rows], kinds=[kind for kind, _, _ in rows])
        assert snapshot is not None
        commits.append((snapshot.id, rows))
        if rng.random() < 0.4:
            table.compact(full=rng.random() < 0.5)
    newest = table.snapshots()[-1].id
    for _ in range(6):
        start = rng.randrange(newest + 1)
        end = rng.randrange(start, newest + 1)
        inside = [rows for number, rows in commits if start < number <= end]
        logged = sorted((k, v) for rows in inside for kind, k, v in rows if kind in ("+I", "+U"))
        for mode in ("auto", "changelog"):
            assert _pairs(_between(table, f"{start},{end}", incremental_between_scan_mode=mode)) == logged
        last = [{k: (kind, v) for kind, k, v in rows} for rows in inside]
        delta = sorted((k, v) for rows in last for k, (kind, v) in rows.items() if kind in ("+I", "+U"))
        assert _pairs(_between(table, f"{start},{end}", incremental_between_scan_mode="delta")) == delta
        if start < end:
            assert table.changes(start + 1, end, mode="delta").count() == sum(len(rows) for rows in last)


def test_tables_without_a_key(tmp_path: Path, clock: Clock) -> None:
    table = _table(tmp_path / "a", clock, ())
    counting = _table(tmp_path / "b", clock, (), **{"write-mode": "change-log", "bucket": "1"})
    for one in (table, counting):
        one.write([{"k": 1, "v": 1}] * 2)
        one.write([{"k": 1, "v": 1}, {"k": 2, "v": 2}])
        assert _pairs(_between(one, "1,2")) == [(1, 1), (2, 2)]
    counting.write([{"k": 1, "v": 1}] * 2, kinds=["-D"] * 2)
    assert _pairs(_between(counting, "2,3")) == []
    assert [row["_row_kind"] for row in _between(counting, "2,3").changes().to_pylist()] == ["-D", "-D"]


def test_times(table: mg.Table) -> None:
    def between(start: str, end: str) -> list[tuple[int, int]]:
        return _pairs(table.with_options({"incremental-between-timestamp": f"{start},{end}"}))

    noon = int(NOON.timestamp() * 1000)
    hour = 3_600_000
    assert between(str(noon), str(noon + 2 * hour)) == [(1, 20), (2, 20), (3, 30)]
    assert between("2026-01-01 12:30:00", "2026-01-01 13:30:00") == [(1, 20), (2, 20)]
    assert between("2020-01-01", "2026-01-01T13:00:00") == [(1, 10), (1, 20), (2, 20)]
    assert between("2020-01-01", "2021-01-01") == between("2026-01-01 12:10:00", "2026-01-01 12:20:00") == []
    zoned = table.with_options({"incremental-between-timestamp": "2026-01-01 14:30:00,2026-01-01 15:30:00"})
    assert sorted(row["k"] for row in zoned.read(timezone="+02:00").to_pylist()) == [1, 2]
    for wrong in ("2026-01-02,2026-01-01", "2026-01-01", "now,then", "1,2,3", ","):
        with pytest.raises(InvalidInputError):
            table.with_options({"incremental-between-timestamp": wrong}).read().to_arrow()
    table.expire(retain_max=2, retain_min=1)
    assert between("2020-01-01", "2027-01-01") == [(1, 40), (3, 30)]


def test_times_of_expired_snapshots_whose_changelogs_are_kept(tmp_path: Path, clock: Clock) -> None:
    kept = {
        "changelog-producer": "input",
        "changelog.num-retained.max": "3",
        "changelog.num-retained.min": "1",
        "changelog.time-retained": "9 d",
    }
    table = _table(tmp_path, clock, **kept, **{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "3"})
    for k in range(4):
        clock.now = NOON + timedelta(hours=k)
        table.write([{"k": k, "v": k}])
    table.expire(retain_max=1, retain_min=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [4]

    def between(start: str, end: str) -> list[int]:
        span = table.with_options({"incremental-between-timestamp": f"2026-01-01 {start},2026-01-01 {end}"})
        return [row["k"] for row in span.changes().to_pylist()]

    assert between("13:30", "18:00") == [2, 3]
    assert between("13:30", "14:30") == [2]
    assert between("00:00", "18:00") == [1, 2, 3]  # the first changelog has gone
    assert between("00:00", "12:30") == between("14:10", "14:20") == []


@pytest.mark.parametrize(
    ("between", "error", "why"),
    [
        ("3,1", InvalidInputError, "ends with snapshot 1, before it starts after snapshot 3"),
        ("1,5", NotFoundError, "snapshot 5 is not there yet, the newest is 4"),
        ("1", InvalidInputError, "start and an end with a comma between"),
        ("1,2,3", InvalidInputError, "start and an end with a comma between"),
        ("a,b", NotFoundError, "there is no tag 'a'"),
        ("one,zzz", NotFoundError, "there is no tag 'zzz'"),
        ("1,one", NotFoundError, "one is a tag and the other a number"),
        ("-1,2", NotFoundError, "there is no tag '-1'"),
    ],
)
def test_wrong_ranges_are_refused(between: str, error: type[Exception], why: str, table: mg.Table) -> None:
    table.tags.create("one", snapshot=1)
    with pytest.raises(error, match=why):
        _between(table, between).read().to_arrow()


def test_ranges_that_have_expired_are_refused(table: mg.Table) -> None:
    table.expire(retain_max=2, retain_min=1)
    assert _pairs(_between(table, "2,4")) == [(1, 40), (3, 30)]
    with pytest.raises(ExpiredError, match=r"snapshot 2 has expired.*from snapshot 3 on"):
        _between(table, "1,4").read().to_arrow()


def test_a_changelog_that_was_never_written_is_refused(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match="'changelog-producer' is 'none'"):
        _between(table, "1,4", incremental_between_scan_mode="changelog").read().to_arrow()
    with pytest.raises(InvalidInputError, match="mode is 'all'"):
        table.changes(mode="all")


def test_the_mode_incremental_needs_one_range(table: mg.Table) -> None:
    explicit = _between(table, "0,1").with_options({"scan.mode": "incremental"})
    assert _pairs(explicit) == [(1, 10)]
    for options in (
        {"scan.mode": "incremental"},
        {"incremental-between": "1,2", "incremental-to-auto-tag": "2026-01-01"},
        {"incremental-between": "1,2", "scan.snapshot-id": "1"},
    ):
        with pytest.raises(InvalidInputError):
            table.with_options(options)
    with pytest.raises(InvalidInputError, match="lookups need a state"):
        explicit.lookup({"k": 1})
    with pytest.raises(InvalidInputError, match="for reads that end"):
        explicit.stream()


def test_tags_as_their_snapshots(table: mg.Table) -> None:
    table.tags.create("a", snapshot=1)
    table.tags.create("b", snapshot=3)
    more = {"incremental-between-tag-to-snapshot": "true"}
    assert _pairs(_between(table, "a,b").with_options(more)) == [(1, 20), (2, 20), (3, 30)]
    with pytest.raises(InvalidInputError, match="before it starts"):
        _between(table, "b,a").with_options(more).read()
    with pytest.raises(InvalidInputError, match="tag 'a' keeps snapshot 1, and 'b' the later 3"):
        _between(table, "b,a").read()
