"""Each statement to the database of a catalog, and each request to a REST server, fails once or loses its reply.

Afterwards a table is as before or as after the call, and the error says the truth. A process that is killed at any
statement or call of the store, while it creates, renames or drops a table, leaves what `repair` makes one of the two.
"""

from __future__ import annotations

import itertools
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import merganser as mg
from merganser.catalogs.metastore import NO_DIRECTORY, NO_FILES, NO_ROW
from merganser.errors import MerganserError, NotFoundError, StorageError, UnsupportedError
from merganser.storage.guarded import GuardedStorage
from merganser.storage.retries import Retries
from tests.catalogs.rest import Server
from tests.faults import STEP
from tests.kit.faulty import Stopped
from tests.seeds import day

sa = pytest.importorskip("sqlalchemy")
requests = pytest.importorskip("requests")
rest_client = pytest.importorskip("merganser.catalogs.rest_client")
sql_database = pytest.importorskip("merganser.catalogs.sql_database")

State = dict[str, Any]
SCHEMA: Final = {"id": "BIGINT", "v": "STRING"}
VERBS: Final[dict[str, Callable[[mg.Catalog, str], Any]]] = {
    "create": lambda catalog, db: catalog.create_table(f"{db}.made", SCHEMA, primary_key=["id"]),
    "write": lambda catalog, db: catalog.table(f"{db}.t").write([{"id": 3, "v": "c"}]),
    "upsert": lambda catalog, db: catalog.table(f"{db}.t").upsert([{"id": 1, "v": "z"}]),
    "compact": lambda catalog, db: catalog.table(f"{db}.t").compact(full=True),
    "alter": lambda catalog, db: catalog.alter_table(f"{db}.t", [mg.changes.add_column("more", "INT")]),
    "rename": lambda catalog, db: catalog.rename_table(f"{db}.t", f"{db}.other"),
    "drop": lambda catalog, db: catalog.drop_table(f"{db}.t"),
    "rollback": lambda catalog, db: catalog.table(f"{db}.t").rollback(snapshot=1),
    "tag": lambda catalog, db: catalog.table(f"{db}.t").tags.create("new"),
    "branch": lambda catalog, db: catalog.table(f"{db}.t").branches.create("b", tag="old"),
}
FILE_CALLS: Final = (
    "create", "read", "exists", "list", "replace", "writer", "copy", "delete", "delete_tree", "delete_empty",
    "move_tree",
)  # fmt: skip


class Strike:
    """Lets one call go wrong, the n-th.

    Args:
        way: "fail": it is not made. "lose": it is made, and the caller is told that it failed. "stop" and "stop after":
            the process is gone before or after it.
    """

    def __init__(self, number: int, way: str) -> None:
        self.number, self.way = number, way
        self.counted = 0
        self.stopped = False
        self.struck: str | None = None

    def before(self, what: str, lost: Exception) -> None:
        if self.stopped:
            raise Stopped(what)
        self.counted += 1
        if self.counted == self.number:
            self.struck = what
            if self.way == "stop":
                self.stopped = True
                raise Stopped(what)
            if self.way == "fail":
                raise lost

    def after(self, what: str, lost: Exception) -> None:
        if self.stopped:
            raise Stopped(what)
        if self.counted == self.number:
            if self.way == "stop after":
                self.stopped = True
                raise Stopped(what)
            if self.way == "lose":
                raise lost


class Files:
    """A storage whose calls count, too."""

    def __init__(self, inner: Any, strike: Strike) -> None:
        self._inner, self._strike = inner, strike

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in FILE_CALLS:
            return found

        def call(*given: Any, **more: Any) -> Any:
            self._strike.before(name, StorageError(name))
            made = found(*given, **more)
            self._strike.after(name, StorageError(name))
            return made

        return call


def calls(step: int) -> Iterator[int]:
    """Yield every step-th number, each day from another one on; all of them with MERGANSER_FAULT_STEP=1."""
    step = min(step, STEP)
    name = os.environ.get("PYTEST_CURRENT_TEST", "")
    return itertools.count(1 + (zlib.crc32(name.encode()) + day().toordinal()) % step, step)


def state_of(catalog: mg.Catalog, db: str) -> State:
    """Return all that the verbs change."""
    found: State = {}
    for name in catalog.list_tables(db):
        table = catalog.table(f"{db}.{name}")
        rows = table.read().to_pylist()
        found[name] = (
            table.schema.names,
            sorted(tuple(row.values()) for row in rows),
            [tag.name for tag in table.tags.list()],
            [branch.name for branch in table.branches.list()],
        )
        assert table.check() == ()
    return found


def filled(catalog: mg.Catalog) -> None:
    """Make the state before."""
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": 1, "v": "a"}])
    table.write([{"id": 2, "v": "b"}])
    table.tags.create("old")


def judged(error: BaseException | None, found: State, before: State, after: State) -> None:
    """Hold what is there against what the caller was told."""
    if error is None:
        assert found == after
    elif isinstance(error, MerganserError) and (
        error.context.get("changed") is False or "Nothing was changed" in str(error)
    ):
        assert found == before, error
    else:
        assert found in (before, after), error


def attempted(work: Callable[[], Any]) -> BaseException | None:
    try:
        work()
    except (MerganserError, Stopped) as error:
        return error
    return None


# an SQL database


class Sql:
    """Catalogs in files of SQLite, each a copy of one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        (folder / "first").mkdir()
        filled(self.opened(folder / "first"))
        self.dispose(folder / "first")

    def opened(self, folder: Path) -> mg.Catalog:
        options = {"warehouse": str(folder / "wh"), "lock.enabled": "true", "local.sync": "false"}
        return mg.catalog(f"jdbc:sqlite:{folder}/c.sqlite", options=options)

    def copied(self) -> Path:
        self._number += 1
        made = self.folder / str(self._number)
        shutil.copytree(self.folder / "first", made)
        return made

    def dispose(self, folder: Path) -> None:
        rows: Any = self.opened(folder).metastore.rows  # type: ignore[attr-defined]
        sql_database._engine(os.getpid(), rows.url).dispose()

    @contextmanager
    def struck(self, folder: Path, strike: Strike, *, files: bool) -> Iterator[mg.Catalog]:
        catalog = self.opened(folder)
        if files:
            kept: Any = catalog.env.storage
            catalog.env.storage = GuardedStorage(Files(kept.files, strike), kept.guard)  # type: ignore[arg-type]
        engine = sql_database._engine(os.getpid(), catalog.metastore.rows.url)  # type: ignore[attr-defined]

        def before(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            strike.before(statement, sa.exc.OperationalError("made to fail", None, Exception("the connection is lost")))

        def after(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            strike.after(statement, sa.exc.OperationalError("made to fail", None, Exception("the connection is lost")))

        listening = {"before_cursor_execute": before, "after_cursor_execute": after}
        for name, hook in listening.items():
            sa.event.listen(engine, name, hook)
        try:
            yield catalog
        finally:
            for name, hook in listening.items():
                sa.event.remove(engine, name, hook)


@pytest.fixture
def sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sql:
    monkeypatch.setattr(sql_database, "_LEASE_S", 1)  # of locks whose reply is lost
    monkeypatch.setattr(sql_database, "_AGAIN", Retries(attempts=3, first_wait_ms=1, growth=1, longest_wait_ms=1))
    return Sql(tmp_path)


def _states(sql: Sql, verb: str) -> tuple[State, State]:
    folder = sql.copied()
    catalog = sql.opened(folder)
    before = state_of(catalog, "shop")
    VERBS[verb](catalog, "shop")
    return before, state_of(sql.opened(folder), "shop")


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("verb", VERBS)
def test_a_statement_fails_or_loses_its_reply(sql: Sql, verb: str) -> None:
    before, after = _states(sql, verb)
    for way in ("fail", "lose"):
        for number in calls(4):
            folder, strike = sql.copied(), Strike(number, way)
            with sql.struck(folder, strike, files=False) as catalog:
                error = attempted(lambda: VERBS[verb](catalog, "shop"))
            if strike.struck is None:
                break
            try:
                judged(error, state_of(sql.opened(folder), "shop"), before, after)
                assert sql.opened(folder).repair() == ()
            except BaseException as found:
                found.add_note(f"{verb}, {way}, statement {number}: {strike.struck}; told: {error!r}")
                raise
            sql.dispose(folder)


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("way", ["stop", "stop after"])
@pytest.mark.parametrize("verb", ["create", "rename", "drop"])
def test_a_process_is_killed_at_any_call_and_repair_ends_what_it_began(sql: Sql, verb: str, way: str) -> None:
    before, after = _states(sql, verb)
    problems = set()
    for number in calls(STEP):
        folder, strike = sql.copied(), Strike(number, way)
        with sql.struck(folder, strike, files=True) as catalog:
            attempted(lambda: VERBS[verb](catalog, "shop"))
        if strike.struck is None:
            break
        try:
            again = sql.opened(folder)
            planned = again.repair(dry_run=True)
            done = again.repair()
            assert [(each.name, each.problem) for each in done] == [(each.name, each.problem) for each in planned]
            assert all(each.done for each in done)
            problems |= {each.problem for each in done}
            assert again.repair() == ()
            found = state_of(again, "shop")
            assert found in (before, after)
            if found == before:  # nothing is in the way of the same call; of a drop the rest goes
                VERBS[verb](again, "shop")
            elif verb == "drop":
                again.drop_table("shop.t", if_exists=True)
            assert state_of(sql.opened(folder), "shop") == after
            if verb == "drop":
                assert not (folder / "wh" / "shop.db" / "t").exists()
        except BaseException as found_error:
            found_error.add_note(f"{verb}, {way}, call {number}: {strike.struck}")
            raise
        sql.dispose(folder)
    possible = {"create": {NO_ROW}, "rename": {NO_ROW, NO_FILES}, "drop": {NO_ROW}}[verb]
    assert problems == possible if STEP == 1 else problems <= possible


@pytest.mark.parametrize("verb", ["create", "rename", "drop"])
def test_what_is_left_between_files_and_rows_can_be_repaired(sql: Sql, verb: str) -> None:
    """As a process leaves them that is killed at the very statement that names the table."""
    before, after = _states(sql, verb)
    folder = sql.copied()
    changed = {"create": "add_table", "rename": "rename_table", "drop": "remove_table"}[verb]
    with pytest.MonkeyPatch.context() as patch:
        kept = getattr(sql_database.SqlDatabase, changed)

        def stopped(*given: Any) -> None:
            if verb == "drop":  # a row goes first
                kept(*given)
            raise Stopped(changed)

        patch.setattr(sql_database.SqlDatabase, changed, stopped)
        with pytest.raises(Stopped):
            VERBS[verb](sql.opened(folder), "shop")
    again = sql.opened(folder)
    assert {each.problem for each in again.repair()} == ({NO_ROW, NO_FILES} if verb == "rename" else {NO_ROW})
    assert state_of(again, "shop") == (before if verb == "drop" else after)


def test_repair_says_and_mends_what_does_not_fit(sql: Sql, tmp_path: Path) -> None:
    folder = sql.copied()
    catalog, files = sql.opened(folder), mg.catalog(folder / "wh", options={"local.sync": "false"})
    (folder / "wh/shop.db/t").rename(folder / "wh/shop.db/moved")
    files.create_database("more")
    files.create_table("more.x", SCHEMA)
    with pytest.raises(NotFoundError, match=r"its files are not at .*catalog\.repair\(\)"):
        catalog.table("shop.t")
    assert [(each.name, each.problem, each.done) for each in catalog.repair("shop", dry_run=True)] == [
        ("shop.moved", NO_ROW, False),
        ("shop.t", NO_FILES, False),
    ]
    assert catalog.list_tables("shop") == ["t"]
    assert [each.name for each in catalog.repair("shop.moved")] == ["shop.moved"]
    assert catalog.sql("CALL sys.repair('shop')").to_pylist() == [
        {"name": "shop.t", "problem": NO_FILES, "path": str(folder / "wh/shop.db/t"), "done": True}
    ]
    assert [each["name"] for each in catalog.sql("CALL sys.repair()").to_pylist()] == ["more.x"]
    assert catalog.sql("CALL sys.repair('shop.moved')").num_rows == 1
    with pytest.raises(NotFoundError, match=r"shop\.nothing"):
        catalog.sql("CALL sys.repair('shop.nothing')")
    assert catalog.list_databases() == ["more", "shop"]
    assert catalog.list_tables("shop") == ["moved"]
    assert files.repair() == ()


def test_repair_removes_no_rows_if_the_warehouse_is_another_one(sql: Sql, tmp_path: Path) -> None:
    folder = sql.copied()
    other = mg.catalog(f"jdbc:sqlite:{folder}/c.sqlite", options={"warehouse": str(tmp_path / "elsewhere")})
    assert [(each.name, each.problem, each.done) for each in other.repair()] == [("shop", NO_DIRECTORY, False)]
    assert sql.opened(folder).list_tables("shop") == ["t"]


# a REST server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("faults"))
    filled(made.files())
    yield made
    assert made.stop() == 0


@pytest.mark.xdist_group("serve")
@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("verb", VERBS)
def test_a_request_fails_or_loses_its_reply(server: Server, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_client, "_RETRIES", Retries(attempts=6, first_wait_ms=1, growth=1, longest_wait_ms=1))
    warehouse, files = server.folder / "warehouse", server.files()
    sent = rest_client.RestClient._sent
    strike = Strike(0, "fail")

    def counted(self: Any, method: str, path: str, *given: Any) -> Any:
        lost = requests.ConnectionError("made to fail")
        strike.before(f"{method} {path}", lost)
        reply = sent(self, method, path, *given)
        strike.after(f"{method} {path}", lost)
        return reply

    def copied(name: str) -> str:
        shutil.copytree(warehouse / "shop.db", warehouse / f"{name}.db")
        return name

    before = state_of(files, "shop")
    db = copied(f"{verb}_0")
    VERBS[verb](files, db)
    after = state_of(server.files(), db)
    monkeypatch.setattr(rest_client.RestClient, "_sent", counted)
    for way in ("fail", "lose"):
        for number in calls(4):
            db = copied(f"{verb}_{way}_{number}")
            catalog = server.catalog()
            strike = Strike(number, way)
            error = attempted(lambda: VERBS[verb](catalog, db))  # noqa: B023 - called at once
            if strike.struck is None:
                break
            try:
                judged(error, state_of(server.files(), db), before, after)
            except BaseException as found:
                found.add_note(f"{verb}, {way}, request {number}: {strike.struck}; told: {error!r}")
                raise


def test_a_rest_catalog_says_who_repairs(server: Server) -> None:
    with pytest.raises(UnsupportedError, match="Open the catalog that the server serves"):
        server.catalog().repair()
