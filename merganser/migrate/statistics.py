"""Statistics: what the footer of a file says of its values, as manifests keep it; no value is read for it.

They exist to skip files, so what is not sure is left out. Footers leave NaN out of the bounds of FLOAT and DOUBLE, so
these have null counts alone; ORC and Avro files have nothing that can be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from merganser.codec.data_format import FileReader
from merganser.codec.stats import ColumnStats, merge_stats
from merganser.schema import types as t


def stats_of(reader: FileReader, fields: Sequence[t.Field]) -> tuple[ColumnStats | None, ...]:
    """Return the statistics of each column of a file that has rows; None: nothing is known."""
    return tuple(None if t.is_nested(field.type) else _of_groups(reader, field) for field in fields)


def _of_groups(reader: FileReader, field: t.Field) -> ColumnStats | None:
    bounds = reader.group_bounds(field)
    if bounds is None:
        return None
    parts = [
        ColumnStats(low, high, nulls, no_values=nulls == rows)
        if low is not None and high is not None
        else ColumnStats(None, None, nulls, no_values=nulls == rows)
        for low, high, nulls, rows in zip(*bounds, reader.group_rows, strict=True)
        if rows
    ]
    found = reduce(lambda one, other: merge_stats(one, other, field.type), parts)
    return None if found.min is None and found.null_count is None else found
