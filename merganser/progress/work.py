"""Progress of long work: shown while a person watches, silent otherwise.

Watched is a process whose standard error is a terminal. Work shorter than a second shows nothing; of nested work
only the outermost is shown, and it leaves no line behind. `MERGANSER_PROGRESS=0` turns it off. Tasks of an engine run
without a terminal, so the same code is silent there.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from merganser.progress.bar import Bar

SHOWN_AFTER_SECONDS: Final = 1.0
_OFF: Final = ("0", "off", "false", "no")


class Work(Protocol):
    """One piece of long work."""

    def advance(self, size_bytes: int, steps: int = 1) -> None:
        """Say that so many more bytes and steps are done. Any thread may."""


class Progress:
    """Where progress is shown.

    Args:
        stream: what is written to; None: standard error, when it is a terminal.
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
        stream = self._watched()
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

    def _watched(self) -> IO[str] | None:
        if os.environ.get("MERGANSER_PROGRESS", "").strip().lower() in _OFF:
            return None
        if self._stream is not None:
            return self._stream
        stream = sys.stderr
        try:
            watched = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        except ValueError:  # closed
            return None
        return stream if watched else None


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
                self._bar = Bar(self._stream, self._title, self._total, self._steps)
                self._draw()

    def stop(self) -> None:
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _draw(self) -> None:
        if self._bar is not None:
            self._bar.update(self._done_bytes, self._done_steps)
