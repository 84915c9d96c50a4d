"""Time zones between types: casts and store assignment, as Spark has them in a session with a zone.

A cast between an instant (TIMESTAMP_LTZ) and a date, a TIMESTAMP or a text goes by what clocks in the zone show. The
expressions that come out say so: an instant is turned into a wall clock first, or the other into an instant, and the
cast that is left means the same in every zone. In UTC all of them are the casts of `build`.
"""

from __future__ import annotations

from merganser.errors import InvalidInputError
from merganser.expr import build, setting
from merganser.expr.functions import call
from merganser.expr.literal import from_text, zoned
from merganser.expr.tree import Expression, Literal, sql
from merganser.schema import types as t


def instant_of(text: str, zone: str | None) -> Literal:
    """Return the instant that text names, in a zone where the text names none.

    Raises:
        InvalidInputError: the text is no timestamp.
    """
    if zone is None or zoned(text):
        return from_text(text, t.LocalZonedTimestamp(9))
    return setting.instant(from_text(text, t.Timestamp(9)), zone)


def shown(item: Expression, zone: str | None) -> Expression:
    """Return an instant as what clocks in a zone show, and other values as they are."""
    if zone is None or not isinstance(item.type, t.LocalZonedTimestamp):
        return item
    if isinstance(item, Literal):
        return setting.wall_clock(item, zone)
    return call("wall_clock", [item, Literal(zone, t.string())])


def moment(item: Expression, zone: str | None) -> Expression:
    """Return a date or TIMESTAMP as the instant at which clocks in a zone show it, and other values as they are."""
    if zone is None or not isinstance(item.type, t.Date | t.Timestamp):
        return item
    if isinstance(item, Literal):
        return setting.instant(item, zone)
    clock = build.cast(item, t.Timestamp(0)) if isinstance(item.type, t.Date) else item
    return call("instant_at", [clock, Literal(zone, t.string())])


def cast(item: Expression, kind: t.DataType, zone: str | None) -> Expression:
    """Return CAST(item AS kind) in a zone.

    Raises:
        InvalidInputError: there is no such cast; a literal is not a value of the type; or texts of a column would
            become instants in a zone other than UTC.
    """
    texts = isinstance(item.type, t.Char | t.VarChar) and not build.is_text_literal(item)
    if zone is not None and isinstance(kind, t.LocalZonedTimestamp) and texts:
        raise InvalidInputError(
            f"cannot CAST {sql(item)} AS {kind} in the time zone {zone}: this is supported in UTC only. CAST it AS "
            "TIMESTAMP_NTZ, if the texts name no offset."
        )
    return build.cast(_in_zone(item, kind, zone), kind)


def assigned(item: Expression, kind: t.DataType, zone: str | None) -> Expression:
    """Return the item in the type of a column that it is stored in, in a zone.

    Raises:
        InvalidInputError: a value of the item's type cannot be stored in such a column without an explicit cast.
    """
    found = build.assigned(item, kind)  # names the item in messages as it was written
    placed = _in_zone(item, kind, zone)
    return found if placed is item else build.assigned(placed, kind)


def _in_zone(item: Expression, kind: t.DataType, zone: str | None) -> Expression:
    """Return what a cast that knows no zone turns into the value of the cast in a zone."""
    if zone is None:
        return item
    if not isinstance(kind, t.LocalZonedTimestamp):
        return shown(item, zone)
    if isinstance(item, Literal) and build.is_text_literal(item):
        return instant_of(str(item.value), zone)
    return moment(item, zone)
