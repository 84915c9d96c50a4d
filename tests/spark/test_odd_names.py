"""Columns with names that merganser or Spark might use themselves: every verb on Spark works with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark

_NAMES = (
    "index",
    "__merganser_task",
    "__merganser_arrival",
    "__merganser_from",
    "_POSITION",
    "a.b",
    "a`b",
    "task",
    "c0",
)


def _row(number: int, v: int) -> dict[str, Any]:
    return {**dict.fromkeys(_NAMES, number), "v": v}


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("options", [{"dynamic-bucket.target-row-num": "2"}, None], ids=str)
def test_odd_names_work_with_every_verb(
    spark: SparkSession, catalog: mg.Catalog, options: dict[str, str] | None, tmp_path: Path
) -> None:
    columns = dict.fromkeys(_NAMES, "INT") | {"v": "INT"}
    key = [] if options is None else ["index", "a.b"]
    table = catalog.create_table("shop.odd", columns, primary_key=key, options=options or {})

    def frame(*rows: dict[str, Any]) -> Any:
        schema = ", ".join(f"`{name.replace('`', '``')}` INT" for name in columns)
        return spark.createDataFrame([tuple(row.values()) for row in rows], schema)

    def rows() -> list[dict[str, Any]]:
        return sorted(table.read().to_pylist(), key=lambda row: row["index"])

    ms.write(frame(_row(1, 1), _row(2, 2), _row(3, 3)), table)
    table = catalog.table("shop.odd")
    on = " AND ".join(f"target.{name} = source.{name}" for name in ("index", "`a.b`", "__merganser_task"))
    merge = ms.merge(spark, table, frame(_row(3, 9), _row(4, 4)), on=on)
    merge.when_matched_update({"v": "source.v + source.`a.b`"}).when_not_matched_insert(None).execute()
    assert rows() == [_row(1, 1), _row(2, 2), _row(3, 12), _row(4, 4)]
    frame(_row(5, 5)).coalesce(1).write.parquet(str(tmp_path / "in"))
    ms.load(spark, str(tmp_path / "in"), table)
    stream = spark.readStream.schema(frame().schema).parquet(str(tmp_path / "in"))
    if key:
        query = ms.write_stream(stream, table, str(tmp_path / "place"), trigger="available-now")
        query.awaitTermination()
        pairs = {"x": "index", "y": "a.b"}
        joined = ms.lookup_join(spark.createDataFrame([(4, 4)], "x INT, y INT"), table, on=pairs, columns=["v", "task"])
        assert joined.collect() == [Row(x=4, y=4, v=4, task=4)]
    assert rows() == [_row(1, 1), _row(2, 2), _row(3, 12), _row(4, 4), _row(5, 5)]
    assert [row.asDict() for row in ms.read(spark, table).orderBy("index").collect()] == rows()
    assert ms.changes(spark, table, 1).columns == ["_row_kind", *columns]
