"""Which columns of rows of one schema lose values, or go to other columns, in a newer schema of the same table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from merganser.schema import types as t
from merganser.schema.casts import keeps_values


def lossy_columns(before: Sequence[t.Field], after: Sequence[t.Field], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the columns, and fields of ROWs, whose values rows of an older schema cannot bring to a newer one.

    A column that was dropped is none of them: its values are not stored, as the table wants it. A column that got
    a type which holds all its values, such as BIGINT for INT, or STRING, is none either.

    Args:
        before, after: columns of the two schemas, or fields of a ROW; matched by their ids.
        path: the ROW they belong to, with a dot; empty: they are columns.

    Yields:
        The path, and what became of it, such as "column 'v' was changed from BIGINT to INT".
    """
    now = {field.id: field for field in after}
    names = {field.name for field in after}
    for field in before:
        there = now.get(field.id)
        if there is None:
            if field.name in names:
                yield path + field.name, f"column '{path}{field.name}' was dropped, and another one has its name"
        elif type(field.type) is type(there.type) and (inside := _parts(field.type)) is not None:
            yield from lossy_columns(inside, _parts(there.type) or (), f"{path}{field.name}.")
        elif not keeps_values(field.type, there.type):
            yield path + field.name, f"column '{path}{field.name}' was changed from {field.type} to {there.type}"


def _parts(kind: t.DataType) -> Sequence[t.Field] | None:
    """Return the fields of a ROW, the elements of an ARRAY or the values of a MAP; None: it has no parts."""
    match kind:
        case t.Row():
            return kind.fields
        case t.Array():
            return (t.Field(0, "element", kind.element),)
        case t.Map():
            return (t.Field(0, "value", kind.value),)
    return None
