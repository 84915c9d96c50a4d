"""Changes of tables whose keys move between partitions: a reader that applies them by primary key gets the table."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.scan.phases import phases_of
from merganser.schema import row_kind
from tests.kit.builders import catalog_over, memory_with
from tests.seeds import seeds

_names = itertools.count()
Row = dict[str, Any]
_SCHEMA = pa.schema([("k", pa.int32()), ("p", pa.string()), ("v", pa.int32()), ("op", pa.string())])
_KINDS = {"insert": "+I", "update_before": "-U", "update_after": "+U", "delete": "-D"}
_PRODUCERS = ("none", "input", "lookup", "full-compaction", "per-record")
_ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {"fields.v.aggregate-function": "sum", "aggregation.remove-record-on-delete": "true"},
    "first-row": {"ignore-delete": "true"},
}
_ALLOWED = [
    (engine, producer)
    for engine in _ENGINES
    for producer in _PRODUCERS
    if not (engine == "first-row" and producer in ("input", "full-compaction"))
]


@dataclass
class _ByKey:
    """A reader that knows the primary key and nothing of partitions.

    Attributes:
        rows: by key, the row that it has.
    """

    rows: dict[int, Row] = field(default_factory=dict)

    def take(self, changes: Iterable[Row], kind: str = "_row_kind") -> None:
        for change in changes:
            row = dict(change)
            sign = row.pop(kind)
            if _KINDS.get(sign, sign) in ("-U", "-D"):
                self.rows.pop(row["k"], None)
            else:
                self.rows[row["k"]] = {name: row[name] for name in ("k", "p", "v")}

    @property
    def places(self) -> dict[int, str]:
        return {key: row["p"] for key, row in self.rows.items()}


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"moving-changes-{next(_names)}"))
    catalog.create_database("db")
    chosen = {"dynamic-bucket.target-row-num": "2"} | options
    return catalog.create_table("db.t", "k INT, p STRING, v INT", ["k"], ["p"], chosen)


def _given(*rows: tuple[int, str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=_SCHEMA)


def _write(table: mg.Table, *rows: tuple[int, str, int, str]) -> None:
    table.write(_given(*rows), kinds="op")


_KIND_COLUMNS = {"audit_log": "rowkind", "changelog": "_change_type", "binlog": "rowkind"}
_WAYS = ("changes", "batches", "stream", "columns", *_KIND_COLUMNS)


def _read(table: mg.Table, way: str, first: int) -> list[Row]:
    """Return the changes from a snapshot on, read in one of several ways."""
    match way:
        case "changes":
            return table.changes(first).to_pylist()
        case "batches":
            return [row for batch in table.changes(first).to_batches() for row in batch.to_pylist()]
        case "stream":
            start = {"scan.snapshot-id": str(first)}
            plans = table.stream("from-snapshot", follow=False, **start)
            return [row for rows in plans if isinstance(rows, pa.Table) for row in rows.to_pylist()]
        case "columns":
            return table.changes(first, columns=["k", "p", "v"], where="v < 1000").to_pylist()
    last = table.snapshots()[-1].id
    rows = table.with_options({"incremental-between": f"{first - 1},{last}"}).system(way).to_pylist()
    if way == "binlog":
        rows = [{name: cell if name == "rowkind" else cell[-1] for name, cell in row.items()} for row in rows]
    return rows


@pytest.mark.campaign(1 / 12)
@pytest.mark.parametrize(("engine", "producer"), _ALLOWED)
@pytest.mark.parametrize("seed", seeds(1))
def test_changes_applied_by_key_make_the_table(engine: str, producer: str, seed: int) -> None:
    rng = random.Random(f"{engine} {producer} {seed}")
    options = _ENGINES[engine] | {"merge-engine": engine, "changelog-producer": producer}
    options["write-buffer-size"] = rng.choice(["1 b", "256 mb"])
    options["target-file-row-num"] = rng.choice(["3", "100000"])
    table = _table(**options)
    deletes = 0 if engine == "first-row" else rng.choice([0, 0.2])
    small = seed % 2 == 0
    readers = {way: _ByKey() for way in _WAYS}
    seen = 0
    with patch("merganser.scan.plan_changes.is_small", lambda file: small):
        for _ in range(rng.randrange(3, 6)):
            rows = [
                (rng.randrange(8), rng.choice("abc"), rng.randrange(9), "-D" if rng.random() < deletes else "+I")
                for _ in range(rng.choice([2, 6, 25]))
            ]
            with table.writer() as writer:
                for i in range(0, len(rows), 9):
                    writer.write(_given(*rows[i : i + 9]), kinds="op")
                writer.commit()
            if producer in ("lookup", "full-compaction") or rng.random() < 0.2:
                table.compact(full=producer == "full-compaction" or rng.random() < 0.5)
            expected = sorted(table.read().to_pylist(), key=lambda row: row["k"])
            whole = producer in ("lookup", "full-compaction") or engine == "deduplicate"
            for way, reader in readers.items():
                reader.take(_read(table, way, seen + 1), _KIND_COLUMNS.get(way, "_row_kind"))
                if whole:
                    assert sorted(reader.rows.values(), key=lambda row: row["k"]) == expected, way
                else:  # rows that are still to be merged
                    assert reader.places == {row["k"]: row["p"] for row in expected}, way
            seen = table.snapshots()[-1].id
    assert table.check() == ()


@pytest.mark.parametrize("producer", _PRODUCERS)
def test_a_key_that_moves_leaves_before_it_comes(producer: str) -> None:
    table = _table(**{"changelog-producer": producer})
    _write(table, (1, "b", 1, "+I"), (2, "a", 1, "+I"))
    table.compact(full=True)
    seen = table.snapshots()[-1].id
    _write(table, (1, "a", 2, "+I"), (2, "b", 2, "+I"))
    table.compact(full=True)
    found = [(row["_row_kind"], row["k"], row["p"]) for row in table.changes(seen + 1).to_pylist()]
    assert sorted(found[:2]) == [("-D", 1, "b"), ("-D", 2, "a")]
    assert sorted(found[2:]) == [("+I", 1, "a"), ("+I", 2, "b")]


def test_a_difference_of_two_states_begins_with_what_is_gone() -> None:
    table = _table()
    _write(table, (1, "b", 1, "+I"), (2, "b", 1, "+I"), (3, "a", 1, "+I"))
    _write(table, (1, "a", 2, "+I"), (2, "b", 2, "+I"), (3, "c", 2, "+I"), (4, "a", 2, "+I"))
    found = [(row["_row_kind"], row["k"], row["p"]) for row in table.changes(2, mode="diff").to_pylist()]
    assert sorted(found[:2]) == [("-D", 1, "b"), ("-D", 3, "a")]
    assert sorted(found[2:]) == [("+I", 1, "a"), ("+I", 3, "c"), ("+I", 4, "a"), ("+U", 2, "b"), ("-U", 2, "b")]
    assert [row["_row_kind"] for row in table.changes(2, mode="diff", where="k = 1").to_pylist()] == ["-D", "+I"]


def test_a_key_that_returns_to_a_partition_in_one_write_has_the_bucket_it_had() -> None:
    table = _table()
    _write(table, *((k, "b", 0, "+I") for k in range(3)))
    _write(table, (0, "a", 1, "+I"), (0, "b", 2, "+I"), (9, "c", 1, "+I"), (9, "b", 1, "+I"), (9, "a", 1, "+I"))
    found = {(file["partition"], file["bucket"]) for file in table.files().to_pylist() if "b" in str(file["partition"])}
    assert len(found) == 2
    assert table.check() == ()


def _orders(rng: random.Random) -> tuple[list[tuple[int, int, int]], dict[int, int]]:
    """Return rows (key, bucket, kind) of one snapshot, in their true order; and where keys lie afterwards."""
    at = {key: rng.randrange(3) for key in range(4) if rng.random() < 0.7}
    rows = []
    for _ in range(rng.randrange(12)):
        key, bucket = rng.randrange(4), rng.randrange(3)
        old = at.get(key)
        if old is not None and rng.random() < 0.2:
            rows.append((key, at.pop(key), row_kind.DELETE))
        elif old == bucket:
            before = [(key, bucket, row_kind.UPDATE_BEFORE)] if rng.random() < 0.5 else []
            rows += [*before, (key, bucket, row_kind.UPDATE_AFTER)]
        else:
            leaves = [] if old is None else [(key, old, rng.choice([row_kind.DELETE, row_kind.UPDATE_BEFORE]))]
            rows += [*leaves, (key, bucket, row_kind.INSERT)]
            at[key] = bucket
    return rows, at


@pytest.mark.parametrize("seed", seeds(1))
def test_phases_bring_each_key_to_where_it_lies(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        _check_phases(rng)


def _check_phases(rng: random.Random) -> None:
    rows, at = _orders(rng)
    rows.sort(key=lambda row: row[1])  # as files have them: bucket by bucket
    if not rows:
        return
    keys, buckets, kinds = (np.array(column) for column in zip(*rows, strict=True))
    phases = phases_of([pa.chunked_array([pa.array(keys)])], kinds.astype(np.int8), buckets.astype(np.int64))
    known = {key: at[key] for key in at if key not in keys}
    for i in np.argsort(phases, kind="stable"):
        key, bucket, kind = rows[i]
        if kind & 1:
            known.pop(key, None)
        else:
            known[key] = bucket
    assert known == at
    for key in set(keys.tolist()):
        own = [(int(phases[i]), rows[i][1], rows[i][2]) for i in range(len(rows)) if rows[i][0] == key]
        pure = all(len({kind & 1 for _, b, kind in own if b == bucket}) == 1 for bucket in {b for _, b, _ in own})
        if pure:  # it only left some buckets, and only came to others
            assert max((p for p, _, kind in own if kind & 1), default=-1) < min(
                (p for p, _, kind in own if not kind & 1), default=3
            )
