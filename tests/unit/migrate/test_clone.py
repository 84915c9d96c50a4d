"""Tables become other tables: with the state of any snapshot, of any kind, in any store."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser import changes as c
from merganser.errors import AlreadyExistsError, ExpiredError, InvalidInputError, NotFoundError
from merganser.upkeep.needed_files import NeededFiles


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    made.create_database("db")
    return made


def rows(table: Any, **asked: Any) -> list[dict[str, Any]]:
    return sorted(table.read(**asked).to_pylist(), key=repr)


def orders(catalog: mg.Catalog, **options: str) -> mg.Table:
    made = catalog.create_table(
        "db.t", "p STRING, k INT, v INT", ["p", "k"], ["p"], options={"bucket": "2", **options}, comment="what for"
    )
    for v in range(3):
        made.write([{"p": p, "k": k, "v": v} for p in "ab" for k in range(4 - v)])
    return made


def test_a_clone_is_the_table_and_shares_nothing_with_it(catalog: mg.Catalog) -> None:
    table = orders(catalog)
    before = rows(table)
    clone = catalog.clone("db.t", "db.c")
    assert (rows(clone), clone.check(), clone.schema.comment) == (before, (), "what for")
    (mine,) = clone.snapshots()
    assert mine.uuid == table.snapshots()[-1].uuid
    first = clone.files().column("file_path").to_pylist()[0]
    assert os.stat(first).st_nlink == 2
    table.write([{"p": "a", "k": 0, "v": 9}], overwrite={})
    table.compact(full=True)
    catalog.drop_table("db.t")
    assert rows(clone) == before
    clone.write([{"p": "z", "k": 0, "v": 0}])
    clone.compact(full=True)
    assert rows(catalog.table("db.c")) == [*before, {"p": "z", "k": 0, "v": 0}]
    clone.remove_orphans(older_than="2999-01-01T00:00", dry_run=False)
    assert (clone.check(), len(rows(clone))) == ((), 9)


def test_a_clone_is_of_the_state_that_is_asked_for(catalog: mg.Catalog) -> None:
    table = orders(catalog)
    second = table.snapshots()[1]
    table.tags.create("v2", snapshot=second.id)
    altered = table.alter([c.add_column("x", "INT")])
    by_id = catalog.clone("db.t", "db.by_id", snapshot=second.id)
    by_tag = catalog.clone(altered, "db.by_tag", tag="v2")
    by_time = catalog.clone("db.t", "db.by_time", timestamp=second.commit_time)
    for clone in (by_id, by_tag):
        assert rows(clone) == rows(table, snapshot=second.id)
        assert (clone.schema.names, clone.snapshots()[0].id) == (("p", "k", "v"), second.id)
    assert by_time.read().count() == by_id.read().count() or by_time.snapshots()[0].id > second.id
    assert catalog.clone("db.t", "db.newest").schema.names == ("p", "k", "v", "x")
    with pytest.raises(NotFoundError):
        catalog.clone("db.t", "db.other", tag="v3")
    with pytest.raises((NotFoundError, ExpiredError)):
        catalog.clone("db.t", "db.other", snapshot=99)
    assert "other" not in catalog.list_tables("db")


def test_a_branch_becomes_a_table(catalog: mg.Catalog) -> None:
    table = orders(catalog)
    table.tags.create("v1", snapshot=1)
    table.branches.create("b", tag="v1")
    branch = table.branch("b")
    branch.write([{"p": "b", "k": 77, "v": 0}])
    clone = catalog.clone("db.t$branch_b", "db.c")
    assert (rows(clone), clone.name) == (rows(branch), "db.c")
    assert clone.check() == ()


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "-1"},
        {"bucket": "-1", "deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "input"},
        {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"},
        {"data-file.path-directory": "data"},
    ],
    ids=str,
)
def test_tables_of_every_kind_are_cloned(catalog: mg.Catalog, options: dict[str, str]) -> None:
    table = orders(catalog, **options)
    table.compact(full=True)
    table.write([{"p": "a", "k": 1, "v": 7}])
    clone = catalog.clone("db.t", "db.c")
    last = table.snapshots()[-1].id
    assert (rows(clone), clone.check()) == (rows(table), ())
    assert clone.changes(start=last).to_pylist() == table.changes(start=last).to_pylist()
    assert clone.lookup([{"p": "a", "k": 1}]).to_pylist() == [{"p": "a", "k": 1, "v": 7}]
    clone.write([{"p": "a", "k": 100, "v": 7}, {"p": "a", "k": 1, "v": 8}])
    table.write([{"p": "a", "k": 100, "v": 7}, {"p": "a", "k": 1, "v": 8}])
    assert (rows(clone), clone.check()) == (rows(table), ())


def test_rows_that_vectors_hide_stay_hidden(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", "k INT, v INT", options={"deletion-vectors.enabled": "true"})
    table.write(pa.table({"k": range(100), "v": range(100)}).cast(pa.schema([("k", pa.int32()), ("v", pa.int32())])))
    table.delete("k < 3")
    clone = catalog.clone(table, "db.c")
    clone.delete("k < 5")
    assert (clone.read().count(), table.read().count(), clone.check()) == (95, 97, ())


def test_a_table_goes_into_another_store(catalog: mg.Catalog, tmp_path: Path) -> None:
    table = orders(catalog)
    other = mg.catalog(f"memory://{uuid.uuid4()}/warehouse")
    other.create_database("backup")
    there = other.clone(table, "backup.t")
    assert (rows(there), there.check()) == (rows(table), ())
    there.write([{"p": "q", "k": 1, "v": 1}])
    back = catalog.clone(there, "db.back")
    assert rows(back) == rows(there)


def test_a_table_without_rows_is_cloned_as_it_was_defined(catalog: mg.Catalog) -> None:
    catalog.create_table("db.t", "k INT, v INT", ["k"], options={"bucket": "3"})
    clone = catalog.clone("db.t", "db.c")
    assert (clone.options["bucket"], clone.primary_key, clone.snapshots()) == ("3", ("k",), ())
    clone.write([{"k": 1, "v": 1}])


def test_a_commit_that_the_table_has_is_not_applied_to_the_clone(catalog: mg.Catalog) -> None:
    table = orders(catalog)
    table.write([{"p": "a", "k": 50, "v": 1}], commit_user="job", identifier=7)
    clone = catalog.clone("db.t", "db.c")
    clone.write([{"p": "a", "k": 51, "v": 1}], commit_user="job", identifier=7)
    assert clone.lookup([{"p": "a", "k": 51}]).num_rows == 0
    clone.write([{"p": "a", "k": 51, "v": 1}], commit_user="job", identifier=8)
    assert clone.lookup([{"p": "a", "k": 51}]).num_rows == 1


def test_a_shard_stream_does_not_go_on_in_a_clone(catalog: mg.Catalog) -> None:
    table = orders(catalog)
    table.enable_stream(retention="1 h")
    table.write([{"p": "a", "k": 1, "v": 7}])
    catalog.clone("db.t", "db.c")
    assert [stream.table_name for stream in catalog.streams()] == ["db.t"]
    clone = catalog.table("db.c")
    assert isinstance(clone, mg.Table)
    clone.enable_stream(retention="1 h")
    assert len({stream.stream_id for stream in catalog.streams()}) == 2


def test_files_outside_of_a_table_become_files_of_the_clone(catalog: mg.Catalog, tmp_path: Path) -> None:
    for p in (1, 2):
        (tmp_path / "folder" / f"p={p}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "folder" / f"p={p}" / "x.parquet")
    table = catalog.migrate(tmp_path / "folder", "db.t", how="keep", options={"deletion-vectors.enabled": "true"})
    table.delete("id = 2 and p = 1")
    table.write([{"id": 4, "p": 2}])
    clone = catalog.clone("db.t", "db.c")
    assert all(path.startswith(clone.path) for path in clone.files().column("file_path").to_pylist())
    assert (
        rows(clone) == rows(table) == [{"id": i, "p": p} for i, p in ((1, 1), (1, 2), (2, 2), (3, 1), (3, 2), (4, 2))]
    )
    clone.delete("id = 1")
    assert {found.code for found in clone.check()} <= {"unsure"}
    assert (clone.read().count(), table.read().count()) == (4, 6)


def test_what_cannot_be_cloned_is_refused(catalog: mg.Catalog) -> None:
    orders(catalog)
    with pytest.raises(AlreadyExistsError, match="already exists"):
        catalog.clone("db.t", "db.t")
    with pytest.raises(InvalidInputError, match="a view"):
        catalog.clone("db.t$files", "db.c")
    with pytest.raises(NotFoundError, match=r"db\.none"):
        catalog.clone("db.none", "db.c")
    with pytest.raises(NotFoundError, match="no database 'other'"):
        catalog.clone("db.t", "other.c")


def test_a_snapshot_that_expires_meanwhile_leaves_no_clone(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders(catalog)
    state = NeededFiles.state

    def slow(needed: NeededFiles, *args: Any) -> Any:
        found = state(needed, *args)
        table.compact(full=True)
        table.expire(retain_max=1, retain_min=1)
        return found

    monkeypatch.setattr(NeededFiles, "state", slow)
    with pytest.raises(ExpiredError, match=r"expired while its files were copied.*keep it with a tag"):
        catalog.clone("db.t", "db.c", snapshot=2)
    monkeypatch.undo()
    assert catalog.list_tables("db") == ["t"]
    assert [name for name in os.listdir(f"{catalog.warehouse}/db.db") if name.endswith(".tmp")] == []
