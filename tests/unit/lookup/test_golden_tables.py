"""Tables of other implementations: each key is looked up, and its row is what a read has."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import merganser as mg
from tests.golden.test_golden import NAMES, TABLES
from tests.unit.lookup.compared import WAYS, assert_same, handle, way

KEYED = [name for name in NAMES if mg.table(str(TABLES / name)).primary_key]


@pytest.mark.campaign(1 / 12)
@pytest.mark.parametrize("name", KEYED)
def test_a_table_of_another_implementation_is_looked_up_as_it_is_read(name: str, tmp_path: Path) -> None:
    table = mg.table(str(TABLES / name))
    for kind in WAYS:
        with way(kind):
            assert_same(table, handle(table, kind, tmp_path), [], random.Random(4))


@pytest.mark.parametrize("name", [name for name in KEYED if name.startswith("evo_") or "java" in name][:20])
def test_a_snapshot_of_another_implementation_is_looked_up_as_it_is_read(name: str) -> None:
    table = mg.table(str(TABLES / name))
    for snapshot in table.snapshots():
        read = table.read(snapshot=snapshot.id)
        names = [column for column in table.primary_key if column in read.schema.names]
        if len(names) < len(table.primary_key):
            continue
        rows = read.to_arrow()
        assert table.lookup(rows.select(names), snapshot=snapshot.id).equals(rows)
