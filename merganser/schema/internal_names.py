"""Names of columns that merganser adds to rows on their way: no column of a table has one of them.

`rules.create` refuses columns of users whose names begin with the prefix, in any case, since Spark compares names
without it. So a name that `internal_name` makes may stand beside any columns of a table or of a user's data.
"""

from __future__ import annotations

from typing import Final

INTERNAL_PREFIX: Final = "_merganser_"


def internal_name(what: str) -> str:
    """Return the name of a column that no column of a user has."""
    return INTERNAL_PREFIX + what


def is_internal(name: str) -> bool:
    """Return whether a name is kept for columns of merganser's own."""
    return name.lower().startswith(INTERNAL_PREFIX)
