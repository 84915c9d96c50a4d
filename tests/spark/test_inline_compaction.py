"""Writers of Spark compact what their commits make due, as tasks, and the rows stay what they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.spark import files

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


@pytest.mark.parametrize("option", [{"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}])
def test_compactions_move_the_files_of_many_tasks_as_they_are(
    option: dict[str, str], spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "TASK_BYTES_MIN", 1)
    table = catalog.create_table(
        "shop.moved", {"k": "BIGINT", "v": "BIGINT"}, primary_key=["k"], options={"bucket": "2"} | option
    )
    for value in (0, 1000):  # of several rows of a key in a write, the last one counts
        rows = spark.range(0, 400, 1, 4).selectExpr("id % 100 AS k", f"id + {value} AS v")
        ms.write(rows, table, through="files")
    assert [snapshot.commit_kind for snapshot in table.snapshots()] == ["APPEND", "COMPACT"] * 2
    stored = [path for path in Path(table.path).rglob("data-*") if path.suffix == ".parquet"]
    assert len(stored) == 4  # one for each write and bucket, and none by a compaction
    assert sorted(map(tuple, ms.read(spark, table).collect())) == [(k, 1300 + k) for k in range(100)]
    if "changelog-producer" in option:
        found = sorted(ms.changes(spark, table, 3).collect(), key=lambda row: (row["k"], row["_row_kind"]))
        assert [tuple(row) for row in found] == [
            row for k in range(100) for row in (("+U", k, 1300 + k), ("-U", k, 300 + k))
        ]
    assert table.check() == ()


def test_compactions_move_the_files_of_partitions_with_deletes(
    spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "TASK_BYTES_MIN", 1)
    table = catalog.create_table(
        "shop.parts",
        {"p": "INT", "k": "BIGINT", "v": "BIGINT"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "2", "changelog-producer": "lookup"},
    )
    columns = ("cast(id % 5 AS int) AS p", "id % 100 AS k", "id AS v")
    ms.write(spark.range(0, 400, 1, 4).selectExpr(*columns), table, through="files")
    # Every key comes four times, in the order of the tasks that read it. Every third key is deleted in the end.
    kind = "if(id >= 700 AND id % 100 % 3 = 0, '-D', '+I') AS kind"
    ms.write(spark.range(400, 800, 1, 4).selectExpr(*columns, kind), table, kinds="kind", through="files")
    assert [snapshot.commit_kind for snapshot in table.snapshots()] == ["APPEND", "COMPACT"] * 2
    stored = [path.parent for path in Path(table.path).rglob("data-*.parquet")]
    assert len(stored) == 2 * len(set(stored)) == 20  # one of each write in each bucket, and none of a compaction
    before, after = ([(k % 5, k, newest + k) for k in range(100)] for newest in (300, 700))
    shown = [row for row in after if row[1] % 3]
    assert sorted(map(tuple, ms.read(spark, table).collect())) == sorted(shown)
    published = sorted(map(tuple, ms.changes(spark, table, 3).collect()))
    taken_back = [("-U" if row[1] % 3 else "-D", *row) for row in before]
    assert published == sorted([*taken_back, *(("+U", *row) for row in shown)])
    assert table.check() == ()
