"""Progress is shown to a person who watches long work, and to nobody else."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from merganser.storage.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_what_is_done_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    terminal = Terminal()
    with Progress(terminal, shown_after=0).work("compacting shop.orders", size_bytes=4_000_000, steps=8) as work:
        for _ in range(2):
            work.advance(1_000_000)
        time.sleep(0.4)
    shown = terminal.getvalue()
    assert "compacting shop.orders" in shown
    assert "2.0/4.0 MB" in shown
    assert "2 of 8" in shown


def test_short_work_shows_nothing() -> None:
    terminal = Terminal()
    with Progress(terminal, shown_after=30).work("reading") as work:
        work.advance(1)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with Progress(shown_after=0).work("reading", size_bytes=1) as work:
        work.advance(1)
        time.sleep(0.1)
    assert pipe.getvalue() == ""


@pytest.mark.parametrize("value", ["0", "off", "FALSE"])
def test_a_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MERGANSER_PROGRESS", value)
    terminal = Terminal()
    with Progress(terminal, shown_after=0).work("reading") as work:
        work.advance(1)
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_of_nested_work_the_outermost_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    progress = Progress(terminal, shown_after=0)
    with progress.work("loading") as outer, progress.work("compacting") as inner:
        inner.advance(1)
        outer.advance(1)
        time.sleep(0.3)
    assert "loading" in terminal.getvalue()
    assert "compacting" not in terminal.getvalue()
    with progress.work("again") as work:  # the next one is shown
        work.advance(1)
        time.sleep(0.3)
    assert "again" in terminal.getvalue()


def test_threads_count_together() -> None:
    progress = Progress(Terminal(), shown_after=30)
    with progress.work("reading") as work:
        threads = [threading.Thread(target=lambda: [work.advance(3) for _ in range(1000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert work._done_bytes == 12_000  # type: ignore[attr-defined]
        assert work._done_steps == 4_000  # type: ignore[attr-defined]
