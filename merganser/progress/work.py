"""Progress of long work: shown while a person watches, silent otherwise.

Watched is a process whose standard error is a terminal, and the kernel of a notebook. Work shorter than a second shows
nothing; of nested work only the outermost is shown, and it leaves no line behind. `MERGANSER_PROGRESS=0` turns it off.
Tasks of an engine run without a terminal, so the same code is silent there.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from merganser.progress.bar import Bar, Lines

SHOWN_AFTER_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)
_OFF: Final = ("0", "off", "false", "no")


class Work(Protocol):
    """One piece of long work."""

    def advance(self, size_bytes: int, steps: int = 1) -> None:
        """Say that so many more bytes and steps are done. Any thread may."""


class Progress:
    """Where progress is shown.

    Args:
        stream: what is written to; None: standard error, when it is a terminal or that of a notebook.
        shown_after: seconds that work takes before it is shown.
    """

    def __init__(self, stream: IO[str] | None = None, shown_after: float = SHOWN_AFTER_SECONDS) -> None:
        self._stream = stream
        self._shown_after = shown_after
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def work(self, title: str, *, size_bytes: int | None = None, steps: int | None = None) -> Iterator[Work]:
        """Show work while inside.

        Args:
            title: what is done, such as "compacting shop.orders".
            size_bytes: how many bytes it is in all; None: not known.
            steps: how many steps it is in all, such as buckets; None: not known.
        """
        stream = watched(self._stream)
        if stream is None or not self._busy.acquire(blocking=False):
            yield _SILENT
            return
        shown = _Shown(stream, title, size_bytes, steps)
        timer = threading.Timer(self._shown_after, shown.start)
        timer.daemon = True
        timer.start()
        try:
            yield shown
        finally:
            timer.cancel()
            shown.stop()
            self._busy.release()


def watched(stream: IO[str] | None = None) -> IO[str] | None:
    """Return what to show progress on: a stream that was given, else standard error if a person sees it; else None."""
    if os.environ.get("MERGANSER_PROGRESS", "").strip().lower() in _OFF:
        return None
    if stream is not None:
        return stream
    stream = sys.stderr
    if in_notebook():
        return stream
    try:
        seen = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return None
    return stream if seen else None


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class StreamLines:
    """One line for each stream that runs, rewritten as the stream goes on.

    Streams run beside what the process does, so the lines step aside for bars. They are not shown while Python waits
    for a person to type, nor in notebooks, whose cells end before the stream does.

    Args:
        stream: what is written to; None: standard error, when it is a terminal.
        every_seconds: how often a stream is asked what to show.
    """

    def __init__(self, stream: IO[str] | None = None, every_seconds: float = 1.0) -> None:
        self._stream = stream
        self._every_seconds = every_seconds
        self._lock = threading.RLock()
        self._pauses = 0
        self._said: dict[int, tuple[str, str]] = {}
        self._count = 0
        self._lines: Lines | None = None

    def follow(self, title: str, ask: Callable[[], str | None]) -> None:
        """Show a line about a stream until it ends; where nobody watches, do nothing.

        Args:
            title: such as the name of the table that is written.
            ask: returns what the stream does, and None when it has ended. It is called from a thread of its own. An
                error ends the line, and nothing else.
        """
        if watched(self._stream) is None or _asks_a_person():
            return
        threading.Thread(target=self._follow, args=(title, ask), name="merganser-line", daemon=True).start()

    def pause(self) -> None:
        """Take the lines off the screen."""
        with self._lock:
            self._pauses += 1
            self._draw()

    def resume(self) -> None:
        """Show the lines again, if nothing else has paused them, with what the streams say from now on."""
        with self._lock:
            self._pauses -= 1
            self._said.clear()

    def _follow(self, title: str, ask: Callable[[], str | None]) -> None:
        pause = threading.Event()
        with self._lock:
            self._count += 1
            number = self._count
        try:
            while (said := ask()) is not None:
                with self._lock:
                    self._said[number] = (title, said)
                    self._draw()
                pause.wait(self._every_seconds)
        except Exception as error:
            _log.debug("the line about the stream into '%s' ended: %s", title, error)
        finally:
            with self._lock:
                self._said.pop(number, None)
                self._draw()

    def _draw(self) -> None:
        stream = watched(self._stream)
        if stream is None or self._pauses or not self._said or _asks_a_person():
            self._close()
            return
        if self._lines is None:
            from merganser.progress.bar import Lines  # noqa: PLC0415 - wanted by long work alone

            self._lines = Lines(stream)
            atexit.register(self._close)
        self._lines.update(self._said)

    def _close(self) -> None:
        with self._lock:
            if self._lines is not None:
                self._lines.stop()
                self._lines = None
                atexit.unregister(self._close)


def _asks_a_person() -> bool:
    """Return whether Python reads what a person types: a line below the prompt would get in the way."""
    return hasattr(sys, "ps1") or in_notebook()


STREAMS: Final = StreamLines()
"""The lines of this process."""


class _Silent:
    def advance(self, size_bytes: int, steps: int = 1) -> None:
        pass


_SILENT: Final = _Silent()


class _Shown:
    """Counts from any thread; draws nothing before `start`."""

    def __init__(self, stream: IO[str], title: str, size_bytes: int | None, steps: int | None) -> None:
        self._stream, self._title = stream, title
        self._total, self._steps = size_bytes, steps
        self._done_bytes = self._done_steps = 0
        self._lock = threading.Lock()
        self._ended = False
        self._bar: Bar | None = None

    def advance(self, size_bytes: int, steps: int = 1) -> None:
        with self._lock:
            self._done_bytes += size_bytes
            self._done_steps += steps
            self._draw()

    def start(self) -> None:
        from merganser.progress.bar import Bar  # noqa: PLC0415 - wanted by long work alone

        with self._lock:
            if not self._ended:
                STREAMS.pause()
                self._bar = Bar(self._stream, self._title, self._total, self._steps)
                self._draw()

    def stop(self) -> None:
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
                STREAMS.resume()

    def _draw(self) -> None:
        if self._bar is not None:
            self._bar.update(self._done_bytes, self._done_steps)
