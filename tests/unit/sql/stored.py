"""Values as Spark stores them in columns of another type, by time zone: `python -m tests.unit.sql.stored` records them.

Each case has a zone, a type of the values and a type of the column. Spark's tables are plain Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa

RECORDED = Path(__file__).parent / "stored.json"
ZONES = ("Europe/Berlin", "America/New_York", "-03:30", "UTC")
CLOCKS = (
    "2026-01-01 12:00:00",
    "2026-01-01 00:30:00",
    "2026-12-31 23:59:59.987654",
    "2026-03-29 02:30:00",  # skipped in Berlin
    "2026-03-08 02:30:00.5",  # skipped in New York
    "2026-10-25 02:30:00",  # twice in Berlin
    "2026-11-01 01:30:00",  # twice in New York
    "1899-12-31 23:59:59.5",
    "2050-07-01 00:00:00",
)
VALUES: dict[str, tuple[str, ...]] = {
    "DATE": tuple(f"DATE '{text}'" for text in ("2026-01-01", "2026-03-29", "1969-12-31", "2050-07-01")),
    "TIMESTAMP_NTZ": tuple(f"TIMESTAMP_NTZ '{text}'" for text in CLOCKS),
    "TIMESTAMP": (
        *(f"TIMESTAMP '{text}'" for text in CLOCKS),
        "TIMESTAMP '2026-10-25 00:30:00Z'",
        "TIMESTAMP '2026-10-25 01:30:00Z'",
        "TIMESTAMP '2026-11-01 05:30:00Z'",
        "TIMESTAMP '2026-11-01 06:30:00Z'",
    ),
    "STRING": (
        "'2026-01-01 12:00:00'",
        "'2026-01-01'",
        "'2026-01-01 12:00:00+05:00'",
        "'2026-01-01 12:00:00 Asia/Tokyo'",
        "'2026-03-29 02:30:00'",
        "'2026-10-25 02:30:00'",
    ),
    "TIME": ("TIME '12:34:56'", "TIME '00:00:00'", "TIME '23:59:59.123'"),
}
"""Literals by their type, as Spark has it: TIMESTAMP is an instant."""
TEXT = "a text as it is written"
"""Stands for a literal text, which UPDATE and MERGE take for a value of the column: what CAST makes of it."""
COLUMNS = {
    "DATE": "DATE", "TIMESTAMP_NTZ": "TIMESTAMP(6)", "TIMESTAMP": "TIMESTAMP_LTZ(6)", "STRING": "STRING",
    "TIME": "TIME(3)",
}  # fmt: skip
"""What tables here call these types."""


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield each zone, type of the values and type of the column. A time of day gets the day on which it is stored."""
    for zone in ZONES:
        for given in (*VALUES, TEXT):
            for kind in VALUES:
                if (given, kind) not in (("TIME", "TIMESTAMP"), ("TIME", "TIMESTAMP_NTZ"), (TEXT, "TIME")):
                    yield zone, given, kind


def literals(given: str) -> tuple[str, ...]:
    """Return the values of a type as SQL."""
    return VALUES["STRING" if given == TEXT else given]


def seen(column: pa.ChunkedArray) -> list[Any]:
    """Return stored values as JSON holds them; instants in UTC."""
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat(" ")
        case date() | time():
            return value.isoformat()
        case dict():
            return [_plain(item) for item in value.values()]
        case list():
            return [_plain(item) for item in value]
    return value


def main() -> None:
    """Record what Spark stores."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    found = []
    for zone, given, kind in cases():
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.sql("DROP TABLE IF EXISTS stored")
        spark.sql(f"CREATE TABLE stored (id INT, v {kind}) USING parquet")
        cast = (f"CAST({text} AS {kind})" if given == TEXT else text for text in literals(given))
        listed = ", ".join(f"({i}, {text})" for i, text in enumerate(cast))
        case: dict[str, Any] = {"zone": zone, "given": given, "kind": kind}
        try:
            spark.sql(f"INSERT INTO stored SELECT * FROM VALUES {listed} AS q(id, v)")
        except Exception as error:
            found.append({**case, "error": str(error).strip().split("]")[0].lstrip("[")})
            continue
        rows = spark.sql("SELECT v FROM stored ORDER BY id").toArrow()
        found.append({**case, "values": seen(rows.column("v"))})
    spark.sql("DROP TABLE stored")
    spark.stop()
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(item) for item in found) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
