"""Threads that look up while others write, compact and refresh: every answer is of one snapshot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import merganser as mg
from tests.unit.lookup.compared import WAYS, handle, way

KEYS = [{"k": k} for k in range(40)]
SECONDS = 1.2


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("name", WAYS)
def test_every_answer_is_of_one_snapshot(name: str, vectors: str, tmp_path: Path) -> None:
    """Each commit gives all keys of its partition one tag, and takes some keys away: no answer may mix two."""
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "2", "deletion-vectors.enabled": vectors, "num-sorted-run.compaction-trigger": "3"}
    table = catalog.create_table("db.t", {"k": "INT", "tag": "INT"}, primary_key=["k"], options=options)
    _commit(table, 0)
    done = threading.Event()

    def until_done(step: Callable[[], None]) -> int:
        count = 0
        while not done.is_set():
            step()
            count += 1
        return count

    with way(name):
        lookup = handle(table, name, tmp_path / "copies")
        seen: set[int] = set()

        def ask() -> None:
            found = lookup.lookup(KEYS).to_pylist()
            (tag,) = {row["tag"] for row in found}
            assert [row["k"] for row in found] == _kept(tag)
            alone = lookup.lookup({"k": 1}).to_pylist()
            assert alone[0]["tag"] >= tag
            seen.add(tag)

        def refresh() -> None:
            lookup.refresh()
            time.sleep(0.01)

        def ask_shared() -> None:
            found = table.lookup(KEYS).to_pylist()
            (tag,) = {row["tag"] for row in found}
            assert [row["k"] for row in found] == _kept(tag)

        with ThreadPoolExecutor(6) as pool:
            asking = [pool.submit(until_done, step) for step in (ask, ask, ask, ask_shared, refresh)]
            try:
                end, tag = time.monotonic() + SECONDS, 0
                while time.monotonic() < end or tag < 5:
                    tag += 1
                    _commit(table, tag)
                    if tag % 4 == 0:
                        table.compact(full=tag % 8 == 0)
            finally:
                done.set()
            counts = [one.result() for one in asking]
        assert min(counts) > 0
        assert len(seen) > 1
        lookup.refresh()
        assert lookup.lookup({"k": 1})["tag"].to_pylist() == [tag]


def _kept(tag: int) -> list[int]:
    return [key["k"] for key in KEYS if key["k"] % 7 != 2 + tag % 3]


def _commit(table: mg.Table, tag: int) -> None:
    kept = set(_kept(tag))
    rows = [{"k": key["k"], "tag": tag, "op": "+U" if key["k"] in kept else "-D"} for key in KEYS]
    table.write(rows, kinds="op")
