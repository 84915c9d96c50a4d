"""Upserts by name: partial columns, insert if absent, what changed, and what is refused."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError

COLUMNS = {"k": "BIGINT", "a": "INT", "b": "STRING"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    found.create_database("db")
    return found


@pytest.fixture
def table(catalog: mg.Catalog) -> mg.Table:
    return made(catalog)


def made(catalog: mg.Catalog, columns: dict[str, str] | None = None, **options: str) -> mg.Table:
    found = {"bucket": "2"} | {name.replace("_", "-"): value for name, value in options.items()}
    return catalog.create_table("db.t", columns or COLUMNS, primary_key=["k"], options=found)


def by_key(table: mg.Table) -> dict[int, dict[str, Any]]:
    return {row.pop("k"): row for row in table.read().to_pylist()}


def counts(found: mg.Upserted) -> tuple[int | None, ...]:
    return found.inserted, found.updated, found.deleted, found.unchanged


def test_a_key_without_its_partitions_is_a_row_of_the_partition_given(catalog: mg.Catalog) -> None:
    columns = {"k": "INT", "p": "STRING", "a": "INT", "b": "INT"}
    table = catalog.create_table("db.t", columns, primary_key=["k"], partition_by=["p"], options={"bucket": "2"})
    table.upsert([{"k": 1, "p": p, "a": 1, "b": 1} for p in ("x", "y", None)])
    found = table.upsert([{"k": 1, "p": p, "a": 2} for p in ("y", None, "z")], columns=["k", "p", "a"])
    assert counts(found) == (1, 2, 0, 0)
    assert counts(table.upsert([{"k": 1, "p": p, "a": 3, "b": 3} for p in "xw"], if_exists="keep")) == (1, 0, 0, 1)
    held = {row["p"]: (row["a"], row["b"]) for row in table.read().to_pylist()}
    assert held == {"x": (1, 1), "y": (2, 1), None: (2, 1), "z": (2, None), "w": (3, 3)}
    with pytest.raises(InvalidInputError, match=r"partition column 'p' is not among the columns given \(k, a\)"):
        table.upsert([{"k": 1, "a": 2}], columns=["k", "a"])


def test_the_columns_given_change_and_the_others_stay(table: mg.Table) -> None:
    table.write([{"k": 1, "a": 1, "b": "x"}, {"k": 2, "a": 2, "b": "y"}])
    found = table.upsert([{"k": 2, "a": None}, {"k": 3, "a": 3}], columns=["k", "a"])
    assert by_key(table) == {1: {"a": 1, "b": "x"}, 2: {"a": None, "b": "y"}, 3: {"a": 3, "b": None}}
    assert counts(found) == (1, 1, 0, 0)
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"k": 2, "a": None, "b": "y"}, {"k": 3, "a": 3, "b": None}]
    assert found.changes is not None
    assert found.changes.to_pylist() == [
        {"_row_kind": "-U", "k": 2, "a": 2, "b": "y"},
        {"_row_kind": "+U", "k": 2, "a": None, "b": "y"},
        {"_row_kind": "+I", "k": 3, "a": 3, "b": None},
    ]


def test_rows_that_change_nothing_make_no_commit(table: mg.Table) -> None:
    table.write([{"k": 1, "a": 1, "b": "x"}])
    for rows, columns in (([{"k": 1}], ["k"]), ([{"k": 1, "a": 1, "b": "x"}], None)):
        found = table.upsert(rows, columns=columns)
        assert found.snapshot is None
        assert counts(found) == (0, 0, 0, 1)
    assert table.upsert([]).snapshot is None
    missing = table.upsert([{"k": 5, "a": 1, "b": None}], kinds=["-D"])
    assert missing.snapshot is None
    assert counts(missing) == (0, 0, 0, 1)
    assert len(table.snapshots()) == 1


def test_only_rows_that_change_are_written(table: mg.Table) -> None:
    table.write([{"k": k, "a": 0, "b": "x"} for k in range(100)])
    found = table.upsert([{"k": k, "a": int(k == 7)} for k in range(100)], columns=["k", "a"])
    assert found.snapshot is not None
    assert found.snapshot.delta_record_count == 1
    assert counts(found) == (0, 1, 0, 99)


def test_a_partial_delete_sets_columns_to_null_and_removes_a_row_of_nulls(table: mg.Table) -> None:
    table.write([{"k": 1, "a": 1, "b": "x"}, {"k": 2, "a": 2, "b": None}])
    found = table.upsert([{"k": 1, "a": 0}, {"k": 2, "a": 0}, {"k": 3, "a": 0}], ["-D"] * 3, columns=["k", "a"])
    assert by_key(table) == {1: {"a": None, "b": "x"}}
    assert counts(found) == (0, 1, 1, 1)


def test_a_row_that_a_partial_delete_removed_comes_back_with_defaults(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "fields.b.default-value": "new"}
    table = catalog.create_table("db.d", COLUMNS, primary_key=["k"], options=options)
    table.write([{"k": 1, "a": 1, "b": "x"}])
    table.upsert([{"k": 1, "b": None}], columns=["k", "b"])
    assert by_key(table) == {1: {"a": 1, "b": None}}
    table.upsert([{"k": 1, "a": 0}, {"k": 1, "a": 2}], kinds=["-D", "+I"], columns=["k", "a"])
    assert by_key(table) == {1: {"a": 2, "b": "new"}}


def test_a_new_row_needs_its_not_null_columns(catalog: mg.Catalog) -> None:
    table = made(catalog, {"k": "BIGINT", "a": "INT", "b": "STRING NOT NULL"})
    table.write([{"k": 1, "a": 1, "b": "x"}])
    table.upsert([{"k": 1, "a": 2}], columns=["k", "a"])
    with pytest.raises(InvalidInputError, match=r"no row has the key \{'k': 9\}.*column 'b'"):
        table.upsert([{"k": 1, "a": 3}, {"k": 9, "a": 3}], columns=["k", "a"])
    with pytest.raises(InvalidInputError, match="'b' is null"):
        table.upsert([{"k": 1, "b": None}], columns=["k", "b"])
    with pytest.raises(InvalidInputError, match=r"row 2 .* -D.*'b' is NOT NULL"):
        table.upsert([{"k": 1, "b": "y"}, {"k": 1, "b": "y"}], kinds=["+I", "-D"], columns=["k", "b"])
    assert by_key(table) == {1: {"a": 2, "b": "x"}}
    assert len(table.snapshots()) == 2


def test_of_several_rows_of_a_key_the_last_one_counts(table: mg.Table) -> None:
    rows = [{"k": 1, "a": 1, "b": "x"}, {"k": 2, "a": 1, "b": "x"}, {"k": 1, "a": 2, "b": "y"}]
    found = table.upsert([*rows, rows[1]], kinds=["+I", "+I", "+I", "-D"])
    assert by_key(table) == {1: {"a": 2, "b": "y"}}
    assert counts(found) == (1, 0, 0, 1)


def test_keep_inserts_what_is_absent_and_returns_all_rows(table: mg.Table) -> None:
    table.write([{"k": 1, "a": 1, "b": "x"}])
    rows = [{"k": 2, "a": 2}, {"k": 1, "a": 9}, {"k": 2, "a": 8}]
    found = table.upsert(rows, columns=["k", "a"], if_exists="keep")
    assert counts(found) == (1, 0, 0, 1)
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"k": 2, "a": 2, "b": None}, {"k": 1, "a": 1, "b": "x"}]
    again = table.upsert(rows, columns=["k", "a"], if_exists="keep")
    assert again.snapshot is None
    assert again.rows == found.rows


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_tables_of_other_engines_tell_what_became_of_whole_rows(catalog: mg.Catalog, engine: str) -> None:
    extra = {"fields.a.aggregate-function": "sum"} if engine == "aggregation" else {}
    options = {"bucket": "1", "merge-engine": engine, **extra}
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=options)
    table.write([{"k": 1, "a": 1, "b": "x"}])
    found = table.upsert([{"k": 1, "a": 2, "b": None}, {"k": 2, "a": 2, "b": None}])
    first = {"partial-update": (2, "x"), "aggregation": (3, "x"), "first-row": (1, "x")}[engine]
    assert by_key(table) == {1: {"a": first[0], "b": first[1]}, 2: {"a": 2, "b": None}}
    assert counts(found) == (1, int(engine != "first-row"), 0, int(engine == "first-row"))
    assert found.rows is not None
    assert found.rows.to_pylist() == table.lookup([{"k": 1}, {"k": 2}]).to_pylist()
    kept = table.upsert([{"k": 2, "a": 5, "b": "z"}, {"k": 3, "a": 5, "b": "z"}], if_exists="keep")
    assert counts(kept) == (1, 0, 0, 1)
    with pytest.raises(InvalidInputError, match=f"merge engine {engine}.*Nothing was written"):
        table.upsert([{"k": 1, "a": 2}], columns=["k", "a"])


def test_a_row_that_comes_late_by_its_sequence_field_changes_nothing(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "sequence.field": "a"}
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=options)
    table.write([{"k": 1, "a": 5, "b": "x"}])
    assert counts(table.upsert([{"k": 1, "a": 4, "b": "y"}])) == (0, 0, 0, 1)
    assert counts(table.upsert([{"k": 1, "b": "z"}], columns=["k", "b"])) == (0, 1, 0, 0)
    assert by_key(table) == {1: {"a": 5, "b": "z"}}
    table.upsert([{"k": 1, "a": 9, "b": "w"}, {"k": 1, "a": 8, "b": "v"}], columns=["k", "a", "b"])
    assert by_key(table) == {1: {"a": 9, "b": "w"}}
    with pytest.raises(InvalidInputError, match=r"'sequence\.field' takes deletes as whole rows only"):
        table.upsert([{"k": 1, "b": "z"}], kinds=["-D"], columns=["k", "b"])
    pair = [{"k": 1, "b": "w"}, {"k": 1, "b": "u"}]
    assert counts(table.upsert(pair, kinds=["-U", "+U"], columns=["k", "b"])) == (0, 1, 0, 0)
    table.upsert([{"k": 1, "a": 9, "b": None}], kinds=["-D"])
    assert counts(table.upsert([{"k": 1, "a": 3, "b": "late"}])) == (0, 0, 0, 1)
    assert by_key(table) == {}


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_that_wait_for_their_compaction_count(catalog: mg.Catalog, vectors: str) -> None:
    engine = "deduplicate" if vectors == "true" else "first-row"
    options = {"bucket": "1", "write-only": "true", "deletion-vectors.enabled": vectors, "merge-engine": engine}
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=options)
    table.write([{"k": 1, "a": 1, "b": "x"}])
    assert table.read().to_pylist() == []
    kept = table.upsert([{"k": 1, "a": 2, "b": "y"}], if_exists="keep")
    assert counts(kept) == (0, 0, 0, 1)
    if engine == "deduplicate":
        assert counts(table.upsert([{"k": 1, "a": 2}], columns=["k", "a"])) == (0, 1, 0, 0)
    table.with_options({"write-only": "false"}).compact()
    assert table.read().to_pylist() == [{"k": 1, "a": 2 if vectors == "true" else 1, "b": "x"}]


def test_a_repeated_call_writes_nothing_and_returns_the_same(table: mg.Table) -> None:
    table.write([{"k": 1, "a": 1, "b": "x"}])
    rows = [{"k": 1, "a": 2}, {"k": 2, "a": 2}]
    first = table.upsert(rows, columns=["k", "a"], commit_user="me", identifier=1)
    table.upsert([{"k": 1, "a": 7}], columns=["k", "a"])
    again = table.upsert(rows, columns=["k", "a"], commit_user="me", identifier=1)
    assert first.snapshot is not None
    assert again.snapshot is not None
    assert (first.snapshot.id, counts(first)) == (again.snapshot.id, counts(again))
    assert first.rows == again.rows
    assert first.changes == again.changes
    assert by_key(table)[1] == {"a": 7, "b": "x"}


def test_a_repeated_call_says_what_it_cannot_know_any_more(table: mg.Table) -> None:
    for k in range(6):
        table.upsert([{"k": k, "a": k, "b": "x"}], commit_user="me", identifier=k)
    table.expire(retain_max=2, retain_min=1)
    oldest = table.snapshots()[0]
    expired = table.upsert([{"k": 0, "a": 0, "b": "x"}], commit_user="me", identifier=0)
    assert (expired.snapshot, expired.rows, expired.changes, *counts(expired)) == (None,) * 7
    kept = table.upsert([{"k": 4, "a": 4, "b": "x"}], commit_user="me", identifier=4)
    if kept.snapshot is not None and kept.snapshot.id == oldest.id:
        assert kept.rows is not None
        assert kept.changes is None


def test_a_handle_of_older_columns_leaves_newer_ones_as_they_are(table: mg.Table) -> None:
    table.write([{"k": 1, "a": 1, "b": "x"}])
    newer = table.alter([c.add_column("c", "INT")])
    newer.upsert([{"k": 1, "c": 5}], columns=["k", "c"])
    table.upsert([{"k": 1, "a": 2}], columns=["k", "a"])
    table.upsert([{"k": 1, "a": 3, "b": "y"}, {"k": 2, "a": 2, "b": "z"}])
    assert by_key(newer) == {1: {"a": 3, "b": "y", "c": 5}, 2: {"a": 2, "b": "z", "c": None}}
    newer.alter([c.rename_column("a", "aa")])
    table.upsert([{"k": 1, "b": "w"}], columns=["k", "b"])
    with pytest.raises(ConflictError, match=r"column 'a' was renamed to 'aa' .*Open the table again"):
        table.upsert([{"k": 1, "a": 2}], columns=["k", "a"])
    with pytest.raises(ConflictError, match=r"column 'a' was renamed to 'aa' .*Open the table again"):
        table.upsert([{"k": 1, "a": 2, "b": "x"}])


def test_wrong_calls_are_refused_before_anything_is_written(table: mg.Table, catalog: mg.Catalog) -> None:
    row = {"k": 1, "a": 1, "b": "x"}
    with pytest.raises(InvalidInputError, match="if_exists is 'ignore'"):
        table.upsert([row], if_exists="ignore")
    with pytest.raises(InvalidInputError, match="key column 'k'"):
        table.upsert([{"a": 1}], columns=["a"])
    with pytest.raises(InvalidInputError, match="column 'b' is in the data but not"):
        table.upsert([row], columns=["k", "a"])
    with pytest.raises(InvalidInputError, match=r"keep.* inserts only"):
        table.upsert([row], kinds=["-D"], if_exists="keep")
    with pytest.raises(InvalidInputError, match="'k' is null"):
        table.upsert([{"k": None, "a": 1}], columns=["k", "a"])
    log = catalog.create_table("db.log", COLUMNS)
    counting = catalog.create_table("db.counting", COLUMNS, options={"write-mode": "change-log"})
    for keyless in (log, counting):
        with pytest.raises(InvalidInputError, match="no primary key"):
            keyless.upsert([row])
        with pytest.raises(InvalidInputError, match="no primary key"):
            keyless.lookup(row)
        assert keyless.snapshots() == ()
    assert table.snapshots() == ()


def test_many_rows_are_upserted_in_batches_of_any_kind(table: mg.Table) -> None:
    rows = pa.table({"k": range(70_000), "a": pa.array([0] * 70_000, pa.int32())})
    assert table.upsert(rows.to_reader(max_chunksize=10_000), columns=["k", "a"]).inserted == 70_000
    changed = rows.set_column(1, "a", pa.array([1] * 70_000, pa.int32()))
    assert table.upsert(changed, columns=["k", "a"]).updated == 70_000
    assert table.upsert(iter([{"k": 70_000, "a": 1}, {"k": 3, "a": 1}]), columns=["k", "a"]).inserted == 1


def test_columns_of_every_kind_stay_as_they_were(catalog: mg.Catalog) -> None:
    kinds = {
        "r": "ROW<x INT NOT NULL, y STRING>",
        "m": "MAP<STRING, ARRAY<INT>>",
        "d": "DECIMAL(20, 3)",
        "t": "TIMESTAMP(3)",
        "n": "BYTES",
    }
    table = made(catalog, {"k": "BIGINT", "a": "INT", **kinds})
    row = {"x": 1, "y": None}
    values = {"r": row, "m": [("p", [1, None])], "d": Decimal("1.500"), "t": datetime(2026, 1, 2), "n": b"z"}
    nothing = dict.fromkeys(values)
    table.write([{"k": 1, "a": 1, **values}, {"k": 2, "a": 1, **nothing}])
    found = table.upsert([{"k": k, "a": 2} for k in (1, 2, 3)], columns=["k", "a"])
    assert counts(found) == (1, 2, 0, 0)
    assert by_key(table) == {1: {"a": 2, **values}, 2: {"a": 2, **nothing}, 3: {"a": 2, **nothing}}
    removed = table.upsert([{"k": 3, "r": None, "a": 0}], kinds=["-D"], columns=["k", "r", "a"])
    assert counts(removed) == (0, 0, 1, 0)
    emptied = table.upsert([{"k": 1, "r": row}], kinds=["-D"], columns=["k", "r"])
    assert emptied.rows is not None
    assert emptied.rows["r"].to_pylist() == [None]


def test_a_handle_of_older_columns_gives_no_whole_rows_to_other_engines(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "merge-engine": "partial-update"}
    old = catalog.create_table("db.p", {"k": "INT", "a": "INT"}, primary_key=["k"], options=options)
    old.upsert([{"k": 1, "a": 1}])
    old.alter([c.add_column("c", "INT")])
    with pytest.raises(ConflictError, match=r"got columns that the rows would set to null: c \(schema 1\)"):
        old.upsert([{"k": 1, "a": 2}])
