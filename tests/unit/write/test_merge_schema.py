"""Rows that bring columns which the table lacks."""

from __future__ import annotations

import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes as c
from merganser.errors import InvalidInputError


@pytest.fixture
def table(tmp_path):
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"id": "INT", "n": "INT", "s": "VARCHAR(5)", "r": "ROW<x INT>"}
    return catalog.create_table("db.t", columns, primary_key=["id"], options={"fields.n.default-value": "7"})


def merging(table, **options):
    return table.with_options({"write.merge-schema": "true"} | {f"write.merge-schema.{k}": "true" for k in options})


def rows(table):
    found = mg.table(table.path)
    return sorted(found.read().to_pylist(), key=lambda row: row["id"])


def test_columns_that_the_table_lacks_are_added_where_the_rows_bring_them(table):
    table.write([{"id": 1, "n": 1, "s": "a", "r": {"x": 1}}])
    merging(table).write(
        pa.table(
            {
                "id": [2],
                "r": pa.array([{"x": 2, "y": "b"}], pa.struct([("x", pa.int32()), ("y", pa.string())])),
                "new": pa.array([[1.5]], pa.list_(pa.float64())),
            }
        )
    )
    assert [str(f.type) for f in mg.table(table.path).schema.fields[3:]] == ["ROW<x INT, y STRING>", "ARRAY<DOUBLE>"]
    assert rows(table) == [
        {"id": 1, "n": 1, "s": "a", "r": {"x": 1, "y": None}, "new": None},
        {"id": 2, "n": 7, "s": None, "r": {"x": 2, "y": "b"}, "new": [1.5]},
    ]


def test_without_the_option_such_rows_are_refused(table):
    with pytest.raises(InvalidInputError, match="column 'new' of the data is not a column of the table"):
        table.write(pa.table({"id": [1], "n": [1], "s": ["a"], "r": pa.nulls(1, pa.struct([])), "new": [1]}))
    assert mg.table(table.path).schema.id == 0


def test_types_are_widened_and_narrowed_only_where_that_is_asked_for(table):
    wide = pa.table({"id": pa.array([1], pa.int64()), "n": pa.array([2**40]), "s": ["abc"]})
    with pytest.raises(InvalidInputError, match="column 'n'"):
        merging(table).write(wide)
    merging(table, **{"type-widening": 1}).write(wide)
    assert [str(f.type) for f in mg.table(table.path).schema.fields[:3]] == ["INT NOT NULL", "BIGINT", "VARCHAR(5)"]
    text = pa.table({"id": pa.array([2], pa.int32()), "n": ["many"]})
    with pytest.raises(InvalidInputError, match="column 'n'"):
        merging(table, **{"type-widening": 1}).write(text)
    merging(table, **{"explicit-cast": 1}).write(text)
    assert [row["n"] for row in rows(table)] == [str(2**40), "many"]


def test_rows_that_fit_change_no_type(table):
    merging(table, **{"explicit-cast": 1}).write(pa.table({"id": [1], "n": pa.array([5], pa.int8()), "s": ["abc"]}))
    assert mg.table(table.path).schema.id == 0


def test_a_writer_takes_new_columns_between_its_commits(table):
    with merging(table).writer(commit_user="w") as writer:
        writer.write([{"id": 1, "n": 1}])
        with pytest.raises(InvalidInputError, match="Commit what was taken, and give them again"):
            writer.write([{"id": 2, "a": 5}])
        writer.commit(1)
        writer.write([{"id": 2, "a": 5}])
        writer.commit(2)
        writer.write([{"id": 3, "n": 3}])
        writer.commit(3)
    assert [(row["id"], row["n"], row["a"]) for row in rows(table)] == [(1, 1, None), (2, 7, 5), (3, 3, None)]
    assert mg.table(table.path).check() == ()


def test_a_handle_from_before_a_change_writes_what_the_table_is_now(table):
    old = merging(table)
    table.alter([c.rename_column("n", "m"), c.add_column("x", "DATE")])
    old.write([{"id": 1, "m": 4, "y": 5}])
    assert rows(table) == [{"id": 1, "m": 4, "s": None, "r": None, "x": None, "y": 5}]


def test_keys_keep_their_types(table):
    with pytest.raises(InvalidInputError, match="column 'id'"):
        merging(table, **{"explicit-cast": 1}).write(pa.table({"id": ["a"], "n": [1]}))
    with pytest.raises(InvalidInputError, match="column 'id'"):
        merging(table).write(pa.table({"n": [1]}))


def test_upserts_and_files_bring_new_columns_too(table, tmp_path):
    table.write([{"id": 1, "n": 1, "s": "a", "r": None}])
    done = merging(table, **{"type-widening": 1}).upsert(
        [{"id": 1, "n": 2**40, "a": True}, {"id": 2, "n": 5, "a": False}]
    )
    assert (done.inserted, done.updated) == (1, 1)
    done = merging(table).upsert([{"id": 1, "b": 0.5}], columns=["id", "b"])
    assert (done.inserted, done.updated) == (0, 1)
    (tmp_path / "rows.json").write_text('{"id": 3, "c": "new"}')
    merging(table).load(str(tmp_path / "rows.json"))
    assert [(row["n"], row["s"], row["a"], row["b"], row["c"]) for row in rows(table)] == [
        (2**40, None, True, 0.5, None),
        (5, None, False, None, None),
        (7, None, None, None, "new"),
    ]
    assert merging(table).upsert([]).snapshot is None
    with pytest.raises(InvalidInputError, match="column 'd' of the data is not a column"):
        mg.table(table.path).upsert([{"id": 1, "d": 1}])
