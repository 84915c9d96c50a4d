"""Bytes of memory as a file, for libraries that read files best."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile


@contextmanager
def scratch_file(data: bytes) -> Iterator[str]:
    """Give the path of a file of `data` that is gone afterwards; it lies in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("merganser"), "wb", buffering=0) as file:
            file.write(data)
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with NamedTemporaryFile(prefix="merganser-") as named:
            named.write(data)
            named.flush()
            yield named.name
