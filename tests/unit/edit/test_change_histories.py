"""Random histories of writes, deletes, updates and compactions, held against rows in a list; and their changelogs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.seeds import seeds
from tests.unit.edit.change_oracle import COLUMNS, Row, assignment, condition, merging, replayed, row

TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"},
    "per-record": {"changelog-producer": "per-record"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors that wait": {"deletion-vectors.enabled": "true", "write-only": "true"},
    "by version": {"sequence.field": "n"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "partial-update lookup": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
        "changelog-producer": "lookup",
    },
    "partial-update in files": {"merge-engine": "partial-update"},
    "partial-update vectors in files": {"merge-engine": "partial-update", "deletion-vectors.enabled": "true"},
    "partial-update waits in files": {
        "merge-engine": "partial-update",
        "deletion-vectors.enabled": "true",
        "write-only": "true",
    },
    "aggregation in files": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "counting": {"write-mode": "change-log"},
    "append": {},
    "append vectors": {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    "append buckets": {"bucket": "2", "bucket-key": "k"},
}
EXACT = ("input", "lookup", "full-compaction", "per-record", "partial-update lookup", "counting")


def _made(path: Path, kind: str, rng: random.Random) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    parted = rng.random() < 0.6
    counting = kind == "counting" or kind.startswith("append")
    any_bucket = kind in ("deduplicate", "vectors") or kind.endswith("in files")
    buckets = ["1", "3", "-1", "-2"] if any_bucket else ["1", "3"]
    bucket = "1" if kind == "counting" else "-1" if counting else rng.choice(buckets)
    moves = parted and bucket == "-1" and rng.random() < 0.5  # a key has one row in all partitions
    options = {"bucket": bucket, "file.format": rng.choice(["parquet", "parquet", "orc", "avro"]), **TABLES[kind]}
    return catalog.create_table(
        "db.t",
        COLUMNS,
        primary_key=None if counting else ["p", "k"] if parted and not moves else ["k"],
        partition_by=["p"] if parted else [],
        options=options,
    )


def _history(seed: int, kind: str, path: Path) -> None:
    rng = random.Random(f"{seed} {kind}")
    table, rows = _made(path, kind, rng), list[Row]()
    counting = kind == "counting" or kind.startswith("append")
    partial, adds, in_files = kind.startswith("partial-update"), kind.startswith("aggr"), kind.endswith("in files")
    waits = "wait" in kind
    for step in range(8):
        message = f"seed {seed}, {kind}, step {step}"
        expected: Any = None
        match rng.choice(["write", "write", "delete", "update", "update", "merge", "merge", "compact"]):
            case "write":
                new = {r["k"]: r for r in (row(rng) for _ in range(rng.choice([1, 10, 40])))}
                if counting:
                    rows += new.values()
                elif kind != "by version":
                    there = {r["k"] for r in rows}
                    if kind == "input":  # what an input is to publish in full has to be new
                        new = {k: r for k, r in new.items() if k not in there}
                    written = dict(new)
                    if partial or adds:
                        old = {r["k"]: r for r in rows}
                        new = {
                            k: {**r, **{c: old[k][c] for c in r if k in old and r[c] is None}} for k, r in new.items()
                        }
                    if adds:
                        new = {k: {**r, "n": r["n"] + old[k]["n"] if k in old else r["n"]} for k, r in new.items()}
                    rows = [r for r in rows if r["k"] not in new] + list(new.values())
                    new = written
                else:
                    old = {r["k"]: r for r in rows}
                    newer = {k: r for k, r in new.items() if k not in old or r["n"] >= old[k]["n"]}
                    rows = [r for r in rows if r["k"] not in newer] + list(newer.values())
                table.write(list(new.values()))
                if waits:
                    continue
            case "delete":
                if kind == "by version":
                    continue  # a later row that is older by its version stays away
                where = condition(rng)
                gone = [r for r in rows if where.holds(r)]
                rows = [r for r in rows if not where.holds(r)]
                found = table.delete(where.sql)
                expected = (0, 0, len(gone))
                message += f": DELETE {where.sql}"
            case "update":
                if adds:
                    continue
                where = condition(rng)
                sets, of = assignment(rng, nulls=not partial)
                if kind == "by version":
                    sets, of = {"b": "'new'"}, lambda r: {**r, "b": "new"}
                after = [of(r) if where.holds(r) else r for r in rows]
                found = table.update(where.sql, sets)
                expected = (0, sum(a != b for a, b in zip(rows, after, strict=True)), 0)
                rows = after
                message += f": UPDATE {where.sql} {sets}"
            case "merge":
                if kind in ("counting", "by version") or adds:
                    continue
                merge = merging(rng)
                if in_files and merge.deletes:
                    continue
                rows, expected = merge.applied(rows)
                found = merge.run(table)
                message += f": {merge}"
            case "compact":
                table.with_options({"write-only": "false"}).compact(full=rng.random() < 0.5)
                continue
        if expected is not None:
            _counted(table, found, expected, message)
        if not waits:
            assert sorted(map(repr, table.read().to_pylist())) == sorted(map(repr, rows)), message
    if waits:
        table.with_options({"write-only": "false"}).compact(full=True)
        assert sorted(map(repr, table.read().to_pylist())) == sorted(map(repr, rows)), f"seed {seed}, {kind}"
    if kind in EXACT and table.latest_snapshot() is not None:
        seen = [change for batch in table.changes().to_batches() for change in batch.to_pylist()]
        assert sorted(map(repr, replayed(seen))) == sorted(map(repr, rows)), f"seed {seed}, {kind}"
    assert [found for found in table.check() if found.is_fault] == [], f"seed {seed}, {kind}"


def _counted(table: mg.Table, found: mg.Snapshot | None, expected: tuple[int, int, int], message: str) -> None:
    if expected == (0, 0, 0):
        assert found is None, message
        return
    assert found is not None, message
    counts = (found.rows_inserted, found.rows_updated, found.rows_deleted)
    assert counts == expected or counts == (0, 0, None), message
    stored = next(each for each in table.snapshots() if each.id == found.id)
    assert stored == found, message
    assert (stored.rows_inserted, stored.rows_updated, stored.rows_deleted) == counts, message


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("seed", seeds(1))
def test_deletes_and_updates_leave_what_a_list_of_rows_says(seed: int, kind: str, tmp_path: Path) -> None:
    _history(seed, kind, tmp_path)
