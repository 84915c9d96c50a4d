"""The two sides of a merge: which rows of a source belong to which rows of the target, by the condition of the merge.

The condition is a conjunction. Equalities of a column of the target with a value of the source join both sides by their
values, whole columns at a time; at least one is needed. What looks at the target alone narrows the search for its
rows, what looks at the source alone leaves out rows of it, and the rest is asked of the pairs that are left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.edit.asked import condition_of, refused
from merganser.edit.assign import SOURCE, TARGET
from merganser.edit.merge_names import DEFAULT, Names, found_names, given_names
from merganser.errors import InvalidInputError
from merganser.expr.predicate import Predicate, Projection, conjunction, conjuncts
from merganser.expr.setting import Setting
from merganser.expr.tree import Column, Compare, Expression, columns, renamed
from merganser.merge.groups import Mask, Positions
from merganser.merge.keys import polars_column
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.schema.conform import conform
from merganser.schema.fitting import fitting
from merganser.schema.lazy_polars import pl
from merganser.schema.pieces import rows_at
from merganser.values import dataclass


@dataclass(frozen=True)
class On:
    """The condition of a merge.

    Attributes:
        pairs: columns of the target, and the values of the source that they have to equal.
        of_target: the rest that looks at the target alone, as a filter of it; None: nothing does.
        of_source: the rest that looks at the source alone; None: nothing does.
        of_both: the rest; None: there is none.
        names: what SQL text calls the two sides.
        null_safe: the columns of `pairs` that are equal to a null where both are null (`<=>`).
        of_keys: values are equal as keys are: 0.0 and -0.0 are two.
    """

    pairs: tuple[tuple[t.Field, Projection], ...]
    of_target: Predicate | None
    of_source: Predicate | None
    of_both: Predicate | None
    names: Names = dataclasses.field(default=DEFAULT, compare=False)
    null_safe: frozenset[str] = frozenset()
    of_keys: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """The columns of the target that it looks at."""
        both = frozenset() if self.of_both is None else self.of_both.columns
        found = {name.partition(".")[2] for name in both if name.startswith(f"{TARGET}.")}
        found |= frozenset() if self.of_target is None else self.of_target.columns
        return frozenset(found | {field.name for field, _ in self.pairs})

    @property
    def is_plain(self) -> bool:
        """Whether there are equalities alone."""
        return self.of_target is None and self.of_source is None and self.of_both is None


def joining(
    text: Any,
    table: TableDef,
    source: Sequence[t.Field],
    action: str,
    setting: Setting,
    alias: Any = None,
    is_source: Callable[[Sequence[str]], bool] | None = None,
) -> On:
    """Return the condition of a merge.

    Args:
        source: the columns of the source.
        alias: what the text calls the target and the source; None: that is found from the text.
        is_source: see `found_names`.

    Raises:
        InvalidInputError: it is no condition, or has no equality of a column of the target with a value of the source;
            or it is not known which names in it belong to which side.
    """
    if alias is not None:
        return _joining(text, table, source, action, setting, given_names(alias, action))
    may = found_names(text, table, source, exact=setting.exact_names, is_source=is_source)
    if len(may) == 2:  # if the condition means the same either way, other texts may still do without the names
        one, other = (_joining(text, table, source, action, setting, names) for names in may)
        if one == other:
            return replace(one, names=replace(one.names, are_known=False))
        raise refused(action, InvalidInputError(may[0].refusal))
    try:
        return _joining(text, table, source, action, setting, may[0] if may else DEFAULT)
    except InvalidInputError as error:
        if may:
            raise
        raise InvalidInputError(
            f"{error.message} Where the condition calls the table 't' and the source 's', give alias=('t', 's').",
            **error.context,
        ) from error


def _joining(text: Any, table: TableDef, source: Sequence[t.Field], action: str, setting: Setting, names: Names) -> On:
    fields = table.schema.shown.fields
    advice = "Say which row of the source belongs to which row of the table, as in 'target.id = source.id'."
    whole = condition_of(text, names.sides({TARGET: fields, SOURCE: source}), action, setting, advice)
    pairs: list[tuple[t.Field, Projection]] = []
    null_safe: set[str] = set()
    rest: dict[frozenset[str], list[Predicate]] = {}
    for part in conjuncts(whole):
        pair = _pair(part.expression, fields)
        if pair is not None and pair[0] not in [field for field, _ in pairs]:
            pairs.append(pair)
            if isinstance(part.expression, Compare) and part.expression.op == "<=>":
                null_safe.add(pair[0].name)
        else:
            rest.setdefault(_sides(part.expression), []).append(part)
    if not pairs:
        raise InvalidInputError(
            f"{action}: the condition '{text}' has no equality of a column of the target with a value of the source. "
            f"Nothing was written. {_casts(whole, fields) or advice}"
        )
    of_target = conjunction(rest.get(frozenset([TARGET]), []))
    both = [part for sides, parts in rest.items() if sides not in ({TARGET}, {SOURCE}) for part in parts]
    return On(
        tuple(pairs),
        None if of_target is None else Predicate(plain(of_target.expression)),
        conjunction(rest.get(frozenset([SOURCE]), [])),
        conjunction(both),
        names,
        frozenset(null_safe),
    )


def plain(node: Expression) -> Expression:
    """Return an expression over the columns of one side, called as that side calls them."""
    return renamed(node, lambda name: name.partition(".")[2])


def _sides(node: Expression) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in columns(node))


def _pair(node: Expression, fields: Sequence[t.Field]) -> tuple[t.Field, Projection] | None:
    if not isinstance(node, Compare) or node.op not in ("=", "<=>"):
        return None
    for left, right in ((node.left, node.right), (node.right, node.left)):
        if _sides(right) != {SOURCE}:
            continue
        column = plain(left) if isinstance(left, Column) and _sides(left) == {TARGET} else None
        if isinstance(column, Column) and len(column.path) == 1:
            field = next(field for field in fields if field.name == column.path[0])
            return None if t.is_nested(field.type) else (field, Projection(right))
    return None


def _casts(whole: Predicate, fields: Sequence[t.Field]) -> str:
    """Return what to do about an equality that looks at a value made of columns of the target, such as a cast."""
    for node in (part.expression for part in conjuncts(whole)):
        if not isinstance(node, Compare) or node.op != "=":
            continue
        for left, right in ((node.left, node.right), (node.right, node.left)):
            names = sorted(columns(left))
            if _sides(left) == {TARGET} and _sides(right) == {SOURCE} and len(names) == 1:
                field = next((field for field in fields if field.name == names[0].partition(".")[2]), None)
                if field is not None:
                    return (
                        f"It compares what a cast or a function makes of '{names[0]}'. Leave this column as it is, and "
                        f"cast the value of the source to its type, {field.type.with_nullable(True)}."
                    )
    return ""


class Source:
    """The rows of a source, n of them, and which of them have met a row of the target so far.

    Attributes:
        rows: its columns, called `source.column`.
        met: bool[n].
        is_whole: whether these are all rows of the source, so that their numbers say something to the user.
    """

    def __init__(self, rows: pa.Table, on: On, action: str, *, is_whole: bool = True) -> None:
        self.is_whole = is_whole
        self.rows = rows.rename_columns([f"{SOURCE}.{name}" for name in rows.column_names])
        self.met: Mask = np.zeros(rows.num_rows, np.bool_)
        self._on = on
        self._action = action
        self._keys, self._places = self._joined_by()
        self._frame = pl.DataFrame(
            [*(self._series(f"k{i}", key) for i, key in enumerate(self._keys.columns)), pl.Series("s", self._places)]
        )

    def _joined_by(self) -> tuple[pa.Table, Positions]:
        """Return the values that columns of the target have to equal, and whose they are: of rows that may have any."""
        may = np.ones(self.rows.num_rows, np.bool_)
        if self._on.of_source is not None:
            may &= np.asarray(self._on.of_source.mask(self.rows).fill_null(False))
        values = {}
        for field, value in self._on.pairs:
            found = value.evaluate(self.rows)
            array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
            wanted = t.Field(field.id, field.name, field.type.with_nullable(True))
            conform(pa.table({field.name: array.slice(0, 0)}), [wanted], action=self._action)
            fits = fitting(array, field.type)
            may &= fits | np.asarray(array.is_null()) if field.name in self._on.null_safe else fits
            values[field.name] = (array, wanted)
        places = np.flatnonzero(may)
        at = pa.array(places)
        fitted = [
            conform(pa.table({name: array.take(at)}), [wanted], action=self._action).column(name)
            for name, (array, wanted) in values.items()
        ]
        return pa.table(fitted, list(values)), places

    def keys(self, names: Collection[str]) -> pa.Table | None:
        """Return the values of columns that rows of the target may have to meet a row; None: not all are joined by."""
        strict = set(self._keys.column_names) - self._on.null_safe  # a null is no key to look up
        return self._keys.select(list(names)) if set(names) <= strict else None

    def pairs(
        self, targets: pa.Table, reads: Collection[str], *, narrowed: bool
    ) -> tuple[Positions, Positions, pa.Table]:
        """Return the pairs of rows that the condition lets through, and note which rows of the source met one.

        Args:
            targets: rows of the target.
            narrowed: `On.of_target` has let all of them through.
            reads: columns that are wanted of the pairs, as `target.column` and `source.column`.

        Returns:
            int64[p], rows of `targets`, rising; int64[p], rows of the source; p rows with the columns.
        """
        keys = [self._series(f"k{i}", targets.column(field.name)) for i, (field, _) in enumerate(self._on.pairs)]
        frame = pl.DataFrame([*keys, pl.Series("t", np.arange(targets.num_rows))])
        # nulls are left in the source only where they are equal
        nulls = bool(self._on.null_safe)
        met = frame.join(self._frame, on=[key.name for key in keys], how="inner", nulls_equal=nulls)
        met = met.select("t", "s").sort("t", "s")
        of_target, of_source = met["t"].to_numpy(), met["s"].to_numpy()
        if self._on.of_target is not None and not narrowed:
            kept = np.asarray(self._on.of_target.mask(targets).fill_null(False))[of_target]
            of_target, of_source = of_target[kept], of_source[kept]
        both = self._on.of_both
        if both is not None:
            asked = beside(targets, self.rows, of_target, of_source, both.columns)
            kept = np.asarray(both.mask(asked).fill_null(False))
            of_target, of_source = of_target[kept], of_source[kept]
        self.met[of_source] = True
        return of_target, of_source, beside(targets, self.rows, of_target, of_source, reads)

    def _series(self, name: str, column: pa.ChunkedArray) -> pl.Series:
        if pa.types.is_floating(column.type) and not self._on.of_keys:
            column = pc.add(column, pa.scalar(0.0, column.type))  # both zeros are equal
        return polars_column(column).alias(name)


def beside(
    targets: pa.Table, source: pa.Table, of_target: Positions, of_source: Positions, names: Collection[str]
) -> pa.Table:
    """Return some columns of pairs of rows.

    Args:
        source: its columns, called `source.column`.
        names: the columns, as `target.column` and `source.column`.
    """
    of_side: dict[str, list[str]] = {TARGET: [], SOURCE: []}
    for name in sorted(names):
        side, _, column = name.partition(".")
        of_side[side].append(column if side == TARGET else name)
    left = rows_at(targets.select(of_side[TARGET]), of_target)
    right = rows_at(source.select(of_side[SOURCE]), of_source)
    rows = pa.chunked_array([pa.nulls(len(of_target))])  # so that the number of rows is told
    called = ["", *(f"{TARGET}.{name}" for name in left.column_names), *right.column_names]
    return pa.Table.from_arrays([rows, *left.columns, *right.columns], called)
