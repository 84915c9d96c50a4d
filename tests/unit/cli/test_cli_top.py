"""`merganser top`: what a refresh costs, what the page shows, and how it ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import select
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.cli.top_page import Column, table_lines, table_page, warehouse_page
from merganser.cli.top_watch import TableWatch, WarehouseWatch, WatchedTable
from tests.kit.builders import catalog_over, memory_with
from tests.kit.faulty import FaultyStorage
from tests.unit.cli.conftest import Run

_names = itertools.count()


class _World:
    """A warehouse whose requests are counted, and whose clock is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.storage = FaultyStorage(memory_with({}, f"top-{next(_names)}"))
        self.catalog = catalog_over(self.storage, clock=lambda: self.now)
        self.catalog.create_database("db")

    @property
    def now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    def table(self, name: str, **options: str) -> mg.Table:
        schema = "id BIGINT, n INT, PRIMARY KEY (id)"
        return self.catalog.create_table(f"db.{name}", schema, options={"bucket": "2", "write-only": "true", **options})

    def requests(self, work: Callable[[], object]) -> list[str]:
        """Return the last parts of the paths that work asks for."""
        before = len(self.storage.calls)
        work()
        return sorted(call.path.rpartition("/")[2] for call in self.storage.calls[before:])


def _texts(lines: Any) -> list[str]:
    return [" ".join(line.plain.split()) for line in lines]


def test_a_refresh_without_a_new_snapshot_asks_only_for_the_newest() -> None:
    world = _World()
    table = world.table("t")
    table.write([{"id": 1, "n": 1}])
    watch = TableWatch(WatchedTable("db.t", lambda: table))
    watch.refresh(0.0)
    asked = ["LATEST", "snapshot-1", "snapshot-2"]
    assert world.requests(lambda: watch.refresh(2.0)) == asked
    assert world.requests(lambda: watch.refresh(4.0)) == asked
    table.write([{"id": 2, "n": 1}])
    assert len(world.requests(lambda: watch.refresh(6.0))) < 25
    assert world.requests(lambda: watch.refresh(8.0)) == ["LATEST", "snapshot-2", "snapshot-3"]
    assert len(world.requests(lambda: watch.refresh(17.0))) > 3  # consumers, tags and branches change without snapshots


def test_a_warehouse_spreads_its_looks_and_prefers_tables_that_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merganser.cli.top_watch.LOOKS_MAX", 10)
    monkeypatch.setattr("merganser.cli.top_watch._ADVICE_MAX", 5)
    world = _World()
    tables = {f"db.t{i}": world.table(f"t{i}") for i in range(13)}
    opened: list[str] = []

    def open_(name: str) -> mg.Table:
        opened.append(name)
        return tables[name]

    watch = WarehouseWatch(lambda: list(tables), open_, world.catalog.env)
    watch.refresh(0.0)
    assert len(opened) == 10
    assert _texts(warehouse_page(watch, "w", world.now_ms, 80, 24))[0].startswith("w 10 of 13 tables")
    watch.refresh(2.0)
    assert len(opened) == len(tables)
    tables["db.t7"].write([{"id": 1, "n": 1}])
    watch.refresh(4.0)
    watch.refresh(6.0)  # by now all were looked at once more
    assert watch.by_activity[0].name == "db.t7"
    for at in (8.0, 10.0):
        watch.refresh(at)
        assert watch.tables["db.t7"].looked_at == at
    idle = world.requests(lambda: watch.refresh(12.0))
    assert len(idle) == 3 + 9 * 2  # tables without a snapshot take one request less
    assert set(idle) == {"LATEST", "snapshot", "snapshot-1", "snapshot-2"}
    fresh = WarehouseWatch(lambda: list(tables), open_, world.catalog.env)
    fresh.refresh(0.0, every=True)
    assert all(one.topics is not None for one in fresh.tables.values())


def test_a_warehouse_page_has_rates_of_the_last_minute_and_its_most_active_tables_first() -> None:
    world = _World()
    quiet, busy = world.table("quiet"), world.table("busy")
    quiet.write([{"id": 1, "n": 1}])
    world.now += timedelta(minutes=5)
    for start in (0, 600):
        busy.write([{"id": i, "n": 1} for i in range(start, start + 600)])
    busy.compact(full=True)
    watch = WarehouseWatch(lambda: ["db.quiet", "db.busy", "db.lost"], world.catalog.table, world.catalog.env)  # type: ignore[arg-type]
    watch.refresh(0.0, every=True)
    head, _, names, first, second, third = _texts(warehouse_page(watch, "w", world.now_ms, None, None))
    assert head.startswith("w 3 tables 20 rows/s 2.0 commits/min ")
    assert names == "table snapshot committed rows/s commits/min files size compactions health"
    assert first.startswith("db.busy 3 0 s 20 2.0 2 ")
    assert first.endswith(" 1 ok")
    assert second.startswith("db.quiet 1 5 min 0 0 1 ")
    assert third.startswith("db.lost never there is no table 'db.lost'.")
    world.now += timedelta(seconds=61)
    watch.refresh(2.0)
    assert " 0 rows/s 0 commits/min " in _texts(warehouse_page(watch, "w", world.now_ms, None, None))[0]


def test_a_table_page_has_commits_consumers_and_buckets() -> None:
    world = _World()
    table = world.table("t")
    table.write([{"id": i, "n": 1} for i in range(100)])
    world.now += timedelta(seconds=30)
    table.delete("id < 10")
    table.consumers.set("late <reader>", 1)
    table.tags.create("v1")
    watch = TableWatch(WatchedTable("db.t", lambda: table))
    watch.refresh(0.0)
    world.now += timedelta(seconds=2)
    lines = _texts(table_page(watch, world.now_ms, None, None))
    assert lines[0].startswith("db.t snapshot 2, 2 s ago 1.8 rows/s 2.0 commits/min ")
    assert lines[0].endswith(" 1 tag 0 branches")
    assert lines[2] == "id committed kind rows deleted files user"
    assert lines[3].startswith("2 2 s APPEND 0 10 +")
    assert lines[4].startswith("1 32 s APPEND 100 0 +2 ")
    assert "late <reader> 2 30.0 1" in lines
    assert any(line.startswith("bucket-0 2 2 ") for line in lines)
    table.rollback(snapshot=1)
    watch.refresh(4.0)
    assert "db.t snapshot 1," in _texts(table_page(watch, world.now_ms, None, None))[0]
    assert len(watch.last) == 1
    world.catalog.drop_table("db.t")
    watch.refresh(40.0)
    assert watch.of.problem is not None or watch.of.newest is None


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (24, "table committed"),
        (60, "table committed rows/s commits/min health"),
        (80, "table snapshot committed rows/s commits/min files size health"),
        (200, "table snapshot committed rows/s commits/min files size compactions health"),
    ],
)
def test_a_page_fits_its_terminal(width: int, headings: str) -> None:
    world = _World()
    table = world.table("a_table_with_a_rather_long_name_that_nobody_wants_to_type")
    table.write([{"id": i, "n": 1} for i in range(100)])
    table.consumers.set("a consumer with a rather long name", 1)
    all_ = WarehouseWatch(lambda: [table.name], lambda _: table, world.catalog.env)
    all_.refresh(0.0, every=True)
    one = TableWatch(WatchedTable(table.name, lambda: table))
    one.refresh(0.0)
    for lines in (warehouse_page(all_, "w", world.now_ms, width, 10), table_page(one, world.now_ms, width, 10)):
        assert max(line.cell_len for line in lines) <= width
        assert len(lines) <= 10
    page = _texts(warehouse_page(all_, "w", world.now_ms, width, 10))
    assert next(line for line in page if line.startswith("table")) == headings


def test_columns_are_cut_before_they_are_left_out() -> None:
    columns = (Column("name", 0, right=False, least=4), Column("n", 1), Column("more", 2))
    rows = [["abcdefgh", "12345", "x"]]
    assert table_lines(columns, rows, 21)[1].plain == "abcdefgh  12345     x"
    assert [line.plain for line in table_lines(columns, rows, 19)] == ["name        n  more", "abcde…  12345     x"]
    assert table_lines(columns, rows, 17)[1].plain == "abc…  12345     x"
    assert table_lines(columns, rows, 16)[1].plain == "abcdefgh  12345"
    assert table_lines(columns, rows, 3)[1].plain == "ab…"


def test_one_state_is_printed_for_scripts(run: Run, orders: mg.Table, tmp_path: Path) -> None:
    of_all = run("top", "--once")
    assert (of_all.code, of_all.err) == (0, "")
    assert "shop.orders" in of_all.out
    assert "\x1b" not in of_all.out
    assert "\nshop.orders " in run("top", str(tmp_path / "warehouse"), "--once").out
    for name in ("shop.orders", orders.path):
        assert "snapshot 2, " in run("top", name, "--once").out
    (tmp_path / "empty").mkdir()
    for wrong in ("nothing", str(tmp_path / "empty")):
        assert "is neither a table nor a warehouse with databases" in run("top", wrong, "--once").err
    assert run("top", "shop.order", "--once").code == 1
    assert "the option 'warehouse' is missing" in run("top", "http://127.0.0.1:1", "--once").err  # it is no path


class _Top:
    """`merganser top` in a pseudo terminal of 100 columns."""

    def __init__(self, orders: mg.Table, *arguments: str) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", COLUMNS="100", LINES="30")
            command = [sys.executable, "-m", "merganser", "top", *arguments, "--interval", "0.2"]
            os.execv(sys.executable, command)

    def until(self, text: str) -> str:
        seen, end = b"", time.monotonic() + 60
        while text.encode() not in seen and time.monotonic() < end:
            if select.select([self.terminal], [], [], 1)[0]:
                try:
                    seen += os.read(self.terminal, 65536)
                except OSError:
                    break
        assert text in seen.decode(errors="replace"), seen.decode(errors="replace")
        return seen.decode(errors="replace")

    def code(self) -> int:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    os.read(self.terminal, 65536)  # so that the process can write its last words
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it goes on")


def test_in_a_terminal_the_page_follows_a_writer_and_q_ends_it(orders: mg.Table) -> None:
    top = _Top(orders, orders.path)
    top.until("snapshot 2, ")
    orders.write([{"id": 9, "dt": "c", "note": None, "tags": None}])
    top.until("snapshot 3, ")
    os.write(top.terminal, b"q")
    assert top.code() == 0
    os.close(top.terminal)


@pytest.mark.parametrize("how", ["ctrl-c", "closed"])
def test_it_ends_with_ctrl_c_and_with_its_terminal(orders: mg.Table, how: str) -> None:
    top = _Top(orders, orders.path.rpartition("/shop.db/")[0])
    top.until("shop.orders")
    if how == "ctrl-c":
        os.write(top.terminal, b"\x03")
        assert top.code() == 0
        os.close(top.terminal)
        return
    os.close(top.terminal)
    end = time.monotonic() + 30
    while (found := os.waitpid(top.pid, os.WNOHANG))[0] == 0:
        assert time.monotonic() < end, "it goes on without a terminal"
        time.sleep(0.05)
    assert os.waitstatus_to_exitcode(found[1]) == 0
