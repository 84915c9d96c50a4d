"""Settings of the whole process that make merganser faster. A library leaves them alone, so a program asks for them.

The command line, the server and Spark's Python workers are processes of their own, and ask. A program that embeds
merganser calls `merganser.tune_process()` if its process does little else.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from merganser.storage.allocator import choose_allocator

_collecting = threading.Lock()
_paused = 0
_was_collecting = False
_tuned = False


def tune_process() -> None:
    """Make merganser faster by settings of the whole process; other code in it has them, too. Later calls do nothing.

    * Arrow allocates through the C library, which keeps 64 MB of freed memory for the next use (only with glibc, and
      unless `ARROW_DEFAULT_MEMORY_POOL`, `MALLOC_*` or `GLIBC_TUNABLES` say otherwise).
    * Python's garbage collector pauses while the metadata of many files is read.

    Results do not depend on it. Without it merganser changes no setting of the process.
    """
    global _tuned
    if not _tuned:
        _tuned = True
        choose_allocator()


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Pause Python's cycle collector, if the process is tuned: for making very many objects that are all kept.

    Each of its rounds would walk over all of them and find nothing. Blocks may nest and run on several threads. The
    last to end turns it on again.
    """
    global _paused, _was_collecting
    if not _tuned:
        yield
        return
    with _collecting:
        if not _paused:
            _was_collecting = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _collecting:
            _paused -= 1
            if not _paused and _was_collecting:
                gc.enable()
