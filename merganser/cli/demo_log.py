"""`merganser demo log`: flights arrive in a table with a log, and another process sees them milliseconds later.

    this process: commits, several a second ──► table, and its log in Kafka ──► the reader: a stream, in a process of
    its own, which says when it got which rows

Both read the same clock. In the end the reader's rows, the newest of each flight, are the table's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import multiprocessing
import os
import queue
import shutil
import signal
import time
import zipfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from merganser import changes
from merganser.cli import demo_broker, render
from merganser.cli.demo_board import shown
from merganser.cli.demo_events import COLUMNS, KEY, events_of
from merganser.cli.demo_session import command, data_directory
from merganser.errors import InvariantError, MerganserError, NotFoundError
from merganser.handle.doors import catalog
from merganser.handle.table import Table
from merganser.options.write import KAFKA_BOOTSTRAP_SERVERS, LOG_SYSTEM
from merganser.schema.lazy_polars import pl
from merganser.values import dataclass

FOLDER: Final = "log"
TABLE: Final = "travel.flights"
_COMMITS_PER_SECOND: Final = 10
_HOUR_MS: Final = 3_600_000
_STALLED_SECONDS: Final = 60.0
_FLOORS_MS: Final = (0, 2, 5, 10, 20, 50, 100)
_BAR_WIDTH: Final = 30


@dataclass(frozen=True, slots=True)
class Seen:
    """What the reader says of rows that it got.

    Attributes:
        at: when it had them, in seconds of `time.time`.
        until: the time of the newest of the changes, as the column `at` has it. All older ones have come, too.
    """

    at: float
    until: int


@dataclass(frozen=True)
class Delays:
    """What is shown at one moment.

    Attributes:
        reached, total: changes that the reader has got, and all.
        commits: how long each commit took, in milliseconds.
        waits: from the return of each commit to its rows at the reader, in milliseconds.
    """

    reached: int
    total: int
    commits: Sequence[float]
    waits: Sequence[float]

    @property
    def line(self) -> str:
        """The whole in a line."""
        share = self.reached / self.total if self.total else 1.0
        known = f"seen after {_quantile(self.waits, 0.5):.1f} ms, p99 {_quantile(self.waits, 0.99):.1f} ms"
        return f"{share:>4.0%}  {self.reached:,} of {self.total:,} changes  {known if self.waits else ''}".rstrip()

    @property
    def is_last(self) -> bool:
        """Whether all changes were seen."""
        return self.reached >= self.total

    def drawn(self, width: int) -> RenderableType:
        """Return the numbers and a chart for a terminal of `width` columns."""
        grid = Grid.grid(padding=(0, 2))
        for _ in range(5):
            grid.add_column(justify="right")
        grid.add_row("", "p50", "p90", "p99", "most")
        for name, values in (("   a commit took", self.commits), ("   its rows were seen after", self.waits)):
            shares = [_quantile(values, q) for q in (0.5, 0.9, 0.99, 1.0)]
            grid.add_row(Text(name, justify="left"), *(f"{one:.1f} ms" for one in shares if values))
        counts = [
            sum(low <= one < high for one in self.waits)
            for low, high in zip(_FLOORS_MS, (*_FLOORS_MS[1:], float("inf")), strict=True)
        ]
        bars = [
            Text.assemble(
                f"   {f'{low} ms':>7}  ",
                (render.bar(n, most=max(counts), width=min(_BAR_WIDTH, width - 24)), "cyan"),
                f" {n}" if n else "",
            )
            for low, n in zip(_FLOORS_MS, counts, strict=True)
        ]
        return Group(Text(f"   {self.line}", style="bold"), Text(""), grid, Text(""), *bars)


def run(directory: str, *, days: int, broker: str | None) -> None:
    """Run the demo.

    Args:
        directory: the demo keeps everything in a folder of it. A table of an earlier run is replaced.
        days: of the year 2013, from its first one.
        broker: its address, as `host:port`; None: one is fetched, started and stopped.

    Raises:
        NotFoundError: Java, Maven, the client or the data are not installed; says what to install.
        InvariantError: the reader's rows are not the table's.
    """
    data, folder, console = data_directory(), Path(directory) / FOLDER, render.stdout()
    if importlib.util.find_spec("confluent_kafka") is None:
        raise NotFoundError("the log needs the client of Kafka: pip install 'merganser[kafka]' installs it.")
    render.line(console, render.bold("The flights of 2013 in a table with a log, seen by another process"))
    with contextlib.ExitStack() as stack:
        if broker is None:
            with render.progress(console, "starting Kafka; the first time, Maven fetches it"):
                address = stack.enter_context(demo_broker.running(folder / "kafka")).address
            _say(console, f"Kafka {demo_broker.VERSION} answers at {address}")
        table = _table(folder / "warehouse", broker or address)
        if broker is None:
            stack.callback(table.alter, [changes.set_option(LOG_SYSTEM.key, "none")])  # writers need no broker then
        _Run(console, table, folder / "warehouse").go(_hours(data, folder, days))
    render.line(console, "")
    shown_at = os.path.relpath(folder / "warehouse")
    for what in ("read {} " + TABLE, *(["log show {} " + TABLE] if broker else [])):
        render.line(console, f"   {command()} {what.format('-w ' + shown_at)}")


def _table(warehouse: Path, address: str) -> Table:
    """Create the table. That of an earlier run is dropped before, with its topic if it is at the same broker."""
    if warehouse.exists():
        with contextlib.suppress(MerganserError):  # its broker is gone, or it is no warehouse
            catalog(str(warehouse)).drop_table(TABLE)
        shutil.rmtree(warehouse)
    made = catalog(str(warehouse))
    made.create_database("travel")
    options = {"bucket": "4", "sequence.field": "at", LOG_SYSTEM.key: "kafka", KAFKA_BOOTSTRAP_SERVERS.key: address}
    return made.create_table(TABLE, COLUMNS, primary_key=KEY, options=options)


def _hours(data: Path, folder: Path, days: int) -> list[pl.DataFrame]:
    """Return the changes of each hour of the first days of 2013."""
    source = folder / "flights.csv"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        source.write_bytes(archive.read("flights.csv"))
    rows = events_of(source, days).rows()
    return rows.with_columns(hour=pl.col("at") // _HOUR_MS).partition_by("hour", include_key=False)


@dataclass
class _Run:
    """The writer's side of a run.

    Attributes:
        commits, waits: see `Delays`.
        unseen: of each commit, the oldest first: the time of its newest change, how many it has, and when it returned.
        reached: changes that the reader has got.
    """

    console: Console
    table: Table
    warehouse: Path
    commits: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    unseen: deque[tuple[int, int, float]] = field(default_factory=deque)
    reached: int = 0

    def go(self, hours: Sequence[pl.DataFrame]) -> None:
        """Write all hours, show what the reader says, and compare."""
        total = sum(map(len, hours))
        _say(self.console, f"{total:,} changes, those of an hour of 2013 in each of {len(hours)} commits")
        with _reader(self.warehouse, int(hours[-1]["at"][-1])) as reader, shown(self.console) as board:
            reader.get()  # it has started
            for hour in hours:
                begun = time.time()
                self.table.write(hour)
                returned = time.time()
                self.commits.append((returned - begun) * 1000)
                self.unseen.append((int(hour["at"][-1]), len(hour), returned))
                next_at = begun + 1 / _COMMITS_PER_SECOND
                self._listen(reader, next_at)
                time.sleep(max(0.0, next_at - time.time()))
                board.show(Delays(self.reached, total, self.commits, self.waits))
            self._listen(reader, time.time() + _STALLED_SECONDS)
            board.show(Delays(self.reached, total, self.commits, self.waits))
            found = pl.read_ipc(io.BytesIO(reader.get()))
        wanted = self.table.read(columns=[*COLUMNS]).to_polars()
        if not found.sort(KEY).equals(wanted.sort(KEY)):
            raise InvariantError(f"the demo went wrong: the reader has other rows than {TABLE}.")
        _say(self.console, f"the reader has the {wanted.height:,} flights of the table, and every value is equal")

    def _listen(self, reader: _Reader, until: float) -> None:
        """Take what the reader says, until it has all commits or the moment is there."""
        while self.unseen and (wait := until - time.time()) > 0:
            seen = reader.get(wait)
            while seen is not None and self.unseen and self.unseen[0][0] <= seen.until:
                _, rows, returned = self.unseen.popleft()
                self.reached += rows
                self.waits.append(max(0.0, seen.at - returned) * 1000)


@dataclass(frozen=True)
class _Reader:
    """The reader, as the writer's process has it."""

    process: SpawnProcess
    told: Any

    def get(self, seconds: float | None = None) -> Any:
        """Return what it says next; None: nothing within the time.

        Args:
            seconds: None: as long as it takes.

        Raises:
            InvariantError: it has ended, or says nothing for a minute.
        """
        until = time.monotonic() + (_STALLED_SECONDS if seconds is None else seconds)
        while (wait := until - time.monotonic()) > 0:
            ended = not self.process.is_alive()  # asked first: it says all before it ends
            with contextlib.suppress(queue.Empty):
                return self.told.get(timeout=min(wait, 1.0))
            if ended:
                raise InvariantError("the demo went wrong: the process that reads the table has ended.")
        if seconds is None:
            raise InvariantError(f"the demo went wrong: the reader said nothing for {_STALLED_SECONDS:.0f} s.")
        return None


@contextlib.contextmanager
def _reader(warehouse: Path, until: int) -> Iterator[_Reader]:
    """Run the reader for the time of the block."""
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    process = context.Process(target=_follow, args=(str(warehouse), until, told), daemon=True)
    process.start()
    try:
        yield _Reader(process, told)
    finally:
        process.terminate()
        process.join()


def _follow(warehouse: str, until: int, told: Any) -> None:
    """Follow the table until the change of that time; say what comes, and at last the newest row of each flight."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process stops this one
    table = catalog(warehouse).table(TABLE)
    assert isinstance(table, Table)
    parts: list[pl.DataFrame] = []
    told.put("started")
    batch: Any
    with table.with_options({"continuous.discovery-interval": "10 s"}).stream() as stream:
        for batch in stream:
            at, newest = time.time(), pc.max(batch.column("at")).as_py()
            told.put(Seen(at, newest))
            parts.append(pl.DataFrame(pl.from_arrow(batch)).select(*COLUMNS))
            if newest >= until:
                break
    rows = pl.concat(parts).unique(KEY, keep="last", maintain_order=True)
    out = io.BytesIO()
    rows.write_ipc(out)
    told.put(out.getvalue())


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _say(console: Console, text: str) -> None:
    render.line(console, f"   {text}")
