"""Filters over minimum, maximum and null counts: which files may hold a row that is kept, which hold nothing else.

For each file and condition three questions are answered: can it be true for a row, can it be false, can it be
null. The answers are supersets of the truth, so a file is skipped only when "true" is impossible, and all its rows
are kept for certain only when "false" and "null" are. What is unknown makes everything possible.

Bounds are only bounds: a minimum may be lower and a maximum higher than any value (text cut short, say).
FLOAT and DOUBLE: statistics leave NaN out, in most writers, though NaN is the largest value. So the question is
asked apart for rows without NaN, to which the bounds apply, and for rows where a column is NaN; a file is
skipped when neither kind can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.arithmetic import call
from merganser.expr.cast import cast_values
from merganser.expr.compare import (
    MIRRORED,
    Values,
    as_double,
    compare,
    compare_literal,
    family,
)
from merganser.expr.compute import like_parts, literal_array
from merganser.expr.listed import Listed, listed
from merganser.expr.predicate import Predicate
from merganser.expr.times import DAY_MICROS
from merganser.expr.tree import (
    And,
    Call,
    Cast,
    Column,
    Compare,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Match,
    Not,
    Null,
    Or,
    walk,
)
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.values import dataclass

NULL_COUNT_UNKNOWN: Final = -1

_RISING: Final = frozenset(
    ("year", "floor", "ceil", "start_of", "last_day", "unix_date", "plus_interval", "wall_clock")
)
"""Functions that never fall when their first argument rises; `wall_clock` almost."""

# Each column that may be NaN doubles the questions; past this many they are asked together, less sharply.
_NAN_COLUMNS_MAX: Final = 3

Flags = npt.NDArray[np.bool_]
_Answer = Callable[[], Flags]


def may_match_many(
    p: Predicate,
    mins: Mapping[str, pa.Array],
    maxs: Mapping[str, pa.Array],
    null_counts: Mapping[str, npt.NDArray[np.int64]],
    row_counts: npt.NDArray[np.int64],
    *,
    nan_free: Collection[str] = (),
) -> Flags:
    """Return for each of n files whether it may contain a row for which `p` is true.

    Args:
        p: a condition.
        mins: by column, n lower bounds: values of the column's Arrow type, or stored integers for dates, times and
            timestamps. Null is unknown, and so is an absent column.
        maxs: by column, n upper bounds, likewise.
        null_counts: by column, int64[n]; -1 is unknown.
        row_counts: int64[n], rows of each file.
        nan_free: FLOAT and DOUBLE columns that certainly hold no NaN.

    Returns:
        bool[n], False only where no row can match.
    """
    worlds = _worlds(p, _Files(mins, maxs, null_counts, row_counts, frozenset(nan_free)))
    return _any([_outcome(p.expression, world).true for world in worlds])


def must_match_many(
    p: Predicate,
    mins: Mapping[str, pa.Array],
    maxs: Mapping[str, pa.Array],
    null_counts: Mapping[str, npt.NDArray[np.int64]],
    row_counts: npt.NDArray[np.int64],
    *,
    nan_free: Collection[str] = (),
) -> Flags:
    """Return for each of n files whether `p` is true for all its rows; arguments as for `may_match_many`.

    Returns:
        bool[n], True only where every row matches for certain.
    """
    worlds = _worlds(p, _Files(mins, maxs, null_counts, row_counts, frozenset(nan_free)))
    outcomes = [_outcome(p.expression, world) for world in worlds]
    return ~_any([outcome.false | outcome.null for outcome in outcomes])


def _any(parts: Sequence[Flags]) -> Flags:
    return np.asarray(np.logical_or.reduce(parts), bool)


def _all(parts: Sequence[Flags]) -> Flags:
    return np.asarray(np.logical_and.reduce(parts), bool)


@dataclass(frozen=True, slots=True)
class _Files:
    """The statistics of n files, as the caller gave them."""

    mins: Mapping[str, pa.Array]
    maxs: Mapping[str, pa.Array]
    null_counts: Mapping[str, npt.NDArray[np.int64]]
    row_counts: npt.NDArray[np.int64]
    nan_free: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Range:
    """What is known of one expression over the rows of each of n files.

    `low` and `high` are n values of the Arrow type of `kind`, null where unknown; None is unknown everywhere.
    """

    kind: t.DataType
    low: Values | None
    high: Values | None
    can_be_null: Flags
    can_be_value: Flags
    literal: Literal | None = None


@dataclass(frozen=True, slots=True)
class _World:
    """A kind of rows to ask about: in each of n files, the ranges of the columns."""

    ranges: Mapping[str, _Range]
    count: int

    def all(self, answer: bool) -> Flags:
        """Return one answer for all files."""
        return np.full(self.count, answer)


class _Outcome:
    """Whether a condition can be true, false and null for some row of each of n files, each found when it is asked.

    Most conditions are asked for one of the three, and each takes a few calls of Arrow.
    """

    def __init__(self, true: _Answer, false: _Answer, null: _Answer) -> None:
        self._true, self._false, self._null = true, false, null

    @cached_property
    def true(self) -> Flags:
        return self._true()

    @cached_property
    def false(self) -> Flags:
        return self._false()

    @cached_property
    def null(self) -> Flags:
        return self._null()


def _worlds(p: Predicate, files: _Files) -> list[_World]:
    """Return the kinds of rows to ask about: without NaN, and with NaN in each set of columns that may have it."""
    count = len(files.row_counts)
    ranges: dict[str, _Range] = {}
    floating: list[str] = []
    for part in walk(p.expression):
        if not isinstance(part, Column) or len(part.path) > 1 or part.path[0] in ranges:
            continue
        name = part.path[0]
        ranges[name] = _column_range(name, part.type, files)
        if isinstance(part.type, t.Float | t.Double) and name not in files.nan_free:
            floating.append(name)
    if len(floating) > _NAN_COLUMNS_MAX:
        # All together: a value may be a number from the minimum on, or NaN, the largest.
        unbounded = {name: replace(ranges[name], high=None) for name in floating}
        return [_World({**ranges, **unbounded}, count)]
    worlds = []
    for choice in product((False, True), repeat=len(floating)):
        chosen = [name for name, is_nan in zip(floating, choice, strict=True) if is_nan]
        worlds.append(_World({**ranges, **{name: _nan_range(ranges[name]) for name in chosen}}, count))
    return worlds


def _nan_range(of: _Range) -> _Range:
    nan = literal_array(Literal(float("nan"), of.kind), len(of.can_be_null))
    return replace(of, low=nan, high=nan, can_be_null=np.zeros_like(of.can_be_null))


def _column_range(name: str, kind: t.DataType, files: _Files) -> _Range:
    nulls = files.null_counts.get(name)
    if nulls is None:
        nulls = np.full(len(files.row_counts), NULL_COUNT_UNKNOWN)
    return _Range(
        kind,
        _bounds(files.mins.get(name), kind, len(files.row_counts)),
        _bounds(files.maxs.get(name), kind, len(files.row_counts)),
        can_be_null=nulls != 0,
        can_be_value=(nulls < 0) | (nulls < files.row_counts),
    )


def _bounds(values: pa.Array | None, kind: t.DataType, count: int) -> pa.Array | None:
    """Return bounds in the Arrow type of a column, null where they are not of that type. A NaN is no bound."""
    if family(kind) is None:
        return None
    wanted = arrow_type(kind)
    try:
        values = pa.nulls(count, wanted) if values is None else values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(count, wanted)
    if isinstance(kind, t.Float | t.Double):
        return pc.if_else(pc.is_nan(values), pa.scalar(None, wanted), values)
    return values


def _range(node: Expression, world: _World) -> _Range:
    """Return what is known of a value; of most computed ones, nothing."""
    match node:
        case Literal(value=value, type=kind):
            is_null = value is None
            return _Range(kind, None, None, world.all(is_null), world.all(not is_null), node)
        case Column(path=(name,)):
            return world.ranges[name]
        case Cast(item=item) | Call(items=(item, *_)) if isinstance(node, Cast) or node.name in _RISING:
            inner = _range(item, world)
            if _rises(node, item.type) and inner.literal is None:
                low, high = _image(node, item, inner.low), _image(node, item, inner.high)
                if isinstance(node, Call) and node.name == "wall_clock":
                    # Clocks are set back at times, by less than a day: then the wall clock falls as time goes on.
                    low, high = _a_day_off(node, low, -1), _a_day_off(node, high, 1)
                # NaN and the infinities become null as DECIMAL, the one cast that makes nulls.
                makes_null = isinstance(node.type, t.Decimal) and family(item.type) == "float"
                can_be_null = inner.can_be_null | (inner.can_be_value & makes_null)
                return replace(inner, kind=node.type, low=low, high=high, can_be_null=can_be_null)
    return _Range(node.type, None, None, world.all(True), world.all(True))


def _rises(node: Cast | Call, source: t.DataType) -> bool:
    """Return whether a function never falls when its argument rises."""
    if isinstance(node, Call):
        # floor(NaN) is 0, though NaN is the largest value.
        return family(source) != "float"
    groups = {family(source), family(node.type)}
    return groups <= {"exact", "float"} or groups == {"instant"}


def _image(node: Cast | Call, item: Expression, values: Values | None) -> Values | None:
    """Return a function of bounds, null where it has no value for one of them."""
    if values is None:
        return None
    try:
        if isinstance(node, Cast):
            return cast_values(values, item.type, node.type)
        constants = [option.value for option in node.items[1:] if isinstance(option, Literal)]
        return call(node.name, values, item.type, node.type, [c for c in constants if isinstance(c, int | str)])
    except (InvalidInputError, pa.ArrowInvalid):
        if len(values) == 1:
            return pa.nulls(1, arrow_type(node.type))
        # Somewhere a bound overflows. That is rare, and halving finds it without giving up on the others.
        middle = len(values) // 2
        halves = [_image(node, item, part) for part in (values.slice(0, middle), values.slice(middle))]
        return pa.chunked_array([chunk for half in halves for chunk in _chunks(half)], arrow_type(node.type))


def _a_day_off(node: Call, values: Values | None, days: int) -> Values | None:
    return None if values is None else call("plus_interval", values, node.type, node.type, [0, days * DAY_MICROS])


def _chunks(values: Values | None) -> list[pa.Array]:
    assert values is not None
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _possible(op: str, left: _Range, left_bound: Values | None, right: _Range, right_bound: Values | None) -> Flags:
    """Return where `left_bound op right_bound` holds or is unknown. A literal is its own bound."""
    count = len(left.can_be_null)
    if left.literal is not None and right.literal is None:
        return _possible(MIRRORED[op], right, right_bound, left, left_bound)
    if left.literal is not None:
        left_bound = literal_array(left.literal, count)
    if left_bound is None or (right.literal is None and right_bound is None):
        return np.ones(count, bool)
    if right.literal is not None:
        answer = compare_literal(op, left_bound, left.kind, right.literal)
    else:
        assert right_bound is not None, right
        answer = compare(op, left_bound, left.kind, right_bound, right.kind)
    return np.asarray(pc.fill_null(answer, True))


def _outcome(node: Expression, world: _World) -> _Outcome:
    match node:
        case And(items=items):
            parts = [_outcome(item, world) for item in items]
            return _Outcome(
                lambda: _all([o.true for o in parts]),
                lambda: _any([o.false for o in parts]),
                lambda: _any([o.null for o in parts]) & _all([o.true | o.null for o in parts]),
            )
        case Or(items=items):
            parts = [_outcome(item, world) for item in items]
            return _Outcome(
                lambda: _any([o.true for o in parts]),
                lambda: _all([o.false for o in parts]),
                lambda: _any([o.null for o in parts]) & _all([o.false | o.null for o in parts]),
            )
        case Not(item=item):
            inner = _outcome(item, world)
            return _Outcome(lambda: inner.false, lambda: inner.true, lambda: inner.null)
        case Literal(value=value):
            return _known(world, value is True, value is False, value is None)
        case IsNull(item=item):
            return _null_outcome(item, world)
        case Compare():
            return _compare_outcome(node, world)
        case In():
            return _member_outcome(node, world)
        case Like(ignore_case=False):
            return _like_outcome(node, world)
        case Match(how="starts", item=item, text=text):
            return _prefix_outcome(_range(item, world), text, whole=True)
        case Column():
            return _flag_outcome(_range(node, world))
    return _known(world, True, True, True)


def _known(world: _World, true: bool, false: bool, null: bool) -> _Outcome:
    return _Outcome(lambda: world.all(true), lambda: world.all(false), lambda: world.all(null))


def _null_outcome(item: Expression, world: _World) -> _Outcome:
    if isinstance(item.type, t.Boolean) and not isinstance(item, Column | Literal):
        inner = _outcome(item, world)
        return _Outcome(lambda: inner.null, lambda: inner.true | inner.false, lambda: world.all(False))
    inside = _range(item, world)
    return _Outcome(lambda: inside.can_be_null, lambda: inside.can_be_value, lambda: world.all(False))


def _flag_outcome(of: _Range) -> _Outcome:
    """Return the outcome of a BOOLEAN column as a condition."""
    true = Literal(True, t.Boolean())
    none = np.zeros_like(of.can_be_null)
    fixed = _Range(of.kind, None, None, none, ~none, true)
    return _Outcome(
        lambda: of.can_be_value & _possible("=", of, of.high, fixed, None),
        lambda: of.can_be_value & _possible("<>", of, of.low, fixed, None),
        lambda: of.can_be_null,
    )


def _compare_outcome(node: Compare, world: _World) -> _Outcome:
    if isinstance(node.left.type, Null) or isinstance(node.right.type, Null):
        return _null_compare_outcome(node, world)
    left, right = _range(node.left, world), _range(node.right, world)
    values = left.can_be_value & right.can_be_value

    def less() -> Flags:
        return values & _possible("<", left, left.low, right, right.high)

    def greater() -> Flags:
        return values & _possible(">", left, left.high, right, right.low)

    def not_less() -> Flags:
        return values & _possible(">=", left, left.high, right, right.low)

    def not_greater() -> Flags:
        return values & _possible("<=", left, left.low, right, right.high)

    def equal() -> Flags:
        return not_less() & not_greater()

    def unequal() -> Flags:
        return less() | greater()

    def null() -> Flags:
        return left.can_be_null | right.can_be_null

    match node.op:
        case "=":
            return _Outcome(equal, unequal, null)
        case "<>":
            return _Outcome(unequal, equal, null)
        case "<":
            return _Outcome(less, not_less, null)
        case "<=":
            return _Outcome(not_greater, greater, null)
        case ">":
            return _Outcome(greater, not_greater, null)
        case ">=":
            return _Outcome(not_less, less, null)
    both_null = left.can_be_null & right.can_be_null
    one_null = (left.can_be_null & right.can_be_value) | (left.can_be_value & right.can_be_null)
    return _Outcome(lambda: equal() | both_null, lambda: unequal() | one_null, lambda: world.all(False))


def _null_compare_outcome(node: Compare, world: _World) -> _Outcome:
    """Return the outcome of a comparison with NULL: null, but <=> tests for null."""
    other = node.right if isinstance(node.left.type, Null) else node.left
    if node.op != "<=>":
        return _known(world, False, False, True)
    if isinstance(other.type, Null):
        return _known(world, True, False, False)
    return _null_outcome(other, world)


def _member_outcome(node: In, world: _World) -> _Outcome:
    of = _range(node.item, world)
    options = listed(node)
    true, false = _within(of, options)
    if options.has_null:
        # What is not found is unknown, never false.
        return _Outcome(lambda: true, lambda: world.all(False), lambda: of.can_be_null | false)
    return _Outcome(lambda: true, lambda: false, lambda: of.can_be_null)


def _within(of: _Range, options: Listed) -> tuple[Flags, Flags]:
    """Return where a value may be among the options, and where one may be outside of them."""
    true = np.full_like(of.can_be_null, False)
    fixed = np.full_like(of.can_be_null, False)
    if not len(options.stored) and not len(options.doubles):
        return true, of.can_be_value
    if of.low is None or of.high is None:
        return of.can_be_value, of.can_be_value
    unknown = np.asarray(of.low.is_null()) | np.asarray(of.high.is_null())
    if len(options.stored):
        true = _rank(options.stored, of.high, inclusive=True) > _rank(options.stored, of.low, inclusive=False)
    if len(options.doubles):
        # To make numbers DOUBLE keeps their order, and numpy takes NaN for the largest, as SQL does.
        low, high = (np.asarray(as_double(bound, of.kind)) for bound in (of.low, of.high))
        true = true | (options.doubles.searchsorted(high, "right") > options.doubles.searchsorted(low, "left"))
    same = np.asarray(pc.fill_null(compare("=", of.low, of.kind, of.high, of.kind), False))
    if same.any():
        fixed = same & np.asarray(options.among(of.low))
    return of.can_be_value & (true | unknown), of.can_be_value & ~fixed


def _rank(values: pa.Array, bounds: Values, *, inclusive: bool) -> npt.NDArray[np.int64]:
    """Return for each bound how many of the sorted values lie below it, or with inclusive, up to it.

    Sorting both together serves every type; equal values keep their places, so what stands first decides
    whether equal ones count. Null bounds count all.
    """
    bounds = bounds.combine_chunks() if isinstance(bounds, pa.ChunkedArray) else bounds
    both = [values, bounds] if inclusive else [bounds, values]
    joined = pa.concat_arrays([part.cast(values.type) for part in both])
    if pa.types.is_floating(joined.type):
        # 0.0 and -0.0 are one value.
        joined = pc.add(joined, pa.scalar(0.0, joined.type))
    order = np.asarray(pc.sort_indices(joined))
    is_value = order < len(values) if inclusive else order >= len(bounds)
    below = np.cumsum(is_value)
    ranks = np.empty(len(joined), np.int64)
    ranks[order] = below
    return ranks[len(values) :] if inclusive else ranks[: len(bounds)]


def _like_outcome(node: Like, world: _World) -> _Outcome:
    of = _range(node.item, world)
    parts = like_parts(node.pattern, node.escape)
    if not any(wild for _, wild in parts):
        whole = Literal("".join(text for text, _ in parts), t.string())
        return _compare_outcome(Compare("=", node.item, whole), world)
    prefix = parts[0][0] if not parts[0][1] else ""
    return _prefix_outcome(of, prefix, whole=parts in (((prefix, False), ("%", True)), (("%", True),)))


def _prefix_outcome(of: _Range, prefix: str, *, whole: bool) -> _Outcome:
    """Return the outcome of "starts with a prefix and goes on in some way"; with `whole`, in any way."""
    none = np.zeros_like(of.can_be_null)
    everything = of.can_be_value
    start = _Range(t.string(), None, None, none, ~none, Literal(prefix, t.string()))
    above = _possible(">=", of, of.high, start, None)
    starts_at = ~_possible("<", of, of.low, start, None)
    following = _successor(prefix)
    if following is None:
        below, ends_before = ~none, ~none
    else:
        stop = _Range(t.string(), None, None, none, ~none, Literal(following, t.string()))
        below = _possible("<", of, of.low, stop, None)
        ends_before = ~_possible(">=", of, of.high, stop, None)
    all_start_so = starts_at & ends_before & whole
    return _Outcome(lambda: everything & above & below, lambda: everything & ~all_start_so, lambda: of.can_be_null)


def _successor(prefix: str) -> str | None:
    """Return the least text above all texts with a prefix; None if there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        # Surrogates are no characters of UTF-8.
        code = 0xE000 if 0xD800 <= code <= 0xDFFF else code
        if code <= 0x10FFFF:
            return prefix[:at] + chr(code)
    return None
