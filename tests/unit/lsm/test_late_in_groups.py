"""`last_value` in a sequence group says the same however its rows were cut into flushes, commits and compactions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.builders import catalog_over, memory_with

Change = tuple[str, int, str | None]
HISTORIES: dict[str, tuple[list[Change], tuple[int, str | None]]] = {
    "late retraction": ([("+I", 3, "a"), ("+I", 2, "b"), ("-D", 1, None), ("+I", 1, "c")], (3, "a")),
    "newest retraction": ([("+I", 1, "a"), ("-U", 3, "a"), ("+I", 2, "b"), ("-D", 2, "b")], (3, None)),
    "null is a value": ([("+I", 3, None), ("-U", 2, "b"), ("+U", 2, "c")], (3, None)),
    "as new as the newest": ([("+I", 3, "a"), ("-U", 3, "a"), ("+U", 3, "b"), ("-D", 1, "c")], (3, "b")),
}


def _rows(name: str, commits: list[list[Change]], **options: Any) -> list[dict[str, Any]]:
    catalog = catalog_over(memory_with({}, name))
    catalog.create_database("db")
    group = {"fields.g.sequence-group": "v", "fields.v.aggregate-function": "last_value", "write-only": "true"}
    table = catalog.create_table(
        "db.t",
        {"k": "INT", "g": "INT", "v": "STRING"},
        primary_key=["k"],
        options={"bucket": "1", "merge-engine": "partial-update", **group},
    )
    for commit in commits:
        table.write([{"op": op, "k": 1, "g": g, "v": v} for op, g, v in commit], kinds="op")
        if options.get("compacted"):
            table.compact(full=True)
    return table.read().to_pylist()


@pytest.mark.parametrize("name", HISTORIES)
def test_what_a_group_says_depends_on_its_rows_alone(name: str) -> None:
    changes, (g, v) = HISTORIES[name]
    for cut in range(len(changes)):
        for compacted in (False, True):
            commits = [part for part in (changes[:cut], changes[cut:]) if part]
            rows = _rows(f"late {name} {cut} {compacted}", commits, compacted=compacted)
            assert rows == [{"k": 1, "g": g, "v": v}], (cut, compacted)
    assert _rows(f"late {name} one by one", [[change] for change in changes]) == [{"k": 1, "g": g, "v": v}]
