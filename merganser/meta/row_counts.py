"""How many rows a commit changed: a property of its snapshot, of commits that look at the rows they change.

The property names its own snapshot, since other writers may carry properties on.

Docs: decision 0059.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from merganser.values import dataclass

ROWS_CHANGED: Final = "merganser.rows-changed"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How many rows a commit changed. None: the files were removed without a look at their rows."""

    inserted: int | None = 0
    updated: int | None = 0
    deleted: int | None = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        """Return the counts of both."""
        return RowCounts(
            _sum(self.inserted, other.inserted), _sum(self.updated, other.updated), _sum(self.deleted, other.deleted)
        )


@dataclass(frozen=True, slots=True)
class RowEdit:
    """What a commit does to rows that it looked at.

    Attributes:
        operation: DELETE, UPDATE or MERGE.
        counts: returns how many rows the commit changes, once it is known which files it removes.
    """

    operation: str
    counts: Callable[[], RowCounts]


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def counted(number: int, counts: RowCounts) -> dict[str, str]:
    """Return the property of a snapshot that changed rows."""
    said = {"snapshot": number, "rows": [counts.inserted, counts.updated, counts.deleted]}
    return {ROWS_CHANGED: json.dumps(said)}


def counts_in(properties: Mapping[str, str] | None, number: int) -> RowCounts | None:
    """Return how many rows the commit of a snapshot changed; None: its properties do not say it."""
    text = (properties or {}).get(ROWS_CHANGED)
    if text is None:
        return None
    try:
        said = json.loads(text)
        return RowCounts(*said["rows"]) if said["snapshot"] == number else None
    except (ValueError, TypeError, KeyError):  # written by no release that we know
        return None
