"""A column of values that were read, and which of them could not be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.json_scan import Bools
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Read:
    """Values of a column.

    Attributes:
        values: n values of the column's Arrow type; null where nothing is there, and where a value is bad.
        bad: bool[n].
        why: string[n] or one text: of a bad value, what is wrong with it, as it goes on after the value.
    """

    values: pa.Array
    bad: Bools
    why: pa.Array | str


def read(values: pa.Array, bad: Bools, why: pa.Array | str) -> Read:
    """Return values, null where they are bad."""
    if bad.any():
        values = pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type))
    return Read(values, bad, why)


def spread(values: pa.Array, at: Bools) -> pa.Array:
    """Return values at the places that a mask names, in their order, and null at the others."""
    if len(values) == len(at):
        return values
    place = np.cumsum(at) - 1
    return values.take(pa.array(place, mask=~at))


def spread_bad(bad: Bools, at: Bools) -> Bools:
    """Return a mask over the places that another one names as one over all."""
    out = np.zeros(len(at), bool)
    out[at] = bad
    return out


def whys(*parts: tuple[Bools, str], otherwise: str) -> pa.Array | str:
    """Return per value the text of the first mask that holds it, else the last text."""
    texts: pa.Array | str = otherwise
    for mask, text in reversed(parts):
        if mask.any():
            texts = pc.if_else(pa.array(mask), text, texts)
    return texts
