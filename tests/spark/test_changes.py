"""`ms.changes` and the options of changes on the data source: what the embedded reads give, in parallel tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError, NotFoundError, UntrackedError

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    options = {"bucket": "3", "write-only": "true"}
    table = catalog.create_table(
        "shop.orders", schema={"dt": "STRING", "id": "INT", "n": "INT"}, primary_key=["dt", "id"],
        partition_by=["dt"], options=options,
    )  # fmt: skip
    table.write([{"dt": f"d{i % 2}", "id": i, "n": i} for i in range(40)])
    table.write([{"dt": f"d{i % 2}", "id": i, "n": -i} for i in range(0, 40, 3)])
    table.write([{"dt": "d0", "id": 4, "n": 4}, {"dt": "d0", "id": 99, "n": 9}], kinds=["-D", "+I"])
    table.compact(full=True)
    return table


def counted(found: DataFrame) -> Counter[Any]:
    return Counter(tuple(row) for row in found.collect())


@pytest.mark.parametrize("mode", ["delta", "diff"])
def test_changes_are_those_of_embedded_reads(spark: SparkSession, orders: mg.Table, mode: str) -> None:
    frame = ms.changes(spark, orders, 2, 3, mode=mode)
    assert frame.columns == ["_row_kind", "dt", "id", "n"]
    assert counted(frame) == Counter(tuple(row.values()) for row in orders.changes(2, 3, mode=mode).to_pylist())
    assert counted(frame.filter("_row_kind = '-D'").select("ID")) == {(4,): 1}
    some = ms.changes(spark, orders.path, 2, columns=["N"], where="_row_kind <> '-U' AND id > 30", mode=mode)
    assert {row.n for row in some.collect()} == {-33, -36, -39, 9}
    assert ms.changes(spark, orders, 4, 4, mode=mode).collect() == []


def test_options_of_the_data_source(spark: SparkSession, orders: mg.Table) -> None:
    orders.tags.create("a", snapshot=1)
    orders.tags.create("b", snapshot=4)
    reader = spark.read.format("merganser")
    for between, mode in (("1,3", "delta"), ("1,3", "diff"), ("a,b", "auto")):
        options = {"incremental-between": between, "incremental-between-scan-mode": mode}
        wanted = Counter(tuple(row.values()) for row in orders.with_options(options).read().to_pylist())
        assert counted(reader.options(**options).load(orders.path)) == wanted
        assert counted(ms.read(spark, orders.with_options(options))) == wanted
    tagged = ms.changes(spark, orders.with_options({"incremental-between": "a,b"}))
    assert {row._row_kind for row in tagged.collect()} == {"+I", "-U", "+U", "-D"}


@pytest.mark.parametrize("view", ["audit_log", "binlog", "changelog"])
def test_views_are_read_by_path_and_by_name(
    spark: SparkSession, catalog: mg.Catalog, orders: mg.Table, view: str
) -> None:
    range_ = {"incremental-between": "1,3"}
    wanted = Counter(map(repr, orders.with_options(range_).system(view).to_arrow().select([0, -1]).to_pylist()))
    loaded = spark.read.format("merganser").options(**range_).load(f"{orders.path}${view}")
    named = ms.read(spark, type(catalog.table(f"shop.orders${view}"))(orders.with_options(range_), view))
    for frame in (loaded, named):
        found = frame.select(frame.columns[0], frame.columns[-1])
        assert Counter(repr(row.asDict(recursive=True)) for row in found.collect()) == wanted
    fluss = spark.read.format("merganser").option("binlog.columns", "fluss").load(f"{orders.path}$binlog")
    assert fluss.filter("_change_type = 'delete' AND after IS NULL").select("before.id").collect() == [(4,)]
    assert spark.read.format("merganser").load(f"{orders.path}$ro").count() == 40


def test_a_write_that_leaves_changes_out_is_a_gap(spark: SparkSession, orders: mg.Table) -> None:
    ms.write(spark.createDataFrame([("d1", 1, 5)], "dt string, id int, n int"), orders, changes=False)
    with pytest.raises(UntrackedError, match="snapshot 5 changed rows of partition dt=d1"):
        ms.changes(spark, orders, 4)
    assert ms.changes(spark, orders, 4, gaps="skip").collect() == []
    assert ms.changes(spark, orders, 4, where="dt = 'd0'").collect() == []


def test_an_erasure_between_changes_and_their_collection_is_named(spark: SparkSession, orders: mg.Table) -> None:
    frames = [ms.changes(spark, orders, mode=mode) for mode in ("auto", "diff")]
    orders.erase("id = 1", everywhere=True)
    for frame in frames:
        with pytest.raises(PySparkException, match=r"erase\(..., everywhere=True\) at .* ended snapshot"):
            frame.collect()


def test_refusals(spark: SparkSession, orders: mg.Table) -> None:
    with pytest.raises(NotFoundError, match="snapshot 9 is not there yet"):
        ms.changes(spark, orders, 1, 9)
    with pytest.raises(InvalidInputError, match="mode is 'all'"):
        ms.changes(spark, orders, mode="all")
