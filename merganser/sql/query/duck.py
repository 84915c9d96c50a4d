"""DuckDB: runs the text of a bound query over our scans, and tells its errors as ours."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import field
from functools import cache
from queue import SimpleQueue
from typing import Any, Final

import duckdb
import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.tree import Null
from merganser.lookup.asked import looked_up
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.hidden import with_values_under_nulls
from merganser.sql.query.bound import BoundQuery, Reference
from merganser.sql.query.casts import FAILED, MACROS
from merganser.sql.query.json_functions import JSON_MACROS
from merganser.sql.query.kinds import ON_SPARK, Interval, is_fine
from merganser.sql.query.texts import macros
from merganser.sql.query.views import Views
from merganser.values import dataclass

_BATCH: Final = 65_536
_CANDIDATES: Final = re.compile(r"\n.*", re.DOTALL)
_BOUNDED: Final = (2, 0, 1)
"""Oldest version of DuckDB known to drop cached footers of files if memory is short. They halve the time to plan."""

_NOT_IN_RANGE: Final = re.compile(
    r"Type \w+ with value (\S+) can't be cast because the value is out of range for the destination type "
)
_TOO_LARGE: Final = re.compile(r"Overflow in \w+ of (?:INT128|HUGEINT|DECIMAL)\b")
"""Messages that show the digits of a DECIMAL, or a step of a computation, in place of the value."""
_NAMES: Final = {"INT8": "TINYINT", "INT16": "SMALLINT", "INT32": "INT", "INT64": "BIGINT"}
_TYPES: Final = re.compile(rf"(?<=\btype )({'|'.join(_NAMES)})\b")

_INTERRUPT_SECONDS: Final = 0.05
"""Seconds between two interrupts of a query that is to stop: DuckDB forgets one that comes between two of its steps."""

_OPEN = threading.Lock()
_OF_FILES: Final = (duckdb.IOException, duckdb.InvalidInputException)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", duckdb.__version__)[:3])


@cache
def _root() -> duckdb.DuckDBPyConnection:
    """The database of the process: it holds the macros and no rows."""
    spill = os.path.join(tempfile.gettempdir(), f"merganser-sql-{os.getpid()}")  # DuckDB makes it when it needs it
    root = duckdb.connect(":memory:", config={"temp_directory": spill})
    if _version() >= _BOUNDED:
        root.execute("SET GLOBAL parquet_metadata_cache = true")
    for macro in (*MACROS, *macros(), *JSON_MACROS):
        root.execute(macro)
    return root


def opened() -> duckdb.DuckDBPyConnection:
    """Return a new connection to the database of the process."""
    with _OPEN:
        return _root().cursor()


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


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take.

    Attributes:
        seconds: after which it is stopped; None: it may run as long as it takes.
        memory: bytes that the queries of this process may hold together, the others being on disk; None: 80 % of the
            machine's.
    """

    seconds: float | None = None
    memory: int | None = None


NO_LIMITS: Final = Limits()


@dataclass
class Running:
    """The query that runs, if there is one; `stop`, called from another thread, ends it.

    Attributes:
        stopped: is done when the query is to end.
    """

    stopped: Future[None] | None = None

    def stop(self) -> None:
        """End the query."""
        stopped = self.stopped
        if stopped is not None:
            with suppress(InvalidStateError):  # it was stopped before
                stopped.set_result(None)


@dataclass
class _Ends:
    """When a query has to end.

    Attributes:
        limit: seconds that the query may take; None: as long as it takes.
        stopped: is done when somebody stops the query.
        at: the time of `time.monotonic` at which `limit` is over.
    """

    limit: float | None
    stopped: Future[None] = field(default_factory=Future)
    at: float | None = None

    def __post_init__(self) -> None:
        self.at = None if self.limit is None else time.monotonic() + self.limit

    def left(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    def check(self) -> None:
        """Raise InvalidInputError if the query has to end now."""
        if self.stopped.done():
            raise InvalidInputError("the query was stopped.")
        if self.limit is not None and not self.left():
            raise InvalidInputError(f"the query was stopped after {self.limit:g} s, the limit of 'sql.timeout'.")


def run(bound: BoundQuery, limits: Limits = NO_LIMITS, *, running: Running | None = None) -> Batches:
    """Run a query, and return its rows as they are computed.

    Args:
        limits: what it may take.
        running: is told how to stop the query.

    Raises:
        InvalidInputError: a value overflows, does not cast, or a division by zero; or the query was stopped.
    """
    schema = pa.schema([pa.field(n, _arrow(k)) for n, k in zip(bound.names, bound.types, strict=True)])
    alone = bound.plain is not None and (limits.seconds is None or any(is_fine(kind) for kind in bound.types))

    def batches() -> Iterator[pa.RecordBatch]:
        ends = _Ends(limits.seconds)
        if running is not None:
            running.stopped = ends.stopped
        try:
            yield from _read(bound, schema, ends) if alone else _conformed_all(bound, schema, limits, ends)
        finally:
            if running is not None:
                running.stopped = None

    return Batches(schema, batches())


def _conformed_all(bound: BoundQuery, schema: pa.Schema, limits: Limits, ends: _Ends) -> Iterator[pa.RecordBatch]:
    """Yield what DuckDB computes, from files that it reads itself; from our readers if it cannot read one."""
    scans = [rows_of(reference) for reference in bound.references]
    begun = False
    try:
        for batch in _computed(bound, scans, limits, ends, plain=True):
            begun = True
            yield _conformed(batch.columns, schema)
    except _FileError as error:
        if begun:
            raise told(error.cause) from error.cause
        # Our reader says what is wrong with the file, or reads it.
        for batch in _computed(bound, scans, limits, ends, plain=False):
            yield _conformed(batch.columns, schema)


class _FileError(Exception):
    """DuckDB could not read a file."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _computed(
    bound: BoundQuery, scans: Sequence[Any], limits: Limits, ends: _Ends, *, plain: bool
) -> Iterator[pa.RecordBatch]:
    """Yield what a query returns, as DuckDB has it.

    DuckDB runs in a thread of its own, for which this one waits. If it ran here, Ctrl-C would raise RuntimeError in
    DuckDB, which then waits for its threads, and these do not stop before `interrupt` tells them.

    Args:
        scans: the rows of each reference.
        plain: DuckDB may read files.

    Raises:
        InvalidInputError: among others, if the query has to end.
        _FileError: it could not read one.
    """
    connection = opened()
    rows = _rows(connection, bound, scans, limits, plain=plain)
    steps: SimpleQueue[Future[Any] | None] = SimpleQueue()
    step: Future[Any] | None = None
    try:
        threading.Thread(target=_take, args=(rows, steps), name="merganser-query", daemon=True).start()
        while True:
            step = Future()
            steps.put(step)
            while not step.done():
                ends.check()
                wait((step, ends.stopped), ends.left(), FIRST_COMPLETED)
            if (batch := step.result()) is None:
                return
            yield batch
    finally:
        steps.put(None)
        while step is not None and not (step.done() or step.cancel()):
            with suppress(KeyboardInterrupt):  # pressed again: the query would go on in its thread
                connection.interrupt()
                wait((step,), _INTERRUPT_SECONDS)
        rows.close()
        connection.close()


def _take(rows: Iterator[Any], steps: SimpleQueue[Future[Any] | None]) -> None:
    """Set each step to the next element, or None behind the last one."""
    while (step := steps.get()) is not None:
        if step.set_running_or_notify_cancel():
            try:
                step.set_result(next(rows, None))
            except BaseException as error:
                step.set_exception(error)


def _rows(
    connection: duckdb.DuckDBPyConnection, bound: BoundQuery, scans: Sequence[Any], limits: Limits, *, plain: bool
) -> Generator[pa.RecordBatch]:
    """Yield what `_computed` does."""
    views = Views(connection, plain=plain, joined=len(scans) > 1)
    try:
        if limits.memory is not None:
            connection.execute(f"SET memory_limit = '{limits.memory} bytes'")
        else:
            connection.execute("RESET memory_limit")  # another query may have set it, and it is one for the process
        connection.execute(f"SET TimeZone = '{_zone(bound.setting.zone)}'")
        for reference, scan in zip(bound.references, scans, strict=True):
            views.show(reference.view, scan)
        yield from connection.sql(bound.text).to_arrow_reader(_BATCH)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        of_scan = next((scan.error for scan in views.read if scan.error is not None), None)
        if of_scan is None and views.of_files and isinstance(error, _OF_FILES) and ".parquet" in str(error):
            raise _FileError(error) from error
        raise (of_scan or told(error)) from error


def _zone(zone: str | None) -> str:
    """Return the name that DuckDB has for a time zone; None: UTC."""
    return "UTC" if zone is None else f"GMT{zone}" if zone[0] in "+-" else zone


def _arrow(kind: t.DataType) -> pa.DataType:
    match kind:
        case Null():
            return pa.null()
        case Interval():
            return pa.duration("us")
        case t.Array():
            return pa.list_(pa.field("element", _arrow(kind.element), nullable=kind.element.nullable))
        case t.Map():
            key = pa.int32() if isinstance(kind.key, Null) else _arrow(kind.key)  # Arrow has no keys without a type
            return pa.map_(key, pa.field("value", _arrow(kind.value), nullable=kind.value.nullable))
        case t.Row():
            return pa.struct([pa.field(f.name, _arrow(f.type), nullable=f.type.nullable) for f in kind.fields])
    return arrow_type(kind)


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
    if not _is_rebuilt(kind):
        return column.cast(kind)
    return with_values_under_nulls(pa.chunked_array([_rebuilt(column, kind)])).chunk(0)


def _is_rebuilt(kind: pa.DataType) -> bool:
    """Return whether Arrow may refuse to cast what DuckDB gives to a type.

    Parts that are only NULL have no type, and DuckDB has them as INTEGER. The fields of a row that is null are null
    there, also those that are NOT NULL.
    """
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not all(field.nullable for field in kind)):
        return True
    return any(_is_rebuilt(kind.field(i).type) for i in range(kind.num_fields))


def _rebuilt(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _is_rebuilt(kind):
        return column.cast(kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(column))
    if column.offset:
        column = pa.concat_arrays([column])
    if pa.types.is_struct(kind):
        parts = [_rebuilt(column.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    mask = column.is_null()
    if pa.types.is_map(kind):
        keys, items = _rebuilt(column.keys, kind.key_type), _rebuilt(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(column.offsets, _rebuilt(column.values, kind.value_type), type=kind, mask=mask)


def rows_of(reference: Reference) -> Any:
    """Return the rows that a reference needs, with `schema` and `to_batches`: looked up by key, or scanned for."""
    source, where = reference.source, reference.where
    columns = reference.columns or [source.fields[0].name]
    found = looked_up(source.lookup, source.key, source.fields, columns, where, reference.limit)
    return source.open(columns, where, reference.limit) if found is None else Held(found)


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


def _read(bound: BoundQuery, schema: pa.Schema, ends: _Ends) -> Iterator[pa.RecordBatch]:
    """Yield columns of a table as they are, without DuckDB. It stops between batches."""
    for batch in rows_of(bound.references[0]).to_batches():
        ends.check()
        yield _conformed([batch.column(name) for name in bound.plain or ()], schema)


def _no_moment(found: re.Match[str]) -> str:
    return f"'{found[2]}' is no {found[1].upper()}"


def told(error: Exception) -> Exception:
    """Return an error of DuckDB as one of ours, without its own advice."""
    text = _CANDIDATES.sub("", str(error)).strip()
    text = re.sub(r"^[A-Za-z ]+ Error: ", "", text)
    text = re.sub(rf"^Could not convert string '{FAILED}(.*)' to BOOL$", r"\1", text)
    if (found := re.search(r'column "([^"]+)" must appear in the GROUP BY clause', str(error))) is not None:
        return InvalidInputError(
            f"column '{found[1]}' is neither in GROUP BY nor in an aggregate. Add it to GROUP BY, or use "
            f"any_value({found[1]}).",
            column=found[1],
        )
    if text.startswith("Max expression depth limit"):
        return InvalidInputError("cannot run the query: an expression is nested too deeply. Divide it.")
    if _TOO_LARGE.search(text):
        return InvalidInputError("cannot run the query: overflow. The result has more than the 38 digits of a DECIMAL.")
    text = _TYPES.sub(lambda found: _NAMES[found[1]], text)
    text = re.sub(r" when casting from source column .*", "", text)
    text = _NOT_IN_RANGE.sub(r"\1 is no ", text)
    text = re.sub(r'^(date|timestamp|time) field value out of range: "([^"]*)".*$', _no_moment, text)
    if text.endswith(ON_SPARK):
        return UnsupportedError(text)
    if isinstance(error, duckdb.NotImplementedException):
        return UnsupportedError(f"cannot run the query in this process: {text} Run the statement on Spark.")
    if "Overflow" in text or "out of range" in text.lower():
        return InvalidInputError(f"cannot run the query: overflow. {text}")
    return InvalidInputError(f"cannot run the query: {text}")
