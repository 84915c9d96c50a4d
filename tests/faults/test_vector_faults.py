"""Deletion vectors under faults: a write is seen whole or not at all, and no deleted row comes back."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import merganser as mg
from merganser.commit.committable import Committable
from merganser.commit.table_commit import TableCommit
from merganser.meta.table_state import MetaReader
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome

_names = itertools.count()


def _table(key: list[str], **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"vector-faults-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "1", "deletion-vectors.enabled": "true", "manifest.merge-min-count": "9", **options}
    return catalog.create_table("db.t", {"k": "INT", "v": "STRING", "pad": "STRING"}, primary_key=key, options=options)


def _row(k: int, v: str, size: int = 0) -> dict[str, Any]:
    return {"k": k, "v": v, "pad": random.Random(k).randbytes(size).hex()}


def _found(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["v"]) for row in table.read(columns=["k", "v"]).to_pylist())


def _again(storage: Storage) -> mg.Table:
    return catalog_over(storage).table("db.t")


def _vectors(table: mg.Table) -> int:
    entries = MetaReader(table.definition.paths, table.env, table.name).index(table.latest_snapshot())
    return sum(len(entry.vectors) for entry in entries)


def test_a_write_that_marks_rows_is_applied_once_and_seen_whichever_call_goes_wrong() -> None:
    table = _table(["k"])
    table.write([_row(k, "old", 1000) for k in range(6)])
    table.write([_row(3, "newer", 400)])
    files, before = contents(table.env.storage), _found(table)
    assert _vectors(table) == 1
    after = sorted([row for row in before if row[0] not in (1, 3)] + [(1, "newest"), (7, "newest")])

    def work(storage: Storage) -> Any:
        rows = [_row(1, "newest"), _row(3, ""), _row(7, "newest")]
        return _again(storage).write(rows, kinds=["+I", "-D", "+I"], commit_user="job", identifier=1)

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        assert _found(_again(storage)) in (before, after)
        left = contents(storage)
        assert all(left[path] == data for path, data in files.items() if not path.endswith("/LATEST"))
        work(storage)
        assert _found(_again(storage)) == after
        assert _again(storage).read().count() == len(after)
        _again(storage).compact(full=True)
        assert _found(_again(storage)) == after
        assert _vectors(_again(storage)) == 0

    name = f"vector-faults-{next(_names)}"
    assert run_some(lambda: memory_with(files, name), work, check) > 60


def _delete(storage: Storage, keys: str) -> None:
    _again(storage).delete(f"k IN ({keys})", commit_user=keys, identifier=1)


def test_rows_deleted_from_a_table_without_a_key_are_gone_whole_or_there_whole_whichever_call_goes_wrong() -> None:
    table = _table([], bucket="-1")
    table.write([_row(k, "x") for k in range(6)])
    _delete(table.env.storage, "0")
    files, before = contents(table.env.storage), _found(table)
    after = [row for row in before if row[0] not in (2, 4)]

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        assert _found(_again(storage)) in (before, after)
        left = contents(storage)
        assert all(left[path] == data for path, data in files.items() if not path.endswith("/LATEST"))
        _delete(storage, "2, 4")
        assert _found(_again(storage)) == after

    name = f"vector-faults-{next(_names)}"
    assert run_some(lambda: memory_with(files, name), lambda storage: _delete(storage, "2, 4"), check) > 20


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", range(6))
def test_writers_and_compactions_that_interleave_lose_and_bring_back_no_row(seed: int) -> None:
    """Compactions are planned, then others commit, then they are published: each rests on what it saw."""
    rng = random.Random(seed)
    table = _table(["k"], **{"write-only": "true", "num-sorted-run.compaction-trigger": "3"})
    storage = table.env.storage
    wanted: dict[int, str] = {}
    real, depth = TableCommit.commit, 0

    def upsert(step: str) -> None:
        keys = rng.sample(range(12), rng.choice([1, 3, 6]))
        kinds = [rng.choice(["+I", "+I", "-D"]) for _ in keys]
        _again(storage).write([_row(k, step, rng.choice([0, 500])) for k in keys], kinds=kinds)
        for k, kind in zip(keys, kinds, strict=True):
            wanted.pop(k, None)
            if kind == "+I":
                wanted[k] = step

    def commit(self: TableCommit, change: Committable, **how: Any) -> Any:
        nonlocal depth
        if change.kind == "COMPACT" and depth < 2 and rng.random() < 0.6:
            depth += 1
            try:
                if rng.random() < 0.5:
                    upsert(f"between {depth}")
                _again(storage).compact(full=rng.random() < 0.5)
            finally:
                depth -= 1
        return real(self, change, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableCommit, "commit", commit)
        for step in range(10):
            upsert(str(step))
            _again(storage).compact(full=rng.random() < 0.3)
            depth = 2  # nobody comes in between
            _again(storage).compact()
            depth = 0
            assert dict(_found(_again(storage))) == wanted
            assert _again(storage).read().count() == len(wanted)
    assert _again(storage).check() == ()
