"""Rows and changelogs, expected and actual, by README section 6. Everything here is a function of plain values."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Any, Final

from tests.conformance.values import Logical, Pairs, shown

Row = list[Any]
_TOLERANCE: Final = 1e-9
_SHOWN_MAX: Final = 12


def same(actual: Any, expected: Any, *, unordered: bool = False) -> bool:
    """Return whether a value is what was expected.

    Args:
        unordered: of an array, the elements may come in any order.
    """
    if actual is None or expected is None:
        return actual is None and expected is None
    if isinstance(expected, Logical):
        return isinstance(actual, bytes) and expected.holds(actual)
    if isinstance(expected, Pairs):
        return isinstance(actual, Pairs) and not _unmatched(_as_rows(actual), _as_rows(expected))
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return False
        if unordered:
            return not any(unmatched([[value] for value in actual], [[value] for value in expected]))
        return all(same(a, e) for a, e in zip(actual, expected, strict=True))
    if isinstance(actual, bool) or isinstance(expected, bool):
        return actual is expected
    if isinstance(actual, float) or isinstance(expected, float):
        return _same_float(actual, expected)
    if isinstance(actual, int | Decimal) and isinstance(expected, int | Decimal):
        return actual == expected
    return type(actual) is type(expected) and bool(actual == expected)


def _same_float(actual: Any, expected: Any) -> bool:
    if not isinstance(actual, int | float | Decimal) or not isinstance(expected, int | float | Decimal):
        return False
    left, right = float(actual), float(expected)
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=_TOLERANCE)


def _as_rows(pairs: Pairs) -> list[Row]:
    return [list(entry) for entry in pairs.entries]


def _unmatched(actual: list[Row], expected: list[Row]) -> bool:
    return any(unmatched(actual, expected))


def same_row(actual: Row, expected: Row, unordered: Collection[int] = ()) -> bool:
    """Return whether a row is what was expected; `unordered` are the positions of arrays without order."""
    return len(actual) == len(expected) and all(
        same(a, e, unordered=i in unordered) for i, (a, e) in enumerate(zip(actual, expected, strict=True))
    )


def unmatched(
    actual: Sequence[Row], expected: Sequence[Row], unordered: Collection[int] = ()
) -> tuple[list[Row], list[Row]]:
    """Return the actual rows that nobody expected, and the expected ones that did not come, as multisets."""
    left = list(actual)
    missing = []
    for row in expected:
        found = next((i for i, other in enumerate(left) if same_row(other, row, unordered)), None)
        if found is None:
            missing.append(row)
        else:
            del left[found]
    return left, missing


def rows_difference(
    actual: Sequence[Row],
    expected: Sequence[Row],
    *,
    unordered: Collection[int] = (),
    ordered: bool = False,
    subset: bool = False,
) -> str | None:
    """Return how rows differ, or None.

    Args:
        ordered: the order of the rows counts.
        subset: the expected rows must be among the actual ones.
    """
    extra, missing = unmatched(actual, expected, unordered)
    if subset:
        extra = []
    if extra or missing:
        return f"{_both(actual, expected)}\n  missing:    {_lines(missing)}\n  unexpected: {_lines(extra)}"
    if ordered and not all(same_row(a, e, unordered) for a, e in zip(actual, expected, strict=True)):
        return f"the order differs\n{_both(actual, expected)}"
    return None


def changelog_difference(
    actual: Sequence[Sequence[Row]],
    expected: Sequence[Sequence[Row]],
    *,
    key: Collection[int] | None,
    unordered: Collection[int] = (),
) -> str | None:
    """Return how published records differ, or None.

    Args:
        actual, expected: one list per snapshot, step or plan that published something; records are [kind, values].
        key: positions of the primary key in a record, kind included in the count; None: the whole row is the key.
        unordered: positions of arrays without order in a record.
    """
    if len(actual) != len(expected):
        return f"{len(expected)} groups of records were expected, {len(actual)} came\n{_groups(actual, expected)}"
    for i, (found, wanted) in enumerate(zip(actual, expected, strict=True)):
        if _key_difference(found, wanted, key, unordered):
            return f"group {i} differs\n{_groups(actual, expected)}"
    return None


def in_order(actual: Sequence[Sequence[Row]], expected: Sequence[Sequence[Row]]) -> bool:
    """Return whether records came in the very order that is written down, also between keys."""
    return all(
        len(a) == len(e) and all(same_row(x, y) for x, y in zip(a, e, strict=True))
        for a, e in zip(actual, expected, strict=True)
    )


def _key_difference(
    actual: Sequence[Row], expected: Sequence[Row], key: Collection[int] | None, unordered: Collection[int]
) -> bool:
    found, wanted = _by_key(actual, key), _by_key(expected, key)
    if set(found) != set(wanted):
        return True
    return any(
        len(found[name]) != len(wanted[name])
        or not all(same_row(a, e, unordered) for a, e in zip(found[name], wanted[name], strict=True))
        for name in wanted
    )


def _by_key(records: Sequence[Row], key: Collection[int] | None) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for record in records:
        values = record[1:] if key is None else [record[i] for i in sorted(key) if i < len(record)]
        found.setdefault(shown(values), []).append(record)
    return found


def _both(actual: Sequence[Row], expected: Sequence[Row]) -> str:
    return f"  expected:   {_lines(expected)}\n  actual:     {_lines(actual)}"


def _groups(actual: Sequence[Sequence[Row]], expected: Sequence[Sequence[Row]]) -> str:
    def text(groups: Sequence[Sequence[Row]]) -> str:
        return "\n              ".join(_lines(group) for group in groups) or "nothing"

    return f"  expected:   {text(expected)}\n  actual:     {text(actual)}"


def _lines(rows: Sequence[Row]) -> str:
    texts = [shown(row) for row in rows[:_SHOWN_MAX]]
    if len(rows) > _SHOWN_MAX:
        texts.append(f"... {len(rows) - _SHOWN_MAX} more")
    return " ".join(texts) or "none"
