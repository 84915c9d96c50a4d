"""Tombstones: the retractions that outlive all that is older, and for how long."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import merganser as mg
from merganser.meta.data_file import DataFile
from merganser.meta.table_state import MetaReader
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
HOUR_MS = 3_600_000
SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}


class _Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000


def _table(clock: _Clock, monkeypatch: pytest.MonkeyPatch, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"tombstones-{next(_names)}"))
    monkeypatch.setattr(type(catalog.env), "now_ms", lambda env: clock.ms)
    catalog.create_database("db")
    return catalog.create_table(
        "db.t", {"k": "INT", "s": "INT", "n": "INT"}, primary_key=["k"], options={"bucket": "1", **options}
    )


def _write(table: mg.Table, *changes: tuple[str, int, int | None, int | None]) -> None:
    table.write([{"op": op, "k": k, "s": s, "n": n} for op, k, s, n in changes], kinds="op")


def _rows(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read().to_pylist())


def _files(table: mg.Table) -> list[DataFile]:
    reader = MetaReader(table.definition.paths, table.env, table.name)
    return [entry.file for entry in reader.latest().live]


def _deletes(table: mg.Table) -> int:
    return sum(file.delete_row_count or 0 for file in _files(table))


def test_a_sum_owes_what_was_taken_back_before_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    table = _table(clock, monkeypatch, **SUM)
    _write(table, ("-U", 1, 0, 5), ("+I", 2, 0, 1))
    for _ in range(3):  # however long ago
        clock.ms += 1000 * HOUR_MS
        table.compact(full=True)
    assert _rows(table) == [(2, 0, 1)]
    _write(table, ("+U", 1, 0, 12))
    assert _rows(table) == [(1, 0, 7), (2, 0, 1)]


def test_a_compacted_file_that_owes_is_not_compacted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(_Clock(), monkeypatch, **SUM)
    _write(table, ("-U", 1, 0, 5))
    assert table.compact(full=True) is not None
    assert table.compact(full=True) is None


def test_a_late_row_loses_until_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    table = _table(clock, monkeypatch, **{"sequence.field": "s", "tombstone.time-retained": "10 h"})
    _write(table, ("+I", 1, 1, 1), ("+I", 2, 1, 1))
    _write(table, ("-D", 1, 9, 1))
    clock.ms += 10 * HOUR_MS - 1
    table.compact(full=True)
    _write(table, ("+I", 1, 5, 5))
    assert _rows(table) == [(2, 1, 1)]
    clock.ms += 1
    table.compact(full=True)
    assert _deletes(table) == 0
    _write(table, ("+I", 1, 5, 5))
    assert _rows(table) == [(1, 5, 5), (2, 1, 1)]


def test_deletes_go_in_time_however_often_the_bucket_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    table = _table(clock, monkeypatch, **{"sequence.field": "s", "tombstone.time-retained": "10 h"})
    written: dict[int, int] = {}
    for key in range(60):  # one more delete each hour, and a compaction
        _write(table, ("-D", key, 9, 1))
        written[key] = clock.ms
        table.compact(full=True)
        held = {row["k"] for row in table.system("audit_log").to_pylist()}
        young = {k for k, ms in written.items() if clock.ms - ms < 10 * HOUR_MS}
        assert young <= held
        assert held <= {k for k, ms in written.items() if clock.ms - ms <= 21 * HOUR_MS}
        clock.ms += HOUR_MS


@pytest.mark.parametrize("options", [{}, {"sequence.field": "s", "tombstone.time-retained": "0 s"}])
def test_without_an_order_or_a_time_no_delete_outlives_a_compaction(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(_Clock(), monkeypatch, **options)
    _write(table, ("+I", 1, 1, 1), ("-D", 2, 1, 1))
    table.compact(full=True)
    assert _deletes(table) == 0


def test_filters_and_counts_leave_tombstones_out(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(_Clock(), monkeypatch, **{"sequence.field": "s"})
    _write(table, ("+I", 1, 1, 1), ("-D", 2, 1, 7), ("+I", 3, 1, 7))
    table.compact(full=True)
    assert _deletes(table) == 1
    assert table.read(where="n = 7").to_pylist() == [{"k": 3, "s": 1, "n": 7}]
    assert table.read().count() == 2
    assert table.read(where="n = 7").count() == 1
    assert table.read(limit=2).to_arrow().num_rows == 2
    assert table.check() == ()


def test_rows_are_counted_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(_Clock(), monkeypatch, **{"sequence.field": "s"})
    _write(table, ("+I", 1, 1, 1), ("-D", 2, 1, 7), ("+I", 3, 1, 7))
    table.compact(full=True)
    monkeypatch.setattr("merganser.scan.scan.read_split", None)
    assert table.read().count() == 2
