"""Clauses of a merge by the names of Delta Lake, with its order of arguments, where they mean the same.

`whenMatchedUpdateAll` and `whenNotMatchedInsertAll` set all columns of the table. Ours by name leave out columns that
the source lacks, and updates leave the columns of the key, the partition and the bucket as they are. So the names of
Delta are refused if the source lacks a column, or if such a column could get another value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from merganser.edit.assign import by_name, fixed_columns
from merganser.errors import InvalidInputError

if TYPE_CHECKING:
    from merganser.edit.merging import Merge

Clause = Callable[..., "Merge"]

_OURS: Final = {
    "whenMatchedUpdate": "when_matched_update",
    "whenMatchedUpdateAll": "when_matched_update",
    "whenMatchedDelete": "when_matched_delete",
    "whenNotMatchedInsert": "when_not_matched_insert",
    "whenNotMatchedInsertAll": "when_not_matched_insert",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete",
}


def clause_of(merge: Merge, name: str) -> Clause | None:
    """Return the method that adds the clause of this name in Delta to a merge; None: Delta has no such clause."""
    ours = _OURS.get(name)
    if ours is None:
        return None
    add: Clause = getattr(merge, ours)

    def told(values: Mapping[str, str] | None, argument: str) -> Mapping[str, str]:
        if values is None:
            raise InvalidInputError(
                f"{merge._action}: {name} has no '{argument}'. Nothing was written. Write "
                f"{name}(condition, {argument}), or {name}({argument}={{...}}) without a condition."
            )
        return values

    def update(condition: str | None = None, set: Mapping[str, str] | None = None) -> Merge:
        return add(told(set, "set"), condition)

    def insert(condition: str | None = None, values: Mapping[str, str] | None = None) -> Merge:
        return add(told(values, "values"), condition)

    def other(condition: str | None = None) -> Merge:
        if name.endswith("All"):
            _check_sets_all(merge, name, ours)
        return add(condition=condition)

    method: Clause = update if name.endswith("Update") else insert if name.endswith("Insert") else other
    method.__qualname__ = f"Merge.{name}"  # as errors of Python call it
    return method


def _check_sets_all(merge: Merge, name: str, ours: str) -> None:
    """Refuse a clause "All" that would set other columns than ours does.

    Raises:
        InvalidInputError: names the columns, and the clause to write. Nothing was written.
    """
    told = {field.name: value.expression for field, value in by_name(merge.table, merge._fields, merge._setting)}
    lacking = [column for column in merge.table.schema.shown.names if column not in told]
    if lacking:
        rest = "they stay as they are" if ours == "when_matched_update" else "they get their default, or null"
        raise InvalidInputError(
            f"{merge._action}: {name} sets all columns, and the source lacks {', '.join(lacking)}. Nothing was "
            f"written. With {ours}() {rest}.",
            columns=lacking,
        )
    joined = {field.name: value.expression for field, value in merge._on.pairs}
    fixed = sorted(column for column in fixed_columns(merge.table) if joined.get(column) != told[column])
    if ours == "when_matched_update" and fixed:
        raise InvalidInputError(
            f"{merge._action}: {name} sets all columns, and no update sets {', '.join(fixed)}: the primary key, the "
            "partition and the bucket say which row is meant and where it lies. Nothing was written. Let the condition "
            f"make them equal to columns of their names in the source, or write {ours}(), which leaves them alone.",
            columns=fixed,
        )
