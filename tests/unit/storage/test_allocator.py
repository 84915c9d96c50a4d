"""What Arrow frees stays with the process for the next window, unless the user chose otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")

# Eight pieces of 2 MB, as the columns of a window, filled and freed: the pages that the process still holds then. Few
# enough that what importing left free does not bring all to what is given back at once (64 MB).
WINDOW = """
from pathlib import Path
import mmap
import merganser.storage.env  # imported when a table is first touched
import numpy as np
import pyarrow as pa

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE // 4096

def window():
    held = [pa.allocate_buffer(2 << 20) for _ in range(8)]
    for piece in held:
        np.frombuffer(piece, np.uint8)[::4096] = 1
    return pages()

before = pages()
assert window() - before > 4_000
print(pa.default_memory_pool().backend_name, pages() - before)
"""


def held(**variables: str) -> tuple[str, int]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "ARROW_DEFAULT_MEMORY_POOL"}
    printed = subprocess.run(
        [sys.executable, "-c", WINDOW], env=clean | variables, capture_output=True, text=True, check=True
    ).stdout.split()
    return printed[0], int(printed[1])


def test_the_memory_of_a_window_stays_for_the_next() -> None:
    pool, pages = held()
    assert pool == "system"
    assert pages > 3_000  # of 4,096


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_a_user_who_tells_the_c_library_what_to_keep_is_not_overruled(variable: str) -> None:
    pool, pages = held(**{variable: "131072"})
    assert pool == "system"
    assert pages < 1_000


def test_a_user_who_chooses_the_pool_is_not_overruled() -> None:
    assert held(ARROW_DEFAULT_MEMORY_POOL="mimalloc")[0] == "mimalloc"
