"""Ctrl-C while a statement runs.

A query runs in native code, where Python's own handler of SIGINT waits until it returns. The signal therefore wakes a
thread, which cancels the query; Python raises KeyboardInterrupt as soon as its own code runs again.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stoppable(cancel: Callable[[], None]) -> Iterator[threading.Event]:
    """Call `cancel` on Ctrl-C while inside; the event tells whether it was."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    reads, writes = socket.socketpair()
    writes.setblocking(False)

    def watch() -> None:
        while signals := reads.recv(16):
            if signal.SIGINT in signals:
                stopped.set()
                cancel()

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield stopped
    finally:
        signal.set_wakeup_fd(before)
        writes.close()
        watcher.join()
        reads.close()
