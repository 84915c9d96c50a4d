"""`Table.stream`: a state, then every snapshot in order; kept positions, ends, expiry, rollbacks, other schemas."""

from __future__ import annotations

import random
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.storage.local import LocalStorage

FAST = {"continuous.discovery-interval": "2 ms"}


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "2", "write-only": "true", "changelog-producer": "input"}
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)


def _write(table: mg.Table, *values: tuple[int, int], kinds: Any = None, **more: Any) -> None:
    table.write([{"k": k, "v": v} for k, v in values], kinds=kinds, **more)


def _plans(plans: Any) -> list[list[tuple[Any, ...]]]:
    return [sorted(tuple(row.values()) for row in plan.to_pylist()) for plan in plans]


def test_a_state_and_then_each_snapshot(table: mg.Table) -> None:
    _write(table, (1, 1))
    _write(table, (1, 2), (2, 2))
    stream = table.stream(**FAST)
    assert next(stream).column_names == ["_row_kind", "k", "v"]
    _write(table, (1, 2), (1, 3), kinds=["-U", "+U"])
    table.compact(full=True)
    _write(table, (2, 2), kinds=["-D"])
    assert _plans(islice(stream, 2)) == [[("+U", 1, 3), ("-U", 1, 2)], [("-D", 2, 2)]]
    assert stream.next_snapshot == 6


@pytest.mark.parametrize(
    ("start", "options", "expected"),
    [
        ("latest-full", {}, [[("+I", 1, 3)], [("+I", 9, 9)]]),
        ("latest", {}, [[("+I", 9, 9)]]),
        ("from-snapshot", {"scan.snapshot-id": "2"}, [[("+I", 1, 2)], [("+I", 1, 3)], [("+I", 9, 9)]]),
        ("from-snapshot-full", {"scan.snapshot-id": "2"}, [[("+I", 1, 2)], [("+I", 1, 3)], [("+I", 9, 9)]]),
        ("from-timestamp", {"scan.timestamp-millis": "0"}, [[("+I", 1, v)] for v in (1, 2, 3)] + [[("+I", 9, 9)]]),
        ("from-timestamp", {"scan.timestamp": "2100-01-01"}, [[("+I", 9, 9)]]),
        ("from-file-creation-time", {"scan.file-creation-time-millis": "0"}, [[("+I", 1, 3)], [("+I", 9, 9)]]),
    ],
)
def test_where_a_stream_starts(
    table: mg.Table, start: str, options: dict[str, str], expected: list[list[tuple[Any, ...]]]
) -> None:
    for v in (1, 2, 3):
        _write(table, (1, v))
    stream = table.stream(start, follow=False, **options)
    _write(table, (9, 9))
    assert _plans(stream) == expected


@pytest.mark.parametrize("start", ["latest-full", "latest"])
@pytest.mark.parametrize("option", ["scan.snapshot-id", "scan.timestamp-millis"])
def test_a_start_that_a_caller_names_and_options_of_another_are_refused(
    table: mg.Table, start: str, option: str
) -> None:
    for handle, own in ((table, {option: "1"}), (table.with_options({option: "1"}), {})):
        with pytest.raises(mg.errors.InvalidInputError, match=f"{option}' must be absent .* '{start}'"):
            handle.stream(start, **own)


def test_without_a_start_the_options_say_where_a_stream_begins(table: mg.Table) -> None:
    _write(table, (1, 1))
    _write(table, (1, 2))
    assert _plans(table.stream(follow=False, **{"scan.snapshot-id": "2"})) == [[("+I", 1, 2)]]
    assert _plans(table.with_options({"scan.mode": "latest"}).stream(follow=False)) == []


@pytest.mark.parametrize("start", ["latest-delta", "incremental", "sometime"])
def test_starts_that_are_refused(table: mg.Table, start: str) -> None:
    with pytest.raises(mg.errors.InvalidInputError, match=r"latest-delta|incremental|sometime"):
        table.stream(start)


def test_a_stream_of_an_empty_table_begins_with_its_first_snapshot(table: mg.Table) -> None:
    assert list(table.stream(follow=False)) == []
    stream = table.stream(**FAST)
    threading.Timer(0.05, lambda: _write(table, (1, 1))).start()
    assert _plans([next(stream)]) == [[("+I", 1, 1)]]


def test_a_consumer_goes_on_where_it_was(table: mg.Table) -> None:
    for v in (1, 2, 3):
        _write(table, (1, v))
    first = table.stream("from-snapshot", consumer="c", **{"scan.snapshot-id": "1"})
    assert table.consumers.list()[0].next_snapshot == 1
    assert _plans(islice(first, 2)) == [[("+I", 1, 1)], [("+I", 1, 2)]]
    assert table.consumers.list()[0].next_snapshot == 2, "the second plan may not be done yet"
    again = table.stream("from-snapshot", follow=False, consumer="c", **{"scan.snapshot-id": "1"})
    assert _plans(again) == [[("+I", 1, 2)], [("+I", 1, 3)]]
    assert table.consumers.list()[0].next_snapshot == 4
    table.expire(retain_max=1, retain_min=1)
    ignored = {"consumer.ignore-progress": "true"}
    assert _plans(table.stream(follow=False, consumer="c", **ignored)) == [[("+I", 1, 3)]]


def test_a_consumer_of_a_state_that_was_not_handed_over_has_no_position(table: mg.Table) -> None:
    _write(table, (1, 1))
    stream = table.stream(follow=False, consumer="c")
    next(stream)
    assert table.consumers.list() == ()
    assert list(stream) == []
    assert table.consumers.list()[0].next_snapshot == 2


def test_the_end_of_a_stream(table: mg.Table) -> None:
    for v in (1, 2, 3):
        _write(table, (1, v))
    ids = {"scan.snapshot-id": "1"}
    assert len(list(table.stream("from-snapshot", until=2, **ids))) == 2
    second = table.snapshots()[1]
    found = _plans(table.stream("from-snapshot", until=second.commit_time, **ids))
    assert found == [[("+I", 1, 1)], [("+I", 1, 2)]][: len(found)]
    assert len(found) >= 2 or second.time_millis == table.snapshots()[0].time_millis
    for wrong in (-1, True, 1.5):
        with pytest.raises(mg.errors.InvalidInputError, match="until is"):
            table.stream(until=wrong)  # type: ignore[arg-type]


def test_young_snapshots_wait(table: mg.Table) -> None:
    _write(table, (1, 1))
    options = {"scan.snapshot-id": "1", "streaming.read.snapshot.delay": "1 h"}
    assert list(table.stream("from-snapshot", follow=False, **options)) == []


def test_a_reader_that_fell_behind_is_told_by_how_much(table: mg.Table) -> None:
    _write(table, (1, 1))
    stream = table.stream(**FAST)
    next(stream)
    for v in range(5):
        _write(table, (1, v))
    table.expire(retain_max=1, retain_min=1)
    with pytest.raises(mg.errors.ExpiredError, match=r"snapshot 2.*from snapshot 6 on. 4 snapshots have expired"):
        next(stream)


def test_a_start_that_has_expired_is_the_oldest_that_is_kept_and_says_so(
    table: mg.Table, caplog: pytest.LogCaptureFixture
) -> None:
    for v in range(5):
        _write(table, (1, v))
    table.expire(retain_max=1, retain_min=1)
    for first, said in (("1", ""), ("5", ""), ("3", "those of 3 to 4 have expired")):
        caplog.clear()
        assert _plans(table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": first})) == [[("+I", 1, 4)]]
        assert said in caplog.text
        assert bool(said) == bool(caplog.records)


def test_a_reader_goes_on_from_changelogs_that_outlive_snapshots(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "changelog-producer": "input", "snapshot.num-retained.min": "1"}
    options |= {"snapshot.num-retained.max": "1", "changelog.num-retained.max": "9", "changelog.num-retained.min": "9"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    _write(table, (1, 0))
    stream = table.stream(follow=False)
    next(stream)
    for v in range(1, 5):
        _write(table, (1, v))
    table.expire()
    assert len(table.snapshots()) == 1
    assert _plans(stream) == [[("+I", 1, v)] for v in range(1, 5)]


def test_a_hole_in_what_is_kept_is_an_error_and_no_end(tmp_path: Path) -> None:
    """Other engines may leave one, such as by a fast-forward."""
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "input", "snapshot.num-retained.max": "50"}
    options |= {"changelog.num-retained.max": "60", "write-only": "true"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    for v in range(1, 6):
        _write(table, (1, v))
    table.expire(retain_max=1, retain_min=1)
    for number in (2, 3):
        (tmp_path / "db.db" / "t" / "changelog" / f"changelog-{number}").unlink()
    stream = table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    assert _plans([next(stream)]) == [[("+I", 1, 1)]]
    with pytest.raises(mg.errors.ExpiredError, match=r"from snapshot 4 on\. 2 snapshots have expired"):
        next(stream)
    with pytest.raises(mg.errors.ExpiredError, match="from snapshot 4 on"):
        table.changes(1).to_arrow()


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("consumer", [None, "dashboard"])
@pytest.mark.parametrize("again", [0, 1, 2, 3])
def test_a_reader_notices_a_rollback_behind_it(table: mg.Table, again: int, consumer: str | None, follow: bool) -> None:
    """Also where the new history is as long as the one that was read, and nothing comes after it."""
    for v in (1, 2, 3):
        _write(table, (1, v))
    start = {"scan.snapshot-id": "1"}
    stream = table.stream("from-snapshot", consumer=consumer, follow=follow, **start, **FAST)
    assert len(list(islice(stream, 3))) == 3
    table.rollback(snapshot=1)
    for v in range(again):
        _write(table, (1, 10 + v))
    with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 3"):
        next(stream)


@pytest.mark.parametrize("consumer", [None, "dashboard"])
def test_a_reader_notices_a_rollback_by_a_changelog_that_outlived_its_snapshot(
    tmp_path: Path, consumer: str | None
) -> None:
    options = {"bucket": "1", "changelog-producer": "input", "snapshot.num-retained.max": "50"}
    options |= {"changelog.num-retained.max": "60", "consumer.changelog-only": "true"}
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    for v in (1, 2, 3):
        _write(table, (1, v))
    start = {"scan.snapshot-id": "1"}
    stream = table.stream("from-snapshot", consumer=consumer, **start, **FAST)
    assert len(list(islice(stream, 3))) == 3
    table.rollback(snapshot=1)
    for v in (4, 5, 6, 7):
        _write(table, (1, v))
    table.expire(retain_max=1, retain_min=1)
    with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 3"):
        next(stream)


def test_an_overwrite_of_a_table_without_a_changelog_is_handed_over_if_asked(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"])
    _write(table, (1, 1), (2, 1))
    _write(table, (1, 2))
    ids = {"scan.snapshot-id": "3"}
    _write(table, (3, 3), overwrite={})
    assert list(table.stream("from-snapshot", follow=False, **ids)) == []
    shown = _plans(table.stream("from-snapshot", follow=False, **ids, **{"streaming-read-overwrite": "true"}))
    assert shown == [[("+I", 3, 3), ("-D", 1, 2), ("-D", 2, 1)]]


def test_columns_and_filters(table: mg.Table) -> None:
    _write(table, (1, 1), (2, 5))
    stream = table.stream(follow=False, columns=["k"], where="v > 2 AND _row_kind = '+I'")
    _write(table, (3, 9), (3, 1))
    assert [plan.to_pylist() for plan in stream] == [
        [{"_row_kind": "+I", "k": 2}],
        [{"_row_kind": "+I", "k": 3}],
    ]
    with pytest.raises(mg.errors.InvalidInputError, match="no column 'w'"):
        table.stream(columns=["w"])


def test_waiting_costs_one_small_read_a_look(table: mg.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(table, (1, 1))
    stream = table.stream(**{"continuous.discovery-interval": "1 ms"})
    next(stream)
    reads: list[str] = []
    read = LocalStorage.read
    monkeypatch.setattr(LocalStorage, "read", lambda self, path: reads.append(path) or read(self, path))
    thread = threading.Thread(target=lambda: next(stream), daemon=True)
    thread.start()
    while stream._line._looks < 100:
        time.sleep(0.01)
    assert len(reads) < 1.5 * stream._line._looks
    monkeypatch.undo()
    _write(table, (1, 2))
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("producer", ["none", "input"])
def test_replayed_changes_make_every_later_state(seed: int, producer: str, tmp_path: Path) -> None:
    """With commits that say what they do, the stream of any start makes the state of the table at any time."""
    rng = random.Random(f"{seed} {producer}")
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "2", "changelog-producer": producer}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    streams: list[tuple[Any, dict[int, int]]] = []
    for _ in range(8):
        if rng.random() < 0.4:
            streams.append((table.stream(follow=False), {}))
        rows = [(rng.randrange(6), rng.randrange(100)) for _ in range(rng.randrange(1, 8))]
        _write(table, *rows, kinds=[rng.choice(["+I", "+U", "-D"]) for _ in rows])
        if rng.random() < 0.3:
            table.compact(full=rng.random() < 0.5)
        for stream, state in streams:
            for plan in stream:
                for row in plan.to_pylist():
                    if row["_row_kind"] in ("-D", "-U"):
                        state.pop(row["k"], None)
                    else:
                        state[row["k"]] = row["v"]
            assert state == {row["k"]: row["v"] for row in table.read().to_pylist()}


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize(
    ("start", "more"),
    [
        ("latest-full", {}),
        ("from-snapshot-full", {"scan.snapshot-id": "3"}),
        ("compacted-full", {}),
        ("from-file-creation-time", {"scan.file-creation-time-millis": "0"}),
        ("from-creation-timestamp", {"scan.creation-time-millis": "0"}),
    ],
)
def test_rows_that_wait_for_a_compaction_come_once(
    producer: str, start: str, more: dict[str, str], tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "changelog-producer": producer}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    _write(table, (1, 1))
    table.compact(full=True)
    _write(table, (1, 2), (2, 2))
    stream = table.stream(start, follow=False, **more)
    assert _plans([next(stream)]) == [[("+I", 1, 1)]]
    table.compact(full=True)
    assert _plans(stream) == [[("+I", 2, 2), ("+U", 1, 2), ("-U", 1, 1)]]


@pytest.mark.parametrize("start", ["latest-full", "latest"])
def test_a_rollback_is_noticed_before_anything_was_handed_over_of_the_changes(table: mg.Table, start: str) -> None:
    for v in (1, 2, 3):
        _write(table, (1, v))
    stream = table.stream(start, **FAST)
    if start == "latest-full":
        next(stream)
    table.rollback(snapshot=2)
    _write(table, (1, 10))
    _write(table, (1, 11))
    with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 3"):
        next(stream)


def test_a_rollback_moves_a_consumer_back_and_a_reader_leaves_it_there(table: mg.Table) -> None:
    for v in (1, 2, 3):
        _write(table, (1, v))
    stream = table.stream("from-snapshot", consumer="c", **{"scan.snapshot-id": "1"}, **FAST)
    assert len(list(islice(stream, 3))) == 3
    table.rollback(snapshot=1)
    _write(table, (1, 10))
    with pytest.raises(mg.errors.ConflictError, match=r"'latest-full' with 'consumer.ignore-progress' = 'true'"):
        next(stream)
    assert table.consumers.list()[0].next_snapshot <= 3


def test_a_state_whose_read_failed_is_read_again(table: mg.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(table, (1, 1))
    stream = table.stream(follow=False)
    with monkeypatch.context() as failing:
        failing.setattr(LocalStorage, "open", lambda *_: (_ for _ in ()).throw(mg.errors.StorageError("away")))
        failing.setattr(LocalStorage, "read", lambda *_: (_ for _ in ()).throw(mg.errors.StorageError("away")))
        with pytest.raises(mg.errors.StorageError):
            next(stream)
    assert _plans(stream) == [[("+I", 1, 1)]]


def test_a_time_may_lie_in_changelogs_that_outlive_snapshots(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "changelog-producer": "input", "snapshot.num-retained.min": "1"}
    options |= {"snapshot.num-retained.max": "1", "changelog.num-retained.max": "9", "changelog.num-retained.min": "9"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    for v in range(4):
        _write(table, (1, v))
    table.expire()
    found = table.stream("from-timestamp", follow=False, **{"scan.timestamp-millis": "0"})
    assert _plans(found) == [[("+I", 1, v)] for v in range(4)]


def test_rows_that_wait_for_a_compaction_are_part_of_the_state(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": "true"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    _write(table, (1, 1))
    table.compact()
    _write(table, (1, 2), (3, 3))
    assert _plans(table.stream(follow=False)) == [[("+I", 1, 2), ("+I", 3, 3)]]


@pytest.mark.parametrize("follow", [False, True])
def test_a_table_that_is_dropped_under_a_reader_is_an_error(follow: bool, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "1"})
    _write(table, (1, 1))
    stream = table.stream(follow=follow, **FAST)
    next(stream)
    catalog.drop_table("db.t")
    with pytest.raises(mg.errors.NotFoundError, match="was dropped or renamed"):
        next(stream)


def test_a_consumer_that_waits_does_not_expire(table: mg.Table) -> None:
    waits = table.with_options({"consumer.expiration-time": "30 ms"})
    _write(table, (1, 1))
    stream = waits.stream(consumer="c", **FAST)
    next(stream)
    thread = threading.Thread(target=lambda: next(stream), daemon=True)
    thread.start()
    path = Path(table.path) / "consumer" / "consumer-c"
    while not path.exists():
        time.sleep(0.002)
    first = path.stat().st_mtime_ns
    until = time.monotonic() + 10
    while path.stat().st_mtime_ns == first and time.monotonic() < until:
        time.sleep(0.002)
    assert path.stat().st_mtime_ns > first
    _write(table, (1, 2))
    thread.join(10)
    assert not thread.is_alive()
