"""Golden traces of Spark's driver. After a change on purpose: `python -m tests.traces`, and the commit says why."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from .spark_roads import SPARK_ROADS
from .test_traces import GOLDEN
from .tracing import text_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", SPARK_ROADS)
def test_the_driver_asks_the_store_as_it_did(name: str, spark: SparkSession, tmp_path: Path) -> None:
    made = SPARK_ROADS[name](spark, str(tmp_path))
    assert text_of(made.log, name, made.files) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_no_trace_is_left_of_a_road_on_spark_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.glob("spark_*")} == {*SPARK_ROADS}
