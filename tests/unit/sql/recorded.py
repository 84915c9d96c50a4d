"""Values of expressions as Spark computes them: `python -m tests.unit.sql.recorded` records `expressions.json`.

The rows are made by one query, which runs on Spark and in this process alike. A line is an expression over these rows,
or a query that begins with SELECT and calls them `t`. `[zone] ` before it sets the time zone. With `--new`, only lines
that have no record yet run.
"""

from __future__ import annotations

import json
import math
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

HERE = Path(__file__).parent
EXPRESSIONS = HERE / "expressions.txt"
RECORDED = HERE / "expressions.json"
ROWS = """SELECT * FROM VALUES
  (1, 1, 10L, 1.5D, CAST(0.5 AS FLOAT), CAST(1.25 AS DECIMAL(10, 2)), 'abc', true, DATE '2026-01-31',
   TIMESTAMP_NTZ '2026-01-31 10:20:30', array(1, 2, 3), map('a', 1), named_struct('x', 1, 'y', 'p')),
  (2, -7, 3L, -2.75D, CAST(-0.25 AS FLOAT), CAST(-10.05 AS DECIMAL(10, 2)), 'a%b', false, DATE '2024-02-29',
   TIMESTAMP_NTZ '2024-02-29 23:59:59.5', array(3, 1), map('b', 2), named_struct('x', 2, 'y', NULL)),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 2, -4000000000L, 12345.678D, CAST(1234.5 AS FLOAT), CAST(99999.99 AS DECIMAL(10, 2)), 'Über b', true,
   DATE '1969-12-31', TIMESTAMP_NTZ '1969-12-31 00:00:00', array(2, NULL), map('a', 5),
   named_struct('x', NULL, 'y', 'q'))
  AS t(id, i, l, d, f, m, s, b, dt, ts, a, mp, st)"""


def expressions() -> list[str]:
    """Return the expressions, in their order."""
    lines = EXPRESSIONS.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def zone_of(line: str) -> tuple[str, str]:
    """Return the time zone of a line, and the rest of it."""
    if not line.startswith("["):
        return "UTC", line
    zone, _, rest = line[1:].partition("] ")
    return zone, rest


def is_query(text: str) -> bool:
    return text.upper().startswith("SELECT ")


def query(text: str) -> str:
    """Return the query of a line; the column of an expression is `v`."""
    return f"WITH t AS ({ROWS}) {text}" if is_query(text) else f"SELECT {text} AS v FROM ({ROWS}) ORDER BY id"


def unnamed(expression: str) -> str:
    """Return the query that shows what the column of an expression is called without an alias."""
    return f"SELECT {expression} FROM ({ROWS}) LIMIT 1"


def plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    match value:
        case float():
            return str(value) if not math.isfinite(value) else float(f"{value:.14g}")
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat(sep=" ")
        case timedelta():
            return value.total_seconds()
        case date():
            return value.isoformat()
        case bytes() | bytearray():
            return bytes(value).hex()
        case dict():
            return [plain(item) for item in value.values()]
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def seen(rows: pa.Table) -> dict[str, Any]:
    """Return names, types and values of the columns of a result, as JSON holds them."""
    values = [[plain(v) for v in column.to_pylist()] for column in rows.columns]
    return {"names": rows.column_names, "types": [str(column.type) for column in rows.columns], "values": values}


def main() -> None:
    """Record what Spark gives."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    known = {item["sql"]: item for item in json.loads(RECORDED.read_text(encoding="utf-8"))}
    found = []
    for line in expressions():
        if "--new" in sys.argv and line in known:
            found.append(known[line])
            continue
        zone, text = zone_of(line)
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            rows = spark.sql(query(text)).toArrow()
        except Exception as error:
            found.append({"sql": line, "error": str(error).strip().split("]")[0].lstrip("[")})
            continue
        one = {"sql": line, **seen(rows)}
        if not is_query(text):
            one["names"] = [spark.sql(unnamed(text)).columns[0]]
        found.append(one)
    RECORDED.write_text("[\n" + ",\n".join(json.dumps(item) for item in found) + "\n]\n", encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main()
