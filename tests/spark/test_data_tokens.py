"""Tasks of Spark on tables whose keys a REST server gives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import merganser.spark as ms
from tests.catalogs.token_shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def test_tasks_ask_for_keys_when_they_start(
    tmp_path: Path, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    shop = Shop(tmp_path / "a", s3_endpoint, 3, monkeypatch)
    catalog = shop.catalog()
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT, PRIMARY KEY (id)", options={"bucket": "2"})
    ms.write(spark.range(100), table)
    read = ms.read(spark, table)
    time.sleep(3.1)  # the keys of the plan have expired
    assert read.count() == 100
    assert set(shop.tokens()) == {"shop.orders write"}
    assert len(shop.tokens()) > 2
    shop.stop()
