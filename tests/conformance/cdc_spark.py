"""The cases of kind `cdc` through `ms.cdc.parse`, few jobs of Spark for all: a job costs more than its records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from tests.conformance.cases import Case
from tests.conformance.cdc_case import Found, plain
from tests.conformance.column_types import parse
from tests.conformance.spark_door import HAS_TIME

_JOBS_AT_ONCE = 4


def cases_for_spark(cases: Sequence[Case]) -> list[Case]:
    """Return cases of the same table and options as one, message behind message: no record knows of another one."""
    groups: dict[str, Case] = {}
    for case in cases:
        if not HAS_TIME and any(text.startswith("TIME(") for _, text in case["schema"]):
            continue
        same = json.dumps([case[what] for what in ("format", "schema", "primary_key", "options")], sort_keys=True)
        whole = groups.setdefault(same, {**case, "name": "", "messages": [], "expect_rows": [], "expect_bad": []})
        start = len(whole["messages"])
        whole["name"] += f" {case['name']}"
        whole["messages"] += case["messages"]
        whole["expect_rows"] += case["expect_rows"]
        whole["expect_bad"] += [{**bad, "index": start + bad["index"]} for bad in case["expect_bad"]]
    return list(groups.values())


def found_through_spark(cases: Sequence[Case], session: SparkSession, folder: Path) -> list[Found]:
    """Return rows with kinds and bad messages of each case; `folder` is for the tables of the cases."""
    catalog = mg.catalog(folder)
    catalog.create_database("cdc")

    def found(number: int) -> Found:
        return _found(cases[number], _rows(cases[number], number, session, catalog))

    with ThreadPoolExecutor(_JOBS_AT_ONCE) as pool:
        return list(pool.map(found, range(len(cases))))


def _rows(case: Case, number: int, session: SparkSession, catalog: mg.Catalog) -> pa.Table:
    keys = case["primary_key"]
    options = {"bucket": "1"} if keys else {}
    table = catalog.create_table(f"cdc.t{number}", schema=dict(case["schema"]), primary_key=keys, options=options)
    messages = case["messages"]
    columns = [pa.array([message.get(what) for message in messages], pa.string()) for what in ("value", "key")]
    records = pa.table([*columns, pa.array(range(len(messages)))], names=["value", "key", "at"])
    frame = session.createDataFrame(records).coalesce(1)
    return ms.cdc.parse(frame, case["format"], table, position="at", bad="keep", **case["options"]).toArrow()


def _found(case: Case, parsed: pa.Table) -> Found:
    kinds = [parse(text) for _, text in case["schema"]]
    symbols, *columns, letters = parsed.columns
    rows: list[tuple[str, list[Any]]] = []
    bad: list[tuple[int, str]] = []
    for i, letter in enumerate(letters.to_pylist()):
        if letter is None:
            values = [plain(column[i], kind) for column, kind in zip(columns, kinds, strict=True)]
            rows.append((symbols[i].as_py(), values))
        else:
            bad.append((letter["position"], letter["reason"]))
    return rows, bad
