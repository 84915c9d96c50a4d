"""Ends of commands that would go on for ever: Ctrl-C, SIGTERM, and a reader of the output that goes away."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def until_stopped() -> Iterator[None]:
    """Run what is inside until it ends by itself or is asked to; then leave without an error."""
    over = threading.Event()
    before = signal.signal(signal.SIGTERM, _interrupt)
    watched = _pipe()
    if watched is not None:
        threading.Thread(target=_interrupt_when_closed, args=(watched, over), daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _pipe() -> int | None:
    """Return the descriptor of stdout if it is a pipe whose reader can go away, such as `| head`."""
    if not hasattr(select, "poll"):
        return None
    try:
        number = sys.stdout.fileno()
        return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None
    except (OSError, ValueError):  # it is closed, or no file
        return None


def _interrupt_when_closed(pipe: int, over: threading.Event) -> None:
    """Interrupt the command when nobody reads its output any more: it may have nothing to write for hours."""
    poll = select.poll()
    poll.register(pipe, 0)  # an error, which is always told
    while not over.is_set():
        if poll.poll(500) and not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            return
