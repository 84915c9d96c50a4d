"""Threads that share one handle while the table moves, and many tables looked up in one process."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from merganser.commit.table_commit import TableCommit
from merganser.lookup.lookup import shared_lookup
from merganser.lsm.held_memory import _Budget, held_bytes
from merganser.meta.layered import Layered
from tests.kit.builders import catalog_over, contents, memory_with

_names = itertools.count()
BUCKETS = 10
KEYS = 100


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _catalog() -> Any:
    catalog = catalog_over(memory_with({}, f"lookup-threads-{next(_names)}"))
    catalog.create_database("db")
    return catalog


@pytest.mark.usefixtures("restless")
def test_threads_find_the_rows_of_their_keys_while_the_table_moves() -> None:
    """Each key has one value for good, and commits, compactions and expiry go on."""
    options = {
        "bucket": str(BUCKETS), "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1",
        "snapshot.time-retained": "1 ms", "snapshot.expire.execution-mode": "sync",
    }  # fmt: skip
    table = _catalog().create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    table.write([{"k": k, "v": k} for k in range(KEYS)])
    wrong: list[Any] = []
    over = threading.Event()

    def look(number: int) -> None:
        try:
            for n in itertools.count(number, 4):
                if over.is_set():
                    return
                found = table.lookup({"k": n % KEYS}).to_pylist()
                if found != [{"k": n % KEYS, "v": n % KEYS}]:
                    wrong.append(found)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=look, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for i in range(3):
        table.write([{"k": k, "v": k} for k in range(i, KEYS, 20)])
        if i % 3 == 2:
            table.compact(full=True)
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    handle = shared_lookup(table.definition, table.env)
    handle.lookup([{"k": k} for k in range(KEYS)])
    assert set(handle._held) == {entry.file.name for entry in TableCommit(table.definition, table.env).latest().live}


def test_a_thread_meets_a_new_bucket_while_another_one_moves_the_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _catalog().create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": str(BUCKETS)})
    table.write([{"k": k} for k in range(KEYS)])
    handle = table.lookups(refresh="latest")
    handle.lookup({"k": 0})
    table.write([{"k": 0}])
    met: list[Any] = []
    contains = Layered.__contains__

    def meets(buckets: Layered[Any, Any], bucket: object) -> bool:
        if not met:
            met.append(None)
            other = threading.Thread(target=lambda: met.append(handle.lookup([{"k": k} for k in range(KEYS)])))
            other.start()
            other.join(1)
        return contains(buckets, bucket)

    monkeypatch.setattr(Layered, "__contains__", meets)
    handle.refresh()
    assert met[1].num_rows == KEYS


def test_a_lookup_at_an_older_state_leaves_no_files_with_the_handle() -> None:
    table = _catalog().create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    table.write([{"k": 1}])
    handle = table.lookups()
    older = handle._view
    table.compact(full=True)
    table.write([{"k": 2}], overwrite={})
    handle.refresh()
    handle._bucket(older, next(iter(older.state.live.buckets)))
    assert handle._held == {}


def test_tables_looked_up_in_one_process_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merganser.lsm.held_memory._BUDGET", _Budget())
    limit = 40_000
    catalog = _catalog()
    options = {"bucket": "1", "lookup.cache-max-memory-size": str(limit)}
    table = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options=options)
    table.write([{"k": 1}])
    files = contents(table.env.storage)
    many = {path.replace("/t/", f"/t{i}/"): data for path, data in files.items() for i in range(200)}
    catalog = catalog_over(memory_with(many, f"lookup-threads-{next(_names)}"))
    most = 0
    for i in range(200):
        assert catalog.table(f"db.t{i}").lookup({"k": 1}).to_pylist() == [{"k": 1}]
        most = max(most, held_bytes())
    assert limit / 2 < most <= limit
    assert catalog.table("db.t0").lookup({"k": 1}).to_pylist() == [{"k": 1}]
    del table, catalog
    gc.collect()
    assert held_bytes() == 0
