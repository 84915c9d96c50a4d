"""Catalogs in SQL databases: SQLite, PostgreSQL, MariaDB."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.catalogs.open import _url
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
)
from merganser.options.option import Options
from tests.catalogs.databases import SqlServer

sa = pytest.importorskip("sqlalchemy")
sql_database = pytest.importorskip("merganser.catalogs.sql_database")
ROWS = [{"id": 1, "state": "new"}]
SCHEMA = {"id": "BIGINT", "state": "STRING"}


def _options(database: SqlServer, tmp_path: Path, **more: str) -> dict[str, str]:
    return {"warehouse": str(tmp_path / "wh"), **database.options, **{k.replace("_", "."): v for k, v in more.items()}}


@pytest.fixture
def catalog(database: SqlServer, tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(database.uri, metastore="jdbc", options=_options(database, tmp_path, lock_enabled="true"))
    found.create_database("shop")
    return found


def _orders(catalog: mg.Catalog, name: str = "orders") -> mg.Table:
    made = catalog.create_table(f"shop.{name}", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    made.write(ROWS)
    return made


def test_tables_live_as_in_the_file_system(catalog: mg.Catalog, database: SqlServer, tmp_path: Path) -> None:
    _orders(catalog)
    assert catalog.list_databases() == ["shop"]
    assert catalog.list_tables("shop") == ["orders"]
    catalog.alter_table("shop.orders", [mg.changes.add_column("amount", "INT")])
    catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables("shop") == ["sales"]
    catalog.clone("shop.sales", "shop.copy")
    other = mg.catalog(database.uri, options=_options(database, tmp_path))
    assert other.list_tables("shop") == ["copy", "sales"]
    assert other.table("shop.copy").read().to_pylist() == [{"id": 1, "state": "new", "amount": None}]
    assert other.sql("SELECT count(*) AS n FROM shop.sales").to_pylist() == [{"n": 1}]
    assert mg.catalog(str(tmp_path / "wh")).list_tables("shop") == ["copy", "sales"]
    catalog.drop_table("shop.copy")
    with pytest.raises(NotFoundError, match=r"shop\.copy"):
        other.table("shop.copy")
    with pytest.raises(InvalidInputError, match="cascade"):
        catalog.drop_database("shop")
    catalog.drop_database("shop", cascade=True)
    assert other.list_databases() == []


def test_names_are_taken_as_they_are(catalog: mg.Catalog) -> None:
    catalog.create_database("it's; DROP TABLE paimon_tables --")
    catalog.create_database("größe 100%")
    catalog.create_table("größe 100%.a_b%", SCHEMA)
    assert catalog.list_databases() == ["größe 100%", "it's; DROP TABLE paimon_tables --", "shop"]
    assert catalog.list_tables("größe 100%") == ["a_b%"]
    _orders(catalog)
    with pytest.raises(NotFoundError):
        catalog.table("shop.Orders")
    with pytest.raises(NotFoundError):
        catalog.table("Shop.orders")
    _orders(catalog, "Orders")
    assert catalog.list_tables("shop") == ["Orders", "orders"]


def test_of_racing_calls_one_creates_a_database(database: SqlServer, tmp_path: Path) -> None:
    def created(_: int) -> bool:
        found = mg.catalog(database.uri, options=_options(database, tmp_path))
        ready.wait()
        try:
            found.create_database("raced")
        except AlreadyExistsError:
            return False
        found.create_database("raced", if_not_exists=True)
        return True

    mg.catalog(database.uri, options=_options(database, tmp_path))  # creates the tables of the catalog
    ready = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(created, range(6))) == [False] * 5 + [True]


def test_a_database_with_an_emoji_is_dropped(catalog: mg.Catalog) -> None:
    catalog.create_database("emoji\U0001f600")
    catalog.create_table("emoji\U0001f600.t\U0001f600", SCHEMA)
    catalog.drop_database("emoji\U0001f600", cascade=True)
    assert catalog.list_databases() == ["shop"]
    catalog.create_database("emoji\U0001f600")
    catalog.drop_database("emoji\U0001f600")
    assert catalog.list_databases() == ["shop"]


def test_files_without_a_row_are_no_table(catalog: mg.Catalog, tmp_path: Path) -> None:
    """As a process leaves them that was killed before it noted the table."""
    files = mg.catalog(str(tmp_path / "wh"))
    _orders(files, "half")
    assert catalog.list_tables("shop") == []
    with pytest.raises(NotFoundError, match=r"shop\.half"):
        catalog.table("shop.half")
    with pytest.raises(AlreadyExistsError, match=r"drop_table\('shop\.half'\)"):
        _orders(catalog, "half")
    with pytest.raises(AlreadyExistsError):
        catalog.clone(_orders(catalog), "shop.half")
    catalog.clone(mg.table(files.table("shop.half").path), "shop.kept")
    assert catalog.table("shop.kept").read().to_pylist() == ROWS
    catalog.drop_table("shop.half")
    assert _orders(catalog, "half").read().to_pylist() == ROWS


def test_a_catalog_key_is_a_catalog_of_its_own(catalog: mg.Catalog, database: SqlServer, tmp_path: Path) -> None:
    _orders(catalog)
    options = _options(database, tmp_path) | {"catalog-key": "other", "warehouse": str(tmp_path / "other")}
    other = mg.catalog(database.uri, options=options)
    assert other.list_databases() == []
    other.create_database("shop")
    _orders(other)
    other.drop_database("shop", cascade=True)
    assert catalog.table("shop.orders").read().to_pylist() == ROWS


@pytest.mark.campaign(1 / 3)
def test_a_table_of_two_processes_is_made_once(database: SqlServer, catalog: mg.Catalog, tmp_path: Path) -> None:
    code = f"""
import sys, merganser as mg
catalog = mg.catalog({database.uri!r}, options={_options(database, tmp_path)!r})
made = 0
for number in range(10):
    try:
        catalog.create_table(f"shop.t{{number}}", {SCHEMA!r})
        made += 1
    except mg.errors.AlreadyExistsError:
        pass
print(made)
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sum(int(process.communicate(timeout=120)[0]) for process in processes) == 10
    assert catalog.list_tables("shop") == [f"t{number}" for number in range(10)]


@pytest.mark.campaign(1 / 3)
def test_locks_are_taken_in_turn_and_lost_ones_end(database: SqlServer, catalog: mg.Catalog, tmp_path: Path) -> None:
    """A holder that was killed leaves its row: it is free when its lease has ended, by the clock of the database."""
    orders = _orders(catalog)
    rows: Any = catalog.metastore.rows
    name = "jdbc.shop.orders"
    rows._acquire(name)
    code = f"""
import merganser as mg
catalog = mg.catalog({database.uri!r}, options={_options(database, tmp_path, lock_enabled="true")!r})
table = catalog.table("shop.orders")
print("writes", flush=True)
table.write([{{"id": 2, "state": "new"}}])
"""
    waiting = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "writes\n"
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1)
    assert len(orders.read().to_pylist()) == 1
    rows._run(sa.update(sql_database._LOCKS).values(expire_time_seconds=1))
    assert waiting.wait(60) == 0
    assert len(orders.read().to_pylist()) == 2
    assert rows._rows(sa.select(sql_database._LOCKS)) == []


_HOLDER = """
import sys, merganser as mg
from merganser.catalogs import sql_database
sql_database._LEASE_S = 2
rows = mg.catalog({uri!r}, options={options!r}).metastore.rows
with rows.lock("shop", "orders") as check:
    check()
    print("held", flush=True)
    sys.stdin.readline()
    try:
        check()
        print("still held", flush=True)
    except mg.errors.StorageError as error:
        print(error.context["changed"], error, flush=True)
"""


def _holder(database: SqlServer, tmp_path: Path) -> subprocess.Popen[str]:
    code = _HOLDER.format(uri=database.uri, options=_options(database, tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.campaign(1 / 3)
def test_a_holder_that_was_stopped_for_too_long_has_no_lock_and_takes_none_from_others(
    database: SqlServer, catalog: mg.Catalog, tmp_path: Path
) -> None:
    rows: Any = catalog.metastore.rows
    holder = _holder(database, tmp_path)
    os.kill(holder.pid, signal.SIGSTOP)
    with rows.lock("shop", "orders") as check:
        os.kill(holder.pid, signal.SIGCONT)
        said, _ = holder.communicate("\n", timeout=30)
        assert said.startswith("False the lock 'jdbc.shop.orders'")
        assert "was not renewed" in said
        check()
        assert len(rows._rows(sa.select(sql_database._LOCKS))) == 1
    assert rows._rows(sa.select(sql_database._LOCKS)) == []


@pytest.mark.campaign(1 / 3)
def test_a_lock_that_is_held_for_longer_than_its_lease_is_renewed(
    database: SqlServer, catalog: mg.Catalog, tmp_path: Path
) -> None:
    rows: Any = replace(catalog.metastore.rows, wait_s=3)  # type: ignore[type-var, attr-defined]
    holder = _holder(database, tmp_path)
    with pytest.raises(ConflictError, match="was held by others"), rows.lock("shop", "orders"):
        pytest.fail("two have the lock")
    assert holder.communicate("\n", timeout=30)[0] == "still held\n"
    with rows.lock("shop", "orders"):
        pass


def test_a_lock_that_cannot_be_released_is_no_error(database: SqlServer, catalog: mg.Catalog) -> None:
    """As when the database stops after a commit: the commit is made, and the lease ends."""
    rows: Any = catalog.metastore.rows
    run = sql_database.SqlDatabase._run

    def away(self: Any, statement: Any) -> int:
        if statement.is_delete:
            raise StorageError("cannot write to the catalog database: it does not answer.")
        return run(self, statement)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_database.SqlDatabase, "_run", away)
        with rows.lock("shop", "orders"):
            pass
    assert len(rows._rows(sa.select(sql_database._LOCKS))) == 1


@pytest.mark.campaign(1 / 3)
def test_a_lock_that_others_hold_too_long_is_an_error(database: SqlServer, catalog: mg.Catalog, tmp_path: Path) -> None:
    orders = _orders(catalog)
    rows: Any = catalog.metastore.rows
    rows._acquire("jdbc.shop.orders")
    options = _options(database, tmp_path, lock_enabled="true") | {"lock-acquire-timeout": "500 ms"}
    impatient = mg.catalog(database.uri, options=options)
    with pytest.raises(MerganserError, match="was held by others"):
        impatient.table("shop.orders").write([{"id": 2, "state": "new"}])
    assert orders.read().to_pylist() == ROWS


@pytest.mark.campaign(1 / 3)
def test_writers_that_are_killed_leave_a_table_that_is_right(
    database: SqlServer, catalog: mg.Catalog, tmp_path: Path
) -> None:
    orders = _orders(catalog)
    rows: Any = catalog.metastore.rows
    code = f"""
import sys, merganser as mg
catalog = mg.catalog({database.uri!r}, options={_options(database, tmp_path, lock_enabled="true")!r})
table = catalog.table("shop.orders")
for number in range(int(sys.argv[1]), 1_000_000, 2):
    table.write([{{"id": number, "state": "x"}}])
    print(number, flush=True)
"""
    done = set()
    for start in (10, 11):
        process = subprocess.Popen([sys.executable, "-c", code, str(start)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            done.add(int(line))
            if len(done) % 5 == 0:
                break
        os.kill(process.pid, signal.SIGKILL)
        done |= {int(line) for line in process.stdout}
        process.wait()
        rows._run(sa.delete(sql_database._LOCKS))  # of the one that was killed, whose lease would end in seconds
    orders.write([{"id": 5, "state": "x"}])
    found = {row["id"] for row in orders.read().to_pylist()} - {1, 5}
    assert done <= found
    assert len(found - done) <= 2
    assert not orders.check()


def test_catalogs_pickle_and_hide_passwords(catalog: mg.Catalog, database: SqlServer) -> None:
    _orders(catalog)
    again = pickle.loads(pickle.dumps(catalog))
    assert again.table("shop.orders").read().to_pylist() == ROWS
    assert ":live@" not in f"{again!r}{again.metastore!r}"


@pytest.mark.parametrize(
    ("uri", "options", "said"),
    [
        ("jdbc:sqlite:/nowhere/at/all.db", {"warehouse": "w"}, "cannot open the catalog database"),
        ("jdbc:sqlite:x.db", {}, "'warehouse' is missing"),
        ("w", {"metastore": "jdbc"}, "the address of the database, and the directory where tables lie"),
        ("jdbc:oracle:thin:@host", {"warehouse": "w"}, "is no database that it knows"),
        ("jdbc:postgresql://u:secret@127.0.0.1:1/x", {"warehouse": "w"}, "cannot open"),
        ("w", {"metastore": "jdbcc"}, "jdbc"),
        ("jdbc:sqlite:x.db", {"warehouse": "w", "jdbc.pasword": "secret"}, "jdbc.password"),
    ],
)
def test_what_cannot_be_opened_says_why(
    uri: str, options: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidInputError, StorageError), match=said) as caught:
        mg.catalog(uri, options=options)
    assert "secret" not in str(caught.value)


def test_a_password_in_an_address_is_decoded() -> None:
    url = _url("jdbc:postgresql://an%40user:p%2Fw@h/x", Options({}), "cannot open")
    assert (url.username, url.password) == ("an@user", "p/w")


def test_a_commit_that_gets_no_lock_from_a_database_that_is_away_is_surely_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"warehouse": str(tmp_path / "wh"), "lock.enabled": "true"}
    catalog = mg.catalog(f"jdbc:sqlite:{tmp_path}/names.sqlite", options=options)
    catalog.create_database("shop")
    orders = _orders(catalog)

    def away(self: Any, statement: Any) -> int:
        raise StorageError("cannot write to the catalog database: it does not answer.")

    monkeypatch.setattr(sql_database.SqlDatabase, "_run", away)
    with pytest.raises(StorageError, match="does not answer") as caught:
        orders.write([{"id": 2, "state": "new"}])
    assert caught.value.code == "storage"  # and not that the outcome is unknown
    assert [one.id for one in orders.snapshots()] == [1]
    data = list((tmp_path / "wh").rglob("data-*"))
    assert len(data) == 1
