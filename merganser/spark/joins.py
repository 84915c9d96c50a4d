"""Joins of a source with rows that tasks read.

Spark does not know how many rows its tasks make, and takes them for few: it would send them all through the driver to
every executor. So which side is small is said here.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from merganser.spark.staging import FILES_FROM_BYTES, estimated_bytes


def joined_with(source: DataFrame, rows: DataFrame, size_bytes: int, on: str, how: str) -> DataFrame:
    """Return a join; the columns of the sides are called `source.column` and `target.column`.

    Args:
        rows: what tasks read.
        size_bytes: of the files that they read.
        on: the condition.
        how: "inner", "left", "right", "full" or "left_anti".
    """
    left, right = source.alias("source"), rows.alias("target")
    if size_bytes >= FILES_FROM_BYTES:
        if how in ("inner", "right") and (estimated_bytes(source) or FILES_FROM_BYTES) < FILES_FROM_BYTES:
            left = left.hint("broadcast")
        else:
            right = right.hint("merge")
    return left.join(right, f.expr(on), how)
