"""Access to a Spark session by public calls that Connect also has, and merganser's errors unwrapped."""

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import merganser
from merganser import errors
from merganser.errors import ExpiredError, InvalidInputError, MerganserError, UnsupportedError, a_type
from merganser.spark.types import version_of

if TYPE_CHECKING:
    from merganser.handle.table import Table
    from merganser.spark.pythons import TaskPython
    from merganser.storage.hdfs import HdfsStorage
    from merganser.write.job import Outcome

_BATCH_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
TASKS_PER_CORE: Final = 4
"""The largest number of tasks per core of one job."""
_PROBE_ROWS: Final = 1 << 16
_ANSWER_SECONDS: Final = 5
_OURS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, MerganserError)
}
_GONE: Final = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.?\s")
"""What Spark says of a file that it reads itself and does not find."""
_RAISED: Final = re.compile(rf"(?:^|: )(?:merganser\.errors\.)?({'|'.join(_OURS)}): (.*)$", re.MULTILINE)

_LOGS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where PySpark logs an error of a query when it makes the exception."""

_lock: Final = threading.Lock()
_cores: Final[weakref.WeakKeyDictionary[SparkSession, int]] = weakref.WeakKeyDictionary()
_changed_settings: Final[dict[tuple[int, str], tuple[int, str | None]]] = {}
"""Per session and setting: the number of `with` blocks that need it, and its value before the first of them."""


def opened(table: Table | str) -> Table:
    """Return the table that a call names: itself, or its path.

    Raises:
        NotFoundError: there is no table at the path.
        InvalidInputError: it is neither.
    """
    from merganser.handle.doors import table as table_at
    from merganser.handle.table import Table

    if isinstance(table, Table):
        return table
    if isinstance(table, str):
        return table_at(table)
    raise InvalidInputError(f"a table is named by a Table or its path, not by {a_type(table)}.")


def check_frame(df: Any, action: str, advice: str = "") -> None:
    """Check that rows are a DataFrame of Spark.

    Args:
        action: the start of the message.
        advice: what takes other rows.

    Raises:
        InvalidInputError: they are something else.
    """
    if not hasattr(df, "mapInArrow"):
        raise InvalidInputError(
            f"{action}: the rows are a {type(df).__module__}.{type(df).__qualname__}, and a Spark DataFrame is wanted. "
            f"Nothing was written or started.{advice and ' '}{advice}"
        )


def cores(spark: SparkSession) -> int:
    """Return how many tasks run side by side, about. Connect is asked once per session, by a job of the JVM."""
    known = _cores.get(spark)
    if known is None:
        if is_connect(spark):
            # A range is cut into as many partitions as the cluster has cores.
            parts = spark.range(0, _PROBE_ROWS).select(f.spark_partition_id().alias("part"))
            known = 1 + parts.agg(f.max("part")).collect()[0][0]
        else:
            known = spark.sparkContext.defaultParallelism
        _cores[spark] = known
    return known


def is_connect(spark: SparkSession) -> bool:
    """Return whether the session talks to a server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def may_answer(spark: SparkSession, storage: HdfsStorage) -> bool:
    """Return whether Spark's own client of HDFS may get an answer: it asks a host that is not there for minutes.

    Of a session on another machine, and of a name that its configuration explains, nothing is known here.
    """
    parts = urlsplit(storage.root)
    if is_connect(spark) or parts.port is None:
        return True
    with contextlib.suppress(OSError):
        socket.create_connection((parts.hostname or "", parts.port), _ANSWER_SECONDS).close()
        return True
    return False


def run_jobs(frame: DataFrame, job: Any) -> list[Outcome]:
    """Return the outcomes of a job over the partitions of a frame, those of successful attempts.

    Raises:
        MerganserError: the error that a task raised, with its class and text.
        UnsupportedError: the tasks have another version of merganser, or none.
    """
    from merganser.spark.jobs import OUTCOME_SCHEMA, SHIP, in_tasks

    with our_errors(frame.sparkSession), large_batches(frame.sparkSession):
        rows = in_tasks(frame, job, OUTCOME_SCHEMA).collect()
    outcomes: list[Outcome] = [pickle.loads(bytes(row[0])) for row in rows]
    for outcome in outcomes:
        if outcome.version != merganser.__version__:
            raise UnsupportedError(
                f"tasks run merganser {outcome.version}, and the driver {merganser.__version__}. Nothing is committed. "
                f"{SHIP}",
                version=outcome.version,
            )
    return outcomes


@contextlib.contextmanager
def with_setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Let a setting of the session have a value while inside.

    The first of several `with` blocks at a time sets it, and the last one sets it back.
    """
    place = id(spark), key
    with _lock:
        running, before = _changed_settings.get(place, (0, None))
        if not running:
            before = spark.conf.get(key, None)
            spark.conf.set(key, value)
        _changed_settings[place] = (running + 1, before)
    try:
        yield
    finally:
        with _lock:
            running, before = _changed_settings.pop(place)
            if running > 1:
                _changed_settings[place] = (running - 1, before)
            elif before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, before)


def large_batches(spark: SparkSession) -> contextlib.AbstractContextManager[None]:
    """Hand rows to tasks in large batches while inside.

    Where Spark also bounds batches by bytes (4.1), more rows go into one.
    """
    rows = 262_144 if version_of(spark.version) >= (4, 1) else 65_536
    return with_setting(spark, _BATCH_RECORDS, str(rows))


@contextlib.contextmanager
def our_errors(spark: SparkSession) -> Iterator[None]:
    """Raise merganser's own error instead of the error of Spark that wraps it.

    Args:
        spark: asked which Python its tasks run, if they lack a module.
    """
    from merganser.spark.pythons import ask_tasks

    try:
        yield
    except MerganserError:
        raise
    except Exception as error:
        found = unwrapped(str(error), partial(ask_tasks, spark))
        if found is None:
            raise
        raise found from error


def unwrapped(text: str, ask: Callable[[], TaskPython | None]) -> MerganserError | None:
    """Return merganser's error from the text of a Spark error, or None.

    The last line that begins with one of our classes counts, because a traceback ends with the raised error.

    Args:
        text: of Spark's error.
        ask: returns the Python of the tasks; called if they lack a module.
    """
    from merganser.spark.pythons import advice

    found = _RAISED.findall(text)
    if found:
        name, message = found[-1]
        return _OURS[name](message)
    if gone := _GONE.search(text):
        return ExpiredError(
            f"cannot read '{gone[1].removeprefix('file:')}': the file was there when the query was planned, and has "
            "been removed since, by expire, erase or remove_orphans. Nothing was committed. Run the statement again, "
            "which reads the newest snapshot.",
            path=gone[1],
        )
    if missing := re.search(r"ModuleNotFoundError: No module named '(\w+)|(PyArrow) .{0,20}must be installed", text):
        module = (missing[1] or missing[2]).lower()
        return UnsupportedError(f"tasks cannot import {module}. {advice(ask())}")
    return None


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging errors of this thread that answer a question, as ERROR with the stack of Java."""
    mine = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != mine

    logs = [PySparkLogger.getLogger(name) for name in _LOGS]
    for log in logs:
        log.addFilter(of_others)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(of_others)
