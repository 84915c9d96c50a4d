"""A handle whose schema number means another schema now says so; no file is called damaged, and no row is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import merganser as mg
from merganser.errors import ConflictError

_VERBS: dict[str, Callable[[mg.Table], object]] = {
    "read": lambda t: t.read().to_pylist(),
    "read where": lambda t: t.read(where="m > 0").to_pylist(),
    "count": lambda t: t.read().count(),
    "changes": lambda t: t.changes().to_pylist(),
    "diff": lambda t: t.changes(mode="diff").to_pylist(),
    "stream": lambda t: list(t.stream(follow=False)),
    "write": lambda t: t.write([{"k": 1, "a": 1, "m": 1}]),
    "update": lambda t: t.update("m > 0", {"m": "m + 1"}),
    "update of a key": lambda t: t.update("k = 1", {"m": "m + 1"}),
    "delete": lambda t: t.delete("m = 1"),
    "merge": lambda t: (
        t.merge([{"k": 1, "m": 2}], on="target.k = source.k").when_matched_update({"m": "source.m"}).execute()
    ),
}
_OF_KEYS: dict[str, Callable[[mg.Table], object]] = {
    "lookup": lambda t: t.lookup({"k": 1}),
    "upsert": lambda t: t.upsert([{"k": 1, "a": 1, "m": 1}]),
}


def _replaced(path: Path, how: str, key: list[str]) -> tuple[mg.Catalog, mg.Table]:
    """Return a handle with schema 1, which was (k, a, m), and is (k, z) now."""
    catalog = mg.catalog(str(path))
    catalog.create_database("s")
    options = {"bucket": "1"} if key else {}
    table = catalog.create_table("s.t", {"k": "INT", "a": "INT"}, primary_key=key, options=options)
    table.write([{"k": 1, "a": 1}])
    table.branches.create("b")
    catalog.alter_table("s.t", [mg.changes.add_column("m", "INT")])
    old = catalog.table("s.t")
    old.write([{"k": 1, "a": 1, "m": 1}])
    changes = [mg.changes.drop_column("a"), mg.changes.add_column("z", "STRING")]
    if how == "fast-forwarded":
        catalog.alter_table("s.t$branch_b", changes)
        catalog.table("s.t$branch_b").write([{"k": 1, "z": "new"}])
        old.branches.fast_forward("b")
    else:
        if how == "dropped":
            catalog.drop_table("s.t")
        else:
            catalog.rename_table("s.t", "s.u")
        catalog.create_table("s.t", {"k": "INT", "a": "INT"}, primary_key=key, options=options)
        catalog.alter_table("s.t", changes)
        catalog.table("s.t").write([{"k": 1, "z": "new"}])
    return catalog, old


@pytest.mark.parametrize("key", [["k"], []], ids=["key", "no key"])
@pytest.mark.parametrize("how", ["fast-forwarded", "dropped", "renamed"])
def test_a_handle_of_a_replaced_schema_says_what_happened(how: str, key: list[str], tmp_path: Path) -> None:
    catalog, old = _replaced(tmp_path, how, key)
    for call in (_VERBS | (_OF_KEYS if key else {})).values():
        with pytest.raises(ConflictError, match=r"schema 1 is another one.*Open the table again"):
            call(old)
    assert catalog.table("s.t").read().to_pylist() == [{"k": 1, "z": "new"}]
    assert catalog.table("s.t").check() == ()


def test_a_handle_of_a_schema_that_both_have_reads_on(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("s")
    old = catalog.create_table("s.t", {"k": "INT", "a": "INT"}, primary_key=["k"], options={"bucket": "1"})
    old.write([{"k": 1, "a": 1}])
    old.branches.create("b")
    catalog.alter_table("s.t$branch_b", [mg.changes.add_column("z", "STRING")])
    catalog.table("s.t$branch_b").write([{"k": 1, "a": 2, "z": "new"}])
    with old.lookups() as asked:
        old.branches.fast_forward("b")
        asked.refresh()
        assert asked.lookup({"k": 1}).to_pylist() == [{"k": 1, "a": 2}]
    assert old.read().to_pylist() == [{"k": 1, "a": 2}]


@pytest.mark.parametrize("key", [["k"], []], ids=["key", "no key"])
@pytest.mark.parametrize("commits", [0, 3])
def test_what_was_opened_before_a_table_was_dropped_and_re_created_says_so(
    commits: int, key: list[str], tmp_path: Path
) -> None:
    """The columns are the same, so that only the time of the schema differs: no snapshot is called expired."""
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("s")
    options = {"bucket": "1"} if key else {}
    old = catalog.create_table("s.t", {"k": "INT", "a": "INT"}, primary_key=key, options=options)
    old.write([{"k": 1, "a": 1}])
    old.write([{"k": 2, "a": 1}])
    asked = old.lookups() if key else None
    begun = old.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    next(begun)
    full = old.stream(start="latest-full", follow=False)
    rows = old.read(snapshot=2)
    catalog.drop_table("s.t")
    table = catalog.create_table("s.t", {"k": "INT", "a": "INT"}, primary_key=key, options=options)
    for i in range(commits):
        table.write([{"k": i, "a": 2}])
    calls: list[Callable[[], object]] = [lambda: next(full), rows.to_arrow]
    if commits:
        calls.append(lambda: next(begun))
    if asked is not None:
        calls.append(lambda: asked.lookup({"k": 1}))
    for call in calls:
        with pytest.raises(ConflictError, match=r"dropped and re-created.*Open the table again"):
            call()
