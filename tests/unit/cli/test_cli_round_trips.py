"""What `merganser read` writes as CSV, JSON or Parquet, `merganser write` reads back as equal rows."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import merganser as mg

from .conftest import Run

FLAT = {
    "id": "INT",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "big": "BIGINT",
    "char": "CHAR(3)",
    "varchar": "VARCHAR(5)",
    "fixed": "BINARY(2)",
    "varied": "VARBINARY(3)",
    "whole": "DECIMAL(5, 0)",
    "clock": "TIME(0)",
    "seconds": "TIMESTAMP(0)",
    "instant0": "TIMESTAMP(0) WITH LOCAL TIME ZONE",
    "instant9": "TIMESTAMP(9) WITH LOCAL TIME ZONE",
    "text": "STRING",
    "bytes": "BYTES",
    "double": "DOUBLE",
    "float": "FLOAT",
    "decimal": "DECIMAL(38, 18)",
    "day": "DATE",
    "hour": "TIME(3)",
    "ms": "TIMESTAMP(3)",
    "us": "TIMESTAMP(6)",
    "ns": "TIMESTAMP(9)",
    "instant": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "truth": "BOOLEAN",
}
NESTED = {
    "floats": "ARRAY<DOUBLE>",
    "blobs": "ARRAY<BYTES>",
    "by_number": "MAP<INT, DOUBLE>",
    "by_text": "MAP<STRING, FLOAT>",
    "bag": "MULTISET<STRING>",
    "deep": "ARRAY<ROW<m MAP<STRING, ARRAY<DECIMAL(5, 2)>>, t TIMESTAMP(6)>>",
    "row": "ROW<b BYTES, d DOUBLE, days ARRAY<DATE>>",
}


def _row(i: int, **values: Any) -> dict[str, Any]:
    return dict.fromkeys([*FLAT, *NESTED]) | {"id": i} | values


ROWS = [
    _row(0, text="", bytes=b"", double=math.inf, float=-math.inf, floats=[], blobs=[], by_number=[], truth=True),
    _row(1, text="NA", bytes=b"\0\xff", double=math.nan, float=math.nan, truth=False),
    _row(
        2,
        text='quo"te, \\ and\nline\r\nbreak',
        bytes=b"plain",
        double=-0.0,
        float=0.10000000149011612,
        decimal=Decimal("1E-18"),
    ),
    _row(3, text="NaN", double=5e-324, decimal=Decimal("-99999999999999999999.999999999999999999")),
    _row(4, text=" ä ", day=date(1, 1, 1), hour=time(23, 59, 59, 999000), us=datetime(1, 1, 1, 0, 0, 0, 1)),
    _row(5, ms=datetime(9999, 12, 31, 23, 59, 59, 999000), ns=datetime(2020, 1, 1, 0, 0, 0, 1)),
    _row(6, instant=datetime(1500, 1, 1, 0, 0, 0, 1, tzinfo=UTC), day=date(9999, 12, 31)),
    _row(7, floats=[math.nan, -math.inf, 1.0, None], blobs=[b"\xff", None], by_number=[(1, math.inf), (2, None)]),
    _row(8, row={"b": b"\xff", "d": math.nan, "days": [date(2020, 1, 1), None]}),
    _row(
        9, float=0.10000000149011612, tiny=-128, small=-32768, big=-(2**63), char="abc", varchar="a,b", fixed=b"\0\xff"
    ),
    _row(11, varied=b"", whole=Decimal(-99999), clock=time(23, 59, 59), seconds=datetime(1969, 12, 31, 23, 59, 59)),
    _row(12, instant0=datetime(2026, 3, 8, 7, tzinfo=UTC), instant9=datetime(1969, 12, 31, 23, tzinfo=UTC)),
    _row(13, by_text=[("NaN", math.nan), ('q"', -math.inf), ("", None)], bag=[("a", 2), ("Infinity", 1)], big=2**62),
    _row(14, deep=[{"m": [("k", [Decimal("1.50"), None])], "t": datetime(2026, 1, 1)}, None, {"m": None, "t": None}]),
    _row(15, text="Infinity", floats=[math.inf], row={"b": None, "d": -math.inf, "days": []}),
    _row(10),
]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_rows_come_back_as_they_were(run: Run, form: str) -> None:
    catalog = mg.catalog("warehouse")
    catalog.create_database("d")
    schema = FLAT if form == "csv" else FLAT | NESTED
    first, second = (catalog.create_table(f"d.{name}", schema) for name in ("first", "second"))
    first.write([{name: row[name] for name in schema} for row in ROWS])
    assert run("read", "d.first", "--output", f"out.{form}").code == 0
    assert run("write", "d.second", f"out.{form}").code == 0
    # As text, since NaN equals nothing and -0.0 equals 0.0.
    assert repr(second.read().to_pylist()) == repr(first.read().to_pylist())


@pytest.mark.parametrize("form", ["csv", "json"])
def test_no_rows_and_rows_of_nothing_but_null_come_back(run: Run, form: str) -> None:
    catalog = mg.catalog("warehouse")
    catalog.create_database("d")
    first, second = (catalog.create_table(f"d.{name}", {"v": "STRING"}) for name in ("first", "second"))
    run("read", "d.first", "--output", f"out.{form}")
    assert run("write", "d.second", f"out.{form}").out == "nothing was committed: the files hold no rows\n"
    first.write([{"v": None}, {"v": ""}, {"v": None}])
    run("read", "d.first", "--output", f"out.{form}")
    run("write", "d.second", f"out.{form}")
    assert second.read().to_pylist() == [{"v": None}, {"v": ""}, {"v": None}]


def test_numbers_that_are_none_stand_bare_in_json(run: Run) -> None:
    run("create-database", "d")
    run("create-table", "d.t", "-c", "a DOUBLE", "-c", "b MAP<STRING, FLOAT>")
    mg.table("warehouse/d.db/t").write([{"a": math.nan, "b": {"x": -math.inf, 'q"': 1.5}}])
    out = run("read", "d.t", "-f", "json").out
    assert out == '{"a":NaN,"b":[{"key":"x","value":-Infinity},{"key":"q\\"","value":1.5}]}\n'
    assert json.loads(out)["b"][0]["value"] == -math.inf


@pytest.mark.parametrize("form", ["to_arrow", "to_pylist", "to_polars", "to_pandas"])
def test_rows_that_were_read_can_be_written_again(run: Run, form: str) -> None:
    catalog = mg.catalog("warehouse")
    catalog.create_database("d")
    first, second = (catalog.create_table(f"d.{name}", FLAT | NESTED) for name in ("first", "second"))
    first.write(ROWS)
    second.write(getattr(first.read(), form)())
    found, wanted = (repr(table.read().to_pylist()) for table in (second, first))
    if form == "to_pandas":  # it has one value for null and NaN
        found, wanted = found.replace("nan", "None"), wanted.replace("nan", "None")
    assert found == wanted


def test_options_of_files_are_given_on_the_command_line(run: Run) -> None:
    run("create-database", "d")
    run("create-table", "d.t", "-c", "a STRING", "-c", "b INT")
    Path("in.csv").write_text("NA;1\n\\N;2\n")
    options = ("-o", "csv.delimiter=;", "-o", "csv.header=false", "--option", "csv.null=\\N")
    assert run("write", "d.t", "in.csv", *options).out.startswith("snapshot 1: 2 rows written")
    assert mg.table("warehouse/d.db/t").read().to_pylist() == [{"a": "NA", "b": 1}, {"a": None, "b": 2}]
    ran = run("write", "d.t", "in.csv", "-o", "csv.delimeter=;")
    assert ran.code == 1
    assert "'csv.delimiter'" in ran.err
