"""Random upserts of random tables, against a dictionary: the table, the rows and the changes after every call."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.unit.edit.upsert_oracle import Row, UpsertOracle

SEEDS = range(*(int(number) for number in os.environ.get("MERGANSER_UPSERT_SEEDS", "0:8").split(":")))
COLUMNS = {
    "p": "STRING",
    "k": "INT",
    "s": "STRING",
    "a": "INT",
    "b": "DOUBLE",
    "c": "STRING",
    "d": "ARRAY<INT>",
    "e": "INT",
    "f": "ROW<x INT, y ROW<z INT>>",
}


def _value(rng: random.Random, name: str) -> Any:
    match name:
        case "p":
            return rng.choice("xy")
        case "k":
            return rng.randrange(6)
        case "s":
            return rng.choice(["m", "n"])
        case "d":
            return rng.choice([None, [], [1], [None, 2]])
        case "f":
            return rng.choice([None, {"x": 1, "y": None}, {"x": None, "y": {"z": 1}}, {"x": None, "y": {"z": None}}])
        case "b":
            return rng.choice([None, 0.0, -0.0, float("nan"), 1.5])
        case "c":
            return rng.choice([None, "u", "v"])
    return rng.choice([None, 0, 1, 2])


class _History:
    def __init__(self, seed: int, path: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.ordered = rng.random() < 0.3
        self.key = rng.choice([["k"], ["k", "s"], ["p", "k"], ["p", "s", "k"]])
        partitions = ["p"] if "p" in self.key and rng.random() < 0.7 else []
        options = {
            "bucket": rng.choice(["1", "3"]),
            "file.format": rng.choice(["parquet", "parquet", "orc", "avro"]),
            "write-only": rng.choice(["true", "false"]),
        }
        if self.ordered:
            options["sequence.field"] = "e"
        if rng.random() < 0.3:
            options["deletion-vectors.enabled"] = "true"
        if rng.random() < 0.3:
            options["target-file-row-num"] = "3"
        defaults = {}
        if rng.random() < 0.5:
            options["fields.a.default-value"] = "7"
            defaults["a"] = 7
        catalog = mg.catalog(str(path), options={"local.sync": "false"})
        catalog.create_database("db")
        self.table = catalog.create_table(
            "db.t", COLUMNS, primary_key=self.key, partition_by=partitions, options=options
        )
        self.oracle = UpsertOracle(list(COLUMNS), self.key, defaults, "e" if self.ordered else None)

    def step(self) -> None:
        rng = self.rng
        others = [name for name in COLUMNS if name not in self.key]
        columns = None
        if rng.random() < 0.7:
            columns = [*self.key, *rng.sample(others, rng.randrange(len(others)))]
        if_exists = "keep" if rng.random() < 0.2 else "update"
        data: list[Row] = [
            {name: _value(rng, name) for name in columns or COLUMNS} for _ in range(rng.choice([1, 2, 5, 12]))
        ]
        # Where columns order rows, a removed row still counts against late ones; the oracle has no such memory.
        kinds = ["+I"] * len(data)
        if if_exists == "update" and not self.ordered and rng.random() < 0.6:
            kinds = [rng.choice(["+I", "+U", "-D", "-D", "-U"]) for _ in data]
        elif if_exists == "update" and columns is not None and set(columns) != set(COLUMNS) and rng.random() < 0.5:
            kinds = [rng.choice(["+I", "+U", "-U"]) for _ in data]
        wanted, changes = self.oracle.upsert(data, kinds, columns, if_exists)
        found = self.table.upsert(data, kinds=kinds, columns=columns, if_exists=if_exists)
        given = len({tuple(row[name] for name in self.key) for row in self._counted(data, kinds, columns)})
        assert found.rows is not None
        assert found.changes is not None
        assert repr(found.rows.to_pylist()) == repr(list(wanted.values()))
        assert found.rows.schema == self.table.read().schema
        assert repr(found.changes.to_pylist()) == repr([{"_row_kind": kind} | row for kind, row in changes])
        named = [kind for kind, _ in changes]
        assert (found.inserted, found.updated, found.deleted) == tuple(named.count(kind) for kind in ("+I", "+U", "-D"))
        assert found.unchanged == given - named.count("+I") - named.count("+U") - named.count("-D")
        if not self.ordered:
            assert (found.snapshot is None) == (not changes)

    def _counted(self, data: list[Row], kinds: list[str], columns: list[str] | None) -> list[Row]:
        if columns is None or set(columns) == set(COLUMNS):
            return data
        return [row for row, kind in zip(data, kinds, strict=True) if kind != "-U"]

    def check(self) -> None:
        table = self.table.with_options({"deletion-vectors.merge-on-read": "true"})
        rows = sorted(map(repr, table.read().to_pylist()))
        assert rows == sorted(map(repr, self.oracle.rows.values()))


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("seed", SEEDS)
def test_upserts_equal_a_dictionary_through_a_history(seed: int, tmp_path: Path) -> None:
    history = _History(seed, tmp_path)
    for _ in range(8):
        history.step()
        if history.rng.random() < 0.2:
            history.table.compact(full=history.rng.random() < 0.5)
        history.check()
    assert not history.table.check()
