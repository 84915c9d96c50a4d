"""Shard streams of each kind of table, of branches, and beside rollbacks, tags and writers of other engines."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.changes import set_option
from merganser.errors import (
    ConflictError,
    InvalidInputError,
    StreamNotFoundError,
    StreamParameterError,
    TrimmedDataError,
    UntrackedError,
)
from merganser.meta.snapshots import SnapshotStore
from merganser.upkeep import expire_snapshots
from tests.seeds import seeds

KEYED = "k INT, v INT, PRIMARY KEY (k)"
STREAM = {"stream.enabled": "true"}


class World:
    """A catalog whose clock goes on with each look."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.folder = folder
        self.open().create_database("db")

    def open(self) -> Any:
        """Return the catalog as a fresh process has it."""
        return mg.catalog(str(self.folder), clock=self._tick)

    def made(self, definition: str = KEYED, partition_by: list[str] | None = None, **options: str) -> Any:
        """Return a new table."""
        given = {key.replace("_", "-"): value for key, value in options.items()}
        return self.open().create_table("db.t", definition, partition_by=partition_by, options=given)

    def _tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def write(table: Any, *pairs: tuple[int, int], **how: Any) -> None:
    table.write([{"k": k, "v": v} for k, v in pairs], **how)


def told(table: Any) -> list[tuple[Any, ...]]:
    """Return the records of all shards as (action, key, value), shard by shard."""
    found: list[tuple[Any, ...]] = []
    for shard in table.shards():
        at: str | None = table.shard_iterator(shard.shard_id, at="trim_horizon")
        while at is not None:
            page = table.records(at)
            found += [(row["_action"], row["k"], row["v"]) for row in page.records.to_pylist()]
            at = page.next_iterator
            if not page.may_have_more:
                break
    return found


def test_buckets_that_are_added_open_shards(world: World) -> None:
    table = world.open().create_table("db.t", KEYED, options=STREAM | {"dynamic-bucket.target-row-num": "3"})
    for value in range(4):
        write(table, *((k, value) for k in range(3 * value, 3 * value + 4)))
    assert len({shard.bucket for shard in table.shards()}) == len(table.shards()) > 3
    assert sorted(told(table)) == sorted(
        [("PUT", k, max(0, (k - 1) // 3)) for k in range(13)] + [("UPDATE", k, k // 3) for k in (3, 6, 9)]
    )
    assert world.open().table("db.t").shards() == table.shards()


def test_a_key_that_moves_is_deleted_in_one_shard_and_put_in_another(world: World) -> None:
    table = world.open().create_table(
        "db.t", "p INT, k INT, v INT, PRIMARY KEY (k)", partition_by=["p"], options=STREAM
    )
    table.write([{"p": 1, "k": 1, "v": 1}])
    table.write([{"p": 2, "k": 1, "v": 2}])
    assert told(table) == [("PUT", 1, 1), ("DELETE", 1, None), ("PUT", 1, 2)]


def test_rows_that_wait_for_their_buckets_have_no_records_before_they_have_them(world: World) -> None:
    table = world.made(bucket="-2", changelog_producer="lookup", **{"postpone.batch-write-fixed-bucket": "false"})
    table.enable_stream()
    write(table, (1, 1), (2, 2))
    assert table.shards() == ()
    table.compact(full=True)
    assert sorted(told(table)) == [("PUT", 1, 1), ("PUT", 2, 2)]
    write(table, (1, 5))
    table.compact(full=True)
    assert sorted(told(table)) == [("PUT", 1, 1), ("PUT", 2, 2), ("UPDATE", 1, 5)]


def test_tables_without_a_key_and_with_fixed_buckets_have_puts_alone(world: World) -> None:
    table = world.open().create_table("db.t", "k INT, v INT", options=STREAM | {"bucket": "2", "bucket-key": "k"})
    write(table, *((k, k) for k in range(9)))
    assert len(table.shards()) == 2
    assert sorted(told(table)) == [("PUT", k, k) for k in range(9)]


@pytest.mark.parametrize("options", [{"bucket": "-2"}, {"merge_engine": "first-row"}])
def test_a_table_that_cannot_log_each_record_says_what_its_stream_needs(world: World, options: dict[str, str]) -> None:
    table = world.made(**options)
    with pytest.raises(InvalidInputError, match="Set 'changelog-producer' to 'lookup'"):
        table.enable_stream()
    table.alter([set_option("changelog-producer", "lookup")]).enable_stream()


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_counting_table_has_a_record_for_each_row_that_comes_or_goes(world: World, producer: str) -> None:
    table = world.made("k INT, v INT", bucket="1", write_mode="change-log", changelog_producer=producer)
    write(table, (0, 0), (0, 0))
    table.enable_stream()
    write(table, (1, 1), (1, 1), (0, 0), kinds=["+I", "+I", "-D"])
    write(table, (1, 1), (2, 2), kinds=["-U", "+U"])
    table.compact(full=True)
    assert sorted(told(table)) == [("DELETE", 0, 0), ("DELETE", 1, 1), ("PUT", 1, 1), ("PUT", 1, 1), ("PUT", 2, 2)]
    assert sorted((row["k"], row["v"]) for row in table.read().to_pylist()) == [(0, 0), (1, 1), (2, 2)]
    table.disable_stream()
    assert table.options.get("changelog-producer", "none") == producer


def test_rows_that_are_logged_without_those_before_are_puts(world: World) -> None:
    table = world.made(bucket="1", changelog_producer="per-record", **STREAM, **{"changelog.image": "wal"})
    write(table, (1, 1))
    write(table, (1, 2), (2, 5))
    write(table, (1, 2), kinds=["-D"])
    assert told(table) == [("PUT", 1, 1), ("PUT", 1, 2), ("PUT", 2, 5), ("DELETE", 1, None)]


def test_a_branch_keeps_a_stream_of_its_own_or_none(world: World) -> None:
    table = world.made(bucket="1")
    write(table, (1, 1))
    table.enable_stream()
    table.branches.create("b")
    branch = table.branch("b")
    with pytest.raises(StreamNotFoundError):
        branch.describe_stream()
    branch.enable_stream()
    assert branch.describe_stream().stream_id != table.describe_stream().stream_id
    write(branch, (5, 5))
    write(table, (6, 6))
    assert told(branch) == [("PUT", 5, 5)]
    assert told(table) == [("PUT", 6, 6)]
    with pytest.raises(TrimmedDataError, match="belongs to the stream"):
        branch.records(table.shard_iterator(table.shards()[0].shard_id))
    branch.disable_stream()
    assert told(table) == [("PUT", 6, 6)]


def test_a_rollback_to_before_the_stream_is_refused(world: World) -> None:
    table = world.made(bucket="1")
    for value in range(3):
        write(table, (value, value))
    table.enable_stream()
    write(table, (9, 9))
    with pytest.raises(InvalidInputError, match="began after snapshot 3"):
        table.rollback(2)
    table.rollback(3)
    write(table, (4, 4))
    assert told(table) == [("PUT", 4, 4)]


@pytest.mark.parametrize("after", ["open", "closed again", "closed by the same number"])
def test_workers_are_told_of_a_rollback_behind_the_end_of_a_shard(world: World, after: str) -> None:
    table = world.made(bucket="1", **STREAM)
    write(table, (1, 1))
    stop = threading.Event()

    def handler(batch: Any) -> None:
        if batch.records.column("k").to_pylist() == [2]:
            stop.set()

    table.rescale(2)
    write(table, (2, 2))
    (ended,) = (shard for shard in table.shards() if shard.closed)
    world.open().table("db.t").follow("one", handler, stop=stop)
    table.rollback(1)
    table = world.open().table("db.t")
    if after != "closed by the same number":
        write(table, (9, 9))
    if after != "open":
        table.rescale(2)
        write(table, (10, 10))
    (now,) = (shard for shard in table.shards() if shard.shard_id == ended.shard_id)
    assert now.closed_time != ended.closed_time  # so programs that keep positions themselves can tell
    with pytest.raises(TrimmedDataError, match="rolled back behind the end"):
        world.open().table("db.t").follow("one", handler, stop=threading.Event())


def test_a_running_worker_is_told_that_a_rollback_took_its_shard_away(world: World) -> None:
    table = world.open().create_table(
        "db.t", "p INT, k INT, v INT, PRIMARY KEY (p, k)", partition_by=["p"], options=STREAM | {"bucket": "1"}
    )
    table.write([{"p": 1, "k": 1, "v": 1}])
    table.write([{"p": 2, "k": 1, "v": 1}])

    def handler(batch: Any) -> None:
        if batch.shard.partition["p"] == 2:
            table.rollback(1)

    with pytest.raises(TrimmedDataError, match="rolled back"):
        world.open().table("db.t").follow("one", handler, lease="30 ms", stop=threading.Event())


def test_a_position_inside_a_snapshot_that_a_rollback_replaced_is_refused(world: World) -> None:
    table = world.made(bucket="1", **STREAM)
    write(table, (0, 0))
    at = table.shard_iterator(table.shards()[0].shard_id)
    write(table, *((k, 1) for k in range(5)))
    half = table.records(at, limit=2).next_iterator
    assert [row["k"] for row in table.records(half).records.to_pylist()] == [2, 3, 4]
    table.rollback(1)
    for handle in (table, world.open().table("db.t")):
        with pytest.raises(TrimmedDataError, match="rolled back behind snapshot 2"):
            handle.records(half)
    write(table, *((k, 2) for k in range(5)))
    for handle in (table, world.open().table("db.t")):
        with pytest.raises(TrimmedDataError, match="rolled back behind snapshot 2"):
            handle.records(half)


def test_a_handler_that_is_no_function_is_refused(world: World) -> None:
    table = world.made(bucket="1", **STREAM)
    with pytest.raises(StreamParameterError, match="handler"):
        table.follow("one", None)


def test_a_tag_of_a_snapshot_that_expired_brings_its_shards_back(world: World) -> None:
    table = world.made(bucket="2", **{"stream.enabled": "true"})
    write(table, (1, 1))
    table.tags.create("one")
    at = {shard.shard_id: table.shard_iterator(shard.shard_id) for shard in table.shards()}
    for value in range(5):
        write(table, (1, value))
        table.expire(retain_max=1)
    table.rollback(tag="one")
    assert {shard.shard_id for shard in table.shards()} == at.keys()
    write(table, (7, 7))
    fresh = world.open().table("db.t")
    assert [row["k"] for place in at.values() for row in fresh.records(place).records.to_pylist()] == [7]


@pytest.mark.parametrize("knows_stream", [True, False])
def test_rows_that_another_engine_added_without_logging_them_are_a_gap(world: World, knows_stream: bool) -> None:
    table = world.made(bucket="1")
    write(table, (1, 1))
    table.enable_stream()
    at = table.shard_iterator(table.shards()[0].shard_id)
    write(table, (2, 2))
    write(table, (3, 3))
    store = SnapshotStore(table.definition.paths, table.env, "db.t")
    ours = store.load(2)
    schema = ours.schema_id if knows_stream else 0  # a writer that was there before the stream
    store.replace(replace(ours, writer_version=None, changelog_manifest_list=None, schema_id=schema))
    fresh = world.open().table("db.t")
    with pytest.raises(UntrackedError):
        fresh.records(at)
    assert [row["k"] for row in fresh.records(at, gaps="skip").records.to_pylist()] == [3]


def test_what_is_kept_is_what_a_position_may_need_and_nothing_more(world: World) -> None:
    table = world.made(bucket="1", **{"stream.enabled": "true", "stream.retention": "1 h"})
    root = world.folder / "db.db" / "t"
    for value in range(12):
        write(table, (1, value))
        world.now += timedelta(minutes=11)
        table.compact(full=True)
        table.expire(retain_max=1)

    def changelogs() -> set[str]:
        return {path.name for path in root.glob("bucket-0/changelog-*")}

    assert len(table.snapshots()) == 1
    assert [value for _, _, value in told(table)] == list(range(7, 12))
    assert len(changelogs()) in (5, 6)  # one more: what is kept begins with the state before the oldest record
    assert len(list((root / "changelog").glob("changelog-*"))) in (10, 11, 12)  # of commits and compactions
    assert len(list(root.glob("bucket-0/data-*"))) == 1
    world.now += timedelta(hours=3)
    write(table, (1, 99))
    table.expire(retain_max=1)
    assert told(table) == [("UPDATE", 1, 99)]
    assert len(changelogs()) <= 2


@pytest.mark.parametrize("seed", seeds(3))
def test_writers_side_by_side_lose_no_record(world: World, seed: int) -> None:
    """Some of them were opened before the stream was enabled, and go on after it."""
    rng = random.Random(seed)
    world.made(bucket=rng.choice(["2", "-1"]), **{"dynamic-bucket.target-row-num": "20"})
    tables = [world.open().table("db.t") for _ in range(3)]
    write(tables[0], *((k, -1) for k in range(0, 30, 2)))
    began = {row["k"]: row["v"] for row in tables[0].read().to_pylist()}
    world.open().table("db.t").enable_stream()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = random.Random(seed * 10 + number)
            for turn in range(6):
                rows = [(k, 100 * number + turn) for k in mine.sample(range(number, 30, 3), 4)]
                kinds = mine.choices(["+I", "-D"], [4, 1], k=4)
                while True:
                    try:
                        write(tables[number], *rows, kinds=kinds)
                        break
                    except ConflictError:  # of two that add keys to one partition one tries again
                        continue
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    table = world.open().table("db.t")
    rows = dict(began)
    for action, key, value in told(table):
        if action == "DELETE":
            del rows[key]
        else:
            assert (key in rows) == (action == "UPDATE")
            rows[key] = value if value is not None else rows[key]
    assert rows == {row["k"]: row["v"] for row in table.read().to_pylist()}


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("seed", seeds(3))
def test_rows_of_tables_without_a_key_that_are_deleted_or_changed_have_records(
    world: World, vectors: str, seed: int
) -> None:
    rng = random.Random(seed)
    options = STREAM | {"deletion-vectors.enabled": vectors, "target-file-size": rng.choice(["1 b", "128 mb"])}
    table = world.open().create_table("db.t", "p INT, k INT, v INT", partition_by=["p"], options=options)
    if began := seed % 2:  # a stream whose first commit may take rows away
        table.disable_stream()
        table.write([{"p": p, "k": k, "v": -1} for p in (0, 1) for k in range(12)])
        table.delete("k = 11")
        table.enable_stream()
        table.delete("k < 3 or k = 9")
    for turn in range(16):
        k, p = rng.randrange(12), rng.randrange(2)
        match rng.choice(["write", "one", "one", "one", "one", "delete", "delete", "update", "all", "compact"]):
            case "write":
                table.write([{"p": p, "k": rng.randrange(12), "v": turn} for p in (0, 1) for _ in range(3)])
            case "one":  # a file that a delete may remove as a whole, where others stay
                table.write([{"p": p, "k": k, "v": turn}])
            case "delete":
                table.delete(f"k = {k} or k = 5" if k < 6 else f"k < {k}")
            case "update":
                table.update(f"k >= {k} and p = {p}", {"v": str(turn)})
            case "all":
                table.delete(f"p = {p} or k = {k}")
            case "compact":
                table.compact(full=True)
    rows: Counter[tuple[int, int, int]] = Counter((p, k, -1) for p in (0, 1) for k in range(11) if began)
    numbers: set[tuple[str, int]] = set()
    fresh = world.open().table("db.t")
    wanted = Counter((row["p"], row["k"], row["v"]) for row in fresh.read().to_pylist())
    assert fresh.shards() == table.shards()  # also if it knows the newest files before it goes through the commits
    for shard in fresh.shards():
        at: str | None = fresh.shard_iterator(shard.shard_id, at="trim_horizon")
        while at is not None:
            page = fresh.records(at, limit=rng.choice([1, 3, 100]))
            for record in page.records.to_pylist():
                rows[record["p"], record["k"], record["v"]] += -1 if record["_action"] == "DELETE" else 1
                assert (shard.shard_id, record["_sequence"]) not in numbers
                numbers.add((shard.shard_id, record["_sequence"]))
            at = page.next_iterator
            if not page.may_have_more:
                break
    assert +rows == wanted
    assert all(count >= 0 for count in rows.values())


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_delete_that_removes_some_files_leaves_the_shards_open_for_the_others(world: World, vectors: str) -> None:
    table = world.made("p INT, k INT, v INT", ["p"], **STREAM, **{"deletion-vectors.enabled": vectors})
    for p, k in ((0, 1), (1, 1), (1, 2)):
        table.write([{"p": p, "k": k, "v": 0}])
    table.delete("k = 1")
    puts = [("PUT", 1, 0), ("DELETE", 1, 0)], [("PUT", 1, 0), ("PUT", 2, 0), ("DELETE", 1, 0)]
    assert [shard.closed for shard in table.shards()] == [True, False]
    assert told(world.open().table("db.t")) == [*puts[0], *puts[1]]
    table.delete("k = 2")
    assert [shard.closed for shard in world.open().table("db.t").shards()] == [True, True]
    assert told(table) == [*puts[0], *puts[1], ("DELETE", 2, 0)]


def test_rows_of_an_emptied_partition_that_has_other_buckets_now_are_records_of_the_new_shards_alone(
    world: World,
) -> None:
    table = world.made("p INT, k INT, v INT, PRIMARY KEY (p, k)", ["p"], bucket="1", **STREAM)
    table.write([{"p": p, "k": 1, "v": 0} for p in (0, 1)])
    table.delete("p = 1")
    table.compact(full=True)
    table.rescale(2)
    (old,) = (shard.shard_id for shard in table.shards() if shard.partition["p"] == 1)
    table.write([{"p": 1, "k": k, "v": k} for k in range(4)])
    shards = {shard.shard_id: shard for shard in table.shards() if shard.partition["p"] == 1}
    records = {one: table.records(table.shard_iterator(one, at="trim_horizon")) for one in shards}
    assert [row["_action"] for row in records[old].records.to_pylist()] == ["PUT", "DELETE"]
    assert shards.pop(old).closed
    assert [shard.parents for shard in shards.values()] == [(old,)] * 2
    assert sorted(row["k"] for one in shards for row in records[one].records.to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["overwrite", "first", "drop", "truncate", "vectors"])
def test_what_a_commit_took_away_is_kept_for_the_retention_and_no_longer(world: World, how: str) -> None:
    definition = "p INT, k INT, v INT" + ("" if how == "vectors" else ", PRIMARY KEY (p, k)")
    options = STREAM | {"stream.retention": "2 h", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    if how == "vectors":
        options |= {"deletion-vectors.enabled": "true"}
    table = world.open().create_table("db.t", definition, partition_by=["p"], options=options)
    table.write([{"p": 1, "k": k, "v": k} for k in range(3)], overwrite={} if how == "first" else None)
    before = table.latest_snapshot().id
    if how != "first":
        table.write([{"p": 1, "k": 9, "v": 9}])
        before = table.latest_snapshot().id
    match how:
        case "overwrite":
            table.write([{"p": 1, "k": 5, "v": 5}], overwrite={"p": 1})
        case "drop":
            table.drop_partitions([{"p": 1}])
        case "truncate":
            table.truncate()
        case "vectors":
            table.delete("k < 3")
    wanted = told(table)
    assert sum(action == "DELETE" for action, _, _ in wanted) == {"first": 0, "vectors": 3}.get(how, 4)
    for turn in range(5):
        table.write([{"p": 2, "k": turn, "v": turn}])
        world.now += timedelta(minutes=20)
        table.expire(retain_max=1)
    assert table.snapshots()[0].id == before
    assert Counter(told(world.open().table("db.t"))) >= Counter(wanted)
    world.now += timedelta(minutes=21)
    table.write([{"p": 2, "k": 6, "v": 6}])  # a commit lets expire what nobody needs any more
    assert len(table.snapshots()) == 1


def test_a_handle_that_knows_what_is_gone_says_that_it_was_trimmed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.open().create_table("db.t", "p INT, k INT, v INT", partition_by=["p"], options=STREAM)
    table.write([{"p": 1, "k": k, "v": k} for k in range(3)])
    table.write([{"p": 1, "k": 5, "v": 5}], overwrite={"p": 1})
    closed, opened = table.shards()
    at, child = (table.shard_iterator(one.shard_id, at="trim_horizon") for one in (closed, opened))
    half = world.open().table("db.t").records(at, limit=4).next_iterator
    assert len(told(table)) == 7
    monkeypatch.setattr(expire_snapshots, "takes_rows", lambda *_: False)  # as an engine that knows no stream
    world.open().table("db.t").expire(retain_max=1)
    for handle in (table, world.open().table("db.t")):
        with pytest.raises(TrimmedDataError, match="took rows away"):
            handle.records(half)
        assert [row["k"] for row in handle.records(at, gaps="skip").records.to_pylist()] == [0, 1, 2]
        assert [row["k"] for row in handle.records(child).records.to_pylist()] == [5]


def test_rows_that_another_engine_marks_have_records_until_they_are_trimmed(world: World) -> None:
    table = world.made("k INT, v INT", **STREAM, **{"deletion-vectors.enabled": "true", "stream.retention": "1 h"})
    write(table, *((k, k) for k in range(40)))
    for k in (1, 2):
        table.delete(f"k = {k}")
    store = SnapshotStore(table.definition.paths, table.env, "db.t")
    for number in (2, 3):  # such an engine marks rows in commits that append
        store.replace(replace(store.load(number), commit_kind="APPEND", writer_version=None))
    fresh = world.open().table("db.t")
    write(fresh, (5, 5))
    fresh.expire(retain_max=1)
    assert fresh.snapshots()[0].id == 1
    changes = [("DELETE", 1, 1), ("DELETE", 2, 2), ("PUT", 5, 5)]
    assert told(fresh) == [("PUT", k, k) for k in range(40)] + changes
    world.now += timedelta(hours=2)
    write(fresh, (6, 6))
    fresh.expire(retain_max=1)
    assert len(fresh.snapshots()) == 1
    assert told(world.open().table("db.t")) == [("PUT", 6, 6)]


def test_a_stream_and_a_consumer_each_keep_what_they_need(world: World) -> None:
    table = world.made(bucket="1", **STREAM)
    for value in range(3):
        write(table, (1, value))
    table.consumers.set("c", 2)
    write(table, (2, 2), overwrite={})
    for value in range(2):
        write(table, (1, value))
    table.expire(retain_max=1)
    assert table.snapshots()[0].id == 2
    wanted = told(table)
    assert len(wanted) == 3 + 1 + 3
    read = [row for rows in table.stream(consumer="c", follow=False) for row in rows.to_pylist()]
    assert [row["v"] for row in read if row["_row_kind"] == "+U"] == [1, 2, 1]
    assert table.consumers.list()[0].next_snapshot > 4
    table.expire(retain_max=1)
    assert table.snapshots()[0].id == 3  # before the overwrite
    world.now += timedelta(hours=25)
    write(table, (7, 7))
    table.expire(retain_max=1)
    assert len(table.snapshots()) == 1
