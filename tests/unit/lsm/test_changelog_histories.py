"""Random histories: the changelog, replayed from its first row on, is exactly the table, for every producer and engine.

The replay is strict: a +I needs an absent key, and a -U or -D takes away just the row that is there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg

SEEDS = range(*(int(number) for number in os.environ.get("MERGANSER_CHANGELOG_SEEDS", "0:4").split(":")))
Row = dict[str, Any]

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "ignoring deletes": {"ignore-delete": "true"},
    "ordered": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "groups": {"merge-engine": "partial-update", "fields.s.sequence-group": "v"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
KINDS = {"first-row": ("+I",), "groups": ("+I", "+U")}


@pytest.fixture
def copied() -> Iterator[ExitStack]:
    """Patches that hold for one test."""
    with ExitStack() as stack:
        yield stack


def _write(rng: random.Random, engine: str, table: mg.Table) -> None:
    rows = [
        {"p": rng.choice("ab"), "k": rng.randrange(7), "s": rng.randrange(9), "v": rng.choice([None, 1, 2, 3])}
        for _ in range(rng.randrange(1, 12))
    ]
    kinds = [rng.choice(KINDS.get(engine, ("+I", "+I", "+U", "-D"))) for _ in rows]
    if engine == "aggregation":
        for row in rows:
            row["v"] = row["v"] or 0
    table.write(rows, kinds=kinds)


def _compact(rng: random.Random, table: mg.Table, *, full: bool = False) -> None:
    with patch("merganser.lsm.section.WINDOW_ROWS", rng.choice([1, 3, 65_536])):
        table.compact(full=full or rng.random() < 0.5)


def _with_other_levels(rng: random.Random, table: mg.Table) -> mg.Table:
    """Return the table with another highest level, by itself or for one handle."""
    key, value = rng.choice(
        [("num-levels", rng.choice("236")), ("num-sorted-run.compaction-trigger", rng.choice("258"))]
    )
    if rng.random() < 0.5:
        return table.with_options({key: value})
    return table.alter([mg.changes.set_option(key, value)])


class Replay:
    """The state that a changelog makes."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Row] = {}

    def take(self, changes: list[Row]) -> None:
        for row in changes:
            kind = row.pop("_row_kind")
            key = row["p"], row["k"]
            if kind == "+I":
                assert key not in self.rows, f"{row} is inserted twice"
                self.rows[key] = row
            elif kind == "+U":
                assert key not in self.rows
                self.rows[key] = row
            else:
                assert self.rows.pop(key, None) == row, f"{kind} {row} is not what was there"


def _table(path: Path, producer: str, engine: str, rng: random.Random, **more: str) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "2", "changelog-producer": producer} | ENGINES[engine] | more
    options["num-sorted-run.compaction-trigger"] = rng.choice(["2", "5"])
    options["target-file-row-num"] = rng.choice(["3", "1000"])
    if producer not in ("none", "input") and rng.random() < 0.5:
        options["changelog-producer.row-deduplicate"] = "true"
    return catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "s": "INT", "v": "INT"},
        primary_key=["p", "k"],
        partition_by=rng.choice([[], ["p"]]),
        options=options,
    )


def _state(table: mg.Table) -> dict[tuple[Any, ...], Row]:
    return {(row["p"], row["k"]): row for row in table.read().to_pylist()}


@pytest.mark.campaign(1 / 20)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_producer_lookup_publishes_every_commit_exactly(
    engine: str, vectors: bool, seed: int, tmp_path: Path, copied: ExitStack
) -> None:
    if vectors and engine == "first-row":
        return
    rng = random.Random(f"lookup {engine} {seed} {vectors}")
    table = _table(tmp_path, "lookup", engine, rng, **({"deletion-vectors.enabled": "true"} if vectors else {}))
    table = table.with_options({"lookup.cache-directory": str(tmp_path / "copies")})
    replay, seen = Replay(), 0
    streams: list[tuple[Any, Replay]] = []
    if rng.random() < 0.5:  # files are as large as those of which copies are made while they are written
        copied.enter_context(patch("merganser.lsm.held._SMALL_ROWS", -1))
        copied.enter_context(patch("merganser.lsm.lookup_copy._BATCH_BYTES", 150))
    for _ in range(12):
        if rng.random() < 0.2:
            table = _with_other_levels(rng, table)
        if rng.random() < 0.3:
            streams.append((table.stream(follow=False), Replay()))
        alone = rng.random() < 0.8
        if not alone:
            _write(rng, engine, table.with_options({"write-only": "true"}))
        _write(rng, engine, table)
        if not alone or rng.random() < 0.3:  # a writer that leaves compaction to others publishes nothing by itself
            _compact(rng, table)
        newest = table.snapshots()[-1].id
        replay.take(table.changes(seen + 1, newest).to_pylist())
        seen = newest
        assert replay.rows == _state(table)
        for stream, state in streams:
            for plan in stream:
                state.take(plan.to_pylist())
            assert state.rows == replay.rows
    assert table.check() == ()


@pytest.mark.campaign(1 / 10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "first-row"])
def test_the_producer_full_compaction_publishes_what_changed_since_the_last_one(
    engine: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"full {engine} {seed}")
    seldom = rng.choice([{"changelog-producer.compaction-interval": "1 d"}, {"write-only": "true"}, {}])
    table = _table(tmp_path, "full-compaction", engine, rng, **seldom)
    replay, seen = Replay(), 0
    streams: list[tuple[Any, Replay]] = []
    for _ in range(10):
        for _ in range(rng.randrange(4)):
            if rng.random() < 0.2:
                table = _with_other_levels(rng, table)
            if rng.random() < 0.2:
                streams.append((table.stream(follow=False), Replay()))
            _write(rng, engine, table)
            if rng.random() < 0.2:
                _compact(rng, table)
        _compact(rng, table, full=True)
        newest = max((snapshot.id for snapshot in table.snapshots()), default=0)
        if newest:
            replay.take(table.changes(seen + 1, newest).to_pylist())
        seen = newest
        assert replay.rows == _state(table)
        for stream, state in streams:
            for plan in stream:
                state.take(plan.to_pylist())
            assert state.rows == replay.rows
    assert table.check() == ()


def test_the_producer_full_compaction_publishes_every_commit_unless_an_interval_is_set(tmp_path: Path) -> None:
    table = _table(tmp_path, "full-compaction", "deduplicate", random.Random(0))
    row = {"p": "a", "k": 1, "s": 1, "v": 1}
    published = []
    for options in ({}, {}, {"changelog-producer.compaction-interval": "1 d"}, {}):
        row["v"] += 1
        snapshot = table.with_options(options).write([row])
        assert snapshot is not None
        published.append([(change["_row_kind"], change["v"]) for change in table.changes(snapshot.id).to_pylist()])
    assert published == [[("+I", 2)], [("-U", 2), ("+U", 3)], [], [("-U", 3), ("+U", 5)]]


def test_lookups_cannot_be_turned_on_for_one_handle_of_a_table_that_adds_up(tmp_path: Path) -> None:
    table = _table(tmp_path, "none", "aggregation", random.Random(0))
    for options in ({"changelog-producer": "lookup"}, {"force-lookup": "true"}):
        with pytest.raises(mg.errors.InvalidInputError, match="decides how data is stored"):
            table.with_options(options)
    assert table.with_options({"changelog-producer": "input"}).options["changelog-producer"] == "input"


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction", "per-record"])
def test_one_handle_cannot_leave_changes_out_of_a_changelog_that_others_follow(producer: str, tmp_path: Path) -> None:
    table = _table(tmp_path, producer, "deduplicate", random.Random(0))
    stored = table.options["changelog-producer"]
    other = "input" if stored == "lookup" else "lookup"
    for options in ({"changelog-producer": "none"}, {"changelog-producer": other}, {"changelog.image": "wal"}):
        with pytest.raises(mg.errors.InvalidInputError, match="can only be changed on the table itself"):
            table.with_options(options)
    same = table.with_options({"changelog-producer": stored})
    same.write([{"p": "a", "k": 1, "s": 1, "v": 1}])
    assert [row["_row_kind"] for row in table.changes(1).to_pylist()] == ["+I"]
