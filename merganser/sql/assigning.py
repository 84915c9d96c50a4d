"""Whether values of one type can be stored as those of another one, as Spark decides it for INSERT."""

from __future__ import annotations

from collections.abc import Sequence

from merganser.catalogs.definitions import View
from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.names import spelled
from merganser.expr.tree import Column, Null
from merganser.scan.rows import counted
from merganser.schema import types as t


def given_fields(given: Sequence[str], wanted: Sequence[str], *, by_name: bool) -> list[int]:
    """Return which field of a ROW is stored in each field of a column, as positions in `given`.

    Args:
        by_name: as in MERGE, the names say it, in any case where that is one field. Else the positions do.

    Raises:
        InvalidInputError: a field is missing, unknown or given twice.
    """
    if not by_name:
        if len(given) != len(wanted):
            raise InvalidInputError(f"the value has {counted(len(given), 'field')}, the column {len(wanted)}")
        return list(range(len(wanted)))
    names = spelled(given, wanted)
    if sorted(names) != sorted(wanted):
        raise InvalidInputError(
            f"the value has the fields {', '.join(given)}, the column {', '.join(wanted)}, and fields are stored by "
            f"their names. Name them, as in named_struct('{wanted[0]}', ...)"
        )
    return [names.index(name) for name in wanted]


def check_stored(name: str, given: t.DataType, kind: t.DataType, *inside: str, by_name: bool = False) -> None:
    """Check that values of a type can be stored in a column of another one, as Spark's INSERT does; also nested ones.

    Args:
        name: what messages call the value.
        inside: the place within it.
        by_name: see `given_fields`.

    Raises:
        InvalidInputError: not without a cast.
    """
    match given, kind:
        case t.Row(fields=fields), t.Row(fields=wanted):
            try:
                order = given_fields([f.name for f in fields], [f.name for f in wanted], by_name=by_name)
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"cannot store '{'.'.join((name, *inside))}' in a column of type {kind.with_nullable(True)}: "
                    f"{error.message}"
                ) from error
            for i, to in zip(order, wanted, strict=True):
                check_stored(name, fields[i].type, to.type, *inside, to.name, by_name=by_name)
        case t.Array(element=element), t.Array(element=wanted_element):
            check_stored(name, element, wanted_element, *inside, "element", by_name=by_name)
        case t.Map(), t.Map():
            check_stored(name, given.key, kind.key, *inside, "key", by_name=by_name)
            check_stored(name, given.value, kind.value, *inside, "value", by_name=by_name)
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
