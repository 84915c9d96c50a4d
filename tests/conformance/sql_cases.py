"""Sessions of SQL statements with the results they must have: `vectors/sql.json`, and how a result is compared.

A step has `sql` and either nothing (it succeeds), `rows` with `columns` and `ordered`, `contains` (texts that occur in
the result), or `error` (words of the message) with `line` and `column`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from merganser.errors import MerganserError
from tests.conformance.sql_statements import sessions

FILE = Path(__file__).parent.parent / "vectors" / "sql.json"


def cases(face: str) -> list[dict[str, Any]]:
    """Return the cases that hold on a face, "embedded" or "spark"."""
    every = [*json.loads(FILE.read_text(encoding="utf-8")), *sessions()]
    return [case for case in every if face in case["faces"]]


def check(case: dict[str, Any], run: Callable[[str], pa.Table]) -> None:
    """Run the steps of a case, and compare what they give.

    Args:
        run: runs a text in the session of the case, and returns the rows.
    """
    for number, step in enumerate(case["steps"], 1):
        where = f"step {number}: {step['sql']}"
        try:
            rows = run(step["sql"])
        except MerganserError as error:
            assert "error" in step, f"{where}\n{error}"
            message = str(error).lower()
            assert all(word in message for word in step["error"]), f"{where}\n{step['error']} not in: {error}"
            if "line" in step:
                assert (error.context.get("line"), error.context.get("column")) == (step["line"], step["column"]), where
            continue
        assert "error" not in step, f"{where}\nno error, {rows.num_rows} rows"
        if "columns" in step:
            assert rows.column_names == step["columns"], where
        if "rows" in step:
            columns = [column.to_pylist() for column in rows.columns]
            found = [[_plain(value) for value in row] for row in zip(*columns, strict=True)]
            wanted = step["rows"]
            if not step.get("ordered"):
                found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
            assert found == wanted, where
        if "contains" in step:
            text = "\n".join(str(value) for column in rows.columns for value in column.to_pylist())
            assert not [word for word in step["contains"] if word not in text], f"{where}\n{text}"


def _plain(value: Any) -> Any:
    """Return a value as cases write it."""
    match value:
        case Decimal():
            return str(value)
        case datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ")
        case date() | time():
            return value.isoformat()
        case dict():
            return [_plain(item) for item in value.values()]
        case list() | tuple():
            return [_plain(item) for item in value]
    return value
