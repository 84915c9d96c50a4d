"""Kind `cdc`: change records in, rows with kinds out; as one batch, and split into batches at random places."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa

import merganser as mg
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import parse_type
from tests.conformance.cases import Case
from tests.conformance.column_types import Type, parse
from tests.conformance.compare import same
from tests.conformance.outcome import Failure
from tests.conformance.values import actual, expected, shown

_LTZ: Final = re.compile(r"TIMESTAMP_LTZ\((\d)\)")
_SYMBOLS: Final = ("+I", "-U", "+U", "-D")
_SPLITS: Final = 3


def run_cdc_case(case: Case) -> None:
    """Parse the messages of a case.

    Raises:
        Failure: other rows or other bad messages than expected.
    """
    table = table_of(case)
    messages = case["messages"]
    problems = judged(case, parsed(table, case, [(0, messages)]))
    draw = random.Random(case["name"])
    for _ in range(_SPLITS):
        cuts = sorted(draw.randrange(len(messages) + 1) for _ in range(draw.randrange(1, 4)))
        bounds = [0, *cuts, len(messages)]
        parts = [(a, messages[a:b]) for a, b in pairwise(bounds)]
        problems += [f"split at {cuts}: {problem}" for problem in judged(case, parsed(table, case, parts))]
    if problems:
        raise Failure("\n".join(problems))


def table_of(case: Case) -> Any:
    """Return what `mg.cdc.parse` asks a table for."""
    keys = tuple(case["primary_key"])
    fields = []
    for i, (name, text) in enumerate(case["schema"]):
        kind = parse_type(_LTZ.sub(r"TIMESTAMP(\1) WITH LOCAL TIME ZONE", text))
        fields.append(t.Field(i, name, kind.with_nullable(kind.nullable and name not in keys)))
    schema = TableSchema(0, tuple(fields), len(fields), primary_keys=keys)
    return SimpleNamespace(schema=schema, primary_key=keys)


Found = tuple[list[tuple[str, list[Any]]], list[tuple[int, str]]]


def parsed(table: Any, case: Case, parts: Sequence[tuple[int, list[Any]]]) -> Found:
    """Return rows with kinds, and positions of bad messages with reasons, of messages parsed part by part."""
    kinds = [parse(text) for _, text in case["schema"]]
    rows, bad = [], []
    for start, messages in parts:
        values, keys = ([message.get(what) for message in messages] for what in ("value", "key"))
        found = mg.cdc.parse(
            pa.array(values, pa.string()), case["format"], table, keys=pa.array(keys, pa.string()), **case["options"]
        )
        columns = [
            [plain(scalar, kind) for scalar in column] for column, kind in zip(found.rows.columns, kinds, strict=True)
        ]
        symbols = [_SYMBOLS[kind] for kind in found.kinds.to_pylist()]
        rows += list(zip(symbols, [list(row) for row in zip(*columns, strict=True)], strict=True))
        bad += [
            (start + record, reason)
            for record, reason in zip(
                found.rejected.column("record").to_pylist(), found.rejected.column("reason").to_pylist(), strict=True
            )
        ]
    return rows, bad


def plain(scalar: pa.Scalar, kind: Type) -> Any:
    """Return a value as the header of the file writes it: bytes in base64."""
    found = actual(scalar, kind)
    return base64.b64encode(found).decode() if isinstance(found, bytes) else found


def judged(case: Case, found: Found, *, micros: bool = False) -> list[str]:
    """Return what is wrong with the rows and the bad messages; `micros` as for a door."""
    rows, bad = found
    kinds = [parse(text) for _, text in case["schema"]]
    wanted = [
        (row[0], [wanted_value(v, k, micros=micros) for v, k in zip(row[1:], kinds, strict=True)])
        for row in case["expect_rows"]
    ]
    problems = []
    if len(rows) != len(wanted) or not all(
        a[0] == w[0] and same(a[1], w[1]) for a, w in zip(rows, wanted, strict=False)
    ):
        lines = [f"    {kind} {shown(row)}" for kind, row in wanted], [f"    {kind} {shown(row)}" for kind, row in rows]
        problems.append(
            "rows\n  expected:\n" + "\n".join(lines[0]) + "\n  actual:\n" + "\n".join(lines[1]) + f"\n  bad: {bad}"
        )
    expected_bad = [(item["index"], item["reason"]) for item in case["expect_bad"]]
    if [index for index, _ in bad] != [index for index, _ in expected_bad] or not all(
        re.search(wanted_reason, reason) for (_, reason), (_, wanted_reason) in zip(bad, expected_bad, strict=True)
    ):
        problems.append(f"bad messages\n  expected:   {expected_bad}\n  actual:     {bad}")
    return problems


def wanted_value(value: Any, kind: Type, *, micros: bool = False) -> Any:
    """Return an expected value in the plain form; integers beyond 2^53 and bytes are text there."""
    if kind.name == "BIGINT" and isinstance(value, str):
        return int(value)
    if kind.name in ("BYTES", "BINARY", "VARBINARY"):
        return value
    return expected(value, kind, micros=micros)
