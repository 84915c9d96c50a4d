"""What the checks of options need to know of a table, and how they refuse one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from merganser.errors import InvalidInputError
from merganser.options.option import Options
from merganser.schema import types as t


class TableLike(Protocol):
    """The part of a table's schema that options are checked against."""

    @property
    def fields(self) -> tuple[t.Field, ...]:
        """The columns, in order."""

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """Primary key columns, partition columns included."""

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition columns."""

    @property
    def options(self) -> Options:
        """Options of the table."""


def cross_partition(table: TableLike) -> bool:
    """Return whether a key may move between partitions: the primary key lacks a partition column."""
    return bool(table.primary_keys) and not set(table.partition_keys) <= set(table.primary_keys)


def type_of(table: TableLike, column: str) -> t.DataType:
    """Return the type of a column that exists."""
    return next(field.type for field in table.fields if field.name == column)


def listed(names: Sequence[str]) -> str:
    """Return names for a message: the first three in quotes, and how many more there are."""
    first = ", ".join(f"'{name}'" for name in names[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"


def refuse(what: str, why: str, **context: Any) -> NoReturn:
    """Raise InvalidInputError with a message that says what cannot be done and why."""
    raise InvalidInputError(f"{what}: {why}", **context)
