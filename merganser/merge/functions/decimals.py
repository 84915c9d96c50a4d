"""sum and product of decimals: a result beyond the precision is null, and the next value starts again.

Values are unscaled integers: int64 up to 18 digits, else halves of 128 bits. Groups that a bound clears of any
overflow are reduced at once; the others, and divisions, are folded row by row in Python's integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.merge.functions.function import refuse, retracting
from merganser.merge.functions.segments import Values, any_of, array_of, selected, validity, whole
from merganser.merge.groups import Groups, Mask
from merganser.schema import types as t

_LIMB: Final = np.uint64(0xFFFF_FFFF)
_MARGIN: Final = 1 - 1e-9
"""Sums of floats stand for sums of integers with less than this relative error."""


def summed(column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    """Return the sums of k groups; k > 0."""
    halves, valid = _sorted_halves(column, groups)
    back = retracting(groups)
    limit = 10**column.type.precision
    bound = np.add.reduceat(_magnitudes(halves), groups.starts)
    slow: Mask = (bound >= limit * _MARGIN) & (groups.sizes > 1)
    out = _sums(halves, back, groups)
    some = np.ones(groups.count, np.bool_) if valid is None else any_of(valid, groups.starts)
    if slow.any():
        _exactly(out, some, halves, valid, back, groups, slow, lambda a, b, r: _step_sum(a, b, r, limit))
    return array_of(out, some, column.type)


def multiplied(column: pa.ChunkedArray, groups: Groups, field: t.Field, name: str) -> pa.Array:
    """Return the products of k groups, rounded half up to the scale at each step; k > 0."""
    precision, scale = column.type.precision, column.type.scale
    halves, valid = _sorted_halves(column, groups)
    back = retracting(groups)
    digits = np.log10(np.maximum(_magnitudes(halves) / 10.0**scale, 1))
    if valid is not None:
        digits[~valid] = 0
    slow: Mask = np.add.reduceat(digits, groups.starts) > precision - scale - 0.001
    if back is not None:
        slow |= any_of(back, groups.starts)
    if precision > 37:  # Arrow has no room for the product of two such values
        slow[:] = True
    slow &= groups.sizes > 1
    out, some = _products(halves, valid, groups, slow, column.type)
    if slow.any():
        step = _Multiplication(field, name, scale, 10**precision)
        _exactly(out, some, halves, valid, back, groups, slow, step)
    return array_of(out, some, column.type)


def _sorted_halves(column: pa.ChunkedArray, groups: Groups) -> tuple[Values, Mask | None]:
    """Return int64[n, 2], low and high halves in (group, merge order) order with zero for null; which are valid."""
    array = whole(column)
    buffer = array.buffers()[1]
    if buffer is None:
        halves = np.zeros((len(array), 2), np.int64)
    else:
        halves = np.frombuffer(buffer, np.int64, count=2 * len(array), offset=16 * array.offset).reshape(-1, 2)
    halves = halves[groups.positions]
    valid = validity(array)
    if valid is not None:
        valid = valid[groups.positions]
        halves[~valid] = 0
    return halves, valid


def _magnitudes(halves: Values) -> npt.NDArray[np.float64]:
    if _narrow(halves):
        return np.abs(halves[:, 0].astype(np.float64))
    return np.abs(halves[:, 1] * 2.0**64 + halves[:, 0].view(np.uint64))  # type: ignore[no-any-return]


def _narrow(halves: Values) -> bool:
    """Return whether every value fits its low half."""
    return bool((halves[:, 0] >> 63 == halves[:, 1]).all())


def _sums(halves: Values, back: Mask | None, groups: Groups) -> Values:
    """Return int64[k, 2], sums modulo 2**128."""
    out = np.empty((groups.count, 2), np.int64)
    low, high = halves[:, 0].view(np.uint64), halves[:, 1]
    limbs: list[Values] = [low & _LIMB]
    limbs += (
        [halves[:, 0] >> 32] if _narrow(halves) else [low >> np.uint64(32), high.view(np.uint64) & _LIMB, high >> 32]
    )
    sums = []
    for limb in limbs:
        words = limb.astype(np.int64)
        if back is not None:
            words[back] *= -1
        sums.append(np.add.reduceat(words, groups.starts))
    if len(sums) == 2:
        sums += [np.zeros(groups.count, np.int64)] * 2
    carried = []
    carry = np.zeros(groups.count, np.int64)
    for words in sums:
        words = words + carry
        carried.append((words & 0xFFFF_FFFF).view(np.uint64))
        carry = words >> 32
    out[:, 0] = (carried[0] | (carried[1] << np.uint64(32))).view(np.int64)
    out[:, 1] = (carried[2] | (carried[3] << np.uint64(32))).view(np.int64)
    return out


def _products(halves: Values, valid: Mask | None, groups: Groups, slow: Mask, kind: pa.DataType) -> tuple[Values, Mask]:
    """Return int64[k, 2] and which are valid, of the groups that are not `slow`, one row of each in a round."""
    out = np.zeros((groups.count, 2), np.int64)
    some = np.zeros(groups.count, np.bool_)
    sizes = np.where(slow, 0, groups.sizes)
    for place in range(int(sizes.max())):
        active = np.flatnonzero(sizes > place)
        rows = groups.starts[active] + place
        if valid is not None:
            active, rows = active[valid[rows]], rows[valid[rows]]
        begun = some[active]
        out[active[~begun]] = halves[rows[~begun]]
        some[active] = True
        active, rows = active[begun], rows[begun]
        if len(active):
            out[active] = _rounded_products(out[active], halves[rows], kind)
    return out, some


def _rounded_products(left: Values, right: Values, kind: pa.DataType) -> Values:
    """Return the products of two int64[m, 2], rounded half away from zero; they are known to fit."""
    wide = pa.decimal128 if kind.precision <= 18 else pa.decimal256
    a, b = (array_of(side, None, kind).cast(wide(kind.precision, kind.scale)) for side in (left, right))
    rounded = pc.round(pc.multiply(a, b), kind.scale, "half_towards_infinity").cast(kind)
    return _sorted_halves(pa.chunked_array([rounded], kind), Groups(np.arange(len(rounded)), np.arange(len(rounded))))[
        0
    ]


Step = Callable[[int | None, int, bool], int | None]
"""(accumulator or None, unscaled value, whether it retracts) -> accumulator."""


def _exactly(
    out: Values,
    some: Mask,
    halves: Values,
    valid: Mask | None,
    back: Mask | None,
    groups: Groups,
    slow: Mask,
    step: Step,
) -> None:
    """Fold the `slow` groups row by row, into int64[k, 2] `out` and bool[k] `some`."""
    rows = slow[groups.group_of]
    lows, highs = halves[rows, 0].view(np.uint64).tolist(), halves[rows, 1].tolist()
    values = [(high << 64) + low for low, high in zip(lows, highs, strict=True)]
    present: list[bool] = [True] * len(values) if valid is None else valid[rows].tolist()
    retracts: list[bool] = [False] * len(values) if back is None else back[rows].tolist()
    part = selected(groups, slow)
    results: list[int | None] = []
    for start, end in zip(part.starts.tolist(), part.ends.tolist(), strict=True):
        total: int | None = None
        for row in range(start, end):
            if present[row]:
                total = step(total, values[row], retracts[row])
        results.append(total)
    some[slow] = [value is not None for value in results]
    packed = b"".join((value or 0).to_bytes(16, "little", signed=True) for value in results)
    out[slow] = np.frombuffer(packed, np.int64).reshape(-1, 2)


def _step_sum(total: int | None, value: int, retracts: bool, limit: int) -> int | None:
    result = (total or 0) + (-value if retracts else value)
    return result if -limit < result < limit else None


class _Multiplication:
    """One step of a product: multiply, or divide exactly, then round half up to the scale."""

    def __init__(self, column: t.Field, name: str, scale: int, limit: int) -> None:
        self.column, self.name = column, name
        self.one: Final = 10**scale
        self.limit: Final = limit

    def __call__(self, total: int | None, value: int, retracts: bool) -> int | None:
        if total is None:
            return None if retracts else value
        if retracts:
            if value == 0:
                refuse(self.column, self.name, "a retraction divides by zero. Retract the value that was added.")
            if not _terminates(total, value):
                refuse(
                    self.column,
                    self.name,
                    "a retraction divides by a value that leaves an endless decimal fraction. Retract a value that "
                    f"was added, or set 'fields.{self.column.name}.ignore-retract'.",
                )
            result = _half_up(total * self.one, value)
        else:
            result = _half_up(total * value, self.one)
        return result if -self.limit < result < self.limit else None


def _terminates(numerator: int, denominator: int) -> bool:
    """Return whether the quotient has finitely many decimal digits."""
    rest = abs(denominator) // math.gcd(numerator, denominator)
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _half_up(numerator: int, denominator: int) -> int:
    """Return the quotient rounded to the nearest, ties away from zero."""
    quotient = (2 * abs(numerator) + abs(denominator)) // (2 * abs(denominator))
    return quotient if (numerator < 0) == (denominator < 0) else -quotient
