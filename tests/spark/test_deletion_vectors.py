"""Deletion vectors through Spark: tasks apply them, compactions in tasks mark rows, and `$ro` reads one level."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.meta.schemas import SchemaStore

pytestmark = pytest.mark.spark


def _sorted(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return _sorted(frame.toArrow())


def test_writes_and_compactions_in_tasks_mark_rows_and_reads_need_no_merge(
    spark: SparkSession, catalog: mg.Catalog
) -> None:
    options = {"bucket": "2", "deletion-vectors.enabled": "true", "num-levels": "6"}
    table = catalog.create_table("shop.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options=options)
    rng = random.Random(5)
    base = [(k, rng.randbytes(200).hex()) for k in range(400)]
    ms.write(spark.createDataFrame(base, "k int, v string"), table)
    newer = [(k, "new") for k in (*range(0, 400, 40), 1000)]
    kinds = ["-D" if k == 40 else "+I" for k, _ in newer]
    frame = spark.createDataFrame(
        [(*row, kind) for row, kind in zip(newer, kinds, strict=True)], "k int, v string, op string"
    )
    ms.write(frame, table, kinds="op")
    expected = sorted((dict(base) | dict(newer)).items())
    expected.remove((40, "new"))
    plan = table.read().plan()
    assert all(split.raw for split in plan.splits)
    assert sum(split.deleted or 0 for split in plan.splits) == 10
    assert _rows(ms.read(spark, table)) == _sorted(table.read().to_arrow()) == expected
    assert _rows(spark.read.format("merganser").load(table.path)) == expected
    assert ms.read(spark, table, where="k < 41").count() == 40
    optimised = catalog.table("shop.t$ro")
    assert ms.read(spark, optimised).count() == optimised.read().count() == 390
    ms.compact(spark, table, full=True)
    assert table.system("table_indexes").to_arrow().num_rows == 0
    assert _rows(ms.read(spark, table)) == _rows(ms.read(spark, optimised)) == expected
    assert ms.compact(spark, table, full=True) is None
    table = table.alter([mg.changes.set_option("file.format", "orc")])
    assert ms.compact(spark, table, full=True) is not None
    assert {path.rpartition(".")[2] for path in table.files()["file_path"].to_pylist()} == {"orc"}
    assert _rows(ms.read(spark, table)) == expected


def test_files_from_before_vectors_were_turned_on_are_merged_and_marked_in_tasks(
    spark: SparkSession, catalog: mg.Catalog
) -> None:
    options = {"bucket": "2", "num-levels": "6", "compaction.force-up-level-0": "true"}
    table = catalog.create_table("shop.late", {"k": "INT", "v": "STRING"}, primary_key=["k"], options=options)
    rng = random.Random(5)
    base = [(k, rng.randbytes(200).hex()) for k in range(400)]
    ms.write(spark.createDataFrame(base, "k int, v string"), table)
    ms.write(spark.createDataFrame([(k, "new") for k in range(0, 400, 40)], "k int, v string"), table)
    store = SchemaStore(table.definition.paths, table.env)
    on = table.definition.schema.options.merged({"deletion-vectors.enabled": "true"})
    store.create(replace(table.definition.schema, id=1, options=on))
    table = catalog.table("shop.late")
    expected = dict(base) | dict.fromkeys(range(0, 400, 40), "new")
    assert {split.raw for split in table.read().plan().splits} == {False}
    assert _rows(ms.read(spark, table)) == sorted(expected.items())
    ms.write(spark.createDataFrame([(k, "newest") for k in (40, 41)], "k int, v string"), table)
    expected |= {40: "newest", 41: "newest"}
    assert _rows(ms.read(spark, table)) == sorted(expected.items())
    assert sum(split.deleted or 0 for split in table.read().plan().splits) >= 2
    ms.compact(spark, table, full=True)
    assert all(split.raw for split in table.read().plan().splits)
    assert _rows(ms.read(spark, table)) == sorted(expected.items())
