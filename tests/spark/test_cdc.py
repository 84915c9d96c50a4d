"""`ms.cdc.parse`: change records as DataFrames give the rows that they give embedded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError

pytestmark = pytest.mark.spark
Row = tuple[Any, ...]
_SYMBOLS = ("+I", "-U", "+U", "-D")


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    columns = {"id": "BIGINT", "state": "STRING", "amount": "DECIMAL(10, 2)", "at": "TIMESTAMP(3)"}
    return catalog.create_table("shop.orders", columns, primary_key=["id"], options={"bucket": "2"})


def _created(id_: int, state: str = "new", amount: str = "1.00") -> str:
    return json.dumps({"op": "c", "after": {"id": id_, "state": state, "amount": amount}})


def _updated(id_: int, before: str, after: str) -> str:
    images = [{"id": id_, "state": state, "amount": "1.00", "at": None} for state in (before, after)]
    return json.dumps({"op": "u", "before": images[0], "after": images[1]})


def _records(spark: SparkSession, values: list[str | None], keys: list[str | None] | None = None) -> DataFrame:
    rows = list(zip(values, keys or [None] * len(values), range(100, 100 + len(values)), strict=True))
    frame = spark.createDataFrame(rows, "value STRING, key STRING, offset BIGINT").coalesce(1)
    return frame.selectExpr("CAST(key AS BINARY) AS key", "CAST(value AS BINARY) AS value", "offset")


def _rows(table: mg.Table) -> list[Row]:
    return sorted((row["id"], row["state"]) for row in table.read().to_pylist())


def test_rows_are_those_of_the_embedded_function_in_the_order_of_the_records(
    spark: SparkSession, orders: mg.Table
) -> None:
    values = [_created(i) if i % 3 else _updated(i, "new", "paid") for i in range(500)]
    values += ['{"op": "d", "before": null}', None]
    keys = [None] * 500 + ['{"id": 3}', None]
    records = _records(spark, values, keys)
    found = ms.cdc.parse(records, "debezium-json", orders).toArrow()
    wanted = mg.cdc.parse(values, "debezium-json", orders, keys=pa.array(keys, pa.string()))
    assert found.column_names == ["_row_kind", "id", "state", "amount", "at"]
    assert found.column(0).to_pylist() == [_SYMBOLS[kind] for kind in wanted.kinds.to_pylist()]
    assert found.drop_columns(["_row_kind"]).to_pylist() == wanted.rows.to_pylist()


def test_a_bad_record_stops_the_job_with_its_reason_and_text(spark: SparkSession, orders: mg.Table) -> None:
    parsed = ms.cdc.parse(_records(spark, [_created(1), _created(2, amount="1.005")]), "debezium-json", orders)
    with pytest.raises(PySparkException, match=r"1 of 2 records .*bad-value: column amount(.|\n)*1\.005"):
        parsed.collect()


def test_a_bad_record_is_kept_in_its_place(spark: SparkSession, orders: mg.Table) -> None:
    values = [_created(1), "{", _updated(1, "new", "paid"), "[]", _created(2)]
    parsed = ms.cdc.parse(_records(spark, values, [None, "k", None, None, None]), "debezium-json", orders, bad="keep")
    rows = parsed.collect()
    assert [row["_row_kind"] for row in rows] == ["+I", None, "-U", "+U", None, "+I"]
    assert [row["id"] for row in rows] == [1, None, 1, 1, None, 2]
    bad = [tuple(row["_rejected"]) for row in rows if row["_rejected"] is not None]
    assert [(bytes(text), key and bytes(key), place) for _, text, key, place in bad] == [
        (b"{", b"k", 101),
        (b"[]", None, 103),
    ]
    assert [reason.split(":")[0] for reason, *_ in bad] == ["not-json", "not-object"]


def test_what_has_no_meaning_is_refused_before_a_job_runs(spark: SparkSession, orders: mg.Table) -> None:
    records = _records(spark, [_created(1)])
    for said, arguments in (
        ("unknown format 'debezum'", {"format": "debezum"}),
        ("unknown option 'tombstones'", {"tombstones": "delete"}),
        ("no column 'payload'", {"value": "payload"}),
        ("'offset' is bigint, and key= takes STRING or BINARY", {"key": "offset"}),
        ("'value' is binary, and position= takes an integer", {"position": "value"}),
        ("bad is 'skip'", {"bad": "skip"}),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ms.cdc.parse(records, **{"format": "debezium-json", "table": orders, **arguments})


def test_a_stream_of_records_is_written(spark: SparkSession, orders: mg.Table, tmp_path: Path) -> None:
    _records(spark, [_created(1), _created(2), _updated(1, "new", "paid")]).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("key BINARY, value BINARY, offset BIGINT").parquet(str(tmp_path / "in"))
    parsed = ms.cdc.parse(stream, "debezium-json", orders)
    query = ms.write_stream(parsed, orders, str(tmp_path / "cp"), kinds="_row_kind", trigger="availableNow")
    query.awaitTermination()
    assert _rows(orders) == [(1, "paid"), (2, "new")]
