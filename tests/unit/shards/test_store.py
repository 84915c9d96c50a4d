"""What a process knows of shards, and the files that remember them: they hold in one history, and may be lost."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import TrimmedDataError
from merganser.meta.shard_store import ShardStore, _needless, _read, _written
from merganser.meta.shard_stream import stream_of
from merganser.meta.shards import Shards
from merganser.shards.reader import ShardReader
from tests.seeds import seeds
from tests.unit.shards.test_worker_histories import worker_of


class World:
    """A catalog whose clock goes on with each look."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.folder = folder
        self.table().create_database("db")

    def table(self, name: str | None = None) -> Any:
        """Return a table, or the catalog, as a fresh process has it."""
        catalog = mg.catalog(str(self.folder), clock=self._tick)
        return catalog if name is None else catalog.table(name)

    def made(self, **options: str) -> Any:
        """Return a new table of two partitions with a stream."""
        given = {"bucket": "2", "stream.enabled": "true", "write-only": "true"} | options
        return self.table().create_table(
            "db.t", "p INT, k INT, v INT, PRIMARY KEY (p, k)", partition_by=["p"], options=given
        )

    @property
    def files(self) -> list[Path]:
        """The files that remember shards."""
        return list((self.folder / "db.db" / "t" / "stream").glob("*/shards-*"))

    def _tick(self) -> datetime:
        self.now += timedelta(milliseconds=10)
        return self.now


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reader_of(table: Any) -> ShardReader:
    """Return a reader of the shards of a table, as a process has it that has not looked at them."""
    stream = stream_of(table.definition.options, None)
    assert stream is not None
    return ShardReader(table.definition, table.env, stream)


def number_of(file: Path) -> int:
    return int(file.name.removeprefix("shards-"))


def write(table: Any, *partitions: int, value: int = 0, **how: Any) -> None:
    table.write([{"p": p, "k": k, "v": value} for p in partitions for k in range(8)], **how)


def test_a_process_that_slept_finds_the_shards_of_commits_that_have_expired(world: World) -> None:
    sleeper = world.made()
    write(sleeper, 1, 2)
    sleeper.shards()
    table = world.table("db.t")
    table.rescale(3)
    write(table, 1, overwrite={"p": 1})
    table.drop_partitions([{"p": 2}])
    write(table, 1)
    table.expire(retain_max=1)
    assert sleeper.shards() == world.table("db.t").shards()
    assert [(s.partition["p"], s.closed) for s in sleeper.shards()].count((2, True)) == 5


def test_a_process_that_slept_through_a_rollback_does_not_believe_what_it_knew(world: World) -> None:
    sleeper = world.made()
    write(sleeper, 1)
    write(sleeper, 2)
    sleeper.shards()
    table = world.table("db.t")
    table.rollback(1)
    write(table, 3)  # the snapshot has the number of the one that was taken back
    assert sleeper.shards() == world.table("db.t").shards()
    assert {s.partition["p"] for s in sleeper.shards()} == {1, 3}
    for _ in range(3):
        write(table, 3)
    table.expire(retain_max=1)
    assert {s.partition["p"] for s in sleeper.shards()} == {1, 3}


def test_a_worker_that_slept_through_a_rollback_is_told(world: World) -> None:
    table = world.made(bucket="1")
    for value in range(3):
        write(table, 1, value=value)
    worker = worker_of(world.table("db.t"), "sleeper", lambda batch: None, None)
    while worker.step():
        pass
    worker.step()
    world.table("db.t").rollback(2)
    world.now += timedelta(seconds=20)  # it prolongs its lease before it looks
    with pytest.raises(TrimmedDataError, match="rolled back"):
        worker.step()


def test_shards_as_of_a_snapshot_that_has_expired_since_are_those_of_now(world: World) -> None:
    """Such as a worker asks for that slept: another process has removed the file that covered the snapshot."""
    sleeper = world.made()
    write(sleeper, 1)
    reader = reader_of(world.table("db.t"))
    seen = reader.newest()
    table = world.table("db.t")
    write(table, 2)
    for _ in range(2):
        write(table, 1)
        table.rescale(3 if len(table.shards()) < 9 else 2)
        table.expire(retain_max=1)
    assert not [file for file in world.files if number_of(file) <= seen.id]
    assert reader.behind_all(sleeper.shards()[0].shard_id, seen) is None
    assert reader.store.up_to(reader.newest()).head == table.latest_snapshot().id
    assert [one.id for one in reader.store.up_to(seen)] == [one.shard_id for one in world.table("db.t").shards()]


def numbers(table: Any, position: str | None = None) -> list[int]:
    """Return the snapshots of the records of the one open shard behind a position; None: from the oldest one on."""
    (shard,) = (one for one in table.shards() if not one.closed)
    position = position or table.shard_iterator(shard.shard_id, at="trim_horizon")
    return sorted({number >> 32 for number in table.records(position).records.column("_sequence").to_pylist()})


def behind(table: Any, snapshots: int) -> str:
    """Return the position in the one shard behind the records of so many snapshots."""
    position = table.shard_iterator(table.shards()[0].shard_id, at="trim_horizon")
    return table.records(position, limit=8 * snapshots).next_iterator


def test_a_rollback_keeps_positions_in_commits_that_have_expired_and_tells_those_that_it_took_back(
    world: World,
) -> None:
    table = world.made(bucket="1")
    for value in range(8):
        write(table, 1, value=value)
    shards, early, at, late = table.shards(), behind(table, 2), behind(table, 6), behind(table, 7)
    table.expire(retain_max=3)
    world.table("db.t").rollback(6)
    table = world.table("db.t")
    assert table.shards() == shards
    assert (numbers(table), numbers(table, early), numbers(table, at)) == ([1, 2, 3, 4, 5, 6], [3, 4, 5, 6], [])
    for value in (8, 9):
        with pytest.raises(TrimmedDataError, match="rolled back"):
            table.records(late)
        write(table, 1, value=value)
    assert numbers(table, at) == [7, 8]
    table.expire(retain_max=1)
    assert numbers(world.table("db.t"), early) == [3, 4, 5, 6, 7, 8]


def test_a_rollback_to_a_tag_whose_snapshot_has_expired_keeps_its_records(world: World) -> None:
    table = world.made(bucket="1")
    for value in range(6):
        write(table, 1, value=value)
        if value == 2:
            table.tags.create("third")
    early, at, late = (behind(table, count) for count in (1, 3, 4))
    table.expire(retain_max=2)
    table.rollback(tag="third")
    table = world.table("db.t")
    assert (numbers(table, early), numbers(table, at)) == ([2, 3], [])
    with pytest.raises(TrimmedDataError, match="rolled back"):
        table.records(late)
    write(table, 1, value=9)
    table.expire(retain_max=1)
    assert numbers(world.table("db.t"), early) == [2, 3, 4]


def test_a_rollback_forgets_the_shards_of_snapshots_whose_numbers_become_free(world: World) -> None:
    table = world.made(bucket="1")
    for _ in range(4):
        write(table, 1)
    table.rescale(2)
    table.expire(retain_max=3)
    assert [number_of(file) for file in world.files] == [5]
    table.rollback(3)
    assert [number_of(file) for file in world.files] == [3]


def test_a_rollback_opens_a_shard_again_that_was_closed_before_the_retention(world: World) -> None:
    table = world.made(bucket="1", **{"stream.retention": "1 h"})
    write(table, 1)
    write(table, 1)
    shards = table.shards()
    table.rescale(2)
    world.now += timedelta(hours=2)
    table = world.table("db.t")
    table.expire(retain_max=2, older_than=world.now)
    assert [one.id for one in table.snapshots()] == [2, 3]
    table.rollback(2)
    assert world.table("db.t").shards() == shards


def test_a_rollback_finds_the_shards_of_its_target_if_a_later_commit_cannot_be_read(world: World) -> None:
    table = world.made(bucket="1")
    for _ in range(4):
        write(table, 1)
    shards = table.shards()
    table.expire(retain_max=2)
    for _ in range(2):
        write(table, 1)
    (world.folder / "db.db" / "t" / "manifest" / table.latest_snapshot().delta_manifest_list).write_bytes(b"")
    world.table("db.t").rollback(3)
    assert world.table("db.t").shards() == shards


def test_expiry_writes_the_shards_only_if_no_file_covers_what_goes(world: World) -> None:
    table = world.made()
    for value in range(20):
        write(table, 1, value=value)
    table.expire(retain_max=10)
    (first,) = world.files
    assert first.name == "shards-20"
    for value in range(9):
        write(table, 1, value=value)
        world.table("db.t").expire(retain_max=10)
    assert world.files == [first]
    first.unlink()
    write(table, 1)
    world.table("db.t").expire(retain_max=10)
    assert [file.name for file in world.files] == ["shards-30"]


def test_the_more_shards_there_are_the_rarer_commits_write_them(world: World) -> None:
    table = world.made(bucket="69000")
    write(table, 1)
    stream = stream_of(table.definition.options, "main")
    assert stream is not None
    store = ShardStore(table.definition, table.env, stream)
    for commits, written in ((66, False), (67, True)):
        store.up_to(table.latest_snapshot())
        store._known().remembered = 1 - commits
        store.remember_now_and_then(table.latest_snapshot())
        assert bool(world.files) == written


def test_few_files_remember_many_commits() -> None:
    kept: list[int] = []
    for head in range(64, 64 * 2000, 64):
        kept.append(head)
        gone = _needless(kept, head, 1)
        kept = [number for number in kept if number not in gone]
        assert len(kept) <= head.bit_length()
        for back in range(64, head - 64, 997):  # a rollback goes through at most twice as many commits again
            assert any(back <= head - number <= 3 * back + 64 for number in kept)
    assert _needless([3, 5, 9, 64], 64, 6) == [3]  # a file before the oldest snapshot that is kept stays


def test_shards_that_nobody_remembers_begin_again_with_other_ids(world: World) -> None:
    table = world.made()
    write(table, 1)
    write(table, 2)
    at = table.shard_iterator(table.shards()[-1].shard_id)
    before = {shard.shard_id for shard in table.shards()}
    write(table, 1)
    table.expire(retain_max=1)
    for file in world.files:
        file.unlink()
    fresh = world.table("db.t")
    shards = fresh.shards()
    assert {shard.partition["p"] for shard in shards} == {1, 2}
    assert not before & {shard.shard_id for shard in shards}
    with pytest.raises(TrimmedDataError):
        fresh.records(at)
    one = next(shard for shard in shards if shard.partition["p"] == 2 and shard.bucket == 0)
    now = fresh.shard_iterator(one.shard_id)
    write(fresh, 2, value=7)
    assert set(fresh.records(now).records.column("v").to_pylist()) == {7}
    assert world.table("db.t").shards() == fresh.shards()


@pytest.mark.parametrize("seed", seeds(3))
def test_all_processes_find_the_same_shards(world: World, seed: int) -> None:
    """A process that saw every commit, sleepers, and fresh ones, with files that are lost or damaged meanwhile."""
    rng = random.Random(seed)
    world.made(bucket=rng.choice(["2", "-1"]))
    awake, sleeper = world.table("db.t"), world.table("db.t")
    for _ in range(20):
        table = world.table("db.t")
        match rng.choices(
            ["write", "rescale", "drop", "overwrite", "expire", "rollback", "erase"], [8, 2, 2, 2, 3, 1, 2]
        )[0]:
            case "write":
                write(table, *rng.sample([1, 2, 3], rng.randrange(1, 3)))
            case "rescale" if table.definition.bucket > 0:
                table.rescale(rng.randrange(1, 5))
            case "drop":
                table.drop_partitions([{"p": rng.randrange(1, 4)}])
            case "overwrite":
                write(table, 1, overwrite={"p": 1})
            case "expire":
                table.expire(retain_max=rng.randrange(1, 5))
            case "rollback" if len(kept := table.snapshots()) > 1:
                table.rollback(rng.choice(kept).id)
            case "erase":
                report = table.erase(f"p = {rng.randrange(1, 4)}", everywhere=True)
                assert [one for one in report.held if one.name.startswith("shards-")] == []
        shards = world.table("db.t").shards()
        assert awake.shards() == shards
        if rng.random() < 0.2:
            assert sleeper.shards() == shards
        covers = sorted((file for file in world.files if number_of(file) >= table.snapshots()[0].id - 1), key=number_of)
        for file in covers[1:]:  # the oldest of them and the commits since say it again
            if rng.random() < 0.5:
                rng.choice([file.unlink, lambda file=file: file.write_bytes(file.read_bytes()[:-9])])()


@pytest.fixture
def rescaled(world: World) -> Any:
    """A table of several layouts with one file that remembers its shards."""
    table = world.made()
    for value in range(3):
        write(table, 1, 2, value=value)
        table.rescale(value + 3)
    assert table.check() == ()
    table.enable_stream("3 d")
    return table


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def _without_a_shard(file: Path) -> None:
    shards, head = _read(file.read_bytes(), "", number_of(file))
    file.write_bytes(_written(Shards(shards.head, list(shards)[:-1]), head))


def _of_another_time(file: Path) -> None:
    shards, head = _read(file.read_bytes(), "", number_of(file))
    file.write_bytes(_written(Shards(shards.head, [s._replace(total=9) for s in shards]), head))


@pytest.mark.parametrize("damage", [_cut, _without_a_shard, _of_another_time])
def test_a_check_finds_files_of_shards_that_are_wrong_and_a_repair_writes_them_anew(
    world: World, rescaled: Any, damage: Any
) -> None:
    (file,) = world.files
    shards = rescaled.shards()
    assert rescaled.check() == ()
    damage(file)
    (finding,) = world.table("db.t").check(quick=True)
    assert (finding.code, finding.path) == ("shards", str(file))
    assert "repair" in str(finding)
    assert world.table("db.t").repair().shards == 1
    assert world.table("db.t").check() == ()
    assert world.table("db.t").shards() == shards
    assert world.table("db.t").repair().shards == 0


@pytest.mark.parametrize("damage", [_cut, Path.unlink])
def test_a_check_says_if_nobody_remembers_which_shards_there_were(world: World, rescaled: Any, damage: Any) -> None:
    (file,) = world.files
    rescaled.expire(retain_max=3)
    at = rescaled.shard_iterator(rescaled.shards()[0].shard_id)
    damage(file)
    (finding,) = world.table("db.t").check()
    assert finding.code == "forgotten"
    assert world.table("db.t").repair().shards == 1
    fresh = world.table("db.t")
    assert fresh.check() == ()
    with pytest.raises(TrimmedDataError):
        fresh.records(at)
    now = fresh.shard_iterator(fresh.shards()[-1].shard_id)
    write(fresh, 1, 2, value=7)
    assert set(world.table("db.t").records(now).records.column("v").to_pylist()) == {7}


@pytest.mark.parametrize("text", ["{", '{"worker":null,"until":0,"iterator":"x","done":false}'])
def test_a_check_finds_leases_that_are_damaged(world: World, text: str) -> None:
    table = world.made()
    write(table, 1)
    stop = threading.Event()
    table.follow("w", lambda _: stop.set(), stop=stop)
    assert table.check() == ()
    for lease in (world.folder / "db.db" / "t" / "stream").glob("*/followers/shard-*/*"):
        lease.write_text(text)
    findings = table.check()
    assert {finding.code for finding in findings} == {"lease"}
    assert len(findings) == len(table.shards())
