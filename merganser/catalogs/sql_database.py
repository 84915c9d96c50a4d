"""The rows of an SQL database that a catalog shares with other engines, as Paimon's JDBC catalog lays them out.

    paimon_tables                catalog_key, database_name, table_name
    paimon_database_properties   ... property_key, property_value; each database has the key "exists"
    paimon_table_properties      options of each table, for people; nobody reads them back
    paimon_distributed_locks     lock_id, acquired_at, expire_time_seconds
    paimon_views                 catalog_key, database_name, view_name, view_schema: JSON
    merganser_functions          the same of functions, for which Paimon has no table; other engines do not look at it

Each statement is a transaction of its own, and repeating one changes nothing more. A process may stop between any two.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from merganser.errors import AlreadyExistsError, ConflictError, StorageError, UnsupportedError
from merganser.storage.retries import MACHINE, Retries
from merganser.values import dataclass

_NAME: Final = 255
_VALUE: Final = 1000
_EXISTS: Final = "exists"
_LOCATION: Final = "location"
_LEASE_S: Final = 6
"""Seconds after which a lock is free that its holder has neither renewed nor released: how long others wait for one
that was killed. A holder renews it after each third of it, so two renewals may fail, or be late."""
_BUSY_S: Final = 60
"""Maximum seconds that a statement waits for other writers of an SQLite file."""

_DEADLOCK: Final = 1213
"""What MySQL and MariaDB call it if they have undone a statement, since it and others waited for each other."""
_DEADLOCKED: Final = Retries(attempts=20, first_wait_ms=2, growth=1.5, longest_wait_ms=100)

_AGAIN: Final = Retries(attempts=4, first_wait_ms=50, growth=4, longest_wait_ms=1000)
"""Of statements that say which tables there are, over a second: as long as a database takes to start again."""

_metadata: Final = sa.MetaData()


def _names(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(_NAME), primary_key=True, nullable=False) for name in names]


_BINARY: Final[dict[str, Any]] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
_SHORT: Final[dict[str, Any]] = {"mysql_charset": "utf8mb3", "mysql_collate": "utf8mb3_bin"}
"""A key of MariaDB has 3,072 bytes at most, and four names of utf8mb4 more."""

_TABLES: Final = sa.Table("paimon_tables", _metadata, *_names("catalog_key", "database_name", "table_name"), **_BINARY)
_DATABASES: Final = sa.Table(
    "paimon_database_properties",
    _metadata,
    *_names("catalog_key", "database_name", "property_key"),
    sa.Column("property_value", sa.String(_VALUE)),
    **_BINARY,
)
_OPTIONS: Final = sa.Table(
    "paimon_table_properties",
    _metadata,
    *_names("catalog_key", "database_name", "table_name", "property_key"),
    sa.Column("property_value", sa.String(_VALUE)),
    **_SHORT,
)
_LOCKS: Final = sa.Table(
    "paimon_distributed_locks",
    _metadata,
    *_names("lock_id"),
    sa.Column("acquired_at", sa.TIMESTAMP, nullable=False, server_default=sa.text("CURRENT_TIMESTAMP")),
    sa.Column("expire_time_seconds", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    **_BINARY,
)
VIEWS: Final = sa.Table(
    "paimon_views",
    _metadata,
    *_names("catalog_key", "database_name", "view_name"),
    sa.Column("view_schema", sa.Text, nullable=False),
    **_BINARY,
)
FUNCTIONS: Final = sa.Table(
    "merganser_functions",
    _metadata,
    *_names("catalog_key", "database_name", "function_name"),
    sa.Column("function_definition", sa.Text, nullable=False),
    **_BINARY,
)
_SINCE: Final = sa.cast(_LOCKS.c.acquired_at, sa.String(64))
"""Whose a lock is: the next holder has it at least a lease later, so seconds tell them apart."""
_AGE_S: Final = {
    "sqlite": "strftime('%s', 'now') - strftime('%s', acquired_at)",
    "postgresql": "EXTRACT(EPOCH FROM (NOW() - acquired_at))",
    "mysql": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
    "mariadb": "TIMESTAMPDIFF(SECOND, acquired_at, NOW())",
}
"""Seconds since a lock was acquired, by the clock of the database."""
DIALECTS: Final = frozenset(_AGE_S)


@dataclass
class _Held:
    """A lock that this process has.

    Attributes:
        since: when the database noted it, as text of the database.
        begun: when it was asked for, by the clock of this process.
        ends: when another process may have it.
        place: the database, for people.
    """

    name: str
    since: str
    begun: float
    ends: float
    place: str

    def check(self) -> None:
        """Raise StorageError if another process may have the lock."""
        if MACHINE.seconds() >= self.ends:
            raise StorageError(
                f"the lock '{self.name}' of the catalog at '{self.place}' was not renewed for {_LEASE_S} s, since this "
                "process was stopped or the database did not answer. Nothing was changed. Try again.",
                path=self.place,
                changed=False,
            )


@dataclass(frozen=True)
class SqlDatabase:
    """The rows of one catalog.

    Attributes:
        url: where the database is; its text hides the password.
        key: which catalog of the database it is.
        wait_s: maximum seconds of waiting for a lock.
    """

    url: sa.URL
    key: str
    wait_s: float = field(default=480.0)

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def prepare(self) -> None:
        """Create the tables that are missing.

        Raises:
            StorageError: the database does not answer, or refuses.
        """
        with self._told("open"):
            try:
                _metadata.create_all(_engine(os.getpid(), self.url))
            except sa.exc.DBAPIError:  # another process creates them at the same time
                _metadata.create_all(_engine(os.getpid(), self.url))

    # databases

    def databases(self) -> list[str]:
        """Return the names of all databases, in order."""
        ours = [table.c.database_name for table in _IN_DATABASES]
        asked = sa.union(*(sa.select(name).where(name.table.c.catalog_key == self.key) for name in ours))
        return sorted(name for (name,) in self._rows(asked))

    def has_database(self, name: str) -> bool:
        """Return whether there is a database."""
        asked = sa.union(
            *(
                sa.select(table.c.database_name).where(table.c.catalog_key == self.key, table.c.database_name == name)
                for table in _IN_DATABASES
            )
        )
        return (name,) in {tuple(row) for row in self._rows(asked)}

    def add_database(self, name: str, location: str) -> bool:
        """Note a database; it is fine if it is noted.

        Returns:
            Whether this call has noted it. Of callers at the same time, one has.
        """
        made: list[bool] = []
        tried = 0

        def insert(row: Mapping[str, str]) -> None:
            nonlocal tried
            tried += 1
            made.append(self._insert(_DATABASES, row))

        row = {"catalog_key": self.key, "database_name": name}
        self._sure(lambda: insert({**row, "property_key": _EXISTS, "property_value": "true"}), lambda: False)
        # A row that is there after an attempt whose reply was lost is taken for the row of that attempt.
        is_ours = made[-1] or tried > 1
        place = {**row, "property_key": _LOCATION, "property_value": location}
        self._sure(partial(self._insert, _DATABASES, place), lambda: False)
        return is_ours

    def remove_database(self, name: str) -> None:
        """Forget a database and all that it has."""

        def rows_of(table: sa.Table) -> Any:
            return sa.delete(table).where(table.c.catalog_key == self.key, table.c.database_name == name)

        # They are for people alone. MariaDB does not even compare their utf8mb3 with a name that has an emoji.
        with contextlib.suppress(StorageError):
            self._run(rows_of(_OPTIONS))
        for table in (_TABLES, VIEWS, FUNCTIONS, _DATABASES):
            self._sure(partial(self._run, rows_of(table)), lambda: False)

    # tables

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables of a database, in order."""
        asked = sa.select(_TABLES.c.table_name, _TABLES.c.database_name).where(
            _TABLES.c.catalog_key == self.key, _TABLES.c.database_name == database
        )
        return sorted(name for name, of in self._rows(asked) if of == database)

    def has_table(self, database: str, table: str) -> bool:
        """Return whether there is a table."""
        asked = sa.select(_TABLES.c.database_name, _TABLES.c.table_name).where(self._is(_TABLES, database, table))
        # A database that compares names without case also finds others.
        return (database, table) in {tuple(row) for row in self._rows(asked)}

    def add_table(self, database: str, table: str) -> None:
        """Note a table; it is fine if it is noted.

        Raises:
            AlreadyExistsError: the database has a table of the same name in other case, and takes them for one.
            StorageError: see `_sure`.
        """
        row = {"catalog_key": self.key, "database_name": database, "table_name": table}
        self._sure(lambda: self._insert(_TABLES, row), lambda: self.has_table(database, table))
        if not self.has_table(database, table):
            raise AlreadyExistsError(
                f"cannot create '{database}.{table}': the catalog at '{self}' has a table whose name differs in case "
                "alone, and its database takes them for one. Choose another name.",
                table=f"{database}.{table}",
            )

    def remove_table(self, database: str, table: str) -> bool:
        """Forget a table; return whether it was noted. See `_sure` for errors."""
        noted = self.has_table(database, table)
        one = sa.delete(_TABLES).where(self._is(_TABLES, database, table))
        self._sure(lambda: self._run(one), lambda: not self.has_table(database, table))
        with contextlib.suppress(StorageError):  # for people alone, and a new table of this name replaces them
            self._run(sa.delete(_OPTIONS).where(self._is(_OPTIONS, database, table)))
        return noted

    def rename_table(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        """Note another name of a table; it is fine if it is noted.

        Raises:
            AlreadyExistsError: there is a table of the new name.
            StorageError: see `_sure`.
        """
        named = {"database_name": new[0], "table_name": new[1]}
        with contextlib.suppress(StorageError, sa.exc.IntegrityError):  # for people alone
            self._run(sa.update(_OPTIONS).where(self._is(_OPTIONS, *old)).values(named))
        one = sa.update(_TABLES).where(self._is(_TABLES, *old)).values(named)
        try:
            self._sure(lambda: self._run(one), lambda: self.has_table(*new) and not self.has_table(*old))
        except sa.exc.IntegrityError:
            raise AlreadyExistsError(
                f"cannot rename '{'.'.join(old)}': table '{'.'.join(new)}' already exists.", table=".".join(new)
            ) from None

    def note_options(self, database: str, table: str, options: Mapping[str, str]) -> None:
        """Note the options of a table, in place of those that are noted. Values that do not fit are left out."""
        self._run(sa.delete(_OPTIONS).where(self._is(_OPTIONS, database, table)))
        named = {"catalog_key": self.key, "database_name": database, "table_name": table}
        for key, value in options.items():
            if len(key) <= _NAME and len(value) <= _VALUE:
                self._insert(_OPTIONS, {**named, "property_key": key, "property_value": value})

    # views and functions

    def objects(self, of: sa.Table, database: str) -> list[str]:
        """Return the names of the views or functions of a database, in order.

        Args:
            of: `VIEWS` or `FUNCTIONS`.
        """
        asked = sa.select(_name_of(of), of.c.database_name).where(
            of.c.catalog_key == self.key, of.c.database_name == database
        )
        return sorted(name for name, found in self._rows(asked) if found == database)

    def object(self, of: sa.Table, database: str, name: str) -> str | None:
        """Return the definition of a view or function; None: there is none."""
        asked = sa.select(of.c.database_name, _name_of(of), _text_of(of)).where(self._names(of, database, name))
        return next((text for *found, text in self._rows(asked) if found == [database, name]), None)

    def add_object(self, of: sa.Table, database: str, name: str, text: str) -> bool:
        """Note a view or function; return False if the name is taken."""
        row = {"catalog_key": self.key, "database_name": database, _name_of(of).name: name, _text_of(of).name: text}
        return self._insert(of, row)

    def change_object(self, of: sa.Table, database: str, name: str, text: str) -> bool:
        """Note another definition; return whether there is such a view or function."""
        return self._run(sa.update(of).where(self._names(of, database, name)).values({_text_of(of).name: text})) > 0

    def remove_object(self, of: sa.Table, database: str, name: str) -> bool:
        """Forget a view or function; return whether it was noted."""
        return self._run(sa.delete(of).where(self._names(of, database, name))) > 0

    def rename_object(self, of: sa.Table, old: tuple[str, str], new: tuple[str, str]) -> bool | None:
        """Note another name; return whether there is such a view or function. None: the new name is taken."""
        named = {"database_name": new[0], _name_of(of).name: new[1]}
        try:
            return self._run(sa.update(of).where(self._names(of, *old)).values(named)) > 0
        except sa.exc.IntegrityError:
            return None

    def _names(self, of: sa.Table, database: str, name: str) -> sa.ColumnElement[bool]:
        return sa.and_(of.c.catalog_key == self.key, of.c.database_name == database, _name_of(of) == name)

    # locks

    @contextmanager
    def lock(self, database: str, table: str) -> Iterator[Callable[[], None]]:
        """Hold the lock of a table in the block. A thread renews its lease until the block ends.

        Yields:
            A function to call right before what needs the lock. It raises StorageError, with `changed` = False, if the
            lease has ended, such as after a stop of this process: the lock may be another's.

        Raises:
            ConflictError: others held it for `wait_s`.
            StorageError: the database does not answer. Its context has `changed` = False: the block was not entered.
        """
        try:
            held = self._acquire(f"{self.key}.{database}.{table}")
        except StorageError as error:  # nothing was made under a lock that is not held
            raise StorageError(error.message, path=str(self), changed=False) from error
        ended = threading.Event()
        threading.Thread(target=self._renew, args=(held, ended), name="merganser lock", daemon=True).start()
        try:
            yield held.check
        finally:
            ended.set()
            with contextlib.suppress(StorageError):  # what the block did is done, and the lease ends soon
                self._run(sa.delete(_LOCKS).where(_is_of(held)))

    @contextmanager
    def locks(self, *names: tuple[str, str]) -> Iterator[None]:
        """Hold the locks of names, taken in their order as other engines do, so that nobody waits for each other."""
        with contextlib.ExitStack() as held:
            for name in sorted(set(names), key="\0".join):
                held.enter_context(self.lock(*name))
            yield

    def _acquire(self, name: str) -> _Held:
        age_s: sa.ColumnElement[int] = sa.literal_column(_AGE_S[self.url.get_backend_name()])
        waits = Retries(attempts=1 << 20, first_wait_ms=4, growth=1.3, longest_wait_ms=100, deadline_s=self.wait_s)
        for attempt in waits.each():
            begun = MACHINE.seconds()
            if self._insert(_LOCKS, {"lock_id": name, "expire_time_seconds": _LEASE_S}):
                found = self._rows(sa.select(_SINCE).where(_LOCKS.c.lock_id == name))
                if found:  # else the statements took longer than the lease, and the lock is another's
                    return _Held(name, str(found[0][0]), begun, begun + _LEASE_S, str(self))
            self._run(sa.delete(_LOCKS).where(_LOCKS.c.lock_id == name, age_s > _LOCKS.c.expire_time_seconds))
            if attempt.is_last:
                break
        raise ConflictError(
            f"the lock '{name}' of the catalog at '{self}' was held by others for {self.wait_s:.0f} s. Nothing was "
            "committed. Try again, or look into the table 'paimon_distributed_locks' for a holder that is gone."
        )

    def _renew(self, held: _Held, ended: threading.Event) -> None:
        """Make a lease longer, again and again: it counts from the time of the row, which says whose the lock is."""
        while not ended.wait(_LEASE_S / 3):
            now = MACHINE.seconds()
            if now >= held.ends:
                return
            longer = {"expire_time_seconds": math.floor(now - held.begun) + _LEASE_S}
            with contextlib.suppress(StorageError):  # the next attempt is soon enough
                if not self._run(sa.update(_LOCKS).where(_is_of(held)).values(longer)):
                    return
                held.ends = held.begun + longer["expire_time_seconds"]

    # statements

    def _is(self, rows: sa.Table, database: str, table: str) -> sa.ColumnElement[bool]:
        return sa.and_(rows.c.catalog_key == self.key, rows.c.database_name == database, rows.c.table_name == table)

    def _sure(self, run: Callable[[], Any], is_done: Callable[[], bool]) -> None:
        """Run a statement that may be repeated. If the database fails, look whether it is done, and run it again.

        Raises:
            StorageError: the database failed every time. Its context has `changed` = False if nothing was changed, as
                the database says since; else that is unknown.
        """
        for attempt in _AGAIN.each():
            try:
                run()
                return
            except StorageError as error:
                known: dict[str, bool] = {}
                with contextlib.suppress(StorageError):
                    if is_done():
                        return
                    known = {"changed": False}
                if attempt.is_last:
                    raise StorageError(error.message, path=str(self), **known) from error

    def _insert(self, table: sa.Table, row: Mapping[str, Any]) -> bool:
        """Insert a row; return whether it was not there."""
        try:
            self._run(sa.insert(table).values(row))
        except sa.exc.IntegrityError:
            return False
        return True

    def _rows(self, asked: Any) -> list[Any]:
        with self._told("read"), _engine(os.getpid(), self.url).connect() as connection:
            return list(connection.execute(asked))

    def _run(self, statement: Any) -> int:
        with self._told("write to"):
            for attempt in _DEADLOCKED.each():
                try:
                    with _engine(os.getpid(), self.url).connect() as connection:
                        return int(connection.execute(statement).rowcount)
                except sa.exc.OperationalError as error:
                    if attempt.is_last or _DEADLOCK not in getattr(error.orig, "args", ()):
                        raise
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sa.exc.IntegrityError:
            raise
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise StorageError(
                f"cannot {verb} the catalog database '{self}': {reason}.",
                path=str(self),
            ) from error


_IN_DATABASES: Final = (_TABLES, _DATABASES, VIEWS, FUNCTIONS)
"""Whatever has a row in one of these makes a database exist."""


def _is_of(held: _Held) -> sa.ColumnElement[bool]:
    """Return whether a row is that of a lock, and not of a later holder."""
    return sa.and_(_LOCKS.c.lock_id == held.name, _SINCE.in_([held.since]))


def _name_of(of: sa.Table) -> sa.Column[str]:
    found: sa.Column[str] = list(of.c)[2]
    return found


def _text_of(of: sa.Table) -> sa.Column[str]:
    found: sa.Column[str] = list(of.c)[3]
    return found


@functools.lru_cache(maxsize=16)
def _engine(pid: int, url: sa.URL) -> sa.Engine:
    """Return the connections of a process: a fork of it has its own."""
    backend = url.get_backend_name()
    try:
        made = sa.create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            pool_pre_ping=backend != "sqlite",
            connect_args={"timeout": _BUSY_S} if backend == "sqlite" else {},
        )
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"cannot open the catalog database '{url.render_as_string(hide_password=True)}': its driver "
            f"'{error.name}' is not installed. Nothing was opened. Run pip install 'merganser[sql-catalog]'."
        ) from error
    if backend in _ON_CONNECT:
        sa.event.listen(made, "connect", _ON_CONNECT[backend])
    return made


def _in_local_zone(connection: Any, record: Any) -> None:
    """Set the zone of a session of PostgreSQL to that of this machine, as JDBC does: times of locks have none."""
    offset = datetime.now().astimezone().utcoffset()
    with connection.cursor() as cursor:
        cursor.execute(f"SET TIME ZONE INTERVAL '{int(offset.total_seconds()) if offset else 0} seconds'")


def _with_a_log(connection: Any, record: Any) -> None:
    """Let a file of SQLite have a write-ahead log, so that readers block no writer: Java leaves queries open."""
    connection.execute("PRAGMA journal_mode = WAL").close()


_ON_CONNECT: Final = {"postgresql": _in_local_zone, "sqlite": _with_a_log}
