"""Statistics of a table: what they say, who keeps their file, and what a failure leaves."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes
from merganser.commit.committable import Committable
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, InvalidInputError, StorageError
from tests.kit.builders import catalog_over, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Plan

_names = itertools.count()


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"analyze-{next(_names)}"))
    catalog.create_database("db")
    schema = {"id": "INT", "s": "STRING", "m": "DECIMAL(5, 2)", "d": "DOUBLE", "a": "ARRAY<INT>"}
    return catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "1", **options})


def _row(i: int, **values: Any) -> dict[str, Any]:
    return {"id": i, "s": None, "m": None, "d": None, "a": None} | values


def _stats(table: mg.Table) -> dict[str, Any]:
    (row,) = table.system("statistics").to_pylist()
    return {**row, "colstat": json.loads(row["colstat"])}


def test_statistics_are_of_merged_rows() -> None:
    table = _table()
    assert table.analyze() is None
    assert table.system("statistics").count() == 0
    table.write([_row(1, s="ada", m=Decimal("1.50"), d=0.5, a=[1]), _row(2, s="Überall", d=2.0), _row(3)])
    table.write([_row(1, s="bo", m=Decimal("-2.25"), d=1e10)])
    made = table.analyze()
    assert made is not None
    assert (made.commit_kind, made.delta_record_count, made.total_record_count) == ("ANALYZE", 0, 4)
    found = _stats(table)
    assert (found["snapshot_id"], found["mergedRecordCount"]) == (2, 3)
    assert found["colstat"]["id"] == {
        "colId": 0, "distinctCount": 3, "min": "1", "max": "3", "nullCount": 0, "avgLen": 4, "maxLen": 4,
    }  # fmt: skip
    assert found["colstat"]["s"] == {"colId": 1, "distinctCount": 2, "nullCount": 1, "avgLen": 5, "maxLen": 8}
    assert found["colstat"]["m"]["min"] == found["colstat"]["m"]["max"] == "-2.25"
    assert (found["colstat"]["d"]["min"], found["colstat"]["d"]["max"]) == ("2.0", "1.0E10")
    assert found["colstat"]["a"] == {"colId": 4, "nullCount": 3}
    assert table.check() == ()


def test_statistics_are_of_the_newest_schema_or_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    old = _table()
    old.write([_row(1)])
    new = old.alter([changes.add_column("e", "INT")])
    assert old.analyze() is not None
    assert (_stats(new)["schema_id"], "e" in _stats(new)["colstat"]) == (1, True)
    commit = TableCommit.commit

    def altered(self: TableCommit, change: Committable, **how: Any) -> mg.Snapshot | None:
        new.alter([changes.retype_column("e", "BIGINT")])
        return commit(self, change, **how)

    with monkeypatch.context() as patch:
        patch.setattr(TableCommit, "commit", altered)
        with pytest.raises(ConflictError, match="got schema 2 while rows of schema 1"):
            new.analyze()
    assert [s.commit_kind for s in new.snapshots()] == ["APPEND", "ANALYZE"]
    assert len(new.remove_orphans(older_than="2100-01-01T00:00:00")) == 0
    assert new.analyze() is not None
    assert _stats(new)["schema_id"] == 2


def test_later_snapshots_keep_the_statistics_until_the_schema_changes() -> None:
    table = _table()
    table.write([_row(1)])
    table.analyze(["id"])
    assert set(_stats(table)["colstat"]) == {"id"}
    table.write([_row(2)])
    assert _stats(table)["snapshot_id"] == 1
    table.analyze(())
    assert (_stats(table)["mergedRecordCount"], _stats(table)["colstat"]) == (2, {})
    wider = table.alter([mg.changes.add_column("n", "INT")])
    wider.write([{**_row(3), "n": 1}])
    assert wider.system("statistics").count() == 0
    old = wider.with_options({"scan.snapshot-id": "2"}).system("statistics", columns=["mergedRecordCount"])
    assert old.to_pylist() == [{"mergedRecordCount": 1}]
    with pytest.raises(InvalidInputError, match="no column 'idd'"):
        wider.analyze(["idd"])


def test_files_of_statistics_go_with_their_snapshots() -> None:
    table = _table(**{"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 ms"})
    for i in range(3):
        table.write([_row(i)])
        table.analyze()
    table.expire(retain_max=1, retain_min=1)
    directory = table.definition.paths.statistics("")
    assert len([entry.name for entry in table.env.storage.list(directory)]) == 1
    assert table.read().count() == 3
    assert [change["id"] for change in table.changes(6, 6).to_pylist()] == []


def test_many_values_are_estimated() -> None:
    table = _table()
    rng = np.random.default_rng(7)
    ids = np.arange(200_000, dtype=np.int32)
    values = rng.integers(0, 150_000, len(ids)).astype("f8")
    nulls = {"s": pa.nulls(len(ids), pa.string()), "m": pa.nulls(len(ids), pa.decimal128(5, 2))}
    table.write(pa.table({"id": ids, **nulls, "d": values, "a": pa.nulls(len(ids), pa.list_(pa.int32()))}))
    table.analyze()
    exact = len(np.unique(values))
    assert abs(_stats(table)["colstat"]["d"]["distinctCount"] - exact) < exact * 0.05
    assert abs(_stats(table)["colstat"]["id"]["distinctCount"] - len(ids)) < len(ids) * 0.05


def test_a_failure_leaves_no_statistics() -> None:
    storage = memory_with({}, f"analyze-{next(_names)}")
    catalog = catalog_over(storage)
    catalog.create_database("db")
    catalog.create_table("db.t", {"id": "INT"}).write([{"id": 1}])
    faulty = catalog_over(FaultyStorage(storage, Plan(Fault.FAIL, 1, call_count=99, path_part="snapshot/snapshot-2")))
    with pytest.raises(StorageError):
        faulty.table("db.t").analyze()
    table = catalog.table("db.t")
    assert isinstance(table, mg.Table)
    assert len(table.snapshots()) == 1
    assert [entry.name for entry in storage.list(table.definition.paths.statistics(""))] == []
