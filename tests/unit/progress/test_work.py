"""Progress is shown to a person who watches long work, and to nobody else."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from merganser.progress.work import Progress, StreamLines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def wait_for(self, text: str) -> None:
        """Return when it shows a text; a bar is drawn by a thread of its own, some time later."""
        deadline = time.monotonic() + 30
        while text not in self.getvalue():
            assert time.monotonic() < deadline, self.getvalue()
            time.sleep(0.02)


def test_long_work_shows_what_is_done_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    terminal = Terminal()
    with Progress(terminal, shown_after=0).work("compacting shop.orders", size_bytes=4 << 20, steps=8) as work:
        for _ in range(2):
            work.advance(1 << 20)
        for text in ("compacting shop.orders", "2.0 MB of 4.0 MB", "2 of 8"):
            terminal.wait_for(text)


def test_work_of_which_nothing_is_done_yet_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    with Progress(terminal, shown_after=0).work("compacting shop.orders", size_bytes=4 << 30, steps=1):
        terminal.wait_for("0 bytes of 4.0 GB 0 of 1 0:00:01 so far")


def test_work_of_unknown_size_is_counted_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    terminal = Terminal()
    with Progress(terminal, shown_after=0).work("expiring snapshots of shop.orders", steps=8) as work:
        for _ in range(2):
            work.advance(0)
        terminal.wait_for("2 of 8")
    assert "bytes" not in terminal.getvalue()


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
        terminal.wait_for("loading")
    assert "compacting" not in terminal.getvalue()
    with progress.work("again") as work:  # the next one is shown
        work.advance(1)
        terminal.wait_for("again")


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


# lines about streams


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def _line_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "merganser-line"]


def _wait_for_the_end_of_lines() -> None:
    for thread in _line_threads():
        thread.join(10)
    assert not _line_threads()


def test_a_line_says_what_the_stream_says_until_it_ends(terminal: Terminal) -> None:
    ended = threading.Event()
    StreamLines(terminal, 0.01).follow("shop.orders", lambda: None if ended.is_set() else "batch 7")
    terminal.wait_for("batch 7")
    ended.set()
    _wait_for_the_end_of_lines()
    assert "shop.orders" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # no line is left


def test_an_error_ends_the_line_alone(terminal: Terminal) -> None:
    def fails() -> str:
        raise RuntimeError("the session has stopped")

    StreamLines(terminal, 0.01).follow("shop.orders", fails)
    _wait_for_the_end_of_lines()
    assert terminal.getvalue() == ""


def test_a_prompt_is_left_alone(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    StreamLines(terminal, 0.01).follow("shop.orders", lambda: "batch 7")
    assert not _line_threads()


def test_nobody_is_asked_where_nobody_watches() -> None:
    StreamLines().follow("shop.orders", lambda: "batch 7")
    assert not _line_threads()


def test_lines_step_aside(terminal: Terminal) -> None:
    ended, lines = threading.Event(), StreamLines(terminal, 0.01)
    lines.pause()
    lines.follow("shop.orders", lambda: None if ended.is_set() else "batch 7")
    with Progress(Terminal(), shown_after=0).work("reading"):
        pass
    assert terminal.getvalue() == ""
    lines.resume()
    terminal.wait_for("batch 7")
    ended.set()
    _wait_for_the_end_of_lines()
