"""Filters in whatever form they are given -> `Predicate`. The parser of SQL text is imported for a text alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.from_arrow import predicate_from_arrow
from merganser.expr.names import resolve
from merganser.expr.predicate import Predicate
from merganser.expr.setting import Setting
from merganser.expr.tree import ArrowCall, Column, walk
from merganser.schema import types as t

_UTC: Final = Setting()


def to_predicate(
    where: str | pc.Expression | Predicate | None,
    fields: Sequence[t.Field],
    qualifier: str | None = None,
    setting: Setting = _UTC,
) -> Predicate | None:
    """Return a filter in whatever form it is given; None for no filter.

    Args:
        where: SQL text, an Arrow expression, a filter already made (returned as it is, its columns checked), or None.
        fields: the columns of the table.
        qualifier: a table name that may stand before column names in SQL text.
        setting: the time zone and the time of SQL text, and whether names count in their case.

    Raises:
        InvalidInputError: the filter is not understood, or does not fit the columns.
    """
    match where:
        case None:
            return None
        case str():
            from merganser.expr.text import parse_predicate  # noqa: PLC0415 - a parser, wanted by texts alone

            return parse_predicate(where, fields, qualifier, setting)
        case Predicate():
            for part in walk(where.expression):
                if isinstance(part, Column):
                    _check_bound(part, fields)
                elif isinstance(part, ArrowCall):
                    for _, name in part.names:
                        resolve([name], fields)
            return where
        case pc.Expression():
            return predicate_from_arrow(where, fields)
    raise InvalidInputError(
        f"cannot filter by {where!r:.200}: a filter is SQL text, a pyarrow.compute expression or a Predicate, not "
        f"{type(where).__name__}"
    )


def _check_bound(column: Column, fields: Sequence[t.Field]) -> None:
    actual = resolve(column.path, fields)
    if actual != column:
        raise InvalidInputError(
            f"the filter was made for a column '{'.'.join(column.path)}' of type {column.type}; here it is "
            f"'{'.'.join(actual.path)}' of type {actual.type}. Make it from its text again.",
            column=column.path[0],
        )
