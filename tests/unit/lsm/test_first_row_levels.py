"""Compaction of first-row tables leaves no key in two levels: others read these levels without a merge."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

import merganser as mg


@pytest.mark.parametrize("window_rows", [1, 2, 200_000])
def test_a_key_of_a_deeper_level_is_not_written_again(tmp_path: Path, window_rows: int) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {"k": "STRING", "j": "INT", "v": "INT"},
        primary_key=["k", "j"],
        options={"merge-engine": "first-row", "bucket": "1", "target-file-row-num": "3"},
    )
    first: dict[tuple[str, int], int] = {}
    levels = set()
    with patch("merganser.lsm.section.WINDOW_ROWS", window_rows):
        for commit, keys in enumerate([range(40), range(3), range(1, 60, 7), range(2), range(50, 55), range(4)]):
            rows = [{"k": f"key {key // 3}", "j": key % 3, "v": commit} for key in keys]
            table.write(rows)
            for row in rows:
                first.setdefault((row["k"], row["j"]), row["v"])
            found = {(row["k"], row["j"]): row["v"] for row in table.read().to_arrow().to_pylist()}
            assert found == first
            files = table.files().to_pylist()
            assert sum(file["record_count"] for file in files) == len(first)
            levels |= {(commit, file["level"]) for file in files}
    assert len({level for commit, level in levels if commit == 3}) > 1
