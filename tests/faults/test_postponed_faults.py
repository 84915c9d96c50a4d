"""Every storage call of a compaction that gives rows their buckets goes wrong once: each row comes once."""

from __future__ import annotations

import itertools

from merganser.meta.snapshot import Snapshot
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome

_names = itertools.count()
_BEFORE = {1: 0, 2: 0}
_AFTER = {2: 1, 3: 1, 4: 2}


def _base() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"postponed-faults-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "-2", "changelog-producer": "input", "postpone.default-bucket-num": "2"}
    table = catalog.create_table("db.t", "k INT, v INT", ["k"], options=options)
    table.write([{"k": k, "v": v} for k, v in _BEFORE.items()])
    with table.writer() as writer:
        for rows, kinds in (([2, 3, 4], ["+I"] * 3), ([1], ["-D"])):
            writer.write([{"k": k, "v": 1} for k in rows], kinds)
            writer.commit()
        writer.write([{"k": 4, "v": 2}])
        writer.commit()
    return contents(catalog.env.storage)


def _rows(storage: Storage) -> dict[int, int]:
    return {row["k"]: row["v"] for row in catalog_over(storage).table("db.t").read().to_pylist()}


def test_rows_that_wait_come_once_whichever_call_goes_wrong() -> None:
    files = _base()

    def compact(storage: Storage) -> Snapshot | None:
        return catalog_over(storage).table("db.t").compact()

    def check(storage: Storage, outcome: Outcome[Snapshot | None]) -> None:
        assert _rows(storage) in (_BEFORE, _AFTER)
        table = catalog_over(storage).table("db.t")
        assert table.check() == ()
        table.compact()
        assert _rows(storage) == _AFTER
        table = catalog_over(storage).table("db.t")
        assert table.check() == ()
        assert sum(one.changelog_record_count or 0 for one in table.snapshots()) == 2 + 5

    runs = run_some(lambda: memory_with(files, f"postponed-fault-{next(_names)}"), compact, check)
    assert runs > 40
