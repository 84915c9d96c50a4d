"""Scopes: what names mean at a place of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from merganser.errors import InvalidInputError
from merganser.options.registry import closest, did_you_mean
from merganser.schema import types as t
from merganser.sql.query.bound import Reference
from merganser.sql.query.kinds import Value, quoted
from merganser.values import dataclass


@dataclass
class Relation:
    """Something in FROM: its columns, and the name that they are called by.

    Attributes:
        reference: the table that it reads; None: it is a subquery, a list of values and the like.
        may_lack: an outer join gives rows of nulls for it.
        origins: of a subquery or view, the columns that are those of a table: a condition on them may be tested there.
        ambiguous: names, in lower case, that several of its columns have, which are not one column taken twice.
    """

    alias: str
    columns: Sequence[tuple[str, t.DataType]]
    reference: Reference | None = None
    database: str = ""
    may_lack: bool = False
    origins: Mapping[str, tuple[Reference, str]] = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()

    def value(self, position: int) -> Value:
        """Return a column as a value, and note that it is needed."""
        name, kind = self.columns[position]
        if self.reference is not None:
            self.reference.used.add(name)
        return Value(f"{quoted(self.alias)}.{quoted(name)}", kind, name, own=name)

    def positions(self, name: str) -> list[int]:
        """Return the columns with a name: exactly so, or else in any case."""
        exact = [i for i, (own, _) in enumerate(self.columns) if own == name]
        return exact or [i for i, (own, _) in enumerate(self.columns) if own.lower() == name.lower()]


@dataclass
class Scope:
    """The relations of one SELECT, and those around it.

    Attributes:
        merged: columns that USING or NATURAL has made one, by lower name.
        aliases: names of the SELECT list, where they may be used.
        ambiguous: those of them that several items have.
        local: parameters of lambdas.
    """

    parent: Scope | None = None
    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, Value] = field(default_factory=dict)
    ambiguous: frozenset[str] = frozenset()
    local: dict[str, Value] = field(default_factory=dict)

    def column(self, parts: Sequence[str], where: str) -> Value:
        """Return what a dotted name means: a column, perhaps of a table, perhaps a field inside it.

        Args:
            where: the place, for messages.

        Raises:
            InvalidInputError: no column has this name, or several have.
        """
        scope: Scope | None = self
        while scope is not None:
            found = scope._here(parts, where)
            if found is not None:
                return found
            scope = scope.parent
        raise self._unknown(parts, where)

    def _here(self, parts: Sequence[str], where: str) -> Value | None:
        first = parts[0].lower()
        if first in self.local:
            return inside(self.local[first], parts[1:])
        # the column of a result is called as the query writes it
        for taken in (3, 2, 1):
            if len(parts) < taken:
                continue
            found = self._candidates(parts, taken)
            if not found:
                continue
            if len(found) > 1:
                text = ".".join(parts[:taken])
                tables = ", ".join(relation.alias for relation, _ in found)
                raise InvalidInputError(
                    f"column '{text}' is ambiguous: {tables} have one. Write {found[0][0].alias}.{text}."
                )
            relation, position = found[0]
            if relation.columns[position][0].lower() in relation.ambiguous:
                raise ambiguous(parts[taken - 1], f"the query '{relation.alias}' has")
            return inside(relation.value(position).aliased(parts[taken - 1]), parts[taken:])
        if first in self.merged:
            return inside(self.merged[first].aliased(parts[0]), parts[1:])
        alias = self.alias(parts[0])
        return None if alias is None else inside(alias, parts[1:])

    def alias(self, name: str) -> Value | None:
        """Return the item of the SELECT list with an alias; None if there is none.

        Raises:
            InvalidInputError: several items have the name.
        """
        if name.lower() not in self.aliases:
            return None
        if name.lower() in self.ambiguous:
            raise ambiguous(name, "the list of SELECT has")
        return self.aliases[name.lower()].aliased(name)

    def _candidates(self, parts: Sequence[str], taken: int) -> list[tuple[Relation, int]]:
        """Return the columns that the first parts of a name may mean: `db.table.column`, `table.column` or `column`."""
        if taken == 1:
            if parts[0].lower() in self.merged:
                return []
            return [(r, i) for r in self.relations for i in r.positions(parts[0])]
        table = parts[taken - 2].lower()
        found = []
        for relation in self.relations:
            if relation.alias.lower() == table and (taken == 2 or relation.database.lower() == parts[0].lower()):
                found += [(relation, i) for i in relation.positions(parts[taken - 1])]
        return found

    def _unknown(self, parts: Sequence[str], where: str) -> InvalidInputError:
        text = ".".join(parts)
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            names += [name for relation in scope.relations for name, _ in relation.columns]
            names += list(scope.merged) + list(scope.aliases)
            scope = scope.parent
        aliases = {relation.alias.lower(): relation for relation in self.relations}
        if len(parts) > 1 and parts[0].lower() in aliases:
            own = [name for name, _ in aliases[parts[0].lower()].columns]
            return InvalidInputError(f"there is no column '{text}'{where}. {did_you_mean(parts[1], own)}", column=text)
        near = closest(parts[-1], names)
        known = list(dict.fromkeys(names))
        hint = (
            f"Did you mean '{near}'?"
            if near
            else (f"There are {', '.join(known[:8])}." if known else "No table is read.")
        )
        return InvalidInputError(f"there is no column '{text}'{where}. {hint}", column=text)


def ambiguous(name: str, who: str) -> InvalidInputError:
    return InvalidInputError(
        f"column '{name}' is ambiguous: {who} several of this name. Give them names of their own with AS.", column=name
    )


def inside(value: Value, path: Sequence[str]) -> Value:
    """Return a field inside of a ROW, or a value of a MAP by its key.

    Raises:
        InvalidInputError: there is no such field.
    """
    for name in path:
        kind = value.type
        if isinstance(kind, t.Map):
            value = Value(f"({value.text})[{_string(name)}]", kind.value, f"{value.name}.{name}", own=name)
            continue
        if isinstance(kind, t.Array) and isinstance(kind.element, t.Row):
            field_of = _field(kind.element, name)
            text = f"list_transform({value.text}, lambda _r: _r.{quoted(field_of.name)})"
            value = Value(text, t.Array(element=field_of.type), f"{value.name}.{name}", own=name)
            continue
        if not isinstance(kind, t.Row):
            raise InvalidInputError(f"'{value.name}' is {kind}, and has no field '{name}'.", column=value.name)
        field_of = _field(kind, name)
        text = f"({value.text}).{quoted(field_of.name)}"
        value = Value(text, field_of.type, f"{value.name}.{name}", own=name)
    return value


def _field(kind: t.Row, name: str) -> t.Field:
    exact = [f for f in kind.fields if f.name == name] or [f for f in kind.fields if f.name.lower() == name.lower()]
    if not exact:
        raise InvalidInputError(f"there is no field '{name}'. {did_you_mean(name, [f.name for f in kind.fields])}")
    return exact[0]


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
