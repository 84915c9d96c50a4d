"""The catalog of a warehouse: databases and tables come, are found, move and go."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.catalogs.names import TableName, check_name, parse_table_name
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.schemas import SchemaStore
from merganser.rules.create import create_schema
from merganser.schema.table_schema import TableSchema
from merganser.storage.local import LocalStorage
from merganser.storage.paths import TablePaths, of_table
from tests.kit.builders import catalog_over, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Plan

FAST = {"local.sync": "false"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options=FAST)
    catalog.create_database("shop")
    return catalog


def test_databases_are_directories_with_a_suffix(catalog: mg.Catalog) -> None:
    catalog.create_database("b")
    Path(catalog.warehouse, "other").mkdir()
    Path(catalog.warehouse, ".db").mkdir()
    Path(catalog.warehouse, "file.db").write_text("")
    assert catalog.list_databases() == ["b", "shop"]
    assert Path(catalog.warehouse, "b.db").is_dir()
    catalog.drop_database("b")
    assert catalog.list_databases() == ["shop"]
    assert mg.catalog(catalog.warehouse).list_databases() == ["shop"]


def test_a_database_that_another_engine_made_is_one(catalog: mg.Catalog) -> None:
    Path(catalog.warehouse, "made.db").mkdir()
    catalog.create_table("made.t", {"n": "INT"}).write([{"n": 1}])
    assert catalog.list_tables("made") == ["t"]
    catalog.drop_table("made.t")
    catalog.drop_database("made")
    assert not Path(catalog.warehouse, "made.db").exists()


def test_dropping_a_database_with_cascade_drops_its_tables(catalog: mg.Catalog) -> None:
    for name in ("a", "b"):
        catalog.create_table(f"shop.{name}", {"n": "INT"}).write([{"n": 1}])
    with pytest.raises(InvalidInputError, match=r"2 tables \(first: 'a'\)"):
        catalog.drop_database("shop")
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == []
    assert list(Path(catalog.warehouse).iterdir()) == []


def test_a_table_is_a_directory_with_a_schema(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.orders", {"k": "INT"}, comment="what is ordered")
    assert Path(table.path) == Path(catalog.warehouse, "shop.db", "orders")
    assert [p.name for p in Path(table.path).rglob("*") if p.is_file()] == ["schema-0"]
    Path(catalog.warehouse, "shop.db", "folder").mkdir()
    Path(catalog.warehouse, "shop.db", ".hidden", "schema").mkdir(parents=True)
    Path(catalog.warehouse, "shop.db", ".hidden", "schema", "schema-0").write_text("{}")
    assert catalog.list_tables("shop") == ["orders"]
    assert catalog.table("shop.orders").schema == table.schema
    assert mg.table(table.path).schema == table.schema
    assert table.schema.comment == "what is ordered"
    assert (table.name, mg.table(table.path).name) == ("shop.orders", table.path)


def test_a_created_table_equals_one_that_is_opened(catalog: mg.Catalog) -> None:
    schema = {"p": "STRING", "k": "DECIMAL(5, 1)", "r": "ROW<a INT, b ARRAY<STRING>>", "c": "CHAR(3)"}
    how = {
        "primary_key": ["p", "k"],
        "partition_by": ["p"],
        "options": {"bucket": "2", "their.own": "x"},
        "comment": "zażółć",
    }
    made = catalog.create_table("shop.t", schema, **how)  # type: ignore[arg-type]
    opened = catalog.table("shop.t")
    assert made.schema == opened.schema
    assert made.options == opened.options
    assert made.write([]) is None


def test_a_schema_may_be_given_in_arrow(catalog: mg.Catalog) -> None:
    arrow = pa.schema(
        [pa.field("k", pa.int64(), nullable=False), ("t", pa.timestamp("us")), ("l", pa.list_(pa.int32()))]
    )
    table = catalog.create_table("shop.t", arrow)
    assert [str(f.type) for f in table.schema.fields] == ["BIGINT NOT NULL", "TIMESTAMP(6)", "ARRAY<INT>"]
    assert table.read().schema == arrow


def test_the_clock_of_the_catalog_dates_everything(tmp_path: Path) -> None:
    time = datetime(2001, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    catalog = mg.catalog(str(tmp_path), options=FAST, clock=lambda: time)
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"n": "INT"})
    snapshot = table.write([{"n": 1}])
    assert snapshot is not None
    assert snapshot.commit_time == time
    assert table.schema.time_millis == snapshot.time_millis


def test_a_renamed_table_keeps_its_rows_also_in_another_database(catalog: mg.Catalog) -> None:
    catalog.create_database("archive")
    catalog.create_table("shop.a", {"n": "INT"}).write([{"n": 1}])
    catalog.rename_table("shop.a", "shop.b")
    catalog.rename_table("shop.b", "archive.c")
    assert (catalog.list_tables("shop"), catalog.list_tables("archive")) == ([], ["c"])
    moved = catalog.table("archive.c")
    moved.write([{"n": 2}])
    assert sorted(row["n"] for row in moved.read().to_pylist()) == [1, 2]
    with pytest.raises(NotFoundError):
        catalog.table("shop.a")


def test_a_name_is_free_again_after_a_rename_or_drop(catalog: mg.Catalog) -> None:
    catalog.create_table("shop.a", {"n": "INT"}).write([{"n": 1}])
    catalog.rename_table("shop.a", "shop.b")
    assert catalog.create_table("shop.a", {"s": "STRING"}).read().to_pylist() == []
    catalog.drop_table("shop.b")
    catalog.drop_table("shop.a")
    catalog.create_table("shop.b", {"x": "INT"}).write([{"x": 7}])
    assert catalog.table("shop.b").read().to_pylist() == [{"x": 7}]
    assert catalog.list_tables("shop") == ["b"]


def test_dropping_a_table_removes_all_its_files(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.a", {"p": "INT", "n": "INT"}, partition_by=["p"])
    table.write([{"p": 1, "n": 1}])
    catalog.drop_table("shop.a")
    assert not Path(table.path).exists()
    with pytest.raises(NotFoundError, match="no tables yet"):
        catalog.drop_table("shop.a")
    catalog.drop_table("shop.a", if_exists=True)


def test_of_two_creators_one_wins(catalog: mg.Catalog) -> None:
    other = mg.catalog(catalog.warehouse, options=FAST)
    catalog.create_table("shop.a", {"n": "INT"})
    with pytest.raises(AlreadyExistsError):
        other.create_table("shop.a", {"s": "STRING"})
    assert other.create_table("shop.a", {"s": "STRING"}, if_not_exists=True).schema.names == ("n",)


def _makes(work: tuple[str, str]) -> str:
    """Make a table at a time that all racing processes share, so that all of them make the same schema."""
    warehouse, name = work
    catalog = mg.catalog(warehouse, options=FAST, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    try:
        catalog.create_table(name, {"n": "INT"})
    except AlreadyExistsError:
        return ""
    return name


def test_of_processes_that_make_the_same_table_at_once_one_is_told_that_it_did(catalog: mg.Catalog) -> None:
    names = [f"shop.t{i}" for i in range(25)]
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("forkserver")) as pool:
        made = list(pool.map(_makes, [(catalog.warehouse, name) for name in names for _ in range(4)]))
    assert sorted(name for name in made if name) == sorted(names)


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.FAIL])
def test_a_creator_whose_reply_is_lost_knows_its_table_from_an_equal_one(fault: Fault) -> None:
    schema = create_schema({"n": "INT"}, time_millis=1)
    storage = memory_with({}, "catalog-equal")
    faulty = catalog_over(FaultyStorage(storage, Plan(fault, call=1, verbs=frozenset({"create"})))).env
    ours, theirs = SchemaStore(TablePaths("t"), faulty), SchemaStore(TablePaths("t"), catalog_over(storage).env)
    ours.create(schema)  # the reply is lost, or the first of several tries fails
    with pytest.raises(AlreadyExistsError):
        theirs.create(schema)
    again = catalog_over(FaultyStorage(storage, Plan(fault, call=1, verbs=frozenset({"create"})))).env
    with pytest.raises(AlreadyExistsError):
        SchemaStore(TablePaths("t"), again).create(schema)


def test_names_have_a_database_a_table_and_perhaps_more() -> None:
    assert parse_table_name("a.b") == TableName("a", "b")
    assert parse_table_name("a.b$snapshots") == TableName("a", "b", system="snapshots")
    assert parse_table_name("a.b$branch_x") == TableName("a", "b", branch="x")
    assert parse_table_name("a.b$branch_x$files") == TableName("a", "b", "x", "files")
    assert str(parse_table_name("a.b$files")) == "a.b"
    for name in ("a.b$", "a.b$x$y", "a.b$branch_", "a.b$branch_x$branch_y$z", "a.b$branch_../x"):
        with pytest.raises(InvalidInputError):
            parse_table_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [("a\u202eb", "U\\+202E"), ("..", "dot"), ("a/b", "slash"), (" ", "blank"), ("a" * 201, "201 bytes")],
)
def test_a_bad_name_is_told_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        check_name(name, what="table")


def test_system_tables_are_opened_by_name(catalog: mg.Catalog) -> None:
    catalog.create_table("shop.a", {"n": "INT"}).write([{"n": 1}])
    snapshots = catalog.table("shop.a$snapshots")
    assert snapshots.name == "shop.a$snapshots"
    assert snapshots.read(columns=["snapshot_id"]).to_pylist() == [{"snapshot_id": 1}]
    for name in (
        lambda: catalog.drop_table("shop.a$snapshots"),
        lambda: catalog.create_table("shop.a$x", {"n": "INT"}),
    ):
        with pytest.raises(InvalidInputError, match="part of a table"):
            name()


def test_a_table_made_while_another_of_its_name_is_removed_keeps_its_files(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("shop.t", {"n": "INT"}).write([{"n": 1}])
    remove, made = shutil.rmtree, []

    def while_removing(path: str) -> None:
        if Path(path).parent.name == "shop.db":  # all of the table, after its snapshots
            monkeypatch.setattr(shutil, "rmtree", remove)
            made.append(catalog.create_table("shop.t", {"n": "INT"}))
            made[0].write([{"n": 2}])
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", while_removing)
    catalog.drop_table("shop.t")
    assert made[0].read().to_pylist() == [{"n": 2}]
    assert sorted(p.name for p in Path(catalog.warehouse, "shop.db").iterdir()) == [".merganser", "t"]


@pytest.mark.parametrize("removed", range(10))
def test_what_a_drop_that_was_stopped_leaves_is_removed_by_another_and_never_part_of_a_new_table(
    catalog: mg.Catalog, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("shop.orders", {"a": "INT"})
    table.write([{"a": 1}])
    table.tags.create("v1")
    table.branches.create("b1")
    Path(table.path, "consumer").mkdir()
    Path(table.path, "consumer", "consumer-job").write_text('{"nextSnapshot": 9}')
    left = removed

    def by_keys(storage: LocalStorage, path: str) -> None:
        """Remove as an object store does, one key after the other in their order, until requests fail."""
        nonlocal left
        for file in sorted(p for p in Path(path).rglob("*") if p.is_file()):
            if not left:
                raise StorageError("slow down", path=path)
            file.unlink()
            left -= 1
        shutil.rmtree(path, ignore_errors=True)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete_tree", by_keys)
        with pytest.raises(StorageError, match="drop_table"):
            catalog.drop_table("shop.orders")
    with pytest.raises(AlreadyExistsError, match="drop_table"):
        catalog.create_table("shop.orders", {"b": "INT"})
    catalog.drop_table("shop.orders", if_exists=True)
    assert not Path(table.path).exists()
    assert catalog.create_table("shop.orders", {"b": "INT"}).tags.list() == ()


@pytest.mark.parametrize("file", ["tag/tag-x", "consumer/consumer-x", "branch/branch-b/snapshot/snapshot-1"])
def test_what_would_be_read_by_name_is_no_part_of_a_new_table(catalog: mg.Catalog, file: str) -> None:
    path = Path(catalog.warehouse, "shop.db", "orders", file)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(AlreadyExistsError, match="drop_table"):
        catalog.create_table("shop.orders", {"b": "INT"})
    catalog.drop_table("shop.orders")
    catalog.create_table("shop.orders", {"b": "INT"})


def test_a_table_cannot_be_made_between_the_two_steps_of_a_drop(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.t", {"n": "INT"})
    Path(table.path, "schema").rename(Path(table.path, ".schema-1"))  # the first step
    with pytest.raises(AlreadyExistsError, match="drop_table"):
        catalog.create_table("shop.t", {"n": "INT"})
    catalog.drop_table("shop.t")
    assert catalog.create_table("shop.t", {"n": "INT"}).read().count() == 0


def test_what_a_stopped_removal_leaves_does_not_keep_a_database(catalog: mg.Catalog) -> None:
    Path(catalog.warehouse, "shop.db", ".t.1.tmp").mkdir()
    catalog.drop_database("shop")
    assert catalog.list_databases() == []


def test_a_name_that_a_stopped_rename_claimed_is_free(catalog: mg.Catalog) -> None:
    catalog.create_table("shop.a", {"n": "INT"}).write([{"n": 1}])
    Path(catalog.warehouse, "shop.db", "b").mkdir()
    catalog.rename_table("shop.a", "shop.b")
    assert catalog.table("shop.b").read().to_pylist() == [{"n": 1}]


def test_a_feature_that_this_version_lacks_is_refused_before_a_table_is_made(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("d")
    with pytest.raises(UnsupportedError, match="other than avro") as caught:
        catalog.create_table("d.t", {"k": "INT"}, primary_key=["k"], options={"manifest.format": "orc"})
    assert caught.value.context["option"] == "manifest.format"
    assert catalog.list_tables("d") == []


def test_a_catalog_gives_new_tables_the_options_that_they_do_not_set(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"table-default.bucket": "3", "table-default.file.format": "orc"})
    catalog.create_database("d")
    assert catalog.create_table("d.t", {"k": "INT"}, primary_key=["k"]).options["bucket"] == "3"
    own = catalog.create_table("d.own", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    assert (own.options["bucket"], own.options["file.format"]) == ("1", "orc")
    assert "bucket" not in mg.catalog(str(tmp_path)).create_table("d.plain", {"k": "INT"}).options
    with pytest.raises(InvalidInputError, match="bukcet"):
        mg.catalog(str(tmp_path), options={"table-default.bukcet": "3"})


@pytest.mark.parametrize("file", ["mine.txt", "schema/mine.sql", "dt=1/part-0.parquet", "bucket-0/more/mine.txt"])
def test_a_directory_with_files_of_somebody_else_does_not_become_a_table(catalog: mg.Catalog, file: str) -> None:
    mine = Path(catalog.warehouse, "shop.db", "t", file)
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    catalog.create_table("shop.other", {"n": "INT"})
    for work in (
        lambda: catalog.create_table("shop.t", {"n": "INT"}),
        lambda: catalog.create_table("shop.t", {"n": "INT"}, if_not_exists=True),
        lambda: catalog.rename_table("shop.other", "shop.t"),
    ):
        with pytest.raises(AlreadyExistsError, match=f"there are files that are not a table .* \\(first: '{file}'\\)"):
            work()
    with pytest.raises(NotFoundError):
        catalog.drop_table("shop.t")
    assert mine.read_text() == "mine"
    assert catalog.list_tables("shop") == ["other"]


def test_what_a_stopped_creation_or_a_writer_of_a_dropped_table_leaves_does_not_keep_the_name(
    catalog: mg.Catalog,
) -> None:
    home = Path(catalog.warehouse, "shop.db", "t")
    for name in ("schema/.schema-0.1.tmp", "p=1/bucket-0/data-1-0.parquet", "manifest/manifest-1a-0"):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("")
    assert catalog.create_table("shop.t", {"n": "INT"}).read().count() == 0


def test_all_files_of_a_table_are_known_as_such(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.t",
        {"p": "INT", "k": "INT"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    for _ in range(3):
        table.write([{"p": 1, "k": 1}, {"p": 2, "k": 1}])
    table.compact(full=True)
    table.tags.create("v")
    table.branches.create("b", tag="v")
    table.branch("b").write([{"p": 3, "k": 1}])
    table.consumers.set("c", 1)
    files = [str(path.relative_to(table.path)) for path in Path(table.path).rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [file for file in files if not of_table(file)] == []


def test_a_table_that_is_to_lie_elsewhere_is_refused(catalog: mg.Catalog, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="Nothing was created") as caught:
        catalog.create_table("shop.t", {"n": "INT"}, options={"path": str(tmp_path / "elsewhere")})
    assert caught.value.context["option"] == "path"
    assert not Path(catalog.warehouse, "shop.db", "t").exists()
    own = Path(catalog.warehouse, "shop.db", "t").as_uri()
    assert "path" not in catalog.create_table("shop.t", {"n": "INT"}, options={"path": own}).schema.options


@pytest.mark.parametrize("kind", ["format-table", "view", "foo"])
def test_a_kind_of_table_that_has_no_rows_here_is_not_made(catalog: mg.Catalog, kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot create 'shop.t': it is of type '{kind}'"):
        catalog.create_table("shop.t", {"n": "INT"}, options={"type": kind})
    assert not Path(catalog.warehouse, "shop.db", "t").exists()


def test_a_file_in_the_place_of_a_table_or_warehouse_is_named(catalog: mg.Catalog) -> None:
    file = Path(catalog.warehouse, "shop.db", "t")
    file.write_text("")
    with pytest.raises(StorageError, match=r"it is a file.* Nothing was changed") as caught:
        catalog.create_table("shop.t", {"n": "INT"})
    assert caught.value.context["path"] == str(file)
    with pytest.raises(NotFoundError):
        catalog.table("shop.t")
    catalog.drop_table("shop.t", if_exists=True)
    with pytest.raises(StorageError, match="cannot open the warehouse"):
        mg.catalog(str(file))
    assert mg.catalog(str(file) + "-absent").list_databases() == []


def test_a_directory_that_has_a_file_called_schema_is_no_table(catalog: mg.Catalog) -> None:
    Path(catalog.warehouse, "shop.db", "t").mkdir()
    Path(catalog.warehouse, "shop.db", "t", "schema").write_text("")
    assert catalog.list_tables("shop") == []


@pytest.mark.parametrize("taken", ["snapshot", "snapshot/snapshot-2"])
def test_a_write_that_certainly_failed_says_so_and_leaves_nothing(catalog: mg.Catalog, taken: str) -> None:
    table = catalog.create_table("shop.t", {"n": "INT"})
    if taken == "snapshot":
        Path(table.path, taken).write_text("")
    else:
        table.write([{"n": 1}])
        Path(table.path, taken).mkdir()
    before = sorted(Path(table.path).rglob("*"))
    with pytest.raises(StorageError, match=taken) as caught:
        table.write([{"n": 2}])
    assert caught.value.context["path"] == str(Path(table.path, taken))
    assert sorted(Path(table.path).rglob("*")) == before
    if taken == "snapshot":
        with pytest.raises(StorageError, match="it is a file"):
            table.read().count()
    else:
        assert table.read().to_pylist() == [{"n": 1}]


def test_a_table_whose_schemas_are_lost_is_damaged_and_not_absent(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.t", {"n": "INT"})
    table.write([{"n": 1}])
    schema = Path(table.path, "schema", "schema-0")
    saved = schema.read_bytes()
    schema.unlink()
    for work in (lambda: catalog.table("shop.t"), lambda: mg.table(table.path)):
        with pytest.raises(FormatError, match="Restore") as caught:
            work()
        assert caught.value.context["path"] == str(schema)
    with pytest.raises(AlreadyExistsError, match=f"restore '{schema}'"):
        catalog.create_table("shop.t", {"n": "INT"})
    schema.write_bytes(saved)
    assert catalog.table("shop.t").read().to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_write_to_a_table_that_was_dropped_does_not_bring_its_directory_back(catalog: mg.Catalog, rows: int) -> None:
    table = catalog.create_table("shop.t", {"n": "INT"})
    if rows:
        table.write([{"n": 1}])
    catalog.drop_table("shop.t")
    with pytest.raises(ConflictError, match="dropped"):
        table.write([{"n": 2}])
    assert not Path(table.path).exists()


def test_a_table_that_is_being_created_is_seen_with_its_rows_or_not_at_all(catalog: mg.Catalog) -> None:
    with catalog.creating("shop.new", {"id": "INT", "d": "STRING"}, ["id", "d"], ["d"], {"bucket": "1"}) as table:
        table.write([{"id": 1, "d": "a"}])
        assert "new" not in catalog.list_tables("shop")
    assert catalog.table("shop.new").read().to_pylist() == [{"id": 1, "d": "a"}]
    for wrong in (ValueError("x"), mg.errors.InvalidInputError("x")):
        paths: list[str] = []

        def fail(error: Exception = wrong, paths: list[str] = paths) -> None:
            with catalog.creating("shop.other", {"id": "INT"}) as table:
                table.write([{"id": 1}])
                paths.append(table.path)
                raise error

        with pytest.raises(ValueError, match="x"):
            fail()
        assert not catalog.env.storage.exists(paths[0])
    with pytest.raises(AlreadyExistsError), catalog.creating("shop.other", {"id": "INT"}):
        catalog.create_table("shop.other", {"id": "INT"})
    assert catalog.table("shop.other").read().to_pylist() == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c, t: c.drop_database("shop", cascade="no"), "cascade"),
        (lambda c, t: c.drop_database("shop", if_exists=1), "if_exists"),
        (lambda c, t: c.create_database("shop", if_not_exists="no"), "if_not_exists"),
        (lambda c, t: c.create_table("shop.t", {"n": "INT"}, if_not_exists="no"), "if_not_exists"),
        (lambda c, t: c.drop_table("shop.t", if_exists=None), "if_exists"),
        (lambda c, t: c.rename_table("shop.t", "shop.u", no_writers="false"), "no_writers"),
        (lambda c, t: t.load("*.csv", partitions="no"), "partitions"),
        (lambda c, t: t.write([{"n": 1}], changes="no"), "changes"),
        (lambda c, t: t.erase("n = 1", everywhere="no"), "everywhere"),
        (lambda c, t: t.compact(full="no"), "full"),
        (lambda c, t: t.check(quick="no"), "quick"),
        (lambda c, t: t.expire(dry_run="no"), "dry_run"),
        (lambda c, t: t.expire_partitions(dry_run=0), "dry_run"),
        (lambda c, t: t.remove_orphans(dry_run=0), "dry_run"),
        (lambda c, t: t.stream(follow="no"), "follow"),
    ],
)
def test_flags_are_true_or_false(
    catalog: mg.Catalog, call: Callable[[mg.Catalog, mg.Table], object], said: str
) -> None:
    catalog.create_database("shop", if_not_exists=True)
    table = catalog.create_table("shop.t", {"n": "INT"})
    with pytest.raises(InvalidInputError, match=rf"{said} is .*\. Give True or False\. Nothing was changed"):
        call(catalog, table)
    assert catalog.list_tables("shop") == ["t"]


class _Listener:
    """Notes what it is told, and refuses what `refuses` names."""

    told: ClassVar[list[tuple[str, ...]]] = []
    refuses: ClassVar[str] = ""

    def creating(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str]:
        return self._hear("creating", name) or {"owner": f"of {name}"}

    def dropping(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        self._hear("dropping", name)

    def renaming(self, name: str, new_name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        self._hear("renaming", name, new_name)

    def _hear(self, *what: str) -> Mapping[str, str]:
        self.told.append(what)
        if what[0] == self.refuses:
            raise InvalidInputError("not this one")
        return {}


class _Half:
    """Has one of the two methods."""

    def creating(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        pass


def test_a_listener_that_lacks_a_method_is_refused(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path / "w", options={"catalog.listeners": f"{__name__}:_Half"})
    catalog.create_database("db")
    with pytest.raises(
        InvalidInputError, match=r"listener '.*:_Half' .* has no method 'dropping'\. Nothing was changed"
    ):
        catalog.create_table("db.t", {"k": "INT"})
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"bukcet": "3"}, "Did you mean 'bucket'"),
        ({"bucket": "x"}, "'bucket' = 'x'"),
        ({"fields.w.default-value": "1"}, "'w'"),
        ({"snapshot.num-retained.min": "0"}, "should be at least 1"),
        ({"kafka.sasl.password": "p"}, "holds a secret"),
    ],
)
def test_options_of_a_listener_are_checked_as_those_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], said: str
) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(_Listener, "told", told)
    catalog = mg.catalog(tmp_path / "w", options={"catalog.listeners": f"{__name__}:_Listener"})
    catalog.create_database("db")
    with pytest.raises(InvalidInputError, match=said):
        catalog.create_table("db.t", {"k": "INT"}, options=more)
    assert told == []
    monkeypatch.setattr(_Listener, "_hear", lambda self, *what: told.append(what) or more)
    with pytest.raises(InvalidInputError, match=said):
        catalog.create_table("db.t", {"k": "INT"})
    assert catalog.list_tables("db") == []
    assert told == [("creating", "db.t"), ("dropping", "db.t")]


def test_a_listener_that_refuses_a_table_keeps_the_database_and_the_tables_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = mg.catalog(tmp_path / "w", options={"catalog.listeners": f"{__name__}:_Listener"})
    catalog.create_database("db")
    for name in "abc":
        catalog.create_table(f"db.{name}", {"k": "INT"})

    def hear(self: _Listener, *what: str) -> Mapping[str, str]:
        if what == ("dropping", "db.b"):
            raise InvalidInputError("not this one")
        return {}

    monkeypatch.setattr(_Listener, "_hear", hear)
    with pytest.raises(InvalidInputError, match="not this one"):
        catalog.drop_database("db", cascade=True)
    assert catalog.list_tables("db") == ["b", "c"]


def test_listeners_are_told_of_every_way_in_which_tables_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(_Listener, "told", told)
    catalog = mg.catalog(tmp_path / "w", options={"catalog.listeners": f"{__name__}:_Listener"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT"})
    table.write([{"k": 1}])
    (tmp_path / "folder").mkdir()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "folder" / "a.parquet")
    made = [catalog.clone("db.t", "db.clone"), catalog.migrate(tmp_path / "folder", "db.migrated")]
    assert [one.options["owner"] for one in (table, *made)] == ["of db.t", "of db.clone", "of db.migrated"]
    catalog.rename_table("db.t", "db.renamed")
    catalog.drop_table("db.renamed")
    names = [("creating", f"db.{name}") for name in ("t", "clone", "migrated")]
    assert told == [*names, ("renaming", "db.t", "db.renamed"), ("dropping", "db.renamed")]
    told.clear()
    monkeypatch.setattr(_Listener, "refuses", "renaming")
    with pytest.raises(InvalidInputError, match="not this one"):
        catalog.rename_table("db.clone", "db.other")
    monkeypatch.setattr(_Listener, "refuses", "creating")
    with pytest.raises(InvalidInputError, match="not this one"):
        catalog.clone("db.clone", "db.other")
    assert catalog.list_tables("db") == ["clone", "migrated"]
    monkeypatch.setattr(_Listener, "refuses", "")
    told.clear()
    with (
        patch.object(LocalStorage, "move_tree", side_effect=StorageError("no")),
        pytest.raises(StorageError, match="no"),
    ):
        catalog.rename_table("db.clone", "db.other")
    assert told == [("renaming", "db.clone", "db.other"), ("renaming", "db.other", "db.clone")]


def test_of_racing_calls_one_creates_a_database(tmp_path: Path) -> None:
    def created(_: int) -> bool:
        catalog = mg.catalog(tmp_path / "raced")
        ready.wait()
        try:
            catalog.create_database("shop")
        except AlreadyExistsError:
            return False
        return True

    ready = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(created, range(8))) == [False] * 7 + [True]
