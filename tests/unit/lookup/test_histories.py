"""Random tables of every merge engine, looked up after every commit: every answer is what a read says."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.oracle.engine_histories import History
from tests.unit.lookup.compared import WAYS, assert_same, handle, way

SEEDS = range(*(int(number) for number in os.environ.get("MERGANSER_LOOKUP_SEEDS", "0:3").split(":")))


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("engine", ["deduplicate", "first-row", "partial-update", "aggregation"])
def test_lookups_equal_reads_through_a_history(engine: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{engine} {seed} lookups")
    history = History(engine, seed, tmp_path)
    table, drawn = history.table, history.drawn
    handles = {}
    for name in WAYS:
        with way(name):
            handles[name] = handle(table, name, tmp_path / "copies")
    for _ in range(4):
        history._commit()
        if rng.random() < 0.5:
            history._compact()
        absent = [drawn.row(rng) for _ in range(5)]
        for name, lookup in handles.items():
            with ExitStack() as stack:
                stack.enter_context(way(name))
                lookup.refresh()
                assert_same(table, lookup, absent, rng)
