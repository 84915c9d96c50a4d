"""Expiry, orphans and partitions by age, on tables in memory and on tables of another engine."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError, UnsupportedError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.refs import Tag, TagStore
from merganser.scan.split import What
from merganser.storage.protocol import Storage
from merganser.stream.batches import UNLIMITED, TableBatches
from merganser.upkeep import expire_snapshots
from merganser.upkeep.tags import drop_listed_tag
from tests.kit.builders import catalog_over, contents, memory_with

GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
FUTURE = "2100-01-01"
KEPT = {"snapshot.num-retained.max": "50", "write-only": "true"}
_names = itertools.count()


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def table_of(
    options: dict[str, str] | None = None, *, key: list[str] | None = None, partition_by: list[str] | None = None
) -> tuple[mg.Table, Clock]:
    clock = Clock()
    catalog = catalog_over(memory_with({}, f"expire-{next(_names)}"), clock=clock)
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "v": "STRING"},
        primary_key=["p", "k"] if key is None else key,
        partition_by=["p"] if partition_by is None else partition_by,
        options={"bucket": "-1" if key == [] else "1", "num-sorted-run.compaction-trigger": "50", **(options or {})},
    )
    return table, clock


def write(table: mg.Table, k: int = 1, v: str = "x", p: str = "a", **given: Any) -> Any:
    return table.write([{"p": p, "k": k, "v": v}], **given)


def ids(table: mg.Table) -> list[int]:
    return [snapshot.id for snapshot in table.snapshots()]


def kinds_of_files(storage: Storage) -> dict[str, int]:
    """Return the number of files by directory name."""
    found: dict[str, int] = {}
    for path in contents(storage):
        found[path.split("/")[-2]] = found.get(path.split("/")[-2], 0) + 1
    return found


def rows(scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in scan.to_pylist())


# snapshots


def test_a_dry_run_says_what_goes_and_changes_nothing() -> None:
    table, _ = table_of()
    for _ in range(4):
        write(table)
    before = contents(table.env.storage)
    assert [s.id for s in table.expire(retain_max=1, dry_run=True)] == [1, 2, 3]
    assert contents(table.env.storage) == before


def test_what_compaction_replaced_goes_with_the_last_snapshot_that_had_it() -> None:
    table, _ = table_of()
    for i in range(3):
        write(table, v=str(i))
    table.compact(full=True)
    assert kinds_of_files(table.env.storage)["bucket-0"] == 4
    assert [s.id for s in table.expire(retain_max=1)] == [1, 2, 3]
    assert kinds_of_files(table.env.storage)["bucket-0"] == 1
    assert rows(table.read()) == [("a", 1, "2")]
    assert table.env.storage.read(table.definition.paths.earliest_hint) == b"4"
    assert table.remove_orphans(older_than=FUTURE) == ()


def test_a_file_that_only_changed_its_level_stays() -> None:
    table, _ = table_of()
    write(table)
    table.compact(full=True)
    [file] = table.files().to_pylist()
    assert file["level"] > 0
    table.expire(retain_max=1)
    assert rows(table.read()) == [("a", 1, "x")]


def test_an_expired_snapshot_is_an_error_that_says_which_option_keeps_more() -> None:
    table, _ = table_of()
    for _ in range(3):
        write(table)
    table.expire(retain_max=1)
    with pytest.raises(ExpiredError, match=r"snapshot\.time-retained"):
        table.read(snapshot=1).to_arrow()


def test_a_reader_whose_snapshot_expires_gets_an_error_that_says_so() -> None:
    table, _ = table_of()
    write(table, v="old")
    scan = table.read(snapshot=1)
    write(table, v="new")
    table.compact(full=True)
    table.expire(retain_max=1)
    with pytest.raises((ExpiredError, FormatError)):
        scan.to_arrow()


def test_a_reader_of_the_newest_state_goes_on_with_the_next_when_its_snapshot_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from merganser.meta.snapshots import SnapshotStore

    table, _ = table_of()
    write(table, v="old")
    reader = catalog_over(table.env.storage).table("db.t")
    look = SnapshotStore.look
    left = [True]

    def late(store: SnapshotStore, **how: Any) -> Any:
        found = look(store, **how)
        if store.env is reader.env and left and left.pop():
            write(table, v="new")
            table.compact(full=True)
            table.expire(retain_max=1)
        return found

    monkeypatch.setattr(SnapshotStore, "look", late)
    assert rows(reader.read()) == [("a", 1, "new")]


def test_tags_keep_their_files_until_they_are_dropped() -> None:
    table, _ = table_of()
    write(table, v="1")
    table.tags.create("one")
    write(table, v="2")
    table.compact(full=True)
    table.tags.create("three")
    for i in (4, 5):
        write(table, v=str(i))
        table.compact(full=True)
    table.expire(retain_max=1)
    assert rows(table.read(tag="one")) == [("a", 1, "1")]
    assert rows(table.read(tag="three")) == [("a", 1, "2")]
    assert table.remove_orphans(older_than=FUTURE) == ()
    before = kinds_of_files(table.env.storage)
    table.tags.drop("one")
    after = kinds_of_files(table.env.storage)
    assert after["bucket-0"] < before["bucket-0"]
    assert after["manifest"] < before["manifest"]
    assert rows(table.read(tag="three")) == [("a", 1, "2")]
    table.tags.drop("three")
    assert table.remove_orphans(older_than=FUTURE) == ()
    assert rows(table.read()) == [("a", 1, "5")]


def test_a_tag_that_cannot_be_read_stops_expiry_before_anything_goes() -> None:
    table, _ = table_of()
    for _ in range(3):
        write(table)
    table.tags.create("broken", snapshot=1)
    table.env.storage.replace(table.definition.paths.tag("broken"), b"{")
    before = contents(table.env.storage)
    with pytest.raises(FormatError):
        table.expire(retain_max=1)
    assert contents(table.env.storage) == before


def test_files_of_an_expired_snapshot_that_cannot_be_read_are_kept_for_removing_orphans() -> None:
    table, _ = table_of()
    for i in range(3):
        write(table, v=str(i))
    table.compact(full=True)
    table.env.storage.delete([table.definition.paths.manifest(table.snapshots()[3].delta_manifest_list)])
    for i in range(2):
        write(table, v=str(i))
    anew = catalog_over(table.env.storage).table("db.t")
    assert len(anew.expire(retain_max=1)) == 5
    assert rows(anew.read()) == [("a", 1, "1")]
    data = [path for path in anew.remove_orphans(older_than=FUTURE, dry_run=False) if "/bucket-0/" in path]
    assert len(data) == 3
    assert rows(anew.read()) == [("a", 1, "1")]


def test_an_overwrite_that_brings_a_removed_file_back_keeps_it() -> None:
    """Another engine rolls back by a new commit that adds files again which an earlier one had removed."""
    from merganser.commit.committable import Committable
    from merganser.commit.message import CommitMessage
    from merganser.commit.table_commit import TableCommit

    table, _ = table_of({"write-only": "true"})
    write(table, v="first")
    [entry] = TableCommit(table.definition, table.env).latest().live
    table.truncate()
    back = CommitMessage(partition=entry.partition, bucket=0, total_buckets=1, added=(entry.file,))
    TableCommit(table.definition, table.env).commit(
        Committable(messages=[back], commit_user="rollback", overwrites=lambda live: [], kind="OVERWRITE")
    )
    write(table, k=2)
    anew = catalog_over(table.env.storage).table("db.t")
    anew.expire(retain_max=3)
    assert ids(anew) == [2, 3, 4]
    anew.expire(retain_max=2)
    assert rows(anew.read()) == [("a", 1, "first"), ("a", 2, "x")]


def test_consumers_hold_snapshots_back() -> None:
    table, _ = table_of()
    for _ in range(5):
        write(table)
    table.consumers.set("reader", next_snapshot=3)
    table.expire(retain_max=1)
    assert ids(table) == [3, 4, 5]


def test_expiry_removes_at_most_as_many_as_it_is_told() -> None:
    table, _ = table_of({"snapshot.expire.limit": "2"})
    for _ in range(8):
        write(table)
    assert len(table.expire(retain_max=1)) == 2
    assert len(table.expire(retain_max=1, max_deletes=3)) == 3
    assert ids(table) == [6, 7, 8]


def test_empty_directories_go_when_the_table_says_so(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "1", "snapshot.clean-empty-directories": "true"},
    )
    table.write([{"p": "a", "k": 1}, {"p": "b", "k": 1}])
    table.drop_partitions([{"p": "a"}])
    assert (tmp_path / "db.db" / "t" / "p=a" / "bucket-0").is_dir()
    table.expire(retain_max=1)
    assert not (tmp_path / "db.db" / "t" / "p=a").exists()
    table.write([{"p": "a", "k": 2}])
    assert rows(table.read()) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    "given", [{"retain_max": 0}, {"older_than": "yesterday"}, {"retain_min": 5, "retain_max": 2}, {"max_deletes": -1}]
)
def test_arguments_without_meaning_are_refused(given: dict[str, Any]) -> None:
    table, _ = table_of()
    write(table)
    with pytest.raises(InvalidInputError):
        table.expire(**given)
    assert ids(table) == [1]


# after a commit


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_writers_expire_after_their_commits(mode: str) -> None:
    table, clock = table_of(
        {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "4", "snapshot.expire.execution-mode": mode}
    )
    for _ in range(9):
        write(table)
        clock.now += timedelta(minutes=1)
    table.env.submit(lambda: None).result()
    write(table)
    running = table.env.cache.get(("expiring", table.definition.paths.metadata_root))
    if running is not None:
        running.result()
    assert len(ids(table)) == 4
    clock.now += timedelta(hours=2)
    write(table)
    write(table)
    if running is not None:
        table.env.cache.get(("expiring", table.definition.paths.metadata_root)).result()
    assert len(ids(table)) in (2, 3)


def test_a_writer_that_only_writes_expires_nothing() -> None:
    table, clock = table_of({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "write-only": "true"})
    for _ in range(3):
        write(table)
        clock.now += timedelta(days=1)
    assert ids(table) == [1, 2, 3]


def test_a_failure_of_expiry_is_no_failure_of_the_write(caplog: pytest.LogCaptureFixture) -> None:
    table, _ = table_of({"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"})
    write(table)
    table.tags.create("broken")
    table.env.storage.replace(table.definition.paths.tag("broken"), b"{")
    for _ in range(3):
        assert write(table) is not None
    assert "broken" in caplog.text
    assert len(ids(table)) == 4


def test_a_commit_after_which_nothing_is_due_asks_the_store_nothing_more() -> None:
    from tests.kit.faulty import FaultyStorage

    table, _ = table_of()
    write(table)
    faulty = FaultyStorage(table.env.storage)
    counted = catalog_over(faulty).table("db.t")
    for _ in range(3):
        write(counted)
    before = len(faulty.calls)
    write(counted)
    usual = len(faulty.calls) - before
    before = len(faulty.calls)
    write(counted.with_options({"write-only": "true"}))
    assert usual == len(faulty.calls) - before


def test_tags_and_consumers_whose_time_is_over_go_after_a_commit() -> None:
    table, clock = table_of({"consumer.expiration-time": "1 h"})
    write(table)
    table.tags.create("short", retain="1 h")
    table.tags.create("long", retain="10000 d")
    table.consumers.set("gone", next_snapshot=1)
    clock.now = datetime.now(UTC) + timedelta(hours=3)
    write(table)
    assert [tag.name for tag in table.tags.list()] == ["long"]
    assert table.consumers.list() == ()


def test_a_query_that_waits_writes_its_consumer_again_before_upkeep_drops_it() -> None:
    table, clock = table_of({"consumer.expiration-time": "1 h", "consumer-id": "job"})
    write(table)
    fields = table.definition.schema.fields
    batches = TableBatches(table.definition, table.env, what=What.CHANGED, columns=fields, where=None, limits=UNLIMITED)
    clock.now = datetime.now(UTC)
    end = batches.advance(batches.start())
    written = []
    for minutes in range(0, 60, 5):
        clock.now += timedelta(minutes=5)
        for one in table.consumers.list():
            table.consumers.drop(one.id)
        batches.keep(end)
        written += [minutes] * len(table.consumers.list())
    assert written == [0, 25, 50]


def test_a_tag_that_is_made_anew_while_the_old_one_goes_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = table_of({})
    write(table)
    table.tags.create("v1", retain="1 h")
    clock.now = datetime.now(UTC) + timedelta(hours=3)
    listed = TagStore.list

    def list_then_another_acts(store: TagStore) -> tuple[Tag, ...]:
        found = listed(store)
        monkeypatch.undo()
        table.tags.drop("v1")
        table.tags.create("v1")
        return found

    monkeypatch.setattr(TagStore, "list", list_then_another_acts)
    write(table)
    assert [(tag.name, tag.snapshot_id, tag.time_retained) for tag in table.tags.list()] == [("v1", 2, None)]


def test_a_listed_tag_that_somebody_else_dropped_is_no_error() -> None:
    table, _ = table_of({})
    write(table)
    tag = table.tags.create("v1", retain="1 h")
    table.tags.drop("v1")
    drop_listed_tag(table.definition, table.env, tag)
    assert table.tags.list() == ()


# changelogs that outlive their snapshots


def _golden(tmp_path: Path, name: str) -> mg.Table:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    return mg.table(str(tmp_path / name))


@pytest.mark.parametrize("name", ["cl_decoupled_java", "expire_java"])
def test_tables_that_another_engine_expired_have_no_orphans(tmp_path: Path, name: str) -> None:
    table = _golden(tmp_path, name)
    assert table.remove_orphans(older_than=FUTURE) == ()
    before = rows(table.read())
    table.expire(retain_max=1)
    assert rows(mg.table(table.path).read()) == before
    assert mg.table(table.path).remove_orphans(older_than=FUTURE) == ()


def test_changelogs_of_another_engine_expire_by_their_own_options(tmp_path: Path) -> None:
    table = _golden(tmp_path, "cl_decoupled_java")
    directory = tmp_path / "cl_decoupled_java"
    (directory / "consumer" / "consumer-c1").unlink()
    shorter = {
        "changelog.num-retained.max": "3",
        "changelog.time-retained": "30000 d",
        "snapshot.num-retained.max": "1",
    }
    table.with_options(shorter).expire()
    assert sorted(path.name for path in (directory / "changelog").glob("changelog-*")) == ["changelog-4", "changelog-5"]
    assert (directory / "changelog" / "EARLIEST").read_text() == "4"
    assert len(list((directory / "bucket-0").glob("changelog-*"))) == 2
    assert mg.table(table.path).remove_orphans(older_than=FUTURE) == ()


def test_changelogs_of_another_engine_are_held_by_a_consumer(tmp_path: Path) -> None:
    table = _golden(tmp_path, "cl_decoupled_java")
    table.with_options({"changelog.num-retained.max": "2", "snapshot.num-retained.max": "1"}).expire()
    names = sorted(path.name for path in (Path(table.path) / "changelog").glob("changelog-*"))
    assert names == ["changelog-4", "changelog-5"]


def test_rows_are_the_changelog_of_a_table_without_changelog_files() -> None:
    table, _ = table_of({"changelog.num-retained.max": "100", "snapshot.num-retained.max": "10", "write-only": "true"})
    for i in range(3):
        write(table, v=str(i))
    table.compact(full=True)
    table.expire(retain_max=1)
    paths = table.definition.paths
    kept = [table.env.storage.exists(paths.changelog(i)) for i in (1, 2, 3, 4)]
    assert kept == [True, True, True, False]
    assert table.env.storage.read(paths.latest_changelog_hint) == b"3"
    assert kinds_of_files(table.env.storage)["bucket-0"] == 4
    assert table.remove_orphans(older_than=FUTURE) == ()
    for i in range(3):
        write(table, v=str(i))
        table.compact(full=True)
    table.with_options({"changelog.num-retained.max": "2", "snapshot.num-retained.max": "1"}).expire(retain_max=1)
    assert rows(catalog_over(table.env.storage).table("db.t").read()) == [("a", 1, "2")]
    assert ids(table) == [10]
    assert [i for i in range(12) if table.env.storage.exists(paths.changelog(i))] == [9]


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "per-record", "full-compaction"])
def test_a_table_whose_changelogs_outlive_their_snapshots_is_sound(producer: str) -> None:
    keeps = {"changelog.num-retained.min": "100", "changelog.num-retained.max": "100"}
    table, _ = table_of({"changelog-producer": producer, "num-sorted-run.compaction-trigger": "2", **keeps})
    for i in range(6):
        write(table, v=str(i))
    published = table.changes(1).to_pylist()
    table.expire(retain_max=2, older_than=FUTURE)
    assert len(table.snapshots()) == 2
    assert table.check() == ()
    assert table.changes(1).to_pylist() == published
    assert table.remove_orphans(older_than=FUTURE) == ()


@pytest.mark.parametrize("stops", [False, True])
def test_changelogs_of_snapshots_that_a_rollback_removes_meanwhile_are_no_changes(
    stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = table_of({"changelog-producer": "input", "changelog.num-retained.max": "60", **KEPT})
    for i in range(6):
        write(table, v=str(i))
    stream = table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    copied = expire_snapshots._Run._keep_changelogs

    def overtaken(run: expire_snapshots._Run, gone: Any) -> None:
        table.rollback(2)
        copied(run, gone)
        if stops:
            raise InterruptedError

    monkeypatch.setattr(expire_snapshots._Run, "_keep_changelogs", overtaken)
    with pytest.raises(InterruptedError) if stops else contextlib.nullcontext():
        table.expire(retain_max=1, older_than=FUTURE)
    assert [row["v"] for plan in stream for row in plan.to_pylist()] == ["0", "1"]
    assert stops or ChangelogStore(table.definition.paths, table.env).ids() == [1, 2]


# orphans


def test_orphans_are_found_by_name_and_age(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"p": "STRING", "k": "INT"}, partition_by=["p"], options={"bucket": "-1"})
    table.write([{"p": "a", "k": 1}])
    root = tmp_path / "db.db" / "t"
    orphans = [
        "p=a/bucket-0/data-1-0.parquet",
        "p=a/bucket-0/received-1-0.parquet",
        "p=a/bucket-0/.data-2-0.parquet.8e4c2f1a-0000-4000-8000-000000000000.tmp",
        "manifest/manifest-1-0",
        "manifest/manifest-list-1-0",
        "manifest/index-manifest-1",
        "index/index-1-0",
        "statistics/stat-1-0",
        "snapshot/.snapshot-9.8e4c2f1a-0000-4000-8000-000000000000.tmp",
        "branch/.branch-b.8e4c2f1a-0000-4000-8000-000000000000.tmp/tag/tag-v1",
    ]
    others = ["notes.txt", "p=a/_SUCCESS", "p=a/bucket-0/readme.md", "manifest/readme", "other/data-1-0.parquet"]
    for name in orphans + others:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "p=empty" / "bucket-0").mkdir(parents=True)
    assert table.remove_orphans() == ()
    expected = tuple(sorted(str(root / name) for name in orphans))
    assert table.remove_orphans(older_than=FUTURE) == expected
    assert all((root / name).exists() for name in orphans)
    assert table.remove_orphans(older_than=FUTURE, dry_run=False) == expected
    assert not any((root / name).exists() for name in orphans)
    assert all((root / name).exists() for name in others)
    assert not (root / "p=empty").exists()
    assert not (root / "branch").exists()
    assert rows(table.read()) == [("a", 1)]


@pytest.mark.parametrize("what", ["base_manifest_list", "delta_manifest_list"])
def test_missing_metadata_stops_the_search_for_orphans(what: str) -> None:
    table, _ = table_of()
    write(table)
    write(table)
    table.env.storage.delete([table.definition.paths.manifest(getattr(table.snapshots()[0], what))])
    table.env.storage.replace(f"{table.path}/manifest/manifest-1-0", b"x")
    before = contents(table.env.storage)
    anew = catalog_over(table.env.storage).table("db.t")
    with pytest.raises(FormatError, match="Nothing was removed"):
        anew.remove_orphans(older_than=FUTURE, dry_run=False)
    assert contents(table.env.storage) == before


def test_orphans_of_a_table_that_is_gone_are_an_error() -> None:
    table, _ = table_of()
    catalog_over(table.env.storage).drop_table("db.t")
    with pytest.raises(NotFoundError):
        table.remove_orphans()


def test_staged_rows_of_a_write_that_was_stopped_are_orphans_once_they_are_old() -> None:
    table, _ = table_of()
    write(table)
    staged = [
        f"{table.path}/.staging-1f/part-00000-c000.lz4raw.parquet",
        f"{table.path}/.staging-1f/.part-00000-c000.lz4raw.parquet.crc",
        f"{table.path}/.staging-1f/_temporary/0/task/part-00001.parquet",
        f"{table.path}/..staging-2e.0b9e1c9e-4c5a-4c0e-9a53-0a8d8e0f6d11.tmp/part-00000-c000.lz4raw.parquet",
    ]
    for path in staged:
        table.env.storage.replace(path, b"x")
    table.env.storage.replace(f"{table.path}/notes/staging.txt", b"somebody's")
    assert table.remove_orphans() == ()
    assert table.remove_orphans(older_than=FUTURE, dry_run=False) == tuple(sorted(staged))
    assert [path for path in contents(table.env.storage) if ".staging" in path] == []
    assert len(rows(table.read())) == 1


# partitions


def _dated(options: dict[str, str], days: list[str | None]) -> tuple[mg.Table, Clock]:
    table, clock = table_of({"write-only": "true", **options}, key=[])
    table.write([{"p": day, "k": 1, "v": "x"} for day in days])
    return table, clock


def test_partitions_expire_by_the_time_of_their_values() -> None:
    table, clock = _dated({"partition.expiration-time": "7 d"}, ["2026-01-02", "2026-01-03", "junk", None])
    clock.now = datetime(2026, 1, 10, tzinfo=UTC)
    assert table.expire_partitions(dry_run=True) == ({"p": "2026-01-02"},)
    assert table.expire_partitions() == ({"p": "2026-01-02"},)
    assert table.snapshots()[-1].commit_kind == "OVERWRITE"
    assert sorted(map(str, table.read().to_arrow()["p"].to_pylist())) == ["2026-01-03", "None", "junk"]
    write(table, p="2026-01-02", v="late")
    assert len(rows(table.read(where="p = '2026-01-02'"))) == 1


def test_partitions_expire_in_the_order_of_their_values_and_not_too_many_at_once() -> None:
    options = {
        "partition.expiration-time": "1 d",
        "partition.expiration-max-num": "3",
        "partition.expiration-batch-size": "2",
    }
    table, _ = _dated(options, ["2020-01-04", "2020-01-01", "2020-01-03", "2020-01-02"])
    before = len(table.snapshots())
    assert [spec["p"] for spec in table.expire_partitions()] == ["2020-01-01", "2020-01-02", "2020-01-03"]
    assert len(table.snapshots()) == before + 2


def test_partitions_expire_by_their_last_change() -> None:
    table, clock = _dated({"partition.expiration-time": "1 d", "partition.expiration-strategy": "update-time"}, ["b"])
    clock.now += timedelta(hours=23)
    assert table.expire_partitions() == ()
    clock.now += timedelta(hours=2)
    assert table.expire_partitions() == ({"p": "b"},)


def test_writers_check_partitions_now_and_then() -> None:
    table, clock = table_of({"partition.expiration-time": "1 d"}, key=[])
    write(table, p="2026-01-01")
    clock.now += timedelta(days=5)
    write(table, p="2026-01-06")
    assert table.read().to_arrow()["p"].to_pylist() == ["2026-01-06"]
    write(table, p="2026-01-01")
    assert len(rows(table.read())) == 2
    clock.now += timedelta(hours=2)
    write(table, p="2026-01-07")
    assert sorted(table.read().to_arrow()["p"].to_pylist()) == ["2026-01-06", "2026-01-07"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, InvalidInputError),
        ({"partition.expiration-time": "1 d", "partition.timestamp-formatter": "{"}, InvalidInputError),
    ],
)
def test_partitions_that_cannot_expire_are_an_error(options: dict[str, str], error: type[Exception]) -> None:
    table, _ = _dated(options, ["2020-01-01"])
    with pytest.raises(error):
        table.expire_partitions()
    assert len(rows(table.read())) == 1


def test_a_strategy_of_a_java_class_is_refused_where_another_engine_made_the_table() -> None:
    table, _ = _dated({"partition.expiration-time": "1 d"}, ["2020-01-01"])
    asked = table.with_options({"partition.expiration-strategy": "custom"})
    with pytest.raises(UnsupportedError):
        asked.expire_partitions()
    assert len(rows(table.read())) == 1


def test_a_table_without_partitions_has_none_to_expire() -> None:
    table, _ = table_of(partition_by=[])
    with pytest.raises(InvalidInputError, match="no partitions"):
        table.expire_partitions()
