"""What both publish: the changes of the same commits, and each other's changelogs, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow as pa

from tests.interop.engines import Fields, TableShape
from tests.interop.values import Row, arrow_schema, assert_same_rows, rows_of

from .histories import World

_FIELDS: Fields = (("k", "INT NOT NULL"), ("s", "INT"), ("v", "INT"), ("w", "STRING"))
_ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "ordered": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
    "vectors": {"deletion-vectors.enabled": "true"},
}
_COMMITS = 6


def _commit(random: Random, engine: str) -> tuple[pa.Table, list[str]]:
    """Rows of different keys, and their kinds.

    Two differences are chosen: late rows come back in Java once a delete is forgotten, and in partial-update the values
    of a delete show through the nulls of later rows. So these engines get no deletes.
    """
    keys = random.sample(range(8), random.randint(1, 6))
    rows = [
        {"k": key, "s": random.randrange(9), "v": random.randrange(5), "w": random.choice(["a", "b", None])}
        for key in keys
    ]
    deletes = engine in ("deduplicate", "vectors")
    kinds = [random.choice(["+I", "+U", "-D"]) if deletes else "+I" for _ in rows]
    return pa.Table.from_pylist(rows, arrow_schema(_FIELDS)), kinds


def _ours(world: World, name: str, start: int, end: int) -> list[Row]:
    """The changes of snapshots as we read them, their kinds as audit_log names them."""
    found = world.ours.table(name).changes(start, end).to_arrow()
    rows = rows_of(found.drop_columns(["_row_kind"]), _FIELDS)
    return [{"rowkind": kind, **row} for kind, row in zip(found["_row_kind"].to_pylist(), rows, strict=True)]


def _theirs(world: World, name: str, start: int, end: int) -> list[Row]:
    """The same as Java reads them."""
    options = {"incremental-between": f"{start - 1},{end}", "incremental-between-scan-mode": "changelog"}
    return world.java.read(f"{name}$audit_log", options=options)


def _newest(world: World, name: str) -> int:
    latest = world.ours.table(name).latest_snapshot()
    return 0 if latest is None else latest.id


def _shape(producer: str, engine: str, random: Random) -> TableShape:
    options = {"bucket": "1", "changelog-producer": producer} | dict(_ENGINES[engine])
    if random.random() < 0.5:
        options["changelog-producer.row-deduplicate"] = "true"
    if producer == "full-compaction":
        options["write-only"] = "true"
    return TableShape(_FIELDS, ("k",), (), options)


def _compacted(world: World, name: str, engine: Any) -> None:
    if engine is world.ours:
        world.ours.table(name).compact(full=True)
    else:
        world.java.compact(name, full=True)


def compare_changes(world: World, random: Random) -> None:
    """The same commits publish the same changes, whoever makes them; and each reads what the other has published."""
    for producer, engine in _combinations():
        shape = _shape(producer, engine, random)
        names = {f"db.ours_{producer}_{engine}": world.ours, f"db.theirs_{producer}_{engine}": world.java}
        names = {name.replace("-", "_"): client for name, client in names.items()}
        for name, client in names.items():
            client.create(name, shape)
        seen = dict.fromkeys(names, 0)
        for number in range(_COMMITS):
            rows, kinds = _commit(random, engine)
            found: list[list[Row]] = []
            for name, client in names.items():
                client.write(name, rows, kinds=kinds)
                if producer == "full-compaction" and number % 2:
                    _compacted(world, name, client)
                newest = _newest(world, name)
                words = f"{producer}, {engine}, commit {number} in {name}"
                found.append(_ours(world, name, seen[name] + 1, newest))
                if (producer, engine) != (
                    "input",
                    "vectors",
                ):  # of level 0 Java reads nothing there, changelogs included
                    assert_same_rows(_theirs(world, name, seen[name] + 1, newest), found[-1], f"Java reads of {words}")
                seen[name] = newest
            assert_same_rows(found[0], found[1], f"{producer}, {engine}: we publish of commit {number}")


def compare_shared_changelogs(world: World, random: Random) -> None:
    """Commits of both in one table: the changelog, replayed from its first row on, is the table."""
    for producer, engine in _combinations():
        if producer == "input":
            continue
        name = f"db.shared_{producer}_{engine}".replace("-", "_")
        random.choice([world.ours, world.java]).create(name, _shape(producer, engine, random))
        state: dict[int, Row] = {}
        seen = 0
        for number in range(_COMMITS):
            rows, kinds = _commit(random, engine)
            client = random.choice([world.ours, world.java])
            client.write(name, rows, kinds=kinds)
            if producer == "full-compaction":
                compactor = random.choice([world.ours, world.java])
                _compacted(world, name, compactor)
            newest = _newest(world, name)
            changes = _ours(world, name, seen + 1, newest)
            words = f"{producer}, {engine}, commit {number} by {client.name}"
            assert_same_rows(_theirs(world, name, seen + 1, newest), changes, f"Java reads of {words}")
            for change in changes:
                kind, row = change["rowkind"], {key: value for key, value in change.items() if key != "rowkind"}
                there = state.pop(row["k"], None)
                assert (kind in ("+I", "+U")) == (there is None), f"{words}: {kind} {row}, and {there} is there"
                if there is None:
                    state[row["k"]] = row
                else:
                    assert there == row, f"{words}: {kind} {row} takes {there}"
            seen = newest
            assert_same_rows(list(state.values()), world.ours.rows(name, _shape(producer, engine, random)), words)


def java_reads_what_each_row_changed(world: World, random: Random) -> None:
    """Our producer per-record is `input` to Java, which reads its changelog and follows it."""
    for engine in ("deduplicate", "ordered", "aggregation", "partial-update"):
        name = f"db.recorded_{engine}".replace("-", "_")
        world.ours.create(name, _shape("per-record", engine, random))
        for _ in range(_COMMITS):
            parts = [_commit(random, engine) for _ in range(2)]  # keys come twice
            rows = pa.concat_tables([part[0] for part in parts])
            world.ours.write(name, rows, kinds=[kind for part in parts for kind in part[1]])
        newest = _newest(world, name)
        assert_same_rows(_theirs(world, name, 1, newest), _ours(world, name, 1, newest), f"per-record, {engine}")


def _combinations() -> list[tuple[str, str]]:
    every = [(producer, engine) for producer in ("input", "lookup", "full-compaction") for engine in _ENGINES]
    refused = {("input", "first-row"), ("full-compaction", "first-row"), ("full-compaction", "vectors")}
    return [pair for pair in every if pair not in refused]
