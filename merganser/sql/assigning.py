"""Whether values of one type can be stored as those of another one, as Spark decides it for INSERT."""

from __future__ import annotations

from collections.abc import Sequence

from merganser.catalogs.definitions import View
from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.tree import Column, Null
from merganser.scan.rows import counted
from merganser.schema import types as t


def check_stored(name: str, given: t.DataType, kind: t.DataType, *inside: str) -> None:
    """Check that values of a type can be stored in a column of another one, as Spark's INSERT does; also nested ones.

    Args:
        name: what messages call the value.
        inside: the place within it.

    Raises:
        InvalidInputError: not without a cast.
    """
    match given, kind:
        case t.Row(fields=fields), t.Row(fields=wanted):
            if len(fields) != len(wanted):
                raise InvalidInputError(
                    f"cannot store '{'.'.join((name, *inside))}' in a column of type {kind.with_nullable(True)}: the "
                    f"value has {counted(len(fields), 'field')}, the column {len(wanted)}"
                )
            for field, to in zip(fields, wanted, strict=True):
                check_stored(name, field.type, to.type, *inside, to.name)
        case t.Array(element=element), t.Array(element=wanted_element):
            check_stored(name, element, wanted_element, *inside, "element")
        case t.Map(), t.Map():
            check_stored(name, given.key, kind.key, *inside, "key")
            check_stored(name, given.value, kind.value, *inside, "value")
        case (t.Map(), t.Multiset()) | (t.Array(), t.Vector()):
            pass  # the write checks them
        case _:
            build.assigned(Column((name, *inside), given), kind.with_nullable(True))


def check_columns(view: View, names: Sequence[str], types: Sequence[t.DataType]) -> None:
    """Check that a query gives the columns that its view says.

    Raises:
        InvalidInputError: it gives another number of columns, or values of a type that cannot be stored as the view's.
    """
    hint = "A table that it reads has changed since then: replace the view."
    if len(names) != len(view.fields):
        raise InvalidInputError(
            f"it has {counted(len(view.fields), 'column')} ({', '.join(f.name for f in view.fields)}), and its query "
            f"gives {len(names)} ({', '.join(names)}). {hint}",
            table=view.name,
        )
    for given, f in zip(types, view.fields, strict=True):
        if isinstance(given, Null):
            continue
        try:
            check_stored(f.name, given, f.type)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"its column '{f.name}' is {f.type}, and its query gives {given}: {str(error).rstrip('.')}. {hint}",
                table=view.name,
                column=f.name,
            ) from error
