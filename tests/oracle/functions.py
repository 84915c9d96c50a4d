"""The oracle of aggregate functions: one group, one row at a time, with plain lists and dictionaries.

Written from the rules of the format and slow on purpose; it shares no code with the kernels it checks. Values are
what `to_pylist` gives: maps are lists of pairs, rows are dictionaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact
from fractions import Fraction
from typing import Any

import numpy as np

from merganser.schema import types as t

Change = tuple[str, Any]
"""(row kind, value)."""

Step = Callable[[Any, Any], Any]

NOT_RETRACTING = frozenset(
    {"max", "min", "first_value", "first_non_null_value", "first_not_null_value", "bool_and", "bool_or", "listagg",
     "merge_map_with_keytime", "nested_partial_update", "rbm32", "rbm64", "hll_sketch", "theta_sketch"}
)  # fmt: skip
_WIDE = Context(prec=200)
_BITS: Mapping[type[t.DataType], int] = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}
_BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
_BLANKS += "\u2008\u2009\u200a\u2028\u2029\u205f\u3000"


class Refused(Exception):  # noqa: N818 - an answer of the oracle, not an error of ours
    """The rows cannot be folded; the text says why: retract, overflow, zero, endless, null key."""


def fold_rows(name: str, kind: t.DataType, options: Mapping[str, str], rows: Sequence[Change]) -> Any:
    """Return the value that one group's rows give.

    Args:
        name: aggregate function; `count` counts raw values.
        kind: type of the column.
        options: texts of `fields.<column>.*`, by what follows the column.
        rows: the group in merge order, not empty.

    Raises:
        Refused: the format makes this an error.
    """
    if options.get("ignore-retract") == "true":
        added = [row for row in rows if row[0] in ("+I", "+U")]
        rows = added or [("+I", rows[-1][1])]
    if name == "count":
        rows = [(k, None if value is None else 1) for k, value in rows]
        return fold_rows("sum", t.BigInt(), {}, rows) or 0
    if len(rows) == 1:
        return rows[0][1]
    adds = [k in ("+I", "+U") for k, _ in rows]
    if not all(adds) and name in NOT_RETRACTING:
        raise Refused("retract")
    if not any(adds):
        return _image(name, kind, options, [value for _, value in rows])
    function = _Fold(kind, options)
    if name.startswith("first_value"):
        return rows[0][1]
    if name == "merge_map_with_keytime":
        return function.keytime([value for _, value in rows])
    add, retract = function.steps(name)
    value = None
    for adding, (_, incoming) in zip(adds, rows, strict=True):
        value = add(value, incoming) if adding else retract(value, incoming)
    return value


def normal(name: str, kind: t.DataType, options: Mapping[str, str], value: Any) -> Any:
    """Return what a value that is added becomes where it comes alone, before it is stored."""
    if name not in ("listagg", "collect", "nested_update", "nested_partial_update"):
        return value
    return _Fold(kind, options).steps(name)[0](None, value)


def _image(name: str, kind: t.DataType, options: Mapping[str, str], values: list[Any]) -> Any:
    """Fold retractions into what can be retracted later."""
    kept = {k: v for k, v in options.items() if k == "nested-key"}
    if name in ("sum", "product", "merge_map", "nested_update", "collect", "last_non_null_value"):
        return fold_rows(name, kind, kept, [("+I", value) for value in values])
    return values[-1]


class _Fold:
    """The steps of each function over one type with one set of options."""

    def __init__(self, kind: t.DataType, options: Mapping[str, str]) -> None:
        self.kind, self.options = kind, options
        self.key = [name for name in options.get("nested-key", "").split(",") if name]
        self.sequence = [name for name in options.get("nested-sequence-field", "").split(",") if name]
        self.limit = int(options["count-limit"]) if "count-limit" in options else None
        self.distinct = options.get("distinct") == "true"

    def steps(self, name: str) -> tuple[Step, Step]:
        """Return (add, retract)."""
        plain: dict[str, Step] = {
            "max": lambda acc, new: acc if self.order(new) <= self.order(acc) else new,
            "min": lambda acc, new: new if self.order(new) <= self.order(acc) else acc,
            "bool_and": lambda acc, new: acc and new,
            "bool_or": lambda acc, new: acc or new,
            "first_non_null_value": lambda acc, new: acc,
            "first_not_null_value": lambda acc, new: acc,
        }
        if name in plain:
            return _skipping_nulls(plain[name]), _never
        pairs: dict[str, tuple[Step, Step]] = {
            "listagg": (self.listed, _never),
            "sum": (_skipping_nulls(self.plus), self.minus),
            "product": (_skipping_nulls(self.times), _both(self.over)),
            "last_value": (lambda acc, new: new, lambda acc, new: None),
            "primary-key": (lambda acc, new: new, lambda acc, new: new),
            "last_non_null_value": (
                lambda acc, new: acc if new is None else new,
                lambda acc, new: acc if new is None else None,
            ),
            "collect": (self.collected, _both(self.uncollected)),
            "merge_map": (self.mapped, _both(lambda acc, new: [e for e in acc if not _in(e[0], [k for k, _ in new])])),
            "nested_update": (self.nested, _both(self.unnested)),
            "nested_partial_update": (self.partly, _never),
        }
        return pairs[name]

    # numbers

    def order(self, value: Any) -> Any:
        """Return what sorts as the format does."""
        if isinstance(value, float):
            return (
                math.isnan(value),
                0.0 if math.isnan(value) else value,
                math.copysign(1, value) if value == 0 else 0,
            )
        return value.encode() if isinstance(value, str) else value

    def fitted(self, value: Any) -> Any:
        """Return a result in the column's type: rounded, null, or refused."""
        if isinstance(self.kind, t.Float):
            with np.errstate(all="ignore"):
                return float(np.float32(value))
        if isinstance(self.kind, t.Decimal):
            step = Decimal(1).scaleb(-self.kind.scale)
            rounded = value.quantize(step, rounding=ROUND_HALF_UP, context=_WIDE)
            return None if abs(rounded) >= Decimal(10) ** (self.kind.precision - self.kind.scale) else rounded
        if type(self.kind) in _BITS:
            bound = 1 << (_BITS[type(self.kind)] - 1)
            if not -bound <= value < bound:
                raise Refused("overflow")
        return value

    def plus(self, acc: Any, new: Any) -> Any:
        return self.fitted(_WIDE.add(acc, new) if isinstance(new, Decimal) else acc + new)

    def minus(self, acc: Any, new: Any) -> Any:
        if new is None:
            return acc
        negative = new.copy_negate() if isinstance(new, Decimal) else -new
        return self.fitted(negative) if acc is None else self.plus(acc, negative)

    def times(self, acc: Any, new: Any) -> Any:
        if isinstance(new, Decimal):
            return self.fitted(_WIDE.multiply(acc, new))
        return self.fitted(acc * new)

    def over(self, acc: Any, new: Any) -> Any:
        if isinstance(new, float):
            with np.errstate(all="ignore"):
                width = np.float32 if isinstance(self.kind, t.Float) else np.float64
                return float(width(acc) / width(new))
        if new == 0:
            raise Refused("zero")
        if isinstance(new, int):
            return self.fitted(math.trunc(Fraction(acc, new)))
        try:
            return self.fitted(Context(prec=200, traps=[Inexact]).divide(acc, new))
        except Inexact:
            raise Refused("endless") from None

    # text

    def listed(self, acc: str | None, new: str | None) -> str | None:
        if new is None or not new.strip(_BLANKS):
            return acc
        if acc is None or not acc.strip(_BLANKS):
            return new
        delimiter = self.options.get("list-agg-delimiter", ",")
        if not self.distinct or not delimiter:
            return acc + delimiter + new
        tokens = acc.split(delimiter)
        for token in new.split(delimiter):
            if token.strip(_BLANKS) and token not in tokens:
                tokens.append(token)
                acc += delimiter + token
        return acc

    # collections

    def collected(self, acc: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if new is None:
            return acc
        out = list(acc or [])
        for element in new:
            if not (self.distinct and _in(element, out)):
                out.append(element)
        return out

    def uncollected(self, acc: list[Any], new: list[Any]) -> list[Any]:
        out = list(acc)
        for element in new:
            for i, held in enumerate(out):
                if same(held, element):
                    del out[i]
                    break
        return out

    def mapped(self, acc: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if new is None:
            return acc
        out = list(acc or [])
        for key, value in new:
            _put(out, key, value)
        return out

    def keytime(self, maps: list[Any]) -> list[Any] | None:
        acc: list[Any] | None = None
        for one in maps:
            if one is None:
                continue
            if acc is None:
                acc = list(one)
                continue
            for key, row in one:
                held = [r for k, r in acc if same(k, key)]
                time = None if row is None else self.time(row)
                old = self.time(held[0]) if held and held[0] is not None else None
                if row is None:
                    acc = [e for e in acc if not same(e[0], key)]
                elif time is not None and (old is None or time > old):
                    _put(acc, key, row)
        return acc

    def time(self, row: Mapping[str, Any]) -> bytes | None:
        value = row[self.options.get("ts-field", list(row)[-1])]
        return None if value is None else str(value).encode()

    # rows in arrays

    def rows(self, values: list[Any]) -> list[Any]:
        """Return the rows that count: no nulls, and as the strategy for null keys says."""
        out = []
        for row in values:
            if row is None:
                continue
            strategy = self.options.get("nested-key-null-strategy", "merge")
            if strategy != "merge" and any(row[name] is None for name in self.key):
                if strategy == "error":
                    raise Refused("null key")
                continue
            out.append(row)
        return out

    def alike(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        return all(same(a[name], b[name]) for name in self.key) if self.key else same(a, b)

    def rank(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        values = [row[name] for name in self.sequence]
        return tuple((False,) if value is None else (True, self.order(value)) for value in values)

    def nested(self, acc: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if new is None:
            return acc
        out = list(acc or [])
        for row in self.rows(new):
            at = next((i for i, held in enumerate(out) if self.key and self.alike(held, row)), None)
            if at is not None:
                if self.rank(row) >= self.rank(out[at]):
                    out[at] = row
            elif self.limit is None or len(out) < self.limit:
                out.append(row)
        return out

    def unnested(self, acc: list[Any], new: list[Any]) -> list[Any]:
        out = acc
        for row in [row for row in new if row is not None]:
            out = [held for held in out if not self.alike(held, row)]
        return out

    def partly(self, acc: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
        if new is None:
            return acc
        out = list(acc or [])
        for row in self.rows(new):
            at = next((i for i, held in enumerate(out) if self.alike(held, row)), None)
            if at is None:
                out.append(row)
            else:
                out[at] = {n: out[at][n] if row[n] is None else row[n] for n in row}
        return out


def same(a: Any, b: Any) -> bool:
    """Return whether two values are one: NaN is NaN, -0.0 is not 0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _in(value: Any, values: Sequence[Any]) -> bool:
    return any(same(value, other) for other in values)


def _put(entries: list[Any], key: Any, value: Any) -> None:
    for i, (held, _) in enumerate(entries):
        if same(held, key):
            entries[i] = (key, value)
            return
    entries.append((key, value))


def _skipping_nulls(step: Step) -> Step:
    return lambda acc, new: new if acc is None else acc if new is None else step(acc, new)


def _both(step: Step) -> Step:
    """Return a retraction that needs both an accumulator and a value."""
    return lambda acc, new: acc if acc is None or new is None else step(acc, new)


def _never(acc: Any, new: Any) -> Any:
    raise Refused("retract")
