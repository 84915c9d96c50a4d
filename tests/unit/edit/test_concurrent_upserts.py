"""Upserts beside other writers: no change is lost, and of all that insert a key one does."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.commit.conflict import Reads, check_reads
from merganser.edit.upsert import Upsert
from merganser.errors import ConflictError, Overtaken
from merganser.storage.protocol import no_lock

WRITERS = 4
KEYS = 5
COLUMNS = {"k": "INT"} | {f"c{i}": "INT" for i in range(WRITERS)}
_context = multiprocessing.get_context("forkserver")


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def made(catalog: mg.Catalog, **options: str) -> mg.Table:
    found = {"bucket": "1"} | {name.replace("_", "-"): value for name, value in options.items()}
    return catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=found)


def _without_locks() -> Any:
    return patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock)


def _opened(path: str) -> mg.Table:
    return mg.table(path, options={"local.sync": "false", "commit.timeout": "120 s", "commit.max-retries": "1000000"})


def _count_up(path: str, writer: int, rounds: int, locks: bool) -> None:
    """Raise the column of a writer in every row, a commit for each number."""
    with nullcontext() if locks else _without_locks():
        table = _opened(path)
        for number in range(1, rounds + 1):
            rows = [{"k": k, f"c{writer}": number} for k in range(KEYS)]
            found = table.upsert(rows, columns=["k", f"c{writer}"])
            assert found.changes is not None
            olds = [row for row in found.changes.to_pylist() if row["_row_kind"] == "-U"]
            assert {row[f"c{writer}"] for row in olds} <= {number - 1 or None}


def _insert(path: str, writer: int, locks: bool) -> list[int]:
    """Insert rows that all writers insert, a commit for each; return the keys of those that were inserted."""
    won = []
    with nullcontext() if locks else _without_locks():
        table = _opened(path)
        for k in range(KEYS):
            found = table.upsert([{"k": k, "c0": writer}], columns=["k", "c0"], if_exists="keep")
            assert found.rows is not None
            won += [k] * (found.inserted or 0)
            assert (found.rows["c0"].to_pylist() == [writer]) == (found.inserted == 1)
    return won


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(WRITERS, _context) as started:
        yield started


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_processes_that_write_a_column_each_lose_nothing(
    catalog: mg.Catalog, pool: ProcessPoolExecutor, locks: bool, vectors: str
) -> None:
    table = made(catalog, **{"deletion-vectors.enabled": vectors})
    done = [pool.submit(_count_up, table.path, i, 6, locks) for i in range(WRITERS)]
    for each in done:
        each.result()
    rows = table.lookup([{"k": k} for k in range(KEYS)]).to_pylist()
    assert rows == [{"k": k} | {f"c{i}": 6 for i in range(WRITERS)} for k in range(KEYS)]


@pytest.mark.parametrize("locks", [True, False])
def test_of_all_writers_that_insert_a_key_one_does(catalog: mg.Catalog, pool: ProcessPoolExecutor, locks: bool) -> None:
    table = made(catalog)
    done = [pool.submit(_insert, table.path, i, locks) for i in range(WRITERS)]
    won = [each.result() for each in done]
    assert sorted(k for keys in won for k in keys) == list(range(KEYS))
    assert all(row["k"] in won[row["c0"]] for row in table.read().to_pylist())


def test_threads_that_share_a_table_lose_nothing(catalog: mg.Catalog) -> None:
    table = made(catalog)

    def count_up(writer: int) -> None:
        for number in range(1, 5):
            table.upsert([{"k": 0, f"c{writer}": number}], columns=["k", f"c{writer}"])

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(count_up, range(WRITERS)))
    assert table.read().to_pylist() == [{"k": 0} | {f"c{i}": 4 for i in range(WRITERS)}]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Callable[[], object]]], list[int]]:
    """Do things between the lookup and the commit of the first rounds; return a list that counts the rounds."""

    def install(todo: list[Callable[[], object]]) -> list[int]:
        rounds: list[int] = []
        edit = Upsert._edit

        def edited(self: Upsert, *arguments: Any) -> Any:
            rounds.append(1)
            if len(rounds) <= len(todo):
                todo[len(rounds) - 1]()
            return edit(self, *arguments)

        monkeypatch.setattr(Upsert, "_edit", edited)
        return rounds

    return install


Between = Callable[[list[Callable[[], object]]], list[int]]


def test_a_commit_between_lookup_and_commit_is_merged_again(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog)
    table.write([{"k": 1, "c0": 1, "c1": 1, "c2": 1, "c3": 1}])
    rounds = between([lambda: table.write([{"k": 1, "c0": 2, "c1": 2, "c2": 2, "c3": 2}])])
    with _without_locks():
        found = table.upsert([{"k": 1, "c0": 7}], columns=["k", "c0"])
    assert found.changes is not None
    assert found.changes["c1"].to_pylist() == [2, 2]
    assert table.read().to_pylist() == [{"k": 1, "c0": 7, "c1": 2, "c2": 2, "c3": 2}]
    assert len(rounds) == 2
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_commits_to_other_buckets_and_compactions_do_not_conflict(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog, **{"bucket": "2", "write-only": "true"})
    for number in range(8):
        table.write([{"k": k, "c0": number, "c1": 1, "c2": 1, "c3": 1} for k in range(20)])
    buckets = {split.bucket: split for split in table.read().plan().splits}
    assert len(buckets) == 2
    [first] = [s.bucket for s in table.read(where="k = 1").plan().splits]
    other = next(k for k in range(20) if [s.bucket for s in table.read(where=f"k = {k}").plan().splits] != [first])

    def meanwhile() -> None:
        table.write([{"k": other, "c0": 0, "c1": 0, "c2": 0, "c3": 0}])
        table.with_options({"write-only": "false"}).compact(full=True)

    rounds = between([meanwhile])
    with _without_locks():
        table.upsert([{"k": 1, "c0": 70}], columns=["k", "c0"])
    assert len(rounds) == 1
    assert table.lookup({"k": 1}).to_pylist() == [{"k": 1, "c0": 70, "c1": 1, "c2": 1, "c3": 1}]


def test_a_rollback_between_lookup_and_commit_conflicts(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog, **{"write-only": "true"})
    for number in range(3):
        table.write([{"k": 1, "c0": number, "c1": number, "c2": 0, "c3": 0}])

    def meanwhile() -> None:
        table.rollback(snapshot=1)
        for k in (8, 9, 10):
            table.upsert([{"k": k, "c0": 0}], columns=["k", "c0"])

    rounds = between([meanwhile, lambda: None, lambda: None, lambda: None, lambda: None])
    with _without_locks():
        table.upsert([{"k": 1, "c0": 7}], columns=["k", "c0"])
    assert table.lookup({"k": 1}).to_pylist() == [{"k": 1, "c0": 7, "c1": 0, "c2": 0, "c3": 0}]
    assert len(rounds) == 5


def test_a_twin_that_was_faster_has_made_the_commit_of_both(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog)
    table.write([{"k": 1, "c0": 1, "c1": 1, "c2": 1, "c3": 1}])
    twin: list[mg.Upserted] = []

    def upsert() -> mg.Upserted:
        return table.upsert([{"k": 1, "c0": 7}], columns=["k", "c0"], commit_user="twin", identifier=3)

    between([lambda: twin.append(upsert())])
    with _without_locks():
        found = upsert()
    assert found.snapshot is not None
    assert [found.snapshot.id] == [each.snapshot.id for each in twin if each.snapshot is not None] == [2]
    assert [found.changes] == [each.changes for each in twin]
    assert len(table.snapshots()) == 2
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_patience_ends_and_leaves_nothing(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog, **{"commit.max-retries": "2", "commit.min-retry-wait": "1 ms", "write-only": "true"})

    def meanwhile() -> None:
        table.write([{"k": 1, "c0": 2, "c1": 2, "c2": 2, "c3": 2}])

    rounds = between([meanwhile] * 1000)
    with _without_locks(), pytest.raises(ConflictError, match="Nothing was changed"):
        table.upsert([{"k": 1, "c0": 7}], columns=["k", "c0"])
    assert 3 <= len(rounds) < 1000
    assert table.read().to_pylist() == [{"k": 1, "c0": 2, "c1": 2, "c2": 2, "c3": 2}]
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_what_was_read_is_refused_once_it_cannot_be_checked(catalog: mg.Catalog) -> None:
    table = made(catalog, **{"write-only": "true"})
    for number in range(4):
        table.write([{"k": 1, "c0": number, "c1": 0, "c2": 0, "c3": 0}])
    first, second, third, fourth = table.snapshots()

    def check(reads: Reads, *since: mg.Snapshot) -> None:
        check_reads(reads, since, lambda _: [], table="db.t")

    check(Reads(fourth, frozenset()), fourth)
    check(Reads(second, frozenset()), fourth, third, second, first)
    check(Reads(None, frozenset()), fourth, third, second, first)
    check(Reads(None, frozenset()))
    for reads, since in (
        (Reads(second, frozenset()), (fourth, third)),
        (Reads(fourth, frozenset()), (third, second)),
        (Reads(second, frozenset()), ()),
        (Reads(None, frozenset()), (fourth, third)),
    ):
        with pytest.raises(ConflictError) as caught:
            check(reads, *since)
        assert caught.value.overtaken is Overtaken.ROWS
