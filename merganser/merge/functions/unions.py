"""Unions of values that are sets in a serialised form: one call per group, only for groups with two values or more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from merganser.merge.functions.function import refuse_retractions
from merganser.merge.functions.segments import any_of, empty, taken, validity
from merganser.merge.groups import Groups
from merganser.schema import types as t

Unite = Callable[[list[bytes]], bytes]
"""Two serialised sets or more -> the serialised union."""


def union(field: t.Field, name: str, column: pa.ChunkedArray, groups: Groups, unite: Unite) -> pa.Array:
    """Return the union of the values of each group that are not null; a single value stays as it is."""
    refuse_retractions(groups, field, name)
    if not groups.count:
        return empty(column.type)
    valid = validity(column)
    present = np.ones(len(groups.positions), np.bool_) if valid is None else valid[groups.positions]
    counts = np.add.reduceat(present, groups.starts, dtype=np.int64)
    index = np.where(present, np.arange(len(present)), -1)
    last = np.maximum.reduceat(index, groups.starts)
    single = taken(column, np.where(any_of(present, groups.starts), groups.positions[last], -1))
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return single
    wanted = present & (counts > 1)[groups.group_of]
    images = taken(column, groups.positions[wanted]).to_pylist()
    ends = np.cumsum(counts[several]).tolist()
    united = [unite(images[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    place = np.arange(groups.count)
    place[several] = groups.count + np.arange(len(several))
    return pa.concat_arrays([single, pa.array(united, column.type)]).take(pa.array(place))
