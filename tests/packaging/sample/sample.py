"""A program of a user: type checkers know what the public functions return. `assert_type` is their claim."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, assert_type

import pandas as pd
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser import Snapshot, Table


def catalogs() -> Table:
    shop = assert_type(mg.catalog("warehouse", clock=lambda: datetime.now(UTC)), mg.Catalog)
    shop.create_database("shop", if_not_exists=True)
    assert_type(shop.list_databases(), list[str])
    assert_type(shop.list_tables("shop"), list[str])
    assert_type(shop.sql("SELECT count(*) FROM shop.orders", {"a": 1}), pa.Table)
    assert_type(shop.session().sql("SELECT 1"), pa.Table)
    shop.table("shop.orders").write([{"id": 1}])
    opened: Table = shop.table("shop.orders")
    assert_type(shop.alter_table("shop.orders", [mg.changes.add_column("note", "STRING", after="id")]), Table)
    assert_type(mg.table("warehouse/shop.db/orders", options={"s3.region": "x"}), Table)
    return (
        assert_type(
            shop.create_table("shop.orders", schema={"id": "BIGINT", "state": "STRING"}, primary_key=["id"]), Table
        )
        or opened
    )


def writes(orders: Table) -> Snapshot | None:
    assert_type(orders.write([{"id": 1, "state": "new"}]), Snapshot | None)
    with orders.writer(commit_user="job-7") as writer:
        writer.write(pa.table({"id": [1], "state": ["paid"]}), kinds=["+U"])
        assert_type(writer.commit(identifier=3), Snapshot | None)
    assert_type(orders.delete("id < 0"), Snapshot | None)
    assert_type(orders.update("id < 0", {"state": "'gone'"}), Snapshot | None)
    assert_type(orders.compact(full=True), Snapshot | None)
    return orders.merge([{"id": 1}], on="target.id = source.id").when_matched_delete().execute()


def reads(orders: Table) -> list[dict[str, Any]]:
    scan = orders.read(columns=["id"], where="id > 3", limit=10)
    assert_type(scan.to_arrow(), pa.Table)
    assert_type(scan.to_batches(), Iterator[pa.RecordBatch])
    assert_type(scan.to_pandas(), pd.DataFrame)
    assert_type(scan.to_polars(), pl.DataFrame)
    assert_type(scan.count(), int)
    assert_type(scan.explain(), str)
    assert_type(orders.changes(start=1).to_arrow(), pa.Table)
    assert_type(orders.lookup([{"id": 1}]), pa.Table)
    for changed in orders.stream(follow=False):
        assert_type(changed, pa.Table | mg.Gap)
    assert_type(orders.files(), pa.Table)
    assert_type(orders.snapshots(), tuple[Snapshot, ...])
    assert_type(orders.snapshots()[0].id, int)
    assert_type(orders.primary_key, tuple[str, ...])
    assert_type(orders.tags.create("v1").name, str)
    assert_type(orders.branch("b"), Table)
    assert_type(orders.system("snapshots").to_pylist(), list[dict[str, Any]])
    return scan.to_pylist()


def errors(orders: Table) -> str:
    try:
        orders.rollback(snapshot=3)
    except mg.errors.ExpiredError as error:
        return assert_type(error.code, str)
    return ""


def on_spark(spark: SparkSession, orders: Table) -> DataFrame:
    ms.register(spark)
    assert_type(ms.write(ms.read(spark, orders, columns=["id"]), orders, kinds="op"), Snapshot | None)
    assert_type(ms.session(spark, mg.catalog("warehouse")).sql("SELECT 1"), DataFrame)
    return assert_type(ms.read_stream(spark, orders), DataFrame)


def cursors() -> list[tuple[Any, ...]]:
    with mg.dbapi.connect("warehouse", database="shop") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM orders WHERE id = :id", {"id": 1})
        return assert_type(cursor.fetchall(), list[tuple[Any, ...]])
