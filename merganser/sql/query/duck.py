"""DuckDB: runs the text of a bound query over our scans, and tells its errors as ours."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.sql.query.bound import BoundQuery, Reference
from merganser.sql.query.casts import MACROS
from merganser.sql.query.keys import keys_asked
from merganser.sql.query.kinds import is_null
from merganser.sql.query.texts import macros

_BATCH: Final = 65_536
_CANDIDATES: Final = re.compile(r"\n.*", re.DOTALL)
_OPEN = threading.Lock()


@cache
def _root() -> duckdb.DuckDBPyConnection:
    """The database of the process: it holds the macros and no rows."""
    root = duckdb.connect(":memory:")
    for macro in (*MACROS, *macros()):
        root.execute(macro)
    return root


@dataclass
class Batches:
    """Rows as they are computed. An error keeps its class, which a reader of Arrow would not let through.

    Attributes:
        schema: of the batches.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches

    def read_all(self) -> pa.Table:
        """Return all rows as one table."""
        return pa.Table.from_batches(self.batches, self.schema)


def run(bound: BoundQuery, *, timeout: float | None = None, running: Running | None = None) -> Batches:
    """Run a query, and return its rows as they are computed.

    Args:
        timeout: seconds after which it is stopped; None: it may run as long as it takes.
        running: is told how to stop the query.

    Raises:
        InvalidInputError: a value overflows, does not cast, or a division by zero.
    """
    schema = pa.schema([pa.field(n, _arrow(k)) for n, k in zip(bound.names, bound.types, strict=True)])
    if bound.plain is not None and timeout is None:
        return Batches(schema, _read(bound.references[0], bound.plain, schema))

    def batches() -> Iterator[pa.RecordBatch]:
        scans = scanned([rows_of(reference) for reference in bound.references])
        with _OPEN:
            connection = _root().cursor()
        timer = None if timeout is None else threading.Timer(timeout, connection.interrupt)
        if timer is not None:
            timer.daemon = True
            timer.start()
        if running is not None:
            running.stop = connection.interrupt
        try:
            connection.execute(f"SET TimeZone = '{bound.setting.zone or 'UTC'}'")
            for reference, scan in zip(bound.references, scans, strict=True):
                connection.register(reference.view, scan)
            for batch in connection.sql(bound.text).to_arrow_reader(_BATCH):
                yield _conformed(batch.columns, schema)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            of_scan = next((scan.error for scan in scans if scan.error is not None), None)
            raise (of_scan or told(error, timeout)) from error
        finally:
            if running is not None:
                running.stop = None
            if timer is not None:
                timer.cancel()
            connection.close()

    return Batches(schema, batches())


@dataclass
class Running:
    """The query that runs: `stop`, called from another thread, ends it."""

    stop: Callable[[], None] | None = None


def scanned(scans: Sequence[Any]) -> Sequence[Any]:
    """Return scans as DuckDB reads them."""
    if not scans:
        return ()
    from merganser.sql.query.scanned import Scanned  # noqa: PLC0415 - datasets of Arrow and pandas, 0.2 s

    return [Scanned(scan) for scan in scans]


def _arrow(kind: t.DataType) -> pa.DataType:
    return pa.null() if is_null(kind) else arrow_type(kind)


def _conformed(given: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns in the types that merganser hands out."""
    columns = []
    for column, wanted in zip(given, schema, strict=True):
        if column.type == wanted.type:
            columns.append(column)
        elif pa.types.is_null(wanted.type):
            columns.append(pa.nulls(len(column)))
        else:
            columns.append(_moved(column, wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _moved(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_time32(kind) and pa.types.is_time64(column.type):
        return column.cast(pa.int64()).cast(pa.int64()).cast(pa.time64("us")).cast(kind, safe=False)
    return column.cast(kind)


def rows_of(reference: Reference) -> Any:
    """Return the rows that a reference needs, with `schema` and `to_batches`: looked up by key, or scanned for."""
    source, where = reference.source, reference.where
    columns = reference.columns or [source.fields[0].name]
    if source.lookup is not None:
        keys = keys_asked(where, source.key, {f.name: f.type for f in source.fields})
        if keys is not None and where is not None:
            needed = [*columns, *(name for name in where.columns if name not in columns)]
            try:
                found = source.lookup(keys, needed)
            except (UnsupportedError, InvalidInputError):
                found = None  # of some tables, rows are not looked up
            if found is not None:
                return Held(where.apply(found).select(columns))
    return source.open(columns, where, reference.limit)


@dataclass(frozen=True)
class Held:
    """Rows in memory, with the verbs of a scan."""

    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.rows.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield from self.rows.to_batches()


def _read(reference: Reference, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield columns of a table as they are, without DuckDB."""
    for batch in rows_of(reference).to_batches():
        yield _conformed([batch.column(name) for name in columns], schema)


def told(error: Exception, timeout: float | None = None) -> Exception:
    """Return an error of DuckDB as one of ours, without its own advice."""
    text = _CANDIDATES.sub("", str(error)).strip()
    text = re.sub(r"^[A-Za-z ]+ Error: ", "", text)
    if isinstance(error, duckdb.InterruptException):
        return InvalidInputError(
            f"the query was stopped after {timeout:g} s, the limit of 'sql.timeout'."
            if timeout
            else "the query was stopped."
        )
    if (found := re.search(r'column "([^"]+)" must appear in the GROUP BY clause', str(error))) is not None:
        return InvalidInputError(
            f"column '{found[1]}' is neither in GROUP BY nor in an aggregate. Add it to GROUP BY, or use "
            f"any_value({found[1]}).",
            column=found[1],
        )
    if isinstance(error, duckdb.NotImplementedException):
        return UnsupportedError(f"cannot run the query in this process: {text} Run the statement on Spark.")
    if "Overflow" in text or "out of range" in text.lower():
        return InvalidInputError(f"cannot run the query: overflow. {text}")
    return InvalidInputError(f"cannot run the query: {text}")
