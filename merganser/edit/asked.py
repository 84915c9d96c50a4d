"""What a call asks for: which rows, of which state, by which columns.

A handle knows the columns of the time when it was opened. A call of it changes rows of the newest schema if the columns
that the call names are the same there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from merganser.errors import ConflictError, InvalidInputError
from merganser.expr.filters import to_predicate
from merganser.expr.names import Sides
from merganser.expr.predicate import Predicate
from merganser.expr.setting import Setting
from merganser.expr.text import parse_predicate
from merganser.meta.table_def import TableDef
from merganser.rules.starts import starts_given
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema


def filter_of(where: Any, table: TableDef, action: str, setting: Setting) -> Predicate:
    """Return the rows that a call names.

    Raises:
        InvalidInputError: there is no filter, or it is not understood. Nothing was written.
    """
    if where is None or (isinstance(where, str) and not where.strip()):
        raise InvalidInputError(
            f"{action}: the filter is {where!r}. Nothing was written. Give a condition; 'true' takes every row."
        )
    try:
        found = to_predicate(where, table.schema.shown.fields, setting=setting)
    except InvalidInputError as error:
        raise refused(action, error) from error
    assert found is not None
    return found


def condition_of(text: Any, among: Sequence[t.Field] | Sides, action: str, setting: Setting, advice: str) -> Predicate:
    """Return a condition that is SQL text.

    Args:
        among: the columns that it may look at.
        advice: what to do if there is no text.

    Raises:
        InvalidInputError: it is no condition. Nothing was written.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(f"{action}: the condition is {text!r:.80}. Nothing was written. {advice}")
    try:
        return parse_predicate(text, among, setting=setting)
    except InvalidInputError as error:
        raise refused(action, error) from error


def refused(action: str, error: InvalidInputError) -> InvalidInputError:
    """Return an error of an expression as one of the call that it was given to."""
    return InvalidInputError(f"{action}: {error.message.rstrip('.')}. Nothing was written.", **error.context)


def check_is_newest(table: TableDef, action: str) -> None:
    """Refuse to change rows by a handle that was told to read another state than the newest.

    Raises:
        InvalidInputError: names the option. Nothing was written.
    """
    own = [key for key in starts_given(table.options) if table.options.get(key) != table.schema.options.get(key)]
    if own:
        raise InvalidInputError(
            f"{action}: this handle was opened with '{own[0]}' = '{table.options.get(own[0])}', which says where reads "
            "start, and only the newest rows can be changed. Nothing was written. Use the table without this option.",
            option=own[0],
            table=table.name,
        )


def new_names(then: TableSchema, now: TableSchema) -> list[str]:
    """Return the columns that an older schema lacks."""
    known = {field.id for field in then.fields}
    return [field.name for field in now.shown.fields if field.id not in known]


def lost(name: str, then: TableSchema, now: TableSchema, new: Collection[str], action: str) -> ConflictError:
    """Return the refusal of rows that are whole in an older schema, and have no values of newer columns.

    Args:
        name: of the table.
        new: the newer columns.
    """
    return ConflictError(
        f"{action}: since it was opened with schema {then.id}, it got columns that the rows would set to null: "
        f"{', '.join(new)} (schema {now.id}). Nothing was written. Open the table again.",
        table=name,
    )
