"""The periods of automatic tags: the name of a tag is the beginning of its period."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from merganser.options import upkeep as u
from merganser.options.option import Options
from merganser.values import dataclass

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - periods are counted in local time
_DASHES: Final = {
    "with-dashes": ("%Y-%m-%d", "%Y-%m-%d %H"),
    "without-dashes": ("%Y%m%d", "%Y%m%d %H"),
    "without-dashes-and-spaces": ("%Y%m%d", "%Y%m%d%H"),
}


@dataclass(frozen=True, slots=True)
class Periods:
    """The periods of time, and the names of their tags."""

    length: timedelta
    form: str

    def before(self, time: datetime) -> datetime:
        """Return the beginning of the last period that is over."""
        return time - (time - EPOCH) % self.length - self.length

    def name(self, start: datetime) -> str:
        """Return the name of the tag of a period."""
        return start.strftime(self.form)

    def start(self, name: str) -> datetime | None:
        """Return the beginning of the period of a tag; None for a tag that a user made."""
        try:
            found = datetime.strptime(name, self.form)  # noqa: DTZ007 - local
        except ValueError:
            return None
        return found if self.name(found) == name else None


def periods_of(options: Options) -> Periods:
    """Return the periods that the options of a table name."""
    if options.get(u.TAG_CREATION_PERIOD_DURATION) is not None:
        return Periods(u.tag_period(options), "%Y%m%d%H%M")
    period = options.get(u.TAG_CREATION_PERIOD)
    dashes = "with-dashes" if period == "two-hours" else options.get(u.TAG_PERIOD_FORMATTER)
    return Periods(u.tag_period(options), _DASHES[dashes][period != "daily"])
