"""The lookup join of `lookups.py` through Spark."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

warm_up = lambda: None  # noqa: E731 - the first pass warms up


def join(table: str, copies: str, rows: int, key_space: int) -> Callable[[], dict[str, Any]]:
    """Join random rows with the table, twice; the first pass makes the lookup copies."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import functions as f

    import merganser as mg
    import merganser.spark as ms

    from .spark_session import session

    shutil.rmtree(copies, ignore_errors=True)
    spark = session("2g", Path(copies).parent)
    target = mg.table(table, options={"lookup.cache-directory": copies})
    stream = spark.range(0, rows, 1, 4).select((f.rand(5) * key_space).cast("bigint").alias("key"), "id")

    def timed() -> float:
        start = time.perf_counter()
        ms.lookup_join(stream, target, on={"key": "k"}).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - start

    def action() -> dict[str, Any]:
        timed()
        timed()
        return {"rows": rows, "warm_seconds": sorted(timed() for _ in range(3))[1]}

    return action
