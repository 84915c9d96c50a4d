"""Tables that are altered under Spark's eyes: reads, writes and streams that began before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import merganser as mg
import merganser.spark as ms
from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog.create_table(
        "db.t", {"id": "INT", "n": "INT", "s": "STRING"}, primary_key=["id"], options={"bucket": "2"}
    )


def rows(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["id"])


def test_reads_show_the_columns_of_the_handle_and_of_the_path(spark: Any, table: mg.Table) -> None:
    table.write([{"id": 1, "n": 7, "s": "a"}])
    before = ms.read(spark, table)
    made = table.alter(
        [c.rename_column("n", "m"), c.retype_column("m", "STRING"), c.add_column("x", "INT", after="id")]
    )
    made.write([{"id": 2, "x": 5, "m": "8", "s": "b"}])
    after = [{"id": 1, "x": None, "m": "7", "s": "a"}, {"id": 2, "x": 5, "m": "8", "s": "b"}]
    assert rows(ms.read(spark, made)) == rows(ms.read(spark, table.path)) == after
    assert rows(ms.read(spark, made, where="m = '7'")) == after[:1]
    assert rows(before.select("id", "s")) == [{"id": 1, "s": "a"}]  # a DataFrame stays at its snapshot
    assert rows(ms.changes(spark, made, 1, 2).drop("_row_kind")) == after


@pytest.mark.parametrize("through", ["arrow", "files", "source"])
def test_writes_bring_new_columns_where_the_table_takes_them(spark: Any, table: mg.Table, through: str) -> None:
    table.write([{"id": 1, "n": 7, "s": "a"}])
    frame = spark.createDataFrame(
        [(2, 2**40, [(1.5, "x")])], "id INT, n BIGINT, new ARRAY<STRUCT<a: DOUBLE, b: STRING>>"
    )
    lacking = spark.createDataFrame([(3, [(2.5,)])], "id INT, new ARRAY<STRUCT<a: DOUBLE>>")
    refused = spark.createDataFrame([(4, "x", 1)], "id INT, new STRING, other INT")
    options = {"write.merge-schema": "true", "write.merge-schema.type-widening": "true"}
    if through == "source":
        ms.register(spark)
        for given in (frame, lacking):
            given.write.format("merganser").mode("append").options(**options).save(table.path)
    else:
        with pytest.raises(InvalidInputError, match="column 'new' of the data is not a column of the table"):
            ms.write(frame, table, through=through)
        for given in (frame, lacking):
            ms.write(given, table.with_options(options), through=through)
        with pytest.raises(InvalidInputError, match="column 'new' is string in the data"):
            ms.write(refused, table.with_options(options), through=through)
    assert rows(ms.read(spark, table.path)) == [
        {"id": 1, "n": 7, "s": "a", "new": None},
        {"id": 2, "n": 2**40, "s": None, "new": [{"a": 1.5, "b": "x"}]},
        {"id": 3, "n": None, "s": None, "new": [{"a": 2.5, "b": None}]},
    ]
    assert mg.table(table.path).check() == ()


@pytest.mark.parametrize("through", ["arrow", "source"])
def test_new_columns_may_be_named_and_have_any_case_once_they_are_there(
    spark: Any, table: mg.Table, through: str
) -> None:
    options = {"write.merge-schema": "true"}

    def give(frame: Any, *columns: str) -> None:
        if through == "source":
            ms.register(spark)
            named = options | ({"columns": ", ".join(columns)} if columns else {})
            frame.write.format("merganser").mode("append").options(**named).save(table.path)
        else:
            ms.write(frame, table.with_options(options), columns=columns or None, through=through)

    give(spark.createDataFrame([(1, 2)], "id INT, New INT"), "ID", "new")
    give(spark.createDataFrame([(2, 3)], "ID INT, NEW INT"))  # the handle is older than the column
    assert rows(ms.read(spark, table.path).select("id", "New")) == [{"id": 1, "New": 2}, {"id": 2, "New": 3}]


def test_a_stream_goes_on_with_its_columns_and_a_new_one_sees_the_new_columns(
    spark: Any, table: mg.Table, tmp_path: Path
) -> None:
    table.write([{"id": 1, "n": 7, "s": "a"}])
    target = tmp_path / "target"
    catalog = mg.catalog(str(target), options={"local.sync": "false"})
    catalog.create_database("db")
    copy = catalog.create_table("db.copy", {"id": "INT", "n": "INT", "s": "STRING"}, primary_key=["id"])
    merging = copy.with_options({"write.merge-schema": "true"})

    def run(source: mg.Table | str) -> None:
        frame = ms.read_stream(spark, source)
        query = ms.write_stream(
            frame, merging, checkpoint=str(tmp_path / "checkpoint"), kinds="_row_kind", trigger={"availableNow": True}
        )
        query.awaitTermination()

    run(table)
    made = table.alter([c.add_column("x", "INT"), c.rename_column("s", "text")])
    made.write([{"id": 2, "n": 8, "text": "b", "x": 5}])
    run(table)  # a handle from before: the columns of then
    made.write([{"id": 3, "n": 9, "text": "c", "x": 6}])
    with pytest.raises(StreamingQueryException, match="with snapshot 3 the table has other columns"):
        run(table.with_options({"scan.schema-changes": "end"}))
    run(made)
    assert rows(ms.read(spark, copy.path)) == [
        {"id": 1, "n": 7, "s": "a", "text": None, "x": None},
        {"id": 2, "n": 8, "s": "b", "text": None, "x": None},
        {"id": 3, "n": 9, "s": None, "text": "c", "x": 6},
    ]


def test_writes_by_a_wider_type_than_the_table_has_now_are_refused(spark: Any, table: mg.Table, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(2, 70_000, "b")], "id INT, n INT, s STRING")
    table.alter([c.retype_column("n", "SMALLINT")])
    fact = "column 'n' was changed from INT to SMALLINT"
    for how in ({}, {"collect": True}, {"overwrite": {}}):
        with pytest.raises(ConflictError, match=fact):
            ms.write(frame, table, **how)
    frame.write.json(str(tmp_path / "source"))
    source = spark.readStream.schema(frame.schema).json(str(tmp_path / "source"))
    query = ms.write_stream(source, table, checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=fact):
        query.awaitTermination(60)
    assert rows(ms.read(spark, table.path)) == []
