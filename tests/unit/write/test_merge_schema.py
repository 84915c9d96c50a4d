"""Rows that bring columns which the table lacks."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError
from merganser.options import write as w
from merganser.options.option import Options
from merganser.rules.merged import room_for
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import parse_type
from merganser.upkeep import alter


@pytest.fixture
def table(tmp_path):
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"id": "INT", "n": "INT", "s": "VARCHAR(5)", "r": "ROW<x INT>"}
    return catalog.create_table("db.t", columns, primary_key=["id"], options={"fields.n.default-value": "7"})


def merging(table, **options):
    return table.with_options({"write.merge-schema": "true"} | {f"write.merge-schema.{k}": "true" for k in options})


def not_null(name):
    return [c.set_option("alter-column-null-to-not-null.disabled", "false"), c.set_nullable(name, False)]


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


@pytest.mark.parametrize(
    ("column", "rows", "wide", "cast"),
    [
        ("INT", pa.float64(), "DOUBLE", "DOUBLE"),
        ("INT", pa.float32(), "INT", "FLOAT"),
        ("BIGINT", pa.float64(), "BIGINT", "DOUBLE"),
        ("SMALLINT", pa.decimal128(5, 0), "DECIMAL(5, 0)", "DECIMAL(5, 0)"),
        ("INT", pa.decimal128(5, 2), "INT", "DECIMAL(5, 2)"),
        ("DECIMAL(5, 2)", pa.decimal128(7, 3), "DECIMAL(7, 3)", "DECIMAL(7, 3)"),
        ("DECIMAL(5, 2)", pa.decimal128(5, 3), "DECIMAL(5, 2)", "DECIMAL(5, 3)"),
        ("FLOAT", pa.float64(), "DOUBLE", "DOUBLE"),
        ("BIGINT", pa.int32(), "BIGINT", "BIGINT"),
        ("DOUBLE", pa.int64(), "DOUBLE", "DOUBLE"),
        ("STRING", pa.int64(), "STRING", "BIGINT"),
        ("TIMESTAMP(6)", pa.date32(), "TIMESTAMP(6)", "DATE"),
        ("DATE", pa.timestamp("us"), "DATE", "DATE"),
        ("BINARY(3)", pa.binary(), "BINARY(3)", "BINARY(3)"),
    ],
)
def test_a_type_is_widened_only_if_the_new_one_holds_each_value(column, rows, wide, cast):
    for option, expected in ((w.MERGE_SCHEMA_WIDENING, wide), (w.MERGE_SCHEMA_CASTING, cast)):
        schema = TableSchema(0, (t.Field(0, "x", parse_type(column)),), 0, options=Options({option.key: "true"}))
        changes = room_for(schema, pa.schema([("x", rows)]))
        assert [str(change.type) for change in changes] == ([] if expected == column else [expected])


def test_rows_that_fit_change_no_type(table):
    made = table.alter([c.add_column("c", "CHAR(3)")])
    rows = pa.table({"id": [1], "n": pa.array([5], pa.int8()), "s": ["abc"], "c": ["xyz"]})
    merging(made, **{"explicit-cast": 1}).write(rows)
    assert mg.table(table.path).schema.id == made.schema.id


def test_fields_that_a_row_lacks_are_null_at_any_depth(table):
    inner = "ROW<x INT, y INT NOT NULL>"
    made = table.alter([c.add_column("a", f"ARRAY<{inner}>"), c.add_column("m", "MAP<STRING, ROW<x INT, y INT>>")])
    merging(made).write([{"id": 1, "r": {"x": 1, "z": 5}}])
    row = {"id": 2, "r": {"x": 1}, "m": {"k": {"y": 2}, "n": None}, "a": [None]}
    merging(made).write([row])
    merging(made).upsert([row | {"id": 3}])
    merging(made).upsert([{"id": 1, "r": {"z": None}}], columns=["id", "r"])
    with merging(made).writer() as writer:
        writer.write([row | {"id": 4}])
        writer.commit()
    found = rows(table)
    assert [read["r"] for read in found] == [{"x": None, "z": None}, *([{"x": 1, "z": None}] * 3)]
    assert [read["m"] for read in found] == [None, *([[("k", {"x": None, "y": 2}), ("n", None)]] * 3)]
    for give in ("write", "upsert"):
        with pytest.raises(InvalidInputError, match="column 'a' has null for its field 'y', which is NOT NULL"):
            getattr(merging(made), give)([{"id": 5, "a": [{"x": 1}]}])
    with pytest.raises(InvalidInputError, match="The fields inside must have the same names"):
        mg.table(table.path).upsert([{"id": 5, "r": {"x": 1}}], columns=["id", "r"])


@pytest.mark.parametrize("cast", [{}, {"type-widening": 1}, {"explicit-cast": 1}])
def test_columns_that_are_null_in_all_rows_keep_their_types(table, cast):
    made = merging(table.alter([c.add_column("a", "ARRAY<INT>"), c.add_column("m", "MAP<INT, INT>")]), **cast)
    nulls = {"id": 1, "n": None, "s": None, "r": {"x": None}, "a": [], "m": {}}
    made.write([nulls])
    made.upsert([nulls | {"id": 2, "r": None, "a": None}])
    made.upsert([{"id": 2, "s": None}], columns=["id", "s"])
    made.write([{"id": 3, "r": None}], columns=["id", "r"])
    assert mg.table(table.path).schema.id == made.schema.id
    assert rows(table) == [
        {"id": 1, "n": 7, "s": None, "r": {"x": None}, "a": [], "m": []},
        {"id": 2, "n": 7, "s": None, "r": None, "a": None, "m": []},
        {"id": 3, "n": 7, "s": None, "r": None, "a": None, "m": None},
    ]


@pytest.mark.parametrize("new", [{"b": None}, {"b": []}, {"r": {"x": 1, "b": None}}, {"b": {"x": 1, "y": None}}])
def test_a_new_column_that_is_null_in_all_rows_is_refused(table, new):
    for give in ("write", "upsert"):
        with pytest.raises(InvalidInputError, match=r"cannot add column '(r\.)?b' to the table: it has the Arrow type"):
            getattr(merging(table), give)([{"id": 1, "other": 1, **new}])
    assert mg.table(table.path).schema.id == 0


@pytest.mark.parametrize(
    ("give", "said"),
    [
        ({"n": "x"}, "column 'n' is string"),
        ({"n": 2**40}, "does not fit INT"),
        ({"s": "abcdef"}, "does not fit VARCHAR"),
        ({"k": None}, "NOT NULL column 'k' is null"),
        ({"id": None}, "key column 'id' is null"),
        ({"r": {"x": "x"}}, "column 'r.x' is string"),
    ],
)
def test_rows_that_are_refused_leave_the_schema_as_it_is(table, give, said):
    made = merging(table.alter([c.add_column("k", "INT"), *not_null("k")]))
    row = {"id": 1, "k": 1, "new": 1} | give
    with pytest.raises(InvalidInputError, match=said):
        made.write([row])
    with pytest.raises(InvalidInputError, match=said):
        made.upsert([row])
    with made.writer() as writer:
        writer.write([{"id": 2, "k": 1}])
        with pytest.raises(InvalidInputError, match=said):
            writer.write([row])
    assert mg.table(table.path).schema.id == made.schema.id


def test_parts_of_rows_that_do_not_go_together_are_refused(table):
    parts = [pa.table({"id": [1], "n": [1]}), pa.table({"id": [2], "n": ["x"], "new": [1]})]
    with pytest.raises(InvalidInputError, match="the parts of the rows have columns that do not go together"):
        merging(table).upsert(iter(parts))
    assert mg.table(table.path).schema.id == 0


def test_a_commit_goes_on_with_its_columns_while_others_add_some(table):
    with merging(table).writer() as writer:
        writer.write([{"id": 1, "n": 1}])
        table.alter([c.add_column("x", "DATE")])
        writer.write([{"id": 2, "n": 2}])
        writer.commit()
    assert [(row["id"], row["n"], row["x"]) for row in rows(table)] == [(1, 1, None), (2, 2, None)]


def test_rows_whose_columns_others_add_in_the_same_moment_are_written(table, monkeypatch):
    plain, waiting = alter.check_filters, [[c.add_column("x", "BIGINT")]]

    def others_first(*args, **kwargs):
        plain(*args, **kwargs)
        if waiting:
            mg.table(table.path).alter(waiting.pop())

    monkeypatch.setattr(alter, "check_filters", others_first)
    merging(table).write([{"id": 1, "n": 1, "x": 2**40}])
    assert waiting == []
    assert rows(table)[0]["x"] == 2**40


def test_a_writer_takes_new_columns_between_its_commits_and_within(table):
    with merging(table).writer(commit_user="w") as writer:
        writer.write([{"id": 1, "n": 1}])
        writer.write([{"id": 2, "a": 5}])
        first = writer.commit(1)
        writer.write([{"id": 2, "b": 6}])
        writer.commit(2)
        writer.write([{"id": 3, "n": 3}])
        writer.commit(3)
    assert [(row["n"], row["a"], row["b"]) for row in rows(table)] == [(1, None, None), (7, None, 6), (3, None, None)]
    found = mg.table(table.path)
    assert found.read(snapshot=first.id, columns=["id", "a"]).to_arrow().num_rows == 2
    assert found.check() == ()


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize(
    ("key", "partition", "options"),
    [
        (["id"], [], {"bucket": 2}),
        (["id"], [], {"bucket": 1, "changelog-producer": "input", "merge-engine": "partial-update"}),
        (["id"], [], {"bucket": 1, "changelog-producer": "per-record"}),
        (["id"], [], {"bucket": 1, "changelog-producer": "lookup"}),
        (["id"], [], {"bucket": -1}),
        (["id"], [], {"bucket": -2}),
        (["id"], ["p"], {"bucket": -1}),
        ([], [], {}),
        ([], ["p"], {"bucket": 2, "bucket-key": "id"}),
    ],
)
@pytest.mark.parametrize("size", [1, 2_000])
def test_rows_that_come_later_in_a_commit_may_bring_columns(tmp_path, key, partition, options, size):
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"write.merge-schema": "true", "write.merge-schema.type-widening": "true", **options}
    columns = {"id": "INT", "p": "INT", "n": "INT", "long": "STRING"}
    made = catalog.create_table("db.t", columns, primary_key=key, partition_by=partition, options=options)

    def part(first, **more):
        more = {"p": 0, "long": "x" * 600, **more}  # many rows are not buffered
        ids = pa.array(range(first, first + size), pa.int32())
        return pa.table({"id": ids} | {name: pa.repeat(pa.scalar(value), size) for name, value in more.items()})

    parts = [part(0, n=1), part(size // 2, n=2**40, a="x"), part(size, a="y", b=True), part(size)]
    with made.writer() as writer:
        for given in parts:
            writer.write(given)
        if not (key and partition):  # keys that move have one writer
            made.write([{"id": 0, "p": 0, "n": 9}])  # takes the same numbers
        writer.commit()
    found = mg.table(made.path)
    if options.get("bucket") == -2:
        found.compact()
    there = found.read().to_arrow().select(["id", "n", "a", "b"]).to_pylist()
    given = [row for one in parts for row in one.to_pylist()]
    before = [] if key and partition else [{"id": 0, "n": 9}]
    expected = [{"n": None, "a": None, "b": None} | row for row in (*before, *given)]
    if key:
        by_key = {}
        for row in expected:
            before = by_key.get(row["id"], {}) if options.get("merge-engine") else {}
            by_key[row["id"]] = row | {name: value for name, value in before.items() if row[name] is None}
        expected = by_key.values()

    def order(row):
        return row["id"], str(row)

    expected = [{name: row[name] for name in ("id", "n", "a", "b")} for row in expected]
    assert sorted(there, key=order) == sorted(expected, key=order)
    assert found.check() == ()


def test_rows_of_an_iterator_may_bring_columns(table, tmp_path):
    def batches():
        yield pa.record_batch({"id": [1], "n": [1]})
        yield pa.record_batch({"id": [2], "new": ["b"]})

    merging(table).write(batches())
    (tmp_path / "1.json").write_text('{"id": 3, "n": 3}')
    (tmp_path / "2.json").write_text('{"id": 1, "other": 1.5}')
    merging(table).load(str(tmp_path / "*.json"))
    assert [(row["n"], row["new"], row["other"]) for row in rows(table)] == [
        (7, None, 1.5),
        (7, "b", None),
        (3, None, None),
    ]
    before = mg.table(table.path).latest_snapshot()

    def refused():
        yield {"id": 4, "n": 4}
        yield pa.record_batch({"id": [5], "late": [1]})
        yield pa.record_batch({"id": [None], "n": [1]})

    with pytest.raises(InvalidInputError, match="key column 'id' is null"):
        merging(table).write(refused())
    assert mg.table(table.path).latest_snapshot() == before
    assert mg.table(table.path).schema.names[-1] == "late"


@pytest.mark.parametrize(
    "changes",
    [
        [c.rename_column("n", "m")],
        [c.drop_column("s")],
        [c.move_column("s", first=True)],
        [c.set_option("write-buffer-size", "1 mb")],
        not_null("n"),
    ],
)
def test_rows_that_bring_columns_after_others_altered_the_table_are_refused(table, changes):
    with merging(table).writer() as writer:
        writer.write([{"id": 1, "s": "a"}])
        table.alter(changes)
        row = {"id": 2, "new": 5} | ({"n": 1} if changes == not_null("n") else {})
        with pytest.raises(ConflictError, match=r"others have altered the table meanwhile .* Commit what was taken"):
            writer.write([row])
        writer.commit()
        writer.write([row])
        writer.commit()
    assert [row["new"] for row in rows(table)] == [None, 5]


def test_a_handle_from_before_a_change_writes_what_the_table_is_now(table):
    old = merging(table)
    table.alter([c.rename_column("n", "m"), c.add_column("x", "DATE")])
    old.write([{"id": 1, "m": 4, "y": 5}])
    assert rows(table) == [{"id": 1, "m": 4, "s": None, "r": None, "x": None, "y": 5}]


def test_dictionaries_are_maps_in_a_column_that_is_newer_than_the_handle(table):
    made = table.alter([c.add_column("m", "MAP<STRING, INT>"), c.add_column("l", "ARRAY<MAP<STRING, INT>>")])
    given = {"m": {"a": 1}, "l": [{"b": 2}]}
    merging(table).write([{"id": 1, **given}])
    merging(table).write(iter([{"id": 2, **given}]))
    merging(table).upsert([{"id": 3, **given}])
    with merging(table).writer() as writer:
        writer.write([{"id": 4, "n": 4}])
        writer.write([{"id": 5, **given}])
        writer.commit()
    told = {"m": [("a", 1)], "l": [[("b", 2)]]}
    assert [(row["m"], row["l"]) for row in rows(made) if row["id"] != 4] == [(told["m"], told["l"])] * 4
    assert mg.table(table.path).schema.id == made.schema.id


def test_text_in_files_is_read_by_the_columns_of_today(table, tmp_path):
    made = table.alter([c.add_column("day", "STRING")])
    (tmp_path / "rows.json").write_text('{"id": 1, "day": "2026-01-02"}')
    (tmp_path / "rows.csv").write_text("id,day,new\n2,2026-01-03,5\n")
    merging(table).load(str(tmp_path / "rows.*"))
    assert [(row["day"], row["new"]) for row in rows(made)] == [("2026-01-02", None), ("2026-01-03", 5)]


def test_an_old_handle_is_told_that_the_table_has_got_the_column(table):
    table = table.alter([c.set_default("n", None)])
    table.alter([c.add_column("m", "MAP<STRING, INT>")])
    row = {"id": 1, "n": 1, "s": "a", "r": None, "m": {"a": 1}}
    with pytest.raises(InvalidInputError, match=r"the table has got column 'm' \(schema 2\) since it was opened with"):
        table.write([row])
    with pytest.raises(ConflictError, match=r"it got columns that the rows have: m \(schema 2\). Nothing was written"):
        table.upsert([row])
    with pytest.raises(InvalidInputError, match="column 'x' of the data is not a column of the table"):
        table.write([{"id": 1, "x": 1}])
    assert rows(table) == []


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


def test_columns_given_by_name_may_be_new(table):
    table.write([{"id": 1, "n": 1, "s": "a", "r": None}])
    merging(table).write([{"id": 1, "a": 5}], columns=["id", "a"])
    with merging(table).writer(columns=["id", "b"]) as writer:
        writer.write([{"id": 2, "b": 6}])
        writer.commit()
    done = merging(table).upsert([{"id": 2, "c": True}], columns=["id", "c"])
    assert (done.inserted, done.updated) == (0, 1)
    assert [(row["n"], row["s"], row["a"], row["b"], row["c"]) for row in rows(table)] == [
        (7, None, 5, None, None),
        (7, None, None, 6, True),
    ]
    with pytest.raises(InvalidInputError, match="column 'd' is missing from the data but among the columns given"):
        merging(table).write([{"id": 3}], columns=["id", "d"])
    with pytest.raises(InvalidInputError, match="column 'e' is in the data but not among the columns given"):
        merging(table).write([{"id": 3, "d": 1, "e": 1}], columns=["id", "d"])
    with pytest.raises(InvalidInputError, match="it has no column 'd'"):
        mg.table(table.path).write([{"id": 3, "d": 1}], columns=["id", "d"])
    assert "d" not in mg.table(table.path).schema.names


def test_columns_given_by_name_may_be_new_where_rows_are_looked_up(tmp_path):
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"changelog-producer": "per-record", "write.merge-schema": "true"}
    made = catalog.create_table("db.t", {"id": "INT", "n": "INT", "s": "STRING"}, primary_key=["id"], options=options)
    made.write([{"id": 1, "n": 1, "s": "a"}])
    made.write([{"id": 1, "a": 5}], columns=["id", "a"])
    made.write([{"id": 1, "n": 2, "s": "b", "a": 6, "b": 7}], columns=["id", "n", "s", "a", "b"])
    with mg.table(made.path).writer(columns=["id", "n", "s", "a", "b", "c"]) as writer:
        writer.write([{"id": 2, "n": 2, "s": "b", "a": 6, "b": 7, "c": 8}])
        writer.commit()
    assert rows(made) == [
        {"id": 1, "n": 2, "s": "b", "a": 6, "b": 7, "c": None},
        {"id": 2, "n": 2, "s": "b", "a": 6, "b": 7, "c": 8},
    ]


def test_new_columns_whose_names_do_not_tell_them_apart_are_refused(table):
    made = table.alter([c.add_column("both", "INT"), c.add_column("Both", "INT")])
    struct = pa.array([{"x": 1, "X": 2}])
    for names, columns, said in (
        (["id", "new", "new"], [[1], [1], [2]], "column 'new' to the table: it occurs 2 times in the data"),
        (["id", "new", "New"], [[1], [1], [2]], "column 'New' to the table: it differs from column 'new' of the data"),
        (["id", "N"], [[1], [1]], "column 'N' to the table: it differs from column 'n' of the table in case alone"),
        (["id", "n", "N"], [[1], [1], [2]], "column 'N' to the table: it differs from column 'n' of the table"),
        (["id", "r"], [[1], struct], "column 'r.X' to the table: it differs from column 'r.x' of the table"),
        (["id", "new"], [[1], struct], "column 'new.X' to the table: it differs from column 'new.x' of the data"),
        (["id", "new"], [[1], pa.array([[{"x": 1, "X": 2}]])], "column 'new.X' to the table: it differs"),
    ):
        given = pa.table(columns, names=names)
        for give in (merging(made).write, merging(made).upsert, merging(made).writer().write):
            with pytest.raises(InvalidInputError, match=said):
                give(given)
    assert mg.table(table.path).schema.id == made.schema.id
    assert mg.table(table.path).read().to_arrow().num_rows == 0
    merging(made).write([{"id": 1, "both": 1, "Both": 2}])
    assert [(row["both"], row["Both"]) for row in rows(table)] == [(1, 2)]


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_new_column_whose_name_is_empty_or_has_a_dot_is_refused_and_the_schema_stays(
    name: str, tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write.merge-schema": "true"}
    table = catalog.create_table("db.t", {"k": "INT", "a": "ROW<x INT>"}, primary_key=["k"], options=options)
    with pytest.raises(InvalidInputError, match=f"cannot add column '{re.escape(name)}'.*Nothing was written"):
        table.write(pa.table({"k": [1], name: ["x"]}))
    assert catalog.table("db.t").schema == table.schema
    assert table.snapshots() == ()
