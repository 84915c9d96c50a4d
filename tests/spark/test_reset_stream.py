"""`ms.reset_stream`: a chain of two streams after a rollback of its source, with kills between the steps."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark


@pytest.mark.campaign(1 / 2)
def test_a_chain_of_sums_goes_on_after_a_rollback_and_is_right(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    sums = {"merge-engine": "aggregation", "changelog-producer": "lookup", "bucket": "1"}
    orders = catalog.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "country": "STRING", "amount": "BIGINT"},
        primary_key=["id"],
        options={"changelog-producer": "lookup", "bucket": "1"},
    )
    revenue = catalog.create_table(
        "shop.revenue",
        schema={"country": "STRING", "amount": "BIGINT"},
        primary_key=["country"],
        options={**sums, "fields.amount.aggregate-function": "sum"},
    )
    totals = catalog.create_table(
        "shop.totals",
        schema={"k": "INT", "countries": "BIGINT", "amount": "BIGINT"},
        primary_key=["k"],
        options={
            **sums,
            "fields.countries.aggregate-function": "sum",
            "fields.amount.aggregate-function": "sum",
        },
    )
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    def run_first() -> None:
        rows = ms.read_stream(spark, orders).selectExpr("_row_kind", "country", "amount")
        ms.write_stream(rows, revenue, first, kinds="_row_kind", trigger="availableNow").awaitTermination()

    def run_second() -> None:
        rows = ms.read_stream(spark, revenue).selectExpr("_row_kind", "1 AS k", "1L AS countries", "amount")
        ms.write_stream(rows, totals, second, kinds="_row_kind", trigger="availableNow").awaitTermination()

    def check() -> None:
        wanted = Counter[str]()
        for row in orders.read().to_pylist():
            wanted[row["country"]] += row["amount"]
        assert {row["country"]: row["amount"] for row in revenue.read().to_pylist() if row["amount"]} == wanted
        total = totals.read().to_pylist()
        assert [(row["countries"], row["amount"]) for row in total] == [(len(wanted), wanted.total())]

    orders.write([{"id": i, "country": "at" if i % 2 else "de", "amount": i} for i in range(10)])
    run_first()
    run_second()
    good = orders.snapshots()[-1].id
    orders.write([{"id": 3, "country": "at", "amount": 5000}, {"id": 10, "country": "fr", "amount": 7}])
    run_first()
    run_second()
    check()

    orders.rollback(snapshot=good)
    orders.write([{"id": 3, "country": "de", "amount": 30}])
    with pytest.raises(PySparkException, match=r"rolled back behind.*ms\.reset_stream\(spark, checkpoint, '.*orders'"):
        run_first()
    with pytest.raises(mg.errors.ConflictError, match=r"Roll 'shop.revenue' back with table.rollback") as refused:
        ms.reset_stream(spark, first, orders, table=revenue)
    revenue.rollback(snapshot=refused.value.context["snapshot"])

    shutil.copytree(first, tmp_path / "before")
    reset = ms.reset_stream(spark, first, orders, table=revenue)
    assert (reset.table_batch, reset.next_batch, reset.after) == (0, 4, (good,))
    for left in (["offsets/2"], ["offsets/2", "offsets/3"]):  # what a kill leaves
        shutil.copytree(tmp_path / "before", tmp_path / "killed", dirs_exist_ok=True)
        for name in left:
            shutil.copy(Path(first) / name, tmp_path / "killed" / name)
        again = ms.reset_stream(spark, str(tmp_path / "killed"), orders, table=revenue)
        assert (again.table_batch, again.after) == (0, (good,))
        shutil.rmtree(tmp_path / "killed")
    (Path(first) / "commits" / "3").unlink()  # killed before the last file, and started all the same
    run_first()

    with pytest.raises(mg.errors.ConflictError, match=r"Roll 'shop.totals' back") as refused:
        ms.reset_stream(spark, second, revenue, table=totals)
    totals.rollback(snapshot=refused.value.context["snapshot"])
    ms.reset_stream(spark, second, revenue.path, table=totals.path)
    run_second()
    check()


def test_a_reset_is_refused_while_the_query_runs(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    source = catalog.create_table("shop.source", schema={"id": "INT"}, options={"bucket": "-1"})
    copy = catalog.create_table("shop.copy", schema={"id": "INT"}, options={"bucket": "-1"})
    source.write([{"id": 1}])
    checkpoint = str(tmp_path / "checkpoint")
    query = ms.write_stream(ms.read_stream(spark, source, kinds=False), copy, checkpoint)
    try:
        query.processAllAvailable()
        with pytest.raises(mg.errors.ConflictError, match="runs in this session"):
            ms.reset_stream(spark, checkpoint, source, start="latest-full")
    finally:
        query.stop()
    assert ms.reset_stream(spark, checkpoint, source, start="latest-full").after == (None,)
    again = ms.read_stream(spark, source, kinds=False)
    ms.write_stream(again, copy, checkpoint, trigger="availableNow").awaitTermination()
    assert copy.read().to_pylist() == [{"id": 1}, {"id": 1}]


@pytest.mark.campaign(1 / 2)
def test_all_sources_of_a_query_go_back_together(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    tables = [
        catalog.create_table(f"shop.{name}", schema={"id": "STRING"}, options={"bucket": "-1"})
        for name in ("one", "two", "copy")
    ]
    one, two, copy = tables
    folder = tmp_path / "texts"
    folder.mkdir()
    checkpoint = str(tmp_path / "checkpoint")

    def run() -> None:
        texts = spark.readStream.text(str(folder)).selectExpr("value AS id")
        rows = ms.read_stream(spark, one, kinds=False).union(ms.read_stream(spark, two, kinds=False)).union(texts)
        ms.write_stream(rows, copy, checkpoint, trigger="availableNow").awaitTermination()

    for number in "12":
        one.write([{"id": f"one {number}"}])
        two.write([{"id": f"two {number}"}])
        (folder / f"{number}.txt").write_text(f"text {number}\n")
        run()
    whole = sorted(row["id"] for row in copy.read().to_pylist())
    assert len(whole) == 6
    copy.rollback(snapshot=1)
    with pytest.raises(mg.errors.InvalidInputError, match="source 2 of the query has the offset"):
        ms.reset_stream(spark, checkpoint, [one, two, copy], table=copy)
    assert ms.reset_stream(spark, checkpoint, [one, two, None], table=copy).after == (1, 1, None)
    run()
    assert sorted(row["id"] for row in copy.read().to_pylist()) == whole
