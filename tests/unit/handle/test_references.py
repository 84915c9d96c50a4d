"""Tags, branches, rollback and consumers of a table: each method does what its line of the design says."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    NotFoundError,
)

NOW = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"}, clock=lambda: NOW)
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    table = catalog.create_table(
        "shop.orders",
        {"id": "BIGINT", "state": "STRING"},
        primary_key=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    for n in range(1, 5):
        table.write([{"id": n, "state": "new"}])
    return table


def _ids(table: mg.Table, **how: Any) -> list[int]:
    return sorted(row["id"] for row in table.read(**how).to_pylist())


def _file(table: mg.Table, *parts: str) -> Path:
    return Path(table.path, *parts)


# tags


def test_a_tag_keeps_the_newest_snapshot_or_the_one_that_is_named(orders: mg.Table) -> None:
    newest, second = orders.tags.create("newest"), orders.tags.create("second", snapshot=2)
    assert (newest.snapshot_id, second.snapshot_id) == (4, 2)
    assert [tag.name for tag in orders.tags.list()] == ["second", "newest"]
    assert _ids(orders, tag="second") == [1, 2]


def test_a_tag_without_a_time_is_the_snapshots_file(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    assert _file(orders, "tag", "tag-v1").read_bytes() == _file(orders, "snapshot", "snapshot-2").read_bytes()


def test_a_tag_with_a_time_says_in_its_file_when_it_was_made_and_how_long_it_is_kept(orders: mg.Table) -> None:
    orders.tags.create("v1", retain="3 d")
    text = _file(orders, "tag", "tag-v1").read_text()
    assert '"tagTimeRetained": 259200.000000000' in text
    local = NOW.astimezone()
    made = json.loads(text)["tagCreateTime"]
    assert made == [local.year, local.month, local.day, local.hour, local.minute, 0, 250_000_000]
    [tag] = orders.tags.list()
    assert (tag.create_time, tag.time_retained) == (NOW, timedelta(days=3))
    assert tag.expire_time == NOW + timedelta(days=3)
    assert tag.snapshot == orders.snapshots()[-1]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ([2026, 1, 31, 12, 5], datetime(2026, 1, 31, 12, 5)),
        ([2026, 1, 31, 12, 5, 7], datetime(2026, 1, 31, 12, 5, 7)),
    ],
)
def test_parts_of_a_tags_time_that_are_zero_may_be_missing(
    orders: mg.Table, written: list[int], meant: datetime
) -> None:
    orders.tags.create("v1", retain="3 d")
    path = _file(orders, "tag", "tag-v1")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tagCreateTime": written}))
    assert orders.tags.list()[0].create_time == meant.astimezone(UTC)


def test_the_default_time_of_tags_is_an_option(orders: mg.Table) -> None:
    table = orders.with_options({"tag.default-time-retained": "2 h"})
    assert table.tags.create("v1").time_retained == timedelta(hours=2)
    assert table.tags.create("v2", retain=timedelta(hours=5)).time_retained == timedelta(hours=5)


def test_a_name_that_is_taken_is_refused_and_keeps_its_snapshot(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=1)
    with pytest.raises(AlreadyExistsError, match="'v1'"):
        orders.tags.create("v1", snapshot=2)
    assert _ids(orders, tag="v1") == [1]


@pytest.mark.parametrize("name", ["", "  ", "a/b", "..", "a\\b", "x" * 300, 7, None])
def test_what_cannot_name_a_tag_is_refused(orders: mg.Table, name: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the name of a tag"):
        orders.tags.create(name)
    with pytest.raises(InvalidInputError, match="cannot be the name of a tag"):
        orders.tags.drop(name)


@pytest.mark.parametrize("retain", ["soon", "0 s", timedelta(0), timedelta(-1), 3, ""])
def test_a_time_without_a_meaning_is_refused(orders: mg.Table, retain: Any) -> None:
    with pytest.raises(InvalidInputError, match="retain is"):
        orders.tags.create("v1", retain=retain)
    assert orders.tags.list() == ()


def test_only_a_snapshot_that_is_there_can_be_tagged(orders: mg.Table, catalog: mg.Catalog) -> None:
    with pytest.raises(NotFoundError, match="no snapshot 9"):
        orders.tags.create("v1", snapshot=9)
    with pytest.raises(InvalidInputError, match="snapshot is 'two'"):
        orders.tags.create("v1", snapshot="two")  # type: ignore[arg-type]
    empty = catalog.create_table("shop.empty", {"id": "INT"})
    with pytest.raises(NotFoundError, match="no snapshot yet"):
        empty.tags.create("v1")


def test_a_snapshot_that_only_a_tag_keeps_can_be_tagged_again(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.expire(retain_max=1, retain_min=1)
    with pytest.raises(ExpiredError):
        orders.tags.create("v2", snapshot=1)
    orders.tags.create("v2", snapshot=2)
    orders.tags.drop("v1")
    assert _ids(orders, tag="v2") == [1, 2]


def test_a_tag_outlives_its_snapshot_and_its_files_go_with_it(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.compact(full=True)
    orders.expire(retain_max=1, retain_min=1)
    kept = set(_file(orders, "bucket-0").iterdir())
    assert _ids(orders, tag="v1") == [1, 2]
    orders.tags.drop("v1")
    left = set(_file(orders, "bucket-0").iterdir())
    assert left < kept
    assert len(left) == 1
    assert _ids(orders) == [1, 2, 3, 4]
    with pytest.raises(NotFoundError, match="no tag 'v1'"):
        orders.read(tag="v1")


def test_a_tag_that_is_not_there_cannot_be_dropped(orders: mg.Table) -> None:
    with pytest.raises(NotFoundError, match="no tag 'v1'"):
        orders.tags.drop("v1")


def test_a_damaged_tag_is_named_and_can_be_dropped(orders: mg.Table) -> None:
    orders.tags.create("v1")
    path = _file(orders, "tag", "tag-v1")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tagTimeRetained": "long"}))
    with pytest.raises(FormatError, match=r"tag-v1.*'long'"):
        orders.tags.list()
    orders.tags.drop("v1")
    assert orders.tags.list() == ()


# branches


def test_a_branch_begins_at_its_tag_and_goes_its_own_way(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.branches.create("b", tag="v1")
    branch = orders.branch("b")
    assert _ids(branch) == [1, 2]
    written = branch.write([{"id": 9, "state": "tried"}])
    assert written is not None
    assert written.id == 3
    assert _ids(branch) == [1, 2, 9]
    assert _ids(orders) == [1, 2, 3, 4]


def test_a_branch_without_a_tag_begins_empty_with_the_tables_schemas(orders: mg.Table) -> None:
    orders.branches.create("b")
    branch = orders.branch("b")
    assert _ids(branch) == []
    assert branch.schema == orders.schema
    branch.write([{"id": 9, "state": "tried"}])
    assert (_ids(branch), _ids(orders)) == ([9], [1, 2, 3, 4])


def test_a_branch_has_its_directory_and_shares_data_and_manifests(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.branches.create("b", tag="v1")
    orders.branch("b").write([{"id": 9, "state": "tried"}])
    home = _file(orders, "branch", "branch-b")
    assert sorted(p.relative_to(home).as_posix() for p in home.rglob("*") if p.is_file()) == [
        "schema/schema-0",
        "snapshot/LATEST",
        "snapshot/snapshot-2",
        "snapshot/snapshot-3",
        "tag/tag-v1",
    ]


def test_a_branch_is_opened_by_method_by_name_and_by_option(orders: mg.Table, catalog: mg.Catalog) -> None:
    orders.branches.create("b")
    orders.branch("b").write([{"id": 9, "state": "tried"}])
    for opened in (
        orders.branch("b"),
        orders.with_options({"branch": "b"}),
        catalog.table("shop.orders$branch_b"),
        mg.table(orders.path, options={"branch": "b"}),
    ):
        assert _ids(opened) == [9]
        assert _ids(opened.branch("main")) == [1, 2, 3, 4]
    assert catalog.table("shop.orders$branch_b$snapshots").read().count() == 1


def test_branches_are_listed_by_name(orders: mg.Table) -> None:
    for name in ("z", "a.b", "ä"):
        orders.branches.create(name)
    assert [branch.name for branch in orders.branches.list()] == ["a.b", "z", "ä"]


@pytest.mark.parametrize("name", ["main", "12", "", " ", "a/b", "a$b", None])
def test_what_cannot_name_a_branch_is_refused(orders: mg.Table, name: Any) -> None:
    with pytest.raises(InvalidInputError):
        orders.branches.create(name)
    assert orders.branches.list() == ()


def test_a_branch_that_is_there_is_not_made_again(orders: mg.Table) -> None:
    orders.branches.create("b")
    orders.branch("b").write([{"id": 9, "state": "tried"}])
    with pytest.raises(AlreadyExistsError, match="'b'"):
        orders.branches.create("b")
    assert _ids(orders.branch("b")) == [9]


def test_a_branch_that_is_not_there_is_named(orders: mg.Table, catalog: mg.Catalog) -> None:
    for attempt in (
        lambda: orders.branch("b"),
        lambda: orders.branches.drop("b"),
        lambda: orders.branches.fast_forward("b"),
        lambda: catalog.table("shop.orders$branch_b"),
        lambda: orders.with_options({"branch": "b"}),
    ):
        with pytest.raises(NotFoundError, match="branch 'b'"):
            attempt()
    with pytest.raises(NotFoundError, match="no tag 'v9'"):
        orders.branches.create("b", tag="v9")


def test_a_branch_that_is_not_there_is_not_dropped_and_those_that_are_are_named(orders: mg.Table) -> None:
    with pytest.raises(NotFoundError, match=r"Nothing was changed. The table has none."):
        orders.branches.drop("tst")
    orders.branches.create("test")
    with pytest.raises(NotFoundError, match=r"Nothing was changed. Did you mean 'test'\?"):
        orders.branches.drop("tst")
    with pytest.raises(NotFoundError, match="Choose from 'test'"):
        orders.branches.drop("other")


def test_a_branch_that_is_dropped_is_gone_and_the_table_is_not(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.branches.create("b", tag="v1")
    orders.branches.drop("b")
    assert orders.branches.list() == ()
    assert (_ids(orders), _ids(orders, tag="v1")) == ([1, 2, 3, 4], [1, 2])


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_what_a_drop_of_a_branch_makes_garbage_the_drop_removes(catalog: mg.Catalog, producer: str) -> None:
    options = {"bucket": "1", "changelog-producer": producer}
    table = catalog.create_table("shop.forked", {"id": "INT", "v": "STRING"}, primary_key=["id"], options=options)
    table.write([{"id": 1, "v": "main"}])
    table.tags.create("v1")
    before = {path for path in Path(table.path).rglob("*") if path.is_file()}
    table.branches.create("b", tag="v1")
    branch = table.branch("b")
    branch.write([{"id": 2, "v": "branch"}])
    branch.tags.create("of-branch")
    branch.delete("id = 2")
    branch.compact(full=True)
    table.branches.drop("b")
    assert table.remove_orphans(older_than="9999-01-01", dry_run=True) == ()
    assert {path for path in Path(table.path).rglob("*") if path.is_file()} == before
    assert table.read(tag="v1").to_pylist() == [{"id": 1, "v": "main"}]


def test_fast_forward_makes_the_table_what_the_branch_is(orders: mg.Table) -> None:
    orders.tags.create("v1")
    orders.branches.create("b", tag="v1")
    branch = orders.branch("b")
    branch.write([{"id": 9, "state": "tried"}])
    branch.tags.create("of-branch")
    assert orders.branches.fast_forward("b") == branch.snapshots()[-1]
    assert _ids(orders) == [1, 2, 3, 4, 9]
    assert [tag.name for tag in orders.tags.list()] == ["v1", "of-branch"]
    assert [s.id for s in orders.snapshots()] == [1, 2, 3, 4, 5]
    orders.write([{"id": 10, "state": "new"}])
    assert (_ids(orders)[-1], _ids(branch)[-1]) == (10, 9)


def test_what_the_table_committed_since_the_branch_began_is_gone_after_fast_forward(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.branches.create("b", tag="v1")
    orders.branch("b").write([{"id": 9, "state": "tried"}])
    orders.branches.fast_forward("b")
    assert _ids(orders) == [1, 2, 9]
    assert [s.id for s in orders.snapshots()] == [1, 2, 3]


def test_changelogs_that_lead_to_other_snapshots_are_gone_after_fast_forward(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "write-only": "true", "changelog-producer": "input"}
    options |= {"snapshot.num-retained.max": "50", "changelog.num-retained.max": "60"}
    table = catalog.create_table("shop.t", {"id": "INT"}, primary_key=["id"], options=options)
    for n in range(2):
        table.write([{"id": n}])
    table.tags.create("v1")
    table.branches.create("b", tag="v1")
    branch = table.branch("b")
    for n in range(10, 14):
        branch.write([{"id": n}])
        table.write([{"id": n + 10}])
    branch.expire(retain_max=2, retain_min=1)
    table.expire(retain_max=2, retain_min=1)
    table.branches.fast_forward("b")
    assert [s.id for s in table.snapshots()] == [5, 6]
    with pytest.raises(ExpiredError, match="keeps the changes from snapshot 5 on"):
        table.changes(1).to_arrow()
    stream = table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    assert [row["id"] for plan in stream for row in plan.to_pylist()] == [12, 13]


def test_fast_forward_takes_the_branchs_schemas(orders: mg.Table) -> None:
    orders.tags.create("v1")
    orders.branches.create("b", tag="v1")
    for home, name in ((_file(orders, "branch", "branch-b"), "theirs"), (Path(orders.path), "ours")):
        schema = json.loads((home / "schema" / "schema-0").read_text())
        schema["id"], schema["highestFieldId"] = 1, 2
        schema["fields"].append({"id": 2, "name": name, "type": "INT"})
        (home / "schema" / "schema-1").write_text(json.dumps(schema))
    branch = orders.branch("b")
    branch.write([{"id": 9, "state": "tried", "theirs": 1}])
    orders.branches.fast_forward("b")
    after = mg.table(orders.path)
    assert after.schema.names == ("id", "state", "theirs")
    assert {"id": 9, "state": "tried", "theirs": 1} in after.read().to_pylist()


def test_fast_forward_needs_a_branch_with_a_snapshot_that_can_follow(orders: mg.Table) -> None:
    orders.branches.create("b")
    with pytest.raises(InvalidInputError, match="no snapshot yet"):
        orders.branches.fast_forward("b")
    orders.expire(retain_max=1, retain_min=1)
    orders.branch("b").write([{"id": 9, "state": "tried"}])
    with pytest.raises(ConflictError, match="Nothing was changed"):
        orders.branches.fast_forward("b")
    assert _ids(orders) == [1, 2, 3, 4]


def test_fast_forward_refuses_a_tag_that_would_change_its_meaning(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.branches.create("b", tag="v1")
    orders.branch("b").write([{"id": 9, "state": "tried"}])
    orders.branch("b").tags.create("same")
    orders.tags.create("same", snapshot=1)
    with pytest.raises(ConflictError, match="tag 'same'"):
        orders.branches.fast_forward("b")
    assert _ids(orders) == [1, 2, 3, 4]


# rollback


def test_a_rollback_removes_what_came_later_and_ids_are_used_again(orders: mg.Table) -> None:
    orders.tags.create("early", snapshot=1)
    orders.tags.create("late", snapshot=3)
    assert orders.rollback(snapshot=2).id == 2
    assert _ids(orders) == [1, 2]
    assert [tag.name for tag in orders.tags.list()] == ["early"]
    assert _file(orders, "snapshot", "LATEST").read_text() == "2"
    written = orders.write([{"id": 9, "state": "new"}])
    assert written is not None
    assert written.id == 3
    assert _ids(orders) == [1, 2, 9]


def test_handles_and_caches_do_not_mix_what_was_with_what_is(orders: mg.Table) -> None:
    other = mg.table(orders.path)
    assert _ids(other) == [1, 2, 3, 4]
    with other.writer() as writer:
        writer.write([{"id": 5, "state": "new"}])
        orders.rollback(snapshot=1)
        for n in (7, 8, 9):
            orders.write([{"id": n, "state": "new"}])
        writer.commit()
    assert _ids(other) == _ids(orders) == [1, 5, 7, 8, 9]
    assert [_ids(other, snapshot=n) for n in (3, 4)] == [[1, 7, 8], [1, 7, 8, 9]]


def test_a_rollback_to_a_tag_puts_an_expired_snapshot_back(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.expire(retain_max=1, retain_min=1)
    assert orders.rollback(tag="v1").id == 2
    assert _ids(orders) == [1, 2]
    assert [s.id for s in orders.snapshots()] == [2]
    assert _file(orders, "snapshot", "EARLIEST").read_text() == "2"
    assert json.loads(_file(orders, "snapshot", "snapshot-2").read_text()).keys() == orders_keys(orders)
    orders.write([{"id": 9, "state": "new"}])
    assert _ids(orders) == [1, 2, 9]


def orders_keys(table: mg.Table) -> Any:
    return json.loads(_file(table, "tag", "tag-v1").read_text()).keys() - {"tagCreateTime", "tagTimeRetained"}


def test_a_consumer_beyond_the_snapshot_goes_back_to_the_one_after_it(orders: mg.Table) -> None:
    orders.consumers.set("behind", next_snapshot=2)
    orders.consumers.set("ahead", next_snapshot=5)
    orders.rollback(snapshot=3)
    assert {c.id: c.next_snapshot for c in orders.consumers.list()} == {"behind": 2, "ahead": 4}


def test_changelogs_that_outlived_what_is_removed_go_too(orders: mg.Table) -> None:
    for number in (1, 3):
        _file(orders, "changelog").mkdir(exist_ok=True)
        source = _file(orders, "snapshot", f"snapshot-{number}")
        _file(orders, "changelog", f"changelog-{number}").write_bytes(source.read_bytes())
    orders.rollback(snapshot=2)
    assert sorted(path.name for path in _file(orders, "changelog").iterdir()) == ["LATEST", "changelog-1"]


def test_a_branch_is_rolled_back_alone(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2)
    orders.branches.create("b", tag="v1")
    branch = orders.branch("b")
    branch.write([{"id": 9, "state": "tried"}])
    branch.rollback(snapshot=2)
    assert (_ids(branch), _ids(orders)) == ([1, 2], [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({}, InvalidInputError),
        ({"snapshot": 1, "tag": "v1"}, InvalidInputError),
        ({"snapshot": "1"}, InvalidInputError),
        ({"snapshot": 9}, NotFoundError),
        ({"snapshot": 0}, NotFoundError),
        ({"tag": "v1"}, NotFoundError),
        ({"tag": "../v1"}, InvalidInputError),
    ],
)
def test_a_rollback_to_nowhere_changes_nothing(orders: mg.Table, how: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        orders.rollback(**how)
    assert _ids(orders) == [1, 2, 3, 4]
    assert orders.tags.list() == ()


def test_a_rollback_to_a_state_that_cannot_be_read_is_refused(orders: mg.Table) -> None:
    second = orders.snapshots()[1]
    _file(orders, "manifest", second.delta_manifest_list).unlink()
    with pytest.raises(FormatError, match="missing"):
        mg.table(orders.path).rollback(snapshot=2)
    assert [s.id for s in orders.snapshots()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "waits", "full"),
    [
        ({"changelog-producer": "lookup"}, "streams", False),
        ({"changelog-producer": "full-compaction"}, "streams", True),
        ({"merge-engine": "first-row"}, "reads", False),
        ({"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}, "reads and streams", False),
        ({}, None, False),
    ],
)
def test_a_rollback_tells_of_rows_whose_compaction_it_took_back(
    catalog: mg.Catalog,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    waits: str | None,
    full: bool,
) -> None:
    schema = {"id": "BIGINT", "n": "INT"}
    table = catalog.create_table("shop.t", schema, primary_key=["id"], options={"bucket": "1", **options})
    table.write([{"id": 1, "n": 1}])
    compacted = table.latest_snapshot()
    assert compacted is not None
    table.write([{"id": 2, "n": 2}])
    appended = next(s.id for s in table.snapshots() if s.id > compacted.id)
    table.rollback(appended)
    assert bool(_warned(caplog)) == (waits is not None)
    if waits is not None:
        assert f": {waits} get the rows of 1 data file with the next compaction" in caplog.text
        assert f"Call Table.compact({'full=True' if full else ''})," in caplog.text
        table.compact(full=full)
        assert _ids(table) == [1, 2]
        if "changelog-producer" in options:
            assert [row["id"] for row in table.changes(appended).to_pylist()] == [2]
        caplog.clear()
        table.rollback(compacted.id)
        assert _warned(caplog) == []


# consumers


def test_a_consumer_is_made_moved_listed_and_dropped(orders: mg.Table) -> None:
    orders.consumers.set("dashboard", next_snapshot=5)
    orders.consumers.set("audit", next_snapshot=1)
    orders.consumers.set("dashboard", next_snapshot=3)
    assert [(c.id, c.next_snapshot) for c in orders.consumers.list()] == [("audit", 1), ("dashboard", 3)]
    assert json.loads(_file(orders, "consumer", "consumer-dashboard").read_text()) == {"nextSnapshot": 3}
    orders.consumers.drop("audit")
    assert [c.id for c in orders.consumers.list()] == ["dashboard"]


@pytest.mark.parametrize("at", [0, -1, "5", None, True, 2**63])
def test_a_consumer_cannot_be_at_what_is_no_snapshot(orders: mg.Table, at: Any) -> None:
    with pytest.raises(InvalidInputError, match="next_snapshot is"):
        orders.consumers.set("dashboard", next_snapshot=at)


def test_a_consumer_cannot_be_beyond_what_comes_next(catalog: mg.Catalog, orders: mg.Table) -> None:
    orders.tags.create("v2", snapshot=2)
    orders.branches.create("b", tag="v2")
    empty = catalog.create_table("shop.empty", {"id": "INT"})
    for table, most, there in (
        (orders, 5, "the newest snapshot is 4"),
        (orders.branch("b"), 3, "the newest snapshot is 2"),
        (empty, 1, "the table has no snapshots yet"),
    ):
        with pytest.raises(InvalidInputError, match=f"next_snapshot is {most + 1}, and {there}.* Give {most} to"):
            table.consumers.set("d", next_snapshot=most + 1)
        assert table.consumers.list() == ()
        table.consumers.set("d", next_snapshot=most)
        assert list(table.stream(consumer="d", follow=False)) == []
    orders.write([{"id": 5, "state": "new"}])
    [plan] = orders.stream(consumer="d", follow=False)
    assert plan.column("id").to_pylist() == [5]


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", None])
def test_what_cannot_name_a_consumer_is_refused(orders: mg.Table, name: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the name of a consumer"):
        orders.consumers.set(name, next_snapshot=1)


def test_a_consumer_that_is_not_there_cannot_be_dropped(orders: mg.Table) -> None:
    with pytest.raises(NotFoundError, match="no consumer 'dashboard'"):
        orders.consumers.drop("dashboard")


def test_a_damaged_consumer_is_named(orders: mg.Table) -> None:
    orders.consumers.set("dashboard", next_snapshot=1)
    _file(orders, "consumer", "consumer-dashboard").write_text("{}")
    with pytest.raises(FormatError, match="consumer-dashboard"):
        orders.consumers.list()


# system tables


def test_system_tables_show_tags_branches_and_consumers(orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=2, retain="90 min")
    orders.branches.create("b", tag="v1")
    orders.consumers.set("dashboard", next_snapshot=2)
    orders.consumers.set("future", next_snapshot=5)
    [tag] = orders.system("tags").to_pylist()
    assert list(tag) == [
        "tag_name", "snapshot_id", "schema_id", "commit_time", "record_count", "create_time", "time_retained"
    ]  # fmt: skip
    assert (tag["tag_name"], tag["snapshot_id"], tag["record_count"], tag["time_retained"]) == ("v1", 2, 2, "PT1H30M")
    [branch] = orders.system("branches").to_pylist()
    assert list(branch) == ["branch_name", "create_time"]
    assert branch["branch_name"] == "b"
    behind, ahead = orders.system("consumers").to_pylist()
    assert list(behind) == [
        "consumer_id", "next_snapshot_id", "lag_snapshots", "lag_seconds", "lag_log_records", "last_update_time"
    ]  # fmt: skip
    assert behind["lag_log_records"] is None
    first, *_, newest = orders.snapshots()
    seconds = (newest.commit_time - first.commit_time).total_seconds()
    assert (behind["next_snapshot_id"], behind["lag_snapshots"]) == (2, newest.id - 1)
    assert behind["lag_seconds"] == pytest.approx(seconds)
    assert (ahead["next_snapshot_id"], ahead["lag_snapshots"], ahead["lag_seconds"]) == (5, 0, 0.0)


def _warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
