"""Tables of many columns: the work of a call grows with the columns, not with their square."""

from __future__ import annotations

import cProfile
import json
import pstats
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import merganser as mg

FEW, MANY = 40, 400
GROWTH = 13
"""Maximum of calls for ten times the columns; sorting and the fixed part make it differ from ten."""


def row(key: int, width: int) -> dict[str, Any]:
    return {"id": key, **{f"c{i}": f"x{key}" if i % 2 else key for i in range(width)}}


def merge_by_name(table: mg.Table, width: int) -> None:
    merged = table.merge([row(1, width) | {"c0": 8}, row(5, width)], on="target.id = source.id")
    merged.when_matched_update().when_not_matched_insert().execute()


def merge_by_text(table: mg.Table, width: int) -> None:
    sets = {f"c{i}": f"source.c{i}" for i in range(width)}
    table.merge([row(1, width) | {"c0": 9}], on="target.id = source.id").when_matched_update(sets).execute()


def change_records(table: mg.Table, width: int) -> None:
    table.write_changes([json.dumps({"op": "c", "before": None, "after": row(7, width)})], "debezium-json")


ACTIONS: dict[str, Callable[[mg.Table, int], Any]] = {
    "write": lambda table, width: table.write([row(3, width)]),
    "upsert": lambda table, width: table.upsert([row(1, width) | {"c0": 6}]),
    "upsert of one column": lambda table, width: table.upsert([{"id": 1, "c0": 7}], columns=["id", "c0"]),
    "update": lambda table, width: table.update("id = 1", {f"c{i}": f"c{i - 2}" for i in range(2, width)}),
    "merge by name": merge_by_name,
    "merge by text": merge_by_text,
    "lookup": lambda table, width: table.lookup([{"id": 1}]),
    "change records": change_records,
    "read": lambda table, width: table.read(where="c1 = 'x1'").to_pylist(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_ten_times_the_columns_take_about_ten_times_the_calls(action: str, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("s")
    calls: list[int] = []
    for width in (FEW, FEW, MANY):  # the first fills caches and imports
        columns = {"id": "BIGINT", **{f"c{i}": "STRING" if i % 2 else "BIGINT" for i in range(width)}}
        name = f"s.t{len(calls)}"
        catalog.create_table(name, columns, primary_key=["id"], options={"bucket": "1"})
        table = catalog.table(name)
        assert isinstance(table, mg.Table)
        table.write([row(1, width), row(2, width)])
        profile = cProfile.Profile()
        with profile:
            ACTIONS[action](table, width)
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    assert calls[2] < GROWTH * calls[1], calls
