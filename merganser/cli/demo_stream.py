"""`merganser demo stream`: change records of a year's flights feed a table, and its changelog feeds live aggregates.

    files of change records -> query 1 -> flights (changelog producer lookup) -> query 2 -> airlines (sums)

Each query keeps its progress in a checkpoint. So a run that is stopped or killed goes on where it was when the command
runs again, and the end is the same: each row and each number equals what pandas makes of the same data.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from merganser.cdc import DEAD_LETTERS
from merganser.cli import render
from merganser.cli.demo_board import Airline, Board, shown
from merganser.cli.demo_events import COLUMNS, DAMAGED, KEY, Events, events_of
from merganser.cli.demo_session import check_machine, command, data_directory, session
from merganser.errors import InvariantError
from merganser.handle.doors import catalog
from merganser.handle.table import Table
from merganser.progress.work import STREAMS
from merganser.values import dataclass

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

FOLDER: Final = "stream"
COUNTS: Final = ("flights", "departed", "arrived", "cancelled", "arr_delay")
"""Sums of the table of airlines; the first four add up to the number of changes that came through."""
CONSUMER: Final = "airlines"
_FILES_PER_BATCH: Final = 2
_LOOK_SECONDS: Final = 1.0
_STALLED_SECONDS: Final = 180.0
_RUN: Final = "run.json"


def run(directory: str, *, cores: int | None = None, days: int = 365) -> bool:
    """Run the demo, or go on with a run that was stopped; return whether it came to its end.

    Args:
        directory: the demo keeps everything in a folder of it. What a run left there that is complete, or is one of
            other days, is replaced.
        cores: cores of the Spark session; None: all.
        days: of the year 2013.

    Raises:
        NotFoundError: Java, Spark or the data are not installed; says what to install.
        InvariantError: a query failed or stands still, or a number differs from what pandas says.
    """
    data = data_directory()
    check_machine()
    return _Demo(render.stdout(), Path(directory), days, cores).run(data)


@dataclass
class _Demo:
    """One run of the command.

    Attributes:
        parent: the directory that was given.
    """

    console: Console
    parent: Path
    days: int
    cores: int | None
    tables: dict[str, Table] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """Where everything of this demo is."""
        return self.parent / FOLDER

    def run(self, data: Path) -> bool:
        """Run all steps."""
        render.line(self.console, render.bold("The flights of 2013 as a stream of changes, and what is known of them"))
        resumed = self._prepare()
        source = self._source(data)
        events = events_of(source, self.days)
        events.write(self._inbox)
        self._tables()
        before = _total(self._airlines())
        self._say(f"{events.count:,} changes in {events.files} files of Debezium's JSON, in the order of their times")
        if resumed:
            self._say(f"an earlier run was stopped after {before:,} of them; this one goes on from there")
        with session(self.directory / "spark.log", cores=self.cores) as spark:
            finished, seconds = self._stream(spark, events)
        reached = _total(self._airlines())
        if not finished:
            self._say(f"stopped after {reached:,} of {events.count:,} changes; nothing is lost")
            self._say(f"run `{self._command()}` again, and it goes on from there")
            return False
        if reached > before:
            rate = (reached - before) / seconds
            self._say(f"{reached - before:,} changes went through both tables in {seconds:.0f} s, {rate:,.0f} a second")
        self._check(source, events)
        self._mark(finished=True)
        shutil.rmtree(self._inbox)
        render.line(self.console, "")
        shown_at = os.path.relpath(self.directory / "warehouse")
        for what in ("read {} travel.airlines", "snapshots {} travel.flights", "consumers {} travel.flights"):
            render.line(self.console, f"   {command()} {what.format('-w ' + shown_at)}")
        return True

    # steps

    def _prepare(self) -> bool:
        """Make the folder; return whether a run is in it that was not finished."""
        known: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            known = json.loads((self.directory / _RUN).read_text())
        if known == {"days": self.days, "finished": False}:
            return True
        shutil.rmtree(self.directory, ignore_errors=True)
        self._inbox.mkdir(parents=True)
        self._mark(finished=False)
        return False

    def _source(self, data: Path) -> Path:
        source = self.directory / "flights.csv"
        part = source.with_suffix(".part")
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            part.write_bytes(archive.read("flights.csv"))
        os.replace(part, source)
        return source

    def _tables(self) -> None:
        warehouse = catalog(str(self.directory / "warehouse"))
        warehouse.create_database("travel", if_not_exists=True)
        lookup = {"changelog-producer": "lookup", "sequence.field": "at"}
        self.tables["flights"] = warehouse.create_table(
            "travel.flights", COLUMNS, primary_key=KEY, partition_by=["month"], options=lookup, if_not_exists=True
        )
        sums = {f"fields.{name}.aggregate-function": "sum" for name in COUNTS}
        self.tables["airlines"] = warehouse.create_table(
            "travel.airlines",
            {"carrier": "STRING", **dict.fromkeys(COUNTS, "BIGINT")},
            primary_key=["carrier"],
            options={"merge-engine": "aggregation", **sums},
            if_not_exists=True,
        )
        self.tables["letters"] = warehouse.create_table("travel.letters", DEAD_LETTERS, if_not_exists=True)

    def _queries(self, spark: SparkSession) -> tuple[StreamingQuery, StreamingQuery]:
        import merganser.spark as ms

        flights = self.tables["flights"]
        records = spark.readStream.option("maxFilesPerTrigger", _FILES_PER_BATCH).text(str(self._inbox.absolute()))
        changes = ms.cdc.parse(records, "debezium-json", flights, bad="keep")
        first = ms.write_stream(
            changes,
            flights,
            str((self.directory / "checkpoints" / "flights").absolute()),
            kinds="_row_kind",
            dead_letters=self.tables["letters"],
        )
        columns = ["carrier", "dep_delay", "arr_delay", "state"]
        following = flights.with_options({"consumer-id": CONSUMER})
        rows = ms.read_stream(spark, following, columns=columns)
        sums = rows.selectExpr(
            "_row_kind",
            "carrier",
            "1L AS flights",
            "CAST(dep_delay IS NOT NULL AS BIGINT) AS departed",
            "CAST(arr_delay IS NOT NULL AS BIGINT) AS arrived",
            "CAST(state = 'cancelled' AS BIGINT) AS cancelled",
            "CAST(coalesce(arr_delay, 0) AS BIGINT) AS arr_delay",
        )
        place = str((self.directory / "checkpoints" / "airlines").absolute())
        return first, ms.write_stream(sums, self.tables["airlines"], place, kinds="_row_kind")

    def _stream(self, spark: SparkSession, events: Events) -> tuple[bool, float]:
        """Run both queries until all changes came through, or a person stops them.

        Returns:
            Whether all came through, and seconds since the queries started.
        """
        STREAMS.pause()
        try:
            with _interrupts() as stopped, contextlib.ExitStack() as stack:
                started = time.perf_counter()
                queries = self._queries(spark)
                stack.callback(_stop, queries)
                board = stack.enter_context(shown(self.console))
                begun, changed = _total(self._airlines()), started
                last = begun
                while not stopped.is_set():
                    now = time.perf_counter()
                    airlines = self._airlines()
                    reached = _total(airlines)
                    changed, last = (now, reached) if reached != last else (changed, last)
                    behind = self._lag()
                    board.show(Board(airlines, reached, events.count, (reached - begun) / (now - started), *behind))
                    if reached >= events.count:
                        return True, now - started
                    self._check_alive(queries, now - changed)
                    stopped.wait(_LOOK_SECONDS)
                return False, time.perf_counter() - started
        finally:
            STREAMS.resume()

    def _check_alive(self, queries: tuple[StreamingQuery, ...], idle_seconds: float) -> None:
        """Refuse to wait for what does not come.

        Raises:
            InvariantError: a query failed, or nothing came through for minutes.
        """
        for query in queries:
            if not query.isActive:
                why = str(query.exception()).strip().splitlines()
                raise InvariantError(f"a query of the demo ended: {why[0] if why else 'no reason is known'}")
        if idle_seconds > _STALLED_SECONDS:
            raise InvariantError(f"the demo went wrong: no change came through for {idle_seconds:.0f} s.")

    def _airlines(self) -> list[Airline]:
        return [Airline(**row) for row in self.tables["airlines"].read().to_pylist()]

    def _lag(self) -> tuple[int, float]:
        """Return how many snapshots and seconds the airlines are behind the flights."""
        found = self.tables["flights"].system("consumers").to_pylist()
        return (found[0]["lag_snapshots"], found[0]["lag_seconds"]) if found else (0, 0.0)

    # the end

    def _check(self, source: Path, events: Events) -> None:
        """Compare both tables with what pandas makes of the data.

        Raises:
            InvariantError: a number differs.
        """
        import pandas as pd

        truth = pd.read_csv(source)
        date = pd.to_datetime(truth[["year", "month", "day"]])
        truth = truth[date < date.min() + pd.Timedelta(days=self.days)]
        self._same_flights(truth)
        known = truth["arr_delay"].notna()
        sums = truth.assign(
            flights=1, departed=truth["dep_time"].notna(), arrived=known, cancelled=truth["dep_time"].isna()
        )
        wanted = sums.groupby("carrier")[list(COUNTS)].sum().astype("int64")
        found = self.tables["airlines"].read().to_pandas().set_index("carrier").sort_index()[list(COUNTS)]
        _equal(found.index.tolist(), wanted.index.tolist(), "the airlines")
        for name in COUNTS:
            _equal(found[name].tolist(), wanted[name].tolist(), f"'{name}' of every airline")
        letters = self.tables["letters"].read(columns=["position"]).count()
        _equal(letters, events.files * DAMAGED, "damaged records")
        self._say(f"pandas says the same: {len(truth):,} flights, {wanted.size} sums of {len(wanted)} airlines")
        self._say(f"{letters} damaged records are in travel.letters, with their reasons and texts")

    def _same_flights(self, truth: pd.DataFrame) -> None:
        wanted = truth.assign(state="scheduled")
        wanted.loc[truth["dep_time"].notna(), "state"] = "departed"
        wanted.loc[truth["arr_delay"].notna(), "state"] = "arrived"
        wanted.loc[truth["dep_time"].isna(), "state"] = "cancelled"
        names = [name for name in COLUMNS if name != "at"]
        found = self.tables["flights"].read(columns=names).to_pandas()
        key = list(KEY)
        found, wanted = (frame[names].sort_values(key).reset_index(drop=True) for frame in (found, wanted))
        _equal(len(found), len(wanted), "flights")
        for name in names:
            missing = found[name].isna() & wanted[name].isna()
            _equal(int((missing | (found[name] == wanted[name])).sum()), len(wanted), f"equal values of '{name}'")

    # places and words

    @property
    def _inbox(self) -> Path:
        return self.directory / "inbox"

    def _mark(self, *, finished: bool) -> None:
        part = self.directory / f"{_RUN}.part"
        part.write_text(json.dumps({"days": self.days, "finished": finished}))
        os.replace(part, self.directory / _RUN)

    def _command(self) -> str:
        given = "" if self.parent == Path(".demo") else f" --directory {self.parent}"
        return f"{command()} demo stream{given}" + ("" if self.days == 365 else f" --days {self.days}")

    def _say(self, text: str) -> None:
        render.line(self.console, f"   {text}")


def _total(airlines: list[Airline]) -> int:
    return sum(airline.changes for airline in airlines)


def _equal(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise InvariantError(f"the demo went wrong: {what}: found {found!r:.300}, and pandas says {wanted!r:.300}.")


def _stop(queries: tuple[StreamingQuery, ...]) -> None:
    for query in queries:
        with contextlib.suppress(Exception):  # it has failed, and the caller says so
            query.stop()


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Let Ctrl-C set an event while inside; a second one interrupts."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(*_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    kept = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, kept)
