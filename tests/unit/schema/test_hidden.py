"""What NOT NULL parts hold under null rows: values, so that any writer of files takes the rows."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.meta.schemas import SchemaStore
from merganser.schema.arrow import arrow_type
from merganser.schema.hidden import nulls, with_values_under_nulls
from merganser.schema.types_text import parse_type
from tests.kit.builders import catalog_over, memory_with

KINDS = {
    "ROW<a INT NOT NULL>": {"a": 1},
    "ROW<b ROW<a STRING NOT NULL> NOT NULL, c INT>": {"b": {"a": "q"}, "c": None},
    "ROW<a ARRAY<ROW<b BIGINT NOT NULL> NOT NULL> NOT NULL>": {"a": [{"b": 2}]},
    "ARRAY<ROW<a INT NOT NULL>>": [{"a": 1}, None],
    "MAP<STRING, ROW<a DECIMAL(10, 2) NOT NULL>>": [("k", None)],
    "MULTISET<STRING>": [("k", 2)],
    "VARIANT": {"value": b"\x0c\x01", "metadata": b"\x01\0\0"},
}
TABLES = [(form, kind) for form in ("parquet", "orc", "avro") for kind in KINDS if (form, kind) != ("avro", "VARIANT")]


def written(column):
    """The same column out of a file that Arrow wrote."""
    file = io.BytesIO()
    pq.write_table(pa.table({"x": column}), file)
    return pq.read_table(file).column("x").to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_nulls_of_any_type_can_be_written(kind):
    made = nulls(3, arrow_type(parse_type(kind)))
    assert written(made) == [None, None, None]
    assert len(nulls(0, made.type)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_arrow_leaves_under_nulls_is_replaced_wherever_it_lies(kind):
    values = pa.array([KINDS[kind], None], arrow_type(parse_type(kind)))
    taken = values.take(pa.array([None, 0, 1, None, 0]))
    inside = pa.StructArray.from_arrays(
        [taken], fields=[pa.field("y", taken.type)], mask=pa.array([False, True, False, False, True])
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2, None, 5], pa.int32()), taken)
    for array in (taken, taken[1:4], inside, inside[2:], lists, lists[1:]):
        column = pa.chunked_array([array])
        filled = with_values_under_nulls(column)
        filled.validate(full=True)
        assert filled.to_pylist() == column.to_pylist() == written(filled)


def test_a_null_that_can_be_seen_stays():
    kind = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    rows = pa.StructArray.from_arrays(
        [pa.array([None, None, 3], pa.int32())], fields=list(kind), mask=pa.array([True, False, False])
    )
    filled = with_values_under_nulls(pa.chunked_array([rows])).chunk(0)
    assert filled.field(0).to_pylist() == [0, None, 3]


def test_what_needs_nothing_is_not_copied():
    for kind in ("INT", "ROW<a INT>", "ROW<a INT NOT NULL>", "ARRAY<ROW<a INT NOT NULL>>"):
        column = pa.chunked_array([pa.array([None, None], arrow_type(parse_type(kind)))])
        assert with_values_under_nulls(column) is column


def rows_of(table):
    """Rows by their id, and a check that Arrow can write what was read."""
    found = table.read().to_arrow().sort_by("i")
    pq.write_table(found, io.BytesIO())
    return found.column("x").to_pylist()


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize(("form", "kind"), TABLES)
def test_tables_keep_null_rows_through_writes_and_compactions(form, kind):
    catalog = catalog_over(memory_with({}, f"hidden-{form}-{kind}"))
    catalog.create_database("d")
    value = KINDS[kind]
    for engine in ("", "deduplicate", "partial-update", "first-row", "aggregation"):
        table = catalog.create_table(
            f"d.t{engine.replace('-', '')}",
            {"i": "INT", "x": kind},
            primary_key=["i"] if engine else [],
            options={"file.format": form} | ({"bucket": "1", "merge-engine": engine} if engine else {}),
        )
        table.write([{"i": 0, "x": None}])
        table.write([{"i": 1, "x": None}, {"i": 2, "x": value}])
        table.write([{"i": 3}], columns=["i"])
        if engine:
            table.write([{"i": 0, "x": None}, {"i": 1, "x": None}])
        assert rows_of(table) == [None, None, value, None]
        table.compact(full=True)
        assert rows_of(table) == [None, None, value, None]


@pytest.mark.parametrize(("form", "kind"), TABLES)
def test_a_column_added_later_is_null_in_older_rows_and_can_be_compacted(form, kind):
    catalog = catalog_over(memory_with({}, f"hidden-later-{form}-{kind}"))
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"i": "INT"}, options={"file.format": form})
    table.write([{"i": 0}])
    table.write([{"i": 1}])
    wanted = catalog.create_table("d.wanted", {"i": "INT", "x": kind}).schema
    SchemaStore(table.definition.paths, table.env).create(
        replace(table.schema, id=1, fields=wanted.fields, highest_field_id=wanted.highest_field_id)
    )
    table = catalog.table("d.t")
    table.write([{"i": 2, "x": KINDS[kind]}])
    assert rows_of(table) == [None, None, KINDS[kind]]
    table.compact(full=True)
    assert rows_of(table) == [None, None, KINDS[kind]]
