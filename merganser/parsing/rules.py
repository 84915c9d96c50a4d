"""How values are read: what callers chose, and what the schema beside a value says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time, by how many make a second."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What is known of the form of the values of one column, besides the values.

    Attributes:
        form: "" for nothing, or one of: decimal, variable-decimal, bytes, bits, set, geometry, wall (text whose zone
            means nothing), instant (integers that count from 1970 in UTC, and stand for no wall clock), enum-index,
            set-mask.
        unit: of integers that stand for times, a key of UNITS.
        scale: of form decimal.
        labels: of forms enum-index and set-mask.
        inner: encodings of what lies inside: `element`, `key` and `value`, or fields by name.
    """

    form: str = ""
    unit: str | None = None
    scale: int = 0
    labels: tuple[str, ...] = ()
    inner: tuple[tuple[str, Encoding], ...] = ()

    def of(self, name: str) -> Encoding:
        """Return the encoding of a part."""
        return dict(self.inner).get(name, PLAIN)


PLAIN: Final = Encoding()


@dataclass(frozen=True, slots=True)
class Rules:
    """What callers chose.

    Attributes:
        binary: what text in binary columns holds: base64, base64-url-safe, hex or latin1.
        decimal: text or base64.
        time_unit: the unit of integers in TIME and TIMESTAMP columns, one for all or by column.
        time_zone: zone of wall clocks, as Arrow names it; None for UTC.
        zero_dates: whether dates of zeros are null.
        days: whether integers in DATE columns are days since 1970.
    """

    binary: str = "base64"
    decimal: str = "text"
    time_unit: str | Mapping[str, str] | None = None
    time_zone: str | None = None
    zero_dates: bool = False
    days: bool = False

    def unit_of(self, column: str) -> str | None:
        """Return the unit of integers in a column of times; None: nobody said."""
        if isinstance(self.time_unit, Mapping):
            return self.time_unit.get(column)
        return self.time_unit
