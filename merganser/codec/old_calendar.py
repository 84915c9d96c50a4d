"""Dates and times of the old calendar: values that a writer counted in it -> the same values as everybody counts today.

Java's old classes, and Spark 2, Hive and ORC's Java writer with them, use the Julian calendar before 1582-10-15. A day
that they call 1001-01-01 is 1001-01-07 in the proleptic Gregorian calendar, which tables and other engines use. Files
with such days keep the day, not its name, and Spark marks them. What counts is the name: Spark reads 1001-01-01 again,
and so does this module.

    days     year y of the Julian calendar, from March on:  day + 2 - y div 100 + y div 400  (before 1582-10-15)
    instants their local time as the old classes know zones, moved by whole days as above; back to an instant with the
             offsets of the new classes, which know local mean time before 1900, where the old ones do not

For instants the time zone of the writer has to be known. `old_zones.txt` has a line for each zone: its name, the offset
in seconds that old classes give all times of the Julian calendar, what is added besides the days until the first of the
times behind it, and these times, in seconds since 1970, each with what is added from then on. Spark's own table says
the same (`julian-gregorian-rebase-micros.json`; a test compares them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.int96 import INT96_BYTES, int96_of_seconds, int96_seconds
from merganser.errors import UnsupportedError
from merganser.values import dataclass

DAYS_END: Final = -141_427
"""1582-10-15, the first day that both calendars call alike, in days since 1970."""

TIMES_END: Final = -2_208_988_800
"""1900-01-01 in seconds since 1970: from then on old and new classes agree on the offsets of all zones."""

_DAY: Final = 86_400
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIXED: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.ASCII)

_VERSION: Final = b"org.apache.spark.version"
_ZONE: Final = b"org.apache.spark.timeZone"
_OLD_TIMES: Final = b"org.apache.spark.legacyDateTime"
_OLD_INT96: Final = b"org.apache.spark.legacyINT96"
_HIVE_PROLEPTIC: Final = b"writer.date.proleptic"

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone, as old classes know it in comparison with new ones.

    Attributes:
        offset: seconds that local time was ahead of UTC, by the old classes, at all times before the first switch.
        added: seconds added to instants before the first switch, besides whole days.
        switches: instants in seconds, rising, each with the seconds that are added from then on.
    """

    offset: int
    added: int
    switches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class OldCalendar:
    """Which values of a file are counted in the old calendar.

    Attributes:
        days: dates.
        instants: instants in 64 bits.
        int96: instants in 96 bits.
        zone: of the writer; None: it is not known, so instants before 1900 cannot be told.
    """

    days: bool
    instants: bool
    int96: bool
    zone: Zone | None

    def rebased(self, column: pa.ChunkedArray, *, name: str, path: str) -> pa.ChunkedArray:
        """Return a column as it was meant; the same object if it has no old value.

        Args:
            column: dates, and instants as timestamps with a zone or as stored INT96 values, at any depth. Timestamps
                without a zone have no old calendar.
            name: of the column, for messages.
            path: of the file, for messages.

        Raises:
            UnsupportedError: it has instants before 1900, and the zone is not known.
        """
        if not self._holds(column.type):
            return column
        chunks = [self._array(chunk, name, path) for chunk in column.chunks]
        if all(new is old for new, old in zip(chunks, column.chunks, strict=True)):
            return column
        return pa.chunked_array(chunks, column.type)

    def rebased_day(self, day: int | None) -> int | None:
        """Return a bound of dates as it was meant; None: it is not known."""
        if day is None or day >= DAYS_END or not self.days:
            return day
        return int(gregorian_days(np.array([day]))[0])

    def tells_all_times(self) -> bool:
        """Return whether every value can be told."""
        return self.zone is not None or not (self.instants or self.int96)

    def _holds(self, kind: pa.DataType) -> bool:
        if pa.types.is_date32(kind):
            return self.days
        if pa.types.is_timestamp(kind):
            return self.instants and kind.tz is not None
        if kind == pa.binary(INT96_BYTES):
            return self.int96
        return any(self._holds(kind.field(i).type) for i in range(kind.num_fields))

    def _array(self, array: pa.Array, name: str, path: str) -> pa.Array:
        kind = array.type
        if not self._holds(kind) or not len(array):
            return array
        if pa.types.is_date32(kind):
            return _rebased_days(array)
        if pa.types.is_timestamp(kind):
            return self._instants(array, name, path)
        if kind == pa.binary(INT96_BYTES):
            return self._int96(array, name, path)
        return self._nested(array, name, path)

    def _nested(self, array: pa.Array, name: str, path: str) -> pa.Array:
        kind = array.type
        if pa.types.is_struct(kind):
            parts = [array.field(i) for i in range(kind.num_fields)]
            new = [self._array(part, name, path) for part in parts]
            if all(one is other for one, other in zip(new, parts, strict=True)):
                return array
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(new, fields=[kind.field(i) for i in range(kind.num_fields)], mask=mask)
        # Of a slice, what lies outside of it is not asked for, and may be anything.
        whole = pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array
        if pa.types.is_map(kind):
            pairs = [self._array(part, name, path) for part in (whole.keys, whole.items)]
            inner = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        else:
            inner = self._array(whole.values, name, path)
        buffers = whole.buffers()[:2] if not pa.types.is_fixed_size_list(kind) else whole.buffers()[:1]
        return pa.Array.from_buffers(kind, len(whole), buffers, whole.null_count, whole.offset, children=[inner])

    def _instants(self, array: pa.Array, name: str, path: str) -> pa.Array:
        per_second = _PER_SECOND[array.type.unit]
        low = pc.min(array.view(pa.int64())).as_py()
        if low is None or low >= TIMES_END * per_second:
            return array
        zone = self._known_zone(name, path)
        counts, mask = _counts(array, pa.int64())
        moved = counts + added_seconds(counts // per_second, zone) * per_second
        return pa.array(moved, mask=mask).view(array.type)

    def _int96(self, array: pa.Array, name: str, path: str) -> pa.Array:
        seconds, nanos = int96_seconds(array)
        old = seconds < TIMES_END
        mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        if not (old if mask is None else old & ~mask).any():
            return array
        zone = self._known_zone(name, path)
        return int96_of_seconds(seconds + added_seconds(seconds, zone), nanos, mask)

    def _known_zone(self, name: str, path: str) -> Zone:
        if self.zone is None:
            raise UnsupportedError(
                f"cannot read '{path}': column '{name}' holds a time before 1900 of the old (Julian) calendar, and the "
                "file does not name the time zone of its writer, so the time cannot be told. The other columns can be "
                "read; select them by name. Read the file with Spark in a JVM of that time zone, and write the rows: "
                "ms.write(df, table).",
                path=path,
                column=name,
            )
        return self.zone


def calendar_of(pairs: Mapping[bytes, bytes]) -> OldCalendar | None:
    """Return what the metadata of a Parquet or Avro file says of the old calendar; None: nothing.

    Spark notes its version since 2.4, and since 3.0 which calendar it used. A file without such notes has the new
    calendar, as it has for Spark 4. Hive notes the calendar of dates.
    """
    version, zone = pairs.get(_VERSION), pairs.get(_ZONE)
    values = version is not None and (version < b"3.0.0" or _OLD_TIMES in pairs)
    int96 = version is not None and (version < b"3.1.0" or _OLD_INT96 in pairs)
    days = values or pairs.get(_HIVE_PROLEPTIC, b"").lower() == b"false"
    if not days and not int96:
        return None
    return OldCalendar(days, values, int96, None if zone is None else zone_named(zone.decode()))


def holds_times(kind: pa.DataType) -> bool:
    """Return whether values of a type are, or have in them, dates or instants."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return True
    return any(holds_times(kind.field(i).type) for i in range(kind.num_fields))


def zone_named(name: str) -> Zone | None:
    """Return a time zone by the name that Java gives it; None: it is not known."""
    found = _zones().get(name)
    if found is not None:
        return found
    if name == "Z":
        return Zone(0, 0, ())
    fixed = _FIXED.fullmatch(name)
    if fixed is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in fixed.groups()[1:])
    offset = (hours * 60 + minutes) * 60 + seconds
    return Zone(-offset if fixed[1] == "-" else offset, 0, ())


@lru_cache(1)
def _zones() -> dict[str, Zone]:
    found = {}
    for line in resources.files("merganser.codec").joinpath("old_zones.txt").read_text("ascii").splitlines():
        name, offset, added, *switches = line.split()
        pairs = (switch.split(":") for switch in switches)
        found[name] = Zone(int(offset), int(added), tuple((int(at), int(then)) for at, then in pairs))
    return found


def gregorian_days(days: _Longs) -> _Longs:
    """Return the days of the Gregorian calendar that have the names that days had in the Julian one.

    The 29th of February of a year that is no leap year is the 1st of March.

    Args:
        days: int64[n], days since 1970.
    """
    year = (4 * (days + 719_470) + 3) // 1461  # from March on: 719,470 days lead to 0000-03-01 of the Julian calendar
    moved: _Longs = days + 2 - year // 100 + year // 400
    return moved


def added_seconds(seconds: _Longs, zone: Zone) -> _Longs:
    """Return int64[n]: what is added to instants of the old calendar, in seconds since 1970."""
    days = (seconds + zone.offset) // _DAY
    moved = np.where(days < DAYS_END, gregorian_days(days) - days, 0) * _DAY + zone.added
    for at, added in zone.switches:
        moved = np.where(seconds >= at, added, moved)
    return moved


def _rebased_days(array: pa.Array) -> pa.Array:
    low = pc.min(array.view(pa.int32())).as_py()
    if low is None or low >= DAYS_END:
        return array
    days, mask = _counts(array, pa.int32())
    moved = np.where(days < DAYS_END, gregorian_days(days.astype(np.int64)), days)
    return pa.array(moved.astype(np.int32), mask=mask).view(array.type)


def _counts(array: pa.Array, kind: pa.DataType) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the numbers of an array, with any value where it is null, and where it is."""
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return array.view(kind).fill_null(0).to_numpy(zero_copy_only=False), mask
