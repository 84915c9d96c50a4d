"""Sorted compaction through Spark: a task sorts a partition, and one commit holds them all."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms

pytestmark = pytest.mark.spark


def test_partitions_are_sorted_in_tasks_and_filters_leave_files_out(spark: SparkSession, catalog: mg.Catalog) -> None:
    options = {"bucket": "-1", "target-file-row-num": "100"}
    table = catalog.create_table("shop.e", {"p": "INT", "a": "INT", "b": "INT"}, partition_by=["p"], options=options)
    rng = random.Random(3)
    rows = [{"p": p, "a": rng.randrange(10**6), "b": rng.randrange(10**6)} for p in range(3) for _ in range(1_600)]
    table.write(rows)
    before = sorted(tuple(row.values()) for row in table.read().to_pylist())
    snapshot = ms.compact(spark, table, where="p < 2", order_by=["a", "b"], curve="zorder")
    assert snapshot is not None
    assert snapshot.commit_kind == "COMPACT"
    assert sorted(tuple(row) for row in ms.read(spark, table).collect()) == before

    def files_read(partition: int) -> int:
        return sum(len(split.files) for split in table.read(where=f"p = {partition} AND b < 50000").plan().splits)

    assert [files_read(p) for p in range(3)] == [files_read(0), files_read(1), 16]
    assert max(files_read(0), files_read(1)) <= 6
