"""What Arrow frees stays with the process for the next window, unless the user chose otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")

# Eight pieces of 2 MB, as the columns of a window, filled and freed twice: pages that the second round faults in anew.
# Few enough that what importing left free does not bring all to what is given back at once (64 MB).
ROUNDS = """
import resource
import merganser.storage.env  # imported when a table is first touched
import numpy as np
import pyarrow as pa

def window():
    held = [pa.allocate_buffer(2 << 20) for _ in range(8)]
    for piece in held:
        np.frombuffer(piece, np.uint8)[::4096] = 1

window()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
window()
print(pa.default_memory_pool().backend_name, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def rounds(**variables: str) -> tuple[str, int]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "ARROW_DEFAULT_MEMORY_POOL"}
    printed = subprocess.run(
        [sys.executable, "-c", ROUNDS], env=clean | variables, capture_output=True, text=True, check=True
    ).stdout.split()
    return printed[0], int(printed[1])


def test_the_next_window_finds_the_memory_of_the_last() -> None:
    assert rounds()[0] == "system"
    assert rounds()[1] < 3_000  # of 4,096


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_a_user_who_tells_the_c_library_what_to_keep_is_not_overruled(variable: str) -> None:
    pool, pages = rounds(**{variable: "131072"})
    assert pool == "system"
    assert pages > 4_000


def test_a_user_who_chooses_the_pool_is_not_overruled() -> None:
    assert rounds(ARROW_DEFAULT_MEMORY_POOL="mimalloc")[0] == "mimalloc"
