"""Columns that are computed from the other columns of a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.predicate import Projection
from merganser.parsing.outcome import Read, read
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.fitting import fitting
from merganser.schema.limits import has_limits


def computed(projection: Projection, rows: pa.Table, kind: t.DataType) -> Read:
    """Return the values of a computed column; a row that has none is bad, and no other.

    Args:
        projection: what is computed, in a type that the column takes.
        rows: the columns that it needs.
        kind: the type of the column.
    """
    values, whys = _evaluated(projection, rows, kind)
    bad = np.asarray(whys.is_valid())
    if has_limits(kind):
        long = ~fitting(values, kind) & np.asarray(values.is_valid())
        bad = bad | long
        whys = pc.if_else(pa.array(long), f"the computed value does not fit {kind.with_nullable(True)}", whys)
    return read(values, bad, whys)


def _evaluated(projection: Projection, rows: pa.Table, kind: t.DataType) -> tuple[pa.Array, pa.Array]:
    """Return values, and for each row that has none because of an error what the error says.

    One row with an error makes the evaluation of all fail. So the rows are halved until it is alone.
    """
    none = pa.nulls(rows.num_rows, pa.string())
    try:
        found = projection.evaluate(rows)
    except InvalidInputError as error:
        if rows.num_rows == 1:
            return pa.nulls(1, arrow_type(kind)), pa.array([error.message])
        half = rows.num_rows // 2
        parts = [_evaluated(projection, part, kind) for part in (rows.slice(0, half), rows.slice(half))]
        return pa.concat_arrays([values for values, _ in parts]), pa.concat_arrays([whys for _, whys in parts])
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)
    return found.cast(arrow_type(kind)), none
