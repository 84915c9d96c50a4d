"""Column names in expressions: found among the columns of a table, or refused with the nearest one."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from merganser.errors import InvalidInputError
from merganser.expr.tree import Column
from merganser.schema import types as t


def resolve(path: Sequence[str], fields: Sequence[t.Field]) -> Column:
    """Return the column that a path names: a column, then fields inside ROW columns.

    Raises:
        InvalidInputError: there is no such column, or more than one that differs only in case.
    """
    found = _field(path[0], fields, "column", "columns")
    names, kind = [found.name], found.type
    for part in path[1:]:
        if not isinstance(kind, t.Row):
            raise InvalidInputError(
                f"cannot take '{part}' of column '{'.'.join(names)}': it is {kind}, and only a ROW has fields",
                column=names[0],
            )
        found = _field(part, kind.fields, f"field of column '{'.'.join(names)}':", "fields")
        names.append(found.name)
        kind = found.type
    return Column(tuple(names), kind.with_nullable(True))


def _field(name: str, fields: Sequence[t.Field], what: str, plural: str) -> t.Field:
    for field in fields:
        if field.name == name:
            return field
    same = [f for f in fields if f.name.lower() == name.lower()]
    if len(same) == 1:
        return same[0]
    names = [f.name for f in fields]
    if same:
        raise InvalidInputError(
            f"the {what} '{name}' may be {' or '.join(repr(f.name) for f in same)}. Write it in the right case.",
            column=name,
        )
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], 1)
    hint = f" Did you mean '{next(n for n in names if n.lower() == close[0])}'?" if close else ""
    first = ", ".join(f"'{n}'" for n in names[:3])
    more = f", ... ({len(names)} in all)" if len(names) > 3 else ""
    text = f" If it is text, write it in quotes: '{name}'." if what == "column" and not close else ""
    raise InvalidInputError(f"unknown {what} '{name}'.{hint} The {plural} are {first}{more}.{text}", column=name)
