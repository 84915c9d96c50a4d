"""Every storage call of a shard stream goes wrong once, in every way: no record is lost, and no position is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from merganser.catalogs.catalog import Catalog
from merganser.errors import StreamNotFoundError, TrimmedDataError
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Fault, Outcome

_names = itertools.count()
_OPTIONS = {"bucket": "2", "write-only": "true"}
Records = list[tuple[str, int, int | None]]


def _storage(files: dict[str, bytes]) -> Storage:
    return memory_with(files, f"shard-faults-{next(_names)}")


def _table(storage: Storage) -> Any:
    return catalog_over(storage).table("db.t")


def _base(*, stream: bool) -> dict[str, bytes]:
    catalog = catalog_over(_storage({}))
    catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT, v INT, PRIMARY KEY (k)", options=_OPTIONS)
    _write(table, range(6), 0)
    if stream:
        table.enable_stream()
        _write(table, range(8), 1)
    return contents(catalog.env.storage)


def _write(table: Any, keys: range, value: int) -> None:
    table.write([{"k": k, "v": value} for k in keys])


def _all_records(table: Any, at: dict[str, str] | None = None) -> Records:
    """Return the records of all shards: from positions on, and of other shards from their beginnings."""
    found: Records = []
    for shard in table.shards():
        position = (at or {}).get(shard.shard_id) or table.shard_iterator(shard.shard_id, at="trim_horizon")
        while position is not None:
            page = table.records(position, limit=3)
            found += [(row["_action"], row["k"], row["v"]) for row in page.records.to_pylist()]
            position = page.next_iterator
            if not page.may_have_more:
                break
    return sorted(found, key=str)


def _rows(table: Any) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.read().to_pylist()}


def _has_stream(table: Any) -> bool:
    try:
        table.describe_stream()
    except StreamNotFoundError:
        return False
    return True


def test_a_stream_is_enabled_or_not_whichever_call_goes_wrong() -> None:
    files = _base(stream=False)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        enabled = _has_stream(_table(storage))
        assert enabled or outcome.error is not None
        stream = _table(storage).describe_stream().stream_id if enabled else None
        _write(_table(storage), range(1), 7)
        table = _table(storage)
        assert table.enable_stream().stream_id == stream or not enabled
        _write(table, range(5, 7), 8)
        logged = [("PUT", 6, 8), ("UPDATE", 5, 8)] + ([("UPDATE", 0, 7)] if enabled else [])
        assert _all_records(_table(storage)) == sorted(logged, key=str)
        assert table.check() == ()

    assert run_some(lambda: _storage(files), lambda s: _table(s).enable_stream(), check) > 40


def test_a_stream_is_disabled_or_not_whichever_call_goes_wrong() -> None:
    files = _base(stream=True)
    told = _all_records(_table(_storage(files)))
    assert len(told) == 8

    def work(storage: Storage) -> dict[str, str]:
        table = _table(storage)
        positions = {s.shard_id: table.shard_iterator(s.shard_id, at="trim_horizon") for s in table.shards()}
        table.disable_stream()
        return positions

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _table(storage)
        old = ""
        if _has_stream(table):
            assert outcome.error is not None
            assert _all_records(table) == told
            old = table.shard_iterator(table.shards()[0].shard_id, at="trim_horizon")
            table.disable_stream()
        assert dict(_table(storage).options) == _OPTIONS
        table.enable_stream()
        _write(table, range(9, 10), 3)
        assert _all_records(_table(storage)) == [("PUT", 9, 3)]
        for position in (old, *(outcome.result or {}).values()):
            try:
                table.records(position)
            except TrimmedDataError:
                continue
            raise AssertionError("a position of the stream before was read")
        assert table.check() == ()

    assert run_some(lambda: _storage(files), work, check) > 60


def test_a_commit_and_its_records_stand_together_whichever_call_goes_wrong() -> None:
    files = _base(stream=False)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        table = _table(storage)
        if _has_stream(table) and _rows(table).get(6) == 5:
            assert _all_records(table) == [("PUT", 6, 5), ("PUT", 7, 5), ("UPDATE", 5, 5)]
        else:
            assert outcome.error is not None
            assert _rows(table) == dict.fromkeys(range(6), 0)
        table.enable_stream()
        _write(table, range(20, 21), 1)
        assert ("PUT", 20, 1) in _all_records(_table(storage))
        assert table.check() == ()

    def work(storage: Storage) -> None:
        table = _table(storage)
        table.enable_stream()
        _write(table, range(5, 8), 5)

    assert run_some(lambda: _storage(files), work, check) > 120


def _with_history() -> tuple[dict[str, bytes], dict[str, str], Records, tuple[Any, ...]]:
    """Return the files of a table whose shards were split, positions in them, the records there, and the shards."""
    storage = _storage(_base(stream=True))
    table = _table(storage)
    positions = {s.shard_id: table.shard_iterator(s.shard_id, at="trim_horizon") for s in table.shards()}
    table.rescale(3)
    _write(table, range(4), 2)
    _write(table, range(4, 9), 3)
    return contents(storage), positions, _all_records(table, positions), table.shards()


def test_expiry_keeps_shards_and_records_whichever_call_goes_wrong() -> None:
    files, positions, told, shards = _with_history()
    assert len(told) == 17

    def check(storage: Storage, _: Outcome[Any]) -> None:
        for again in (False, True):
            if again:
                _table(storage).expire(retain_max=1)
                assert len(_table(storage).snapshots()) == 1
            assert _table(storage).shards() == shards
            assert _all_records(_table(storage), positions) == told
        assert _table(storage).check() == ()

    assert run_some(lambda: _storage(files), lambda s: _table(s).expire(retain_max=1), check) > 100


@pytest.mark.parametrize("target", [{"snapshot": 5}, {"tag": "old"}])
def test_a_rollback_after_expiry_keeps_shards_and_records_whichever_call_goes_wrong(target: dict[str, Any]) -> None:
    storage = _storage(_base(stream=True))
    table = _table(storage)
    positions = {s.shard_id: table.shard_iterator(s.shard_id, at="trim_horizon") for s in table.shards()}
    told: dict[int, tuple[Any, Records]] = {}
    for step in range(3):
        _write(table, range(step, step + 4), step + 2)
        told[table.latest_snapshot().id] = (table.shards(), _all_records(table, positions))
        if step == 0:
            table.tags.create("old")
        table.rescale(step + 3)
        told[table.latest_snapshot().id] = (table.shards(), _all_records(table, positions))
    table.expire(retain_max=4)
    assert [one.id for one in table.snapshots()] == [5, 6, 7, 8]
    to = target.get("snapshot", 3)
    files = contents(storage)

    def check(storage: Storage, _: Outcome[Any]) -> None:
        newest = _table(storage).latest_snapshot().id
        assert (_table(storage).shards(), _all_records(_table(storage), positions)) == told[newest]
        _table(storage).rollback(**target)
        table = _table(storage)
        assert table.latest_snapshot().id == to
        assert (table.shards(), _all_records(table, positions)) == told[to]
        _write(table, range(50, 51), 9)
        assert _all_records(_table(storage), positions) == sorted([*told[to][1], ("PUT", 50, 9)], key=str)
        assert _table(storage).check() == ()

    def work(storage: Storage) -> None:
        _table(storage).rollback(**target)

    assert run_some(lambda: _storage(files), work, check, faults=(Fault.FAIL, Fault.STOP)) > 50


def test_what_is_remembered_of_shards_holds_whichever_call_goes_wrong() -> None:
    files, positions, told, shards = _with_history()

    def work(storage: Storage) -> None:
        catalog: Catalog = catalog_over(storage)
        table = catalog.table("db.t")
        stream = stream_of(table.definition.options, "main")
        assert stream is not None
        ShardStore(table.definition, catalog.env, stream).remember(table.latest_snapshot())

    def check(storage: Storage, _: Outcome[Any]) -> None:
        assert _table(storage).shards() == shards
        assert _all_records(_table(storage), positions) == told
        work(storage)
        assert _table(storage).shards() == shards

    assert run_some(lambda: _storage(files), work, check) > 30


def test_a_page_is_read_or_not_whichever_call_goes_wrong() -> None:
    files, positions, told, _ = _with_history()

    def check(storage: Storage, outcome: Outcome[Records]) -> None:
        assert outcome.result == told or outcome.error is not None
        assert _all_records(_table(storage), positions) == told

    assert (
        run_some(lambda: _storage(files), lambda s: _all_records(_table(s), positions), check, faults=(Fault.FAIL,))
        > 50
    )
