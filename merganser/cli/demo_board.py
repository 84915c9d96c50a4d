"""What demos show while they run: a picture that moves on a terminal, elsewhere lines.

`merganser demo stream` shows a board of airlines.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from merganser.cli import render
from merganser.values import dataclass

_LINE_SECONDS: Final = 5.0
_BAR_WIDTH: Final = 24
_BARS_FROM: Final = 90


@dataclass(frozen=True, slots=True)
class Airline:
    """A row of the table of airlines.

    Attributes:
        flights, departed, arrived, cancelled: numbers of flights.
        arr_delay: minutes, of all that arrived.
    """

    carrier: str
    flights: int
    departed: int
    arrived: int
    cancelled: int
    arr_delay: int

    @property
    def changes(self) -> int:
        """Changes that made the row."""
        return self.flights + self.departed + self.arrived + self.cancelled


@dataclass(frozen=True, slots=True)
class Board:
    """What is shown at one moment.

    Attributes:
        airlines: as their table has them now.
        reached, total: changes that came through, and all.
        rate: changes per second, since the start.
        snapshots, seconds: how far the airlines are behind the flights.
    """

    airlines: Sequence[Airline]
    reached: int
    total: int
    rate: float
    snapshots: int
    seconds: float

    @property
    def line(self) -> str:
        """The whole in a line."""
        if not self.reached:
            return f"  0%  0 of {self.total:,} changes; the queries start"
        share = self.reached / self.total if self.total else 1.0
        behind = f"{render.counted(self.snapshots, 'snapshot')}, {self.seconds:.1f} s behind"
        lag = behind if self.snapshots else "up to date"
        return f"{share:>4.0%}  {self.reached:,} of {self.total:,} changes  {self.rate:,.0f}/s  {lag}"

    @property
    def is_last(self) -> bool:
        """Whether all changes came through."""
        return self.reached >= self.total

    def drawn(self, width: int) -> RenderableType:
        """Return the board for a terminal; numbers are never cut, so a narrow one has no bars.

        Args:
            width: columns of the terminal.
        """
        if not self.airlines:
            return Text(f"   {self.line}", style="bold")
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        names = ["", "flights", "departed", "arrived", "cancelled", "mean delay"]
        bars = width >= _BARS_FROM
        for name in names + [""] * bars:
            made.add_column(name, justify="right" if name else "left", no_wrap=True)
        rows = sorted(self.airlines, key=lambda one: one.flights, reverse=True)
        most = max((one.arrived for one in rows), default=0)
        for one in rows:
            mean = f"{one.arr_delay / one.arrived:.1f} min" if one.arrived else ""
            bar = [Text(render.bar(one.arrived, most=most, width=_BAR_WIDTH), style="cyan")] * bars
            counts = (render.count(n) for n in (one.flights, one.departed, one.arrived, one.cancelled))
            made.add_row(f"   {one.carrier}", *counts, mean, *bar)
        return Group(Text(f"   {self.line}", style="bold"), Text(""), made)


class Picture(Protocol):
    """What is shown at one moment."""

    @property
    def line(self) -> str:
        """The whole in a line."""

    @property
    def is_last(self) -> bool:
        """Whether no other follows."""

    def drawn(self, width: int) -> RenderableType:
        """Return it for a terminal of so many columns."""


class Shown(Protocol):
    """Where pictures are shown."""

    def show(self, picture: Picture) -> None:
        """Show a picture in place of the one before."""


@contextlib.contextmanager
def shown(console: Console) -> Iterator[Shown]:
    """Show pictures while inside; the last one stays."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield _Drawn(live)


@dataclass
class _Drawn:
    live: Live

    def show(self, picture: Picture) -> None:
        self.live.update(picture.drawn(self.live.console.width), refresh=True)


@dataclass
class _Lines:
    """A line every few seconds, and one at the end."""

    console: Console
    last: float = float("-inf")

    def show(self, picture: Picture) -> None:
        now = time.perf_counter()
        if now - self.last >= _LINE_SECONDS or picture.is_last:
            render.line(self.console, f"   {picture.line}")
            self.last = now
