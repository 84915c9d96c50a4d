"""What follows a table by Spark in the histories that draw everything: wider types, rollbacks, resets of queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.everything import campaign  # noqa: F401  the steps
from tests.everything.on_spark import SparkHistory
from tests.everything.test_everything import check_follower

pytestmark = pytest.mark.spark


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[SparkSession]:
    """The session in the zone of the histories."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("name", ["Spark stream", "Spark shards", "Spark sink"])
def test_a_query_goes_on_beside_wider_types_and_after_a_rollback(name: str, utc: SparkSession, tmp_path: Path) -> None:
    check_follower(name, tmp_path, SparkHistory, utc)
