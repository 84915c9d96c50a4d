"""How values are read: what callers chose, and what the schema beside a value says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from merganser.values import dataclass

UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time, by how many make a second."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What is known of the form of the values of one column, besides the values.

    Attributes:
        form: "" for nothing, or one of: decimal, variable-decimal, bytes, bits, set, geometry, wall (text whose zone
            means nothing), instant (integers that count from 1970 in UTC, and stand for no wall clock), clock (integers
            that count from midnight), escaped (text with a backslash before each comma), enum-index, set-mask.
        unit: of integers that stand for times, a key of UNITS.
        scale: of form decimal.
        bits: of form bits, how many bits each value has; 0: unknown.
        labels: of forms enum-index and set-mask.
        inner: encodings of what lies inside: `element`, `key` and `value`, or fields by name.
    """

    form: str = ""
    unit: str | None = None
    scale: int = 0
    bits: int = 0
    labels: tuple[str, ...] = ()
    inner: tuple[tuple[str, Encoding], ...] = ()

    def of(self, name: str) -> Encoding:
        """Return the encoding of a part."""
        return dict(self.inner).get(name, PLAIN)


PLAIN: Final = Encoding()


BASE64_UNSAID: Final = "base64-unsaid"
"""What text in binary columns holds if nobody chose it: base64. Text that looks like hexadecimal is bad."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What callers chose.

    Attributes:
        binary: what text in binary columns holds: base64, base64-url-safe, hex, latin1 or BASE64_UNSAID. One for all,
            or by column; other columns then have `binary_else`.
        decimal: text or base64, one for all or by column; other columns then hold text.
        time_unit: the unit of integers in TIME and TIMESTAMP columns, one for all or by column.
        time_zone: zone of wall clocks, as Arrow names it; None for UTC.
        zero_dates: whether dates of zeros are null.
        beyond_null: whether values that their type does not have are null: infinite dates, times of 24 hours and more.
        days: whether integers in DATE columns are days since 1970.
        files: whether values lie in a file. A map is a list of entries there, and equal names in an object are a fault.
        truncates: whether digits are dropped that a TIME or TIMESTAMP column does not hold.
        binary_else: of columns that `binary` does not name.
        placing: columns that cannot get another type, since they place rows: messages advise none.
        places: whether the one column, if these are the rules of one, is among them.
        lacking: whether parts of nested values may be null that are NOT NULL, as in rows of before they became so.
    """

    binary: str | Mapping[str, str] = BASE64_UNSAID
    decimal: str | Mapping[str, str] = "text"
    time_unit: str | Mapping[str, str] | None = None
    time_zone: str | None = None
    zero_dates: bool = False
    beyond_null: bool = False
    days: bool = False
    files: bool = False
    truncates: bool = False
    binary_else: str = BASE64_UNSAID
    placing: frozenset[str] = frozenset()
    places: bool = False
    lacking: bool = False

    def of(self, column: str) -> Rules:
        """Return the rules of one column: what was chosen by column is one for all there."""
        binary, decimal, unit = self.binary, self.decimal, self.time_unit
        one_for_all = isinstance(binary, str) and isinstance(decimal, str) and (unit is None or isinstance(unit, str))
        if one_for_all and column not in self.placing:
            return self
        return replace(
            self,
            places=column in self.placing,
            binary=binary if isinstance(binary, str) else binary.get(column, self.binary_else),
            decimal=decimal if isinstance(decimal, str) else decimal.get(column, "text"),
            time_unit=unit.get(column) if isinstance(unit, Mapping) else unit,
        )

    def per_second(self, unit: str | None) -> int:
        """Return how many of the integers that stand for times make a second; 0 if nobody said.

        Args:
            unit: what a schema says.
        """
        return UNITS.get(unit or (self.time_unit if isinstance(self.time_unit, str) else ""), 0)
