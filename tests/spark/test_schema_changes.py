"""Tables that are altered under Spark's eyes: reads, writes and streams that began before and after."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError
from tests.conformance.quick import quick_options

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def one_task(spark: Any) -> Iterator[None]:
    """Shuffle a few rows into one task instead of four."""
    with quick_options(spark, spark.conf.get("spark.sql.session.timeZone")):
        yield


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


WIDER = {
    "INT": ("BIGINT", 7, 2**40),
    "FLOAT": ("DOUBLE", 0.5, 0.1),
    "DECIMAL(5, 2)": ("DECIMAL(12, 2)", Decimal("1.25"), Decimal("1234567.25")),
    "VARCHAR(3)": ("STRING", "abc", "abcdef"),
    "ROW<a INT>": ("ROW<a BIGINT>", {"a": 1}, {"a": 2**40}),
    "INT NOT NULL": ("INT", 7, None),
}


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("door", ["read_stream", "source", "shards"])
@pytest.mark.parametrize("old", ["INT", "ROW<a INT>"])
def test_a_query_takes_values_that_fit_stops_at_one_that_does_not_and_goes_on_from_its_checkpoint(
    spark: Any, tmp_path: Path, door: str, old: str
) -> None:
    check_restart(spark, tmp_path, door, old)


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("old", ["FLOAT", "DECIMAL(5, 2)", "VARCHAR(3)", "INT NOT NULL"])
def test_a_query_stops_at_a_value_of_any_wider_type_and_goes_on_from_its_checkpoint(
    spark: Any, tmp_path: Path, old: str
) -> None:
    check_restart(spark, tmp_path, "read_stream", old)


def check_restart(spark: Any, tmp_path: Path, door: str, old: str) -> None:
    new, fits, large = WIDER[old]
    catalog = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "lookup", "stream.enabled": "true"}
    table, copy = (
        catalog.create_table(f"db.{name}", {"id": "INT", "n": old}, primary_key=["id"], options=options)
        for name in ("t", "copy")
    )
    wider = [c.retype_column("n.a", "BIGINT") if "ROW" in old else c.retype_column("n", new)]
    if old.endswith("NOT NULL"):
        wider = [c.set_nullable("n", True)]
    log = tmp_path / "log"

    def made(source: mg.Table) -> Any:
        if door == "source":
            ms.register(spark)
            return spark.readStream.format("merganser").load(source.path)
        frame = ms.read_stream(spark, source, shards=door == "shards")
        return frame.select("id", "n") if door == "shards" else frame.drop("_row_kind")

    def run(frame: Any) -> None:
        ms.write_stream(frame, mg.table(copy.path), checkpoint=str(log), trigger="availableNow").awaitTermination()

    table.write([{"id": 1, "n": fits}])
    running = made(table)
    run(running)
    newer = table.alter(wider)
    newer.write([{"id": 2, "n": fits}])
    if door == "source":  # a DataFrame of the path looks at the table whenever its query starts
        newer.write([{"id": 3, "n": large}])
        with pytest.raises(StreamingQueryException, match="load the table anew"):
            run(running)
    else:
        run(running)
        newer.write([{"id": 3, "n": large}])
        with pytest.raises(StreamingQueryException) as caught:
            run(running)
        told = str(caught.value)
        assert "Open the table again, make the DataFrame again" in told
        if large is not None and "ROW" not in old:
            assert f"'{large}' was written as {new} and does not fit {old}" in told
    copy.alter(wider)
    run(made(mg.table(table.path)))
    seen = [{"id": 1, "n": fits}, {"id": 2, "n": fits}, {"id": 3, "n": large}]
    result = mg.table(copy.path)
    assert sorted(result.read().to_pylist(), key=lambda row: row["id"]) == seen
    assert sorted(row["id"] for row in result.changes().to_pylist()) == [1, 2, 3]  # each was written once


@pytest.mark.campaign(1 / 2)
def test_state_goes_on_with_a_wider_column_unless_it_holds_the_column(spark: Any, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"id": "INT", "n": "INT"}, primary_key=["id"], options={"bucket": "1"})
    sums = catalog.create_table("db.sums", {"half": "INT", "total": "BIGINT"})
    keys = catalog.create_table("db.keys", {"n": "BIGINT", "rows": "BIGINT"})

    def total(source: mg.Table) -> None:
        frame = ms.read_stream(spark, source).groupBy((f.col("id") % 2).alias("half"))
        frame = frame.agg(f.sum("n").alias("total"))
        run(frame, sums, "sums")

    def count(source: mg.Table) -> None:
        frame = ms.read_stream(spark, source).groupBy("n").agg(f.count("*").alias("rows"))
        run(frame, keys, "keys")

    def run(frame: Any, target: mg.Table, name: str) -> None:
        query = ms.write_stream(frame, target, checkpoint=str(tmp_path / name), mode="complete", trigger="availableNow")
        query.awaitTermination()

    table.write([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    total(table)
    count(table)
    made = table.alter([c.retype_column("n", "BIGINT")])
    made.write([{"id": 3, "n": 2**40}])
    with pytest.raises(StreamingQueryException, match=r"does not fit INT.*from the same checkpoint"):
        total(table)
    total(made)
    assert sorted(sums.read().to_pylist(), key=lambda row: row["half"]) == [
        {"half": 0, "total": 2},
        {"half": 1, "total": 2**40 + 1},
    ]
    with pytest.raises(StreamingQueryException, match="STATE"):
        count(made)
