"""Clients of a REST catalog that only read: Spark writes no file for them, neither in its tasks nor by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser import errors as e
from tests.catalogs.rest import Server

pytestmark = pytest.mark.spark
READER = "a-token-of-clients-that-read"
Verb = Callable[[SparkSession, mg.Catalog, mg.Table, DataFrame, Path], Any]


def stream(spark: SparkSession, _catalog: mg.Catalog, table: mg.Table, _df: DataFrame, folder: Path) -> None:
    (folder / "source").mkdir()
    (folder / "source" / "rows.csv").write_text("7,new\n")
    rows = spark.readStream.schema("id BIGINT, state STRING").csv(str(folder / "source"))
    query = ms.write_stream(rows, table, str(folder / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()


def load(spark: SparkSession, _catalog: mg.Catalog, table: mg.Table, _df: DataFrame, folder: Path) -> None:
    (folder / "rows.csv").write_text("id,state\n7,new\n")
    ms.load(spark, str(folder / "rows.csv"), table)


def sql(text: str) -> Verb:
    return lambda spark, catalog, _t, _df, _f: ms.session(spark, catalog).sql(text)


VERBS: Mapping[str, Verb] = {
    "write": lambda _s, _c, table, df, _f: ms.write(df, table),
    "write through files": lambda _s, _c, table, df, _f: ms.write(df, table, through="files"),
    "write in the driver": lambda _s, _c, table, df, _f: ms.write(df, table, collect=True),
    "write_stream": stream,
    "load": load,
    "delete": lambda spark, _c, table, _df, _f: ms.delete(spark, table, "id = 1"),
    "update": lambda spark, _c, table, _df, _f: ms.update(spark, table, "id = 1", {"state": "'x'"}),
    "erase": lambda spark, _c, table, _df, _f: ms.erase(spark, table, "id = 1"),
    "compact": lambda spark, _c, table, _df, _f: ms.compact(spark, table, full=True),
    "rescale": lambda spark, _c, table, _df, _f: ms.rescale(spark, table, 2),
    "INSERT": sql("INSERT INTO shop.orders VALUES (5, 'x')"),
    "INSERT of a query": sql("INSERT INTO shop.orders SELECT id + 10, state FROM shop.orders"),
    "CREATE TABLE AS": sql("CREATE TABLE shop.copy AS SELECT * FROM shop.orders"),
    "MERGE": sql(
        "MERGE INTO shop.orders t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET state = 'y'"
    ),
    "CALL": sql("CALL sys.rollback('shop.orders', 1)"),
}


def files(folder: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_spark_writes_no_file_for_a_reader(tmp_path: Path, spark: SparkSession) -> None:
    server = Server(tmp_path, read_token=READER)
    owner = server.files()
    owner.create_database("shop")
    options = {"bucket": "1", "write-only": "true"}
    table = owner.create_table("shop.orders", "id BIGINT, state STRING, PRIMARY KEY (id)", options=options)
    for number in range(3):
        table.write([{"id": number, "state": "new"}])
    reader = server.catalog(token=READER)
    seen = reader.table("shop.orders")
    assert ms.read(spark, seen).count() == 3
    before = files(tmp_path / "warehouse")
    rows = spark.createDataFrame([(9, "x")], "id BIGINT, state STRING")
    wrong = {}
    for verb, change in VERBS.items():
        try:
            change(spark, reader, seen, rows, tmp_path)
            wrong[verb] = "no error"
        except e.UnsupportedError as error:
            if "lets this client only read. Nothing was changed. " not in str(error):
                wrong[verb] = str(error)
        except Exception as error:  # such as that of a query
            if "lets this client only read" not in str(error):
                wrong[verb] = repr(error)[:300]
        if files(tmp_path / "warehouse") != before:
            wrong[verb] = wrong.get(verb, "") + " files changed"
            before = files(tmp_path / "warehouse")
    assert wrong == {}
    assert server.stop() == 0
