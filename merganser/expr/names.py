"""Column names in expressions: found among the columns of a table, or refused with the nearest one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from merganser.errors import InvalidInputError
from merganser.expr.tree import Column
from merganser.schema import types as t

_NAMES: Final = re.compile(r"\s*(`(?:``|[^`])*`|[^,]*)\s*(?:,|$)")


class Columns(tuple[t.Field, ...]):
    """Columns with an index of their names, for callers that resolve many names among the same columns."""

    @cached_property
    def by_name(self) -> dict[str, t.Field]:
        """The columns by name; the first of two that have the same name."""
        return {field.name: field for field in reversed(self)}

    @cached_property
    def by_lower_case(self) -> dict[str, list[t.Field]]:
        """The columns by their name in lower case."""
        found: dict[str, list[t.Field]] = {}
        for field in self:
            found.setdefault(field.name.lower(), []).append(field)
        return found


class Sides(dict[str, Columns]):
    """The columns of several tables, by table.

    Attributes:
        names: what SQL text calls each table, also tables whose columns are not here.
        refusal: why no text can name a table; empty if it can.
    """

    def __init__(
        self, sides: Mapping[str, Sequence[t.Field]], names: Mapping[str, str] | None = None, refusal: str = ""
    ) -> None:
        super().__init__({side: Columns(fields) for side, fields in sides.items()})
        self.names = {side: side for side in sides} if names is None else dict(names)
        self.refusal = refusal

    def called(self, name: str, *, exact: bool) -> str | None:
        """Return the table that SQL text calls by a name; None: none is called so."""
        return next((side for side, own in self.names.items() if is_same_name(own, name, exact=exact)), None)

    def unknown(self, path: Sequence[str]) -> InvalidInputError:
        """Return the error of a column whose first part names no table and no column."""
        own = [repr(self.names[side]) + ("" if self.names[side] == side else f" for the {side}") for side in self]
        return InvalidInputError(
            f"unknown column '{'.'.join(path)}': before a column of a merge stands {' or '.join(own)}", column=path[0]
        )

    @cached_property
    def columns(self) -> Columns:
        """The columns of all tables, each called `side.column`."""
        every = [(side, field) for side, fields in self.items() for field in fields]
        return Columns(t.Field(i, f"{side}.{field.name}", field.type) for i, (side, field) in enumerate(every))


def resolve(path: Sequence[str], fields: Sequence[t.Field], *, exact: bool = False) -> Column:
    """Return the column that a path names: a column, then fields inside ROW columns.

    Args:
        path: the name of a column, then names of fields.
        fields: the columns.
        exact: names count in their case alone. Otherwise a name in another case is taken if it is the only one.

    Raises:
        InvalidInputError: there is no such column, or more than one that differs only in case.
    """
    found = _field(path[0], fields, "column", "columns", exact)
    names, kind = [found.name], found.type
    for part in path[1:]:
        if not isinstance(kind, t.Row):
            raise InvalidInputError(
                f"cannot take '{part}' of column '{'.'.join(names)}': it is {kind}, and only a ROW has fields",
                column=names[0],
            )
        found = _field(part, kind.fields, f"field of column '{'.'.join(names)}':", "fields", exact)
        names.append(found.name)
        kind = found.type
    return Column(tuple(names), kind.with_nullable(True))


def finds(path: Sequence[str], fields: Sequence[t.Field], *, exact: bool = False) -> bool:
    """Return whether `resolve` finds a column."""
    try:
        resolve(path, fields, exact=exact)
    except InvalidInputError:
        return False
    return True


def is_same_name(one: str, other: str, *, exact: bool) -> bool:
    """Return whether two names are the same, in their case if that counts."""
    return one == other or (not exact and one.lower() == other.lower())


def prefixed(side: str, column: Column) -> Column:
    """Return a column of one of several tables, as it is called among those of all."""
    return Column((f"{side}.{column.path[0]}", *column.path[1:]), column.type)


def spelled(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return names as columns have them: as they are, else in the case of the only column that differs in case.

    Names of no column stay as they are.
    """
    by_case: dict[str, list[str]] = {}
    for name in known:
        by_case.setdefault(name.lower(), []).append(name)
    exact = set(known)
    out = []
    for name in names:
        same = by_case.get(name.lower(), []) if isinstance(name, str) and name not in exact else []
        out.append(same[0] if len(same) == 1 else name)
    return out


def spelled_inside(kind: t.DataType, known: t.DataType) -> t.DataType:
    """Return the type of a value with the names of fields that the type of a column has, at every depth; see `spelled`.

    The rest of the type stays as it is.
    """
    match kind, known:
        case t.Row(), t.Row():
            inner = {field.name: field.type for field in known.fields}
            names = spelled([field.name for field in kind.fields], list(inner))
            fields = (
                replace(field, name=name, type=spelled_inside(field.type, inner.get(name, field.type)))
                for field, name in zip(kind.fields, names, strict=True)
            )
            return replace(kind, fields=tuple(fields))
        case (t.Array(), t.Array()):
            return replace(kind, element=spelled_inside(kind.element, known.element))
        case t.Map(), t.Map():
            key, value = spelled_inside(kind.key, known.key), spelled_inside(kind.value, known.value)
            return replace(kind, key=key, value=value)
    return kind


def listed_names(text: str) -> tuple[str, ...]:
    """Return the names in a text such as "a, `b,c`". A name with commas or blanks is in backticks, as in SQL."""
    parts = [part.strip() for part in _NAMES.findall(text)]
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts if part)


def _field(name: str, fields: Sequence[t.Field], what: str, plural: str, exact: bool) -> t.Field:
    known = fields if isinstance(fields, Columns) else Columns(fields)
    if name in known.by_name:
        return known.by_name[name]
    same = [] if exact else known.by_lower_case.get(name.lower(), [])
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
