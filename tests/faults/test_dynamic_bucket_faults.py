"""Every storage call of a write with new keys and new buckets goes wrong once, in every way.

The table is as it was or as it is after, its key index is sound, and a repeat is applied once.
"""

from __future__ import annotations

import itertools

from merganser.catalogs.filesystem import Catalog
from merganser.errors import CommitUnknownError
from merganser.meta.snapshot import Snapshot
from merganser.storage.protocol import Storage
from merganser.testing.builders import catalog_over, contents, memory_with
from merganser.testing.faulty import Outcome, Stopped
from tests.faults import run_some

_names = itertools.count()
OLD = dict.fromkeys(range(5), 0)
NEW = dict.fromkeys(range(3, 11), 1)


def _base() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"dynamic-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT, v INT", ["k"], options={"dynamic-bucket.target-row-num": "3"})
    table.write([{"k": k, "v": v} for k, v in OLD.items()])
    return contents(catalog.env.storage)


def _write(catalog: Catalog) -> Snapshot | None:
    rows = [{"k": k, "v": v} for k, v in NEW.items()]
    return catalog.table("db.t").write(rows, commit_user="job", identifier=1)


def _rows(storage: Storage) -> dict[int, int]:
    return {row["k"]: row["v"] for row in catalog_over(storage).table("db.t").read().to_pylist()}


def test_a_write_with_new_keys_is_all_or_nothing_whichever_call_goes_wrong() -> None:
    files = _base()

    def check(storage: Storage, outcome: Outcome[Snapshot | None]) -> None:
        found = _rows(storage)
        if outcome.error is None:
            assert found == OLD | NEW
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found == OLD
        assert found in (OLD, OLD | NEW)
        assert catalog_over(storage).table("db.t").check() == ()
        _write(catalog_over(storage))
        assert _rows(storage) == OLD | NEW
        table = catalog_over(storage).table("db.t")
        assert table.check() == ()
        assert len([s for s in table.snapshots() if s.commit_user == "job" and s.commit_kind == "APPEND"]) == 1

    runs = run_some(
        lambda: memory_with(files, f"dynamic-fault-{next(_names)}"), lambda store: _write(catalog_over(store)), check
    )
    assert runs > 50
