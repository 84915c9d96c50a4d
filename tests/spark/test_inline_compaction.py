"""Writers of Spark compact what their commits make due, as tasks, and the rows stay what they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark


def test_writes_through_spark_are_followed_by_the_compactions_they_make_due(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    table = catalog.create_table(
        "shop.inline",
        {"k": "INT", "v": "STRING"},
        primary_key=["k"],
        options={"bucket": "2", "num-sorted-run.compaction-trigger": "2", "compaction.size-ratio": "100"},
    )

    def rows(value: str) -> pa.Table:
        return pa.table({"k": pa.array(range(40), pa.int32()), "v": [value] * 40})

    def kinds() -> list[str]:
        return [snapshot.commit_kind for snapshot in table.snapshots()]

    ms.write(spark.createDataFrame(rows("first")), table, commit_user="job", identifier=1)
    made = ms.write(spark.createDataFrame(rows("second")), table, commit_user="job", identifier=2)
    assert made is not None
    assert made.commit_kind == "APPEND"
    assert kinds() == ["APPEND", "APPEND", "COMPACT"]
    assert (table.snapshots()[-1].commit_user, table.snapshots()[-1].commit_identifier) == ("job", 2)
    pq.write_table(rows("third"), tmp_path / "third.parquet")
    ms.load(spark, str(tmp_path / "*.parquet"), table)
    assert kinds()[3:] == ["APPEND", "COMPACT"]
    spark.createDataFrame(rows("fourth")).write.format("merganser").mode("append").save(table.path)
    assert kinds()[5:] == ["APPEND", "COMPACT"]
    assert len(table.files()) == 2
    found = ms.read(spark, table).toArrow()
    assert sorted(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == [
        (k, "fourth") for k in range(40)
    ]
    assert table.check() == ()
