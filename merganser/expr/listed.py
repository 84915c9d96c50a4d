"""The list of an IN as sets: what values of rows, and bounds of files, are looked up in.

A filter meets every batch of rows and the statistics of every file, and its list may hold thousands of literals. So a
list is turned into sets once, and kept for as long as its node is in use.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.expr.compare import Values, as_double, family, stored_values
from merganser.expr.tree import In, Literal, Value
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.values import dataclass

_KEPT = 64
"""Nodes whose sets are kept."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The options of an IN, for values of one type.

    Attributes:
        kind: the type of the values.
        stored: rising and distinct, in the Arrow type of `kind`: options that equal one stored value. None of FLOAT
            and DOUBLE.
        doubles: rising and distinct, NaN last, no -0.0: options that a value equals when it does so as DOUBLE.
        has_null: whether NULL is an option, so that what is not found is unknown.
    """

    kind: t.DataType
    stored: pa.Array
    doubles: npt.NDArray[np.float64]
    has_null: bool

    def among(self, values: Values) -> Values:
        """Return for every value whether it equals an option that is not null; false for a null value.

        Args:
            values: n values of the Arrow type of the kind (large forms too).
        """
        found = None
        if len(self.stored) or not len(self.doubles):
            found = pc.is_in(values, value_set=self.stored.cast(values.type))
        if len(self.doubles):
            equal = self._among_doubles(as_double(values, self.kind))
            found = equal if found is None else pc.or_(found, equal)
        return found

    def _among_doubles(self, numbers: Values) -> Values:
        with_nan = bool(np.isnan(self.doubles[-1]))
        options = self.doubles[:-1] if with_nan else self.doubles
        # Arrow looks numbers up by their bytes: zeros of both signs are made one, and NaN is asked for apart.
        found = pc.is_in(pc.add(numbers, 0.0) if (options == 0).any() else numbers, value_set=pa.array(options))
        return pc.or_(found, pc.fill_null(pc.is_nan(numbers), False)) if with_nan else found


def listed(node: In) -> Listed:
    """Return the list of an IN as sets."""
    return _listed(_Same(node))


class _Same:
    """A node as a key that equals itself alone, since to compare long lists takes as long as to make sets of them."""

    __slots__ = ("node",)

    def __init__(self, node: In) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.node is other.node


@lru_cache(maxsize=_KEPT)
def _listed(key: _Same) -> Listed:
    kind = key.node.item.type
    stored: list[Value] = []
    doubles: list[float] = []
    options = [option for option in key.node.options if option.value is not None]
    for option in options:
        equal = None if family(kind) == "float" else stored_values(option, kind)
        if equal is None:
            doubles.append(_double(option, kind))
        else:
            stored += equal
    exact = pa.array(stored, arrow_type(kind)).unique()
    return Listed(
        kind,
        exact.take(pc.sort_indices(exact)),
        np.unique(np.array(doubles, np.float64) + 0.0),
        has_null=len(options) < len(key.node.options),
    )


def _double(option: Literal, kind: t.DataType) -> float:
    number = float(option.value)  # type: ignore[arg-type]
    # FLOAT meets FLOAT as such, so that the literal is rounded as the values are.
    single = isinstance(kind, t.Float) and isinstance(option.type, t.Float)
    return float(np.float32(number)) if single else number
