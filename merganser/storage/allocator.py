"""The memory that Arrow's windows live in, kept by the process between them (docs/decisions/0008).

A merge allocates and frees windows of some tens of megabytes. Arrow's default allocator gives such memory back to the
system at once, and faults it in again for the next window; the C library does so too whenever more than a few megabytes
are free at the end of its heap. Either costs more than what is done with the rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from typing import Final

import pyarrow as pa

_TRIM_THRESHOLD: Final = (-1, 64 * 1024 * 1024)
"""glibc: the number of the parameter; so much may be free at the end of a heap before it is given back."""

_MMAP_THRESHOLD: Final = (-3, 32 * 1024 * 1024)
"""glibc: pieces from this size on are mapped one by one, and given back when freed. More it does not take."""


@functools.cache
def choose_allocator() -> None:
    """Let Arrow allocate through the C library, and let that keep what a window frees, unless the user chose otherwise.

    The first call in a process decides, and later ones do nothing: what the user sets afterwards stays.

    `ARROW_DEFAULT_MEMORY_POOL` is a choice of the one; variables `MALLOC_*`, and `glibc.malloc` in `GLIBC_TUNABLES`,
    are choices of the other.
    """
    glibc = platform.libc_ver()[0] == "glibc"
    if not glibc or "ARROW_DEFAULT_MEMORY_POOL" in os.environ or pa.default_memory_pool().backend_name != "mimalloc":
        return
    pa.set_memory_pool(pa.system_memory_pool())
    if any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    with contextlib.suppress(AttributeError, OSError):  # a C library that cannot be asked keeps its own ways
        library = ctypes.CDLL(None)
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(*parameter)
