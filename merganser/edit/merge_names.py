"""What SQL text of a merge calls the target and the source: by `alias`, or found from the condition.

Docs: decision 0066.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from merganser.edit.assign import SOURCE, TARGET
from merganser.errors import InvalidInputError
from merganser.expr.names import Columns, Sides, finds, is_same_name
from merganser.expr.text import dotted_names
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """What SQL text calls the two sides of a merge.

    Attributes:
        target, source: the names, which stand before columns.
        are_known: False if it is not known which name belongs to which side.
    """

    target: str = TARGET
    source: str = SOURCE
    are_known: bool = True

    def sides(self, columns: Mapping[str, Sequence[t.Field]]) -> Sides:
        """Return sides whose columns text calls by these names."""
        return Sides(columns, {TARGET: self.target, SOURCE: self.source}, "" if self.are_known else self.refusal)

    @property
    def refusal(self) -> str:
        """Why a text cannot use the names if they are not known."""
        one, other = self.target, self.source
        return (
            f"it is not known which of '{one}' and '{other}' is the table: the columns that the condition names are in "
            f"both the table and the source. Give alias=('{one}', '{other}') if '{one}' is the table"
        )


DEFAULT: Final = Names()


def given_names(alias: Any, action: str) -> Names:
    """Return the names that a caller gives.

    Raises:
        InvalidInputError: they are no two different names. Nothing was written.
    """
    is_pair = isinstance(alias, tuple | list) and len(alias) == 2
    if not is_pair or not all(isinstance(name, str) and name.strip() for name in alias):
        raise InvalidInputError(
            f"{action}: alias is {alias!r:.80}. Nothing was written. Give two names, of the table and of the source: "
            "alias=('t', 's')."
        )
    target, source = (name.strip() for name in alias)
    if is_same_name(target, source, exact=False):
        raise InvalidInputError(
            f"{action}: alias gives the table and the source one name, '{target}'. Nothing was written. Give two "
            "different names: alias=('t', 's')."
        )
    return Names(target, source)


def found_names(
    text: Any,
    table: TableDef,
    source: Sequence[t.Field],
    *,
    exact: bool,
    is_source: Callable[[Sequence[str]], bool] | None = None,
) -> tuple[Names, ...]:
    """Return the names that a condition uses: one pair if it is certain which is whose, else two; none: unknown names.

    A name is certain if it is `target`, `source` or the name of the table, if the source answers to it, or if one side
    lacks a column that the condition names with it. A name of a ROW column before a field is no name of a side.

    Args:
        text: the condition.
        source: the columns of the source.
        exact: names count in their case alone.
        is_source: returns whether the source itself, apart from its columns, knows a column by a path such as ("s",
            "id"); None: it has no name of its own.
    """
    target = Columns(table.schema.shown.fields)
    source = Columns(source)
    used: dict[str, list[tuple[str, ...]]] = {}
    for path in dotted_names(text) if isinstance(text, str) else []:
        is_side = any(is_same_name(path[0], side, exact=exact) for side in (TARGET, SOURCE))
        if is_side or not any(finds(path, fields, exact=exact) for fields in (target, source)):
            name = next((known for known in used if is_same_name(known, path[0], exact=exact)), path[0])
            used.setdefault(name, []).append(path)
    if all(any(is_same_name(name, side, exact=exact) for side in (TARGET, SOURCE)) for name in used):
        return (DEFAULT,)
    if len(used) != 2:
        return ()
    one, other = used
    orders = [Names(one, other), Names(other, one)]

    def told(names: Names) -> bool:
        """Whether a name says by itself whose it is, and says so here."""
        own = table.name.rpartition(".")[2]
        return (
            is_same_name(names.target, TARGET, exact=exact)
            or is_same_name(names.source, SOURCE, exact=exact)
            or (is_source is not None and is_source(used[names.source][0]))
            or is_same_name(names.target, own, exact=False)
        )

    def fits(names: Names) -> bool:
        return all(
            finds(path[1:], fields, exact=exact)
            for name, fields in ((names.target, target), (names.source, source))
            for path in used[name]
        )

    certain = [names for names in orders if told(names)]
    if len(certain) == 1:
        return (certain[0],)
    return tuple(names for names in orders if fits(names)) or tuple(orders[:1])
