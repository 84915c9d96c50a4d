"""All actions of one contender of `spark_peers.py`, in this process and its one warm session, local[2]."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .harness import Measures, bytes_written, files_under
from .processes import tree_cpu_seconds
from .spark_peers_formats import FORMATS, Format
from .spark_session import session

WRITE, UPSERTS, SMALL = "write", "upserts", "upsert of 1,000 rows"
SCAN_ALL, SCAN_TWO = "scan all", "scan 2 columns"
COMPACT = "compact full"
COMPACTED_ALL, COMPACTED_TWO = "scan compacted, all", "scan compacted, 2 columns"
VECTORS_WRITE, VECTORS_UPSERTS = "write, deletion vectors", "upserts, deletion vectors"
VECTORS_ALL, VECTORS_TWO = "scan deletion vectors, all", "scan deletion vectors, 2 columns"
VECTORS_COMPACT = "compact full, deletion vectors"
ACTIONS = (WRITE, UPSERTS, SCAN_ALL, SCAN_TWO, SMALL, COMPACT, COMPACTED_ALL, COMPACTED_TWO)
VECTOR_ACTIONS = (VECTORS_WRITE, VECTORS_UPSERTS, VECTORS_ALL, VECTORS_TWO, VECTORS_COMPACT)


@dataclass(frozen=True, slots=True)
class Input:
    """Where the rows of one size lie, as directories or files of Parquet."""

    base: str
    upserts: Sequence[str]
    small: str
    rows: int


def warm_up() -> None:
    """Do nothing: `run` warms its session up, once it knows the format."""


def run(
    contender: str,
    jars: Sequence[str],
    directory: str,
    columns: Mapping[str, str],
    two_columns: Sequence[str],
    warm: Mapping[str, Any],
    measured: Mapping[str, Any],
    driver_memory: str,
    with_vectors: bool,
) -> Callable[[], dict[str, Any]]:
    """Start a session, go through everything on the small tables, and return the same on the measured ones.

    Returns:
        A function that gives `actions` (name -> measures), `rows_seen` (table state -> count and sums) and `errors`
        (action -> what went wrong; the actions that build on it are left out).
    """
    home = Path(directory)
    home.mkdir(parents=True)
    table_format = FORMATS[contender](home / "warehouse", columns)
    extra = table_format.settings() | {"spark.sql.session.timeZone": "UTC"}
    if jars:
        extra["spark.jars"] = ",".join(jars)
    spark = session(driver_memory, home, extra)
    table_format.start(spark)

    def of(rows: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        tables = _Tables(spark, table_format, Input(**rows), prefix, two_columns)
        tables.go_through(with_vectors=with_vectors and table_format.has_vectors)
        return {"actions": tables.costs, "rows_seen": tables.rows_seen, "errors": tables.errors}

    of(warm, "warm")

    def action() -> dict[str, Any]:
        try:
            return of(measured, "t")
        finally:
            spark.stop()

    return action


@dataclass(slots=True)
class _Tables:
    """The tables of one size: what was done with them and what it cost."""

    spark: SparkSession
    format: Format
    rows: Input
    prefix: str
    two_columns: Sequence[str]
    costs: dict[str, Measures] = field(default_factory=dict)
    rows_seen: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def go_through(self, *, with_vectors: bool) -> None:
        """Do every action once, and count the rows between them."""
        with suppress(_StopError):
            self._plain()
        if with_vectors:
            with suppress(_StopError):
                self._with_vectors()

    def _plain(self) -> None:
        table = f"{self.prefix}_plain"
        self.format.create(self.spark, table, vectors=False)
        self._cost(WRITE, table, lambda: self.format.write(self._read(self.rows.base), table))
        self._see("base", table)
        self._cost(UPSERTS, table, lambda: self._upserts(table))
        self._see("merged", table)
        self._scan(SCAN_ALL, table, list(self.format.columns))
        self._scan(SCAN_TWO, table, self.two_columns)
        self._cost(SMALL, table, lambda: self.format.upsert(self._read(self.rows.small), table))
        self._see("merged and small", table)
        self._cost(COMPACT, table, lambda: self.format.compact(self.spark, table))
        self._see("merged and small, compacted", table)
        self._scan(COMPACTED_ALL, table, list(self.format.columns))
        self._scan(COMPACTED_TWO, table, self.two_columns)

    def _with_vectors(self) -> None:
        table = f"{self.prefix}_vectors"
        self.format.create(self.spark, table, vectors=True)
        self._cost(VECTORS_WRITE, table, lambda: self.format.write(self._read(self.rows.base), table))
        self._cost(VECTORS_UPSERTS, table, lambda: self._upserts(table))
        self._see("merged, deletion vectors", table)
        self._scan(VECTORS_ALL, table, list(self.format.columns))
        self._scan(VECTORS_TWO, table, self.two_columns)
        self._cost(VECTORS_COMPACT, table, lambda: self.format.compact(self.spark, table))
        self._see("merged, deletion vectors, compacted", table)

    def _read(self, parquet: str) -> DataFrame:
        return self.spark.read.parquet(parquet)

    def _upserts(self, table: str) -> None:
        for batch in self.rows.upserts:
            self.format.upsert(self._read(batch), table)

    def _scan(self, action: str, table: str, columns: Sequence[str]) -> None:
        self._cost(action, table, lambda: self.format.scan(self.format.read(self.spark, table, columns)))

    def _cost(self, action: str, table: str, work: Callable[[], object]) -> None:
        directory = self.format.path(table)
        before = files_under(directory)
        os.sync()
        cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
        try:
            work()
        except Exception as error:
            self.errors[action] = f"{type(error).__name__}: {str(error)[:600]}"
            raise _StopError from error
        seconds, cpu = time.perf_counter() - wall, tree_cpu_seconds(os.getpid()) - cpu
        after = files_under(directory)
        self.costs[action] = {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "rows": self.rows.rows,
            "written_bytes": bytes_written(before, after),
            "disk_bytes": sum(size for size, _ in after.values()),
        }
        print(f"{self.prefix}: {action}: {seconds:.2f} s", file=sys.stderr, flush=True)

    def _see(self, state: str, table: str) -> None:
        rows = self.format.read(self.spark, table, list(self.format.columns))
        found = rows.select(
            f.count("*"), f.sum("k"), f.sum("i32"), f.sum("price"), f.count("n64"), f.max("text"), f.max("at")
        ).first()
        assert found is not None
        self.rows_seen[state] = [str(value) for value in found]


class _StopError(Exception):
    """An action failed, and those after it need what it should have done."""
