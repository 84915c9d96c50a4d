"""Aggregate functions by name, built from the options of a table.

`count` treats new and stored rows differently: the write buffer turns raw values into counts, and merges add the
counts of stored rows. All other functions fold stored rows as they fold new rows, except lone ones: what is stored is
folded already, or another engine's, and passes as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from merganser.errors import UnsupportedError
from merganser.merge.functions.arrays import Collect
from merganser.merge.functions.bitmaps import Bitmap32, Bitmap64
from merganser.merge.functions.booleans import BoolAnd, BoolOr
from merganser.merge.functions.extremes import Extreme
from merganser.merge.functions.function import Function, IgnoreRetract, IgnoreRetractPick, Incoming, PickFunction
from merganser.merge.functions.maps import MergeMap, MergeMapWithKeytime
from merganser.merge.functions.nested import NestedPartialUpdate, NestedUpdate
from merganser.merge.functions.numbers import CountInput, Product, Sum
from merganser.merge.functions.picks import FirstNonNullValue, FirstValue, KeyValue, LastNonNullValue, LastValue
from merganser.merge.functions.sketches import HllSketch, ThetaSketch
from merganser.merge.functions.text import ListAgg
from merganser.options import write as w
from merganser.options.option import Options
from merganser.schema import types as t

Build = Callable[[t.Field, Options], Function]


def function_for(column: t.Field, name: str, options: Options, *, stored: bool) -> Function:
    """Return the function `name` of a column, as the options of its table want it.

    Args:
        column: the column; its type is one that the function takes (`rules.merging` has checked it).
        name: name in table options.
        options: options of the table.
        stored: whether it folds rows that a merge has made (or may have made), not rows as they were written.

    Raises:
        UnsupportedError: merganser has no function of this name.
    """
    function = _input_function(column, name, options) if not stored else _merge_function(column, name, options)
    if options.get(w.IGNORE_RETRACT.of(column.name)):
        return _ignoring(function)
    return function


def _input_function(column: t.Field, name: str, options: Options) -> Function:
    if name == "count":
        return CountInput(column)
    function = _merge_function(column, name, options)
    return Incoming(function) if function.rewrites else function


def _merge_function(column: t.Field, name: str, options: Options) -> Function:
    build = _FUNCTIONS.get(name)
    if build is None:
        raise UnsupportedError(
            f"cannot merge column '{column.name}': merganser has no aggregate function '{name}'. "
            f"It has {', '.join(sorted(_FUNCTIONS))}.",
            column=column.name,
            function=name,
        )
    return build(column, options)


def _ignoring(function: Function) -> Function:
    if isinstance(function, PICKS):
        pick: PickFunction = function
        return IgnoreRetractPick(pick)
    return IgnoreRetract(function)


PICKS: Final = (LastValue, LastNonNullValue, FirstValue, FirstNonNullValue, KeyValue, IgnoreRetractPick)
"""The functions that are a `PickFunction`."""


def _list_agg(column: t.Field, options: Options) -> Function:
    option = w.LIST_AGG_DELIMITER.of(column.name)
    key = options.key_of(option)
    # The text itself: the typed value has lost the spaces around it.
    delimiter = option.default if key is None else options[key]
    return ListAgg(column, delimiter, options.get(w.DISTINCT.of(column.name)))


def _collect(column: t.Field, options: Options) -> Function:
    return Collect(column, options.get(w.DISTINCT.of(column.name)))


def _keytime(column: t.Field, options: Options) -> Function:
    return MergeMapWithKeytime(column, options.get(w.TS_FIELD.of(column.name)))


def _nested_update(column: t.Field, options: Options) -> Function:
    return NestedUpdate(
        column,
        key=options.get(w.NESTED_KEY.of(column.name)),
        sequence=options.get(w.NESTED_SEQUENCE_FIELD.of(column.name)),
        nulls=options.get(w.NESTED_KEY_NULL_STRATEGY.of(column.name)),
        limit=options.get(w.COUNT_LIMIT.of(column.name)),
    )


def _nested_partial_update(column: t.Field, options: Options) -> Function:
    return NestedPartialUpdate(
        column,
        key=options.get(w.NESTED_KEY.of(column.name)),
        nulls=options.get(w.NESTED_KEY_NULL_STRATEGY.of(column.name)),
    )


_FUNCTIONS: Final[dict[str, Build]] = {
    "sum": lambda column, _: Sum(column),
    "count": lambda column, _: Sum(column, "count"),
    "product": lambda column, _: Product(column),
    "max": lambda column, _: Extreme(column, "max"),
    "min": lambda column, _: Extreme(column, "min"),
    "last_value": lambda column, _: LastValue(column),
    "last_non_null_value": lambda column, _: LastNonNullValue(column),
    "first_value": lambda column, _: FirstValue(column),
    "first_non_null_value": lambda column, _: FirstNonNullValue(column),
    "first_not_null_value": lambda column, _: FirstNonNullValue(column, "first_not_null_value"),
    "bool_and": lambda column, _: BoolAnd(column),
    "bool_or": lambda column, _: BoolOr(column),
    "listagg": _list_agg,
    "collect": _collect,
    "merge_map": lambda column, _: MergeMap(column),
    "merge_map_with_keytime": _keytime,
    "nested_update": _nested_update,
    "nested_partial_update": _nested_partial_update,
    "rbm32": lambda column, _: Bitmap32(column),
    "rbm64": lambda column, _: Bitmap64(column),
    "hll_sketch": lambda column, _: HllSketch(column),
    "theta_sketch": lambda column, _: ThetaSketch(column),
    "primary-key": lambda column, _: KeyValue(column),
}
