"""Rows that compactions drop because of their age: which, when, and that nothing older comes to light."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.meta.schemas import SchemaStore
from merganser.schema import types as t
from tests.kit.builders import catalog_over, memory_with
from tests.unit.lsm.test_changelog_histories import ENGINES, SEEDS, Replay

_names = itertools.count()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = EPOCH + timedelta(seconds=1_700_000_100, milliseconds=999)
KEPT_S, GONE_S = 1_700_000_000, 1_699_999_999
"""With 100 seconds to live the oldest time that is kept, and the newest that is not: now is whole seconds."""


def _table(kind: str, now: datetime = NOW, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"expiry-{next(_names)}"), clock=lambda: now)
    catalog.create_database("db")
    every = {"bucket": "1", "write-only": "true", "record-level.expire-time": "100 s", "record-level.time-field": "at"}
    return catalog.create_table(
        "db.t", {"k": "INT", "at": kind, "v": "STRING"}, primary_key=["k"], options=every | options
    )


def _later(table: mg.Table, now: datetime) -> mg.Table:
    return catalog_over(table.env.storage, clock=lambda: now).table("db.t")


def _keys(table: mg.Table) -> list[int]:
    return sorted(row["k"] for row in table.read().to_pylist())


def _stamp(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("kind", "kept", "gone"),
    [
        ("INT", [KEPT_S, 2**31 - 1], [GONE_S, 0, -(2**31)]),
        (
            "BIGINT",
            [KEPT_S, KEPT_S * 1000, 999_999_999_999, 2**63 - 1],
            [GONE_S, GONE_S * 1000 + 999, -(2**63), 10**12],
        ),
        ("TIMESTAMP(0)", [_stamp(KEPT_S)], [_stamp(GONE_S)]),
        ("TIMESTAMP(3)", [_stamp(KEPT_S)], [_stamp(GONE_S + 0.999), _stamp(-1.5)]),
        ("TIMESTAMP(6)", [_stamp(KEPT_S)], [_stamp(GONE_S + 0.999999)]),
        ("TIMESTAMP(9)", [_stamp(KEPT_S)], [_stamp(GONE_S)]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [_stamp(KEPT_S)], [_stamp(GONE_S)]),
    ],
)
def test_a_row_stays_while_its_time_and_the_time_to_live_are_not_over(
    kind: str, kept: list[Any], gone: list[Any]
) -> None:
    table = _table(kind)
    zone = UTC if "ZONE" in kind else None
    times = [time.replace(tzinfo=zone) if isinstance(time, datetime) else time for time in [None, *kept, *gone]]
    table.write([{"k": k, "at": time, "v": "x"} for k, time in enumerate(times)])
    assert len(_keys(table)) == len(times)
    table.compact(full=True)
    assert _keys(table) == list(range(1 + len(kept)))


def test_rows_that_grow_old_at_the_highest_level_are_dropped_there() -> None:
    table = _table("INT", **{"target-file-row-num": "2"})
    table.write([{"k": k, "at": KEPT_S + 10 * k, "v": "x"} for k in range(6)])
    table.compact(full=True)
    before = {file["file_path"]: file["level"] for file in table.files().to_pylist()}
    later = _later(table, NOW + timedelta(seconds=25))
    assert later.compact(full=True) is not None
    assert _keys(later) == [3, 4, 5]
    after = {file["file_path"]: file["level"] for file in later.files().to_pylist()}
    assert set(after.values()) == set(before.values()) == {5}
    assert len(set(after) & set(before)) == 1, "the file that holds no old row is not rewritten"
    assert later.compact(full=True) is None
    assert later.check() == ()


def test_a_large_file_with_old_rows_is_rewritten_rather_than_moved() -> None:
    table = _table("INT", **{"target-file-size": "1 b"})
    table.write([{"k": 1, "at": KEPT_S, "v": "x"}, {"k": 2, "at": GONE_S, "v": "x"}])
    table.compact(full=True)
    assert [file["record_count"] for file in table.files().to_pylist()] == [1]


def test_a_file_of_which_statistics_say_nothing_is_not_rewritten_for_its_age() -> None:
    table = _table("INT", **{"metadata.stats-mode": "none"})
    table.write([{"k": 1, "at": KEPT_S, "v": "x"}])
    table.compact(full=True)
    later = _later(table, NOW + timedelta(days=1))
    assert later.compact(full=True) is None
    later.write([{"k": 2, "at": KEPT_S + 10**6, "v": "x"}])
    later.compact(full=True)
    assert _keys(later) == [2]


@pytest.mark.parametrize(
    ("before", "after", "old"),
    [
        ("DATE", t.Timestamp(3), date(2020, 1, 1)),
        ("STRING", t.Timestamp(3), "2020-01-01 00:00:00"),
        ("DOUBLE", t.Int(), 15.5),
        ("BIGINT", t.Timestamp(3), 15),
    ],
)
def test_old_rows_of_a_column_that_told_no_time_before_go_when_their_file_is_rewritten(
    before: str, after: t.DataType, old: Any
) -> None:
    catalog = catalog_over(memory_with({}, f"expiry-{next(_names)}"), clock=lambda: NOW)
    catalog.create_database("db")
    table = catalog.create_table(
        "db.changed", {"k": "INT", "at": before}, primary_key=["k"], options={"bucket": "1", "write-only": "true"}
    )
    table.write([{"k": 1, "at": old}, {"k": 2, "at": None}])
    table.compact(full=True)
    schema = table.schema
    fields = tuple(replace(field, type=after) if field.name == "at" else field for field in schema.fields)
    options = schema.options.merged({"record-level.expire-time": "100 s", "record-level.time-field": "at"})
    changed = replace(schema, id=1, fields=fields, options=options)
    SchemaStore(table.definition.paths, table.env).create(changed)
    table = catalog_over(table.env.storage, clock=lambda: NOW).table("db.changed")
    assert table.compact(full=True) is None, "statistics of values that were no times say nothing"
    table.write([{"k": 3, "at": None}])
    table.compact(full=True)
    assert _keys(table) == [2, 3]


def test_an_old_version_does_not_come_to_light_when_the_newest_grows_too_old() -> None:
    options = {"num-sorted-run.compaction-trigger": "3", "compaction.size-ratio": "50"}
    table = _table("INT", **options)
    table.write([{"k": k, "at": KEPT_S, "v": f"{k * 2654435761 % 2**40:x}"} for k in range(5000)])
    table.compact(full=True)
    table.write([{"k": 7, "at": KEPT_S + 1, "v": "new"}])
    table.write([{"k": 8, "at": KEPT_S + 1, "v": "new"}])
    later = _later(table, NOW + timedelta(days=1))
    assert later.compact() is not None
    assert {file["level"] for file in later.files().to_pylist()} == {2, 3}
    assert [row["v"] for row in later.read(where="k = 7").to_pylist()] == ["new"]
    later.compact(full=True)
    assert later.read().count() == 0


def test_nothing_but_compaction_hides_old_rows() -> None:
    table = _table("INT")
    table.write([{"k": 1, "at": 0, "v": "x"}])
    assert _keys(table) == [1]
    assert _keys(_later(table, NOW + timedelta(days=9))) == [1]


def test_a_merged_row_is_made_of_the_versions_that_are_not_too_old() -> None:
    engine = {"merge-engine": "partial-update"}
    table = _table("INT", **engine)
    table.write([{"k": 1, "at": GONE_S, "v": "old"}])
    table.write([{"k": 1, "at": KEPT_S, "v": None}])
    table.compact(full=True)
    assert table.read().to_pylist() == [{"k": 1, "at": KEPT_S, "v": None}]


def test_a_first_row_that_is_too_old_keeps_later_ones_out_while_it_is_there() -> None:
    table = _table("INT", **{"merge-engine": "first-row", "write-only": "false"})
    rows = [{"k": k, "at": KEPT_S, "v": f"{k * 2654435761 % 2**40:x}"} for k in range(5000)]
    table.write(rows)
    fresh = KEPT_S + 10**6
    later = _later(table, NOW + timedelta(days=1))
    later.write([{"k": 1, "at": fresh, "v": "late"}, {"k": 5000, "at": fresh, "v": "first"}])
    assert {file["level"] for file in later.files().to_pylist()} == {4, 5}
    assert later.read(where="k = 1").to_pylist() == rows[1:2]
    later.compact(full=True)
    assert _keys(later) == [5000]


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("seed", SEEDS[:1] if range(4) == SEEDS else SEEDS)
@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "first-row"])
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_the_changelog_says_which_rows_grew_too_old(producer: str, engine: str, seed: int) -> None:
    """The replay is strict, and the table after every compaction that publishes."""
    rng = random.Random(f"expiry {producer} {engine} {seed}")
    storage = memory_with({}, f"expiry-{next(_names)}")
    options = {"bucket": "2", "changelog-producer": producer, "target-file-row-num": rng.choice(["2", "1000"])}
    options |= {"record-level.expire-time": "10 s", "record-level.time-field": "s"} | ENGINES[engine]
    options["num-sorted-run.compaction-trigger"] = rng.choice(["2", "5"])
    if rng.random() < 0.5:
        options["changelog-producer.row-deduplicate"] = "true"
    now = 1_000
    catalog = catalog_over(storage, clock=lambda: _stamp(now))
    catalog.create_database("db")
    columns = {"p": "STRING", "k": "INT", "s": "INT", "v": "INT"}
    table = catalog.create_table("db.t", columns, primary_key=["p", "k"], options=options)
    replay, last = Replay(), 0
    for _ in range(12):
        now += rng.choice([0, 0, 5, 12])
        rows = [
            {"p": "a", "k": rng.randrange(8), "s": now - rng.choice([0, 1, 8, 11]), "v": rng.randrange(4)}
            for _ in range(rng.randrange(8))
        ]
        kinds = [rng.choice(("+I", "+U") if engine == "groups" else ("+I", "+U", "-D")) for _ in rows]
        with patch("merganser.lsm.section.WINDOW_ROWS", rng.choice([1, 3, 65_536])):
            _later(table, _stamp(now)).write(rows, kinds=kinds)
            if rng.random() < 0.5:
                _later(table, _stamp(now)).compact(full=True)
        newest = max((snapshot.id for snapshot in table.snapshots()), default=0)
        if newest > last:
            replay.take(table.changes(last + 1, newest).to_pylist())
        last = newest
        shown = table.read().to_pylist()
        assert sorted(map(str, replay.rows.values())) == sorted(map(str, shown))
    assert table.check() == ()


def test_a_row_that_grew_too_old_is_published_as_gone_once_and_not_in_first_row_tables() -> None:
    for engine, kinds in (("deduplicate", ["+I", "-D", "+I"]), ("first-row", ["+I", "+I"])):
        table = _table("INT", **{"changelog-producer": "lookup", "merge-engine": engine, "write-only": "false"})
        table.write([{"k": 1, "at": KEPT_S, "v": "x"}, {"k": 2, "at": GONE_S, "v": "never shown"}])
        later = _later(table, NOW + timedelta(seconds=1))
        later.compact(full=True)
        later.write([{"k": 1, "at": KEPT_S + 1, "v": "y"}])
        assert [row["_row_kind"] for row in later.changes().to_pylist() if row["k"] == 1] == kinds
