"""sum, product and count over integers and floats; `decimals` has the same over decimals.

Integers are exact: a partial result that leaves the type is an error, as it is when rows are added one by one, and
never wraps. What cannot overflow is found by a bound first, so that only doubtful groups pay for being checked.
Floats are folded strictly left to right, in their own width.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.merge.functions import decimals
from merganser.merge.functions.function import LateRows, Traits, image, refuse, retracting
from merganser.merge.functions.segments import (
    Values,
    any_of,
    array_of,
    empty,
    left_fold,
    selected,
    sorted_values,
    validity,
)
from merganser.merge.groups import Groups, Mask
from merganser.schema import types as t
from merganser.values import dataclass

_EXACT_BELOW = 2.0**62
"""Float sums of magnitudes below this prove that the integer sum fits 64 bits, whatever they lost in rounding."""


@dataclass(frozen=True, slots=True)
class Sum(Traits):
    """The sum of the values that are not null; null if there is none."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    owes: ClassVar[bool] = True
    column: t.Field
    name: str = "sum"
    retracts: bool = True

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        if not groups.count:
            return empty(column.type)
        if pa.types.is_decimal(column.type):
            return decimals.summed(column, groups)
        if pa.types.is_floating(column.type):
            return _float_sum(column, groups)
        return self._integers(column, groups)

    def _integers(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        kind = column.type.to_pandas_dtype()
        values, valid = sorted_values(column, kind, groups, 0)
        words = values.astype(np.int64, copy=False)
        back = retracting(groups)
        doubtful = _doubtful_sums(values, groups)
        if doubtful is not None:
            self._check(words, back, groups, doubtful, np.iinfo(kind))
        if back is not None:
            words = np.where(back, -words, words)
        sums = np.add.reduceat(words, groups.starts)
        return array_of(sums.astype(kind, copy=False), _any_valid(valid, groups), column.type)

    def _check(self, words: Values, back: Mask | None, groups: Groups, doubtful: Mask, limits: np.iinfo[Any]) -> None:
        """Raise unless every partial sum of the doubtful groups fits the type."""
        rows = doubtful[groups.group_of]
        some = selected(groups, doubtful)
        signs = None if back is None else np.where(back[rows], -1, 1)
        if limits.bits < 64:
            partial = np.cumsum(words[rows] if signs is None else words[rows] * signs)
            before = np.concatenate(([0], partial[some.ends[:-1] - 1]))
            partial -= before[some.group_of]
            if partial.min() < limits.min or partial.max() > limits.max:
                self._overflow()
            return
        for one, sign in _lists(words[rows], signs, some):
            for step in accumulate(v * s for v, s in zip(one, sign, strict=True)):
                if not limits.min <= step <= limits.max:
                    self._overflow()

    def _overflow(self) -> NoReturn:
        overflow(self.column, self.name)


@dataclass(frozen=True, slots=True)
class Product(Traits):
    """The product of the values that are not null; retracting divides."""

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    takes_back: ClassVar[bool] = True
    column: t.Field
    name: str = "product"
    retracts: bool = True

    def taken_back(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        # Once there is a product, the fold divides it; what comes before has only older versions to divide.
        assert groups.additions is not None
        valid = validity(column)
        begins = groups.additions if valid is None else groups.additions & valid[groups.positions]
        place = np.arange(len(begins))
        first = np.minimum.reduceat(np.where(begins, place, len(begins)), groups.starts)
        return image(self, column, groups, ~groups.additions & (place < first[groups.group_of]))

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        if not groups.count:
            return empty(column.type)
        if pa.types.is_decimal(column.type):
            return decimals.multiplied(column, groups, self.column, self.name)
        if pa.types.is_floating(column.type):
            return _float_product(column, groups)
        return self._integers(column, groups)

    def _integers(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        kind = column.type.to_pandas_dtype()
        values, valid = sorted_values(column, kind, groups, 1)
        back = retracting(groups)
        limits = np.iinfo(kind)
        words = values.astype(np.int64, copy=False)
        products = np.multiply.reduceat(words, groups.starts)
        # A product of magnitudes below 2**b fits; a zero counts as one, for what stands before it has to fit too.
        size = np.log2(np.maximum(np.abs(words.astype(np.float64)), 1))
        slow = np.add.reduceat(size, groups.starts) > limits.bits - 1 - 0.001
        if back is not None:
            slow |= any_of(back, groups.starts)
        slow &= groups.sizes > 1
        if slow.any():
            rows = slow[groups.group_of]
            present = np.ones(len(words), np.bool_) if valid is None else valid
            signs = np.ones(len(words), np.int8) if back is None else np.where(back, -1, 1)
            signs[~present] = 0
            each = _lists(words[rows], signs[rows], selected(groups, slow))
            exact = [self._one(one, sign, limits) for one, sign in each]
            products[slow] = [0 if value is None else value for value in exact]
            some = _any_valid(valid, groups)
            some = np.ones(groups.count, np.bool_) if some is None else some
            some[slow] = [value is not None for value in exact]
            return array_of(products.astype(kind, copy=False), some, column.type)
        return array_of(products.astype(kind, copy=False), _any_valid(valid, groups), column.type)

    def _one(self, values: list[int], signs: list[int], limits: np.iinfo[Any]) -> int | None:
        """Fold one group row by row: sign 1 multiplies, -1 divides, 0 is a null."""
        product: int | None = None
        for value, sign in zip(values, signs, strict=True):
            if sign > 0:
                product = value if product is None else product * value
            elif sign < 0 and product is not None:
                if value == 0:
                    refuse(self.column, self.name, DIVISION_BY_ZERO)
                quotient = abs(product) // abs(value)
                product = quotient if (product < 0) == (value < 0) else -quotient
            if product is not None and not limits.min <= product <= limits.max:
                overflow(self.column, self.name)
        return product


@dataclass(frozen=True, slots=True)
class CountInput(Traits):
    """How many rows have a value, those that retract taken away: what the write buffer makes of raw values.

    Rows that are stored hold counts, which `sum` puts together. The one function that a group of one row does not
    pass through: its count is 1, or 0 for a null.
    """

    late_rows: ClassVar[LateRows] = LateRows.ANYWHERE
    column: t.Field
    name: str = "count"
    retracts: bool = True

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        if not groups.count:
            return empty(column.type)
        valid = validity(column)
        ones = np.ones(len(groups.positions), np.int64) if valid is None else valid[groups.positions].astype(np.int64)
        back = retracting(groups)
        if back is not None:
            ones[back] *= -1
        counts = np.add.reduceat(ones, groups.starts)
        return array_of(counts.astype(column.type.to_pandas_dtype()), None, column.type)


DIVISION_BY_ZERO = "a retraction divides by zero. Retract the value that was added, or set 'ignore-retract'."


def overflow(column: t.Field, name: str) -> NoReturn:
    """Raise InvalidInputError: a partial result does not fit the column."""
    refuse(
        column,
        name,
        f"overflow, the result does not fit {column.type.with_nullable(True)}. A table with a wider column takes such "
        "rows.",
        type=str(column.type),
    )


def _doubtful_sums(values: Values, groups: Groups) -> Mask | None:
    """Return bool[k], groups whose sums of magnitudes may leave the type, or None if there are none."""
    limit = int(np.iinfo(values.dtype).max)
    peak = max(int(values.max()), -int(values.min()))
    if peak * int(groups.sizes.max()) <= limit:
        return None
    bound = np.add.reduceat(np.abs(values.astype(np.float64)), groups.starts)
    doubtful: Mask = bound > min(limit, _EXACT_BELOW)
    # One value that is only added fits by itself; retracted from nothing, the smallest integer would not.
    doubtful &= groups.sizes > 1
    return doubtful if doubtful.any() else None


def _lists(words: Values, signs: Values | None, groups: Groups) -> Iterable[tuple[list[int], list[int]]]:
    """Yield the values and the signs of each group as Python integers; arrays stand in the groups' order."""
    for start, end in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
        yield words[start:end].tolist(), [1] * (end - start) if signs is None else signs[start:end].tolist()


def _any_valid(valid: Mask | None, groups: Groups) -> Mask | None:
    return None if valid is None else any_of(valid, groups.starts)


def _float_sum(column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    kind: npt.DTypeLike = column.type.to_pandas_dtype()
    values, valid = sorted_values(column, kind, groups, -0.0)  # x + -0.0 is x, for every x; x + 0.0 is not, for -0.0
    back = retracting(groups)
    if back is not None:
        values = np.where(back, -values, values)
        if valid is not None:
            values[~valid] = -0.0
    with np.errstate(all="ignore"):
        sums = left_fold(np.add, values, groups)
    return array_of(sums, _any_valid(valid, groups), column.type)


def _float_product(column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    kind: npt.DTypeLike = column.type.to_pandas_dtype()
    values, valid = sorted_values(column, kind, groups, 1.0)
    back = retracting(groups)
    with np.errstate(all="ignore"):
        if back is None:
            return array_of(left_fold(np.multiply, values, groups), _any_valid(valid, groups), column.type)
        products, some = _divided(values, valid, back, groups)
    return array_of(products, some, column.type)


def _divided(values: Values, valid: Mask | None, back: Mask, groups: Groups) -> tuple[Values, Mask]:
    """Multiply or divide in rounds, one row of every group in each."""
    present = np.ones(len(values), np.bool_) if valid is None else valid
    products = np.ones(groups.count, values.dtype)
    some = np.zeros(groups.count, np.bool_)
    for place in range(int(groups.sizes.max())):
        active = np.flatnonzero(groups.sizes > place)
        rows = groups.starts[active] + place
        times, over = present[rows] & ~back[rows], present[rows] & back[rows] & some[active]
        products[active[times]] *= values[rows[times]]
        products[active[over]] /= values[rows[over]]
        some[active[times]] = True
    return products, some
