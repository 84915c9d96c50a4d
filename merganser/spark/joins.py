"""Joins of a source with rows that tasks read.

Spark does not know how many rows its tasks make, and takes them for few: it would send them all through the driver to
every executor. So which side is small is said here.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from merganser.edit.merge_names import DEFAULT, Names
from merganser.schema import types as t
from merganser.spark.staging import FILES_FROM_BYTES, estimated_bytes


def joined_with(
    source: DataFrame, rows: DataFrame, size_bytes: int, on: str, how: str, names: Names = DEFAULT
) -> DataFrame:
    """Return a join; `of_side` returns the columns of its sides.

    Args:
        rows: what tasks read.
        size_bytes: of the files that they read.
        on: the condition.
        how: "inner", "left", "right", "full" or "left_anti".
        names: what the condition calls the rows and the source.
    """
    left, right = source.alias(names.source), rows.alias(names.target)
    if size_bytes >= FILES_FROM_BYTES:
        if how in ("inner", "right") and (estimated_bytes(source) or FILES_FROM_BYTES) < FILES_FROM_BYTES:
            left = left.hint("broadcast")
        else:
            right = right.hint("merge")
    return left.join(right, f.expr(on), how)


def of_side(side: str, name: str) -> Column:
    """Return a column of one side of a join.

    Args:
        side: what the condition calls it.
        name: of the column.
    """
    return f.col(f"{t.quoted(side)}.{t.quoted(name)}")
