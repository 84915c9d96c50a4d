"""PEP 249: connections and cursors over the SQL of a catalog, for tools that speak the database API of Python.

Each statement is one commit, made when it runs. `commit` changes nothing, and `rollback` is refused if there is
something to take back. Parameters have names (`:name`). A connection is a session and belongs to one thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any, Final

import pyarrow as pa

from merganser import errors
from merganser.catalogs.catalog import Catalog
from merganser.handle.doors import catalog
from merganser.sql.embedded import Embedded
from merganser.sql.many import insert_many
from merganser.sql.result import Result
from merganser.sql.session import Session

apilevel = "2.0"
threadsafety = 1
paramstyle = "named"


class Warning(Exception):  # noqa: N818  (PEP 249's name)
    """Warning of PEP 249; never raised."""


class Error(Exception):
    """Base class of the errors; `__cause__` is merganser's error."""


class InterfaceError(Error):
    """The connection or cursor was used wrongly."""


class DatabaseError(Error):
    """An error of the database."""


class DataError(DatabaseError):
    """A value does not fit."""


class OperationalError(DatabaseError):
    """The store failed, a commit lost a race, or its outcome is unknown."""


class IntegrityError(DatabaseError):
    """A constraint does not hold."""


class InternalError(DatabaseError):
    """A fault of merganser, or bytes that break the format."""


class ProgrammingError(DatabaseError):
    """A statement is wrong, or names what does not exist."""


class NotSupportedError(DatabaseError):
    """merganser does not support the call."""


class TypeObject:
    """One of the type objects of PEP 249: equal to the type codes that it stands for."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = frozenset(kinds)

    def __eq__(self, other: object) -> bool:
        return other in self.kinds if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.kinds)


STRING: Final = TypeObject("string")
BINARY: Final = TypeObject("binary")
NUMBER: Final = TypeObject("int", "float", "decimal", "bool")
DATETIME: Final = TypeObject("date", "time", "timestamp")
ROWID: Final = TypeObject()

Date, Time, Timestamp = date, time, datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802  (PEP 249's name)
    """Return the day of some seconds since 1970, in UTC."""
    return datetime.fromtimestamp(ticks, UTC).date()


def TimeFromTicks(ticks: float) -> time:  # noqa: N802
    """Return the time of day of some seconds since 1970, in UTC."""
    return datetime.fromtimestamp(ticks, UTC).time()


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802
    """Return the moment of some seconds since 1970, in UTC."""
    return datetime.fromtimestamp(ticks, UTC)


def _code(kind: pa.DataType) -> str:
    tests = (
        ("bool", pa.types.is_boolean), ("int", pa.types.is_integer), ("float", pa.types.is_floating),
        ("decimal", pa.types.is_decimal), ("date", pa.types.is_date), ("time", pa.types.is_time),
        ("timestamp", pa.types.is_timestamp), ("binary", pa.types.is_binary), ("binary", pa.types.is_large_binary),
        ("string", pa.types.is_string), ("string", pa.types.is_large_string),
    )  # fmt: skip
    return next((code for code, test in tests if test(kind)), "other")


_NAMES: Final = "parameters have names here: write `:name` in the statement and pass a dict."
_FOREIGN: Final = re.compile(r"%\(\w+\)s|%s|\?")
_CLASSES: tuple[tuple[type[errors.MerganserError], type[Error]], ...] = (
    (errors.UnsupportedError, NotSupportedError),
    (errors.InvariantError, InternalError),
    (errors.FormatError, InternalError),
    (errors.NotFoundError, ProgrammingError),
    (errors.AlreadyExistsError, ProgrammingError),
    (errors.InvalidInputError, ProgrammingError),
)


def connect(
    catalog_or_warehouse: Any, database: str | None = None, options: Mapping[str, str] | None = None
) -> Connection:
    """Return a connection.

    Args:
        catalog_or_warehouse: a catalog of `merganser.catalog`, or the path or URL of a warehouse.
        database: the database of names without one; None: `default`.
        options: of the store, for a warehouse.

    Raises:
        Error: the warehouse cannot be opened, or there is no such database.
    """
    if isinstance(catalog_or_warehouse, Catalog):
        if options:
            raise InterfaceError("options are those of a warehouse. Pass its path, or open the catalog with them.")
        return Connection(catalog_or_warehouse, database)
    with _translated():
        opened = catalog(catalog_or_warehouse, options=options)
    return Connection(opened, database)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of merganser as those of PEP 249, with the original as their cause."""
    try:
        yield
    except errors.MerganserError as error:
        kind = next((to for of, to in _CLASSES if isinstance(error, of)), OperationalError)
        raise kind(str(error)) from error


class Connection:
    """A session of SQL. Each statement is one commit.

    Attributes:
        changes: how many statements have changed something since the last `commit` or `rollback`.
    """

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError = DataError, OperationalError, IntegrityError
    InternalError, ProgrammingError, NotSupportedError = InternalError, ProgrammingError, NotSupportedError

    def __init__(self, opened: Any, database: str | None) -> None:
        self.engine = Embedded()
        self.session: Session | None = Session(opened, self.engine)
        self.changes = 0
        if database is not None:
            self.cursor().execute("USE `" + database.replace("`", "``") + "`")

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        if self.session is None:
            raise InterfaceError("cannot use a closed connection. Connect again.")
        return Cursor(self)

    def commit(self) -> None:
        """Change nothing: each statement was committed when it ran."""
        self.changes = 0

    def rollback(self) -> None:
        """Check that there is nothing to take back.

        Raises:
            NotSupportedError: statements have changed something since the last `commit`. They stay.
        """
        changes, self.changes = self.changes, 0
        if changes:
            raise NotSupportedError(
                f"cannot roll back: each statement is one commit, made when it ran. The changes of {changes} "
                f"statement{'s' if changes > 1 else ''} stay."
            )

    def close(self) -> None:
        """Close the connection."""
        self.session = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """Runs statements and fetches their rows."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.rowcount = -1
        self.lastrowid = None
        self.description: list[tuple[Any, ...]] | None = None
        self._rows: pa.Table | None = None
        self._at = 0
        self._closed = False

    def execute(self, operation: str, parameters: Mapping[str, Any] | None = None) -> Cursor:
        """Run statements with values for `:name`."""
        session = self._session()
        named = not parameters or isinstance(parameters, Mapping)  # some tools pass an empty tuple for none
        if not named or (parameters and _FOREIGN.search(operation) and ":" not in operation):
            raise ProgrammingError(_NAMES)
        with _translated():
            if any(isinstance(value, Mapping | list | tuple) for value in (parameters or {}).values()):
                many = insert_many(session.state, self.connection.engine, operation, [parameters or {}])
                if many is not None:  # nested values have the types of their columns there
                    self._take(replace(many, changes=True))
                    return self
            for result in session.results(operation, parameters or None):
                self._take(result)
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Mapping[str, Any]]) -> Cursor:
        """Run a statement for several rows of parameters.

        `INSERT ... VALUES (:a, :b)` is one commit of all rows: either all are written, or none. Another statement runs
        once per row, with one commit each.
        """
        session, given = self._session(), list(seq_of_parameters)
        if not all(isinstance(parameters, Mapping) for parameters in given):
            raise ProgrammingError(_NAMES)
        if not given:
            self.rowcount = 0
            return self
        if given[0]:
            with _translated():
                result = insert_many(session.state, self.connection.engine, operation, given)
            if result is not None:
                self._take(replace(result, changes=True))
                return self
        count = 0
        for parameters in given:
            count = -1 if self.execute(operation, parameters).rowcount < 0 or count < 0 else count + self.rowcount
        self.rowcount = count
        return self

    def _session(self) -> Session:
        """Return the session, and forget the last result."""
        if self._closed or self.connection.session is None:
            raise InterfaceError("cannot use a closed cursor or connection. Open another one.")
        self.description, self._rows, self._at, self.rowcount = None, None, 0, -1
        return self.connection.session

    def _take(self, result: Result) -> None:
        """Make a result that of the cursor."""
        self.description, self._rows, self._at, self.rowcount = None, None, 0, -1
        if result.has_rows:
            self._rows, self.rowcount = result.rows, result.rows.num_rows
            self.description = [(f.name, _code(f.type), None, None, None, None, None) for f in result.rows.schema]
        elif result.counts:
            self.rowcount = sum(result.counts.values())
        elif result.changes and result.snapshot is None:
            self.rowcount = 0
        of_session = result.statement[:5].upper().startswith(("USE", "SET", "RESET"))
        if result.snapshot is not None or not (result.has_rows or result.changes or of_session):
            self.connection.changes += 1

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows."""
        part = self._part(self.arraysize if size is None else size)
        return list(zip(*(c.to_pylist() for c in part.columns), strict=True))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self.fetchmany(max(self.rowcount, 0))

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None after the last one."""
        return next(iter(self.fetchmany(1)), None)

    def fetch_arrow_table(self) -> pa.Table:
        """Return the rows that are left as an Arrow table."""
        return self._part(max(self.rowcount, 0))

    def fetch_record_batch(self, rows_max: int | None = None) -> pa.RecordBatchReader:
        """Return the rows that are left as a reader of Arrow record batches, of at most `rows_max` rows each."""
        return self.fetch_arrow_table().to_reader(rows_max)

    def _part(self, size: int) -> pa.Table:
        if self._closed:
            raise InterfaceError("cannot use a closed cursor. Open another one.")
        if self._rows is None:
            raise ProgrammingError("cannot fetch: the last statement gave no rows.")
        part = self._rows.slice(self._at, size)
        self._at += part.num_rows
        return part

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchone, None)

    def setinputsizes(self, sizes: Any) -> None:
        """Do nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Close the cursor."""
        self._rows, self._closed = None, True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
