"""The facts about a table that the checks of options need, and the errors they raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from merganser.errors import InvalidInputError
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema

POSTPONE: Final = -2
"""Number of buckets of a table whose rows have none until a compaction."""
DYNAMIC: Final = -1
"""Number of buckets of a table that adds them as keys arrive, or that has none."""
BUCKETS_MAX: Final = 32_767
"""Most buckets of a partition: engines of the format keep the bucket of a key in 16 bits where buckets are added."""


def type_of(table: TableSchema, column: str) -> t.DataType:
    """Return the type of a column that exists."""
    return next(field.type for field in table.fields if field.name == column)


def listed(names: Sequence[str]) -> str:
    """Return names for a message: the first three in quotes, and how many more there are."""
    first = ", ".join(f"'{name}'" for name in names[:3])
    return first if len(names) <= 3 else f"{first} and {len(names) - 3} more"


def refuse(what: str, why: str, **context: Any) -> NoReturn:
    """Raise InvalidInputError with a message that says what cannot be done and why."""
    raise InvalidInputError(f"{what}: {why}", **context)
