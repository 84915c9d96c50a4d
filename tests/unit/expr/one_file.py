"""The questions of `prune` about one file, whose statistics are plain values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merganser.expr.compare import family
from merganser.expr.prune import NULL_COUNT_UNKNOWN, may_match_many, must_match_many
from merganser.expr.tree import Column, walk
from merganser.schema.arrow import arrow_type


def may_match(p, stats, row_count, *, nan_free=()):
    """Return whether a file with these statistics, (low, high, nulls) by column, may hold a row where `p` is true."""
    return bool(may_match_many(p, *_as_arrays(p, stats, row_count), nan_free=nan_free)[0])


def must_match(p, stats, row_count, *, nan_free=()):
    """Return whether `p` is true for every row of a file with these statistics."""
    return bool(must_match_many(p, *_as_arrays(p, stats, row_count), nan_free=nan_free)[0])


def _as_arrays(p, stats, row_count):
    """Return the statistics of one file as those of n = 1 files."""
    mins = {}
    maxs = {}
    nulls = {}
    kinds = {part.path[0]: part.type for part in walk(p.expression) if isinstance(part, Column) and len(part.path) == 1}
    for name in p.columns & stats.keys():
        low, high, null_count = stats[name]
        nulls[name] = np.array([NULL_COUNT_UNKNOWN if null_count is None else null_count])
        kind = kinds.get(name)
        if kind is not None and family(kind) is not None:
            mins[name] = _one(low, kind)
            maxs[name] = _one(high, kind)
    return mins, maxs, nulls, np.array([row_count])


def _one(value, kind):
    try:
        return pa.array([value], arrow_type(kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # A bound that is not a value of the type says nothing.
        return pa.nulls(1, arrow_type(kind))
