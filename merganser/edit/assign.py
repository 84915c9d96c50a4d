"""SET of an update: columns, and the values that they get, computed from the row as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.names import Columns, Sides, finds, prefixed, resolve, spelled, spelled_inside
from merganser.expr.predicate import Projection
from merganser.expr.setting import Setting
from merganser.expr.text import parse_projection
from merganser.expr.tree import Column
from merganser.files.layout import value_limits
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.conform import Limits, conform
from merganser.schema.hidden import nulls
from merganser.schema.inner_names import renamed_inside
from merganser.values import dataclass

TARGET: Final = "target"
SOURCE: Final = "source"
"""What stands before the columns of the two sides of a merge."""


@dataclass(frozen=True)
class Assignments:
    """New values of columns.

    Attributes:
        fields: the columns that rows are made of, in order.
        values: by column, what it gets; the other columns stay as they are.
        action: what is being done, as messages begin.
        named_by: columns that name a row in messages; none: by its number.
        prefix: what the names of columns that stay begin with; None: none stays, of new rows.
        keys: key columns of new rows, which are never null.
        limits: values that files of the table cannot hold; None: they hold all.
        exact_names: names of fields inside values count in their case.
    """

    fields: tuple[t.Field, ...]
    values: Mapping[str, Projection]
    action: str
    named_by: tuple[str, ...] = ()
    prefix: str | None = ""
    keys: tuple[str, ...] = ()
    limits: Limits | None = None
    exact_names: bool = True

    @property
    def columns(self) -> frozenset[str]:
        """The columns that values are computed from."""
        return frozenset(name for value in self.values.values() for name in value.columns)

    @property
    def named(self) -> frozenset[str]:
        """The columns of the table that they name: those that are set, and those that values are computed from."""
        prefix = self.prefix
        read = () if prefix is None else (name for name in self.columns if name.startswith(prefix))
        return frozenset(self.values).union(name.removeprefix(prefix or "") for name in read)

    def of(self, table: TableDef) -> Assignments:
        """Return the same for the table with another schema, in which the named columns are the same."""
        schema, limits = table.schema, value_limits(table.options)
        keys = schema.shown.primary_keys
        if self.prefix is None:
            return replace(self, fields=schema.fields_with_defaults, named_by=keys, keys=keys, limits=limits)
        fields = tuple(replace(field, default=None) for field in schema.shown.fields)
        return replace(self, fields=fields, named_by=keys, limits=limits)

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
            if value is None and self.prefix is None:
                made[field.name] = pa.chunked_array([nulls(rows.num_rows, arrow_type(field.type))])
            elif value is None:
                made[field.name] = rows.column(f"{self.prefix}{field.name}")
            else:
                made[field.name] = self._evaluated(field, value, rows)
        return conform(
            pa.table(made),
            self.fields,
            action=self.action,
            not_null_names=self.keys,
            named_by=self.named_by,
            limits=self.limits,
            placing=self.keys,
        )

    def _evaluated(self, field: t.Field, value: Projection, rows: pa.Table) -> pa.Array:
        try:
            found = value.evaluate(rows)
        except InvalidInputError as error:
            raise _no_value(self.action, field.name, error) from error
        kind = value.type if self.exact_names else spelled_inside(value.type, field.type)
        return found if kind == value.type else renamed_inside(found, arrow_type(kind))


def assignments(table: TableDef, given: Any, action: str, setting: Setting, among: Sides | None = None) -> Assignments:
    """Return the SET of an update, checked.

    Args:
        given: by column, SQL text or a value that is bound already.
        among: the columns that values are computed from, of the side `target` those of the table; None: these alone.

    Raises:
        InvalidInputError: no column is given; a column is unknown, given twice, or belongs to the primary key, the
            partition or the bucket; a value is no expression, or has a type that the column does not take. Nothing was
            written.
    """
    shown = table.schema.shown
    if not isinstance(given, Mapping) or not given:
        raise InvalidInputError(
            f"{action}: the columns to set are {given!r:.80}. Nothing was written. Give a dict of columns and SQL "
            "texts, such as {'amount': 'amount + 1'}."
        )
    values: dict[str, Projection] = {}
    columns, places = Columns(shown.fields), _places(table)
    sides = columns if among is None else among
    for name, text in given.items():
        field = _field(columns, name, action, setting, among)
        if field.name in values:
            raise InvalidInputError(
                f"{action}: column '{field.name}' is given twice. Nothing was written.", column=field.name
            )
        for role, names in places.items():
            if field.name in names:
                raise InvalidInputError(
                    f"{action}: column '{field.name}' belongs to {role} ({', '.join(names)}), which says which row is "
                    "meant and where it lies. Nothing was written. Write the row with its new value, and delete the "
                    "old one.",
                    column=field.name,
                )
        values[field.name] = _value(text, field, action, setting, sides)
    fields = tuple(replace(field, default=None) for field in shown.fields)
    prefix = "" if among is None else f"{TARGET}."
    limits, exact = value_limits(table.options), setting.exact_names
    return Assignments(fields, values, action, shown.primary_keys, prefix, limits=limits, exact_names=exact)


def inserted(table: TableDef, given: Any, action: str, setting: Setting, sides: Sides) -> Assignments:
    """Return the values of new rows, checked. Columns without a value get their default, or null.

    Args:
        given: by column, SQL text or a value that is bound already; None: each column of the source gives the column
            of its name.
        sides: the columns that values are computed from, of the side `source` alone.

    Raises:
        InvalidInputError: a column is unknown or given twice; a key column has no value; a value is no expression, or
            has a type that the column does not take. Nothing was written.
    """
    schema = table.schema
    if given is None:
        given = {field.name: value for field, value in by_name(table, sides[SOURCE], setting)}
    if not isinstance(given, Mapping) or not given:
        raise InvalidInputError(
            f"{action}: the values of new rows are {given!r:.80}. Nothing was written. Give a dict of columns and SQL "
            "texts, such as {'id': 'source.id'}, or None for all columns by name."
        )
    values: dict[str, Projection] = {}
    columns = Columns(schema.shown.fields)
    for name, text in given.items():
        field = _field(columns, name, action, setting, sides)
        if field.name in values:
            raise InvalidInputError(
                f"{action}: column '{field.name}' is given twice. Nothing was written.", column=field.name
            )
        values[field.name] = _value(text, field, action, setting, sides)
    for name in schema.shown.primary_keys:
        if name not in values:
            raise InvalidInputError(
                f"{action}: key column '{name}' has no value in new rows ({', '.join(values)}). Nothing was written. "
                "Give the whole key.",
                column=name,
            )
    keys = schema.shown.primary_keys
    limits, exact = value_limits(table.options), setting.exact_names
    return Assignments(schema.fields_with_defaults, values, action, keys, None, keys, limits, exact)


def _places(table: TableDef) -> dict[str, tuple[str, ...]]:
    """Return the columns that say which row is meant and where it lies, by what they make up.

    Files are written anew side by side, each in its bucket, so no row moves to another one.
    """
    shown = table.schema.shown
    bucket = shown.bucket_key if table.bucket > 0 and not table.keyed else ()
    return {"the primary key": shown.primary_keys, "the partition": shown.partition_keys, "the bucket": bucket}


def fixed_columns(table: TableDef) -> frozenset[str]:
    """Return the columns that no update sets."""
    return frozenset(name for names in _places(table).values() for name in names)


def by_name(table: TableDef, source: Sequence[t.Field], setting: Setting) -> list[tuple[t.Field, Projection]]:
    """Return the columns of a table that the source has, too, each with its value there."""
    names = [field.name for field in source]
    if not setting.exact_names:
        names = spelled(names, table.schema.shown.names)
    found, columns = set(names), Columns(source)
    known = [field for field in table.schema.shown.fields if field.name in found]
    return [(field, _of_source(resolve([field.name], columns, exact=setting.exact_names))) for field in known]


def _of_source(column: Column) -> Projection:
    return Projection(build.NULL if build.untyped(column) else prefixed(SOURCE, column))


def _field(fields: Columns, name: Any, action: str, setting: Setting, sides: Sides | None) -> t.Field:
    if not isinstance(name, str):
        raise InvalidInputError(f"{action}: {name!r:.50} is no name of a column. Nothing was written.")
    if sides is not None and not finds([name], fields, exact=setting.exact_names):  # as in SET t.amount = ...
        table, _, rest = name.partition(".")
        name = rest if rest and sides.called(table, exact=setting.exact_names) == TARGET else name
    try:
        return fields.by_name[resolve([name], fields, exact=setting.exact_names).path[0]]
    except InvalidInputError as error:
        raise InvalidInputError(f"{action}: {error} Nothing was written.", **error.context) from error


def _value(text: Any, field: t.Field, action: str, setting: Setting, among: Sequence[t.Field] | Sides) -> Projection:
    if not isinstance(text, str | Projection):
        raise InvalidInputError(
            f"{action}: the value of column '{field.name}' is {text!r:.50}. Nothing was written. Give SQL text: '7', "
            "\"'a text'\", 'NULL', 'amount + 1'.",
            column=field.name,
        )
    try:
        value = text if isinstance(text, Projection) else parse_projection(text, among, setting=setting)
        return value.assigned_to(field.type, setting.zone)
    except InvalidInputError as error:
        raise _no_value(action, field.name, error) from error


def _no_value(action: str, name: str, error: InvalidInputError) -> InvalidInputError:
    return InvalidInputError(
        f"{action}: column '{name}' cannot get this value: {error.message.rstrip('.')}. Nothing was written.",
        **error.context,
    )
