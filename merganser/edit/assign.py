"""SET of an update: columns, and the values that they get, computed from the row as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.expr.names import resolve
from merganser.expr.predicate import Projection
from merganser.expr.setting import Setting
from merganser.expr.text import parse_projection
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.schema.conform import conform


@dataclass(frozen=True)
class Assignments:
    """New values of columns.

    Attributes:
        fields: the columns that rows are made of, in order.
        values: by column, what it gets; the other columns stay as they are.
        action: what is being done, as messages begin.
        named_by: columns that name a row in messages; none: by its number.
    """

    fields: tuple[t.Field, ...]
    values: Mapping[str, Projection]
    action: str
    named_by: tuple[str, ...] = ()

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return rows with the new values: all columns of `fields`, in their types.

        Args:
            rows: with the columns that the values are computed from, and those of `fields` that stay.

        Raises:
            InvalidInputError: a value overflows, divides by zero, does not fit its column, or is null where none may
                be.
        """
        made = {}
        for field in self.fields:
            value = self.values.get(field.name)
            made[field.name] = rows.column(field.name) if value is None else self._evaluated(field.name, value, rows)
        return conform(pa.table(made), self.fields, action=self.action, named_by=self.named_by)

    def _evaluated(self, name: str, value: Projection, rows: pa.Table) -> pa.Array:
        try:
            return value.evaluate(rows)
        except InvalidInputError as error:
            raise _no_value(self.action, name, error) from error


def assignments(
    table: TableDef, given: Any, action: str, setting: Setting, among: Sequence[t.Field] | None = None
) -> Assignments:
    """Return the SET of an update, checked.

    Args:
        given: SQL text by column.
        among: the columns that values are computed from; None: those of the table.

    Raises:
        InvalidInputError: no column is given; a column is unknown, given twice, or belongs to the primary key or the
            partition; a value is no expression, or has a type that the column does not take. Nothing was written.
    """
    shown = table.schema.shown
    if not isinstance(given, Mapping) or not given:
        raise InvalidInputError(
            f"{action}: the columns to set are {given!r:.80}. Nothing was written. Give a dict of columns and SQL "
            "texts, such as {'amount': 'amount + 1'}."
        )
    values: dict[str, Projection] = {}
    for name, text in given.items():
        field = _field(shown.fields, name, action, setting)
        if field.name in values:
            raise InvalidInputError(
                f"{action}: column '{field.name}' is given twice. Nothing was written.", column=field.name
            )
        for role, names in (("the primary key", shown.primary_keys), ("the partition", shown.partition_keys)):
            if field.name in names:
                raise InvalidInputError(
                    f"{action}: column '{field.name}' belongs to {role} ({', '.join(names)}), which says which row is "
                    "meant and where it lies. Nothing was written. Write the row with its new value, and delete the "
                    "old one.",
                    column=field.name,
                )
        values[field.name] = _value(text, field, action, setting, shown.fields if among is None else among)
    fields = tuple(replace(field, default=None) for field in shown.fields)
    return Assignments(fields, values, action, shown.primary_keys)


def _field(fields: Sequence[t.Field], name: Any, action: str, setting: Setting) -> t.Field:
    if not isinstance(name, str):
        raise InvalidInputError(f"{action}: {name!r:.50} is no name of a column. Nothing was written.")
    try:
        found = resolve([name], fields, exact=setting.exact_names).path[0]
    except InvalidInputError as error:
        raise InvalidInputError(f"{action}: {error} Nothing was written.", **error.context) from error
    return next(field for field in fields if field.name == found)


def _value(text: Any, field: t.Field, action: str, setting: Setting, among: Sequence[t.Field]) -> Projection:
    if not isinstance(text, str):
        raise InvalidInputError(
            f"{action}: the value of column '{field.name}' is {text!r:.50}. Nothing was written. Give SQL text: '7', "
            "\"'a text'\", 'NULL', 'amount + 1'.",
            column=field.name,
        )
    try:
        return parse_projection(text, among, setting=setting).assigned_to(field.type)
    except InvalidInputError as error:
        raise _no_value(action, field.name, error) from error


def _no_value(action: str, name: str, error: InvalidInputError) -> InvalidInputError:
    return InvalidInputError(
        f"{action}: column '{name}' cannot get this value: {error.message.rstrip('.')}. Nothing was written.",
        **error.context,
    )
