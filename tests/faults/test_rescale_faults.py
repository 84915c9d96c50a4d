"""Every storage call of a rescale goes wrong once, in every way: no row changes, and a repeat completes it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from merganser.catalogs.catalog import Catalog
from merganser.meta.snapshot import Snapshot
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.faults.test_concurrency import Interrupted
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome

_names = itertools.count()


def _base() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"rescale-faults-{next(_names)}"))
    catalog.create_database("db")
    options = {"bucket": "2", "write-only": "true", "changelog-producer": "lookup"}
    table = catalog.create_table("db.t", "p STRING, k INT, v INT", ["p", "k"], ["p"], options=options)
    table.write([{"p": "a", "k": k, "v": 0} for k in range(9)] + [{"p": "b", "k": k, "v": 0} for k in range(3)])
    table.compact(full=True)
    table.write([{"p": "a", "k": k, "v": 1} for k in range(4)])
    return contents(catalog.env.storage)


def _rows(catalog: Catalog) -> list[tuple[str, int, int]]:
    found = catalog.table("db.t").read().to_pylist()
    return sorted((row["p"], row["k"], row["v"]) for row in found)


def _rescale(storage: Storage) -> Snapshot | None:
    return catalog_over(storage).table("db.t").rescale(3)


def test_a_rescale_changes_no_row_whichever_call_goes_wrong() -> None:
    files = _base()
    before = _rows(catalog_over(memory_with(files, f"rescale-fault-{next(_names)}")))
    shown = sorted([row for row in before if row[0] == "b" or row[1] > 3] + [("a", k, 1) for k in range(4)])

    def check(storage: Storage, outcome: Outcome[Snapshot | None]) -> None:
        catalog = catalog_over(storage)
        assert _rows(catalog) in (before, shown)
        assert catalog.table("db.t").check() == ()
        catalog.table("db.t").rescale(3)
        assert _rows(catalog) == shown
        table = catalog.table("db.t")
        assert table.options["bucket"] == "3"
        assert len(table.system("rescales").to_pylist()) == 2
        table.write([{"p": "a", "k": 1, "v": 5}])
        assert table.check() == ()
        snapshots = [one for one in table.snapshots() if one.changelog_record_count]
        assert sum(one.changelog_record_count or 0 for one in snapshots) == 12 + 2 * 4

    runs = run_some(lambda: memory_with(files, f"rescale-fault-{next(_names)}"), _rescale, check)
    assert runs > 50


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("overwrite", [None, "dynamic"])
@pytest.mark.parametrize("partition", ["a", "new", "first"])
def test_a_rescale_inside_a_commit_leaves_no_partition_that_nobody_can_add_to(partition: str, overwrite: Any) -> None:
    """At every call of a commit another process rescales the table, which has no rows yet if the partition is first."""
    catalog = catalog_over(memory_with({}, f"rescale-faults-{next(_names)}"))
    catalog.create_database("db")
    catalog.create_table("db.t", "p STRING, k INT, v INT", ["p", "k"], ["p"], options={"bucket": "4"})
    files = contents(catalog.env.storage) if partition == "first" else _base()
    rows = [{"p": partition, "k": k, "v": 2} for k in range(4)]
    for call in itertools.count(1):
        storage = memory_with(files, f"rescale-fault-{next(_names)}")
        interrupted = Interrupted(storage, call, lambda inner: catalog_over(inner).table("db.t").rescale(8))
        catalog_over(interrupted).table("db.t").write(rows, overwrite=overwrite)
        if interrupted.left > 0:
            break
        table = catalog_over(storage).table("db.t")
        table.write([{"p": partition, "k": 99, "v": 3}])
        assert table.read(where=f"p = '{partition}' and v >= 2").count() == 5, call
        assert table.check() == (), call
    assert call > 15


def test_a_rollback_that_takes_back_a_rescale_which_comes_in_the_middle_of_it_leaves_the_table_writable() -> None:
    files = _base()
    for call in itertools.count(1):
        storage = memory_with(files, f"rescale-fault-{next(_names)}")
        interrupted = Interrupted(storage, call, lambda inner: catalog_over(inner).table("db.t").rescale(8))
        catalog_over(interrupted).table("db.t").rollback(2)
        if interrupted.left > 0:
            break
        table = catalog_over(storage).table("db.t")
        table.write([{"p": "a", "k": 1, "v": 5}])
        assert table.check() == (), call
    assert call > 20
