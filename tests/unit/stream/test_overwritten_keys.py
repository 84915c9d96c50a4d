"""Keys that an overwrite puts into another bucket or partition: a stream applied in order ends with the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg


@pytest.mark.parametrize("producer", ["none", "input"])
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_stream_of_overwrites_ends_with_the_table(partitioned: bool, producer: str, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"dynamic-bucket.target-row-num": "3", "streaming-read-overwrite": "true", "changelog-producer": producer}
    table = catalog.create_table(
        "db.t", {"p": "INT", "k": "INT", "a": "INT"}, primary_key=["k"], options=options,
        partition_by=["p"] if partitioned else [],
    )  # fmt: skip
    for a in range(4):
        rows = [{"p": (k + a) % 2, "k": k, "a": a} for k in range(a, 12)]
        table.write(rows[:: -1 if a % 2 else 1], overwrite={} if a else None)
    rows_of: dict[int, Any] = {}
    for changes in table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"}):
        for row in changes.to_pylist():
            kind = row.pop("_row_kind")
            if kind in ("-U", "-D"):
                rows_of.pop(row["k"], None)
            else:
                rows_of[row["k"]] = row
    assert rows_of == {row["k"]: row for row in table.read().to_pylist()}
