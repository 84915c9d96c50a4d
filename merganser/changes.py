"""Changes of a table's schema, as values: what `Table.alter` and `Catalog.alter_table` take.

Columns are named as they are when the change is made, after the changes before it. "a.b" names field b of the ROW
column a. ARRAY elements and MAP values that are ROWs are passed through: "a.b" or "a.element.b", "m.b" or "m.value.b";
"a.element" and "m.value" name the elements and the values themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column goes: first, behind another one, or (neither) behind all."""

    after: str | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column, which is null in the rows that are there."""

    name: str
    type: str | t.DataType
    place: Place
    default: Any = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column goes, with its values."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column has another name."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    """A column has another type."""

    name: str
    type: str | t.DataType


@dataclass(frozen=True, slots=True)
class SetNullable:
    """A column may be null, or may not."""

    name: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetDefault:
    """A column has a default; None: it has none."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """A column stands elsewhere."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class CommentColumn:
    """A column has another description; None: it has none."""

    name: str
    text: str | None


@dataclass(frozen=True, slots=True)
class SetOption:
    """An option has a value."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class RemoveOption:
    """An option has its default."""

    key: str


@dataclass(frozen=True, slots=True)
class SetPrimaryKey:
    """A table without a primary key gets one."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetComment:
    """The table has another description; None: it has none."""

    text: str | None


@dataclass(frozen=True, slots=True)
class AddDialect:
    """A view or function has a definition in one more dialect."""

    dialect: str
    definition: Any


@dataclass(frozen=True, slots=True)
class SetDialect:
    """A view or function has another definition in a dialect."""

    dialect: str
    definition: Any


@dataclass(frozen=True, slots=True)
class DropDialect:
    """A view or function has no definition in a dialect."""

    dialect: str


ColumnChange: TypeAlias = (
    AddColumn | DropColumn | RenameColumn | RetypeColumn | SetNullable | SetDefault | MoveColumn | CommentColumn
)
Change: TypeAlias = ColumnChange | SetOption | RemoveOption | SetPrimaryKey | SetComment


def add_column(
    name: str,
    type: str | t.DataType,
    after: str | None = None,
    first: bool = False,
    default: Any = None,
    comment: str | None = None,
) -> AddColumn:
    """Return the change that adds a column, behind all others or where `after` or `first` say.

    Args:
        type: such as "DECIMAL(10, 2)". It must be nullable, because the rows that are there have no value.
        default: for rows that are written from now on.
    """
    return AddColumn(name, type, Place(after, first), default, comment)


def drop_column(name: str) -> DropColumn:
    """Return the change that drops a column. A column that is added later under its name is another one."""
    return DropColumn(name)


def rename_column(old: str, new: str) -> RenameColumn:
    """Return the change that renames a column. Options that name it follow."""
    return RenameColumn(old, new)


def retype_column(name: str, type: str | t.DataType) -> RetypeColumn:
    """Return the change that gives a column another type. Values that are stored are turned into it when read.

    Args:
        type: such as "BIGINT". The column stays as nullable as it is, unless the type says NOT NULL.
    """
    return RetypeColumn(name, type)


def set_nullable(name: str, nullable: bool) -> SetNullable:
    """Return the change that lets a column be null, or forbids it."""
    return SetNullable(name, nullable)


def set_default(name: str, value: Any) -> SetDefault:
    """Return the change that gives a column a default for rows that are written from now on.

    Args:
        value: a value, or the text of a literal such as "[1, 2]" or "{k -> v}"; None: no default.
    """
    return SetDefault(name, value)


def move_column(name: str, after: str | None = None, first: bool = False) -> MoveColumn:
    """Return the change that moves a column behind another one, or to the front; neither: behind all others."""
    return MoveColumn(name, Place(after, first))


def comment_column(name: str, text: str | None) -> CommentColumn:
    """Return the change that describes a column; None: no description."""
    return CommentColumn(name, text)


def set_option(key: str, value: Any) -> SetOption:
    """Return the change that sets an option of the table."""
    return SetOption(key, value)


def remove_option(key: str) -> RemoveOption:
    """Return the change that removes an option, so that its default holds."""
    return RemoveOption(key)


def set_primary_key(columns: Sequence[str]) -> SetPrimaryKey:
    """Return the change that gives a primary key to a table without one. The rows that are there are written anew.

    Options that say how rows lie and merge, such as "bucket" and "merge-engine", are set in the same call. Rows with
    the same key are refused, unless the call sets "merge-engine": then it makes one row of them.

    Args:
        columns: whose values identify a row.
    """
    is_list = isinstance(columns, Iterable) and not isinstance(columns, str)
    return SetPrimaryKey(tuple(columns) if is_list else columns)  # type: ignore[arg-type]  # `alter` refuses it


def set_comment(text: str | None) -> SetComment:
    """Return the change that describes the table; None: no description."""
    return SetComment(text)


def add_dialect(dialect: str, definition: Any) -> AddDialect:
    """Return the change that adds a definition of a view or function, for engines that speak a dialect.

    Args:
        dialect: such as "flink".
        definition: the query of a view, or the expression of a function as text; for a function also a dict as the
            format has it, such as {"type": "lambda", "language": "JAVA", "definition": "(Integer x) -> x"}.
    """
    return AddDialect(dialect, definition)


def set_dialect(dialect: str, definition: Any) -> SetDialect:
    """Return the change that replaces a definition of a view or function; see `add_dialect`."""
    return SetDialect(dialect, definition)


def drop_dialect(dialect: str) -> DropDialect:
    """Return the change that removes a definition of a view or function."""
    return DropDialect(dialect)
