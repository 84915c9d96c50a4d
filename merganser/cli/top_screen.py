"""Runs the page of `merganser top`: refreshes in a thread of its own, and draws and hears keys in this one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from merganser.catalogs.catalog import Catalog
from merganser.cli import render
from merganser.cli.target import DEFAULT_WAREHOUSE, catalog_of, is_path, table_of
from merganser.cli.top_page import table_page, warehouse_page
from merganser.cli.top_watch import TableWatch, WarehouseWatch, WatchedTable
from merganser.errors import InvalidInputError, NotFoundError
from merganser.handle.table import Table

_DRAWN_SECONDS: Final = 0.5
"""Seconds after which the page is drawn again: ages go on between refreshes."""
_METASTORES: Final = ("jdbc:", "http:", "https:")
"""How addresses begin that are those of catalogs, and no paths."""
Draw = Callable[[int | None, int | None], list[Text]]
"""Returns the page for a width and a height."""


def show(
    target: str | None, warehouse: str | None, store: Sequence[str] | None, *, interval: float, once: bool
) -> None:
    """Show a table or a warehouse until the reader leaves.

    Args:
        target: as a user names it; None: the warehouse.
        warehouse, store: as for other commands.
        interval: seconds between two refreshes.
        once: print one state, and return.
    """
    found = _found(target, warehouse, store)
    console = render.stdout()
    if isinstance(found, Table):
        env, name = found.env, found.name
        of_table = TableWatch(WatchedTable(name, lambda: found))

        def draw(width: int | None, height: int | None) -> list[Text]:
            return table_page(of_table, env.now_ms(), width, height)

        refresh: Callable[[], None] = lambda: of_table.refresh(env.seconds())  # noqa: E731
    else:
        env, name = found.env, found.warehouse
        of_all = WarehouseWatch(lambda: _names(found), lambda table: _table(found, table), env)
        every = once or not console.is_terminal

        def draw(width: int | None, height: int | None) -> list[Text]:
            return warehouse_page(of_all, name, env.now_ms(), width, height)

        refresh = lambda: of_all.refresh(env.seconds(), every=every)  # noqa: E731
    if once or not console.is_terminal:
        _print(console, draw, refresh, interval, once=once)
    else:
        _watch(console, draw, refresh, interval)


def _found(target: str | None, warehouse: str | None, store: Sequence[str] | None) -> Table | Catalog:
    if target is None:
        return catalog_of(warehouse, store)
    metastore = target.startswith(_METASTORES)
    if not metastore and not is_path(target) and "." in target:
        return table_of(target, warehouse, store)
    if not metastore and is_path(target):
        with contextlib.suppress(NotFoundError):
            return table_of(target, warehouse, store)
    found = catalog_of(target, store)
    if not found.list_databases():
        raise InvalidInputError(
            f"'{target}' is neither a table nor a warehouse with databases. Give database.table, the path of a table, "
            f"or a warehouse; without an argument, the page shows --warehouse, by default ./{DEFAULT_WAREHOUSE}."
        )
    return found


def _names(catalog: Catalog) -> list[str]:
    return [f"{database}.{table}" for database in catalog.list_databases() for table in catalog.list_tables(database)]


def _table(catalog: Catalog, name: str) -> Table:
    found = catalog.table(name)
    assert isinstance(found, Table)  # names of system tables are in no listing
    return found


def _print(console: Console, draw: Draw, refresh: Callable[[], None], interval: float, *, once: bool) -> None:
    """Print the page as plain lines, again and again unless once."""
    pause = threading.Event()
    while True:
        refresh()
        for line in draw(console.width if console.is_terminal else None, None):
            render.line(console, line)
        if once:
            return
        console.print()
        sys.stdout.flush()
        pause.wait(interval)


def _watch(console: Console, draw: Draw, refresh: Callable[[], None], interval: float) -> None:
    """Draw the page on a terminal until q, Ctrl-C or the end of the terminal."""
    over, known, failed = threading.Event(), threading.Event(), list[BaseException]()

    def refreshing() -> None:
        try:
            while not over.is_set():
                refresh()
                known.set()
                over.wait(interval)
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=refreshing, name="merganser-top", daemon=True)
    try:
        with _hung_up(), _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
            worker.start()
            while not failed:
                hint = render.dim("q: quit" if known.is_set() else "reading ...  q: quit")
                page = draw(console.width, console.height - 1)
                page += [Text("")] * (console.height - 1 - len(page))
                live.update(Group(*page, hint), refresh=True)
                if key(_DRAWN_SECONDS) in ("q", "Q", ""):
                    break
    except OSError:  # the terminal was closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        over.set()
    if failed:
        raise failed[0]


@contextlib.contextmanager
def _hung_up() -> Iterator[None]:
    """Leave as after Ctrl-C when the terminal is closed; what `nohup` starts goes on."""
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str | None]]:
    """Give a function that waits for a key for some seconds: None if there was none, "" if the terminal ended."""
    if not sys.stdin.isatty():
        pause = threading.Event()

        def none(seconds: float) -> None:
            pause.wait(seconds)

        yield none
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def key(seconds: float) -> str | None:
        return os.read(number, 1).decode("latin-1") if select.select([number], [], [], seconds)[0] else None

    tty.setcbreak(number)
    try:
        yield key
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(number, termios.TCSADRAIN, before)
