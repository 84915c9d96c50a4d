"""What SQL text means besides its words: the time zone of its timestamps, the time, and the case of names.

A door of merganser makes one `Setting` per call: doors of Spark from the session, the others from their arguments.
Zones are named as Spark names them: a region (`Europe/Berlin`), an offset (`+01:00`, `UTC-5`), `UTC`, or one of the old
short names of Java (`PST`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from merganser.errors import InvalidInputError
from merganser.expr.tree import UNITS_PER_SECOND, Literal, nanoseconds
from merganser.schema import types as t
from merganser.schema.arrow import timestamp_unit
from merganser.values import dataclass

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{1,2})(?::(\d{2}))?|(\d{2})(\d{2})?)?")
_SHORT: Final = {
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00", "ACT": "Australia/Darwin", "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Short names, as `java.time.ZoneId.SHORT_IDS` has them; Spark takes no others."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS_PER_SECOND: Final = 1_000_000_000
_SECONDS_MAX: Final = 18 * 3600


@dataclass(frozen=True, slots=True)
class Setting:
    """What SQL text means besides its words.

    Attributes:
        timezone: the zone in which timestamps are written, and in which an instant has a date and an hour.
        now_ms: the time, in milliseconds since 1970 in UTC; None: the text may not ask for it.
        exact_names: names count in their case alone. Otherwise a name in another case is taken if it is the only one.
    """

    timezone: str = "UTC"
    now_ms: int | None = None
    exact_names: bool = False

    @property
    def zone(self) -> str | None:
        """The zone, as Arrow names it; None for UTC."""
        return checked_zone(self.timezone)

    @property
    def tzinfo(self) -> tzinfo:
        """The zone, as Python has it."""
        zone = self.zone
        return UTC if zone is None else _tzinfo(zone)


def checked_zone(name: str) -> str | None:
    """Return a time zone as Arrow names it; None for UTC.

    Raises:
        InvalidInputError: there is no such zone.
    """
    text = name.strip() if isinstance(name, str) else ""
    if text.upper() in ("UTC", "GMT", "UT", "Z", "ETC/UTC", "ETC/GMT"):
        return None
    if found := _OFFSET.fullmatch(text.upper()):
        hours, minutes, seconds = int(found[2]), int(found[3] or found[5] or 0), int(found[4] or found[6] or 0)
        total = hours * 3600 + minutes * 60 + seconds
        if total <= _SECONDS_MAX and minutes < 60 and seconds < 60:
            return f"{found[1]}{hours:02}:{minutes:02}{f':{seconds:02}' if seconds else ''}" if total else None
    elif text in _SHORT:
        return _SHORT[text]
    elif text:
        try:
            ZoneInfo(text)
        except (ValueError, OSError, KeyError):
            pass
        else:
            return text
    raise InvalidInputError(
        f"there is no time zone {name!r:.60}. Give a region such as 'Europe/Berlin', an offset such as '+01:00', or "
        "'UTC'."
    )


def wall_clock(instant: Literal, zone: str) -> Literal:
    """Return the wall clock that shows an instant in a zone: a TIMESTAMP_LTZ literal as a TIMESTAMP."""
    assert isinstance(instant.type, t.LocalZonedTimestamp), instant
    kind = t.Timestamp(instant.type.precision)
    if instant.value is None:
        return Literal(None, kind)
    nanos = nanoseconds(instant)
    return _counted(nanos + offset_seconds(zone, nanos // _NANOS_PER_SECOND) * _NANOS_PER_SECOND, kind)


def offset_seconds(zone: str, seconds: int) -> int:
    """Return by how many seconds a zone is ahead of UTC at an instant, given in seconds since 1970."""
    try:
        return _whole((_EPOCH + timedelta(seconds=seconds)).astimezone(_tzinfo(zone)).utcoffset())
    except OverflowError:  # beyond the years 1 to 9999
        return 0


def instant(wall: Literal, zone: str) -> Literal:
    """Return the instant at which clocks in a zone show a TIMESTAMP or DATE: a TIMESTAMP_LTZ literal.

    As in Spark and Java, a time that clocks show twice is the earlier one, and a time that they skip is as much later
    as they skip.
    """
    kind = t.LocalZonedTimestamp(wall.type.precision if isinstance(wall.type, t.Timestamp) else 0)
    if wall.value is None:
        return Literal(None, kind)
    nanos = nanoseconds(wall)
    try:
        shown = _EPOCH + timedelta(seconds=nanos // _NANOS_PER_SECOND)
        offset = _whole(shown.replace(tzinfo=_tzinfo(zone)).utcoffset())
    except OverflowError:
        offset = 0
    return _counted(nanos - offset * _NANOS_PER_SECOND, kind)


def _counted(nanos: int, kind: t.Timestamp | t.LocalZonedTimestamp) -> Literal:
    return Literal(nanos // (_NANOS_PER_SECOND // UNITS_PER_SECOND[timestamp_unit(kind.precision)]), kind)


def _whole(offset: timedelta | None) -> int:
    return 0 if offset is None else round(offset.total_seconds())


@lru_cache(maxsize=64)
def _tzinfo(zone: str) -> tzinfo:
    if found := _OFFSET.fullmatch(zone):
        sign = -1 if found[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(found[2]), minutes=int(found[3] or 0), seconds=int(found[4] or 0)))
    return ZoneInfo(zone)
