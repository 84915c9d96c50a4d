"""Deletion vectors turned on for a table that has rows: no version of a row is seen twice, and none is lost."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError
from merganser.meta.schemas import SchemaStore
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
ENABLED = "deletion-vectors.enabled"
NEVER = {"num-sorted-run.compaction-trigger": "99", "num-levels": "6"}


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"turned-on-{next(_names)}"))
    catalog.create_database("db")
    schema = {"k": "INT", "n": "INT", "m": "INT", "pad": "STRING"}
    return catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "1", **options})


def _again(table: mg.Table, **options: str) -> mg.Table:
    return catalog_over(table.env.storage).table("db.t").with_options(options)


def _altered(table: mg.Table, **options: str | None) -> mg.Table:
    """Return the table, opened anew, after another engine has changed its options."""
    store = SchemaStore(table.definition.paths, table.env)
    newest = store.latest()
    assert newest is not None
    store.create(replace(newest, id=newest.id + 1, options=newest.options.merged(options)))
    return _again(table)


def _turned_on(table: mg.Table) -> mg.Table:
    return _altered(table, **{ENABLED: "true"})


def _row(k: int, n: int, m: int | None = None, size: int = 0) -> dict[str, Any]:
    return {"k": k, "n": n, "m": m, "pad": random.Random(k).randbytes(size).hex()}


def _rows(table: mg.Table, **how: Any) -> dict[int, tuple[int, int | None]]:
    rows = table.read(columns=["k", "n", "m"], **how).to_pylist()
    assert len(rows) == len({row["k"] for row in rows})
    return {row["k"]: (row["n"], row["m"]) for row in rows}


def _levels(table: mg.Table) -> list[int]:
    return sorted(table.files().column("level").to_pylist())


def _two_levels(**options: str) -> mg.Table:
    """A table without vectors with keys 0 to 9 at the highest level, and newer rows of 3, 5 and 20 above them."""
    table = _table(**NEVER, **options)
    table.write([_row(k, 0, size=2000) for k in range(10)])
    table.compact(full=True)
    table.write([_row(k, 1, size=500) for k in (3, 5, 20)])
    forced = _again(table, **{"compaction.force-up-level-0": "true"})
    forced.compact()
    assert _levels(table) == [4, 5]
    return table


NEWEST = {k: (1 if k in (3, 5, 20) else 0, None) for k in (*range(10), 20)}


def test_one_reader_or_writer_cannot_turn_vectors_on_for_itself() -> None:
    table = _two_levels()
    with pytest.raises(InvalidInputError, match=ENABLED):
        table.with_options({ENABLED: "true"})
    assert _rows(table) == NEWEST


def test_versions_at_several_levels_are_merged_until_somebody_marks_them() -> None:
    table = _turned_on(_two_levels())
    assert _rows(table) == NEWEST
    assert not any(split.raw for split in table.read().plan().splits)
    assert _rows(table, where="k = 5") == {5: (1, None)}
    assert _rows(table, where="n = 0") == {k: row for k, row in NEWEST.items() if row[0] == 0}
    assert table.read().count() == len(NEWEST)
    table.compact(full=True)
    assert _levels(table) == [5]
    assert _rows(table) == NEWEST
    assert all(split.raw for split in table.read().plan().splits)


def test_rows_of_level_0_stay_in_sight_and_those_that_come_later_wait() -> None:
    table = _table(**NEVER)
    table.write([_row(k, 0) for k in range(4)])
    table.write([_row(1, 1)])
    table = _turned_on(table)
    expected = {0: (0, None), 1: (1, None), 2: (0, None), 3: (0, None)}
    assert _rows(table) == expected
    assert "unseen" not in table.read().explain()
    _again(table, **{"write-only": "true"}).write([_row(2, 2)])
    assert _rows(table) == expected
    assert "unseen     1 file" in table.read().explain()
    table.compact()
    assert _rows(table) == expected | {2: (2, None)}


def test_the_compaction_that_follows_a_write_marks_what_nobody_had_marked() -> None:
    table = _turned_on(_two_levels())
    table.write([_row(3, 2, size=300), _row(9, 2)])
    assert _rows(table) == NEWEST | {3: (2, None), 9: (2, None)}
    table.write([_row(5, 0)], kinds=["-D"])
    expected = {k: row for k, row in NEWEST.items() if k != 5} | {3: (2, None), 9: (2, None)}
    assert _rows(table) == expected
    table.compact(full=True)
    assert _rows(table) == expected


def test_a_delete_at_a_level_between_does_not_go_before_what_it_deletes() -> None:
    table = _table(**NEVER)
    table.write([_row(k, 0, size=3000) for k in range(10)])
    table.compact(full=True)
    table.write([_row(5, 0, size=300), _row(6, 1, size=300)], kinds=["-D", "+I"])
    _again(table, **{"compaction.force-up-level-0": "true"}).compact()
    assert _levels(table) == [4, 5]
    table = _turned_on(table)
    table.write([_row(k, 2, size=400) for k in range(20, 24)])  # level 4 is taken in, and level 5 is not
    assert max(_levels(table)) == 5
    expected = {k: (0, None) for k in range(10) if k not in (5, 6)} | {6: (1, None)}
    assert _rows(table) == expected | dict.fromkeys(range(20, 24), (2, None))


def test_vectors_that_were_off_for_a_while_are_not_trusted_from_before() -> None:
    table = _table(**NEVER, **{ENABLED: "true"})
    table.write([_row(k, 0, size=2000) for k in range(10)])
    _again(table, **{"write-only": "true"}).write([_row(5, 1, size=300)])  # of the schema with vectors, and waiting
    off = _altered(table, **{ENABLED: "false"})
    _again(off, **{"compaction.force-up-level-0": "true"}).compact()
    table = _turned_on(off)
    assert _levels(table) == [4, 5]
    assert _rows(table) == {k: (1 if k == 5 else 0, None) for k in range(10)}


def test_a_process_that_has_not_heard_of_it_goes_on_writing_and_nothing_is_seen_twice() -> None:
    slow = _two_levels()
    table = _turned_on(slow)
    table.write([_row(3, 2, size=300)])
    slow.write([_row(4, 3), _row(3, 3)])
    expected = NEWEST | {3: (3, None), 4: (3, None)}
    assert _rows(_again(table)) == expected
    assert _rows(slow) == expected
    _again(table).compact(full=True)
    assert _rows(_again(table)) == expected


def test_a_schema_in_between_that_is_gone_counts_as_one_without_vectors() -> None:
    table = _turned_on(_table(**NEVER, **{ENABLED: "true"}))
    table.write([_row(k, 0, size=2000) for k in range(10)])
    table.write([_row(5, 1, size=300)])
    table = _turned_on(_turned_on(table))
    assert all(split.raw for split in table.read().plan().splits)
    table.env.storage.delete([table.definition.paths.schema(2)])
    again = _again(table)
    assert not any(split.raw for split in again.read().plan().splits)
    assert _rows(again) == {k: (1 if k == 5 else 0, None) for k in range(10)}
    table.env.storage.replace(table.definition.paths.schema(2), b"{")
    with pytest.raises(FormatError):
        _rows(_again(table))


MODES = {
    "the newest row": {},
    "the largest of a column": {"sequence.field": "m"},
    "sums": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "parts of rows": {"merge-engine": "partial-update"},
}


def _applied(mode: str, held: tuple[int, int | None] | None, row: dict[str, Any]) -> tuple[int, int | None]:
    n, m = row["n"], row["m"]
    if held is None:
        return n, m
    if mode == "the largest of a column":
        return (n, m) if m >= held[1] else held
    if mode == "sums":
        return held[0] + n, held[1] if m is None else m
    if mode == "parts of rows":
        return n, held[1] if m is None else m
    return n, m


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_histories_in_which_vectors_come_and_go_end_as_the_rows_written(mode: str, seed: int) -> None:
    rng = random.Random(f"{mode} {seed}")
    trigger = rng.choice(["3", "5", "99"])
    table = _table(**MODES[mode], **{"num-sorted-run.compaction-trigger": trigger, "num-levels": "6"})
    handles = [table]
    wanted: dict[int, tuple[int, int | None]] = {}
    merged = marked = 0
    for step in range(26):
        if step == 4 or (step > 4 and rng.random() < 0.2):
            handles.append(_altered(table, **{ENABLED: rng.choice(["true", "false"]) if step > 4 else "true"}))
            assert _rows(handles[-1]) == wanted
            merged += not all(split.raw for split in handles[-1].read().plan().splits)
        newest = handles[-1]
        on = newest.options.get(ENABLED) == "true"
        writer = newest if rng.random() < 0.7 else rng.choice(handles)
        keys = rng.sample(range(30), rng.choice([1, 3, 5]) if step else 30)
        size = rng.choice([0, 100, 400]) if step else 2000
        rows = [_row(k, step, rng.choice([step, rng.randrange(step + 1)]), size) for k in keys]
        removes = mode == "the newest row"
        kinds = [rng.choice(["+I", "+I", "+I", "-D"]) if removes else "+I" for _ in rows]
        for row, kind in zip(rows, kinds, strict=True):
            wanted[row["k"]] = _applied(mode, wanted.get(row["k"]), row)
            if kind == "-D":
                del wanted[row["k"]]
        writer.write(rows, kinds=kinds)
        if step in (0, 3) or rng.random() < 0.2:
            forced = _again(newest, **{"compaction.force-up-level-0": "true"})
            forced.compact(full=step == 0 or rng.random() < 0.1)
        if on and 0 in _levels(newest):
            newest.compact()  # a process that has not heard of vectors leaves level 0 as it is
        found = _again(table)
        assert _rows(found) == wanted, step
        marked += sum(split.deleted or 0 for split in found.read().plan().splits)
    assert _again(table).check() == ()
    assert merged
    assert marked
