"""`$audit_log`: the row that is stored of each key, with its kind, whatever files it lies in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError, NotFoundError


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog


def _table(catalog: mg.Catalog, **options: str) -> mg.Table:
    """k 1 is replaced, 2 deleted, 3 new: in three files."""
    table = catalog.create_table(
        "db.t",
        {"k": "INT", "v": "STRING"},
        primary_key=["k"],
        options={"bucket": "1", "write-only": "true"} | options,
    )
    table.write([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    table.write([{"k": 1, "v": "c"}])
    table.write(pa.table({"k": pa.array([2, 3], pa.int32()), "v": ["b", "d"]}), kinds=["-D", "+U"])
    return table


def _rows(scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in scan.to_pylist())


LOG = [("+I", 1, "c"), ("+U", 3, "d"), ("-D", 2, "b")]


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_a_delete_shows_with_its_kind_while_it_is_stored(catalog: mg.Catalog, engine: str) -> None:
    removes = {"partial-update.remove-record-on-delete": "true"} if engine == "partial-update" else {}
    table = _table(catalog, **{"merge-engine": engine} | removes)
    log = catalog.table("db.t$audit_log")
    found = log.read()
    assert found.to_arrow().schema.names == ["rowkind", "k", "v"]
    assert found.to_arrow().schema == found.schema
    kinds = {(row["rowkind"], row["k"]) for row in found.to_pylist()}
    assert {("+I", 1), ("-D", 2)} <= kinds
    assert found.count() == 3
    assert _rows(table.read()) == [(1, "c"), (3, "d")]
    table.compact(full=True)
    assert [(kind[0], k) for kind, k, _ in _rows(log.read())] == [("+", 1), ("+", 3)]


def test_a_file_that_overlaps_no_other_gives_its_kinds_too(catalog: mg.Catalog) -> None:
    _table(catalog)
    log = catalog.table("db.t$audit_log")
    catalog.table("db.t").write(pa.table({"k": pa.array([7, 8], pa.int32()), "v": ["x", "y"]}), kinds=["-D", "+I"])
    assert _rows(log.read(where="k > 5")) == [("+I", 8, "y"), ("-D", 7, "x")]
    assert _rows(log.read(where="rowkind = '-D' AND k > 5")) == [("-D", 7, "x")]
    assert log.read().count() == 5


def test_columns_filters_limits_and_snapshots_are_those_of_a_table(catalog: mg.Catalog) -> None:
    table = _table(catalog)
    log = catalog.table("db.t$audit_log")
    assert _rows(log.read()) == LOG
    assert _rows(table.system("audit_log", where="rowkind = '-D'")) == [("-D", 2, "b")]
    assert _rows(log.read(["v"], where="rowkind <> '-D' AND k < 3")) == [("c",)]
    assert log.read(["k", "rowkind"]).to_arrow().schema.names == ["k", "rowkind"]
    assert log.read(limit=2).to_arrow().num_rows == 2
    assert _rows(log.read(snapshot=2)) == [("+I", 1, "c"), ("+I", 2, "b")]
    assert pa.Table.from_batches(log.read(["rowkind"]).to_batches()).num_rows == 3
    assert "rowkind" in log.read().explain()
    assert repr(log) == "TableView('db.t$audit_log')"
    with pytest.raises(InvalidInputError, match="rowkind"):
        log.read(["rowkinds"])
    with pytest.raises(NotFoundError):
        table.system("audit_logs")


def test_the_option_shows_sequence_numbers(catalog: mg.Catalog) -> None:
    table = _table(catalog, **{"table-read.sequence-number.enabled": "true"})
    found = table.system("audit_log")
    assert found.schema.names == ["rowkind", "_SEQUENCE_NUMBER", "k", "v"]
    assert {row["k"]: row["_SEQUENCE_NUMBER"] for row in found.to_pylist()} == {1: 2, 2: 3, 3: 4}
    assert _rows(table.system("audit_log", where="_SEQUENCE_NUMBER > 3")) == [("+U", 4, 3, "d")]
    table.compact(full=True)
    assert {row["k"]: row["_SEQUENCE_NUMBER"] for row in found.to_pylist()} == {1: 2, 3: 4}


def test_a_table_without_a_key_has_inserts_alone(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.a", {"v": "INT"}, options={"bucket": "-1"})
    table.write([{"v": 1}, {"v": 2}])
    assert _rows(table.system("audit_log")) == [("+I", 1), ("+I", 2)]
