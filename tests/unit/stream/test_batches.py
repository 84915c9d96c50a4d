"""Batches between two positions: cut anywhere, repeated, gone on with after a restart, they make every later state."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.scan.forms import columns_of
from merganser.scan.split import What
from merganser.stream.batches import NOWHERE, UNLIMITED, Limits, Position, TableBatches, position_of

Row = dict[str, Any]


def _batches(table: mg.Table, limits: Limits = UNLIMITED, *, what: What = What.CHANGED, **options: Any) -> TableBatches:
    given = table.with_options(options) if options else table
    fields = columns_of(what, given.definition)
    return TableBatches(given.definition, given.env, what=what, columns=fields, where=None, limits=limits)


def _rows(table: mg.Table, batches: TableBatches, start: Position | None, end: Position) -> list[Row]:
    """Return the rows between two positions, turn by turn."""
    turns = batches.turns(start, end)
    tables = [rows for turn in turns for part in turn for rows in part.read(table.env.storage)]
    return [row for rows in tables for row in rows.to_pylist()]


def _again(position: Position) -> Position:
    found = position_of(json.loads(json.dumps(position.to_json())), "t")
    assert found is not None
    return found


def _apply(state: dict[int, Row], rows: list[Row]) -> None:
    for row in rows:
        kind = row.pop("_row_kind")
        if kind in ("+I", "+U"):
            assert row["k"] not in state
            state[row["k"]] = row
        else:
            assert state.pop(row["k"], None) == row


def _table(path: Path, **options: str) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    given = {"bucket": "2", "target-file-row-num": "3", "source.split.target-size": "1 b"} | options
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=given)


@pytest.mark.campaign(1 / 12)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("producer", ["lookup", "full-compaction", "per-record"])
def test_batches_of_any_size_make_every_later_state(seed: int, producer: str, tmp_path: Path) -> None:
    rng = random.Random(f"{producer} {seed}")
    table = _table(tmp_path, **{"changelog-producer": producer})
    limits = Limits(files=rng.choice([None, 1, 2]), rows=rng.choice([None, 1, 5]), size_bytes=rng.choice([None, 1]))
    state: dict[int, Row] = {}
    at: Position | None = None
    batches = _batches(table, limits)
    for _ in range(10):
        for _ in range(rng.randrange(3)):
            rows = [{"k": rng.randrange(12), "v": rng.randrange(5)} for _ in range(rng.randrange(1, 6))]
            table.write(rows, kinds=[rng.choice(["+I", "+I", "-D"]) for _ in rows])
        if rng.random() < 0.3:  # the process dies: only the position is left
            batches = _batches(table, limits)
            at = None if at is None else _again(at)
        while rng.random() < 0.8:
            begin = batches.start() if at is None else at
            end = batches.advance(begin, limited=rng.random() < 0.9)
            if end == begin and at is not None:
                break
            found = _rows(table, batches, at, end)
            assert _rows(table, _batches(table, limits), at and _again(at), _again(end)) == found
            _apply(state, found)
            at = end
    at = at or batches.start()
    while (end := batches.advance(at)) != at or at.splits is not None:
        begin = None if at.splits == 0 else at
        _apply(state, _rows(table, batches, begin, end))
        at = end
    assert sorted(state.values(), key=lambda row: row["k"]) == sorted(
        table.read().to_pylist(), key=lambda row: row["k"]
    )


def test_rows_of_a_bucket_are_one_turn_in_their_order(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "input"})
    for i in range(5):
        table.write([{"k": k, "v": i} for k in range(6)])
    batches = _batches(table, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "1"})
    end = batches.advance(batches.start())
    turns = batches.turns(None, end)
    assert len(turns) == 2
    for turn in turns:
        rows = pa.concat_tables([rows for part in turn for rows in part.read(table.env.storage)]).to_pylist()
        for k in {row["k"] for row in rows}:
            assert [row["v"] for row in rows if row["k"] == k] == [0, 1, 2, 3, 4]


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("overwrites", [False, True], ids=["without overwrites", "with overwrites"])
@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
@pytest.mark.parametrize("shape", ["rescaled", "queue", "overwritten", "dynamic", "moving"])
def test_rows_of_a_key_are_one_turn_in_their_order_though_it_gets_another_bucket(
    shape: str, producer: str, overwrites: bool, tmp_path: Path
) -> None:
    if shape == "queue" and producer != "none":
        return
    rng = random.Random(f"{shape} {producer}")
    keys = {"queue": [], "moving": ["k"]}.get(shape, ["p", "k"])
    options = {"bucket": "-1" if shape in ("dynamic", "moving") else "3"}
    options |= {"queue": {"bucket-key": "k"}, "dynamic": {"dynamic-bucket.target-row-num": "2"}}.get(shape, {})
    options |= {} if shape == "queue" else {"changelog-producer": producer}
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"p": "STRING", "k": "INT", "v": "INT"}
    table = catalog.create_table("db.t", columns, primary_key=keys, partition_by=["p"], options=options)
    for number in range(5):
        order = rng.sample(range(12), 12)
        rows = [{"p": rng.choice("ab") if shape == "moving" else "ab"[k % 2], "k": k, "v": number} for k in order]
        if number and shape in ("rescaled", "queue"):
            table.rescale(rng.choice([1, 2, 4, 5]))
        elif number and shape == "overwritten":
            table.with_options({"bucket": str(3 + number)}).write(rows[:3], overwrite={})
            table = table.alter([mg.changes.set_option("bucket", str(3 + number))])
        elif number:
            table.write(rows[:3], overwrite={})
        table.write(rows)
    asked = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "streaming-read-overwrite": str(overwrites).lower()}
    asked["change-tracking.gaps"] = "skip"
    batches = _batches(table, **asked)
    turns = batches.turns(None, batches.advance(batches.start()))
    placed: dict[Any, set[int]] = {}
    for number, turn in enumerate(turns):
        rows = [row for part in turn for rows in part.read(table.env.storage) for row in rows.to_pylist()]
        for row in rows:
            placed.setdefault((row["p"] if shape != "moving" else "", row["k"]), set()).add(number)
        for k in range(12):
            values = [row["v"] for row in rows if row["k"] == k]
            assert values == sorted(values)
            assert not values or values[-1] == 4
    assert len(placed) == 12
    assert all(len(found) == 1 for found in placed.values())


def test_partitions_whose_buckets_stay_are_read_side_by_side(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"p": "STRING", "k": "INT"}
    table = catalog.create_table("db.t", columns, ["p", "k"], ["p"], options={"bucket": "3"})
    rows = [{"p": p, "k": k} for p in "ab" for k in range(30)]
    table.write(rows)
    table.rescale(4, partitions=[{"p": "a"}])
    table.write([row for row in rows if row["p"] == "a"])
    batches = _batches(table, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "1"})
    turns = batches.turns(None, batches.advance(batches.start()))
    assert sorted(turn[0].partition[-1] for turn in turns) == ["a", "b", "b", "b"]


def test_a_reader_without_kinds_gets_no_retraction(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "input"})
    table.write([{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    batches = _batches(table, what=What.MERGED)
    first = batches.advance(batches.start())
    assert sorted(row["k"] for row in _rows(table, batches, None, first)) == [1, 2]
    table.write([{"k": 1, "v": 1}, {"k": 3, "v": 3}], kinds=["-D", "+I"])
    assert _rows(table, batches, first, batches.advance(first)) == [{"k": 3, "v": 3}]


def test_an_offset_of_something_else_is_refused() -> None:
    assert position_of(NOWHERE, "t") is None
    for value in ({}, {"version": 2}, {"version": 1, "next": 3}, {"version": 1, "first": 1, "next": "2"}, {"v": 1}):
        with pytest.raises(mg.errors.InvalidInputError, match="offset"):
            position_of(value, "t")


def test_another_filter_in_the_middle_of_a_state_is_noticed(tmp_path: Path) -> None:
    table = _table(tmp_path)
    for k in range(20):
        table.write([{"k": k, "v": k}])
    table.compact(full=True)
    batches = _batches(table, Limits(files=1))
    middle = batches.advance(batches.start())
    assert middle.splits == 1
    other = _batches(table, Limits(files=1), **{"source.split.target-size": "128 mb"})
    with pytest.raises(mg.errors.ConflictError, match="in the middle of snapshot"):
        other.advance(middle)


def test_a_rollback_behind_what_was_read_is_noticed_after_a_restart(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}])
    table.write([{"k": 2, "v": 2}])
    batches = _batches(table)
    end = batches.advance(batches.start())
    table.rollback(snapshot=1)
    table.write([{"k": 3, "v": 3}])
    with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 2"):
        _batches(table).advance(_again(end))


def test_a_rollback_is_noticed_after_a_restart_before_anything_is_written_again(tmp_path: Path) -> None:
    table = _table(tmp_path)
    for k in range(3):
        table.write([{"k": k, "v": k}])
    batches = _batches(table, **{"consumer-id": "job"})
    end = batches.advance(batches.start())
    batches.keep(end)
    table.rollback(snapshot=1)
    moved = table.consumers.list()
    assert moved[0].next_snapshot < end.next
    again = _batches(table, **{"consumer-id": "job"})
    for step in (again.keep, again.advance, batches.advance):
        with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 3"):
            step(_again(end))
    assert table.consumers.list() == moved


def test_a_rollback_is_noticed_by_a_changelog_that_outlived_its_snapshot(tmp_path: Path) -> None:
    options = {"snapshot.num-retained.max": "50", "changelog.num-retained.max": "60"}
    table = _table(tmp_path, **{"changelog-producer": "input"}, **options)
    for k in range(3):
        table.write([{"k": k, "v": k}])
    batches = _batches(table)
    end = batches.advance(batches.start())
    table.rollback(snapshot=1)
    for k in range(4):
        table.write([{"k": k, "v": 9}])
    table.expire(retain_max=1, retain_min=1)
    for each in (_batches(table), batches):
        with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 3"):
            each.advance(_again(end))


@pytest.mark.parametrize("few", [False, True])
def test_a_snapshot_that_no_batch_has_taken_may_be_replaced_by_another_one_of_its_number(
    tmp_path: Path, few: bool
) -> None:
    """The first one published nothing, or a batch waited for more rows."""
    table = _table(tmp_path, **{"write-only": "true"})
    table.write([{"k": k, "v": k} for k in range(9)])
    batches = _batches(table, Limits(min_rows=3) if few else UNLIMITED)
    at = batches.advance(batches.start())
    if few:
        table.write([{"k": 10, "v": 10}])
    else:
        table.compact(full=True)
    assert batches.advance(at) == at
    table.rollback(snapshot=1)
    table.write([{"k": k, "v": 5} for k in range(4)])
    end = batches.advance(at)
    assert sorted(row["v"] for row in _rows(table, batches, at, end)) == [5, 5, 5, 5]


def test_a_rollback_is_noticed_inside_of_a_snapshot(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "per-record"})
    table.write([{"k": 0, "v": 0}])
    batches = _batches(table, Limits(files=1))
    at = batches.start()
    table.write([{"k": k, "v": 1} for k in range(8)])
    while at.files != 1:
        at = batches.advance(at)
    assert _batches(table, Limits(files=1)).advance(_again(at)) == batches.advance(at) != at
    table.rollback(snapshot=1)
    for each in (_batches(table), batches):
        with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 2"):
            each.advance(_again(at))
    table.write([{"k": k, "v": 2} for k in range(8)])
    for each in (_batches(table), batches):
        with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 2"):
            each.advance(_again(at))


def test_a_rollback_is_noticed_inside_of_the_state_at_the_start(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"bucket": "4"})
    table.write([{"k": 0, "v": 0}])
    table.write([{"k": k, "v": 1} for k in range(8)])
    batches = _batches(table, Limits(files=1))
    middle = batches.advance(batches.start())
    assert middle.splits == 1
    assert _batches(table, Limits(files=1)).advance(_again(middle)) == batches.advance(middle)
    table.rollback(snapshot=1)
    table.write([{"k": k, "v": 2} for k in range(8)])
    with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 2"):
        _batches(table, Limits(files=1)).advance(_again(middle))


def test_a_batch_that_is_repeated_after_a_rollback_is_no_expired_one(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}])
    batches = _batches(table)
    start = batches.advance(batches.start())
    table.write([{"k": 2, "v": 2}])
    end = batches.advance(start)
    table.rollback(snapshot=1)
    with pytest.raises(mg.errors.ConflictError, match="rolled back behind snapshot 2"):
        _batches(table).turns(_again(start), _again(end))


def test_snapshots_that_expired_are_no_rollback(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}])
    table.write([{"k": 2, "v": 2}])
    batches = _batches(table, **{"consumer-id": "job"})
    end = batches.advance(batches.start())
    batches.keep(end)
    table.write([{"k": 3, "v": 3}])
    table.expire(retain_max=1, retain_min=1)
    again = _batches(table, **{"consumer-id": "job"})
    again.keep(_again(end))
    assert [row["k"] for row in _rows(table, again, end, again.advance(_again(end)))] == [3]


def test_few_rows_wait_for_more_but_not_for_ever(tmp_path: Path) -> None:
    from datetime import timedelta

    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}])
    batches = _batches(table, Limits(min_rows=3, max_delay=timedelta(milliseconds=30)))
    at = batches.advance(batches.start())
    table.write([{"k": 2, "v": 2}])
    assert batches.advance(at) == at
    table.env.sleep_ms(40)
    assert batches.advance(at) != at


def test_the_consumer_moves_on_only_behind_what_was_kept(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}])
    batches = _batches(table, **{"consumer-id": "job"})
    begin = batches.start()
    batches.keep(begin)
    assert table.consumers.list() == ()
    end = batches.advance(begin)
    batches.keep(end)
    assert [(one.id, one.next_snapshot) for one in table.consumers.list()] == [("job", 2)]
    table.write([{"k": 2, "v": 2}])
    assert _batches(table, **{"consumer-id": "job"}).start().next == 2


def test_snapshots_that_expired_unread_are_an_error(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}])
    batches = _batches(table)
    at = batches.advance(batches.start())
    for k in range(4):
        table.write([{"k": k, "v": k}])
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    with pytest.raises(mg.errors.ExpiredError, match="3 snapshots have expired"):
        batches.advance(at)
