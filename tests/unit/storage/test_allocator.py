"""A library changes no setting of the process; a program that asks keeps what Arrow frees for the next window."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pyarrow as pa
import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told what to keep")

# Eight pieces of 2 MB, as the columns of a window, filled and freed: the pages that the process still holds then. Few
# enough that what importing left free does not bring all to what is given back at once (64 MB).
WINDOW = """
from pathlib import Path
import mmap
import merganser
import numpy as np
import pyarrow as pa

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE // 4096

def window():
    held = [pa.allocate_buffer(2 << 20) for _ in range(8)]
    for piece in held:
        np.frombuffer(piece, np.uint8)[::4096] = 1
    return pages()

merganser.tune_process()
before = pages()
assert window() - before > 4_000
print(pa.default_memory_pool().backend_name, pages() - before)
"""


USED = """
import gc, sys, tempfile
import merganser, pyarrow as pa
off = []
def watch(frame, event, what):
    if event == "c_call" and what in (gc.disable, gc.freeze):
        off.append(what)
sys.setprofile(watch)
catalog = merganser.catalog(tempfile.mkdtemp())
catalog.create_database("db")
table = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
table.write([{"k": 1}])
table.compact(full=True)
table.expire()
assert table.read().count() == 1 and table.lookup({"k": 1}).num_rows == 1
print(pa.default_memory_pool().backend_name, len(off))
merganser.tune_process()
merganser.catalog(catalog.warehouse).table("db.t").read().count()
print(pa.default_memory_pool().backend_name, len(off) > 0, gc.isenabled())
pa.set_memory_pool(pa.mimalloc_memory_pool())
merganser.tune_process()
print(pa.default_memory_pool().backend_name)
"""


def held(**variables: str) -> tuple[str, int]:
    pool, pages = printed_by(WINDOW, **variables)
    return pool, int(pages)


def printed_by(program: str, **variables: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "ARROW_DEFAULT_MEMORY_POOL"}
    return subprocess.run(
        [sys.executable, "-c", program], env=clean | variables, capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.skipif("mimalloc" not in pa.supported_memory_backends(), reason="the pool is chosen instead of mimalloc")
def test_no_setting_of_the_process_changes_unless_the_program_asks_for_it() -> None:
    assert printed_by(USED) == ["mimalloc", "0", "system", "True", "True", "mimalloc"]


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
