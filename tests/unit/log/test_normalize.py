"""Normalizer: whatever is flushed, committed and dropped, in any order, its changes lead to the rows that it shows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merganser.log.normalize import Normalizer, Rows
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema

_FIELDS = (t.Field(0, "k", t.Int(nullable=False)), t.Field(1, "v", t.VarChar()))
_Table = dict[int, str | None]


def _schema() -> TableSchema:
    return TableSchema(id=0, fields=_FIELDS, primary_keys=("k",), partition_keys=(), options={}, highest_field_id=1)


def _rows(rows: list[tuple[int, str | None]]) -> pa.Table:
    ks, vs = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"k": pa.array(ks, pa.int32()), "v": pa.array(vs, pa.string())})


def _of(table: _Table) -> Rows:
    table = dict(table)

    def rows(keys: pa.Table) -> tuple[Any, pa.Table]:
        asked = keys.column("k").to_pylist()
        which = [i for i, k in enumerate(asked) if k in table]
        return np.array(which, np.int64), _rows([(asked[i], table[asked[i]]) for i in which])

    return rows


def _apply(changes: pa.Table, rows: _Table) -> None:
    for change in changes.to_pylist():
        kind, k, v = change.values()
        if kind in ("-U", "-D"):
            assert rows.pop(k) == v
        else:
            assert k not in rows
            rows[k] = v


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", range(20))
def test_changes_lead_to_what_is_flushed_over_what_is_committed(seed: int) -> None:
    rng = random.Random(seed)
    normalizer, shown, table = Normalizer(_schema()), {}, {}
    pending: dict[str, list[tuple[int, str | None, int]]] = {}
    newest: dict[int, tuple[str, str | None, bool]] = {}  # by key: the newest flushed row, and its write
    for step in range(120):
        write = f"w{rng.randrange(4)}"
        drawn = rng.random()
        if drawn < 0.6:
            rows = [
                (rng.randrange(6), rng.choice(["a", "b", None]), rng.choice([0, 0, 1, 2, 3]))
                for _ in range(rng.randrange(1, 5))
            ]
            kinds = pa.array([kind for *_, kind in rows], pa.int8())
            _apply(normalizer.flushed(_rows([row[:2] for row in rows]), kinds, write, _of(table)), shown)
            pending.setdefault(write, []).extend(rows)
            newest |= {k: (write, v, kind in row_kind.RETRACTIONS) for k, v, kind in rows}
        elif drawn < 0.8:
            before = dict(table)
            for k, v, kind in pending.pop(write, []):
                table.pop(k, None)
                if kind not in row_kind.RETRACTIONS:
                    table[k] = v
            table[7] = f"{step}"  # a row that was not flushed
            told = _rows([(k, None) for k in {*before, *table}])
            _apply(normalizer.committed(told, {write}, _of(before), _of(table)), shown)
            newest = {k: one for k, one in newest.items() if one[0] != write}
        else:
            pending.pop(write, None)
            _apply(normalizer.dropped({write}, _of(table)), shown)
            newest = {k: one for k, one in newest.items() if one[0] != write}
        wanted = dict(table)
        for k, (_, v, gone) in newest.items():
            wanted.pop(k, None)
            if not gone:
                wanted[k] = v
        assert shown == wanted
        assert normalizer.writes == {write for write, *_ in newest.values()}
    _apply(normalizer.dropped(normalizer.writes, _of(table)), shown)
    assert shown == table


def test_a_key_that_is_repeated_has_its_row_or_is_gone() -> None:
    found = Normalizer(_schema()).repeated(_rows([(1, "x"), (2, "x"), (1, "y")]), _of({1: "a"}))
    assert found.to_pylist() == [{"_row_kind": "+U", "k": 1, "v": "a"}, {"_row_kind": "-D", "k": 2, "v": None}]
