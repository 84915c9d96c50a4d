"""The line about a query, made from what Spark says about it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row

from merganser.spark.watch import text_of

NUMBERS = {"rows": 5000, "retractions": 12, "files": 2, "bytes": 1 << 20, "dead_letters": 0}
SOURCE = {"latestOffset": '{"snapshot": 9, "lag_snapshots": 3, "lag_seconds": 1.25}'}


@pytest.mark.parametrize("given", [NUMBERS, Row(**NUMBERS), Row(values=list(NUMBERS.values()), schema={"fields": []})])
def test_every_version_of_spark_gives_the_same_line(given: Any) -> None:
    progress = {
        "batchId": 7,
        "durationMs": {"triggerExecution": 500},
        "observedMetrics": {"merganser": given},
        "sources": [SOURCE, {"latestOffset": "file offset"}, {"latestOffset": None}],
    }
    text = text_of(progress)
    assert text == "batch 7  5,000 rows  10,000 rows/s  2 files  1.0 MB  3 snapshots, 1.2 s behind"


def test_a_batch_without_rows_says_so() -> None:
    source = {"latestOffset": {"snapshot": 9, "lag_snapshots": 0, "lag_seconds": 0.0}}
    assert text_of({"batchId": 8, "durationMs": {}, "sources": [source]}) == "batch 8  no rows  up to date"
