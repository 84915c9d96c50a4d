"""Rows that `ms.cdc.parse` gave for bad records -> rows of a table of dead letters."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from merganser.cdc.records import letters_of
from merganser.errors import InvalidInputError
from merganser.handle.table import Table
from merganser.spark.bucketing import quoted
from merganser.spark.change_records import LETTER, REJECTED


def check_letters(df: DataFrame, letters: Table, action: str) -> None:
    """Refuse a DataFrame without bad records, and a table whose rows have an order.

    Args:
        df: what is written, with the column `_rejected`.
        letters: the table of dead letters.
        action: the start of the message.

    Raises:
        InvalidInputError: nothing was written.
    """
    given = df.schema[REJECTED].dataType.simpleString() if REJECTED in df.columns else None
    if given != LETTER.simpleString():
        has = f"has no column '{REJECTED}'" if given is None else f"has a column '{REJECTED}' of the type {given}"
        raise InvalidInputError(
            f"{action}: there is a table of dead letters, and the DataFrame {has}. Nothing was written. "
            "ms.cdc.parse(..., bad='keep') makes this column.",
            column=REJECTED,
        )
    check_letters_table(letters, action)


def check_letters_table(letters: Table, action: str) -> None:
    """Refuse a table whose rows have an order.

    Raises:
        InvalidInputError: nothing was written.
    """
    definition = letters.definition
    if definition.keyed or definition.schema.bucket_key:
        raise InvalidInputError(
            f"{action}: '{letters.name}' is no table of dead letters, since it has a primary key or a bucket key. "
            "Nothing was written. Create one with schema=mg.cdc.DEAD_LETTERS.",
            table=letters.name,
        )


def letters_frame(df: DataFrame, table: str, time: datetime) -> DataFrame:
    """Return the dead letters among the rows of a DataFrame.

    Args:
        df: rows with the column `_rejected`.
        table: the table that they were meant for.
        time: the current time.
    """
    letter = quoted(REJECTED)
    milliseconds = f.lit(int(time.timestamp() * 1_000))
    return df.where(letter.isNotNull()).select(
        f.lit(table).alias("table"),
        *(letter.getField(name).alias(name) for name in ("position", "reason", "text", "key")),
        f.timestamp_millis(milliseconds).alias("time"),
    )


def letters_table(rejected: pa.ChunkedArray, table: str, time: datetime) -> pa.Table:
    """Return values of `_rejected`, none of them null, as rows of a table of dead letters; see `letters_frame`."""
    parts = dict(zip(LETTER.names, pa.Table.from_struct_array(rejected).columns, strict=True))
    return letters_of(pa.table({"record": parts.pop("position"), **parts}), table, time)
