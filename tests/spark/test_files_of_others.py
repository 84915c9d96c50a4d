"""`ms.load` of recorded files of other writers: tasks read them by the same rules."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from tests.files_of_others.__main__ import RECORDED
from tests.files_of_others.compare import difference, expected_rows

pytestmark = pytest.mark.spark

FOLDERS: Final = (
    "spark-3.5/parquet-legacy-int96",
    "spark-4.1/orc-old",
    "spark-4.1/avro-legacy",
)


def test_tasks_give_the_rows_that_the_writer_reads(spark: SparkSession, catalog: mg.Catalog) -> None:
    for i, name in enumerate(FOLDERS):
        folder = RECORDED / name
        expected = expected_rows(folder)
        table = catalog.create_table(f"shop.others_{i}", expected.schema.remove_metadata())
        ms.load(spark, str(folder), table)
        assert not difference(table.read().to_arrow(), expected), name
