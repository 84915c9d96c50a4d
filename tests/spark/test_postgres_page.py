"""The page that leads from a PostgreSQL to a table, with the files that Debezium wrote when its blocks ran."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.live.page import run_with_recorded_files


@pytest.mark.campaign(1 / 2)
@pytest.mark.spark
def test_the_blocks_of_the_page_run_with_the_files_that_debezium_wrote(spark: SparkSession, tmp_path: Path) -> None:
    run_with_recorded_files(tmp_path)
